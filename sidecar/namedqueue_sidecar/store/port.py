"""What the data plane needs of a store, in the words of the domain.

Whatever is asked may raise `Away`; then nothing is known to have been done, and it is asked again.
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple, Protocol, TypeAlias

from namedqueue.api.namedqueue import Idempotency
from namedqueue.deadletters import DeadLetterRecord
from namedqueue.idempotency import Claim, Refused, State, Terms, Wanted
from namedqueue.triage import OPEN, Review
from namedqueue_sidecar.brokers.port import QueueKey

Ending: TypeAlias = tuple[Claim, State]


class Claims(Protocol):
    """The keys of one queue. A batch names no key twice."""

    terms: Terms

    async def claim(self, wanted: Sequence[Wanted]) -> Sequence[Claim | Refused]:
        """Claim what may be claimed, and say of the rest why not."""

    async def end(self, endings: Sequence[Ending]) -> Sequence[bool]:
        """Write how jobs ended; False for a claim that was lost before, of which nothing is."""

    async def renew(self, claims: Sequence[Claim]) -> Sequence[bool]:
        """Renew leases, and say of each claim whether it is still ours."""


class Met(NamedTuple):
    """A dead letter that somebody has met, the name of its group, and how long to keep it."""

    record: DeadLetterRecord
    cause: str
    retention_ms: int


class Kept(NamedTuple):
    """A record: the letter, and what people and redrives have done with it."""

    number: int
    record: DeadLetterRecord
    state: Review
    cause: str
    redrive: str | None
    edited_to: str | None
    """The job that was sent in its place, with another payload."""


class Page(NamedTuple):
    """Some records in order, and the number behind which to look for more; None at the end.

    A page may be short or empty before the end: a search that no index answers looks at so many
    records at a time.
    """

    records: Sequence[Kept]
    following: int | None


class Group(NamedTuple):
    """Letters that probably have one cause; moments are milliseconds since the epoch."""

    cause: str
    reason: str
    message: str
    letters: int
    first: int
    last: int
    example: str


class Search(NamedTuple):
    """Which records are wanted; None means any."""

    states: frozenset[Review] = OPEN
    reason: str | None = None
    cause: str | None = None
    text: str | None = None
    contains: bytes | None = None
    since: int | None = None
    until: int | None = None


class Letters(Protocol):
    """The records of one queue's dead letters."""

    async def write(self, met: Sequence[Met]) -> None:
        """Keep records of letters; those that are known stay as they are."""

    async def page(self, search: Search, after: int, limit: int) -> Page:
        """Return the first records behind a number, the oldest first."""

    async def find(self, job_id: str) -> Kept | None:
        """Return the newest record of a job."""

    async def groups(self, search: Search) -> Sequence[Group]:
        """Count records by group, the largest first."""

    async def review(self, number: int, to: Review) -> bool:
        """Move a record to another state; False if its state does not lead there any more."""

    async def replayed(
        self, letters: Collection[str], redrive: str, edited_to: str | None = None
    ) -> None:
        """Note that the jobs of these letters were sent back, or an edited one in their place."""

    async def intend(self, number: int, edited_to: str | None) -> None:
        """Note that another job is about to be sent in place of a letter, or that none is."""

    async def remove(self, number: int) -> None:
        """Forget a record."""

    async def count_open(self) -> int:
        """Count the records whose jobs should still be among the dead letters."""


class Store(Protocol):
    """A place that remembers what became of jobs."""

    async def open(self) -> None:
        """Look for it, for as long as it takes; returns when it was found."""

    async def close(self) -> None:
        """Let go of it."""

    @property
    def unavailable(self) -> str | None:
        """Why there is no store to be had right now, as a sentence; None if there is."""

    def claims(self, queue: QueueKey, idempotency: Idempotency) -> Claims:
        """Return the keys of a queue."""

    def letters(self, queue: QueueKey) -> Letters:
        """Return the records of a queue's dead letters."""
