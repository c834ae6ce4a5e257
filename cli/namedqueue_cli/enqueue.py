"""`nq enqueue`: send one job, or a job for each line of standard input."""

import sys
from collections.abc import Iterator
from itertools import islice

import click

from namedqueue_cli.client import Client, queue_path, server_option

_BATCH = 1000


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
    body = sys.stdin.buffer.read() if payload is None else payload.encode()
    headers["Content-Type"] = "application/json"
    answer = client.call("POST", f"{queue_path(queue)}/messages", body=body, headers=headers)
    click.echo(answer["id"])


def _enqueue_lines(client: Client, queue: str) -> None:
    accepted, failed, first = 0, 0, 1
    for batch in _batches(sys.stdin.buffer):
        body = b"\n".join(b'{"payload":%s}' % line.strip() for line in batch)
        answer = client.call(
            "POST",
            f"{queue_path(queue)}/messages:batch",
            body=body,
            headers={"Content-Type": "application/x-ndjson"},
        )
        accepted += answer["accepted"]
        for failure in answer.get("failed", []):
            failed += 1
            line = first + failure["index"]
            click.echo(f"line {line}: {failure['detail']} ({failure['code']})", err=True)
        first += len(batch)
    click.echo(f"{accepted} accepted" + (f", {failed} refused" if failed else ""))
    if failed:
        raise click.exceptions.Exit(1)


def _batches(lines: Iterator[bytes]) -> Iterator[list[bytes]]:
    kept = (line for line in lines if line.strip())
    while batch := list(islice(kept, _BATCH)):
        yield batch
