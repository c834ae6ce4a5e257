"""`nq dlq`: look at what failed, say how far you are with it, and send it back or away."""

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import click

from namedqueue_cli import editing, exporting
from namedqueue_cli.client import Client, Refused, queue_path, server_option
from namedqueue_cli.output import make_table, output_option, show

_GLANCE = 0.5
_NOT_FOUND = 404


@click.group()
def dlq() -> None:
    """Look at dead letters, and send them back or away.

    Exit codes: 0 all is well, 1 the answer is no or a redrive ended before its end, 2 the command
    cannot be understood.
    """


def search_options(command: click.decorators.FC) -> click.decorators.FC:
    """Add what dead letters can be searched by; all but `--reason` need a store."""
    for option in (
        click.option("--until", help="Dead-lettered before this moment."),
        click.option("--since", help="Dead-lettered at this moment or later."),
        click.option("--text", help="With this in message, id or reason."),
        click.option("--group", help="Of this group; see `nq dlq groups`."),
        click.option(
            "--state",
            type=click.Choice(["pending", "reviewed", "replayed", "closed"]),
            help="Of this state; by default those that can be redriven.",
        ),
        click.option("--reason", help="With this terminal reason."),
    ):
        command = option(command)
    return command


def contains_option(command: click.decorators.FC) -> click.decorators.FC:
    """Add the search in payloads, which looks at one record after another."""
    return click.option(
        "--contains", help="With this in the payload, exactly so; looks at one after another."
    )(command)


@dlq.command("ls")
@click.argument("queue")
@search_options
@contains_option
@click.option("--limit", type=click.IntRange(min=1), default=50, show_default=True)
@output_option
@server_option
def list_(queue: str, limit: int, output: str, server: str | None, **search: str | None) -> None:
    """List dead letters of QUEUE, oldest first."""
    found = list(islice(Client(server).dead_letters(queue, search, limit), limit))
    columns = ("ID", "REASON", "STATE", "ATTEMPTS", "REDRIVES", "SINCE", "MESSAGE")
    show(output, found, lambda: make_table(columns, [_row(letter) for letter in found]))


@dlq.command()
@click.argument("queue")
@search_options
@output_option
@server_option
def groups(queue: str, output: str, server: str | None, **search: str | None) -> None:
    """Count the dead letters of QUEUE by reason, with a store by cause."""
    query = urlencode({name: value for name, value in search.items() if value is not None})
    path = f"{queue_path(queue)}/dead-letters/groups"
    found = Client(server).call("GET", f"{path}?{query}" if query else path)["items"]
    columns = ("GROUP", "REASON", "COUNT", "FIRST", "LAST", "MESSAGE")
    fields = ("group", "reason", "count", "first", "last", "message")
    rows = [tuple(group.get(field, "") for field in fields) for group in found]
    show(output, found, lambda: make_table(columns, rows))


@dlq.command("show")
@click.argument("queue")
@click.argument("id_", metavar="ID")
@click.option("-o", "--output", type=click.Choice(["json", "yaml"]), default="json")
@server_option
def show_(queue: str, id_: str, output: str, server: str | None) -> None:
    """Print one dead letter with its whole story."""
    show(output, Client(server).call("GET", _letter_path(queue, id_)), lambda: None)


@dlq.command()
@click.argument("queue")
@click.option("--reason", help="Only those with this terminal reason.")
@click.option("--id", "ids", multiple=True, help="Only this job; may be given again.")
@click.option("--limit", type=click.IntRange(min=1), help="At most this many.")
@click.option("--rate", type=click.FloatRange(min=0, min_open=True), help="Jobs a second.")
@click.option(
    "--abort-after",
    type=click.IntRange(min=1),
    help="Stop when so many of the jobs that were sent came straight back.",
)
@click.option("--dry-run", is_flag=True, help="Count what would be sent back.")
@server_option
def redrive(
    queue: str,
    reason: str | None,
    ids: tuple[str, ...],
    limit: int | None,
    rate: float | None,
    abort_after: int | None,
    dry_run: bool,
    server: str | None,
) -> None:
    """Send dead letters back to QUEUE with fresh attempts, and print the count as JSON.

    Exits 1 if it ended before its end: jobs came straight back, or the queue is full.
    """
    wish = {
        "reason": reason,
        "ids": list(ids) or None,
        "limit": limit,
        "ratePerSecond": rate,
        "abortAfterFailures": abort_after,
        "dryRun": dry_run or None,
    }
    body = json.dumps({name: value for name, value in wish.items() if value is not None})
    path = f"{queue_path(queue)}/redrive"
    answer = _watched(
        lambda: Client(server).call("POST", path, body=body.encode(), patience=None),
        lambda: Client(server).call("GET", path),
    )
    click.echo(json.dumps(answer))
    if "ended" in answer:
        raise click.exceptions.Exit(1)


@dlq.command()
@click.argument("queue")
@click.argument("id_", metavar="ID")
@click.option(
    "--file",
    type=click.Path(path_type=Path, allow_dash=True, exists=True, dir_okay=False),
    help="The new payload, byte for byte; - is standard input. By default $EDITOR opens.",
)
@click.option("--content-type", help="Of the new payload; by default as it was.")
@server_option
def edit(
    queue: str, id_: str, file: Path | None, content_type: str | None, server: str | None
) -> None:
    """Send one dead letter back to QUEUE with another payload, and print its new id as JSON.

    The data plane has to allow it. The new job and the letter's record name each other.
    """
    client, path = Client(server), _letter_path(queue, id_)
    if file is not None:
        with click.open_file(str(file), "rb") as source:
            payload: bytes | None = source.read()
    else:
        payload = editing.edited_payload(client.call("GET", path))
    if payload is None:
        click.echo("nothing was changed, so nothing is sent", err=True)
        return
    headers = {"Content-Type": content_type} if content_type else {}
    try:
        answer = client.call("POST", f"{path}/edit", body=payload, headers=headers, patience=None)
    except click.ClickException as refused:
        if file is not None:
            raise
        raise editing.with_draft(refused, payload, f"nq dlq edit {queue} {id_}") from None
    click.echo(json.dumps(answer))


@dlq.command()
@click.argument("queue")
@click.argument("state", type=click.Choice(["pending", "reviewed", "closed"]))
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@server_option
def review(queue: str, state: str, ids: tuple[str, ...], server: str | None) -> None:
    """Say how far you are with dead letters; needs a store.

    A closed one stays on record and can be sent back no more.
    """
    client, body = Client(server), json.dumps({"state": state}).encode()
    for one in ids:
        client.call("PATCH", _letter_path(queue, one), body=body)
    click.echo(f"{len(ids)} {state}")


@dlq.command()
@click.argument("queue")
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@click.option("--yes", is_flag=True, help="Do not ask.")
@server_option
def discard(queue: str, ids: tuple[str, ...], yes: bool, server: str | None) -> None:
    """Remove dead letters for good; exits 1 if one of them was not there."""
    if not yes:
        click.confirm(f"Remove {len(ids)} dead letters of {queue} for good?", abort=True)
    client = Client(server)
    missing = [one for one in ids if not _discarded(client, queue, one)]
    click.echo(f"{len(ids) - len(missing)} removed")
    if missing:
        raise click.ClickException(f"there is no dead letter {', '.join(missing)}")


@dlq.command()
@click.argument("queue")
@click.argument("file", type=click.Path(path_type=Path, allow_dash=True), default="-")
@click.option(
    "--format",
    "format_",
    type=click.Choice(["ndjson", "parquet"]),
    help="By default parquet for a FILE that ends so, else ndjson.",
)
@search_options
@contains_option
@server_option
def export(
    queue: str, file: Path, format_: str | None, server: str | None, **search: str | None
) -> None:
    """Write the dead letters of QUEUE to FILE, oldest first."""
    letters = _with_progress(Client(server).dead_letters(queue, search))
    if (format_ or file.suffix.removeprefix(".")) == "parquet":
        count = exporting.to_parquet(letters, file)
    else:
        count = exporting.to_ndjson(letters, file)
    click.echo(f"{count} exported", err=True)


def _watched(
    work: Callable[[], dict[str, Any]], ask: Callable[[], dict[str, Any]]
) -> dict[str, Any]:
    """Do work whose progress can be asked for, and show that to a person who waits."""
    from rich.console import Console  # noqa: PLC0415  # only for long work
    from rich.progress import Progress  # noqa: PLC0415

    done = threading.Event()

    def watch(progress: Progress) -> None:
        bar = progress.add_task("redriving", total=None)
        while not done.wait(_GLANCE):
            try:
                told = ask()
            except click.ClickException:
                continue  # it has not begun, or its end will be told anyway
            progress.update(bar, completed=told["redriven"], total=told["matched"])

    with Progress(console=Console(stderr=True), transient=True) as progress:
        watching = threading.Thread(target=watch, args=(progress,), daemon=True)
        watching.start()
        try:
            return work()
        finally:
            done.set()
            watching.join()


def _with_progress(letters: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    from rich.console import Console  # noqa: PLC0415  # only for long work
    from rich.progress import track  # noqa: PLC0415

    yield from track(letters, description="exporting", console=Console(stderr=True), transient=True)


def _discarded(client: Client, queue: str, letter: str) -> bool:
    try:
        client.call("DELETE", _letter_path(queue, letter))
    except Refused as refused:
        if refused.status != _NOT_FOUND or refused.code != "UNKNOWN_DEAD_LETTER":
            raise
        return False
    return True


def _letter_path(queue: str, letter: str) -> str:
    return f"{queue_path(queue)}/dead-letters/{quote(letter, safe='')}"


def _row(letter: Mapping[str, Any]) -> tuple[object, ...]:
    return (
        letter["eventId"],
        letter["terminalReasonCode"],
        letter.get("state", ""),
        letter["attemptCount"],
        letter["redrives"],
        letter["deadLetteredAt"],
        letter["terminalReasonMessage"],
    )
