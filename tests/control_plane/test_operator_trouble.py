"""Brokers that are away and Secrets that are wrong: what the user is told, and who is spared."""

import random
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from control_plane.conftest import GIVE_UP_SECONDS
from control_plane.operating import Operated, binding, broker_secret
from fixtures.brokers import VERSIONS
from fixtures.scale import scaled
from testbed import leases, rabbitmq
from testbed.rabbitmq import Broker

_ELSEWHERE: dict[str, Any] = {"brokerSecretRef": {"name": "rabbit"}}


@pytest.fixture
def frail_broker() -> Iterator[Broker]:
    """Give a broker of this test's own, to harm."""
    name = f"pytest-private-rabbitmq-{uuid.uuid4().hex[:12]}"
    with leases.shared(
        name,
        start=lambda: rabbitmq.start(VERSIONS[-1], name),
        find=lambda: None,
        stop=lambda: rabbitmq.remove(name),
    ) as broker:
        yield broker


def test_a_broker_that_hangs_is_told_of_and_delays_no_other_brokers_queues(
    operated: Operated, frail_broker: Broker
) -> None:
    operated.on(frail_broker)
    operated.apply("there", **_ELSEWHERE)
    operated.ready("there")
    frail_broker.pause()
    try:
        operated.says("BrokerReachable", "False", "Unreachable: the management API at", "there")
        assert operated.condition("TopologyReady", "there")["status"] == "Unknown"
        # What waits for the broker that hangs does so each time; a busy machine does not.
        assert any(_until_ready(operated, name) < 15 for name in ("here", "near", "close"))
    finally:
        frail_broker.resume()
    operated.says("Ready", "True", "Ready", "there")


def _until_ready(operated: Operated, name: str) -> float:
    """Make a queue; return how many seconds it took to be ready."""
    began = time.monotonic()
    operated.apply(name)
    operated.ready(name)
    return time.monotonic() - began


def test_a_broker_that_is_gone_holds_up_a_deletion_no_longer_than_its_deadline(
    operated: Operated, frail_broker: Broker
) -> None:
    operated.on(frail_broker)
    operated.apply(deletionPolicy="Delete", **_ELSEWHERE)
    operated.ready()
    frail_broker.kill()
    operated.says("Ready", "False", "does not answer; check that the broker runs")
    operated.delete()
    lasting = f"the queue goes anyway when that has lasted for {GIVE_UP_SECONDS} s"
    operated.says("Ready", "False", lasting)
    operated.gone(deadline=GIVE_UP_SECONDS + 60)
    operated.told("Orphaned: the management API at")
    [orphaned] = [event for event in operated.events() if event.startswith("Orphaned")]
    assert operated.names().main in orphaned
    assert operated.names().consumer in orphaned


def test_a_queue_that_moves_to_another_broker_names_what_it_leaves_behind(
    operated: Operated, shared_broker: Callable[[str], Broker]
) -> None:
    operated.apply()
    operated.ready()
    elsewhere = operated.on(shared_broker(VERSIONS[0]))
    elsewhere.apply(**_ELSEWHERE)
    elsewhere.ready()
    elsewhere.in_place()
    place = f"127.0.0.1:{operated.broker.amqp_port}"
    elsewhere.told(f"Moved: left behind on {place} in vhost {operated.vhost}")


def test_a_secret_is_asked_for_until_it_is_right(operated: Operated) -> None:
    operated.apply(**_ELSEWHERE)
    operated.says("Ready", "False", "SecretMissing: Secret rabbit is not in namespace")
    secret = broker_secret(operated.broker, "rabbit")
    right = binding(operated.broker)
    operated.kubectl.apply(secret | {"stringData": {**right, "password": ""}})
    operated.says("BrokerReachable", "False", "SecretInvalid: Secret rabbit lacks password")
    operated.kubectl.apply(secret | {"stringData": {**right, "password": "wrong"}})
    operated.says("BrokerReachable", "False", "AccessRefused: the broker at 127.0.0.1")
    operated.kubectl.apply(secret)
    operated.ready()
    operated.in_place()


def test_a_queue_whose_secret_is_gone_can_still_be_deleted(operated: Operated) -> None:
    operated.apply(**_ELSEWHERE)
    operated.says("Ready", "False", "SecretMissing")
    operated.delete()
    operated.gone(deadline=GIVE_UP_SECONDS + 60)
    operated.told("Orphaned: Secret rabbit is not in namespace")


def test_no_password_is_in_a_status_an_event_or_the_log(operated: Operated) -> None:
    operated.on(operated.broker)
    operated.apply(**_ELSEWHERE)
    operated.ready()
    operated.broker.api("DELETE", f"users/{operated.names().consumer}")
    operated.told("recreated user")
    wrong = {**binding(operated.broker), "password": "not-the-password"}
    operated.kubectl.apply(broker_secret(operated.broker, "rabbit") | {"stringData": wrong})
    operated.says("Ready", "False", "AccessRefused")
    passwords = {
        operated.broker.password,
        wrong["password"],
        *(operated.secret(role)["password"] for role in ("consumer", "producer")),
    }
    told = {
        "the status": str(operated.queue()),
        "the events": str(operated.events()),
        "the log": operated.operator_log.read_text(),
        "the ConfigMap": str(operated.kubectl.get("configmap", "nq-orders")),
    }
    for where, text in told.items():
        assert not [word for word in passwords if word in text], where


def test_any_number_of_edits_ends_in_what_the_last_one_says(operated: Operated) -> None:
    dice = random.Random(20261118)  # noqa: S311  # repeatable, not secret
    for _ in range(scaled(1000) // 4):
        operated.apply(**_any_spec(dice))
    operated.apply(retry={"delay": "10m", "maxDelay": "10m"})
    operated.ready()
    operated.in_place()
    log = operated.operator_log.read_text().splitlines()
    errors = [line for line in log if operated.namespace in line and '"level": "error"' in line]
    assert not errors, errors[-1]


def _any_spec(dice: random.Random) -> dict[str, Any]:
    """Draw a spec that may follow any other: nothing in it is immutable."""
    delay = dice.choice([0, 1, 30])
    spec: dict[str, Any] = {
        "retry": {
            "delay": f"{delay}s",
            "maxDelay": f"{delay + dice.choice([0, 60, 300])}s",
            "maxAttempts": dice.choice([1, 2, 5, 20]),
        },
        "deadLetter": {"retention": dice.choice(["1h", "90d"])},
        "deletionPolicy": dice.choice(["Retain", "Delete"]),
    }
    if dice.random() < 0.5:
        spec["durable"] = {"maxLength": dice.randint(1, 9999), "messageTTL": "7d"}
    if dice.random() < 0.5:
        topics = dice.sample(["order/#", "order/+/created", "user/1", "#"], dice.randint(1, 3))
        spec["subscriptions"] = [{"topic": topic} for topic in topics]
    if dice.random() < 0.5:
        spec["errors"] = {"permanent": ["HTTP_409"]}
    return spec
