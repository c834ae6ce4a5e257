"""`nq queues`: how full the queues are."""

import time
from typing import Any

import click

from namedqueue_cli.client import Client, server_option
from namedqueue_cli.output import make_table, output_option, show

_COLUMNS = ("QUEUE", "TYPE", "READY", "IN FLIGHT", "WAITING", "DEAD", "APP")


@click.command()
@click.option("-w", "--watch", is_flag=True, help="Keep the table up to date until Ctrl-C.")
@output_option
@server_option
def queues(watch: bool, output: str, server: str | None) -> None:
    """Show every queue with its jobs by stage."""
    client = Client(server)
    if watch:
        _watch(client)
        return
    found = client.queues()
    show(output, found, lambda: make_table(_COLUMNS, [_row(queue) for queue in found]))


def _watch(client: Client) -> None:
    from rich.live import Live  # noqa: PLC0415  # only when watching

    with Live(auto_refresh=False) as live:
        while True:
            rows = [_row(queue) for queue in client.queues()]
            live.update(make_table(_COLUMNS, rows), refresh=True)
            time.sleep(1)


def _row(queue: dict[str, Any]) -> tuple[object, ...]:
    depth, worker = queue["depth"] or {}, queue["worker"]
    numbers = (depth.get(name, "?") for name in ("ready", "inFlight", "waiting", "dead"))
    app = "-" if worker is None else "there" if worker["appIsThere"] else "away"
    return queue["name"], queue["type"], *numbers, app
