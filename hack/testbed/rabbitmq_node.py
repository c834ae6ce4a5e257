"""How one RabbitMQ node is laid out: its Debian root, its files, its environment, its commands.

A node runs by chroot in a Debian whose RabbitMQ has the wanted version, so all versions run the
same way on any host. It gets a mount namespace of its own in which the instance's folder is
`/mnt`: the mounts vanish with the node, however it ends, and many nodes share one root.
"""

import os
import secrets
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from testbed.broker_tls import write_certificates
from testbed.debian import make_root
from testbed.instances import write_private
from testbed.processes import TestbedError

SUITES = {"3.10": "bookworm", "4.0": "trixie", "4.3": "forky"}
MEMORY_LIMIT = "0.4"

_PLUGINS = (
    "rabbitmq_management",
    "rabbitmq_consistent_hash_exchange",
    "rabbitmq_stream",
    "rabbitmq_mqtt",
    "rabbitmq_amqp1_0",
)
_INSTANCE = "/mnt"
_ENTER = """
set -e
mount -t proc proc "$1/proc"
mount --bind /dev "$1/dev"
mount --bind "$2" "$1/mnt"
root=$1
shift 2
exec chroot "$root" "$@"
"""
_LOOPBACK = "-kernel inet_dist_use_interface {127,0,0,1}"
_IDLE_QUIETLY = "+sbwt none +sbwtdcpu none +sbwtdio none"


@dataclass(frozen=True)
class Ports:
    """Where a node listens, all on loopback."""

    amqp: int
    amqps: int
    management: int
    stream: int
    mqtt: int
    distribution: int
    epmd: int

    @property
    def public(self) -> tuple[int, ...]:
        return (self.amqp, self.amqps, self.management, self.stream, self.mqtt)


def root_of(version: str) -> Path:
    """Return a Debian root with RabbitMQ of this version, made on first use."""
    suite = SUITES.get(version)
    if suite is None:
        raise TestbedError(f"RabbitMQ {version} is not on offer; there is {', '.join(SUITES)}")
    if os.geteuid() != 0:
        raise TestbedError("a RabbitMQ of the test bed runs by chroot, so this needs root")
    root = make_root(f"rabbitmq-{version}", suite, ["ca-certificates", "rabbitmq-server"])
    found = _home(root).name.removeprefix("rabbitmq_server-")
    if not found.startswith(f"{version}."):
        raise TestbedError(
            f"Debian {suite} now has RabbitMQ {found}, not {version}: change SUITES in {__file__}"
        )
    return root


def write_files(
    state: Path,
    root: Path,
    ports: Ports,
    login: tuple[str, str],
    settings: Mapping[str, str],
) -> None:
    """Write everything the node reads: configuration, plugins, cookie, certificates."""
    write_certificates(state / "tls")
    lines = _configuration(ports, login) | dict(settings)
    write_private(
        state / "rabbitmq.conf", "".join(f"{key} = {value}\n" for key, value in lines.items())
    )
    plugins = [name for name in _PLUGINS if any((_home(root) / "plugins").glob(f"{name}-*"))]
    (state / "enabled_plugins").write_text(f"[{','.join(plugins)}].\n")
    (state / "inetrc").write_text(
        '{host, {127,0,0,1}, ["localhost"]}.\n{lookup, [file, native]}.\n'
    )
    write_private(state / ".erlang.cookie", secrets.token_hex(16))
    (state / ".erlang.cookie").chmod(0o400)


def environment(ports: Ports) -> dict[str, str]:
    """Return the whole environment of the node and of its tools."""
    return {
        "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
        "LANG": "C.UTF-8",
        "HOME": _INSTANCE,
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "ERL_EPMD_PORT": str(ports.epmd),
        "ERL_INETRC": f"{_INSTANCE}/inetrc",
        "ERL_CRASH_DUMP_SECONDS": "0",
        # Makes the start script exec the VM, so that its pid is the one we hold.
        "RUNNING_UNDER_SYSTEMD": "true",
        "RABBITMQ_NODENAME": "nq@localhost",
        "RABBITMQ_DIST_PORT": str(ports.distribution),
        "RABBITMQ_CONFIG_FILE": f"{_INSTANCE}/rabbitmq.conf",
        "RABBITMQ_CONF_ENV_FILE": f"{_INSTANCE}/none",
        "RABBITMQ_ADVANCED_CONFIG_FILE": f"{_INSTANCE}/none",
        "RABBITMQ_ENABLED_PLUGINS_FILE": f"{_INSTANCE}/enabled_plugins",
        "RABBITMQ_MNESIA_BASE": f"{_INSTANCE}/data",
        "RABBITMQ_LOG_BASE": f"{_INSTANCE}/log",
        "RABBITMQ_PID_FILE": f"{_INSTANCE}/node-pid",
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": f"{_LOOPBACK} {_IDLE_QUIETLY}",
        "RABBITMQ_CTL_ERL_ARGS": _LOOPBACK,
    }


def server_command(root: Path, state: Path) -> list[str | Path]:
    return enter(root, state, [_tool(root, "rabbitmq-server")])


def epmd_command(root: Path, state: Path, ports: Ports) -> list[str | Path]:
    """Run the node's own port mapper in the foreground, so that it ends with the node."""
    return enter(root, state, ["/usr/bin/epmd", "-port", str(ports.epmd), "-address", "127.0.0.1"])


def ctl_command(root: Path, state: Path, arguments: Sequence[str]) -> list[str | Path]:
    return enter(root, state, [_tool(root, "rabbitmqctl"), *arguments])


def enter(root: Path, state: Path, command: Sequence[str]) -> list[str | Path]:
    """Prefix a command so that it runs in the root, by exec all the way, with private mounts."""
    if shutil.which("unshare") is None:
        raise TestbedError("unshare (package util-linux) is missing")
    return ["unshare", "--mount", "sh", "-c", _ENTER, "sh", root, state, *command]


def _configuration(ports: Ports, login: tuple[str, str]) -> dict[str, str]:
    username, password = login
    return {
        "listeners.tcp.1": f"127.0.0.1:{ports.amqp}",
        "listeners.ssl.1": f"127.0.0.1:{ports.amqps}",
        "ssl_options.cacertfile": f"{_INSTANCE}/tls/ca.pem",
        "ssl_options.certfile": f"{_INSTANCE}/tls/server.pem",
        "ssl_options.keyfile": f"{_INSTANCE}/tls/server.key",
        "management.tcp.ip": "127.0.0.1",
        "management.tcp.port": str(ports.management),
        "stream.listeners.tcp.1": f"127.0.0.1:{ports.stream}",
        "stream.advertised_host": "127.0.0.1",
        "stream.advertised_port": str(ports.stream),
        "mqtt.listeners.tcp.1": f"127.0.0.1:{ports.mqtt}",
        # Naming another first user means that guest is never made.
        "default_user": username,
        "default_pass": password,
        "collect_statistics_interval": "1000",
        "disk_free_limit.absolute": "50MB",
        "vm_memory_high_watermark.relative": MEMORY_LIMIT,
        "log.console": "true",
        "log.console.level": "info",
        "log.console.use_colors": "off",
        "log.file": "false",
    }


def _tool(root: Path, name: str) -> str:
    """Return a tool's path inside the root, past Debian's wrapper that switches users."""
    return f"/{_home(root).relative_to(root)}/sbin/{name}"


def _home(root: Path) -> Path:
    homes = sorted(root.glob("usr/lib/rabbitmq/lib/rabbitmq_server-*"))
    if not homes:
        raise TestbedError(f"{root} holds no RabbitMQ; remove that folder and try again")
    return homes[-1]
