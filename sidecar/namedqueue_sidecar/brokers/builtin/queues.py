"""One live queue: jobs arrive, are given out and come back, and time passes.

A job is in exactly one of these places: on its way to the storage (`_arriving` counts those that
need room), in the main index, held by a consumer, in the dead index, or on its way from one index
to another, claimed by the change that moves it. It enters an index only when its commit is done,
so whatever is given out is in the storage.

Due jobs and hand-backs are let in past `maxLength`: they were accepted once, and refusing them now
would leave them nowhere to go.
"""

from collections.abc import Sequence
from typing import Final

from namedqueue import codes, ladder
from namedqueue import headers as h
from namedqueue.deadletters import (
    DeadLetterRecord,
    bury,
    decode_dead_letter,
    encode_dead_letter,
)
from namedqueue.envelope import Job, decode, encode
from namedqueue.retry import DeadLetter
from namedqueue_sidecar.brokers.builtin.consumers import Consumer
from namedqueue_sidecar.brokers.builtin.index import DeadIndex, MainIndex
from namedqueue_sidecar.brokers.builtin.journal import RETRY_PAUSE
from namedqueue_sidecar.brokers.builtin.storage import (
    Batch,
    Message,
    Placed,
    QueueRow,
    Settings,
)
from namedqueue_sidecar.brokers.builtin.surroundings import Surroundings, Timer
from namedqueue_sidecar.brokers.port import Delivery, Depth, QueueKey

EXPIRED: Final = DeadLetter(codes.EXPIRED, "the job waited longer than the queue's messageTTL")
_AT_ONCE: Final = 1_000
"""Jobs that expire or go in one change, so that a large backlog does not hold up the loop."""


class Queue:
    """A queue of jobs, and the dead letters of one that has them."""

    def __init__(
        self, row: QueueRow, surroundings: Surroundings, consumers: list[Consumer]
    ) -> None:
        """Serve `consumers`, a list that the broker adds to and removes from."""
        self.id = row.id
        self.key = QueueKey(row.namespace, row.name)
        self.settings = row.settings
        self.dead = DeadIndex()
        self._main = MainIndex(row.settings.max_priority)
        self._arriving = 0
        self._s = surroundings
        self._consumers = consumers
        self._serving = False
        self._alarm: Timer | None = None
        self._alarm_at = 0
        self._gone = False
        for consumer in consumers:
            consumer.queue = self

    # Arrivals

    @property
    def room(self) -> int | None:
        """How many more jobs may become ready; None for any number."""
        most = self.settings.max_length
        return None if most is None else max(0, most - self._main.ready - self._arriving)

    def place(self, job: Job, delay_ms: int = 0) -> tuple[Placed, Message]:
        """Return a job as it will be stored; `arrived` or `failed` must follow."""
        properties, headers = encode(job)
        wait = ladder.round_up(max(0, delay_ms))
        if wait == 0:
            self._arriving += 1
        return (
            self._placed(job, dead=False, at=self._s.now_ms() + wait),
            Message(properties, headers, job.payload),
        )

    def place_dead(self, record: DeadLetterRecord) -> tuple[Placed, Message]:
        """Return a dead letter as it will be stored; `arrived` or `failed` must follow."""
        properties, headers = encode_dead_letter(record)
        return (
            self._placed(record.job, dead=True, at=self._s.now_ms()),
            Message(properties, headers, record.job.payload),
        )

    def _placed(self, job: Job, *, dead: bool, at: int) -> Placed:
        seq = next(self._s.seqs)
        return Placed(seq, self.id, dead, at, job.priority, h.job_id(job.id) or _fresh_id(seq))

    def arrived(self, placed: Placed, *, waited: bool = False) -> None:
        """Take in what is stored now; `waited` if it did not need room."""
        if placed.dead:
            self.dead.add(placed)
            self._wake_at(placed.at + self.settings.retention_ms)
            return
        if not waited:
            self._arriving -= 1
        self._take_in(placed)

    def failed(self, placed: Placed, *, waited: bool = False) -> None:
        """Know that it was not stored."""
        if not placed.dead and not waited:
            self._arriving -= 1

    def _take_in(self, placed: Placed) -> None:
        self._main.add(placed, self._s.now_ms())
        if placed.at > self._s.now_ms():
            self._wake_at(placed.at)
        elif self.settings.message_ttl_ms is not None:
            self._wake_at(placed.at + self.settings.message_ttl_ms)
        self.serve_soon()

    # Deliveries

    def attach(self, consumer: Consumer) -> None:
        """Begin to serve a consumer that the broker has put on the list."""
        consumer.queue = self
        self.serve_soon()

    def serve_soon(self) -> None:
        """Look for jobs to give out when this turn of the loop is over."""
        if not self._serving and self._main.ready and self._consumers and not self._gone:
            self._serving = True
            self._s.loop.call_soon(self._serve)

    def done(self, jobs: Sequence[Placed]) -> None:
        """Remove jobs that a consumer held."""
        self._s.journal.remove([placed.seq for placed in jobs])
        self.serve_soon()

    def returned(self, jobs: Sequence[Placed]) -> None:
        """Take back jobs that a consumer held."""
        for placed in jobs:
            self._take_in(placed)

    def _serve(self) -> None:
        self._serving = False
        if self._gone:
            return
        self._pass_time()
        given = [(each, self._deliveries(each, jobs)) for each, jobs in self._shares()]
        for consumer, deliveries in given:
            if deliveries:
                self._hand_over(consumer, deliveries)

    def _hand_over(self, consumer: Consumer, deliveries: Sequence[Delivery]) -> None:
        """One receiver that raises must not keep the others from theirs."""
        try:
            consumer.receiver.deliver(deliveries)
        except Exception as fault:  # noqa: BLE001 - reported to the loop, as for any callback
            self._report("a receiver raised", fault)

    def _shares(self) -> list[tuple[Consumer, list[Placed]]]:
        """Deal the next jobs out to the consumers, one at a time, as far as each has room."""
        hungry = [(consumer, room) for consumer in self._eligible() if (room := consumer.room)]
        jobs = self._main.take(sum(room for _, room in hungry))
        shares: list[tuple[Consumer, list[Placed]]] = [(consumer, []) for consumer, _ in hungry]
        rooms = [room for _, room in hungry]
        turn = 0
        for placed in jobs:
            while len(shares[turn][1]) >= rooms[turn]:
                turn = (turn + 1) % len(shares)
            shares[turn][1].append(placed)
            turn = (turn + 1) % len(shares)
        if hungry and not self.settings.fifo:  # whoever was first comes last next time
            self._consumers.append(self._consumers.pop(0))
        return [(consumer, share) for consumer, share in shares if share]

    def _eligible(self) -> Sequence[Consumer]:
        """Return who may have jobs: of a FIFO queue only the one who holds some, if any does."""
        if not self.settings.fifo:
            return self._consumers
        holding = [consumer for consumer in self._consumers if consumer.held]
        if holding:
            return [consumer for consumer in holding if not consumer.has_to_finish]
        return [consumer for consumer in self._consumers if consumer.room][:1]

    def _deliveries(self, consumer: Consumer, jobs: Sequence[Placed]) -> list[Delivery]:
        taken = self._taken(jobs)
        first = [placed.seq for placed, _ in taken if not placed.delivered]
        if first:
            self._s.journal.mark_delivered(first)
        deliveries = []
        for placed, job in taken:
            tag = next(self._s.tags)
            consumer.held[tag] = placed if placed.delivered else placed._replace(delivered=True)
            deliveries.append(Delivery(job, tag, placed.delivered))
        return deliveries

    def _taken(self, jobs: Sequence[Placed]) -> list[tuple[Placed, Job]]:
        """Read jobs that were taken out of the index; all go back if they cannot be read now."""
        try:
            messages = self._s.storage.read([placed.seq for placed in jobs])
        except Exception as fault:  # noqa: BLE001 - reported to the loop, and tried again
            self._report("jobs could not be read from the storage", fault)
            self._s.loop.call_later(RETRY_PAUSE, self.returned, jobs)
            return []
        return [
            (placed, self._job(placed, message))
            for placed, message in zip(jobs, messages, strict=True)
        ]

    def _job(self, placed: Placed, message: Message) -> Job:
        return decode(
            message.properties,
            message.headers,
            message.payload,
            queue=self.key.name,
            fresh_id=placed.job_id,
            now=placed.at,
        )

    def _report(self, what: str, fault: Exception) -> None:
        self._s.loop.call_exception_handler({"message": f"{self.key}: {what}", "exception": fault})

    # Dead letters

    def records(self, letters: Sequence[Placed]) -> list[DeadLetterRecord]:
        """Return what the storage holds of dead letters."""
        messages = self._s.storage.read([placed.seq for placed in letters])
        return [
            decode_dead_letter(
                message.properties,
                message.headers,
                message.payload,
                queue=self.key.name,
                fresh_id=placed.job_id,
                now=placed.at,
            )
            for placed, message in zip(letters, messages, strict=True)
        ]

    async def discard(self, letters: Sequence[Placed]) -> None:
        """Remove dead letters for good."""
        self.dead.remove(letters)
        change = Batch(removed=[placed.seq for placed in letters])

        def removed(error: Exception | None) -> None:
            if error is not None:
                self._restore(letters)

        await self._s.journal.written(change, removed)

    async def redrive(self, letters: Sequence[Placed], jobs: Sequence[Job]) -> None:
        """Send jobs to the main stage in place of dead letters, added and removed at once."""
        self.dead.remove(letters)
        added = [self.place(job) for job in jobs]
        change = Batch(added=added, removed=[placed.seq for placed in letters])

        def moved(error: Exception | None) -> None:
            for placed, _ in added:
                (self.arrived if error is None else self.failed)(placed)
            if error is not None:
                self._restore(letters)

        await self._s.journal.written(change, moved)

    def _restore(self, letters: Sequence[Placed]) -> None:
        for placed in letters:
            self.dead.add(placed)

    # Time

    def _wake_at(self, moment: int) -> None:
        if self._gone or (self._alarm is not None and self._alarm_at <= moment):
            return
        self._set_alarm(moment)

    def _set_alarm(self, moment: int) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm_at = moment
        pause = max(0, moment - self._s.now_ms()) / 1000
        self._alarm = self._s.call_later(pause, self._alarm_rang)

    def _alarm_rang(self) -> None:
        self._alarm = None
        self._pass_time()
        self.serve_soon()
        moments = [
            self._main.next_due,
            _after(self._main.oldest_ready, self.settings.message_ttl_ms),
            _after(self.dead.oldest, self.settings.retention_ms),
        ]
        coming = [moment for moment in moments if moment is not None]
        if coming:
            self._wake_at(min(coming))

    def _pass_time(self) -> None:
        now = self._s.now_ms()
        self._main.promote(now)
        if self.settings.message_ttl_ms is not None:
            self._expire(self._main.take_older(now - self.settings.message_ttl_ms), now)
        oldest = self.dead.oldest
        if oldest is not None and oldest + self.settings.retention_ms <= now:
            letters = self.dead.older(now - self.settings.retention_ms)
            self.dead.remove(letters)
            self._s.journal.remove([placed.seq for placed in letters])

    def _expire(self, jobs: Sequence[Placed], now: int) -> None:
        for start in range(0, len(jobs), _AT_ONCE):
            self._bury(jobs[start : start + _AT_ONCE], now)

    def _bury(self, jobs: Sequence[Placed], now: int) -> None:
        taken = self._taken(jobs)
        letters = [self.place_dead(bury(job, EXPIRED, None, now)) for _, job in taken]
        change = Batch(added=letters, removed=[placed.seq for placed, _ in taken])

        def buried(error: Exception | None) -> None:
            if error is None:
                for placed, _ in letters:
                    self.arrived(placed)
            else:
                self._s.loop.call_later(RETRY_PAUSE, self.returned, jobs)

        if letters:
            self._s.journal.write(change, buried)

    # Life

    def apply(self, settings: Settings) -> None:
        """Follow a changed spec."""
        main = MainIndex(settings.max_priority)
        now = self._s.now_ms()
        for placed in self._main:
            main.add(placed, now)
        self._main = main
        self.settings = settings
        self._set_alarm(now)

    def depth(self) -> Depth:
        """Return how many jobs are where."""
        self._pass_time()
        held = sum(len(consumer.held) for consumer in self._consumers)
        return Depth(self._main.ready, held, self._main.waiting, len(self.dead))

    def close(self) -> None:
        """Void what was given out, and do nothing any more."""
        self._gone = True
        self.dead = DeadIndex()
        self._main = MainIndex(0)
        if self._alarm is not None:
            self._alarm.cancel()
        for consumer in tuple(self._consumers):
            consumer.lose()


def _fresh_id(seq: int) -> str:
    return f"builtin-{seq}"


def _after(moment: int | None, span: int | None) -> int | None:
    return None if moment is None or span is None else moment + span
