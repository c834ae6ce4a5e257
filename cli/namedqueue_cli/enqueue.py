"""`nq enqueue`: send one job, or a job for each line of standard input."""

import os
import sys
from collections.abc import Iterable, Iterator

import click

from namedqueue_cli.client import Client, queue_path, server_option

_BATCH = 1000
_BATCH_BYTES = 8 * 1024 * 1024
"""Half of what the API takes at once."""


@click.command()
@click.argument("queue")
@click.argument("payload", required=False)
@click.option("--lines", is_flag=True, help="Read payloads from standard input, one a line (JSON).")
@click.option("--type", "type_", help="The job's type, `ce-type` for the app.")
@click.option("--key", help="The idempotency key.")
@click.option("--group", help="The group within which order is kept.")
@click.option("--priority", type=int, help="The priority, up to the queue's maxPriority.")
@click.option("--delay", help="Deliver not before this has passed, as in 30s.")
@server_option
def enqueue(
    queue: str,
    payload: str | None,
    lines: bool,
    type_: str | None,
    key: str | None,
    group: str | None,
    priority: int | None,
    delay: str | None,
    server: str | None,
) -> None:
    """Send PAYLOAD to QUEUE and print the job's id once the broker has confirmed it.

    Without PAYLOAD the payload is read from standard input. Exits 1 if anything was refused.

    \b
    nq enqueue orders '{"order": 1}'
    nq enqueue orders --lines < orders.ndjson
    """  # noqa: D301  # \b is click's mark for lines kept as they are
    client = Client(server)
    wishes = {
        "NQ-Type": type_,
        "Idempotency-Key": key,
        "NQ-Group": group,
        "NQ-Priority": None if priority is None else str(priority),
        "NQ-Delay": delay,
    }
    headers = {name: value for name, value in wishes.items() if value is not None}
    if lines:
        if headers or payload is not None:
            raise click.UsageError("--lines takes nothing beside it; put fields into each entry")
        _enqueue_lines(client, queue)
        return
    body = sys.stdin.buffer.read() if payload is None else os.fsencode(payload)
    headers["Content-Type"] = "application/json"
    answer = client.call("POST", f"{queue_path(queue)}/messages", body=body, headers=headers)
    click.echo(answer["id"])


def _enqueue_lines(client: Client, queue: str) -> None:
    accepted, failed = 0, 0
    for batch in _batches(sys.stdin.buffer):
        try:
            answer = client.call(
                "POST",
                f"{queue_path(queue)}/messages:batch",
                body=b"\n".join(b'{"payload":%s}' % line for _, line in batch),
                headers={"Content-Type": "application/x-ndjson"},
            )
        except click.ClickException as refused:
            first = batch[0][0]
            raise click.ClickException(
                f"{refused.message}; {accepted} accepted before line {first}"
            ) from None
        accepted += answer["accepted"]
        for failure in answer.get("failed", []):
            failed += 1
            line, _ = batch[failure["index"]]
            click.echo(f"line {line}: {failure['detail']} ({failure['code']})", err=True)
    click.echo(f"{accepted} accepted" + (f", {failed} refused" if failed else ""))
    if failed:
        raise click.exceptions.Exit(1)


def _batches(lines: Iterable[bytes]) -> Iterator[list[tuple[int, bytes]]]:
    """Gather lines and their numbers into what the API takes at once; empty ones are left out."""
    batch: list[tuple[int, bytes]] = []
    size = 0
    for number, line in enumerate(lines, start=1):
        kept = line.strip()
        if batch and (len(batch) == _BATCH or size + len(kept) > _BATCH_BYTES):
            yield batch
            batch, size = [], 0
        if kept:
            batch.append((number, kept))
            size += len(kept)
    if batch:
        yield batch
