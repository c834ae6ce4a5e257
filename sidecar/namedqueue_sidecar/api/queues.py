"""The queues and how full they are."""

import asyncio
from typing import Any, Final

from namedqueue_sidecar.api.exchange import Request, Response, reply
from namedqueue_sidecar.api.messages import queue_key
from namedqueue_sidecar.api.streams import halt_document
from namedqueue_sidecar.brokers.port import QueueKey
from namedqueue_sidecar.consuming.streaming import StreamWorker
from namedqueue_sidecar.consuming.working import QueueWorker
from namedqueue_sidecar.plane import Plane

PATIENCE: Final = 10.0
"""Seconds in which the broker has to say how full the queues are."""


async def list_queues(plane: Plane, request: Request) -> Response:
    """Return the namespace's queues by name."""
    keys = sorted(key for key in plane.queues if key.namespace == request.namespace)
    async with asyncio.timeout(PATIENCE):
        items = await asyncio.gather(*(_shown(plane, key) for key in keys))
    return reply({"items": items, "next": None})


async def show_queue(plane: Plane, request: Request) -> Response:
    """Return one queue."""
    key = queue_key(plane, request)
    async with asyncio.timeout(PATIENCE):
        return reply(await _shown(plane, key))


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
        "rates": {"enqueued": plane.enqueued(key), "processed": plane.processed(key)},
        "consumers": await plane.broker.consumers(key),
        "subscriptions": [subscription.topic for subscription in spec.subscriptions],
        "worker": None if worker is None else _worker(worker),
    }


def _worker(worker: QueueWorker) -> dict[str, Any]:
    shown = {"inFlight": len(worker.flights), "appIsThere": worker.gate.is_open}
    if not isinstance(worker, StreamWorker):
        return shown
    halted = {name: halt_document(each.halt) for name, each in worker.groups.items() if each.halt}
    return {**shown, "halted": halted}
