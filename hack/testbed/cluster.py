"""The command `hack/cluster`: a Kubernetes cluster to test on, from whatever this machine has."""

import argparse
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType

from testbed import providers
from testbed.processes import TestbedError
from testbed.progress import say
from testbed.providers import Cluster

_DESCRIPTION = """\
A Kubernetes cluster to test on. It comes from the first that can be had: the cluster that
KUBECONFIG names; kind, where Docker can pull and run images; or the local provider, which builds
Kubernetes from source with Go (once, some ten minutes) and runs it as processes of this machine.
"""
_EPILOG = """\
examples:
  hack/cluster up                         one node, DNS, Services
  hack/cluster up --nodes 2               two nodes, so that one can be lost
  hack/cluster up --control-plane-only    API server and controllers, in seconds
  export KUBECONFIG=$(hack/cluster kubeconfig)
  hack/cluster logs kube-apiserver
  hack/cluster down
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit status."""
    options = _parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, _interrupt)
    action: Callable[[argparse.Namespace], None] = options.action
    try:
        action(options)
    except TestbedError as error:
        print(f"hack/cluster: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("hack/cluster: interrupted", file=sys.stderr)
        return 130
    return 0


def _up(options: argparse.Namespace) -> None:
    cluster = providers.start(
        options.name,
        nodes=options.nodes,
        control_plane_only=options.control_plane_only,
        provider=options.provider,
    )
    print(f"export KUBECONFIG={cluster.kubeconfig}")


def _build(options: argparse.Namespace) -> None:
    providers.build(control_plane_only=options.control_plane_only)
    say("everything is built")


def _down(options: argparse.Namespace) -> None:
    cluster = providers.find(options.name)
    if cluster is None:
        say(f"there is no cluster {options.name}; nothing to do")
        return
    cluster.stop()
    say(f"cluster {options.name} is down")


def _status(options: argparse.Namespace) -> None:
    cluster = _found(options.name)
    print(f"cluster     {cluster.name}")
    print(f"provider    {cluster.provider}")
    print("\n".join(cluster.describe()))
    broken = cluster.broken_parts()
    if broken:
        raise TestbedError(f"not running: {', '.join(broken)}")
    if cluster.node_names:
        config = f"--kubeconfig={cluster.kubeconfig}"
        subprocess.run([cluster.kubectl, config, "get", "nodes"], check=False)


def _load_image(options: argparse.Namespace) -> None:
    cluster = _found(options.name)
    for archive in options.archives:
        if not archive.is_file():
            raise TestbedError(f"there is no file {archive}")
        cluster.load_image(archive)
        say(f"loaded {archive}")


def _kubeconfig(options: argparse.Namespace) -> None:
    cluster = _found(options.name)
    print(cluster.kubeconfig.read_text() if options.raw else cluster.kubeconfig)


def _logs(options: argparse.Namespace) -> None:
    logs = _found(options.name).logs()
    if options.component is None:
        for component, file in logs.items():
            print(f"{component:40} {file}")
        return
    if options.component not in logs:
        known = ", ".join(logs) or "none"
        raise TestbedError(f"there is no log of {options.component!r}, only of: {known}")
    follow = ["--follow"] if options.follow else []
    tail = [shutil.which("tail") or "tail", f"--lines={options.lines}", *follow]
    subprocess.run([*tail, logs[options.component]], check=False)


def _node_stop(options: argparse.Namespace) -> None:
    _found(options.name).stop_node(options.node)
    say(f"{options.node} is gone")


def _node_start(options: argparse.Namespace) -> None:
    _found(options.name).start_node(options.node)
    say(f"{options.node} is back")


def _found(name: str) -> Cluster:
    cluster = providers.find(name)
    if cluster is None and providers.choose(name) == "existing":
        cluster = providers.start(name, provider="existing")
    if cluster is None:
        raise TestbedError(f"there is no cluster {name}; `hack/cluster up --name {name}` makes one")
    return cluster


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="hack/cluster",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(
        name: str, action: Callable[[argparse.Namespace], None], text: str
    ) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=text, description=text)
        added.add_argument(
            "--name", default="namedqueue", help="the cluster's name (default: %(default)s)"
        )
        added.set_defaults(action=action)
        return added

    up = command("up", _up, "start a cluster; a second time does nothing")
    up.add_argument("--nodes", type=int, default=1, help="how many nodes (default: 1)")
    up.add_argument("--provider", choices=providers.PROVIDERS, help="instead of the first usable")
    build = command("build", _build, "only build what `up` needs, so that `up` is quick")
    for each in (up, build):
        each.add_argument(
            "--control-plane-only",
            action="store_true",
            help="an API server with its controllers, without scheduler and nodes",
        )
    command("down", _down, "stop a cluster and remove all it left on this machine")
    command("status", _status, "say what runs where; fails if something does not run")
    load = command("load-image", _load_image, "give every node the images of an archive")
    load.add_argument("archives", nargs="+", type=Path, metavar="FILE", help="docker or OCI tar")
    kubeconfig = command("kubeconfig", _kubeconfig, "print the path of the kubeconfig")
    kubeconfig.add_argument("--raw", action="store_true", help="print its content instead")
    logs = command("logs", _logs, "list the logs, or show the end of one")
    logs.add_argument("component", nargs="?", help="a name from the list")
    logs.add_argument("--lines", type=int, default=50, help="how many lines (default: 50)")
    logs.add_argument("--follow", "-f", action="store_true", help="go on showing new lines")
    for name, action, text in (
        ("stop-node", _node_stop, "end a node at once, as a power cut would"),
        ("start-node", _node_start, "start a stopped node again"),
    ):
        command(name, action, text).add_argument("node", help="its name, such as node-2")
    return parser


if __name__ == "__main__":
    sys.exit(main())
