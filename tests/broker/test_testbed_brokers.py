"""The broker of each version can do all that NamedQueue's topology asks of it."""

import asyncio
import socket
import ssl
import struct
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path
from typing import Any

import aio_pika
import pytest
from aio_pika import DeliveryMode, ExchangeType, Message
from aio_pika.abc import AbstractChannel, AbstractIncomingMessage, AbstractQueue
from aio_pika.exceptions import ProbableAuthenticationError, PublishError

from testbed.rabbitmq import VERSIONS, Broker

pytestmark = pytest.mark.parametrize(
    "broker_version", VERSIONS, indirect=True, ids=lambda version: f"rabbitmq-{version}"
)
DEADLINE = 60.0
QUORUM = {"x-queue-type": "quorum"}


@asynccontextmanager
async def open_channel(url: str, **options: Any) -> AsyncIterator[AbstractChannel]:
    async with asyncio.timeout(DEADLINE), await aio_pika.connect(url, **options) as connection:
        yield await connection.channel(publisher_confirms=True, on_return_raises=True)


async def take(
    queue: AbstractQueue, count: int, arguments: dict[str, Any] | None = None
) -> list[AbstractIncomingMessage]:
    """Consume and acknowledge `count` messages."""
    arrived: asyncio.Queue[AbstractIncomingMessage] = asyncio.Queue()
    tag = await queue.consume(arrived.put, arguments=arguments)
    messages = [await arrived.get() for _ in range(count)]
    for message in messages:
        await message.ack()
    await queue.cancel(tag)
    return messages


def durable(body: bytes, **headers: str) -> Message:
    return Message(body, headers=dict(headers), delivery_mode=DeliveryMode.PERSISTENT)


async def declare_ladder(channel: AbstractChannel) -> AbstractQueue:
    """Declare a main stage and a ladder of two levels, 250 and 500 ms, and return main's queue."""
    below = await channel.declare_exchange("main", ExchangeType.FANOUT, durable=True)
    main = await channel.declare_queue("main", durable=True, arguments=dict(QUORUM))
    await main.bind(below)
    for level, (held, passed) in enumerate((("1.*", "0.*"), ("*.1", "*.0"))):
        arguments = QUORUM | {
            "x-message-ttl": 250 * 2**level,
            "x-dead-letter-exchange": below.name,
            "x-dead-letter-strategy": "at-least-once",
            "x-overflow": "reject-publish",
        }
        exchange = await channel.declare_exchange(
            f"delay.{level}", ExchangeType.TOPIC, durable=True
        )
        queue = await channel.declare_queue(f"delay.{level}", durable=True, arguments=arguments)
        await queue.bind(exchange, held)
        await below.bind(exchange, passed)
        below = exchange
    return main


async def test_a_message_comes_back_from_two_ladder_levels_after_the_sum_of_their_delays(
    rabbitmq_url: str,
) -> None:
    async with open_channel(rabbitmq_url) as channel:
        main = await declare_ladder(channel)
        highest = await channel.get_exchange("delay.1")
        sent = time.monotonic()
        await highest.publish(durable(b"750 ms"), routing_key="1.1")
        [message] = await take(main, 1)
        waited = time.monotonic() - sent

    assert message.body == b"750 ms"
    assert waited >= 0.74
    deaths = message.headers["x-death"]
    assert isinstance(deaths, list)
    assert {death["queue"] for death in deaths if isinstance(death, dict)} == {"delay.0", "delay.1"}


async def test_a_message_whose_bits_are_zero_passes_the_ladder_at_once(rabbitmq_url: str) -> None:
    async with open_channel(rabbitmq_url) as channel:
        main = await declare_ladder(channel)
        highest = await channel.get_exchange("delay.1")
        await highest.publish(durable(b"now"), routing_key="0.0")
        [message] = await take(main, 1)

    assert "x-death" not in message.headers


async def test_the_consistent_hash_exchange_keeps_a_group_in_one_queue(rabbitmq_url: str) -> None:
    groups = [f"group-{number}" for number in range(40)]
    async with open_channel(rabbitmq_url) as channel:
        exchange = await channel.declare_exchange(
            "partitions", "x-consistent-hash", durable=True, arguments={"hash-header": "nq-group"}
        )
        queues = []
        for number in range(2):
            queue = await channel.declare_queue(f"p{number}", durable=True, arguments=dict(QUORUM))
            await queue.bind(exchange, "1")
            queues.append(queue)
        for group in groups * 2:
            await exchange.publish(durable(b"", **{"nq-group": group}), routing_key="")
        seen = [Counter[object]() for _ in queues]
        for queue, counts in zip(queues, seen, strict=True):
            state = await channel.declare_queue(queue.name, passive=True)
            for message in await take(queue, state.declaration_result.message_count or 0):
                counts[message.headers["nq-group"]] += 1

    assert all(counts for counts in seen)
    assert seen[0] + seen[1] == Counter(dict.fromkeys(groups, 2))
    assert not set(seen[0]) & set(seen[1])


async def test_a_stream_is_read_twice_from_its_beginning(rabbitmq_url: str) -> None:
    async with open_channel(rabbitmq_url) as channel:
        await channel.set_qos(prefetch_count=10)
        stream = await channel.declare_queue(
            "events", durable=True, arguments={"x-queue-type": "stream"}
        )
        for number in range(5):
            await channel.default_exchange.publish(durable(b"%d" % number), routing_key="events")
        from_the_first = {"x-stream-offset": "first"}
        readings = [await take(stream, 5, from_the_first) for _ in range(2)]

    for reading in readings:
        assert [message.body for message in reading] == [b"0", b"1", b"2", b"3", b"4"]


async def test_an_unroutable_mandatory_publish_is_returned(rabbitmq_url: str) -> None:
    async with open_channel(rabbitmq_url) as channel:
        with pytest.raises(PublishError):
            await channel.default_exchange.publish(durable(b""), routing_key="nobody")


async def test_guest_is_refused(broker: Broker) -> None:
    url = f"amqp://guest:guest@127.0.0.1:{broker.amqp_port}/"
    with pytest.raises(ProbableAuthenticationError):
        await aio_pika.connect(url, timeout=DEADLINE)
    users = {user["name"] for user in broker.api("GET", "users").json()}
    assert broker.username in users
    assert "guest" not in users


async def test_tls_works_for_a_client_that_trusts_the_authority(broker: Broker, vhost: str) -> None:
    trusting = ssl.create_default_context(cafile=broker.ca_file)
    async with open_channel(broker.amqps_url(vhost), ssl_context=trusting) as channel:
        queue = await channel.declare_queue("secret", durable=True)
        await channel.default_exchange.publish(durable(b"sealed"), routing_key="secret")
        [message] = await take(queue, 1)

    assert message.body == b"sealed"


def test_tls_fails_for_a_client_that_does_not_trust_the_authority(broker: Broker) -> None:
    trusting_others = ssl.create_default_context()
    with (
        closing(connect(broker.amqps_port)) as plain,
        pytest.raises(ssl.SSLCertVerificationError),
        trusting_others.wrap_socket(plain, server_hostname="localhost"),
    ):
        pass


def test_the_mqtt_port_lets_the_user_in(broker: Broker, vhost: str) -> None:
    def field(text: str) -> bytes:
        return struct.pack(">H", len(text)) + text.encode()

    login_flags, keep_alive = 0xC2, 60
    body = field("MQTT") + bytes([4, login_flags]) + struct.pack(">H", keep_alive)
    body += field("smoke") + field(f"{vhost}:{broker.username}") + field(broker.password)
    with closing(connect(broker.mqtt_port)) as sock:
        sock.sendall(bytes([0x10, len(body)]) + body)
        assert receive(sock, 4) == bytes([0x20, 2, 0, 0]), "CONNACK, session not present, accepted"
        sock.sendall(bytes([0xE0, 0]))


def test_the_amqp_port_speaks_amqp_1_0_too(broker: Broker) -> None:
    sasl_header = b"AMQP\x03\x01\x00\x00"
    with closing(connect(broker.amqp_port)) as sock:
        sock.sendall(sasl_header)
        assert receive(sock, 8) == sasl_header


def test_the_stream_port_speaks_the_stream_protocol(broker: Broker) -> None:
    peer_properties, protocol_version, correlation, no_properties = 17, 1, 1, 0
    request = struct.pack(">HHII", peer_properties, protocol_version, correlation, no_properties)
    with closing(connect(broker.stream_port)) as sock:
        sock.sendall(struct.pack(">I", len(request)) + request)
        _, key, _, answered, code = struct.unpack(">IHHIH", receive(sock, 14))

    assert (key, answered, code) == (0x8000 | peer_properties, correlation, 1)


def test_passwords_are_in_no_command_line_and_no_log(broker: Broker) -> None:
    broker.ctl("list_users")
    command_lines = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if str(broker.state) in (entry / "mountinfo").read_text():  # the node's, no client's
                command_lines.append((entry / "cmdline").read_bytes())
    assert command_lines
    assert not any(broker.password.encode() in line for line in command_lines)
    assert broker.password not in broker.log_file.read_text()
    assert broker.password not in repr(broker)


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=DEADLINE)


def receive(sock: socket.socket, size: int) -> bytes:
    """Read exactly `size` bytes, or what came before the other side closed."""
    data = b""
    while len(data) < size:
        part = sock.recv(size - len(data))
        if not part:
            break
        data += part
    return data
