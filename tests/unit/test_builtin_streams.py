"""Streams of the builtin broker, in memory and in a file: retention, positions, and reopening.

Random histories are held against a list. A crash is a copy of the file at a moment of rest, opened
by a new broker; in memory there is nothing to survive.
"""

import asyncio
import shutil
import sqlite3
import tempfile
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from broker.port.play import declare, enqueue, eventually, job
from fixtures.builtin import on_clock, opened, settle
from fixtures.clock import Clock
from fixtures.scale import FULL
from namedqueue.positions import End, Moment
from namedqueue_sidecar.brokers.builtin import BuiltinBroker
from namedqueue_sidecar.brokers.builtin.sqlite import FILE_NAME, SCHEMA_VERSION
from namedqueue_sidecar.brokers.port import Entry, Log, QueueKey

EVENTS = QueueKey("shop", "events")
MAX_AGE, MAX_BYTES, MAX_MESSAGES, OVERHEAD = 5_000, 1_000, 6, 128
SPEC: dict[str, Any] = {
    "type": "stream",
    "stream": {
        "maxAge": f"{MAX_AGE}ms",
        "maxBytes": str(MAX_BYTES),
        "maxMessages": MAX_MESSAGES,
    },
}


class Kept(NamedTuple):
    """A message in the model."""

    offset: int
    at: int
    dated: int
    payload: bytes


class Model:
    """A log, by rules that are too simple to be wrong."""

    def __init__(self, now: int) -> None:
        self.now = now
        self.next = 0
        self.kept: list[Kept] = []
        self.cursors: dict[str, int] = {}

    def append(self, dated: int, payload: bytes) -> None:
        self.kept.append(Kept(self.next, self.now, dated, payload))
        self.next += 1
        self.retain()

    def retain(self) -> None:
        self.kept = [e for e in self.kept if e.at + MAX_AGE > self.now][-MAX_MESSAGES:]
        while len(self.kept) > 1 and sum(len(e.payload) + OVERHEAD for e in self.kept) > MAX_BYTES:
            del self.kept[0]

    @property
    def first(self) -> int:
        return self.kept[0].offset if self.kept else self.next

    def since(self, moment: int) -> int:
        return next((e.offset for e in self.kept if e.dated >= moment), self.next)


class Side:
    """One of the two brokers."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self.clock = Clock()
        self.seen: list[Entry] = []

    async def open(self) -> None:
        self.broker: BuiltinBroker = on_clock(self.folder, self.clock)
        await self.broker.open()
        await declare(self.broker, EVENTS.name, **SPEC)
        self.log: Log = self.broker.log(EVENTS)

    async def crash(self) -> None:
        await settle(self.broker)
        if self.folder is not None:
            left = self.folder.with_name(f"{self.folder.name}-")
            shutil.copytree(self.folder, left)
            await self.broker.close()
            self.folder, self.clock = left, Clock(self.clock.now)
            await self.open()

    async def everything(self) -> list[tuple[int, bytes]]:
        seen: list[Entry] = []
        reading = self.log.read(End.FIRST, seen.extend, 1_000)
        await settle(self.broker)
        await reading.close()
        return [(entry.offset, entry.job.payload) for entry in seen]


class Histories(RuleBasedStateMachine):
    """Does the same to both sides and to the model."""

    def __init__(self) -> None:
        super().__init__()
        self.place = tempfile.TemporaryDirectory(prefix="nq-streams-")
        self.sides = [Side(None), Side(Path(self.place.name) / "data")]
        self.model = Model(self.sides[0].clock.now)
        self.runner = asyncio.Runner()
        for side in self.sides:
            self.runner.run(side.open())

    def teardown(self) -> None:
        for side in self.sides:
            self.runner.run(side.broker.close())
        self.runner.close()
        self.place.cleanup()

    @rule(ages=st.lists(st.integers(-50, 300), min_size=1, max_size=4), size=st.integers(0, 900))
    def append(self, ages: list[int], size: int) -> None:
        now = self.model.now
        jobs = [job(bytes(size), enqueued_at=now - age, time=now - age) for age in ages]
        for each in jobs:
            self.model.append(min(each.enqueued_at, now), each.payload)
        for side in self.sides:
            self.runner.run(enqueue(side.broker, EVENTS, *jobs))

    @rule(ms=st.sampled_from([1, 100, 1_000, 4_999, 6_000]))
    def pass_time(self, ms: int) -> None:
        self.model.now += ms
        self.model.retain()
        for side in self.sides:
            self.runner.run(side.clock.advance(ms, partial(settle, side.broker)))

    @rule(group=st.sampled_from("ab"), ahead=st.integers(0, 3))
    def commit(self, group: str, ahead: int) -> None:
        cursor = min(self.model.cursors.get(group, 0) + ahead, self.model.next)
        self.model.cursors[group] = max(cursor, self.model.cursors.get(group, 0))
        for side in self.sides:
            self.runner.run(side.log.commit(group, cursor))

    @rule(group=st.sampled_from("ab"), to=st.integers(0, 40))
    def seek(self, group: str, to: int) -> None:
        cursor = self.model.cursors[group] = min(max(to, self.model.first), self.model.next)
        for side in self.sides:
            assert self.runner.run(side.log.seek(group, to)) == cursor

    @rule(ago=st.integers(-100, 6_000))
    def look_back(self, ago: int) -> None:
        moment = self.model.now - ago
        for side in self.sides:
            assert self.runner.run(side.log.locate(Moment(moment))) == self.model.since(moment)

    @rule()
    def crash(self) -> None:
        for side in self.sides:
            self.runner.run(side.crash())

    @invariant()
    def both_are_as_the_model(self) -> None:
        for side in self.sides:
            assert self.runner.run(side.log.span()) == (self.model.first, self.model.next)
            assert self.runner.run(side.log.groups()) == self.model.cursors
            kept = [(each.offset, each.payload) for each in self.model.kept]
            assert self.runner.run(side.everything()) == kept


TestHistories = Histories.TestCase
TestHistories.settings = settings(
    max_examples=300 if FULL else 10, stateful_step_count=20, deadline=None
)


async def test_a_stream_that_lost_all_its_messages_goes_on_with_its_offsets_in_the_next_process(
    tmp_path: Path,
) -> None:
    clock = Clock()
    async with opened(tmp_path, clock) as broker:
        await declare(broker, EVENTS.name, **SPEC)
        await enqueue(broker, EVENTS, job(), job(), job())
        await clock.advance(MAX_AGE, lambda: settle(broker))
        assert await broker.log(EVENTS).span() == (3, 3)
    async with opened(tmp_path, clock) as broker:
        await enqueue(broker, EVENTS, job(b"4th"))
        seen: list[Entry] = []
        broker.log(EVENTS).read(End.FIRST, seen.extend, 10)
        await eventually(lambda: bool(seen), "it came")
        assert (seen[0].offset, seen[0].job.payload) == (3, b"4th")


async def test_a_date_of_a_message_that_is_gone_hides_no_other() -> None:
    clock = Clock()
    async with opened(clock=clock) as broker:
        await declare(broker, EVENTS.name, type="stream", stream={"maxMessages": 3})
        dates = [clock.now - ago for ago in (0, 250, 100, 0)]
        await enqueue(broker, EVENTS, *(job(enqueued_at=date, time=date) for date in dates))
        log = broker.log(EVENTS)
        assert await log.span() == (1, 4)
        assert [await log.locate(Moment(clock.now - ago)) for ago in (300, 200, 50)] == [1, 2, 3]


async def test_a_stream_that_is_declared_again_is_new_to_its_followers() -> None:
    told: list[str] = []

    class Holder:
        def granted(self, cursor: int | None) -> None:
            told.append(f"granted {cursor}")

        def moved(self, cursor: int) -> None:
            told.append(f"moved {cursor}")

        def revoked(self) -> None:
            told.append("revoked")

    async with opened() as broker:
        log, seen = broker.log(EVENTS), list[Entry]()
        log.read(End.FIRST, seen.extend, 10)
        log.hold("audit", Holder())
        for payload in (b"old", b"new"):
            await declare(broker, EVENTS.name, type="stream")
            await enqueue(broker, EVENTS, job(payload))
            await log.commit("audit", 1)
            await settle(broker)
            await broker.undeclare(EVENTS)
        assert [(entry.offset, entry.job.payload) for entry in seen] == [(0, b"old"), (0, b"new")]
        assert told == ["granted None", "revoked"] * 2


async def test_a_file_from_before_there_were_streams_is_brought_up(tmp_path: Path) -> None:
    async with opened(tmp_path) as broker:
        await declare(broker)
        await enqueue(broker, QueueKey("shop", "orders"), job())
    with sqlite3.connect(tmp_path / FILE_NAME) as file:
        for table in ("entries", "trimmed", "cursors"):
            file.execute(f"DROP TABLE {table}")
        file.execute("PRAGMA user_version = 1")
    file.close()
    async with opened(tmp_path) as broker:
        assert await broker.depth(QueueKey("shop", "orders")) == (1, 0, 0, 0)
        await declare(broker, EVENTS.name, type="stream")
        await enqueue(broker, EVENTS, job())
        assert await broker.log(EVENTS).span() == (0, 1)
    assert SCHEMA_VERSION == 2
