"""A queue that is worked off here: the worker that its type needs, and the app beside it."""

import asyncio
from typing import TypeAlias

from namedqueue.api.namedqueue import NamedQueue
from namedqueue.api.workers import Worker
from namedqueue_sidecar.app.batching import BatchingApp
from namedqueue_sidecar.app.http import HttpApp
from namedqueue_sidecar.app.port import App
from namedqueue_sidecar.consuming.durable import DurableWorker
from namedqueue_sidecar.consuming.ephemeral import EphemeralWorker
from namedqueue_sidecar.consuming.interims import Interims
from namedqueue_sidecar.consuming.ordered import OrderedWorker
from namedqueue_sidecar.consuming.streaming import StreamWorker
from namedqueue_sidecar.consuming.tally import Tally
from namedqueue_sidecar.consuming.workplace import Workplace
from namedqueue_sidecar.store.port import Store

QueueWorker: TypeAlias = DurableWorker | OrderedWorker | EphemeralWorker | StreamWorker


def unsupported(queue: NamedQueue, store: Store | None) -> str | None:
    """Say why this data plane cannot work off such a queue; None if it can.

    Jobs of such a queue wait, for running them without what the manifest asks for would break its
    promise.
    """
    if queue.spec.idempotency is None or store is not None:
        return None
    return "spec.idempotency needs a store; give one to the operator, or the sidecar, with --store"


def app_of(worker: Worker) -> App:
    """Return the app beside us as a manifest describes it."""
    app = HttpApp(worker.port, worker.health_path)
    return app if worker.batch is None else BatchingApp(app, worker.batch, worker.concurrency)


class Worked:
    """A worker at its place, from its start until both it and its app are let go."""

    def __init__(self, workplace: Workplace, interims: Interims | None) -> None:
        """Work off a queue; an ephemeral one has `interims`."""
        self.worker = _worker(workplace, interims)
        self._app = workplace.app
        self._fixed = _fixed(workplace.queue)
        self._stopping: asyncio.Task[None] | None = None

    def can_follow(self, queue: NamedQueue) -> bool:
        """Tell whether the worker can go on with another manifest; else another one has to."""
        return self._fixed == _fixed(queue)

    @property
    def tallies(self) -> list[Tally]:
        """What happened here, of a stream for each group."""
        if isinstance(self.worker, StreamWorker):
            return [group.tally for group in self.worker.groups.values()]
        return [self.worker.tally]

    @property
    def troubles(self) -> list[str]:
        """Say what waits for a person."""
        return self.worker.troubles if isinstance(self.worker, StreamWorker) else []

    async def stop(self, patience: float) -> None:
        """Drain the worker; whoever asks while that goes on waits for the same end."""
        if self._stopping is None:
            self._stopping = asyncio.create_task(self._stop(patience))
        await asyncio.shield(self._stopping)

    async def _stop(self, patience: float) -> None:
        await self.worker.drain(patience)
        await self._app.close()


def _worker(workplace: Workplace, interims: Interims | None) -> QueueWorker:
    spec = workplace.queue.spec
    if spec.type == "stream":
        return StreamWorker(workplace)
    if interims is not None:
        return EphemeralWorker(workplace, interims)
    if spec.durable_or_default.fifo is not None:
        return OrderedWorker(workplace)
    return DurableWorker(workplace)


def _fixed(queue: NamedQueue) -> tuple[object, ...]:
    """Return what a running worker cannot follow a change of."""
    worker, fifo = queue.spec.worker, queue.spec.durable_or_default.fifo
    if worker is None:
        return ()
    batches = worker.batch and (worker.batch, worker.concurrency)
    guarded = queue.spec.idempotency is not None
    return worker.port, worker.health_path, fifo, batches, guarded
