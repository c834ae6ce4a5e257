"""What readiness says of a connection by which jobs come, while jobs can still be sent."""

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from urllib.parse import quote

import pytest

from broker.port.play import answer
from fixtures.planes import Stage, stage
from namedqueue_sidecar.brokers.rabbitmq.broker import RabbitMQBroker
from namedqueue_sidecar.brokers.rabbitmq.credentials import Credentials
from testbed.rabbitmq import Broker


@dataclass
class Keys:
    """Credentials that can be taken away and given back."""

    right: Credentials
    wrong: Credentials
    taken: bool = False

    def __call__(self) -> Credentials:
        return self.wrong if self.taken else self.right


@pytest.fixture
def keys(broker: Broker, vhost: str) -> Keys:
    right = Credentials.from_url(broker.amqp_url(vhost))
    wrong = Credentials.from_url(f"amqp://nobody:nothing@{right.host}:{right.port}/")
    return Keys(right, wrong)


@pytest.fixture
async def scene(keys: Keys, broker: Broker, vhost: str) -> AsyncIterator[Stage]:
    """Work a queue off with an app that is there."""
    client = RabbitMQBroker(keys, vhost=vhost, management_url=broker.management_url)
    await client.open()
    async with stage(broker=client) as running:
        await running.apply(running.queue())
        await answer(running.ready, lambda said: said == [])
        yield running


async def end_consuming(node: Broker, vhost: str) -> None:
    """End the connection by which jobs come; the broker takes seconds to list it."""

    def end() -> bool:
        listed = node.api("GET", "connections").json()
        ours = [
            each["name"]
            for each in listed
            if each["vhost"] == vhost and each["user_provided_name"].endswith("consuming")
        ]
        for name in ours:
            node._request("DELETE", f"connections/{quote(name, safe='')}")
        return bool(ours)

    await answer(lambda: asyncio.to_thread(end), bool)


async def test_a_short_reconnect_is_not_worth_a_word(
    scene: Stage, broker: Broker, vhost: str
) -> None:
    await end_consuming(broker, vhost)
    until = time.monotonic() + 4
    while time.monotonic() < until:
        assert await scene.ready() == []
        await asyncio.sleep(0.05)
    assert (await scene.api.post("/v1/queues/orders/messages", b"{}")).status == 202
    await scene.app.jobs(1)


async def test_a_connection_that_stays_away_is_named_although_jobs_can_still_be_sent(
    scene: Stage, broker: Broker, vhost: str, keys: Keys
) -> None:
    keys.taken = True
    await end_consuming(broker, vhost)
    refused = f"broker: the broker at {keys.right.place} refuses our user name or password"
    await answer(scene.ready, lambda said: said == [refused])
    assert (await scene.api.post("/v1/queues/orders/messages", b"{}")).status == 202
    keys.taken = False
    assert await answer(scene.ready, lambda said: said == []) == []
    await scene.app.jobs(1)
