"""The redrives of this process: one at a time for each queue, and the last one to look at."""

from collections.abc import Callable

from namedqueue_sidecar.brokers.port import Busy, DeadLetters, QueueKey
from namedqueue_sidecar.redriving.runs import Run

_PATIENCE = 5.0
"""Seconds that another process may still hold the queue's redrive stage."""


class Redrives:
    """Runs redrives, and knows how far they are."""

    def __init__(self, dead_letters: Callable[[QueueKey], DeadLetters]) -> None:
        self._dead_letters = dead_letters
        self._runs: dict[QueueKey, Run] = {}
        self._under_way: set[QueueKey] = set()

    def latest(self, key: QueueKey) -> Run | None:
        """Return the redrive that is under way, or else the last one."""
        return self._runs.get(key)

    async def run(self, key: QueueKey, run: Run) -> None:
        """See a redrive through; `Busy` while another one is under way."""
        if key in self._under_way:
            raise Busy(f"another redrive of {key} is under way")
        self._under_way.add(key)
        self._runs[key] = run
        try:
            await run.go(self._dead_letters(key), _PATIENCE)
        except BaseException:
            run.fail("it was cut short; what was sent is sent, the rest is still there")
            raise
        finally:
            self._under_way.discard(key)

    def stop(self) -> None:
        """Let no redrive take a further letter."""
        for key in self._under_way:
            self._runs[key].stop()
