"""What the compiler describes, every RabbitMQ accepts, reports back equal, and behaves as promised.

Topologies are made and taken down through the management API in the order of their plan.
"""

import json
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from typing import Any
from urllib.parse import quote

import httpx
import pika
import pika.exceptions
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from namedqueue import ladder, topology
from namedqueue.api.namedqueue import NamedQueue
from namedqueue.topology import NOTHING, Names, Topology, Version
from namedqueue.topology.actions import Action, RequireEmpty
from namedqueue.topology.durable import DELIVERY_LIMIT
from namedqueue.topology.management import definitions, observe, request
from namedqueue.topology.model import Vhost
from namedqueue_operator.applying import parted
from testbed.rabbitmq import Broker
from unit.manifests import named_queue

PASSWORD = uuid.uuid4().hex
DEADLINE = 30.0
ACCESS_REFUSED = 403
TOPIC = [{"topic": "order/+/created"}]
PERSISTENT = pika.BasicProperties(delivery_mode=2)
LONG_WORK = {"port": 8080, "timeout": "2h"}
KINDS: dict[str, dict[str, Any]] = {
    "quorum": {"subscriptions": TOPIC, "worker": LONG_WORK},
    "quorum with limits": {"durable": {"maxLength": 1000, "messageTTL": "7d"}},
    "classic": {"durable": {"storage": "classic"}},
    "classic with everything": {
        "durable": {
            "storage": "classic",
            "mode": "lazy",
            "maxPriority": 5,
            "maxLength": 9,
            "messageTTL": "7d",
        }
    },
    "longest ladder": {"retry": {"delay": "1s", "maxDelay": "30d", "maxAttempts": 100}},
    "fifo": {"durable": {"fifo": {"groupBy": "body.a", "partitions": 4}}, "worker": LONG_WORK},
    "stream": {
        "type": "stream",
        "stream": {
            "maxAge": "7d",
            "maxBytes": "10Gi",
            "maxMessages": 10**6,
            "consumers": [{"group": "audit"}, {"group": "a-1"}],
        },
        "worker": LONG_WORK,
    },
    "stream without limits": {"type": "stream", "subscriptions": TOPIC},
    "ephemeral": {"type": "ephemeral", "ephemeral": {"idleExpiry": "5m"}},
    "longest retention": {"deadLetter": {"retention": "3650d"}},
}


@dataclass(frozen=True)
class Place:
    """A namespace of its own on a broker."""

    broker: Broker
    namespace: str

    @property
    def names(self) -> Names:
        return Names(self.namespace, "orders")

    def make(self, **spec: Any) -> Topology:
        """Create the topology of a queue, step by step."""
        desired = self.compiled(named_queue(**spec))
        self.carry_out(topology.diff(NOTHING, desired))
        return desired

    def compiled(self, queue: NamedQueue) -> Topology:
        metadata = queue.metadata.model_copy(update={"namespace": self.namespace})
        moved = queue.model_copy(update={"metadata": metadata})
        version = Version.parse(self.broker.version)
        return topology.compile(moved, topology.Broker(version=version, mqtt_bridge=True))

    def carry_out(self, plan: tuple[Action, ...]) -> None:
        for action in plan:
            call = request(action, self.names.vhost, password=PASSWORD)
            if call is None:
                assert isinstance(action, RequireEmpty), str(action)
                continue
            self.broker.api(call.method, call.path, call.body)
            if call.path.startswith("vhosts/"):
                self._let_the_tests_in()

    def carry_out_at_one_stroke(self, plan: tuple[Action, ...]) -> None:
        """Do the same with one call for all that nobody can use yet, as the operator does."""
        first, together, then = parted(plan)
        self.carry_out(tuple(first))
        call = definitions(together, self.names.vhost)
        self.broker.api(call.method, call.path, call.body)
        self.carry_out(tuple(then))

    def observed(self) -> Topology:
        vhost = quote(self.names.vhost, safe="")
        listed = {
            kind: self.broker.api("GET", f"{kind}/{vhost}").json()
            for kind in ("exchanges", "queues", "bindings", "policies")
        }
        listed |= {kind: self.broker.api("GET", kind).json() for kind in ("users", "permissions")}
        return observe(self.names, Vhost(self.names.vhost), **listed)

    def policies_in_force(self) -> dict[str, str]:
        """Return the policy that applies to each queue, without waiting for statistics.

        A policy with a key that the queue's type does not know would not apply at all.
        """
        columns = ("name", "policy", "--formatter", "json", "--quiet")
        listed = json.loads(self.broker.ctl("list_queues", "-p", self.names.vhost, *columns))
        return {queue["name"]: queue["policy"] for queue in listed}

    def channel(self, user: str | None = None) -> BlockingChannel:
        """Open a channel as one of the queue's users, or as the administrator."""
        name, password = (user, PASSWORD) if user else (self.broker.username, self.broker.password)
        connection = pika.BlockingConnection(
            pika.ConnectionParameters(
                "127.0.0.1",
                self.broker.amqp_port,
                self.names.vhost,
                pika.PlainCredentials(name, password),
            )
        )
        channel = connection.channel()
        channel.confirm_delivery()
        return channel

    def _let_the_tests_in(self) -> None:
        path = f"permissions/{self.names.vhost}/{self.broker.username}"
        self.broker.api("PUT", path, {"configure": ".*", "write": ".*", "read": ".*"})


@pytest.fixture
def place(broker: Broker) -> Iterator[Place]:
    found = Place(broker, f"t{uuid.uuid4().hex[:10]}")
    yield found
    with httpx.Client(
        base_url=f"{broker.management_url}/api/",
        auth=(broker.username, broker.password),
        trust_env=False,
        timeout=DEADLINE,
    ) as client:
        client.delete(f"vhosts/{found.names.vhost}")
        for user in (found.names.consumer, found.names.producer):
            client.delete(f"users/{user}")


def eventually(attempt: Callable[[], Any], *, deadline: float = DEADLINE) -> Any:
    """Return the first answer that is not None."""
    end = time.monotonic() + deadline
    while time.monotonic() < end:
        found = attempt()
        if found is not None:
            return found
        time.sleep(0.02)
    raise AssertionError(f"nothing came of {attempt} in {deadline} s")


def take(channel: BlockingChannel, queue: str) -> bytes | None:
    method, _, body = channel.basic_get(queue, auto_ack=True)
    return body if method else None


def publish(channel: BlockingChannel, exchange: str, key: str = "", body: bytes = b"job") -> None:
    channel.basic_publish(exchange, key, body, PERSISTENT, mandatory=True)


@pytest.mark.parametrize("kind", KINDS)
def test_the_broker_has_what_was_compiled_and_nothing_after_deletion_and_all_of_it_at_one_stroke(
    place: Place, kind: str
) -> None:
    desired = place.make(**KINDS[kind])
    observed = place.observed()
    assert observed == desired
    assert topology.diff(observed, desired) == ()
    in_force = place.policies_in_force()
    assert in_force.keys() == {queue.name for queue in desired.queues}
    assert {"nq.transit", *in_force.values()} == {policy.name for policy in desired.policies}

    place.carry_out(topology.diff(observed, NOTHING))
    left = place.observed()
    assert [exchange.name for exchange in left.exchanges] == ["nq.topics"]
    assert [policy.name for policy in left.policies] == ["nq.transit"]
    assert (left.queues, left.users, left.permissions) == ((), (), ())

    place.carry_out_at_one_stroke(topology.diff(NOTHING, desired))
    assert place.observed() == desired
    assert place.policies_in_force() == in_force


def test_a_ladder_grows_and_shrinks_on_a_live_broker(place: Place) -> None:
    short = place.make(retry={"maxAttempts": 3})
    long = place.compiled(named_queue(retry={"maxAttempts": 7}))
    place.carry_out(topology.diff(place.observed(), long))
    assert place.observed() == long
    place.carry_out(topology.diff(place.observed(), short))
    assert place.observed() == short


def test_the_ladder_returns_each_job_after_its_delay(place: Place) -> None:
    place.make()
    delays = (250, 1250, 500, 3000, 1750)
    with closing(place.channel(place.names.consumer).connection) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        sent = {}
        for delay in delays:
            way = ladder.route(delay)
            assert way is not None
            sent[delay] = time.monotonic()
            publish(channel, place.names.level(way.level), way.key, str(delay).encode())
        came: dict[int, float] = {}
        while len(came) < len(delays):
            delay = int(eventually(lambda: take(channel, place.names.main)))
            came[delay] = time.monotonic() - sent[delay]
    assert sorted(came) == sorted(delays)
    for delay, waited in came.items():
        assert delay / 1000 - 0.01 <= waited < delay / 1000 + 10, f"{delay} ms took {waited:.2f} s"


def test_topics_and_mqtt_reach_the_queue(place: Place) -> None:
    place.make(subscriptions=TOPIC)
    with closing(place.channel().connection) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for exchange in ("nq.topics", "amq.topic"):
            publish(channel, exchange, "order.eu.created", exchange.encode())
            assert eventually(lambda: take(channel, place.names.main)) == exchange.encode()
        with pytest.raises(pika.exceptions.UnroutableError):
            publish(channel, "nq.topics", "order.eu.cancelled")


def test_a_group_stays_in_one_partition_and_in_order(place: Place) -> None:
    place.make(durable={"fifo": {"groupBy": "body.a", "partitions": 4}})
    names = place.names
    with closing(place.channel(names.producer).connection) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for number in range(40):
            group = pika.BasicProperties(delivery_mode=2, headers={"nq-group": f"g{number % 8}"})
            channel.basic_publish(names.main_exchange, "", b"%d" % number, group, mandatory=True)
    found: dict[int, list[int]] = {}
    with closing(place.channel(names.consumer).connection) as connection:
        channel = connection.channel()
        for partition in map(names.partition, range(4)):
            there = channel.queue_declare(partition, passive=True).method.message_count
            coming = channel.consume(partition, auto_ack=True, inactivity_timeout=DEADLINE)
            for _, _, body in islice(coming, there):
                assert body is not None, f"{partition} does not give out what it has"
                found.setdefault(int(body) % 8, []).append(int(body))
            channel.cancel()
    assert found == {group: list(range(group, 40, 8)) for group in range(8)}


def test_an_expired_and_a_poisonous_job_are_dead_letters(place: Place) -> None:
    place.make(durable={"messageTTL": "1s"})
    names = place.names
    with closing(place.channel().connection) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        publish(channel, names.main_exchange, body=b"expired")
        assert eventually(lambda: take(channel, names.dead_letters)) == b"expired"
    place.carry_out(topology.diff(place.observed(), place.compiled(named_queue())))
    with closing(place.channel().connection) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        publish(channel, names.main_exchange, body=b"poison")
        deliveries = 0
        while deliveries < 40:
            method, _, _ = channel.basic_get(names.main)
            if method is not None:
                deliveries += 1
                channel.basic_reject(method.delivery_tag or 0, requeue=True)
            elif _is_waiting(channel, names.dead_letters):
                break
        assert deliveries == DELIVERY_LIMIT + 1
        assert eventually(lambda: take(channel, names.dead_letters)) == b"poison"


def test_a_dead_letter_can_be_looked_at_for_ever(place: Place) -> None:
    place.make()
    queue = place.names.dead_letters
    with closing(place.channel(place.names.consumer).connection) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        publish(channel, queue, body=b"letter")
        for _ in range(30):
            tag = eventually(lambda: channel.basic_get(queue)[0]).delivery_tag
            channel.basic_reject(tag, requeue=True)
        assert eventually(lambda: take(channel, queue)) == b"letter"


@pytest.mark.parametrize("storage", ["quorum", "classic"])
def test_a_full_queue_refuses_and_drops_nothing(place: Place, storage: str) -> None:
    place.make(durable={"storage": storage, "maxLength": 3})
    with closing(place.channel(place.names.producer).connection) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        accepted = 0
        while accepted < 20 and _is_accepted(channel, place.names.main_exchange, b"%d" % accepted):
            accepted += 1
    assert 3 <= accepted < 20
    with closing(place.channel().connection) as connection:
        channel = connection.channel()
        found = [take(channel, place.names.main) for _ in range(accepted)]
    assert found == [b"%d" % number for number in range(accepted)]


def test_the_users_can_do_their_work_and_nothing_else(place: Place) -> None:
    place.make()
    names = place.names
    level = names.level(0)
    allowed: dict[str, list[Callable[[BlockingChannel], Any]]] = {
        names.producer: [
            lambda it: publish(it, names.main_exchange),
            lambda it: publish(it, level, "1"),
            lambda it: it.basic_publish("nq.topics", "order", b""),
        ],
        names.consumer: [
            lambda it: it.basic_get(names.main),
            lambda it: it.basic_get(names.dead_letters),
            lambda it: publish(it, names.main_exchange),
            lambda it: publish(it, level, "1"),
            lambda it: publish(it, names.dead_letters),
            lambda it: it.queue_declare(names.main, passive=True),
        ],
    }
    forbidden: dict[str, list[Callable[[BlockingChannel], Any]]] = {
        names.producer: [
            lambda it: it.basic_get(names.main),
            lambda it: it.basic_get(names.dead_letters),
            lambda it: it.queue_purge(names.main),
            lambda it: publish(it, names.dead_letters),
        ],
        names.consumer: [
            lambda it: it.basic_publish("nq.topics", "order", b""),
            lambda it: it.basic_get(level),
            lambda it: publish(it, "", names.main),
        ],
    }
    for user in (names.producer, names.consumer):
        forbidden[user] += [
            lambda it: it.queue_delete(names.main),
            lambda it: it.exchange_delete(names.main_exchange),
            lambda it: it.queue_declare("mine"),
            lambda it: it.queue_declare(""),
            lambda it: it.queue_unbind(names.main, names.main_exchange),
        ]
        for work in allowed[user]:
            assert not _is_refused(place, user, work)
        for work in forbidden[user]:
            assert _is_refused(place, user, work)


def _is_refused(place: Place, user: str, work: Callable[[BlockingChannel], Any]) -> bool:
    with closing(place.channel(user).connection) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        try:
            work(channel)
        except pika.exceptions.ChannelClosedByBroker as closed:
            return bool(closed.reply_code == ACCESS_REFUSED)
        return False


def _is_accepted(channel: BlockingChannel, exchange: str, body: bytes) -> bool:
    try:
        publish(channel, exchange, body=body)
    except pika.exceptions.NackError:
        return False
    return True


def _is_waiting(channel: BlockingChannel, queue: str) -> bool:
    return bool(channel.queue_declare(queue, passive=True).method.message_count)
