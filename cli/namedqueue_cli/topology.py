"""`nq topology`: show what a manifest will create on the broker, without one."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import click

from namedqueue.api.namedqueue import NamedQueue
from namedqueue.topology import NEWEST, Broker, Tenancy, Topology, Version
from namedqueue.topology import compile as compiled
from namedqueue.topology.model import Arguments, Exchange, Stage
from namedqueue.topology.render import to_dot
from namedqueue_cli.manifests import load_queues
from namedqueue_cli.output import make_table

_WIDE = 200


class VersionType(click.ParamType[Version]):
    """A RabbitMQ version on the command line."""

    name = "version"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Version:
        try:
            return value if isinstance(value, Version) else Version.parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


@click.command()
@click.argument("file")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json", "dot"]),
    default="table",
    show_default=True,
    help="How to print; dot is for Graphviz.",
)
@click.option(
    "--broker-version",
    type=VersionType(),
    default=str(NEWEST),
    show_default=True,
    help="The RabbitMQ that it is for.",
)
@click.option(
    "--tenancy",
    type=click.Choice([str(tenancy) for tenancy in Tenancy]),
    default=str(Tenancy.DEDICATED),
    show_default=True,
    help="Whether vhost and users are made, or given.",
)
@click.option("--vhost", default="/", show_default=True, help="The vhost under shared tenancy.")
@click.option("--mqtt-bridge", is_flag=True, help="Bind the vhost's MQTT topics too.")
def topology(
    file: str, output: str, broker_version: Version, tenancy: str, vhost: str, mqtt_bridge: bool
) -> None:
    """Show what the NamedQueues of FILE will create on the broker, and what each object is for.

    FILE is a YAML or JSON file, a folder of them, or - for standard input.

    Exit codes: 0 shown, 1 a manifest is invalid, 2 a file cannot be read.
    """
    broker = Broker(
        version=broker_version, tenancy=Tenancy(tenancy), vhost=vhost, mqtt_bridge=mqtt_bridge
    )
    found = [(queue, compiled(queue, broker)) for queue in load_queues([file])]
    printers: dict[str, Callable[[], None]] = {
        "json": lambda: click.echo(json.dumps([_as_json(*it) for it in found], indent=2)),
        "dot": lambda: click.echo("".join(to_dot(made) for _, made in found), nl=False),
        "table": lambda: _print_tables(found, broker),
    }
    printers[output]()


def _as_json(queue: NamedQueue, made: Topology) -> dict[str, Any]:
    return {
        "namespace": queue.metadata.namespace,
        "name": queue.metadata.name,
        **made.to_dict(),
    }


def _print_tables(found: list[tuple[NamedQueue, Topology]], broker: Broker) -> None:
    from rich.console import Console  # noqa: PLC0415  # only for people

    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = _WIDE
    for queue, made in found:
        where = made.vhost.name if made.vhost else ""
        console.print(
            f"NamedQueue {queue.metadata.namespace}/{queue.metadata.name} ({queue.spec.type}) "
            f"on RabbitMQ {broker.version}, vhost {where}",
            style="bold",
            markup=False,
        )
        for stage in Stage:
            _print_section(console, str(stage), list(_stage_rows(made, stage)))
        _print_section(console, "users", list(_user_rows(made)))
        for note in made.notes:
            console.print(f"note: {note}", style="yellow", markup=False)


def _print_section(console: Any, title: str, rows: list[tuple[str, str, str, str]]) -> None:
    if rows:
        console.print(f"\n{title}", style="bold cyan", markup=False)
        console.print(make_table(("KIND", "NAME", "WHAT IT IS FOR", "SETTINGS"), rows))


def _stage_rows(made: Topology, stage: Stage) -> Iterator[tuple[str, str, str, str]]:
    for exchange in made.exchanges:
        if exchange.stage is stage:
            yield "exchange", exchange.name, exchange.purpose, _exchange_settings(exchange)
    for queue in made.queues:
        if queue.stage is stage:
            yield "queue", queue.name, queue.purpose, _settings(queue.arguments)
    for binding in made.bindings:
        if binding.stage is stage:
            way = f"{binding.source} -> {binding.destination}"
            yield "binding", way, binding.purpose, binding.routing_key
    for policy in made.policies:
        if policy.stage is stage:
            yield "policy", policy.name, policy.purpose, _settings(policy.definition)


def _user_rows(made: Topology) -> Iterator[tuple[str, str, str, str]]:
    rights = {permission.user: permission for permission in made.permissions}
    for user in made.users:
        allowed = rights[user.name]
        pairs = (("write", allowed.write), ("read", allowed.read))
        shown = ", ".join(f"{verb} {pattern}" for verb, pattern in pairs if pattern)
        yield "user", user.name, user.purpose, shown


def _exchange_settings(exchange: Exchange) -> str:
    return ", ".join(filter(None, (exchange.type, _settings(exchange.arguments))))


def _settings(arguments: Arguments) -> str:
    return ", ".join(f"{key}={value}" for key, value in arguments.items())
