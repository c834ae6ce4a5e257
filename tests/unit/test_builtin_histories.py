"""Random histories: the builtin broker in memory and in a file do what a simple model does.

A job goes through publishing, delays, deliveries, acks, hand-backs, retries, dead-lettering,
redrives, expiry and crashes. After each step both brokers have each job where the model has it,
and whatever was delivered was delivered in the model's order with the model's marks.

A crash is a copy of the file at a moment of rest, opened by a new broker; in memory, where there
is nothing to survive, it is a worker that lets go of all it holds. What kill -9 does in the midst
of a commit is the business of tests/broker/test_builtin_kill.py.
"""

import asyncio
import shutil
import tempfile
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any
from uuid import uuid4

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from broker.port.play import QUEUE, Hands, declare, publish, redrive
from fixtures.builtin import on_clock, settle
from fixtures.clock import Clock
from fixtures.scale import FULL
from namedqueue import ladder
from namedqueue.deadletters import DeadLetterRecord, bury
from namedqueue.envelope import Job
from namedqueue.retry import DeadLetter
from namedqueue_sidecar.brokers.builtin import BuiltinBroker
from namedqueue_sidecar.brokers.port import Dead, Delivery, Main, Publication, Verdict

TTL, RETENTION, MOST, HIGHEST = 5_000, 60_000, 6, 2
SPEC: dict[str, Any] = {
    "durable": {
        "storage": "classic",
        "maxLength": MOST,
        "maxPriority": HIGHEST,
        "messageTTL": f"{TTL}ms",
    },
    "deadLetter": {"retention": "1m"},
}


@dataclass(frozen=True)
class Entry:
    """A job in the model; `seq` is the order of storing."""

    seq: int
    job: Job
    at: int
    delivered: bool = False

    @property
    def turn(self) -> tuple[int, int, int]:
        return (-min(self.job.priority, HIGHEST), self.at, self.seq)


class Model:
    """Where each job is, by rules that are too simple to be wrong."""

    def __init__(self, now: int) -> None:
        self.now = now
        self.main: list[Entry] = []
        self.held: list[Entry] = []
        self.dead: list[Entry] = []
        self._seqs = count()

    @property
    def ready(self) -> list[Entry]:
        return sorted((e for e in self.main if e.at <= self.now), key=lambda e: e.turn)

    def publish(self, job: Job, delay: int) -> Verdict:
        if delay == 0 and len(self.ready) >= MOST:
            return Verdict.FULL
        self.main.append(Entry(next(self._seqs), job, self.now + ladder.round_up(delay)))
        return Verdict.CONFIRMED

    def bury(self, job: Job) -> None:
        self.dead.append(Entry(next(self._seqs), job, self.now))

    def deliver(self, most: int) -> list[Entry]:
        taken = self.ready[:most]
        self.main = [e for e in self.main if e not in taken]
        self.held += [replace(e, delivered=True) for e in taken]
        return taken

    def take(self, index: int) -> Entry:
        return self.held.pop(index)

    def give_back(self, *entries: Entry) -> None:
        self.main += entries
        self.pass_time(0)

    def redrive(self, limit: int, name: str) -> int:
        moved = self.dead[: min(limit, max(0, MOST - len(self.ready)))]
        self.dead = self.dead[len(moved) :]
        for e in moved:
            redrives = e.job.redrives + 1
            self.publish(e.job._replace(attempt=1, redrives=redrives, redrive=name), 0)
        return len(moved)

    def pass_time(self, ms: int) -> None:
        target = self.now + ms
        while True:
            ends = [e.at + TTL for e in self.main] + [e.at + RETENTION for e in self.dead]
            moment = min(ends, default=target + 1)
            if moment > target:
                break
            self.now = max(self.now, moment)
            old = [e for e in self.main if e.at + TTL <= self.now]
            self.main = [e for e in self.main if e not in old]
            for e in sorted(old, key=lambda e: (e.at, e.seq)):
                self.bury(e.job)
            self.dead = [e for e in self.dead if e.at + RETENTION > self.now]
        self.now = target


class Side:
    """One of the two brokers, with one worker."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self.clock = Clock()
        self.hands = Hands()

    async def open(self) -> None:
        self.broker: BuiltinBroker = on_clock(self.folder, self.clock)
        await self.broker.open()
        await declare(self.broker, **SPEC)
        self.subscribe()

    def subscribe(self) -> None:
        self.hands = Hands()
        self.subscription = self.broker.subscribe(QUEUE, self.hands, prefetch=0)

    async def settle(self) -> None:
        await settle(self.broker)
        await self.clock.advance(0, partial(settle, self.broker))

    async def deliver(self, most: int) -> list[Delivery]:
        before = len(self.hands.came)
        self.subscription.set_prefetch(len(self.hands.held) + most)
        await self.settle()
        self.subscription.set_prefetch(0)
        return self.hands.came[before:]

    async def crash(self) -> None:
        await self.settle()
        if self.folder is None:
            await self.subscription.close()
            self.subscribe()
        else:
            left = self.folder.with_name(f"{self.folder.name}-")
            shutil.copytree(self.folder, left)
            await self.broker.close()
            self.folder = left
            self.clock = Clock(self.clock.now)
            await self.open()
        await self.settle()


class Histories(RuleBasedStateMachine):
    """Does the same to both sides and to the model."""

    def __init__(self) -> None:
        super().__init__()
        self.place = tempfile.TemporaryDirectory(prefix="nq-histories-")
        self.sides = [Side(None), Side(Path(self.place.name) / "data")]
        self.model = Model(self.sides[0].clock.now)
        self.numbers = count()
        self.runner = asyncio.Runner()
        for side in self.sides:
            self.runner.run(side.open())

    def teardown(self) -> None:
        for side in self.sides:
            self.runner.run(side.broker.close())
        self.runner.close()
        self.place.cleanup()

    def told(self, publication: Publication) -> Verdict:
        """Publish on both sides and return the verdict they agree on."""
        verdicts = []
        for side in self.sides:
            verdicts += self.runner.run(publish(side.broker, publication))
            self.runner.run(side.settle())
        assert verdicts[0] is verdicts[1]
        return verdicts[0]

    def on_held(self, index: int, what: str) -> Entry:
        """Ack or hand back the held job of that index on both sides."""
        for side in self.sides:
            getattr(side.subscription, what)([side.hands.held.pop(index)])
            self.runner.run(side.settle())
        return self.model.take(index)

    @rule(priority=st.integers(0, 3), delay=st.sampled_from([0, 0, 0, 1, 250, 260, 3_000]))
    def publish(self, priority: int, delay: int) -> None:
        now = self.model.now
        job = Job(f"job-{next(self.numbers)}", QUEUE.name, b"{}", now, now, priority=priority)
        assert self.told(Main(QUEUE, job, delay)) is self.model.publish(job, delay)

    @rule(most=st.integers(1, 4))
    def deliver(self, most: int) -> None:
        expected = [(e.job, e.delivered) for e in self.model.deliver(most)]
        for side in self.sides:
            came = self.runner.run(side.deliver(most))
            assert [(d.job, d.redelivered) for d in came] == expected

    @precondition(lambda self: self.model.held)
    @rule(data=st.data())
    def ack(self, data: st.DataObject) -> None:
        self.on_held(self.some_held(data), "ack")

    @precondition(lambda self: self.model.held)
    @rule(data=st.data())
    def hand_back(self, data: st.DataObject) -> None:
        self.model.give_back(self.on_held(self.some_held(data), "hand_back"))

    @precondition(lambda self: self.model.held)
    @rule(data=st.data(), delay=st.sampled_from([0, 250, 1_100]))
    def fail_and_retry(self, data: st.DataObject, delay: int) -> None:
        index = self.some_held(data)
        job = self.model.held[index].job
        again = job._replace(attempt=job.attempt + 1)
        verdict = self.told(Main(QUEUE, again, delay))
        assert verdict is self.model.publish(again, delay)
        if verdict is Verdict.CONFIRMED:
            self.on_held(index, "ack")

    @precondition(lambda self: self.model.held)
    @rule(data=st.data())
    def fail_for_good(self, data: st.DataObject) -> None:
        index = self.some_held(data)
        job = self.model.held[index].job
        record = bury(job, DeadLetter("HTTP_422", "no"), None, self.model.now)
        assert self.told(Dead(QUEUE, record)) is Verdict.CONFIRMED
        self.model.bury(job)
        self.on_held(index, "ack")

    @rule(limit=st.integers(1, 4))
    def redrive(self, limit: int) -> None:
        name = uuid4().hex
        expected = self.model.redrive(limit, name)
        for side in self.sides:
            letters = side.broker.dead_letters(QUEUE)
            assert self.runner.run(redrive(letters, limit, name=name)) == expected

    @precondition(lambda self: self.model.dead)
    @rule(data=st.data())
    def discard(self, data: st.DataObject) -> None:
        job_id = data.draw(st.sampled_from([e.job.id for e in self.model.dead]))
        expected = sum(e.job.id == job_id for e in self.model.dead)
        self.model.dead = [e for e in self.model.dead if e.job.id != job_id]
        for side in self.sides:
            assert self.runner.run(side.broker.dead_letters(QUEUE).remove([job_id])) == expected

    @rule(ms=st.sampled_from([1, 10, 249, 250, 1_000, 4_000, 20_000, 61_000]))
    def pass_time(self, ms: int) -> None:
        self.model.pass_time(ms)
        for side in self.sides:
            self.runner.run(side.clock.advance(ms, side.settle))

    @rule()
    def crash(self) -> None:
        held, self.model.held = self.model.held, []
        self.model.give_back(*held)
        for side in self.sides:
            self.runner.run(side.crash())

    @invariant()
    def each_job_is_where_the_model_has_it(self) -> None:
        model = self.model
        ready, held = len(model.ready), len(model.held)
        depth = (ready, held, len(model.main) - ready, len(model.dead))
        for side in self.sides:
            assert self.runner.run(side.broker.depth(QUEUE)) == depth
            letters = self.runner.run(_all(side))
            assert [record.job for record in letters] == [e.job for e in model.dead]

    def some_held(self, data: st.DataObject) -> int:
        return data.draw(st.integers(0, len(self.model.held) - 1))


async def _all(side: Side) -> list[DeadLetterRecord]:
    """Read the dead letters two by two."""
    found: list[DeadLetterRecord] = []
    page, cursor = await side.broker.dead_letters(QUEUE).browse(None, 2)
    found += page
    while cursor is not None:
        page, cursor = await side.broker.dead_letters(QUEUE).browse(cursor, 2)
        found += page
    return found


TestHistories = Histories.TestCase
TestHistories.settings = settings(
    max_examples=500 if FULL else 40, stateful_step_count=40, deadline=None
)
