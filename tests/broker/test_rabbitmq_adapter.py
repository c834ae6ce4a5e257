"""What can go wrong between us and a RabbitMQ, and that no job is lost by it."""

import asyncio
import logging
import struct
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import quote

import aio_pika
import pytest
from prometheus_client import REGISTRY

from broker.port.play import (
    Hands,
    answer,
    bury_at_once,
    declare,
    enqueue,
    eventually,
    job,
    now_ms,
    publish,
    redrive,
)
from namedqueue.deadletters import redriven
from namedqueue.topology.names import TOPICS, Names
from namedqueue_sidecar.brokers.port import Main, QueueKey, Verdict
from namedqueue_sidecar.brokers.rabbitmq import connection
from namedqueue_sidecar.brokers.rabbitmq.broker import RabbitMQBroker
from namedqueue_sidecar.brokers.rabbitmq.credentials import Credentials
from namedqueue_sidecar.brokers.rabbitmq.messages import Address, Outgoing
from namedqueue_sidecar.brokers.rabbitmq.transit import in_transit
from namedqueue_sidecar.brokers.rabbitmq.walking import Walk, walking
from testbed.rabbitmq import Broker

NAMES = Names("shop", "orders")
Client: TypeAlias = Callable[..., Awaitable[RabbitMQBroker]]

_ended: set[tuple[str, str]] = set()


@pytest.fixture
async def open_client() -> AsyncIterator[Client]:
    """Open clients that are closed at the end, before their vhost goes."""
    async with AsyncExitStack() as opened:

        async def client(node: Broker, vhost: str, **options: Any) -> RabbitMQBroker:
            credentials = Credentials.from_url(node.amqp_url(vhost))
            made = RabbitMQBroker(
                lambda: credentials, vhost=vhost, management_url=node.management_url, **options
            )
            opened.push_async_callback(made.close)
            await made.open()
            return made

        yield client


@pytest.fixture
async def client(open_client: Client, broker: Broker, vhost: str) -> RabbitMQBroker:
    return await open_client(broker, vhost)


def end_connections(node: Broker, vhost: str) -> int:
    """End both connections to a vhost, as an operator would; return how many there were.

    One that is listed alone is left: it would be back, and be ended again with the other. Those
    that were ended before may still be listed, and do not count.
    """
    listed = [(each["vhost"], each["name"]) for each in node.api("GET", "connections").json()]
    found = {each for each in listed if each[0] == vhost} - _ended
    for each in found if len(found) >= 2 else ():
        node._request("DELETE", f"connections/{quote(each[1], safe='')}")
        _ended.add(each)
    return len(found)


async def ended_connections(node: Broker, vhost: str) -> None:
    """End both connections; the broker takes seconds to list them."""
    await answer(lambda: asyncio.to_thread(end_connections, node, vhost), lambda ended: ended >= 2)


def connections_lost() -> float:
    return REGISTRY.get_sample_value("namedqueue_broker_connections_lost_total") or 0.0


async def test_a_lost_connection_is_told_once_and_deliveries_begin_again(
    client: RabbitMQBroker, broker: Broker, vhost: str
) -> None:
    queue = await declare(client)
    jobs = [job() for _ in range(10)]
    await enqueue(client, queue, *jobs)
    hands = Hands()
    subscription = client.subscribe(queue, hands, prefetch=10)
    void = await hands.hold(10)
    before = connections_lost()
    await ended_connections(broker, vhost)
    await eventually(lambda: hands.losses == 1, "the loss is known")
    await eventually(lambda: connections_lost() >= before + 2, "both losses are counted")
    subscription.ack(void)
    subscription.hand_back(void)
    again = await hands.hold(10)
    assert {delivery.job.id for delivery in again} == {each.id for each in jobs}
    assert all(delivery.redelivered for delivery in again)
    subscription.ack(void)
    subscription.ack(again)
    await enqueue_when_possible(client, queue)
    await eventually(lambda: len(hands.came) == 21, "work goes on")
    assert hands.losses == 1


async def test_deliveries_begin_again_after_a_broker_that_fell_silent(
    private_broker: Broker, open_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "HEARTBEAT", 1)
    client = await open_client(private_broker, "/", watch=0.5)
    queue, hands = await declare(client), Hands()
    client.subscribe(queue, hands, prefetch=10)
    await enqueue(client, queue, job())
    await hands.hold(1)
    before = connections_lost()
    await asyncio.to_thread(private_broker.pause)
    try:
        await eventually(lambda: connections_lost() >= before + 2, "the silence is noticed")
    finally:
        await asyncio.to_thread(private_broker.resume)
    await eventually(lambda: hands.losses == 1, "the loss is known")
    sent = await enqueue_when_possible(client, queue)
    await eventually(lambda: sent in hands.ids, "deliveries begin again")


async def test_a_subscription_whose_connection_went_while_it_ended_is_forgotten(
    client: RabbitMQBroker, broker: Broker, vhost: str
) -> None:
    subscription = client.subscribe(await declare(client), Hands(), prefetch=1)
    await eventually(lambda: subscription._hold is not None, "it began")
    await subscription.stop()
    await ended_connections(broker, vhost)
    await eventually(subscription._keeper.done, "it ended with its connection")
    await subscription.close()
    assert client._subscriptions == {}


async def enqueue_when_possible(client: RabbitMQBroker, queue: QueueKey) -> str:
    """Publish one job, again until it is confirmed, and return its id."""
    sent = job()
    await answer(lambda: publish(client, Main(queue, sent)), lambda got: got == [Verdict.CONFIRMED])
    return sent.id


async def test_nothing_confirmed_is_lost_when_the_broker_is_killed_under_load(
    private_broker: Broker, open_client: Client
) -> None:
    client = await open_client(private_broker, "/")
    queue = await declare(client)
    confirmed: set[str] = set()
    sent: list[str] = []
    hands, acked = Hands(), set[str]()
    subscription = client.subscribe(queue, hands, prefetch=50)
    over = False

    async def produce() -> None:
        while not over:
            batch = [job() for _ in range(20)]
            sent.extend(each.id for each in batch)
            verdicts = await publish(client, *(Main(queue, each) for each in batch))
            for each, verdict in zip(batch, verdicts, strict=True):
                if verdict is Verdict.CONFIRMED:
                    confirmed.add(each.id)
            await asyncio.sleep(0.01)

    async def consume() -> None:
        while not over:
            taken = hands.take()
            acked.update(delivery.job.id for delivery in taken)
            subscription.ack(taken)
            await asyncio.sleep(0.01)

    working = asyncio.gather(produce(), consume())
    await eventually(lambda: len(acked) > 200, "work is under way")
    await asyncio.to_thread(private_broker.settle)
    before = len(confirmed)
    await asyncio.to_thread(private_broker.kill)
    await eventually(lambda: client.unavailable is not None, "the loss is known")
    assert "nq" not in str(client.unavailable)
    await asyncio.to_thread(private_broker.start)
    await eventually(lambda: len(confirmed) > before + 200, "publishing goes on by itself")
    await eventually(lambda: confirmed <= acked | set(hands.ids), "every confirmed job came")
    over = True
    await working
    assert hands.losses >= 1
    assert set(hands.ids) <= set(sent)


async def test_an_alarm_stops_publishing_with_a_sentence_while_acks_go_on(
    private_broker: Broker, open_client: Client
) -> None:
    client = await open_client(private_broker, "/", deadline=5.0)
    queue = await declare(client)
    await enqueue(client, queue, *(job() for _ in range(10)))
    hands = Hands()
    subscription = client.subscribe(queue, hands, prefetch=5)
    await hands.hold(5)
    await asyncio.to_thread(private_broker.memory_alarm, True)
    began = time.monotonic()
    assert await publish(client, Main(queue, job())) == [Verdict.UNKNOWN]
    assert time.monotonic() - began < 15.0
    assert "memory" in str(client.unavailable)
    began = time.monotonic()
    assert await publish(client, Main(queue, job())) == [Verdict.UNKNOWN]
    assert time.monotonic() - began < 4.5, "it waited for its deadline with an alarm known"
    subscription.ack(hands.take())
    await hands.hold(5)
    subscription.ack(hands.take())
    await asyncio.to_thread(private_broker.memory_alarm, False)
    await eventually(lambda: client.unavailable is None, "the alarm is over")
    await enqueue_when_possible(client, queue)


async def test_a_queue_that_was_deleted_and_made_again_is_consumed_again(
    client: RabbitMQBroker,
) -> None:
    queue = await declare(client)
    hands = Hands()
    client.subscribe(queue, hands, prefetch=5)
    await enqueue(client, queue, job())
    await hands.hold(1)
    await client.undeclare(queue)
    await eventually(lambda: hands.losses >= 1, "the loss is known")
    await declare(client)
    await enqueue(client, queue, after := job())
    await eventually(lambda: after.id in hands.ids, "deliveries began again")


async def test_a_subscription_to_a_queue_that_comes_later_begins_when_it_comes(
    client: RabbitMQBroker,
) -> None:
    hands = Hands()
    client.subscribe(QueueKey("shop", "orders"), hands, prefetch=5)
    queue = await declare(client)
    await enqueue(client, queue, job())
    await hands.hold(1)


async def test_a_consumer_that_the_broker_forgot_is_noticed(
    broker: Broker, vhost: str, open_client: Client
) -> None:
    client = await open_client(broker, vhost, watch=0.2)
    queue = await declare(client)
    hands = Hands()
    subscription = client.subscribe(queue, hands, prefetch=5)
    await enqueue(client, queue, job())
    await hands.hold(1)
    subscription.ack(hands.take())  # a quorum queue counts a consumer for as long as it holds jobs
    hold = subscription._hold
    assert hold is not None
    [tag] = hold.consumers
    await hold.channel.basic_cancel(tag)
    await eventually(lambda: hands.losses == 1, "the watchdog noticed")
    await enqueue(client, queue, job())
    await hands.hold(1)


NOT_UTF_8 = b"\x02\xff\xfe"
TOO_LATE = struct.pack(">Q", 1_763_460_000_000_000_000)
TOO_DEEP = reduce(
    lambda inner, _: b"A" + struct.pack(">I", len(inner)) + inner, range(2000), b"t\x01"
)


@pytest.mark.parametrize(
    ("flag", "written"),
    [
        (15, NOT_UTF_8),
        (7, NOT_UTF_8),
        (6, TOO_LATE),
        (13, struct.pack(">I", 8) + NOT_UTF_8 + b"I\0\0\0\1"),
        (13, struct.pack(">I", 11) + b"\x01aT" + TOO_LATE),
        (13, struct.pack(">I", 2 + len(TOO_DEEP)) + b"\x01a" + TOO_DEEP),
    ],
    ids=["type", "id", "time", "name of a header", "time in a header", "depth"],
)
async def test_what_a_stranger_wrote_against_the_rules_is_a_job_like_any(
    client: RabbitMQBroker, flag: int, written: bytes
) -> None:
    queue, hands = await declare(client), Hands()
    client.subscribe(queue, hands, prefetch=10)
    header = struct.pack(">HHQH", 60, 0, 2, 1 << flag) + written
    client._publisher.send([Outgoing(Address(NAMES.main_exchange, ""), "", header, b"{}")], print)
    [came] = await hands.hold(1)
    await enqueue(client, queue, came.job._replace(attempt=2))
    await hands.hold(2)
    assert hands.losses == 0


async def test_jobs_of_strangers_are_attempt_one_and_lose_what_steers_a_broker(
    client: RabbitMQBroker, rabbitmq_url: str
) -> None:
    queue = await declare(client, subscriptions=[{"topic": "order/+"}])
    forged: dict[str, Any] = {
        "x-death": [{"reason": "expired", "queue": NAMES.main, "count": 1000}],
        "x-forged": "1",
        "nq-attempt": "many",
        "nq-history": "not json",
        "tenant": "a",
    }
    async with await aio_pika.connect(rabbitmq_url) as connection:
        channel = await connection.channel()
        main = await channel.get_exchange(NAMES.main_exchange, ensure=False)
        topics = await channel.get_exchange(TOPICS, ensure=False)
        await main.publish(aio_pika.Message(b"bare"), "")
        await main.publish(aio_pika.Message(b"forged", headers=forged, message_id="m 1"), "")
        await topics.publish(aio_pika.Message(b"topic"), "order.eu")
    hands = Hands()
    subscription = client.subscribe(queue, hands, prefetch=10)
    bare, strange, topic = (delivery.job for delivery in await hands.hold(3))
    assert bare.payload == b"bare"
    assert bare.attempt == 1
    assert len(bare.id) == 32
    assert abs(bare.enqueued_at - now_ms()) < 60_000
    assert strange.attempt == 1
    assert strange.id == "m%201"
    assert strange.headers == (("tenant", "a"),)
    assert topic.topic == "order/eu"
    assert await publish(client, Main(queue, strange._replace(attempt=2), 250)) == [
        Verdict.CONFIRMED
    ]
    await eventually(lambda: len(hands.came) == 4, "the retried job came back")
    assert hands.came[-1].job.attempt == 2
    subscription.ack(hands.take())


async def test_a_copy_header_sends_no_copy_when_we_publish_on(
    client: RabbitMQBroker, rabbitmq_url: str
) -> None:
    queue = await declare(client)
    other = await declare(client, "other")
    async with await aio_pika.connect(rabbitmq_url) as connection:
        channel = await connection.channel()
        main = await channel.get_exchange(NAMES.main_exchange, ensure=False)
        await main.publish(aio_pika.Message(b"x", headers={"CC": ["somewhere"], "BCC": ["y"]}), "")
    hands, nobody = Hands(), Hands()
    client.subscribe(queue, hands, prefetch=10)
    client.subscribe(other, nobody, prefetch=10)
    [delivery] = await hands.hold(1)
    assert delivery.job.headers == ()
    await enqueue(client, queue, delivery.job)
    await eventually(lambda: len(hands.came) == 2, "it went on")
    assert nobody.came == []


async def test_tls_is_spoken_with_a_broker_whose_authority_is_trusted(
    broker: Broker, vhost: str
) -> None:
    trusted = Credentials.from_url(broker.amqps_url(vhost), broker.ca_file)
    client = RabbitMQBroker(lambda: trusted, vhost=vhost, management_url=broker.management_url)
    await asyncio.wait_for(client.open(), 30)
    queue = await declare(client)
    await enqueue(client, queue, job())
    await client.close()


async def test_a_broker_whose_authority_is_not_trusted_is_refused_with_a_sentence(
    broker: Broker, vhost: str
) -> None:
    client = RabbitMQBroker(lambda: Credentials.from_url(broker.amqps_url(vhost)), vhost=vhost)
    opening = asyncio.ensure_future(client.open())
    await eventually(lambda: "not trusted" in str(client.unavailable), "it says why")
    opening.cancel()
    await client.close()


async def test_tls_needs_no_authority_of_its_own_where_the_system_trusts_the_broker(
    broker: Broker, vhost: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = {"host": "localhost", "port": str(broker.amqps_port), "tls": "true"}
    login = {"username": broker.username, "password": broker.password}
    for key, value in {**keys, **login}.items():
        (tmp_path / key).write_text(value)
    client = RabbitMQBroker(lambda: Credentials.from_folder(tmp_path), vhost=vhost)
    opening = asyncio.ensure_future(client.open())
    await eventually(lambda: "not trusted" in str(client.unavailable), "it trusts not just anyone")
    monkeypatch.setenv("SSL_CERT_FILE", str(broker.ca_file))  # where the system's authorities are
    await asyncio.wait_for(opening, 60)
    queue = await declare(client)
    await enqueue(client, queue, job())
    await client.close()


async def test_a_wrong_password_is_named_and_never_shown(
    broker: Broker, vhost: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    right = Credentials.from_url(broker.amqp_url(vhost))
    wrong = replace(right, password="hunter2/secret")
    given = [wrong]
    client = RabbitMQBroker(lambda: given[0], vhost=vhost)
    opening = asyncio.ensure_future(client.open())
    await eventually(lambda: "password" in str(client.unavailable), "it says why")
    shown = f"{client.unavailable} {caplog.text} {wrong!r}"
    assert "hunter2" not in shown
    given[0] = right
    await asyncio.wait_for(opening, 60)
    assert client.unavailable is None
    await client.close()


async def test_a_rotated_password_is_used_from_the_next_connection_on(
    broker: Broker, vhost: str, tmp_path: Path
) -> None:
    user = f"rotated-{vhost}"
    path = f"users/{user}"
    permissions = {"configure": ".*", "write": ".*", "read": ".*"}
    for name, value in (
        ("host", "127.0.0.1"),
        ("port", str(broker.amqp_port)),
        ("username", user),
        ("password", "first"),
    ):
        (tmp_path / name).write_text(value)
    broker.api("PUT", path, {"password": "first", "tags": "administrator"})
    broker.api("PUT", f"permissions/{vhost}/{user}", permissions)
    client = RabbitMQBroker(lambda: Credentials.from_folder(tmp_path), vhost=vhost)
    try:
        await asyncio.wait_for(client.open(), 30)
        queue = await declare(client)
        hands = Hands()
        subscription = client.subscribe(queue, hands, prefetch=10)
        await enqueue(client, queue, job())
        await hands.hold(1)
        broker.api("PUT", path, {"password": "second", "tags": "administrator"})
        (tmp_path / "password").write_text("second")
        await enqueue(client, queue, job())
        await hands.hold(2)
        await ended_connections(broker, vhost)
        await eventually(lambda: hands.losses == 1, "the connection is gone")
        await hands.hold(2)
        subscription.ack(hands.take())
        await enqueue_when_possible(client, queue)
        await hands.hold(1)
    finally:
        await client.close()
        broker.api("DELETE", path)


def test_credentials_show_no_secret_and_say_what_is_missing(tmp_path: Path) -> None:
    found = Credentials.from_url("amqps://me:hunter2@rabbit.example/vhost")
    assert "hunter2" not in repr(found)
    assert (found.port, found.tls) == (5671, True)
    with pytest.raises(ValueError, match="begins with amqp"):
        Credentials.from_url("http://me:hunter2@rabbit.example")
    with pytest.raises(ValueError, match="neither connection_string"):
        Credentials.from_folder(tmp_path)


async def test_without_a_management_address_a_queue_still_has_all_its_stages(
    broker: Broker, vhost: str
) -> None:
    credentials = Credentials.from_url(broker.amqp_url(vhost))
    client = RabbitMQBroker(lambda: credentials, vhost=vhost)
    await client.open()
    queue = await declare(client)
    listed = broker.api("GET", f"queues/{quote(vhost, safe='')}").json()
    found = {each["name"]: each["arguments"] for each in listed}
    assert found[NAMES.main]["x-dead-letter-exchange"] == NAMES.dead_letters
    assert found[NAMES.level(0)]["x-message-ttl"] == 250
    hands = Hands()
    client.subscribe(queue, hands, prefetch=1)
    assert await publish(client, Main(queue, job(), 250)) == [Verdict.CONFIRMED]
    await hands.hold(1)
    await client.close()


def over_letters(node: Broker, vhost: str, window: int = 100) -> AbstractAsyncContextManager[Walk]:
    """Walk over the dead letters as a redrive does."""
    credentials = Credentials.from_url(node.amqp_url(vhost))
    return walking(
        lambda: credentials, vhost, NAMES.dead_letters, "orders", window=window, steady=True
    )


async def test_a_walk_whose_letters_do_not_come_is_no_short_walk(
    client: RabbitMQBroker, broker: Broker, vhost: str
) -> None:
    queue = await declare(client)
    await bury_at_once(client, queue, 10)
    async with over_letters(broker, vhost, window=2) as walk:
        letters = walk.letters()
        first = await anext(letters)
        for tag in tuple(walk._channel.consumers):  # as a broker does to a consumer that is slow
            await walk._channel.basic_cancel(tag)
        await walk.remove(first)
        await anext(letters)
        with pytest.raises(ConnectionError, match="no more dead letters of orders"):
            await anext(letters)


async def test_a_letter_whose_removal_was_forgotten_is_not_sent_by_another_redrive(
    client: RabbitMQBroker, broker: Broker, vhost: str
) -> None:
    queue = await declare(client)
    sent = await bury_at_once(client, queue, 5)
    credentials = Credentials.from_url(broker.amqp_url(vhost))
    async with in_transit(lambda: credentials, vhost, queue, "killed", 10) as transit:
        async with over_letters(broker, vhost) as walk:
            letters = [letter async for letter in walk.letters()]
            await transit.put([(each.key, redriven(each.record.job, "killed")) for each in letters])
        await transit.count()
        transit.let_go(transit.waiting)
    assert await redrive(client.dead_letters(queue), name="another") == 0
    assert await client.dead_letters(queue).browse(None, 1) == ([], None)
    hands = Hands()
    subscription = client.subscribe(queue, hands, prefetch=100)
    await hands.hold(5)
    assert sorted(hands.ids) == sorted(sent)
    await subscription.close()
