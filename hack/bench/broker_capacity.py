"""What NamedQueues with their ladders cost the broker itself, and where one broker ends.

    hack/python hack/bench/broker_capacity.py [--queues 500] [--each 20] [VERSION …]

A RabbitMQ of each version is started, and so many default queues are put on it, so many to a
namespace, that is to a vhost: once with quorum storage and once with classic. Told are the time
that took, what the node then takes in memory and processes, how busy it is with nothing to do, and
how long it takes to start again with all of them. Last, one vhost is filled on its own: to set a
policy RabbitMQ holds every queue of the vhost against every policy of it, so the cost of one grows
with the square of the queues in a namespace.
"""

import argparse
import os
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import httpx

from namedqueue import topology
from namedqueue.api.namedqueue import NamedQueue
from namedqueue.topology import NOTHING, Version
from namedqueue.topology.actions import Action, CreateVhost, SetPolicy
from namedqueue.topology.management import request
from testbed import processes, rabbitmq
from testbed.rabbitmq import Broker

AT_ONCE = 4
IDLE_SECONDS = 20.0
ROUNDS = 5
STORAGES = ("quorum", "classic")
FILLED = (1, 10, 20, 40)
EVERYTHING = {"configure": ".*", "write": ".*", "read": ".*"}
KIB_PER_MIB = 1024


@dataclass(frozen=True)
class Node:
    """A broker under measurement."""

    broker: Broker
    http: httpx.Client

    def declare(self, namespace: str, name: str, storage: str) -> None:
        """Put a queue there, as the operator would."""
        for action in self.steps(namespace, name, storage):
            self.perform(action, f"nq-{namespace}")

    def steps(
        self, namespace: str, name: str, storage: str, retention: str = "90d"
    ) -> tuple[Action, ...]:
        """Return what the operator would do for a new queue."""
        spec = {"durable": {"storage": storage}, "deadLetter": {"retention": retention}}
        manifest = {"metadata": {"namespace": namespace, "name": name}, "spec": spec}
        version = Version.parse(self.broker.version)
        queue = NamedQueue.model_validate(manifest)
        return topology.diff(NOTHING, topology.compile(queue, topology.Broker(version=version)))

    def change_retention(self, namespace: str, name: str, days: int) -> None:
        """Change one policy, as an edit of `deadLetter.retention` does."""
        for action in self.steps(namespace, name, "quorum", retention=f"{days}d"):
            if isinstance(action, SetPolicy) and "message-ttl" in action.policy.definition:
                self.perform(action, f"nq-{namespace}")

    def perform(self, action: Action, vhost: str) -> None:
        call = request(action, vhost, password="unused")  # noqa: S106  # nobody logs in
        if call is not None:
            self.http.request(call.method, call.path, json=call.body).raise_for_status()
        if isinstance(action, CreateVhost):
            path = f"permissions/{vhost}/{self.broker.username}"
            self.http.put(path, json=EVERYTHING).raise_for_status()

    def memory_mib(self) -> float:
        status = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        [resident] = [line for line in status if line.startswith("VmRSS:")]
        return int(resident.split()[1]) / KIB_PER_MIB

    def erlang_processes(self) -> int:
        [node] = self.http.get("nodes").json()
        return int(node["proc_used"])

    def busy(self) -> float:
        """Return the share of a core that the node takes with nothing to do."""
        before = self._cpu_seconds()
        time.sleep(IDLE_SECONDS)
        return (self._cpu_seconds() - before) / IDLE_SECONDS

    @property
    def pid(self) -> int:
        """The Erlang machine: the largest process of those that were started."""
        server = processes.find("rabbitmq", self.broker.state)
        if server is None:
            raise SystemExit("the broker has died")
        return max(_family(server.pid), key=_pages)

    def _cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _pages(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1])


def _family(pid: int) -> list[int]:
    listed = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(each for child in listed for each in _family(int(child)))]


def measure(version: str, storage: str, queues: int, each: int) -> None:
    """Fill a broker with queues and print what that costs."""
    broker = rabbitmq.start(version, f"capacity-{version}-{storage}")
    try:
        with _client(broker) as http:
            node = Node(broker, http)
            idle = node.memory_mib()
            for number in range(0, queues, each):
                node.perform(
                    node.steps(f"ns{number // each}", "any", storage)[0], _vhost(number, each)
                )
            began = time.monotonic()
            with ThreadPoolExecutor(AT_ONCE) as pool:
                keys = [(f"ns{at // each}", f"queue-{at % each}") for at in range(queues)]
                list(pool.map(lambda key: node.declare(key[0], key[1], storage), keys))
            took = time.monotonic() - began
            full, count, busy = node.memory_mib(), node.erlang_processes(), node.busy()
            broker.stop()
            began = time.monotonic()
            broker.start()
            started = time.monotonic() - began
        print(
            f"| {version} | {storage} | {queues} | {took:.0f} s | {idle:.0f} → {full:.0f} MiB "
            f"| {count} | {busy:.0%} | {started:.0f} s |",
            flush=True,
        )
    finally:
        rabbitmq.remove(broker.name)


def fill(version: str) -> None:
    """Fill one vhost and print what one policy costs there."""
    broker = rabbitmq.start(version, f"capacity-{version}-vhost")
    try:
        with _client(broker) as http:
            node = Node(broker, http)
            there = 0
            for queues in FILLED:
                for number in range(there, queues):
                    node.declare("one", f"queue-{number}", "quorum")
                there = queues
                took = []
                for days in range(ROUNDS):  # a policy that stays the same costs nothing
                    began = time.monotonic()
                    node.change_retention("one", "queue-0", days + 1)
                    took.append(time.monotonic() - began)
                print(f"| {version} | {queues} | {min(took) * 1000:.0f} ms |", flush=True)
    finally:
        rabbitmq.remove(broker.name)


def _client(broker: Broker) -> httpx.Client:
    return httpx.Client(
        base_url=f"{broker.management_url}/api/",
        auth=(broker.username, broker.password),
        timeout=300,
        trust_env=False,
    )


def _vhost(number: int, each: int) -> str:
    return f"nq-ns{number // each}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--queues", type=int, default=500)
    parser.add_argument("--each", type=int, default=20, help="queues in a namespace (%(default)s)")
    parser.add_argument(
        "versions", nargs="*", default=[rabbitmq.VERSIONS[0], rabbitmq.VERSIONS[-1]]
    )
    options = parser.parse_args()
    for version in options.versions:
        fill(version)
        for storage in STORAGES:
            measure(version, storage, options.queues, options.each)


if __name__ == "__main__":
    main()
