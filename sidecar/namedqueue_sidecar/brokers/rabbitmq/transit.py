"""Jobs between the dead letters and the main stage.

`namedqueue.topology.redrive` says why there is a queue in between. Whoever moves jobs through it
consumes it, alone. Besides jobs it holds a note, which says how many jobs the redrive has sent. The
note is written before the jobs that it counts are let go, and each job says in which batch it came,
so whoever finds both knows exactly how many were let go, whenever his predecessor was killed:

    publish a batch here · remove the letters · write the note · let the batch go

The note also names the letters that were moved last. A broker in a hurry keeps acknowledgements
back and forgets them with their channel, so a letter that was removed may be there again. It cannot
be further back than what one consumer may hold. Whoever comes next must know them, so a note is
kept, whichever redrive it is of, until another one says the same.

Publishing and consuming share one channel. The broker ends a channel only after all that it was
told by it, and serves the next consumer only after that, so a successor finds whatever his
predecessor has sent.
"""

import asyncio
import contextlib
import json
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, NamedTuple
from uuid import uuid4

from aiormq.abc import DeliveredMessage
from aiormq.connection import Connection
from aiormq.exceptions import ChannelNotFoundEntity
from pamqp.commands import Basic

from namedqueue import headers as h
from namedqueue.envelope import Job
from namedqueue.topology.names import Names
from namedqueue_sidecar.brokers.port import Busy, Missing, QueueKey, Verdict
from namedqueue_sidecar.brokers.rabbitmq.channel import RPC_SECONDS, LeanChannel
from namedqueue_sidecar.brokers.rabbitmq.connection import connect
from namedqueue_sidecar.brokers.rabbitmq.credentials import Provider
from namedqueue_sidecar.brokers.rabbitmq.messages import Outgoing, sent_back
from namedqueue_sidecar.brokers.rabbitmq.publishing import DEADLINE, Batch, Line

MOST_AT_ONCE: Final = 500
"""Jobs of one batch."""

LOOK_BACK: Final = 4 * MOST_AT_ONCE
"""Letters that are remembered: twice as many as a redrive holds at a time."""

_KEY: Final = 16
_NOTE: Final = "namedqueue.redrive-note"
_BATCH: Final = "nq-redrive-batch"
_LETTER: Final = "nq-letter"
_PREFETCH: Final = 2 * MOST_AT_ONCE + 100
_CALL_AGAIN: Final = 1.0
_ARRIVAL_SECONDS: Final = 30.0


class _Passing(NamedTuple):
    """A job in the stage, in our hands."""

    tag: int
    redrive: str
    batch: int
    letter: str


class _Note(NamedTuple):
    """What a redrive has sent, up to and with a batch."""

    tag: int
    redrive: str
    batch: int
    done: int
    letters: Sequence[str]


class Transit:
    """The redrive stage of one queue in the hands of one redrive."""

    def __init__(
        self, connection: Connection, channel: LeanChannel, queue: QueueKey, redrive: str
    ) -> None:
        self._channel = channel
        self._queue = queue
        self._redrive = redrive
        self._stage = Names(*queue).redrive
        self._line = Line(channel, connection)
        self._line.known.add(self._stage)
        self._under_way: set[Batch] = set()
        self._passing: list[_Passing] = []
        self._notes: list[_Note] = []
        self._call = ""
        self._came = asyncio.Event()
        self._batch = 0
        self.done = 0
        """Jobs that this redrive has sent, in all its runs."""
        self._moved: deque[str] = deque(maxlen=LOOK_BACK)
        channel.on_message = self._take
        channel.closing.add_done_callback(lambda _: self._came.set())

    async def take_over(self, patience: float) -> None:
        """Become the one who moves jobs, and learn what a predecessor has left."""
        await self._channel.basic_qos(prefetch_count=_PREFETCH, timeout=RPC_SECONDS)
        await self._channel.basic_consume(self._stage, _unused, timeout=RPC_SECONDS)
        try:
            async with asyncio.timeout(patience):
                await self._answered_call()
        except TimeoutError:
            raise Busy(f"another redrive of {self._queue} is under way") from None
        await self._answered_call()
        while await self._count(self._stage):
            await self._answered_call()
        self._learn()

    async def put(self, letters: Sequence[tuple[str, Job]]) -> None:
        """Bring jobs here, each under the name of its letter; safe when this returns."""
        self._batch += 1
        self._moved.extend(letter[:_KEY] for letter, _ in letters)
        expected = len(self._passing) + len(letters)
        marks = [{_BATCH: self._batch, _LETTER: letter[:_KEY]} for letter, _ in letters]
        await self._publish(
            [
                sent_back(self._queue, job, mark)
                for (_, job), mark in zip(letters, marks, strict=True)
            ]
        )
        async with asyncio.timeout(_ARRIVAL_SECONDS):
            while len(self._passing) < expected:
                await self._something_came()

    async def count(self) -> None:
        """Write down that all that is here counts as sent."""
        self.done += len([job for job in self._passing if job.redrive == self._redrive])
        await self._write_note()

    def has_moved(self, letter: str, *, once: bool) -> bool:
        """Tell whether a letter's job was sent already; `once` for one that may have a twin."""
        key = letter[:_KEY]
        if key not in self._moved:
            return False
        if once:
            self._moved.remove(key)
        return True

    @property
    def resumes(self) -> bool:
        """Whether a predecessor has moved letters."""
        return bool(self._moved)

    @property
    def is_clear(self) -> bool:
        """Whether nothing of ours is here."""
        return not self._passing and not self._notes

    @property
    def waiting(self) -> int:
        """How many jobs are here."""
        return len(self._passing)

    def let_go(self, jobs: int) -> None:
        """Send so many jobs on to the main stage."""
        going, self._passing = self._passing[:jobs], self._passing[jobs:]
        reject = [self._channel.method(Basic.Reject(job.tag, requeue=False)) for job in going]
        self._channel.send(b"".join(reject))

    async def ready_in_main(self) -> int:
        """Return how many jobs wait for a worker."""
        return await self._count(Names(*self._queue).main)

    async def forget(self) -> None:
        """Remove the note: the redrive is over."""
        self._drop(self._notes)
        self._notes = []
        await self._count(self._stage)

    def _learn(self) -> None:
        """Read the note, if there is one, and count what a predecessor could not let go."""
        notes = [note for note in self._notes if note.redrive == self._redrive]
        newest = max(notes, key=lambda note: (note.batch, note.done), default=None)
        self.done = newest.done if newest else 0
        self._batch = max([self._batch, *(note.batch for note in notes)])
        mine = [job for job in self._passing if job.redrive == self._redrive]
        counted = [job for job in mine if newest is not None and job.batch <= newest.batch]
        self.done -= len(counted)
        self._batch = max([self._batch, *(job.batch for job in mine)])
        for note in sorted(self._notes, key=lambda note: note is newest):
            self._moved.extend(note.letters)
        self._moved.extend(job.letter for job in self._passing if job not in counted)

    async def _write_note(self) -> None:
        before = self._notes
        self._notes = []
        note = {
            "redrive": self._redrive,
            "batch": self._batch,
            "done": self.done,
            "letters": list(self._moved),
        }
        await self._publish([self._message(note)])
        async with asyncio.timeout(_ARRIVAL_SECONDS):
            while not self._notes:
                await self._something_came()
        self._drop(before)

    async def _answered_call(self) -> None:
        """Send ourselves a message and wait for it: all that was here before has come by then.

        While another one is served he gets it, and drops it; so call until it is our turn.
        """
        self._call = uuid4().hex
        while self._call:
            await self._publish([self._message({"call": self._call})])
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_CALL_AGAIN):
                    while self._call:
                        await self._something_came()

    def _take(self, message: DeliveredMessage) -> None:
        tag, properties = message.delivery_tag or 0, message.header.properties
        headers = properties.headers or {}
        if properties.message_type == _NOTE and _BATCH not in headers:
            self._read(json.loads(message.body), tag)
        else:
            redrive = h.text(headers.get(h.REDRIVE)) or ""
            batch, letter = headers.get(_BATCH), h.text(headers.get(_LETTER)) or ""
            number = batch if isinstance(batch, int) else 0
            self._passing.append(_Passing(tag, redrive, number, letter))
        self._came.set()

    def _read(self, note: dict[str, Any], tag: int) -> None:
        if "call" not in note:
            self._notes.append(_Note(tag, **note))
            return
        self._channel.send(self._channel.method(Basic.Ack(tag)))
        if note["call"] == self._call:
            self._call = ""

    async def _something_came(self) -> None:
        self._came.clear()
        if self._channel.is_closed:
            raise ConnectionError("the connection to the broker is gone")
        await self._came.wait()

    async def _publish(self, messages: Sequence[Outgoing]) -> None:
        settled: asyncio.Future[Sequence[Verdict]] = asyncio.get_running_loop().create_future()

        def note(verdicts: Sequence[Verdict]) -> None:
            if not settled.done():
                settled.set_result(verdicts)

        batch = Batch(len(messages), note, DEADLINE, self._under_way)
        self._line.send(batch, messages)
        if set(await settled) - {Verdict.CONFIRMED}:
            raise ConnectionError("the broker did not confirm what is sent back; it stays safe")

    def _message(self, note: dict[str, Any]) -> Outgoing:
        job = Job(uuid4().hex, self._queue.name, json.dumps(note).encode(), 0, 0, type=_NOTE)
        return sent_back(self._queue, job, {})

    def _drop(self, notes: Sequence[_Note]) -> None:
        acks = [self._channel.method(Basic.Ack(note.tag)) for note in notes]
        if acks:
            self._channel.send(b"".join(acks))

    async def _count(self, queue: str) -> int:
        found = await self._channel.queue_declare(queue, passive=True, timeout=RPC_SECONDS)
        return found.message_count or 0


@asynccontextmanager
async def in_transit(
    credentials: Provider, vhost: str, queue: QueueKey, redrive: str, patience: float
) -> AsyncIterator[Transit]:
    """Lend the redrive stage of a queue; `Busy` if another one has it for too long."""
    connection = await connect(credentials(), vhost, f"{queue.name} redrive")
    try:
        channel = await LeanChannel.opened(connection, confirms=True)
        transit = Transit(connection, channel, queue, redrive)
        await transit.take_over(patience)
        yield transit
        await channel.flush()
    except ChannelNotFoundEntity:
        raise Missing(
            f"{queue} has no redrive stage; the operator makes one, and so does `nq run`"
        ) from None
    finally:
        with contextlib.suppress(Exception):
            await connection.close()


async def _unused(_: DeliveredMessage) -> None:
    """Satisfy aiormq: deliveries take the lean way."""
