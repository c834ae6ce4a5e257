"""A job from any client takes the same road: tried, retried on the ladder, dead-lettered, replayed.

The publishers set none of our headers; two of them do not even speak our protocol.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import pika
import pytest

from broker.foreign import Publish, by_amqp_1_0, by_mqtt, by_pika
from broker.port.play import NAMESPACE, answer, named_queue
from fixtures.adapters import rabbitmq_client
from fixtures.planes import Stage, stage
from namedqueue import topology
from namedqueue.topology.names import MQTT_TOPICS
from testbed.rabbitmq import Broker

TOPIC = "order/eu/created"
PAYLOAD = b'{"order": "A-1", "amount": 42}'
WORK: dict[str, Any] = {
    "subscriptions": [{"topic": "order/+/created"}],
    "retry": {"maxAttempts": 3, "delay": "250ms", "multiplier": 2, "maxDelay": "1s", "jitter": 0},
}
REPLAY = named_queue("audit", type="stream", subscriptions=[{"topic": "order/#"}])

CLIENTS = pytest.mark.parametrize(
    "publish", [by_pika, by_amqp_1_0, by_mqtt], ids=["pika", "AMQP 1.0", "MQTT"]
)


@pytest.fixture
async def scene(broker: Broker, vhost: str) -> AsyncIterator[Stage]:
    """Serve a work queue and a stream that overlap in their topics, on a vhost with the bridge."""
    client = rabbitmq_client(broker, vhost)
    await client.open()
    async with stage(broker=client) as running:
        await running.apply(running.queue(**WORK), REPLAY)
        bridge_mqtt(broker, vhost)
        yield running


def bridge_mqtt(node: Broker, vhost: str) -> None:
    """Bind what the contract's bridge consists of, as the operator does with its option."""
    bridged = topology.compile(REPLAY, topology.Broker(mqtt_bridge=True))
    with channel_of(node, vhost) as channel:
        for binding in bridged.bindings:
            if binding.source == MQTT_TOPICS:
                channel.exchange_bind(binding.destination, binding.source, binding.routing_key)


@contextmanager
def channel_of(
    node: Broker, vhost: str
) -> Iterator[pika.adapters.blocking_connection.BlockingChannel]:
    with pika.BlockingConnection(pika.URLParameters(node.amqp_url(vhost))) as connection:
        yield connection.channel()


def first_of_stream(node: Broker, vhost: str) -> bytes:
    """Return the oldest message of the stream, read as any client would."""
    with channel_of(node, vhost) as channel:
        channel.basic_qos(prefetch_count=10)
        queue = f"nq.{NAMESPACE}.{REPLAY.metadata.name}.main"
        offset = {"x-stream-offset": "first"}
        for method, _, body in channel.consume(queue, arguments=offset, inactivity_timeout=60):
            assert method is not None, "nothing came from the stream within 60 s"
            assert body is not None
            return body
    raise AssertionError("the stream ended")


@CLIENTS
async def test_a_strangers_job_is_retried_dead_lettered_and_kept_by_a_stream(
    scene: Stage, broker: Broker, vhost: str, publish: Publish
) -> None:
    scene.app.status = 500
    await asyncio.to_thread(publish, broker, vhost, TOPIC, PAYLOAD)

    page = await answer(
        lambda: scene.api.get("/v1/queues/orders/dead-letters"), lambda got: bool(got.json["items"])
    )
    [dead] = page.json["items"]
    tries = await scene.app.jobs(3)
    assert [job.headers["nq-attempt"] for job in tries] == ["1", "2", "3"]
    assert {job.headers["ce-id"] for job in tries} == {dead["eventId"]}
    assert {job.headers["nq-topic"] for job in tries} == {TOPIC}
    assert {job.body for job in tries} == {PAYLOAD}
    assert dead["terminalReasonCode"] == "HTTP_500"
    assert [one["attempt"] for one in dead["attemptHistory"]] == [1, 2, 3]
    assert await asyncio.to_thread(first_of_stream, broker, vhost) == PAYLOAD


@CLIENTS
async def test_a_strangers_job_that_was_redriven_is_processed(
    scene: Stage, broker: Broker, vhost: str, publish: Publish
) -> None:
    scene.app.status = 422
    await asyncio.to_thread(publish, broker, vhost, TOPIC, PAYLOAD)
    await answer(
        lambda: scene.api.get("/v1/queues/orders/dead-letters"), lambda got: bool(got.json["items"])
    )
    scene.app.status = 200
    sent_back = await scene.api.post("/v1/queues/orders/redrive", {})
    assert sent_back.json == {"queue": "orders", "redriven": 1}
    first, second = await scene.app.jobs(2)
    assert (first.body, second.body) == (PAYLOAD, PAYLOAD)
    assert first.headers["ce-id"] == second.headers["ce-id"]
    assert second.headers["nq-attempt"] == "1"
