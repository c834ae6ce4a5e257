"""`nq streams`: look into streams, and see and move the groups that read them."""

import json
from collections.abc import Iterator
from itertools import islice
from typing import Any
from urllib.parse import quote, urlencode

import click

from namedqueue_cli.client import Client, server_option, stream_path
from namedqueue_cli.output import make_table, output_option, show

_PIECE = 1000
_LONGEST_CELL = 60


@click.group()
def streams() -> None:
    """Read streams, and see and move the groups that read them."""


@streams.command()
@click.argument("queue")
@output_option
@server_option
def groups(queue: str, output: str, server: str | None) -> None:
    """Show how far each group of QUEUE has come, and how many messages are before it."""
    found = Client(server).call("GET", f"{stream_path(queue)}/groups")["items"]
    columns = ("GROUP", "CURSOR", "LAG", "READS BY", "HALTED AT")
    show(output, found, lambda: make_table(columns, [_group_row(group) for group in found]))


@streams.command()
@click.argument("queue")
@click.argument("group")
@click.argument("position")
@server_option
def seek(queue: str, group: str, position: str, server: str | None) -> None:
    """Move GROUP of QUEUE to POSITION and print the offset that it reads next, as JSON.

    POSITION is first, last, next, an offset, or a time as in 2026-02-26T12:00:00Z. A group that
    is pushed goes on from there at once, also one that halted.
    """
    path = f"{stream_path(queue)}/groups/{quote(group, safe='')}/seek"
    body = json.dumps({"to": position}).encode()
    click.echo(json.dumps(Client(server).call("POST", path, body=body)))


@streams.command()
@click.argument("queue")
@click.option("--from", "start", default="first", show_default=True, help="Where to begin.")
@click.option("--filter", "only", help="Only messages of topics like this, as in order/+/new.")
@click.option("--limit", type=click.IntRange(min=1), default=50, show_default=True)
@output_option
@server_option
def read(
    queue: str, start: str, only: str | None, limit: int, output: str, server: str | None
) -> None:
    """Show messages of QUEUE, oldest first; no group is moved by it.

    --from is first, last, next, an offset, or a time as in 2026-02-26T12:00:00Z.
    """
    found = list(islice(_messages(Client(server), queue, start, only, limit), limit))
    columns = ("OFFSET", "TIME", "TYPE", "TOPIC", "PAYLOAD")
    show(output, found, lambda: make_table(columns, [_message_row(one) for one in found]))


def _messages(
    client: Client, queue: str, start: str, only: str | None, limit: int
) -> Iterator[dict[str, Any]]:
    """Yield messages up to the end as it is now, piece by piece."""
    while True:
        wanted = {"from": start, "max": str(min(limit, _PIECE))}
        query = urlencode(wanted if only is None else {**wanted, "filter": only})
        piece = client.call("GET", f"{stream_path(queue)}/messages?{query}")
        yield from piece["items"]
        if piece["last"] is None:
            return
        start = str(piece["next"])


def _group_row(group: dict[str, Any]) -> tuple[object, ...]:
    halt = group["halted"]
    at = "" if halt is None else f"{halt['offset']}: {halt['code']}: {halt['message']}"
    cursor, lag = ("-" if group[name] is None else group[name] for name in ("cursor", "lag"))
    return group["group"], cursor, lag, "push" if group["pushed"] else "pull", at


def _message_row(message: dict[str, Any]) -> tuple[object, ...]:
    payload = json.dumps(message["payload"], ensure_ascii=False)
    shown = payload if len(payload) <= _LONGEST_CELL else f"{payload[: _LONGEST_CELL - 1]}…"
    return message["offset"], message["time"], message["type"], message["topic"] or "", shown
