"""The builtin broker's file: what was confirmed is there again, for one process at a time."""

import asyncio
import fcntl
import os
import shutil
import sqlite3
import sys
import threading
from pathlib import Path

import pytest

from broker.port.play import (
    QUEUE,
    Hands,
    bury_all,
    declare,
    enqueue,
    eventually,
    job,
    letter,
    publish,
)
from fixtures.builtin import opened, settle
from fixtures.clock import Clock
from namedqueue_sidecar.brokers.builtin import BuiltinBroker, StorageError
from namedqueue_sidecar.brokers.builtin.sqlite import FILE_NAME, SCHEMA_VERSION, SqliteStorage
from namedqueue_sidecar.brokers.builtin.storage import Batch
from namedqueue_sidecar.brokers.port import Main, Verdict


async def test_everything_is_there_again_after_a_reopen(tmp_path: Path) -> None:
    clock = Clock()
    ready, later, dead = job(b"\x00now", headers=(("tenant", "a"),)), job(b"later"), letter()
    async with opened(tmp_path, clock) as broker:
        await declare(broker, subscriptions=[{"topic": "order/#"}])
        await enqueue(broker, QUEUE, ready)
        assert await publish(broker, Main(QUEUE, later, 1000)) == [Verdict.CONFIRMED]
        await bury_all(broker, QUEUE, dead)
    async with opened(tmp_path, clock) as broker:
        assert await broker.depth(QUEUE) == (1, 0, 1, 1)
        hands = Hands()
        broker.subscribe(QUEUE, hands, prefetch=10)
        await hands.hold(1)
        clock.now += 999
        assert await broker.depth(QUEUE) == (0, 1, 1, 1)
        await clock.advance(1, lambda: settle(broker))
        assert [delivery.job for delivery in hands.came] == [ready, later]
        assert not any(delivery.redelivered for delivery in hands.came)
        found = await broker.dead_letters(QUEUE).find(dead.job.id)
        assert found == dead


async def test_what_was_in_flight_comes_again_marked_and_uncounted(tmp_path: Path) -> None:
    async with opened(tmp_path / "a") as broker:
        await declare(broker)
        await enqueue(broker, QUEUE, job(attempt=2), job(attempt=2))
        hands = Hands()
        broker.subscribe(QUEUE, hands, prefetch=1)
        [first] = await hands.hold(1)
        await settle(broker)
        shutil.copytree(tmp_path / "a", tmp_path / "killed")  # what a kill would leave behind
    async with opened(tmp_path / "killed") as broker:
        again = Hands()
        broker.subscribe(QUEUE, again, prefetch=2)
        await again.hold(2)
        assert again.came[0].job == first.job
        assert [delivery.redelivered for delivery in again.came] == [True, False]
        assert [delivery.job.attempt for delivery in again.came] == [2, 2]


async def test_an_acked_job_does_not_come_again(tmp_path: Path) -> None:
    async with opened(tmp_path) as broker:
        await declare(broker)
        await enqueue(broker, QUEUE, job(), job())
        hands = Hands()
        subscription = broker.subscribe(QUEUE, hands, prefetch=2)
        await hands.hold(2)
        subscription.ack(hands.held[:1])
    async with opened(tmp_path) as broker:
        assert await broker.depth(QUEUE) == (1, 0, 0, 0)


async def test_an_undeclared_queue_is_gone_from_the_file(tmp_path: Path) -> None:
    async with opened(tmp_path) as broker:
        await declare(broker)
        await enqueue(broker, QUEUE, job())
        await broker.undeclare(QUEUE)
    async with opened(tmp_path) as broker:
        assert await broker.depth(QUEUE) is None
    with sqlite3.connect(tmp_path / FILE_NAME) as file:
        assert file.execute("SELECT count(*) FROM jobs").fetchone() == (0,)
    file.close()


async def test_a_batch_is_settled_only_after_its_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit is held up; meanwhile nothing is confirmed and nothing is given out."""
    commits_first, may_commit = threading.Event(), threading.Event()
    commits: list[int] = []
    apply = SqliteStorage._apply

    def held_up(storage: SqliteStorage, batch: Batch) -> None:
        if batch.added:
            commits_first.set()
        may_commit.wait(60)
        apply(storage, batch)
        commits.append(len(batch.added))

    async with opened(tmp_path) as broker:
        await declare(broker)
        hands = Hands()
        broker.subscribe(QUEUE, hands, prefetch=1000)
        monkeypatch.setattr(SqliteStorage, "_apply", held_up)
        settled: list[Verdict] = []
        broker.publish([Main(QUEUE, job())], settled.extend)
        await eventually(commits_first.is_set, "the first one's commit has begun")
        for _ in range(500):
            broker.publish([Main(QUEUE, job())], settled.extend)
            await asyncio.sleep(0)
        assert not settled
        assert not hands.came
        may_commit.set()
        await eventually(lambda: len(settled) == 501, "all are settled")
        await hands.hold(501)
        assert [size for size in commits if size] == [1, 500]


async def test_a_commit_that_fails_confirms_nothing_and_keeps_acks_for_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    apply = SqliteStorage._apply

    def disk_is_full(*_: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    async with opened(tmp_path) as broker:
        await declare(broker)
        await enqueue(broker, QUEUE, job())
        hands = Hands()
        subscription = broker.subscribe(QUEUE, hands, prefetch=1)
        await hands.hold(1)
        await settle(broker)
        monkeypatch.setattr(SqliteStorage, "_apply", disk_is_full)
        subscription.ack(hands.take())
        assert await publish(broker, Main(QUEUE, job())) == [Verdict.UNKNOWN]
        assert "disk is full" in str(broker.unavailable)
        assert await broker.depth(QUEUE) == (0, 0, 0, 0)
        monkeypatch.setattr(SqliteStorage, "_apply", apply)
        await eventually(lambda: broker.unavailable is None, "the next try went well")
    async with opened(tmp_path) as broker:
        assert await broker.depth(QUEUE) == (0, 0, 0, 0)


async def test_a_second_process_is_refused_and_told_whom_to_ask(tmp_path: Path) -> None:
    async with opened(tmp_path):
        second = BuiltinBroker(tmp_path)
        with pytest.raises(StorageError, match=rf"in use by process {os.getpid()}; stop it"):
            await second.open()
        with pytest.raises(RuntimeError, match="not open"):
            await declare(second)
    async with opened(tmp_path):
        pass


async def test_the_lock_goes_with_the_process_that_had_it(tmp_path: Path) -> None:
    script = (
        "import signal, sys\n"
        "from pathlib import Path\n"
        "from namedqueue_sidecar.brokers.builtin.lock import FolderLock\n"
        "lock = FolderLock(Path(sys.argv[1])); print(flush=True); signal.pause()\n"
    )
    other = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, str(tmp_path), stdout=asyncio.subprocess.PIPE
    )
    assert other.stdout is not None
    await other.stdout.readline()
    with pytest.raises(StorageError, match=f"in use by process {other.pid}"):
        await BuiltinBroker(tmp_path).open()
    other.kill()
    await other.communicate()
    async with opened(tmp_path):
        with (tmp_path / "lock").open() as lock, pytest.raises(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


async def test_a_file_of_a_newer_version_is_refused_with_a_remedy(tmp_path: Path) -> None:
    async with opened(tmp_path):
        pass
    file = sqlite3.connect(tmp_path / FILE_NAME)
    file.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    file.close()
    with pytest.raises(StorageError, match=r"newer NamedQueue .* upgrade, or choose another"):
        await BuiltinBroker(tmp_path).open()


async def test_a_file_that_is_not_ours_is_left_alone(tmp_path: Path) -> None:
    file = sqlite3.connect(tmp_path / FILE_NAME)
    file.execute("CREATE TABLE songs (title)")
    file.close()
    with pytest.raises(StorageError, match="not a NamedQueue file"):
        await BuiltinBroker(tmp_path).open()
    (tmp_path / FILE_NAME).write_bytes(b"no database at all, but long enough to be looked at" * 50)
    with pytest.raises(StorageError, match="cannot be used: file is not a database"):
        await BuiltinBroker(tmp_path).open()


async def test_a_backlog_larger_than_memory_may_hold_is_read_from_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("namedqueue_sidecar.brokers.builtin.sqlite.MOST_FRESH_BYTES", 5_000)
    jobs = [job(b"%d" % number) for number in range(1200)]
    async with opened(tmp_path) as broker:
        await declare(broker)
        await enqueue(broker, QUEUE, *jobs)
        assert len(broker._storage._fresh) == 4  # type: ignore[union-attr]  # it is a file's
        hands = Hands()
        broker.subscribe(QUEUE, hands, prefetch=2000)
        await hands.hold(1200)
        assert [delivery.job for delivery in hands.came] == jobs


async def test_text_that_no_encoding_can_hold_does_not_spoil_the_batch(tmp_path: Path) -> None:
    async with opened(tmp_path) as broker:
        await declare(broker)
        await enqueue(broker, QUEUE, job(), job(id="half \ud800", type="half \ud800"), job())
        hands = Hands()
        broker.subscribe(QUEUE, hands, prefetch=3)
        await hands.hold(3)


async def test_jobs_that_cannot_be_read_now_are_given_out_when_they_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = SqliteStorage.read
    faults: list[object] = []

    def broken(*_: object) -> None:
        raise sqlite3.OperationalError("disk I/O error")

    async with opened(tmp_path) as broker:
        asyncio.get_running_loop().set_exception_handler(lambda _, fault: faults.append(fault))
        await declare(broker)
        hands = Hands()
        broker.subscribe(QUEUE, hands, prefetch=1)
        monkeypatch.setattr(SqliteStorage, "read", broken)
        await enqueue(broker, QUEUE, job())
        await eventually(lambda: bool(faults), "the fault is reported")
        monkeypatch.setattr(SqliteStorage, "read", read)
        await hands.hold(1)
