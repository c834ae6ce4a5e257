"""The guard of a queue with `spec.idempotency`: no job reaches the app whose effect has happened.

Before the app is called the job's key is claimed, and what became of it is written before the job
is acknowledged:

    claimed            the app is called
    a duplicate        acknowledged, the app is not called
    in progress        another job of the key is under way, here or elsewhere: this one is put off,
                       uncounted
    the store is away  handed back, uncounted; the gate closes until the store is there again

The workers make plain calls and get plain calls back. All claims of a turn of the event loop are
one statement, and so are all endings; while one is under way the next ones gather. A claim is
renewed until its ending is written, however long the app takes or the store is away.

What is written after the app's answer can be lost with the pod: then the lease runs out and the
job runs a second time. That is the one duplicate which no store beside the app can rule out.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Generic, NamedTuple, TypeAlias, TypeVar

from namedqueue.api.namedqueue import Idempotency
from namedqueue.idempotency import Claim, Refused, State, Wanted
from namedqueue.keypaths import extract
from namedqueue_sidecar.app.port import Ready
from namedqueue_sidecar.brokers.port import QueueKey
from namedqueue_sidecar.consuming.attempts import Attempt
from namedqueue_sidecar.consuming.tally import GuardTally
from namedqueue_sidecar.ending import end
from namedqueue_sidecar.store.away import Away
from namedqueue_sidecar.store.port import Store

_log = logging.getLogger(__name__)

T = TypeVar("T")

Answered: TypeAlias = Callable[[Claim | Refused | None], None]
"""Takes what a wish came to; None if the store is away."""

_MOST_AT_ONCE: Final = 500
_RENEWALS_PER_LEASE: Final = 3
_PAUSE: Final = 0.25


class _Asked(NamedTuple):
    wanted: Wanted
    then: Answered


class _Ended(NamedTuple):
    claim: Claim
    state: State
    then: Callable[[], None]


class _Batches(Generic[T]):
    """Gathers what comes in one turn of the loop; one batch is under way at a time."""

    def __init__(self, run: Callable[[list[T]], Awaitable[None]]) -> None:
        self._run = run
        self._items: list[T] = []
        self._running: asyncio.Task[None] | None = None

    def add(self, item: T) -> None:
        self._items.append(item)
        if self._running is None:
            self._running = asyncio.create_task(self._work())

    async def settled(self) -> None:
        """Return when nothing is left to do."""
        while self._running is not None:
            await asyncio.shield(self._running)

    async def stop(self) -> None:
        if self._running is not None:
            await end(self._running)

    async def _work(self) -> None:
        try:
            while self._items:
                batch, self._items = self._items[:_MOST_AT_ONCE], self._items[_MOST_AT_ONCE:]
                await self._run(batch)
        finally:
            self._running = None


class Guard:
    """Claims the keys of one queue for whoever works on it here."""

    def __init__(self, queue: QueueKey, idempotency: Idempotency, store: Store) -> None:
        self.tally = GuardTally(*queue)
        self._queue = queue
        self._store = store
        self._taken: dict[str, Claim | None] = {}
        self._asked = _Batches(self._claim)
        self._ended = _Batches(self._end)
        self._renewing: asyncio.Task[None] | None = None
        self.update(idempotency)

    def update(self, idempotency: Idempotency) -> None:
        """Follow a changed spec."""
        self._path = idempotency.key
        self._claims = self._store.claims(self._queue, idempotency)

    @property
    def available(self) -> bool:
        return self._store.unavailable is None

    def beside(self, app: Ready) -> Ready:
        """Return a probe that is ready when the app and the store both are."""
        return _Both(app, self)

    @property
    def keyless(self) -> str:
        """What is wrong with a job that has no key."""
        return f"{self._path} of spec.idempotency leads to no key, and the job brings none"

    def claim(self, attempt: Attempt, then: Answered) -> bool:
        """Claim the key that the manifest leads to, or else the producer's own.

        False is a job without a key. It cannot be told from its doubles, so it must not run.
        """
        job = attempt.job
        key = extract(self._path, job) or job.idempotency_key
        if key is None:
            return False
        attempt.job = job._replace(idempotency_key=key)
        if key in self._taken:
            self.tally.refused(Refused.IN_PROGRESS)
            asyncio.get_running_loop().call_soon(then, Refused.IN_PROGRESS)
        else:
            self._taken[key] = None
            self._asked.add(_Asked(Wanted(key, job.id, job.redrives), then))
        return True

    def end(self, claim: Claim, state: State, then: Callable[[], None] = lambda: None) -> None:
        """Write once how a job ended, for as long as it takes; `then` is called when it is written.

        `State.RECEIVED` gives the claim back: the job has not run.
        """
        self._ended.add(_Ended(claim, state, then))

    async def close(self, patience: float) -> None:
        """Write what has ended, if that can be done in time, and let the leases run out."""
        try:
            async with asyncio.timeout(patience):
                await self._asked.settled()
                await self._ended.settled()
        except TimeoutError:
            _log.warning("the store is not told of all that ended", extra={"action": "guard"})
        await self._asked.stop()
        await self._ended.stop()
        if self._renewing is not None:
            await end(self._renewing)

    async def _claim(self, asked: Sequence[_Asked]) -> None:
        answers: Sequence[Claim | Refused | None]
        try:
            answers = await self._claims.claim([each.wanted for each in asked])
        except Away:
            answers = [None] * len(asked)
        for each, answer in zip(asked, answers, strict=True):
            if isinstance(answer, Claim):
                self._taken[answer.key] = answer
            else:
                del self._taken[each.wanted.key]
                self.tally.refused(answer)
            each.then(answer)
        if self._renewing is None and any(self._taken.values()):
            self._renewing = asyncio.create_task(self._renew())

    async def _end(self, ended: Sequence[_Ended]) -> None:
        endings = [(each.claim, each.state) for each in ended]
        while True:
            try:
                written = await self._claims.end(endings)
                break
            except Away:
                await asyncio.sleep(_PAUSE)
        for each, known in zip(ended, written, strict=True):
            del self._taken[each.claim.key]
            if each.state is State.PROCESSED and not known:
                self.tally.lost()
            each.then()

    async def _renew(self) -> None:
        often = self._claims.terms.lease / 1000 / _RENEWALS_PER_LEASE
        await asyncio.sleep(often)
        while held := [claim for claim in self._taken.values() if claim is not None]:
            pause = often
            try:
                await self._claims.renew(held)
            except Away:
                pause = _PAUSE
            await asyncio.sleep(pause)
        self._renewing = None


class _Both:
    def __init__(self, app: Ready, guard: Guard) -> None:
        self._app, self._guard = app, guard

    async def ready(self) -> bool:
        return self._guard.available and await self._app.ready()


class Guards:
    """The guards of all queues that have one."""

    def __init__(self, store: Store | None) -> None:
        self._store = store
        self._guards: dict[QueueKey, Guard] = {}

    def of(self, queue: QueueKey, idempotency: Idempotency | None) -> Guard | None:
        """Return a queue's guard, which follows its spec; None for one that has none."""
        if idempotency is None or self._store is None:
            return None
        if queue not in self._guards:
            self._guards[queue] = Guard(queue, idempotency, self._store)
        self._guards[queue].update(idempotency)
        return self._guards[queue]

    def toggled(self, queue: QueueKey, idempotency: Idempotency | None) -> bool:
        """Tell whether a queue that had a guard has none any more, or the other way round."""
        return (queue in self._guards) is not (idempotency is not None)

    def waits(self, queue: QueueKey) -> bool:
        """Tell whether a queue waits for the store."""
        return queue in self._guards and not self._guards[queue].available

    def missing(self) -> list[str]:
        """Say what stands between guarded queues and their work."""
        if self._store is None or self._store.unavailable is None:
            return []
        return [f"{queue} waits: {self._store.unavailable}" for queue in self._guards]

    async def close(self, queue: QueueKey, patience: float) -> None:
        """Let a queue's guard write what it has to, and forget it."""
        guard = self._guards.pop(queue, None)
        if guard is not None:
            await guard.close(patience)
