"""Publications on whose arrival a delivery waits.

A job moves on by being published to its next stage, confirmed, and only then acknowledged. The
outbox sees that through: it gathers the publications of one turn of the event loop into one
batch, and sends again what did not arrive for as long as its delivery is still ours. When the
delivery is void the broker gives the job out again, so there is nothing left to see through.

A full queue refuses a retry that has no delay. Waiting for room would hold the worker's slot, and
with all slots held nobody makes room; so such a job goes by the ladder, which is never full.

A stage that is not there is waited for, too, because the operator puts it back; a person is told,
for whatever else is wrong with it nobody would see.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, TypeAlias

from namedqueue.ladder import TICK_MS
from namedqueue_sidecar.brokers.port import Broker, Dead, Main, Publication, Topic, Verdict

Arrived: TypeAlias = Callable[[], None]
StillOurs: TypeAlias = Callable[[], bool]

_log = logging.getLogger(__name__)

_FIRST_PAUSE = 0.25
_LONGEST_PAUSE = 5.0


class _Letter(NamedTuple):
    publication: Publication
    arrived: Arrived
    still_ours: StillOurs
    pause: float = _FIRST_PAUSE


class Outbox:
    """Sends in batches, and again until it arrives."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._loop = asyncio.get_running_loop()
        self._letters: list[_Letter] = []
        self._under_way = 0

    def __len__(self) -> int:
        return len(self._letters) + self._under_way

    def send(self, publication: Publication, arrived: Arrived, still_ours: StillOurs) -> None:
        """Publish with the others of this turn; call `arrived` once it is confirmed."""
        self._post(_Letter(publication, arrived, still_ours))

    def _post(self, letter: _Letter) -> None:
        if not self._letters:
            self._loop.call_soon(self._flush)
        self._letters.append(letter)

    def _flush(self) -> None:
        letters, self._letters = self._letters, []
        self._under_way += len(letters)
        self._broker.publish(
            [letter.publication for letter in letters], partial(self._settle, letters)
        )

    def _settle(self, letters: Sequence[_Letter], verdicts: Sequence[Verdict]) -> None:
        self._under_way -= len(letters)
        for letter, verdict in zip(letters, verdicts, strict=True):
            if verdict is Verdict.CONFIRMED:
                letter.arrived()
            elif letter.still_ours():
                if verdict is Verdict.UNROUTABLE and letter.pause == _FIRST_PAUSE:
                    _warn(letter.publication)
                self._under_way += 1
                detour = _past_a_full_queue(letter) if verdict is Verdict.FULL else letter
                self._loop.call_later(letter.pause, self._again, detour)

    def _again(self, letter: _Letter) -> None:
        self._under_way -= 1
        if letter.still_ours():
            self._post(letter._replace(pause=min(letter.pause * 2, _LONGEST_PAUSE)))


def _warn(publication: Publication) -> None:
    where = publication.job.topic if isinstance(publication, Topic) else publication.queue
    wait = publication.delay_ms if isinstance(publication, Main) else 0
    _log.warning(
        "a job of %s waits here, for its next stage (%s, after %d ms) is not on the broker; if "
        "this goes on, look at the queue's TopologyReady condition",
        *(where, "dead letters" if isinstance(publication, Dead) else "main", wait),
        extra={"action": "publish"},
    )


def _past_a_full_queue(letter: _Letter) -> _Letter:
    match letter.publication:
        case Main(queue, job, delay_ms) if delay_ms < TICK_MS:
            return letter._replace(publication=Main(queue, job, TICK_MS))
        case _:
            return letter
