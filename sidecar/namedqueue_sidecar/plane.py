"""The data plane as a whole: its broker, its queues, and a worker for each queue it works off.

`apply` makes it what a set of manifests says, as often as they change. A queue that stays keeps
its connection and its jobs in flight; only what differs is touched.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from types import MappingProxyType

from namedqueue.api.namedqueue import Ephemeral, NamedQueue
from namedqueue_sidecar.brokers.port import Broker, Main, QueueKey, Verdict
from namedqueue_sidecar.consuming.attempts import InFlight
from namedqueue_sidecar.consuming.copies import Memory
from namedqueue_sidecar.consuming.guarding import Guards
from namedqueue_sidecar.consuming.interims import Interims
from namedqueue_sidecar.consuming.leasing import Leases
from namedqueue_sidecar.consuming.readers import Readers
from namedqueue_sidecar.consuming.validation import validator
from namedqueue_sidecar.consuming.working import QueueWorker, Worked, app_of, unsupported
from namedqueue_sidecar.consuming.workplace import Workplace
from namedqueue_sidecar.impromptu import PATIENCE, Impromptu
from namedqueue_sidecar.intake.jobs import Intake
from namedqueue_sidecar.intake.problems import unavailable
from namedqueue_sidecar.intake.sending import Sending
from namedqueue_sidecar.rates import Rate
from namedqueue_sidecar.redriving.redrives import Redrives
from namedqueue_sidecar.store.port import Store
from namedqueue_sidecar.triaging.records import Records

_log = logging.getLogger(__name__)
_LAST_MOMENT = 1.0
_WHOLE: Mapping[QueueKey, float] = MappingProxyType({})


@dataclass
class Plane:
    """What is served, and what is worked off."""

    broker: Broker
    namespace: str
    grace: float = 25.0
    """Seconds that a drain by the API may take."""

    allow_ephemeral: Ephemeral | None = None
    """What a job for an unknown queue makes; None where only queues with a manifest are served."""

    allow_edit: bool = False
    """Whether people may send a dead letter back with another payload."""

    store: Store | None = None
    """Where keys are remembered; without one, queues that need it wait."""

    now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000
    queues: dict[QueueKey, NamedQueue] = field(default_factory=dict)
    draining: bool = False

    def __post_init__(self) -> None:
        self.sending = Sending(self.broker)
        self.redrives = Redrives(self.broker.dead_letters)
        self.records = None if self.store is None else Records(self.broker, self.store, self.queues)
        self._recording = self.records.recording if self.records else self.broker
        self.drained = asyncio.Event()
        self._intakes: dict[QueueKey, Intake] = {}
        self._refused: dict[QueueKey, str] = {}
        self._worked: dict[QueueKey, Worked] = {}
        self._leases: dict[QueueKey, Leases] = {}
        self._memories: dict[QueueKey, Memory] = {}
        self._guards = Guards(self.store)
        self._interims: dict[QueueKey, Interims] = {}
        self._readers: dict[QueueKey, Readers] = {}
        self._shares: dict[QueueKey, float] = {}
        self._sent: dict[QueueKey, Rate] = {}
        self._impromptu = Impromptu(self, self.allow_ephemeral)
        self._declares = False

    async def apply(
        self,
        queues: Iterable[NamedQueue],
        *,
        declare: bool,
        work: bool,
        only_produced: AbstractSet[QueueKey] = frozenset(),
        shares: Mapping[QueueKey, float] = _WHOLE,
    ) -> None:
        """Serve exactly these queues; declare them on the broker and work them off if asked to.

        Those that are `only_produced` take jobs in, for others to work off. `shares` are our parts
        of the queues' rate limits; by default we have the whole.
        """
        wanted = {QueueKey.of(q): q for q in queues}
        self._declares = declare
        if self.records is not None:
            self.records.keep_watch()
        for key in self._impromptu.keys & wanted.keys():
            await self._impromptu.drop(key)
        for key in self.queues.keys() - wanted.keys() - self._impromptu.keys:
            await self._forget(key)
        for key, queue in wanted.items():
            same, share = self.queues.get(key) == queue, shares.get(key, 1.0)
            if same and self._shares.get(key) == share:
                continue
            self._shares[key] = share
            intake = Intake(queue, validator(queue.spec.payload_schema))
            if declare and not same:
                await self.broker.declare(queue)
            if key in self._leases and self._guards.toggled(key, queue.spec.idempotency):
                await self._stop_leasing(key, 30)
                del self._leases[key]
            self.queues[key], self._intakes[key] = queue, intake
            if key in self._leases:
                self._guards.of(key, queue.spec.idempotency)
                self._leases[key].update(queue)
            await self._work_off(key, queue, wanted=work and key not in only_produced)
            if queue.spec.idempotency is None:
                await self._guards.close(key, _LAST_MOMENT)

    async def intake(self, key: QueueKey) -> Intake | None:
        """Return what makes jobs for a queue; None for one that neither exists nor may be made."""
        if key not in self._intakes and not await self._impromptu.make(key):
            return None
        self._impromptu.used(key)
        return self._intakes.get(key)

    async def send(self, key: QueueKey, jobs: Sequence[Main]) -> Sequence[Verdict]:
        """Send jobs to one queue, and return the broker's verdict on each.

        An ephemeral queue that expired comes back with its next job, where we declare queues.
        """
        verdicts = list(await self.sending.send(jobs))
        lost = [index for index, one in enumerate(verdicts) if one is Verdict.UNROUTABLE]
        if lost and await self.restore(key):
            again = await self.sending.send([jobs[index] for index in lost])
            for index, verdict in zip(lost, again, strict=True):
                verdicts[index] = verdict
        self._sent.setdefault(key, Rate()).add(verdicts.count(Verdict.CONFIRMED))
        return verdicts

    def enqueued(self, key: QueueKey) -> float:
        """Return how many jobs a second were sent to a queue through us, lately."""
        return self._sent[key].per_second if key in self._sent else 0.0

    def processed(self, key: QueueKey) -> float:
        """Return how many jobs a second of a queue were finished here, lately."""
        worked, leases = self._worked.get(key), self._leases.get(key)
        tallies = [] if worked is None else worked.tallies
        tallies += [] if leases is None else [leases.tally]
        return sum(tally.rate.per_second for tally in tallies)

    async def restore(self, key: QueueKey) -> bool:
        """Make an ephemeral queue that expired exist again; False where that is not for us."""
        queue = self.queues.get(key)
        declares = self._declares or key in self._impromptu.keys
        if queue is None or queue.spec.type != "ephemeral" or not declares:
            return False
        async with asyncio.timeout(PATIENCE):
            if await self.broker.depth(key) is None:
                await self.broker.declare(queue)
        return True

    @property
    def workers(self) -> Mapping[QueueKey, QueueWorker]:
        return {key: worked.worker for key, worked in self._worked.items()}

    @property
    def leases(self) -> Mapping[QueueKey, Leases]:
        """The leases of each queue that anybody has pulled from."""
        return self._leases

    def leasing(self, key: QueueKey) -> Leases:
        """Return what leases a queue's jobs; made when it is first asked for."""
        self._impromptu.used(key)
        if key not in self._leases:
            self._leases[key] = Leases(
                self.queues[key],
                self._recording,
                memory=self._memory(key),
                interims=self._interim(key),
                guard=self._guards.of(key, self.queues[key].spec.idempotency),
                now_ms=self.now_ms,
            )
        return self._leases[key]

    def readers(self, key: QueueKey) -> Readers:
        """Return what reads a stream for those who ask; made when it is first asked for."""
        if key not in self._readers:
            self._readers[key] = Readers(self.broker.log(key))
        return self._readers[key]

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
        self.redrives.stop()
        await asyncio.gather(*(self._stop(key, patience) for key in tuple(self.queues)))
        self.drained.set()

    async def close(self) -> None:
        """Drain at once and let go of the broker and the store."""
        await self.drain(patience=0)
        await self._impromptu.close()
        if self.records is not None:
            await self.records.close()
        await self.broker.close()
        if self.store is not None:
            await self.store.close()

    async def take_in(self, queue: NamedQueue) -> None:
        """Serve a queue that a caller made, until it is put out again."""
        key = QueueKey.of(queue)
        reason = self.broker.unavailable
        if reason is not None:
            raise unavailable(reason)
        await self.broker.declare(queue)
        self.queues[key], self._intakes[key] = queue, Intake(queue, validator(None))

    async def put_out(self, key: QueueKey) -> None:
        """Serve a queue that a caller made no longer."""
        await self._forget(key)
        await self.broker.undeclare(key)

    def is_busy(self, key: QueueKey) -> bool:
        """Tell whether somebody waits for jobs of a queue here, or has some."""
        leases = self._leases.get(key)
        return key in self._worked or (leases is not None and leases.busy)

    def missing(self) -> list[str]:
        """Say what stands between this plane and its work, a sentence each; nothing if ready."""
        reason = self.broker.unavailable
        waiting = [
            f"the app of {key} does not answer yet"
            for key, worked in self._worked.items()
            if not worked.worker.gate.is_open and not self._guards.waits(key)
        ]
        halted = [each for worked in self._worked.values() for each in worked.troubles]
        refused = [f"{key} is not worked off: {why}" for key, why in self._refused.items()]
        stopping = ["draining"] if self.draining else []
        silent = self.broker.interrupted if self._worked or self._leases else None
        away = [f"broker: {each}" for each in dict.fromkeys((reason, silent)) if each]
        return [*away, *self._guards.missing(), *refused, *waiting, *halted, *stopping]

    async def _work_off(self, key: QueueKey, queue: NamedQueue, *, wanted: bool) -> None:
        spec = queue.spec.worker
        running = self._worked.get(key)
        why = unsupported(queue, self.store)
        if spec is None or not wanted or why is not None:
            await self._stop_working(key, patience=30)
            self._refuse(key, why if wanted else None)
            return
        self._refuse(key, None)
        if running is not None and running.can_follow(queue):
            self._guards.of(key, queue.spec.idempotency)
            running.worker.update(queue, self._shares[key])
            return
        await self._stop_working(key, patience=30)
        if not self.draining:
            workplace = Workplace(
                queue,
                self._recording,
                app_of(spec),
                share=self._shares[key],
                memory=self._memory(key),
                guard=self._guards.of(key, queue.spec.idempotency),
                now_ms=self.now_ms,
            )
            self._worked[key] = Worked(workplace, self._interim(key))
            self._worked[key].worker.start()
            _log.info("working off %s", key, extra={"action": "work", "queue": str(key)})

    def _refuse(self, key: QueueKey, why: str | None) -> None:
        self._refused.pop(key, None)
        if why is not None:
            self._refused[key] = why
            _log.error("%s is not worked off: %s", key, why, extra={"action": "work"})

    async def _forget(self, key: QueueKey) -> None:
        await self._stop(key, 30)
        self._leases.pop(key, None)
        self._memories.pop(key, None)
        self._refused.pop(key, None)
        self._shares.pop(key, None)
        self._sent.pop(key, None)
        del self.queues[key], self._intakes[key]

    async def _stop(self, key: QueueKey, patience: float) -> None:
        """End all that goes on with a queue; what waits in memory is sent back to it at last."""
        loop = asyncio.get_running_loop()
        until = loop.time() + patience
        await asyncio.gather(self._stop_working(key, patience), self._stop_leasing(key, patience))
        await self._guards.close(key, max(_LAST_MOMENT, until - loop.time()))
        readers = self._readers.pop(key, None)
        if readers is not None:
            await readers.close()
        interims = self._interims.pop(key, None)
        if interims is not None:
            await interims.close(max(_LAST_MOMENT, until - loop.time()))

    async def _stop_working(self, key: QueueKey, patience: float) -> None:
        worked = self._worked.get(key)
        if worked is not None:
            await worked.stop(patience)
            self._worked.pop(key, None)

    async def _stop_leasing(self, key: QueueKey, patience: float) -> None:
        leases = self._leases.get(key)
        if leases is not None:
            await leases.drain(patience)

    def _interim(self, key: QueueKey) -> Interims | None:
        """Return where an ephemeral queue's jobs wait for their next attempt; None for others."""
        if self.queues[key].spec.type != "ephemeral":
            return None
        if key not in self._interims:
            self._interims[key] = Interims(key, self.broker)
        return self._interims[key]

    def _memory(self, key: QueueKey) -> Memory:
        return self._memories.setdefault(key, Memory())
