"""A broker of one's own can be killed, frozen and starved, and comes back."""

import asyncio
import socket
from contextlib import closing

import aio_pika
import pytest
from aio_pika import DeliveryMode, Message

from testbed.processes import wait_until
from testbed.rabbitmq import Broker

DEADLINE = 60.0


async def test_a_killed_broker_returns_with_its_messages_on_the_same_ports(
    private_broker: Broker,
) -> None:
    url = private_broker.amqp_url()
    async with asyncio.timeout(DEADLINE), await aio_pika.connect(url) as connection:
        channel = await connection.channel(publisher_confirms=True)
        await channel.declare_queue("kept", durable=True, arguments={"x-queue-type": "quorum"})
        message = Message(b"still here", delivery_mode=DeliveryMode.PERSISTENT)
        await channel.default_exchange.publish(message, routing_key="kept")

    private_broker.settle()
    private_broker.kill()
    assert not private_broker.running
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", private_broker.amqp_port))
    private_broker.start()

    async with asyncio.timeout(DEADLINE), await aio_pika.connect(url) as connection:
        channel = await connection.channel()
        queue = await channel.get_queue("kept")
        kept = await queue.get(timeout=DEADLINE)
        await kept.ack()
    assert kept.body == b"still here"


async def test_a_frozen_broker_answers_again_and_an_alarm_blocks_publishers_only_while_it_lasts(
    private_broker: Broker,
) -> None:
    private_broker.pause()
    with closing(socket.create_connection(("127.0.0.1", private_broker.amqp_port))) as sock:
        sock.sendall(b"AMQP\x00\x00\x09\x01")
        sock.settimeout(1.0)
        with pytest.raises(TimeoutError):
            sock.recv(1)
        private_broker.resume()
        sock.settimeout(DEADLINE)
        assert sock.recv(1)

    async with asyncio.timeout(DEADLINE), await aio_pika.connect(private_broker.amqp_url()) as link:
        channel = await link.channel(publisher_confirms=True)
        await channel.declare_queue("blocked", durable=True)
        await asyncio.to_thread(private_broker.memory_alarm, on=True)
        held = False
        while not held:
            publish = channel.default_exchange.publish(Message(b""), routing_key="blocked")
            waiting = asyncio.create_task(publish)
            held = not (await asyncio.wait([waiting], timeout=1.0))[0]
        await asyncio.to_thread(private_broker.memory_alarm, on=False)
        await waiting


def test_a_broker_stopped_in_good_order_starts_again(private_broker: Broker) -> None:
    private_broker.create_vhost("remembered")
    private_broker.stop()
    assert not private_broker.running
    private_broker.start()
    vhosts = {vhost["name"] for vhost in private_broker.api("GET", "vhosts").json()}
    assert vhosts == {"/", "remembered"}
    wait_until(lambda: "nq@localhost" in private_broker.ctl("status"), what="rabbitmqctl answers")
