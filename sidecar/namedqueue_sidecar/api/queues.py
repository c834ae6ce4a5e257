"""The queues and how full they are."""

from typing import Any

from namedqueue_sidecar.api.exchange import Request, Response, reply
from namedqueue_sidecar.api.messages import queue_key
from namedqueue_sidecar.brokers.port import QueueKey
from namedqueue_sidecar.plane import Plane


async def list_queues(plane: Plane, request: Request) -> Response:
    """Return the namespace's queues by name."""
    keys = sorted(key for key in plane.queues if key.namespace == request.namespace)
    return reply({"items": [await _shown(plane, key) for key in keys], "next": None})


async def show_queue(plane: Plane, request: Request) -> Response:
    """Return one queue."""
    return reply(await _shown(plane, queue_key(plane, request)))


async def _shown(plane: Plane, key: QueueKey) -> dict[str, Any]:
    spec = plane.queues[key].spec
    depth = await plane.broker.depth(key)
    worker = plane.workers.get(key)
    return {
        "name": key.name,
        "namespace": key.namespace,
        "type": spec.type,
        "depth": None
        if depth is None
        else {
            "ready": depth.ready,
            "inFlight": depth.in_flight,
            "waiting": depth.waiting,
            "dead": depth.dead,
        },
        "subscriptions": [subscription.topic for subscription in spec.subscriptions],
        "worker": None
        if worker is None
        else {"inFlight": worker.in_flight, "appIsThere": worker.app_is_there},
    }
