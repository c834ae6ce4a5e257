"""What the data plane needs of a broker, in the words of the domain.

The port is shaped for speed. Deliveries come in by callback, publishes and acknowledgements go out
in batches, and one call settles a whole batch. An adapter may be a lean wire, a library or a file;
the workers cannot tell.

Promises that every adapter keeps:

- `publish` settles each batch exactly once, within its deadline, whatever happens to the broker.
  CONFIRMED means that the broker has the job safe; UNKNOWN means that it may or may not.
- A delivery belongs to the connection it came by. When that is gone `Receiver.lost` is called
  once, and acknowledging its deliveries is a harmless no-op: the broker gives the jobs out again.
- `hand_back` returns a job to the queue without counting an attempt.
- The jobs of a FIFO queue's partition are in the hands of one subscription at a time. They come in
  the order of their arrival, also after they were handed back or their connection was lost. Who
  hands one back must finish, or hand back as well, what he holds; until then no more may come.
- A stream's entries come to each reading in order, without a gap and without a repetition, also
  across reconnects. A group is held by one holder at a time, in whichever pod.
- None of the synchronous methods raises because of the network.
"""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, Protocol, Self, TypeAlias

from namedqueue.api.namedqueue import NamedQueue
from namedqueue.deadletters import DeadLetterRecord
from namedqueue.envelope import Job
from namedqueue.positions import Position


class QueueKey(NamedTuple):
    """A queue's name across namespaces."""

    namespace: str
    name: str

    @classmethod
    def of(cls, queue: NamedQueue) -> Self:
        """Return the name of a queue with a manifest."""
        return cls(queue.metadata.namespace, queue.metadata.name)

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class Main(NamedTuple):
    """The stage where a job waits for a worker, now or after a delay.

    A job of an ephemeral queue is not `persistent`: it lives in the broker's memory.
    """

    queue: QueueKey
    job: Job
    delay_ms: int = 0
    persistent: bool = True


class Dead(NamedTuple):
    """The stage where a job waits for a person."""

    queue: QueueKey
    record: DeadLetterRecord


class Topic(NamedTuple):
    """Every queue of the namespace that subscribes to the job's topic."""

    namespace: str
    job: Job


Publication: TypeAlias = Main | Dead | Topic


class Verdict(Enum):
    """What the broker said of a publication."""

    CONFIRMED = "confirmed"
    UNROUTABLE = "unroutable"  # no queue takes it: an unknown queue, or nobody subscribes
    FULL = "full"  # the queue is at its maxLength
    UNKNOWN = "unknown"  # no word in time; it may have arrived


Settled: TypeAlias = Callable[[Sequence[Verdict]], None]


@dataclass(slots=True, eq=False)
class Delivery:
    """A job in our hands. `tag` means something to the adapter only."""

    job: Job
    tag: int
    redelivered: bool = False


class Receiver(Protocol):
    """What a worker offers to the adapter."""

    def deliver(self, deliveries: Sequence[Delivery]) -> None:
        """Take jobs over; each is later acknowledged or handed back."""

    def lost(self) -> None:
        """Know that every delivery taken so far is void."""


class Subscription(Protocol):
    """A worker's hold on a queue."""

    def ack(self, deliveries: Sequence[Delivery]) -> None:
        """Remove these jobs: they are done, or safe at their next stage."""

    def hand_back(self, deliveries: Sequence[Delivery]) -> None:
        """Return these jobs to the queue, uncounted."""

    def set_prefetch(self, jobs: int) -> None:
        """Bound how many jobs may be in our hands at once; 0 pauses deliveries."""

    async def stop(self) -> None:
        """End deliveries for good. Jobs in our hands may still be acknowledged or handed back."""

    async def close(self) -> None:
        """Let go; what is still in our hands goes back to the queue, uncounted."""


class Depth(NamedTuple):
    """How many jobs are where; None where the broker cannot say."""

    ready: int
    in_flight: int
    waiting: int
    dead: int


class Busy(Exception):  # noqa: N818  # not an error: it can be had later
    """Another redrive of the queue is under way."""


class Missing(LookupError):  # noqa: N818  # not an error: it can be had later
    """The broker has not, or not yet, what a manifest says; its text says what."""


class Course(Protocol):
    """How a redrive shall go, and who is told how it goes."""

    @property
    def name(self) -> str:
        """What the redrive is known by; one that was cut short is resumed under the same name."""

    @property
    def wary(self) -> int | None:
        """How many of its jobs may come back at the most; None for any number."""

    @property
    def at_once(self) -> int:
        """How many jobs may be on their way at the same time; 0 ends the redrive."""

    @property
    def ahead(self) -> int:
        """How many letters may be in hand while those that are chosen are looked for."""

    @property
    def most_ready(self) -> int | None:
        """The queue's `maxLength`: more must not be sent than there is room for."""

    def chooses(self, record: DeadLetterRecord) -> bool:
        """Tell whether a dead letter is to be sent back."""

    def sends(self, record: DeadLetterRecord) -> Job:
        """Return the job that goes back in place of a chosen letter."""

    def resumed(self, sent: int) -> None:
        """Know how many jobs earlier runs of this redrive have sent."""

    async def release(self, jobs: int) -> int:
        """Wait until some of these jobs may go, and return how many."""

    def sent(self, letters: Sequence[DeadLetterRecord]) -> None:
        """Know that these are sent."""

    def full(self) -> None:
        """End the redrive: there is no room in the queue."""

    def came_back(self, jobs: int) -> None:
        """Know how many jobs of this redrive are among the dead letters again."""

    async def ended(self) -> None:
        """Keep the result; afterwards the redrive is forgotten and cannot be resumed."""


class DeadLetters(Protocol):
    """The dead letters of one queue, by browsing what the broker holds."""

    async def browse(
        self, after: str | None, limit: int, reason: str | None = None
    ) -> tuple[Sequence[DeadLetterRecord], str | None]:
        """Return a page in order of arrival and the cursor of the next one; disturb nothing.

        With a reason only letters that failed for it are on the page.
        """

    def read(self) -> AsyncGenerator[DeadLetterRecord]:
        """Give every dead letter once, in any order; only a few are in memory."""

    async def find(self, job_id: str) -> DeadLetterRecord | None:
        """Return one dead letter."""

    async def remove(self, job_ids: Sequence[str]) -> int:
        """Discard these dead letters and return how many there were."""

    async def redrive(self, course: Course, patience: float) -> None:
        """Send chosen dead letters back to the main stage.

        Each is safe on its way before it is removed. However often a redrive is cut short and
        resumed, each job is sent once; one that fails again is not sent again by the same redrive.
        One redrive at a time moves a queue's letters: `Busy` if that is another one for longer
        than the patience, in seconds.
        """


class Entry(NamedTuple):
    """A message of a stream, and where it stands there.

    Offsets begin with 0 and grow from one message to the next, though not always by one.
    """

    offset: int
    job: Job


class Reading(Protocol):
    """A way through a stream that never ends by itself."""

    def done(self, entries: int) -> None:
        """Make room for as many more to come."""

    async def close(self) -> None:
        """Read no further."""


class Holder(Protocol):
    """Who wants to be the one that reads a stream for a group."""

    def granted(self, cursor: int | None) -> None:
        """Read on at this offset, for the group is ours; None if it never read before."""

    def moved(self, cursor: int) -> None:
        """Go on here instead: somebody sought."""

    def revoked(self) -> None:
        """Stop: another may be reading by now. `granted` is called again when it is ours again."""


class Hold(Protocol):
    """A wish to hold a group, or the hold itself."""

    async def release(self) -> None:
        """Let another one have it, or wish for it no longer; the holder is told nothing more."""


class Log(Protocol):
    """A stream: its messages, and how far each group has read.

    A group's cursor is the offset of the message it reads next. It outlives pods and brokers. What
    one client was told is kept, every other one knows from then on. Where the broker is away or
    silent for too long the coroutines raise ConnectionError.
    """

    def read(
        self, start: Position, receive: Callable[[Sequence[Entry]], None], ahead: int
    ) -> Reading:
        """Give out entries from a position on, at most so many ahead of what was `done`."""

    async def cursor(self, group: str) -> int | None:
        """Return where a group reads on; None if it never committed."""

    async def groups(self) -> Mapping[str, int]:
        """Return the cursor of each group that has one."""

    async def commit(self, group: str, cursor: int) -> None:
        """Keep how far a group has read; it is safe when this returns.

        A commit never moves a group back, and one that a `seek` overtook does nothing.
        """

    async def seek(self, group: str, to: Position) -> int:
        """Move a group, tell its holder, and return the cursor it has now."""

    async def locate(self, position: Position) -> int:
        """Return the offset that a position means now: of a message, or of the one to come."""

    async def span(self) -> tuple[int, int]:
        """Return the offset of the oldest message there is, and the one that comes next."""

    def hold(self, group: str, holder: Holder) -> Hold:
        """Wish to be the one reader of a group that the manifest lists among its consumers.

        The wish is renewed by itself after a reconnect.
        """


class Broker(Protocol):
    """A place that keeps jobs."""

    async def open(self) -> None:
        """Connect, and stay connected until `close`; returns when the first connection stands."""

    async def close(self) -> None:
        """Flush what is on its way and let go."""

    async def declare(self, queue: NamedQueue) -> None:
        """Make the queue exist as specified. In a cluster the operator has done so already."""

    async def undeclare(self, queue: QueueKey) -> None:
        """Forget a queue and all that is in it."""

    @property
    def unavailable(self) -> str | None:
        """Why publishing cannot work right now, as a sentence; None if it can."""

    def unavailable_for(self, queue: QueueKey | None) -> str | None:
        """Why nothing can be sent to a queue, or without one to topics; None if it can."""

    @property
    def interrupted(self) -> str | None:
        """Why no job comes to us, as a sentence; None if they come, or will in a moment.

        A connection that is lost and comes back at once is not worth a word.
        """

    def publish(self, batch: Sequence[Publication], settled: Settled) -> None:
        """Send a batch; `settled` gets one verdict for each, in order."""

    def subscribe(
        self, queue: QueueKey, receiver: Receiver, prefetch: int, *, partitions: int = 0
    ) -> Subscription:
        """Begin deliveries, and begin them again by itself after each reconnect.

        `partitions` is how many a FIFO queue has, 0 for any other queue. They share the prefetch
        evenly, and each has at least one job of it.
        """

    async def consumers(self, queue: QueueKey) -> int:
        """Return how many want jobs of a queue, here and elsewhere, as the broker counts them.

        RabbitMQ counts consumers, of which a subscription has one for each time its prefetch grew.
        """

    async def depth(self, queue: QueueKey) -> Depth | None:
        """Return how many jobs are where; None for a queue that does not exist."""

    def dead_letters(self, queue: QueueKey) -> DeadLetters:
        """Return the queue's dead letters."""

    def log(self, queue: QueueKey) -> Log:
        """Return a stream's messages and cursors."""
