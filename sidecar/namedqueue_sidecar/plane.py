"""The data plane as a whole: its broker, its queues, and a worker for each queue it works off.

`apply` makes it what a set of manifests says, as often as they change. A queue that stays keeps
its connection and its jobs in flight; only what differs is touched.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from namedqueue.api.namedqueue import Fifo, NamedQueue
from namedqueue.api.workers import Worker
from namedqueue_sidecar.app.http import HttpApp
from namedqueue_sidecar.brokers.port import Broker, QueueKey
from namedqueue_sidecar.consuming.attempts import InFlight
from namedqueue_sidecar.consuming.copies import Memory
from namedqueue_sidecar.consuming.durable import DurableWorker
from namedqueue_sidecar.consuming.leasing import Leases
from namedqueue_sidecar.consuming.ordered import OrderedWorker
from namedqueue_sidecar.consuming.validation import validator
from namedqueue_sidecar.intake.jobs import Intake
from namedqueue_sidecar.intake.sending import Sending

_log = logging.getLogger(__name__)

QueueWorker: TypeAlias = DurableWorker | OrderedWorker


def unsupported(queue: NamedQueue) -> str | None:
    """Say why this data plane cannot work off such a queue; None if it can.

    Jobs of such a queue wait, for running them without what the manifest asks for would break its
    promise.
    """
    spec = queue.spec
    if spec.type != "durable":
        return f"spec.type {spec.type}: only durable queues can be worked off so far"
    if spec.idempotency is not None:
        return "spec.idempotency needs a store, which there is none of yet"
    if spec.worker is not None and spec.worker.batch is not None:
        return "spec.worker.batch: jobs can only be handed over one by one so far"
    return None


class _Worked:
    """A queue that this plane works off: its worker and the app it calls."""

    def __init__(
        self, queue: NamedQueue, spec: Worker, broker: Broker, share: float, memory: Memory
    ) -> None:
        self.app = HttpApp(spec.port, spec.health_path)
        self.identity = _identity(queue, spec)
        kind = DurableWorker if queue.spec.durable_or_default.fifo is None else OrderedWorker
        self.worker: QueueWorker = kind(queue, broker, self.app, share=share, memory=memory)
        self._stopping: asyncio.Task[None] | None = None

    async def stop(self, patience: float) -> None:
        """Drain the worker; whoever asks while that goes on waits for the same end."""
        if self._stopping is None:
            self._stopping = asyncio.create_task(self._stop(patience))
        await asyncio.shield(self._stopping)

    async def _stop(self, patience: float) -> None:
        await self.worker.drain(patience)
        await self.app.close()


def _identity(queue: NamedQueue, spec: Worker) -> tuple[int, str | None, Fifo | None]:
    """Return what a running worker cannot follow a change of."""
    return spec.port, spec.health_path, queue.spec.durable_or_default.fifo


@dataclass
class Plane:
    """What is served, and what is worked off."""

    broker: Broker
    namespace: str
    share: float = 1.0
    grace: float = 25.0
    """Seconds that a drain by the API may take."""

    now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000
    queues: dict[QueueKey, NamedQueue] = field(default_factory=dict)
    draining: bool = False

    def __post_init__(self) -> None:
        self.sending = Sending(self.broker)
        self.drained = asyncio.Event()
        self._intakes: dict[QueueKey, Intake] = {}
        self._refused: dict[QueueKey, str] = {}
        self._worked: dict[QueueKey, _Worked] = {}
        self._leases: dict[QueueKey, Leases] = {}
        self._memories: dict[QueueKey, Memory] = {}

    async def apply(self, queues: Iterable[NamedQueue], *, declare: bool, work: bool) -> None:
        """Serve exactly these queues; declare them on the broker and work them off if asked to."""
        wanted = {QueueKey(q.metadata.namespace, q.metadata.name): q for q in queues}
        for key in self.queues.keys() - wanted.keys():
            await asyncio.gather(self._stop_working(key, 30), self._stop_leasing(key, 30))
            self._leases.pop(key, None)
            self._memories.pop(key, None)
            self._refused.pop(key, None)
            del self.queues[key], self._intakes[key]
        for key, queue in wanted.items():
            if self.queues.get(key) == queue:
                continue
            intake = Intake(queue, validator(queue.spec.payload_schema))
            if declare:
                await self.broker.declare(queue)
            self.queues[key], self._intakes[key] = queue, intake
            if key in self._leases:
                self._leases[key].update(queue)
            await self._work_off(key, queue, wanted=work)

    def intake(self, key: QueueKey) -> Intake | None:
        """Return what makes jobs for a queue; None for an unknown one."""
        return self._intakes.get(key)

    @property
    def workers(self) -> Mapping[QueueKey, QueueWorker]:
        return {key: worked.worker for key, worked in self._worked.items()}

    @property
    def leases(self) -> Mapping[QueueKey, Leases]:
        """The leases of each queue that anybody has pulled from."""
        return self._leases

    def leasing(self, key: QueueKey) -> Leases:
        """Return what leases a queue's jobs; made when it is first asked for."""
        if key not in self._leases:
            queue, memory = self.queues[key], self._memory(key)
            self._leases[key] = Leases(queue, self.broker, memory=memory, now_ms=self.now_ms)
        return self._leases[key]

    def in_flight(self, key: QueueKey) -> list[InFlight]:
        """Return the attempts under way on a queue here, pushed and pulled, oldest first."""
        worked, leases = self._worked.get(key), self._leases.get(key)
        pushed = worked.worker.flights if worked is not None else []
        pulled = leases.flights if leases is not None else []
        return sorted([*pushed, *pulled], key=lambda flight: flight.since)

    async def drain(self, patience: float) -> None:
        """Finish what is in flight, hand back the rest, and say so; a second call only waits."""
        if self.draining:
            await self.drained.wait()
            return
        self.draining = True
        await asyncio.gather(
            *(self._stop_working(key, patience) for key in tuple(self._worked)),
            *(self._stop_leasing(key, patience) for key in tuple(self._leases)),
        )
        self.drained.set()

    async def close(self) -> None:
        """Drain at once and let go of the broker."""
        await self.drain(patience=0)
        await self.broker.close()

    def missing(self) -> list[str]:
        """Say what stands between this plane and its work, a sentence each; nothing if ready."""
        reason = self.broker.unavailable
        waiting = [
            f"the app of {key} does not answer yet"
            for key, worked in self._worked.items()
            if not worked.worker.app_is_there
        ]
        refused = [f"{key} is not worked off: {why}" for key, why in self._refused.items()]
        stopping = ["draining"] if self.draining else []
        return [*([f"broker: {reason}"] if reason else []), *refused, *waiting, *stopping]

    async def _work_off(self, key: QueueKey, queue: NamedQueue, *, wanted: bool) -> None:
        spec = queue.spec.worker
        running = self._worked.get(key)
        why = unsupported(queue)
        if spec is None or not wanted or why is not None:
            await self._stop_working(key, patience=30)
            self._refuse(key, why if wanted else None)
            return
        self._refuse(key, None)
        if running is not None and running.identity == _identity(queue, spec):
            running.worker.update(queue, self.share)
            return
        await self._stop_working(key, patience=30)
        if not self.draining:
            self._worked[key] = _Worked(queue, spec, self.broker, self.share, self._memory(key))
            self._worked[key].worker.start()
            _log.info("working off %s", key, extra={"action": "work", "queue": str(key)})

    def _refuse(self, key: QueueKey, why: str | None) -> None:
        self._refused.pop(key, None)
        if why is not None:
            self._refused[key] = why
            _log.error("%s is not worked off: %s", key, why, extra={"action": "work"})

    async def _stop_working(self, key: QueueKey, patience: float) -> None:
        worked = self._worked.get(key)
        if worked is not None:
            await worked.stop(patience)
            self._worked.pop(key, None)

    async def _stop_leasing(self, key: QueueKey, patience: float) -> None:
        leases = self._leases.get(key)
        if leases is not None:
            await leases.drain(patience)

    def _memory(self, key: QueueKey) -> Memory:
        return self._memories.setdefault(key, Memory())
