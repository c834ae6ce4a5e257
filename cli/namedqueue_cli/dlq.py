"""`nq dlq`: look at what failed, and send it back or away."""

import json
from collections.abc import Iterator
from itertools import islice
from typing import IO, Any
from urllib.parse import quote

import click

from namedqueue_cli.client import Client, queue_path, server_option
from namedqueue_cli.output import make_table, output_option, show


@click.group()
def dlq() -> None:
    """Look at dead letters, and send them back or away."""


@dlq.command("ls")
@click.argument("queue")
@click.option("--reason", help="Only those with this terminal reason.")
@click.option("--limit", type=click.IntRange(min=1), default=50, show_default=True)
@output_option
@server_option
def list_(queue: str, reason: str | None, limit: int, output: str, server: str | None) -> None:
    """List dead letters of QUEUE, oldest first."""
    found = list(islice(Client(server).dead_letters(queue, reason), limit))
    columns = ("ID", "REASON", "ATTEMPTS", "REDRIVES", "SINCE", "MESSAGE")
    show(output, found, lambda: make_table(columns, [_row(letter) for letter in found]))


@dlq.command()
@click.argument("queue")
@output_option
@server_option
def groups(queue: str, output: str, server: str | None) -> None:
    """Count the dead letters of QUEUE by reason."""
    found = Client(server).call("GET", f"{queue_path(queue)}/dead-letters/groups")["items"]
    columns = ("REASON", "COUNT", "FIRST", "LAST", "MESSAGE")
    fields = ("reason", "count", "first", "last", "message")
    rows = [tuple(group[field] for field in fields) for group in found]
    show(output, found, lambda: make_table(columns, rows))


@dlq.command("show")
@click.argument("queue")
@click.argument("id_", metavar="ID")
@server_option
def show_(queue: str, id_: str, server: str | None) -> None:
    """Print one dead letter with its whole story, as JSON."""
    click.echo(json.dumps(Client(server).call("GET", _letter_path(queue, id_)), indent=2))


@dlq.command()
@click.argument("queue")
@click.option("--reason", help="Only those with this terminal reason.")
@click.option("--id", "ids", multiple=True, help="Only this job; may be given again.")
@click.option("--limit", type=click.IntRange(min=1), help="At most this many.")
@click.option("--dry-run", is_flag=True, help="Count what would be sent back.")
@server_option
def redrive(
    queue: str,
    reason: str | None,
    ids: tuple[str, ...],
    limit: int | None,
    dry_run: bool,
    server: str | None,
) -> None:
    """Send dead letters back to QUEUE with fresh attempts, and print the count as JSON."""
    wish = {"reason": reason, "ids": list(ids) or None, "limit": limit, "dryRun": dry_run or None}
    body = json.dumps({name: value for name, value in wish.items() if value is not None})
    answer = Client(server).call("POST", f"{queue_path(queue)}/redrive", body=body.encode())
    click.echo(json.dumps(answer))


@dlq.command()
@click.argument("queue")
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@click.option("--yes", is_flag=True, help="Do not ask.")
@server_option
def discard(queue: str, ids: tuple[str, ...], yes: bool, server: str | None) -> None:
    """Remove dead letters for good."""
    if not yes:
        click.confirm(f"Remove {len(ids)} dead letters of {queue} for good?", abort=True)
    client = Client(server)
    for one in ids:
        client.call("DELETE", _letter_path(queue, one))
    click.echo(f"{len(ids)} removed")


@dlq.command()
@click.argument("queue")
@click.argument("file", type=click.File("w"), default="-")
@click.option("--reason", help="Only those with this terminal reason.")
@server_option
def export(queue: str, file: IO[str], reason: str | None, server: str | None) -> None:
    """Write the dead letters of QUEUE to FILE as NDJSON, oldest first."""
    count = 0
    for letter in _with_progress(Client(server).dead_letters(queue, reason)):
        file.write(f"{json.dumps(letter)}\n")
        count += 1
    click.echo(f"{count} exported", err=True)


def _with_progress(letters: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    from rich.console import Console  # noqa: PLC0415  # only for long work
    from rich.progress import track  # noqa: PLC0415

    yield from track(letters, description="exporting", console=Console(stderr=True), transient=True)


def _letter_path(queue: str, letter: str) -> str:
    return f"{queue_path(queue)}/dead-letters/{quote(letter, safe='')}"


def _row(letter: dict[str, Any]) -> tuple[object, ...]:
    return (
        letter["eventId"],
        letter["terminalReasonCode"],
        letter["attemptCount"],
        letter["redrives"],
        letter["deadLetteredAt"],
        letter["terminalReasonMessage"],
    )
