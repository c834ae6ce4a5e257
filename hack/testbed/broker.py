"""`hack/broker`: RabbitMQ of a chosen version on loopback, for work at the keyboard.

    hack/broker up --version 4.3        start (a second time: says that it runs)
    hack/broker url --version 4.3       print its AMQP address, password included
    hack/broker logs --version 4.3      print its log
    hack/broker status                  list what there is
    hack/broker down --version 4.3      stop it and delete its data

An instance is called like its version unless `--name` says otherwise.
"""

import argparse
import sys

from testbed import instances, rabbitmq
from testbed.processes import TestbedError
from testbed.progress import say


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    try:
        return int(options.run(options))
    except TestbedError as error:
        print(f"hack/broker: {error}", file=sys.stderr)
        return 1


def _up(options: argparse.Namespace) -> int:
    name = options.name or options.version
    there = rabbitmq.find(name)
    if there is not None and there.running and there.version == options.version:
        say(f"{name} already runs; nothing to do")
    broker = rabbitmq.start(options.version, name)
    print(_line(broker))
    return 0


def _down(options: argparse.Namespace) -> int:
    for name in instances.names(rabbitmq.KIND) if options.all else [_chosen(options)]:
        rabbitmq.remove(name)
        say(f"{name} is gone")
    return 0


def _status(options: argparse.Namespace) -> int:
    named = options.name or options.version
    brokers = [rabbitmq.find(name) for name in instances.names(rabbitmq.KIND)]
    chosen = [broker for broker in brokers if broker and named in (None, broker.name)]
    for broker in chosen:
        print(_line(broker))
    if not chosen:
        say(f"there is no broker{f' {named}' if named else ''}")
    return 0 if chosen and all(broker.running for broker in chosen) else 1


def _logs(options: argparse.Namespace) -> int:
    log = instances.folder(rabbitmq.KIND, _chosen(options)) / "rabbitmq.log"
    if not log.exists():
        raise TestbedError(f"no such log: {log}")
    print(log.read_text(errors="replace"), end="")
    return 0


def _url(options: argparse.Namespace) -> int:
    name = _chosen(options)
    broker = rabbitmq.find(name)
    if broker is None or not broker.running:
        raise TestbedError(f"{name} does not run; start it with hack/broker up")
    print(broker.amqp_url())
    return 0


def _line(broker: rabbitmq.Broker) -> str:
    ports = broker.ports
    return (
        f"{broker.name}: RabbitMQ {broker.version} {'running' if broker.running else 'stopped'}; "
        f"amqp {ports.amqp}, amqps {ports.amqps}, management {ports.management}, "
        f"stream {ports.stream}, mqtt {ports.mqtt}; log {broker.log_file}"
    )


def _chosen(options: argparse.Namespace) -> str:
    name = options.name or options.version
    if name is None:
        raise TestbedError("say which one: --version or --name")
    return str(name)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="hack/broker", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    verbs = parser.add_subparsers(required=True, metavar="up|down|status|logs|url")
    actions = {"up": _up, "down": _down, "status": _status, "logs": _logs, "url": _url}
    for verb, run in actions.items():
        sub = verbs.add_parser(verb)
        sub.set_defaults(run=run)
        sub.add_argument("--version", choices=rabbitmq.VERSIONS, required=verb == "up")
        sub.add_argument("--name", help="the instance's name; by default its version")
        if verb == "down":
            sub.add_argument("--all", action="store_true", help="every instance there is")
    return parser


if __name__ == "__main__":
    sys.exit(main())
