"""RabbitMQ nodes for tests: start one, break it, bring it back, remove it.

Each instance is a node of its own with its own data, cookie, port mapper and ports on loopback,
a user with a random password and no guest. `start` returns only when AMQP, AMQPS, management,
streams and MQTT all answer. `remove` leaves no process, mount or file, also when the caller that
started the node is long dead.
"""

import secrets
import signal
import ssl
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import httpx

from testbed import instances, processes, rabbitmq_node
from testbed.leases import exclusively
from testbed.ports import accepts, free_ports
from testbed.processes import TestbedError
from testbed.progress import step
from testbed.rabbitmq_node import Ports

KIND = "rabbitmq"
VERSIONS = tuple(rabbitmq_node.SUITES)

_START_SECONDS = 180.0
_SERVER = "rabbitmq"
_EPMD = "epmd"
_NO_TLS: Final = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""For plain HTTP. Left to itself httpx reads all CA certificates for each client: 30 ms of CPU."""


@dataclass(frozen=True)
class Broker:
    """A RabbitMQ node. All that is needed to reach it, and to do it harm."""

    name: str
    version: str
    ports: Ports
    username: str
    password: str = field(repr=False)

    @property
    def amqp_port(self) -> int:
        return self.ports.amqp

    @property
    def amqps_port(self) -> int:
        return self.ports.amqps

    @property
    def management_port(self) -> int:
        return self.ports.management

    @property
    def stream_port(self) -> int:
        return self.ports.stream

    @property
    def mqtt_port(self) -> int:
        return self.ports.mqtt

    @property
    def management_url(self) -> str:
        """The management API's address, without credentials."""
        return f"http://127.0.0.1:{self.management_port}"

    @property
    def state(self) -> Path:
        """The instance's folder."""
        return instances.folder(KIND, self.name)

    @property
    def ca_file(self) -> Path:
        """The certificate authority that signed the AMQPS listener's certificate."""
        return self.state / "tls" / "ca.pem"

    @property
    def log_file(self) -> Path:
        return self.state / f"{_SERVER}.log"

    @property
    def running(self) -> bool:
        return processes.find(_SERVER, self.state) is not None

    def amqp_url(self, vhost: str = "/") -> str:
        return self._url("amqp", self.amqp_port, vhost)

    def amqps_url(self, vhost: str = "/") -> str:
        """Return the TLS address; a client has to trust `ca_file`."""
        return self._url("amqps", self.amqps_port, vhost)

    def start(self) -> None:
        """Bring the node up on its data and its ports, and wait until every listener answers."""
        root = rabbitmq_node.root_of(self.version)
        env = rabbitmq_node.environment(self.ports)
        epmd = processes.find(_EPMD, self.state) or processes.start(
            _EPMD, rabbitmq_node.epmd_command(root, self.state, self.ports), self.state, env=env
        )
        processes.wait_until(
            lambda: accepts(self.ports.epmd), what="epmd answers", watching=epmd, deadline=30.0
        )
        if self.running:
            return
        command = rabbitmq_node.server_command(root, self.state)
        server = processes.start(_SERVER, command, self.state, env=env)
        processes.wait_until(
            self._answers,
            what=f"RabbitMQ {self.version} answers on all its ports",
            deadline=_START_SECONDS,
            watching=server,
        )

    def stop(self) -> None:
        """Shut the node down in good order; `start` brings it back with its data."""
        if self.running:
            self.resume()
        processes.stop(_SERVER, self.state, grace=60.0)
        processes.stop(_EPMD, self.state)

    def kill(self) -> None:
        """End the node at once, as a crash would; `start` brings it back with its data."""
        processes.kill(_SERVER, self.state)
        processes.kill(_EPMD, self.state)

    def settle(self) -> None:
        """Wait until a crash can no longer cost a new quorum queue with all that is in it.

        RabbitMQ writes down where a quorum queue's log lies half a second after declaring the
        queue. Killed before that, it forgets confirmed messages (seen on 3.10, 4.0 and 4.3).
        """
        processes.wait_until(self._quorum_queues_on_disk, what="quorum queues are on disk")

    def remove(self) -> None:
        """End the node and delete all that it had."""
        remove(self.name)

    def pause(self) -> None:
        """Freeze the node: its sockets stay open and nothing answers."""
        processes.freeze(_SERVER, self.state)

    def resume(self) -> None:
        processes.send(_SERVER, self.state, signal.SIGCONT)

    def ctl(self, *arguments: str) -> str:
        """Run rabbitmqctl; return what it prints. Its arguments are visible: no secrets in them."""
        root = rabbitmq_node.root_of(self.version)
        return processes.run(
            rabbitmq_node.ctl_command(root, self.state, arguments),
            what=f"rabbitmqctl {' '.join(arguments)}",
            env=rabbitmq_node.environment(self.ports),
        )

    def memory_alarm(self, on: bool) -> None:
        """Raise or clear the memory alarm, which blocks publishers; return once it is so."""
        limit = "0.000001" if on else rabbitmq_node.MEMORY_LIMIT
        self.ctl("set_vm_memory_high_watermark", limit)
        wanted = httpx.codes.SERVICE_UNAVAILABLE if on else httpx.codes.OK
        processes.wait_until(
            lambda: self._request("GET", "health/checks/local-alarms").status_code == wanted,
            what=f"the memory alarm is {'on' if on else 'off'}",
        )

    def api(self, method: str, path: str, json: Any = None) -> httpx.Response:
        """Call the management API, such as `api("GET", "queues/%2F")`; raise on a refusal."""
        response = self._request(method, path, json)
        if response.is_error:
            raise TestbedError(
                f"RabbitMQ {self.version} refused {method} {path}: "
                f"{response.status_code} {response.text} (log: {self.log_file})"
            )
        return response

    def create_vhost(self, vhost: str) -> None:
        """Make a vhost in which this broker's user may do everything."""
        self.api("PUT", f"vhosts/{quote(vhost, safe='')}", json={})
        everything = {"configure": ".*", "write": ".*", "read": ".*"}
        permissions = f"permissions/{quote(vhost, safe='')}/{quote(self.username, safe='')}"
        self.api("PUT", permissions, json=everything)

    def delete_vhost(self, vhost: str) -> None:
        self.api("DELETE", f"vhosts/{quote(vhost, safe='')}")

    def _quorum_queues_on_disk(self) -> bool:
        registers = (self.state / "data").glob("*/quorum/*/names.dets")
        written = b"".join(register.read_bytes() for register in registers)
        queues = self.api("GET", "queues").json()
        names = [queue["name"] for queue in queues if queue.get("type") == "quorum"]
        return all(name.encode() in written for name in names)

    def _request(self, method: str, path: str, json: Any = None) -> httpx.Response:
        with httpx.Client(trust_env=False, timeout=30.0, verify=_NO_TLS) as client:
            return client.request(
                method,
                f"{self.management_url}/api/{path}",
                auth=(self.username, self.password),
                json=json,
            )

    def _answers(self) -> bool:
        if not all(accepts(port) for port in self.ports.public):
            return False
        try:
            return self._request("GET", "overview").is_success
        except httpx.TransportError:
            return False

    def _url(self, scheme: str, port: int, vhost: str) -> str:
        login = f"{quote(self.username, safe='')}:{quote(self.password, safe='')}"
        return f"{scheme}://{login}@127.0.0.1:{port}/{quote(vhost, safe='')}"


def prepare(version: str) -> None:
    """Make the Debian root of this version, the only slow part of a first start."""
    rabbitmq_node.root_of(version)


def start(
    version: str, name: str | None = None, settings: Mapping[str, str] | None = None
) -> Broker:
    """Start an instance, or return the one that runs under this name.

    `settings` are further lines of rabbitmq.conf. An instance of this name that no longer runs is
    replaced by a fresh one. On failure nothing keeps running and the log stays to be read; an
    interruption leaves nothing.
    """
    name = name or version
    root = rabbitmq_node.root_of(version)
    with exclusively(f"{KIND}-{name}"):
        there = find(name)
        if there is not None and there.running:
            if there.version != version:
                raise TestbedError(f"{name} runs RabbitMQ {there.version}, not {version}")
            return there
        _clear(name)
        broker = Broker(name, version, Ports(*free_ports(7)), "nq", secrets.token_urlsafe(24))
        broker.state.mkdir()
        login = (broker.username, broker.password)
        rabbitmq_node.write_files(broker.state, root, broker.ports, login, settings or {})
        instances.save(broker.state, asdict(broker))
        try:
            with step(f"starting RabbitMQ {version} as {name}"):
                broker.start()
        except KeyboardInterrupt:
            _clear(name)
            raise
        except BaseException:
            broker.kill()
            raise
        return broker


def find(name: str) -> Broker | None:
    """Return the instance of this name, running or not."""
    record = instances.load(instances.folder(KIND, name))
    if record is None:
        return None
    return Broker(**{**record, "ports": Ports(**record["ports"])})


def remove(name: str) -> None:
    """End the instance of this name and delete all that it had; none at all is fine."""
    with exclusively(f"{KIND}-{name}"):
        _clear(name)


def _clear(name: str) -> None:
    state = instances.folder(KIND, name)
    processes.kill(_SERVER, state)
    processes.kill(_EPMD, state)
    instances.remove(state)
