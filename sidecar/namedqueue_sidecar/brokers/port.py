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
- None of the synchronous methods raises because of the network.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, Protocol, TypeAlias

from namedqueue.api.namedqueue import NamedQueue
from namedqueue.deadletters import DeadLetterRecord
from namedqueue.envelope import Job


class QueueKey(NamedTuple):
    """A queue's name across namespaces."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class Main(NamedTuple):
    """The stage where a job waits for a worker, now or after a delay."""

    queue: QueueKey
    job: Job
    delay_ms: int = 0


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


class DeadLetters(Protocol):
    """The dead letters of one queue, by browsing what the broker holds."""

    async def browse(
        self, after: str | None, limit: int
    ) -> tuple[Sequence[DeadLetterRecord], str | None]:
        """Return a page in order of arrival and the cursor of the next one; disturb nothing."""

    async def find(self, job_id: str) -> DeadLetterRecord | None:
        """Return one dead letter."""

    async def remove(self, job_ids: Sequence[str]) -> int:
        """Discard these dead letters and return how many there were."""

    async def redrive(self, choose: Callable[[DeadLetterRecord], bool], limit: int | None) -> int:
        """Send chosen dead letters back to the main stage.

        Each is published and confirmed before it is removed, so an interruption at any point
        leaves it in one of the two places, at worst in both, and never in neither.
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

    def publish(self, batch: Sequence[Publication], settled: Settled) -> None:
        """Send a batch; `settled` gets one verdict for each, in order."""

    def subscribe(
        self, queue: QueueKey, receiver: Receiver, prefetch: int, *, partitions: int = 0
    ) -> Subscription:
        """Begin deliveries, and begin them again by itself after each reconnect.

        `partitions` is how many a FIFO queue has, 0 for any other queue. They share the prefetch
        evenly, and each has at least one job of it.
        """

    async def depth(self, queue: QueueKey) -> Depth | None:
        """Return how many jobs are where; None for a queue that does not exist."""

    def dead_letters(self, queue: QueueKey) -> DeadLetters:
        """Return the queue's dead letters."""
