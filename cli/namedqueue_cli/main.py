"""`nq`, also installed as `kubectl-nq`.

Each verb is a module of its own that is imported when it is used, so that `nq --help` and shell
completion answer at once. No verb ends in a traceback.
"""

import importlib
import os
import sys
from pathlib import Path
from typing import Any, NamedTuple

import click


class Verb(NamedTuple):
    """Where a command is defined, and its line in `nq --help`."""

    target: str
    summary: str


VERBS = {
    "dlq": Verb("namedqueue_cli.dlq:dlq", "Look at dead letters, and send them back or away."),
    "enqueue": Verb("namedqueue_cli.enqueue:enqueue", "Send one job, or a job for each line."),
    "queues": Verb("namedqueue_cli.queues:queues", "List queues with their depths."),
    "run": Verb("namedqueue_cli.run:run", "Run queues and their app on this machine."),
    "streams": Verb("namedqueue_cli.streams:streams", "Read streams, and move groups in them."),
    "topology": Verb(
        "namedqueue_cli.topology:topology", "Show what a manifest will create on the broker."
    ),
    "validate": Verb("namedqueue_cli.validate:validate", "Check manifests, offline."),
}


class LazyGroup(click.Group):
    """Knows its commands by name and imports only the one that is run."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  # click's signature
        return sorted(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in VERBS:
            return None
        module, name = VERBS[cmd_name].target.split(":")
        command = getattr(importlib.import_module(module), name)
        return command if isinstance(command, click.Command) else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([(name, verb.summary) for name, verb in sorted(VERBS.items())])


@click.command(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="namedqueue", message="nq %(version)s")
def nq() -> None:
    """Work with NamedQueues: check manifests, look at queues, send and redrive jobs.

    Exit codes: 0 all is well, 1 the answer is no (an invalid manifest, a refused job), 2 the
    command cannot be understood or a file cannot be read or written.
    """


def main(arguments: list[str] | None = None) -> Any:
    """Run a command line; anything unforeseen becomes one line on stderr."""
    as_plugin = Path(sys.argv[0]).name.startswith("kubectl-")
    try:
        return nq.main(arguments, prog_name="kubectl nq" if as_plugin else "nq")
    except OSError as error:
        if os.environ.get("NQ_DEBUG"):
            raise
        click.echo(f"nq: {str(error) or type(error).__name__}", err=True)
        sys.exit(2)
    except Exception as error:
        if os.environ.get("NQ_DEBUG"):
            raise
        reason = f"{type(error).__name__}: {error}"
        click.echo(f"nq: this is a bug in nq: {reason} (NQ_DEBUG=1 shows where)", err=True)
        sys.exit(70)
