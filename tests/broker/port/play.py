"""The words that the suite of the port is told in: queues, jobs, verdicts, hands that hold jobs."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from itertools import count
from typing import Any, TypeVar
from uuid import uuid4

from namedqueue.api.namedqueue import NamedQueue
from namedqueue.deadletters import DeadLetterRecord, bury
from namedqueue.envelope import Job
from namedqueue.retry import DeadLetter
from namedqueue_sidecar.brokers.port import (
    Broker,
    Dead,
    DeadLetters,
    Delivery,
    Main,
    Publication,
    QueueKey,
    Verdict,
)
from namedqueue_sidecar.redriving.runs import Run
from namedqueue_sidecar.redriving.wishes import Wish

T = TypeVar("T")

DEADLINE = 60.0
AT_ONCE = 500
NAMESPACE = "shop"
QUEUE = QueueKey(NAMESPACE, "orders")

_later = count()


def named_queue(name: str = "orders", **spec: Any) -> NamedQueue:
    """Return a queue as a manifest would write it."""
    metadata = {"name": name, "namespace": NAMESPACE}
    return NamedQueue.model_validate({"metadata": metadata, "spec": spec})


async def declare(broker: Broker, name: str = "orders", **spec: Any) -> QueueKey:
    """Make a queue exist and return its key."""
    await broker.declare(named_queue(name, **spec))
    return QueueKey(NAMESPACE, name)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def job(payload: bytes = b"{}", **fields: Any) -> Job:
    """Return a fresh job."""
    made: dict[str, Any] = {"id": uuid4().hex, "queue": QUEUE.name, "enqueued_at": now_ms()}
    made |= {"time": made["enqueued_at"], "payload": payload}
    return Job(**(made | fields))


def letter(code: str = "HTTP_422", **fields: Any) -> DeadLetterRecord:
    """Return a job that failed for good, each a millisecond after the one before."""
    at = now_ms() + next(_later)
    return bury(job(**fields), DeadLetter(code, "it failed for good"), None, at)


async def publish(broker: Broker, *batch: Publication) -> list[Verdict]:
    """Publish a batch and return its verdicts."""
    settled: asyncio.Future[list[Verdict]] = asyncio.get_running_loop().create_future()
    broker.publish(batch, lambda verdicts: settled.set_result(list(verdicts)))
    return await asyncio.wait_for(settled, DEADLINE)


async def enqueue(broker: Broker, queue: QueueKey, *jobs: Job) -> None:
    """Put jobs on a queue, all of them confirmed."""
    verdicts = await publish(broker, *(Main(queue, each) for each in jobs))
    assert verdicts == [Verdict.CONFIRMED] * len(jobs)


async def bury_all(broker: Broker, queue: QueueKey, *letters: DeadLetterRecord) -> None:
    """Put letters on a queue's dead letters, one after the other, all of them confirmed."""
    for each in letters:
        assert await publish(broker, Dead(queue, each)) == [Verdict.CONFIRMED]


async def bury_at_once(
    broker: Broker, queue: QueueKey, count: int, reason: str = "HTTP_422"
) -> list[str]:
    """Put so many letters on a queue's dead letters, in batches, and return the jobs' ids."""
    letters = [letter(reason) for _ in range(count)]
    for start in range(0, count, AT_ONCE):
        batch = [Dead(queue, each) for each in letters[start : start + AT_ONCE]]
        assert set(await publish(broker, *batch)) == {Verdict.CONFIRMED}
    return [each.job.id for each in letters]


async def eventually(condition: Callable[[], bool], what: str, within: float = DEADLINE) -> None:
    """Wait until a condition holds."""
    ends = time.monotonic() + within
    while not condition():
        assert time.monotonic() < ends, f"not within {within} s: {what}"
        await asyncio.sleep(0.01)


async def answer(
    ask: Callable[[], Awaitable[T]], wanted: Callable[[T], bool], within: float = DEADLINE
) -> T:
    """Ask again and again until the answer is as wanted, and return it."""
    ends = time.monotonic() + within
    while not wanted(got := await ask()):
        assert time.monotonic() < ends, f"the last answer was {got}"
        await asyncio.sleep(0.05)
    return got


async def redrive(
    letters: DeadLetters, limit: int | None = None, reason: str | None = None, name: str = ""
) -> int:
    """Send dead letters back and return how many."""
    run = Run(name or uuid4().hex, Wish(limit=limit, reason=reason))
    await run.go(letters, patience=DEADLINE)
    return run.redriven


class Hands:
    """A receiver that holds what it is given until it is told what to do with it."""

    def __init__(self) -> None:
        self.held: list[Delivery] = []
        self.came: list[Delivery] = []
        self.at: dict[str, float] = {}
        self.losses = 0

    def deliver(self, deliveries: Sequence[Delivery]) -> None:
        self.held.extend(deliveries)
        self.came.extend(deliveries)
        for delivery in deliveries:
            self.at[delivery.job.id] = time.monotonic()

    def lost(self) -> None:
        self.losses += 1
        self.held.clear()

    def take(self) -> list[Delivery]:
        """Return what is held, and hold it no longer."""
        taken, self.held = self.held, []
        return taken

    @property
    def ids(self) -> list[str]:
        """Name all jobs that came, in order."""
        return [delivery.job.id for delivery in self.came]

    async def hold(self, count: int) -> list[Delivery]:
        """Wait until so many jobs are held and return them; they stay held."""
        await eventually(lambda: len(self.held) >= count, f"{count} jobs came")
        return list(self.held)
