"""`hack/postgres`: PostgreSQL on loopback, for work at the keyboard.

    hack/postgres up        start (a second time: says that it runs)
    hack/postgres url       print its address, password included
    hack/postgres logs      print its log
    hack/postgres status    list what there is
    hack/postgres down      stop it and delete its data

`--name` tells several instances apart.
"""

import argparse
import sys

from testbed import instances, postgresql
from testbed.processes import TestbedError
from testbed.progress import say


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    try:
        return int(options.run(options))
    except TestbedError as error:
        print(f"hack/postgres: {error}", file=sys.stderr)
        return 1


def _up(options: argparse.Namespace) -> int:
    there = postgresql.find(options.name)
    if there is not None and there.running:
        say(f"{options.name} already runs; nothing to do")
    print(_line(postgresql.start(options.name)))
    return 0


def _down(options: argparse.Namespace) -> int:
    for name in instances.names(postgresql.KIND) if options.all else [options.name]:
        postgresql.remove(name)
        say(f"{name} is gone")
    return 0


def _status(options: argparse.Namespace) -> int:
    servers = [postgresql.find(name) for name in instances.names(postgresql.KIND)]
    chosen = [server for server in servers if server and options.name in (None, server.name)]
    for server in chosen:
        print(_line(server))
    if not chosen:
        say(f"there is no server{f' {options.name}' if options.name else ''}")
    return 0 if chosen and all(server.running for server in chosen) else 1


def _logs(options: argparse.Namespace) -> int:
    log = instances.folder(postgresql.KIND, options.name) / "postgres.log"
    if not log.exists():
        raise TestbedError(f"no such log: {log}")
    print(log.read_text(errors="replace"), end="")
    return 0


def _url(options: argparse.Namespace) -> int:
    server = postgresql.find(options.name)
    if server is None or not server.running:
        raise TestbedError(f"{options.name} does not run; start it with hack/postgres up")
    print(server.url)
    return 0


def _line(server: postgresql.Postgres) -> str:
    running = "running" if server.running else "stopped"
    return f"{server.name}: PostgreSQL {running}; port {server.port}; log {server.log_file}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="hack/postgres", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    verbs = parser.add_subparsers(required=True, metavar="up|down|status|logs|url")
    actions = {"up": _up, "down": _down, "status": _status, "logs": _logs, "url": _url}
    for verb, run in actions.items():
        sub = verbs.add_parser(verb)
        sub.set_defaults(run=run)
        sub.add_argument("--name", default=None if verb == "status" else "default")
        if verb == "down":
            sub.add_argument("--all", action="store_true", help="every instance there is")
    return parser


if __name__ == "__main__":
    sys.exit(main())
