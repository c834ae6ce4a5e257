"""The first process of a node: `python -m testbed.localcluster.node_init FILE`.

It runs as pid 1 of the node's own namespaces, sets up what a booting machine would (mounts,
network, hostname), starts containerd, kubelet and kube-proxy, and buries orphans. If one of the
three ends, it ends; and when it ends, the kernel ends everything else on the node.

Standard library only, so that it starts in no time.
"""

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

CONTAINERD_SOCKET = Path("/run/containerd/containerd.sock")
_PATIENCE_SECONDS = 60.0
_LINK = "eth0"


def main() -> int:
    """Boot, then wait for the end."""
    spec = json.loads(Path(sys.argv[1]).read_text())
    socket.sethostname(spec["name"])
    _set_up_mounts(spec["mounts"])
    _set_up_network(spec)
    started = {}
    for name, command in spec["services"].items():
        with Path("/var/log", f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=spec["environment"]
            )
        started[process.pid] = name
        if name == "containerd":
            _wait_for(_containerd_answers, "containerd")
    return _bury(started)


def _set_up_mounts(mounts: dict[str, str]) -> None:
    """Give the node a /run of its own, and folders of its own where its programs write."""
    # Private to the node since `unshare`; shared from here on, as pods with mounts expect.
    _run("mount", "--make-rshared", "/")
    _run("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run")
    for mount_point, own in mounts.items():
        _run("mount", "--bind", own, mount_point)


def _set_up_network(spec: dict[str, Any]) -> None:
    _wait_for(lambda: _LINK in (name for _, name in socket.if_nameindex()), f"the link {_LINK}")
    _run("ip", "link", "set", "lo", "up")
    _run("ip", "address", "add", f"{spec['address']}/24", "dev", _LINK)
    _run("ip", "link", "set", _LINK, "up")
    for pods, through in spec["routes"].items():
        _run("ip", "route", "add", pods, "via", through)
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")


def _containerd_answers() -> bool:
    with socket.socket(socket.AF_UNIX) as sock:
        return sock.connect_ex(str(CONTAINERD_SOCKET)) == 0


def _bury(started: dict[int, str]) -> int:
    while True:
        pid, status = os.wait()
        if pid in started:
            code = os.waitstatus_to_exitcode(status)
            print(f"{started[pid]} ended with {code}, and the node with it", flush=True)
            return 1


def _wait_for(condition: Any, what: str) -> None:
    until = time.monotonic() + _PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > until:
            sys.exit(f"{what}: not there within {_PATIENCE_SECONDS:.0f} s")
        time.sleep(0.02)


def _run(*command: object) -> None:
    subprocess.run([str(part) for part in command], check=True)


if __name__ == "__main__":
    sys.exit(main())
