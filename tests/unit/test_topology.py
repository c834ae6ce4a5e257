"""What each kind of NamedQueue is on the broker."""

import json
import re
from typing import Any

import pytest
from hypothesis import given

from namedqueue import topology
from namedqueue.api.namedqueue import NamedQueue
from namedqueue.topology import Broker, Names, Tenancy, Topology, Version, has_ladder
from namedqueue.topology.model import Queue
from namedqueue.topology.names import exactly
from namedqueue.topology.render import to_dot
from unit.manifests import brokers, named_queue, named_queues

NEW = Version.parse("4.3")
OLD = Version.parse("3.10.8")


def compiled(version: Version = NEW, **spec: Any) -> Topology:
    return topology.compile(named_queue(**spec), Broker(version=version))


def queue(made: Topology, suffix: str) -> Queue:
    return next(it for it in made.queues if it.name == f"nq.shop.orders.{suffix}")


def policy(made: Topology, suffix: str) -> dict[str, Any]:
    return next(dict(it.definition) for it in made.policies if it.name.endswith(f".{suffix}"))


def test_the_default_queue_is_nine_queues_in_four_stages() -> None:
    made = compiled()
    levels = [f"nq.shop.orders.delay.{level}" for level in range(6)]
    others = [f"nq.shop.orders.{stage}" for stage in ("dlq", "main", "redrive")]
    assert [it.name for it in made.queues] == [*levels, *others]
    assert made.vhost == topology.model.Vhost("nq-shop")
    assert dict(queue(made, "main").arguments) == {
        "x-queue-type": "quorum",
        "x-dead-letter-exchange": "nq.shop.orders.dlq",
        "x-dead-letter-strategy": "at-least-once",
        "x-overflow": "reject-publish",
    }
    assert dict(queue(made, "delay.2").arguments) == {
        "x-queue-type": "quorum",
        "x-message-ttl": 1000,
        "x-dead-letter-exchange": "nq.shop.orders.delay.1",
        "x-dead-letter-strategy": "at-least-once",
        "x-overflow": "reject-publish",
    }
    assert dict(queue(made, "redrive").arguments) == {
        "x-queue-type": "quorum",
        "x-dead-letter-exchange": "nq.shop.orders",
        "x-dead-letter-strategy": "at-least-once",
        "x-overflow": "reject-publish",
        "x-single-active-consumer": True,
    }


def test_what_may_change_is_in_the_policy() -> None:
    made = compiled(durable={"maxLength": 10, "messageTTL": "7d"}, deadLetter={"retention": "1d"})
    assert policy(made, "main") == {
        "overflow": "reject-publish",
        "max-length": 10,
        "message-ttl": 604_800_000,
        "delivery-limit": 20,
        "consumer-timeout": 1_800_000,
    }
    assert policy(made, "dlq") == {"message-ttl": 86_400_000, "delivery-limit": -1}


def test_versions_differ_only_in_policies_and_notes() -> None:
    lazy = {"storage": "classic", "mode": "lazy", "maxPriority": 5}
    worker = {"port": 8080, "timeout": "2h"}
    old = compiled(OLD, durable=lazy, worker=worker)
    new = compiled(NEW, durable=lazy, worker=worker)
    assert old.queues == new.queues
    assert policy(old, "main") == {"overflow": "reject-publish", "queue-mode": "lazy"}
    assert policy(new, "main") == {"overflow": "reject-publish", "consumer-timeout": 7_260_000}
    assert policy(old, "dlq") == {"message-ttl": 7_776_000_000}
    assert "set consumer_timeout = 7260000 in its rabbitmq.conf" in old.notes[0]
    assert "lazy is built in" in new.notes[0]
    assert queue(new, "main").arguments["x-max-priority"] == 5


def test_a_fifo_queue_has_partitions_behind_a_hash_and_no_ladder() -> None:
    spec: dict[str, Any] = {"durable": {"fifo": {"groupBy": "body.a", "partitions": 3}}}
    made = compiled(NEW, **spec)
    names = [it.name.removeprefix("nq.shop.orders.") for it in made.queues]
    assert names == ["dlq", "main.0", "main.1", "main.2", "redrive"]
    assert queue(made, "main.1").arguments["x-single-active-consumer"] is True
    exchange = made.exchanges[0]
    assert (exchange.name, exchange.type) == ("nq.shop.orders", "x-consistent-hash")
    assert dict(exchange.arguments) == {"hash-header": "nq-group"}
    assert not has_ladder(named_queue(**spec).spec)


def test_a_stream_is_kept_by_age_and_size_and_says_what_it_approximates() -> None:
    made = compiled(type="stream", stream={"maxAge": "7d", "maxBytes": "10Gi", "maxMessages": 1000})
    assert policy(made, "main") == {
        "max-age": "604800s",
        "max-length-bytes": 1_024_000,
        "stream-max-segment-size-bytes": 1_048_576,
    }
    assert "spec.stream.maxMessages (1000) is approximated" in made.notes[0]


def test_a_stream_keeps_the_cursors_of_its_groups_and_a_token_for_each_pushed_one() -> None:
    consumers = [{"group": "audit"}, {"group": "billing"}]
    spec = {"type": "stream", "stream": {"consumers": consumers}, "worker": {"port": 8080}}
    old, new = compiled(OLD, **spec), compiled(NEW, **spec)
    names = [it.name.removeprefix("nq.shop.orders.") for it in new.queues]
    assert names == ["cursors", "main", "readers.audit", "readers.billing"]
    assert dict(queue(new, "cursors").arguments) == {
        "x-queue-type": "stream",
        "x-max-length-bytes": 16_777_216,
        "x-stream-max-segment-size-bytes": 1_048_576,
    }
    assert queue(new, "readers.audit").arguments["x-single-active-consumer"] is True
    assert policy(old, "readers") == {"overflow": "reject-publish"}
    assert policy(new, "readers") == {"overflow": "reject-publish", "delivery-limit": -1}
    consumer, producer = new.permissions
    assert re.search(consumer.read, "nq.shop.orders.readers.audit")
    assert re.search(consumer.write, "nq.shop.orders.cursors")
    assert not re.search(consumer.write, "nq.shop.orders")
    assert not re.search(producer.write, "nq.shop.orders.cursors")
    assert [it.name for it in compiled(type="stream").queues] == [
        "nq.shop.orders.cursors",
        "nq.shop.orders.main",
    ]


def test_an_ephemeral_queue_expires_and_is_nothing_a_broker_deprecates() -> None:
    made = compiled(type="ephemeral", ephemeral={"idleExpiry": "10m"})
    assert [it.name for it in made.queues] == ["nq.shop.orders.main"]
    assert queue(made, "main").durable
    assert policy(made, "main") == {"expires": 600_000}


def test_topics_lead_to_the_main_exchange() -> None:
    made = topology.compile(
        named_queue(subscriptions=[{"topic": "order/+/created"}, {"topic": "user/#"}]),
        Broker(mqtt_bridge=True),
    )
    leading = {(it.source, it.destination, it.routing_key) for it in made.bindings}
    assert {
        ("nq.topics", "nq.shop.orders", "order.*.created"),
        ("nq.topics", "nq.shop.orders", "user.#"),
        ("amq.topic", "nq.topics", "#"),
    } <= leading


def test_shared_tenancy_makes_no_vhost_and_no_users_and_says_so() -> None:
    made = topology.compile(named_queue(), Broker(tenancy=Tenancy.SHARED, vhost="team"))
    assert made.vhost is not None
    assert (made.vhost.name, made.vhost.managed) == ("team", False)
    assert (made.users, made.permissions) == ((), ())
    assert "tenancy is shared" in made.notes[0]


@given(queue=named_queues(), broker=brokers)
def test_each_queue_has_exactly_one_policy(queue: NamedQueue, broker: Broker) -> None:
    made = topology.compile(queue, broker)
    for each in made.queues:
        assert [bool(re.search(it.pattern, each.name)) for it in made.policies].count(True) == 1
    assert all(it.definition for it in made.policies)


@given(queue=named_queues(), broker=brokers)
def test_users_may_touch_nothing_of_another_queue(queue: NamedQueue, broker: Broker) -> None:
    made = topology.compile(queue, broker)
    others = ("nq.shop.orders-eu", "nq-shop-orders", "nq.shop.orders.main.x", "nq.shoporders", "")
    for permission in made.permissions:
        assert permission.configure == ""
        for pattern in filter(None, (permission.write, permission.read)):
            assert not any(re.search(pattern, other) for other in others)
            assert pattern.startswith("^")
            assert pattern.endswith("$")


@given(queue=named_queues(), broker=brokers)
def test_every_topology_is_plain_json_and_a_graph(queue: NamedQueue, broker: Broker) -> None:
    made = topology.compile(queue, broker)
    listed = json.loads(json.dumps(made.to_dict()))
    assert len(listed["queues"]) == len(made.queues)
    dot = to_dot(made)
    assert dot.count("->") == len(made.bindings) + sum(
        it.dead_letter_exchange is not None for it in made.queues
    )
    assert dot.count('"') % 2 == 0


def test_an_object_belongs_to_the_queue_of_its_name_only() -> None:
    names = Names("shop", "orders")
    assert names.own("nq.shop.orders")
    assert names.own("nq.shop.orders.delay.0")
    assert not names.own("nq.shop.orders-eu.main")
    assert not names.own("nq.topics")


def test_names_are_quoted_in_patterns() -> None:
    assert exactly("nq.a-b.c") == r"^nq\.a-b\.c$"
    assert not re.search(exactly("nq.a.b"), "nqxaxb")


@pytest.mark.parametrize(
    ("text", "words"),
    [("3.9.1", "too old; the oldest supported is 3.10"), ("four", "is not a RabbitMQ version")],
)
def test_a_version_that_cannot_be_served_is_refused_in_words(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Version.parse(text)


def test_versions_are_read_as_brokers_write_them() -> None:
    assert Version.parse("3.10.8") == Version(3, 10)
    assert Version.parse("4.3.0-rc.1") == Version(4, 3)
    assert Version.parse("5.0") > Version.parse("4.3")
