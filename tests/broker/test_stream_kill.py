"""kill -9 at random moments while a stream is written to a builtin file and followed from it.

One file lives through all the kills. In each round the group goes on at its cursor: it repeats at
most what was done since the last commit, and it never skips. What was confirmed stays, in order.
"""

# ruff: noqa: S311 - chances, not secrets

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from broker.port.play import eventually
from broker.stream_victim import QUEUE
from fixtures.builtin import opened
from fixtures.scale import FULL
from namedqueue.positions import End
from namedqueue_sidecar.brokers.port import Entry

KILLS = 100 if FULL else 6
VICTIM = Path(__file__).with_name("stream_victim.py")


def live_and_die(folder: Path, log: Path) -> list[str]:
    """Let a victim work for a moment, kill it, and return what it noted."""
    before = log.stat().st_size
    with subprocess.Popen([sys.executable, str(VICTIM), str(folder), str(log)]) as victim:
        ends = time.monotonic() + 60
        while b"done" not in log.read_bytes()[before:]:
            assert victim.poll() is None
            assert time.monotonic() < ends, "it got to work"
            time.sleep(0.005)
        time.sleep(random.uniform(0.0, 0.8))
        os.kill(victim.pid, signal.SIGKILL)
    return log.read_bytes()[before:].decode().splitlines()


@pytest.mark.timeout(3600 if FULL else 300)
async def test_a_killed_follower_repeats_at_most_what_it_had_not_committed_and_never_skips(
    tmp_path: Path,
) -> None:
    log = tmp_path / "log"
    log.touch()
    sent, kept, furthest, repeated, done_in_all = 0, 0, -1, 0, 0
    for _ in range(KILLS):
        facts = [fact.split() for fact in live_and_die(tmp_path / "data", log)]
        done = [int(fact[1]) for fact in facts if fact[0] == "done"]
        assert all(fact[1] == fact[2] for fact in facts if fact[0] == "done")
        assert done == list(range(done[0], done[0] + len(done))), "in order, without a gap"
        assert kept <= done[0] <= furthest + 1, "more was repeated than had to be, or skipped"
        repeated += furthest + 1 - done[0]
        done_in_all += len(done)
        furthest = max(furthest, done[-1])
        kept = max([kept, *(int(fact[1]) for fact in facts if fact[0] == "kept")])
        sent = max([sent, *(int(fact[1]) + 1 for fact in facts if fact[0] == "sent")])
    print({"kills": KILLS, "sent": sent, "done": done_in_all, "repeated": repeated})  # noqa: T201
    async with opened(tmp_path / "data") as broker:
        stream, seen = broker.log(QUEUE), list[Entry]()
        _, following = await stream.span()
        assert following >= sent, "something confirmed is lost"
        stream.read(End.FIRST, seen.extend, following)
        await eventually(lambda: len(seen) == following, "all was read")
        assert [entry.job.payload for entry in seen] == [str(n).encode() for n in range(following)]
        assert kept <= (await stream.cursor("audit") or 0) <= furthest + 1
