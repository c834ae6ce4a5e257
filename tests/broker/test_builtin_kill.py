"""kill -9 at random moments while enqueuing and working on a builtin file.

One file lives through all the kills. The victim notes every fact (see builtin_victim.py), and at
the end the notes are held against what is in the file:

- nothing confirmed is lost: it is in the file, or it was acknowledged, or redriven;
- nothing is invented: whatever is in the file was once published, and its payload is whole;
- a job comes twice only if its delivery was in flight at a kill, or it was handed back. A delivery
  stops being in flight when its acknowledgement is committed. The port does not tell when that is,
  but commits are in order: once something published after the ack is confirmed, the ack is safe.

A delivery in flight that was already moving on is worked on again and moves on again, so one key
may have been published more than once. Therefore copies are counted, not only looked for.
"""

# ruff: noqa: S311 - chances, not secrets

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from broker.builtin_victim import QUEUE, key
from broker.port.play import Hands
from fixtures.builtin import opened
from fixtures.scale import FULL

KILLS = 300 if FULL else 15
VICTIM = Path(__file__).with_name("builtin_victim.py")


class Left(NamedTuple):
    """What is in the file at the end."""

    main: Counter[str]
    dead: Counter[str]


@contextmanager
def nursery(folder: Path, log: Path) -> Iterator[Callable[[int], None]]:
    """Give a call that makes a victim for a round and kills it.

    Each third one is killed at any moment of its life, opening the file included; the others are
    left to open it first, or to have something confirmed, so that a slow machine has them at work
    too.
    """
    command = [sys.executable, str(VICTIM), str(folder), str(log)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        talk, listen = process.stdin, process.stdout
        assert talk is not None
        assert listen is not None

        def live_and_die(number: int) -> None:
            size = log.stat().st_size
            print(number, file=talk, flush=True)
            victim = int(listen.readline())
            ends = time.monotonic() + 60
            awaited = (b"", b"open", b"confirm")[number % 3]
            while awaited not in noted(log, size) and time.monotonic() < ends:
                time.sleep(0.001)
            time.sleep(random.uniform(0.0, 0.4))
            os.kill(victim, signal.SIGKILL)
            assert int(listen.readline()) == -signal.SIGKILL

        yield live_and_die
        _, complaints = process.communicate(timeout=60)
        assert not complaints


def noted(log: Path, since: int) -> bytes:
    with log.open("rb") as facts:
        facts.seek(since)
        return facts.read()


async def left(folder: Path) -> Left:
    """Open the file and take everything out of it."""
    async with opened(folder) as broker:
        dead: Counter[str] = Counter()
        cursor = None
        while True:
            page, cursor = await broker.dead_letters(QUEUE).browse(cursor, 100)
            for record in page:
                assert is_whole(record.job.payload, record.job.id)
                dead[key(record.job, dead=True)] += 1
            if cursor is None:
                break
        depth = await broker.depth(QUEUE)
        assert depth is not None
        hands = Hands()
        broker.subscribe(QUEUE, hands, prefetch=1_000_000)
        await hands.hold(depth.ready + depth.waiting)
        assert all(is_whole(each.job.payload, each.job.id) for each in hands.came)
        return Left(Counter(key(each.job) for each in hands.came), dead)


def is_whole(payload: bytes, job_id: str) -> bool:
    times, rest = divmod(len(payload), len(job_id))
    return rest == 0 and times in (1, 10, 1000) and payload == job_id.encode() * times


def next_of(dead_key: str) -> str:
    """Return the key that a dead letter has when it is redriven."""
    job_id, redrives, _, _ = dead_key.split("/")
    return f"{job_id}/{int(redrives) + 1}/1"


class Notes:
    """The facts of all rounds, read in order."""

    def __init__(self, rounds: list[list[str]]) -> None:
        self.copies: Counter[str] = Counter()
        self.confirmed: Counter[str] = Counter()
        self.delivered: Counter[str] = Counter()
        self.acked: Counter[str] = Counter()
        self.safely_acked: Counter[str] = Counter()
        self.excuses: Counter[str] = Counter()
        for facts in rounds:
            self._read(facts)

    def _read(self, facts: list[str]) -> None:
        in_flight: Counter[str] = Counter()
        acks: list[str] = []
        acks_before: dict[str, int] = {}
        safe = 0
        for fact in facts:
            what, _, of = fact.partition(" ")
            match what:
                case "try":
                    self.copies[of] += 1
                    if of.endswith("/dead"):
                        self.copies[next_of(of)] += 1
                    acks_before[of] = len(acks)
                case "confirm":
                    self.confirmed[of] += 1
                    newly_safe = acks[safe : acks_before[of]]
                    self.safely_acked.update(newly_safe)
                    in_flight.subtract(newly_safe)
                    safe += len(newly_safe)
                case "deliver":
                    self.delivered[of] += 1
                    in_flight[of] += 1
                case "ack":
                    self.acked[of] += 1
                    acks.append(of)
                case "back":
                    self.excuses[of] += 1
                    in_flight[of] -= 1
        self.excuses += in_flight


@pytest.mark.timeout(3600 if FULL else 300)
async def test_killed_at_any_moment_the_file_loses_nothing_that_was_confirmed(
    tmp_path: Path,
) -> None:
    folder, log = tmp_path / "data", tmp_path / "log"
    log.touch()
    rounds = []
    read = 0
    with nursery(folder, log) as live_and_die:
        for number in range(KILLS):
            live_and_die(number)
            facts = log.read_bytes()[read:]
            read += len(facts)
            rounds.append(facts.decode().splitlines())
    notes = Notes(rounds)
    rest = await left(folder)
    figures = {
        "kills": KILLS,
        "rounds that got to work": sum("open" in facts for facts in rounds),
        "confirmed": notes.confirmed.total(),
        "delivered": notes.delivered.total(),
        "delivered more than once": sum(n - 1 for n in notes.delivered.values()),
        "handed back": sum(fact.startswith("back ") for facts in rounds for fact in facts),
        "redrives": sum(facts.count("redrive") for facts in rounds),
        "left in the file": rest.main.total() + rest.dead.total(),
    }
    print(figures)  # noqa: T201 - shown with pytest -s or when it fails
    assert notes.confirmed

    assert not lost(notes, rest), "confirmed, never acknowledged, and not in the file"
    assert not lost_letters(notes, rest), "confirmed, and neither in the file nor redriven"
    kept = rest.main + rest.dead
    assert not kept - (notes.copies - notes.safely_acked), "never published, or safely acked"
    unexcused = notes.delivered - (notes.copies + notes.excuses)
    assert not unexcused, "came again though no delivery was in flight at a kill"
    repeated = notes.safely_acked - notes.copies
    assert not repeated, "was done for good more often than it was published"


def lost(notes: Notes, rest: Left) -> Counter[str]:
    """Return jobs that were confirmed more often than they were acknowledged or are left."""
    expected = Counter({of: n for of, n in notes.confirmed.items() if not of.endswith("/dead")})
    return expected - (notes.acked + rest.main)


def lost_letters(notes: Notes, rest: Left) -> Counter[str]:
    """Return dead letters that are not left and did not come back to the main stage either."""
    expected = Counter({of: n for of, n in notes.confirmed.items() if of.endswith("/dead")})
    redriven = Counter(
        {of: rest.main[next_of(of)] + notes.delivered[next_of(of)] for of in expected}
    )
    return expected - (rest.dead + redriven)
