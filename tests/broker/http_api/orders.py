"""Queue `orders`, which these tests speak to: its paths, and how full it is."""

from broker.port.play import NAMESPACE
from fixtures.planes import Stage
from namedqueue_sidecar.brokers.port import Depth, QueueKey

ORDERS = "/v1/queues/orders"
MESSAGES = f"{ORDERS}/messages"
BATCH = f"{MESSAGES}:batch"
LETTERS = f"{ORDERS}/dead-letters"
KEY = QueueKey(NAMESPACE, "orders")


async def depth(scene: Stage) -> Depth:
    found = await scene.plane.broker.depth(KEY)
    assert found is not None
    return found
