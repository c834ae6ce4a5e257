"""`nq validate`: check manifests without a cluster or a broker."""

import json
from dataclasses import asdict

import click

from namedqueue.api.reading import KINDS
from namedqueue_cli.documents import Unreadable
from namedqueue_cli.manifests import Finding, Verdict, check


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="How to print.",
)
def validate(files: tuple[str, ...], output: str) -> None:
    """Check manifests by the rules of the API, without a cluster or a broker.

    FILE is a YAML or JSON file, a folder of them, or - for standard input. Documents of other
    kinds are skipped.

    Exit codes: 0 everything is valid, 1 something is not, 2 a file cannot be read.
    """
    try:
        findings = [finding for checked in check(files) for finding in checked.findings]
    except Unreadable as error:
        raise click.UsageError(str(error)) from None
    if all(finding.verdict is Verdict.SKIPPED for finding in findings):
        sentence = f"there is no {' or '.join(KINDS)} in here; check the path"
        findings.append(Finding(", ".join(files), 1, Verdict.INVALID, sentence))
    click.echo(_report(findings, output))
    if any(finding.verdict is Verdict.INVALID for finding in findings):
        click.get_current_context().exit(1)


def _report(findings: list[Finding], output: str) -> str:
    if output == "json":
        return json.dumps([asdict(finding) for finding in findings], indent=2)
    return "\n".join(str(finding) for finding in findings)
