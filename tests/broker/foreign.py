"""Publishers that know nothing of us: plain AMQP 0-9-1, AMQP 1.0 and MQTT, each by its own client.

Each sends one payload to a topic and returns when the broker has it.
"""

from collections.abc import Callable
from typing import TypeAlias
from urllib.parse import quote

import pika
from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion
from proton import Message
from proton.utils import BlockingConnection

from namedqueue.topics import routing_key
from testbed.rabbitmq import Broker

Publish: TypeAlias = Callable[[Broker, str, str, bytes], None]
"""Takes a node, a vhost, a topic and a payload."""

TOPICS = "nq.topics"
_SECONDS = 60


def by_pika(node: Broker, vhost: str, topic: str, payload: bytes) -> None:
    """Publish as a script with pika would: no properties at all."""
    with pika.BlockingConnection(pika.URLParameters(node.amqp_url(vhost))) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.basic_publish(TOPICS, routing_key(topic), payload, mandatory=True)


def by_amqp_1_0(node: Broker, vhost: str, topic: str, payload: bytes) -> None:
    """Publish over AMQP 1.0; the broker's addresses changed with 4.0."""
    kind = "exchange" if node.version.startswith("3.") else "exchanges"
    connection = BlockingConnection(
        f"amqp://127.0.0.1:{node.amqp_port}",
        timeout=_SECONDS,
        user=node.username,
        password=node.password,
        virtual_host=f"vhost:{vhost}",
        allowed_mechs="PLAIN",
        sasl_enabled=True,
    )
    try:
        sender = connection.create_sender(f"/{kind}/{TOPICS}/{quote(routing_key(topic), safe='')}")
        sender.send(Message(body=payload, inferred=True, durable=True))
    finally:
        connection.close()


def by_mqtt(node: Broker, vhost: str, topic: str, payload: bytes) -> None:
    """Publish over MQTT with QoS 1, so that it is acknowledged."""
    client = Client(CallbackAPIVersion.VERSION2)
    client.username_pw_set(f"{vhost}:{node.username}", node.password)
    client.connect("127.0.0.1", node.mqtt_port)
    client.loop_start()
    try:
        sent = client.publish(topic, payload, qos=1)
        sent.wait_for_publish(_SECONDS)
        assert sent.is_published(), f"MQTT did not acknowledge within {_SECONDS} s"
    finally:
        client.disconnect()
        client.loop_stop()
