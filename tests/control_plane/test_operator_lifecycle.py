"""`kubectl apply` makes a queue exist, edits are followed, and its status tells about it."""

import json
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

import httpx
import pika
import pika.exceptions
import pytest

from control_plane.operating import Operated, RunningOperator, broker_secret
from fixtures.brokers import VERSIONS
from namedqueue import topology
from namedqueue.api.reading import read
from testbed.rabbitmq import Broker


def test_an_applied_queue_is_ready_and_the_broker_has_exactly_what_the_compiler_says(
    operated: Operated,
) -> None:
    operated.apply(subscriptions=[{"topic": "order/+/created"}])
    operated.ready()
    assert operated.observed() == operated.desired()
    status = operated.queue()["status"]
    assert status["broker"] == f"127.0.0.1:{operated.broker.amqp_port}"
    assert status["topology"]["vhost"] == operated.vhost
    assert status["topology"]["queues"] == [queue.name for queue in operated.desired().queues]
    assert operated.condition("BrokerReachable")["reason"] == "Reachable"
    assert operated.condition("TopologyReady")["reason"] == "InPlace"
    operated.told("Ready: jobs can be sent")


def test_what_a_sidecar_needs_is_in_a_config_map_and_a_secret_per_role(operated: Operated) -> None:
    operated.apply(retry={"maxAttempts": 3})
    operated.ready()
    [(file, text)] = operated.kubectl.get("configmap", "nq-orders")["data"].items()
    assert file == "orders.json"
    mounted = read(json.loads(text))
    assert mounted.spec == read(operated.queue()).spec
    for role in ("consumer", "producer"):
        secret = operated.secret(role)
        assert secret["host"] == "127.0.0.1"
        assert secret["port"] == str(operated.broker.amqp_port)
        assert secret["vhost"] == operated.vhost
    owner = operated.kubectl.get("secret", "nq-orders-consumer")["metadata"]["ownerReferences"][0]
    assert (owner["kind"], owner["name"]) == ("NamedQueue", "orders")


def test_a_worker_can_consume_and_nothing_else_with_its_secret(operated: Operated) -> None:
    operated.apply()
    operated.ready()
    operated.send()
    with closing(_connected(operated.secret("consumer"))) as connection:
        channel = connection.channel()
        method, _, body = channel.basic_get(operated.names().main, auto_ack=True)
        assert (method is not None, body) == (True, b"{}")
        with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="ACCESS_REFUSED"):
            channel.queue_declare("mine")


def test_a_longer_delay_grows_the_ladder_and_a_shorter_one_shrinks_it_again(
    operated: Operated,
) -> None:
    operated.apply()
    operated.ready()
    levels = len(operated.observed().queues)
    operated.apply(retry={"delay": "100s", "maxDelay": "100s"})
    operated.ready()
    assert operated.observed() == operated.desired()
    assert len(operated.observed().queues) > levels
    operated.apply(retry={"delay": "40s", "maxDelay": "40s"})
    operated.ready()
    operated.in_place()


def test_lazy_mode_is_switched_by_an_edit_while_the_queue_lives(operated: Operated) -> None:
    operated.apply(durable={"storage": "classic"})
    operated.ready()
    operated.send(3)
    operated.apply(durable={"storage": "classic", "mode": "lazy", "maxLength": 5})
    operated.ready()
    assert operated.observed() == operated.desired()
    operated.eventually(
        lambda: operated.queue()["status"]["depth"]["ready"] == 3, "the jobs are still there"
    )


def test_kubectl_get_shows_how_many_jobs_are_where(operated: Operated) -> None:
    operated.apply()
    operated.ready()
    operated.send(4)
    operated.eventually(
        lambda: (
            operated.kubectl("get", "nq", "orders", "--no-headers").split()[:6]
            == ["orders", "True", "durable", "4", "0", "0"]
        ),
        "kubectl get shows 4 jobs",
    )


def test_a_steady_queue_is_not_written_to(operated: Operated) -> None:
    operated.apply()
    operated.ready()
    operated.in_place()

    def stands_still() -> bool:
        before = operated.queue()["metadata"]["resourceVersion"]
        rounds = time.monotonic() + 8  # more than a whole look of the drift loop
        operated.eventually(lambda: time.monotonic() > rounds, "some rounds are over")
        return bool(operated.queue()["metadata"]["resourceVersion"] == before)

    # What the creation leaves to write, its first depth for one, may come after it is ready.
    operated.eventually(stands_still, "nothing is written any more")


def test_other_passwords_come_by_an_annotation(operated: Operated) -> None:
    operated.apply()
    operated.ready()
    before = operated.secret("consumer")["password"]
    operated.kubectl("annotate", "nq/orders", "namedqueue.io/rotate-credentials=2026-11")
    operated.eventually(
        lambda: operated.secret("consumer")["password"] != before, "the password is another one"
    )
    secret = operated.secret("consumer")

    def logs_in() -> bool:
        try:
            _connected(secret).close()
        except pika.exceptions.ProbableAuthenticationError:
            return False
        return True

    operated.eventually(logs_in, "the new password is good")
    again = operated.secret("consumer")["password"]
    assert again == secret["password"]


def _connected(secret: dict[str, str]) -> pika.BlockingConnection:
    login = pika.PlainCredentials(secret["username"], secret["password"])
    host, port = secret["host"], int(secret["port"])
    return pika.BlockingConnection(pika.ConnectionParameters(host, port, secret["vhost"], login))


@pytest.mark.parametrize("version", VERSIONS)
def test_every_kind_of_queue_is_brought_about_on_every_broker(
    version: str, operated: Operated, shared_broker: Callable[[str], Broker]
) -> None:
    elsewhere = operated.on(shared_broker(version))
    kinds: dict[str, dict[str, Any]] = {
        "quorum": {},
        "classic": {"durable": {"storage": "classic"}},
        "fifo": {"durable": {"fifo": {"groupBy": "body.a", "partitions": 2}}},
        "stream": {"type": "stream", "stream": {"maxAge": "7d"}},
        "ephemeral": {"type": "ephemeral"},
    }
    for name, spec in kinds.items():
        elsewhere.apply(name, brokerSecretRef={"name": "rabbit"}, **spec)
    for name in kinds:
        elsewhere.ready(name)
        assert topology.diff(elsewhere.observed(name), elsewhere.desired(name)) == (), name
        assert f"RabbitMQ {version}" in elsewhere.condition("BrokerReachable", name)["message"]


def test_the_operator_measures_its_queues_and_says_that_it_lives(
    operated: Operated, operator: RunningOperator
) -> None:
    operated.apply()
    operated.ready()
    operated.send(2)
    with httpx.Client(base_url=operator.observers, trust_env=False, timeout=30) as http:
        assert http.get("/healthz/live").text == "alive\n"
        labels = f'namespace="{operated.namespace}",queue="orders",stage="ready"'
        operated.eventually(
            lambda: f"namedqueue_jobs{{{labels}}} 2.0" in http.get("/metrics").text,
            "the metrics show two jobs",
        )
        shown = http.get("/metrics").text
    place = f"127.0.0.1:{operated.broker.amqp_port}"
    assert f'namedqueue_last_successful_poll_timestamp_seconds{{broker="{place}"}}' in shown
    assert "namedqueue_reconcile_duration_seconds_count" in shown
    assert "namedqueue_operator_leading 1.0" in shown


def test_a_queue_can_live_in_a_vhost_and_account_that_were_given(operated: Operated) -> None:
    """The account may neither make vhosts nor users, nor see those of others."""
    given, vhost = f"given-{operated.namespace}", f"nq-{operated.namespace}"
    operated.broker.create_vhost(vhost)
    operated.broker.api("PUT", f"users/{given}", json={"password": "p", "tags": "policymaker"})
    everything = {"configure": ".*", "write": ".*", "read": ".*"}
    operated.broker.api("PUT", f"permissions/{vhost}/{given}", json=everything)
    shared = {"username": given, "password": "p", "vhost": vhost, "tenancy": "shared"}
    secret = broker_secret(operated.broker, "given")
    operated.kubectl.apply(secret | {"stringData": secret["stringData"] | shared})
    operated.apply(brokerSecretRef={"name": "given"}, deletionPolicy="Delete")
    operated.ready()
    seen, wanted = operated.observed(), operated.desired()
    assert (seen.queues, seen.bindings, seen.policies) == (
        wanted.queues,
        wanted.bindings,
        wanted.policies,
    )
    assert seen.users == ()
    assert "tenancy is shared" in operated.condition("TopologyReady")["message"]
    assert operated.secret("consumer")["username"] == given
    operated.delete()
    operated.gone()
    assert operated.observed().queues == ()
    operated.broker.api("DELETE", f"users/{given}")
