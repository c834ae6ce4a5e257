"""What is known of a key, and what may follow from it: a job's effect happens once per key.

    received ──▶ processing ──▶ processed
                   ▲    │
                   │    ▼
                  failed ──▶ dead_lettered ──▶ processing (redriven, or sent again)

Whoever runs a job claims its key first. A claim is a lease: it is renewed while the job runs, and
when its holder dies it runs out and the next one may claim. Each claim has a fence, a number that
only grows; who comes late with an older one writes nothing.

A record that nobody needs any more expires, whatever its state: `ttl` after its end, or after its
lease. From then on it is as if it had never been. `received` is the state of a key without a
record: the delivery itself says that it was received.

A dead letter has had no effect, so its key may be claimed by a redrive, and by another job that a
producer sends with the same key. Only the very job that lies in the dead letters is a duplicate
of itself: a crash between its publication and its acknowledgement brought it back.

This is the whole of the rules as pure functions. The store does the same in SQL, many at a time,
and is held against them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum, StrEnum
from typing import Final, NamedTuple


class State(StrEnum):
    """Where a key stands."""

    RECEIVED = "received"
    PROCESSING = "processing"
    PROCESSED = "processed"
    FAILED = "failed"
    DEAD_LETTERED = "dead_lettered"


TERMINAL: Final = frozenset({State.PROCESSED, State.DEAD_LETTERED})

TRANSITIONS: Final[Mapping[State, frozenset[State]]] = {
    State.RECEIVED: frozenset({State.PROCESSING}),
    State.PROCESSING: frozenset({State.PROCESSED, State.FAILED}),
    State.FAILED: frozenset({State.PROCESSING, State.DEAD_LETTERED}),
    State.PROCESSED: frozenset(),
    State.DEAD_LETTERED: frozenset({State.PROCESSING}),
}


class Wanted(NamedTuple):
    """A wish to run a job: its key, and which job it is."""

    key: str
    job_id: str
    redrives: int = 0


class Claim(NamedTuple):
    """A key in our hands."""

    key: str
    fence: int


class Refused(Enum):
    """Why a job must not run."""

    DUPLICATE = "processed"
    IN_PROGRESS = "in-progress"


@dataclass(frozen=True, slots=True)
class Record:
    """What is known of a key; moments are milliseconds since the epoch."""

    state: State
    fence: int
    job_id: str
    redrives: int
    lease_until: int
    expires_at: int


@dataclass(frozen=True, slots=True)
class Terms:
    """For how many milliseconds a claim is leased, and a record kept."""

    lease: int
    ttl: int


def claim(
    record: Record | None, wanted: Wanted, terms: Terms, now: int
) -> tuple[Record, Claim] | Refused:
    """Return the record of a successful claim, or why the job must not run."""
    refused = _refused(record, wanted, now)
    if refused is not None:
        return refused
    fence = now if record is None else max(now, record.fence + 1)
    until = now + terms.lease
    made = Record(State.PROCESSING, fence, wanted.job_id, wanted.redrives, until, until + terms.ttl)
    return made, Claim(wanted.key, fence)


def renew(record: Record | None, fence: int, terms: Terms, now: int) -> Record | None:
    """Return the record with its lease renewed; None if the claim is lost."""
    if record is None or record.fence != fence or record.state is not State.PROCESSING:
        return None
    until = now + terms.lease
    return replace(record, lease_until=until, expires_at=until + terms.ttl)


def end(record: Record | None, fence: int, state: State, terms: Terms, now: int) -> Record | None:
    """Return the record after a job's end; None if the claim is lost, and nothing is written.

    `RECEIVED` gives a claim back unused: the lease is over, and the next one may claim. A dead
    letter failed before it was one, so that one step counts as two.
    """
    if record is None or record.fence != fence:
        return None
    if state is State.RECEIVED:
        if record.state is not State.PROCESSING:
            return None
        return replace(record, lease_until=now, expires_at=now + terms.ttl)
    if not _leads_to(record.state, state):
        return None
    return replace(record, state=state, lease_until=now, expires_at=now + terms.ttl)


def _leads_to(state: State, wanted: State) -> bool:
    if wanted is State.PROCESSING:
        return False  # that is for `claim` to say
    if wanted is State.DEAD_LETTERED and State.FAILED in TRANSITIONS[state]:
        state = State.FAILED
    return wanted in TRANSITIONS[state]


def _refused(record: Record | None, wanted: Wanted, now: int) -> Refused | None:
    if record is None or record.expires_at <= now:
        return None
    match record.state:
        case State.PROCESSING if record.lease_until > now:
            return Refused.IN_PROGRESS
        case State.PROCESSED:
            return Refused.DUPLICATE
        case State.DEAD_LETTERED if (record.job_id, record.redrives) == wanted[1:]:
            return Refused.DUPLICATE
        case _:
            return None
