"""What is done with a job after an attempt.

The whole of it is one function from values to a value. Nothing here publishes, waits or draws a
random number, so the rules that decide whether a job is lost or doubled can be tried by the
thousand.
"""

from dataclasses import dataclass
from typing import Final, TypeAlias

from namedqueue import codes, ladder
from namedqueue.api.namedqueue import Retry as Policy
from namedqueue.outcomes import Kind, Outcome

MOST_THROTTLES: Final = 100
"""How often a job may be put off by `Retry-After` without using an attempt."""


@dataclass(frozen=True, slots=True)
class Ack:
    """The job is done."""


@dataclass(frozen=True, slots=True)
class Drop:
    """The app wants to be rid of the job without a trace in the dead letters."""


@dataclass(frozen=True, slots=True)
class Pause:
    """The app is not there: the job goes back as it was, and consuming stops until it is."""


@dataclass(frozen=True, slots=True)
class Retry:
    """The job comes back after a delay; `counted` says whether that used an attempt."""

    delay_ms: int
    next_attempt: int
    counted: bool


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """The job failed for good.

    The reason is the last attempt's own code, so that dead letters group by what went wrong; that
    retries ran out before is for the message to say.
    """

    code: str
    message: str


Decision: TypeAlias = Ack | Retry | DeadLetter | Pause | Drop

ACK: Final = Ack()
DROP: Final = Drop()
PAUSE: Final = Pause()


def decide(
    policy: Policy, attempt: int, outcome: Outcome, *, throttles: int, random: float
) -> Decision:
    """Return what follows from the outcome of an attempt.

    `attempt` counts deliveries from 1, `throttles` those before it that used no attempt, and
    `random` (0 to 1) says how much of the jitter to use.
    """
    match outcome.kind:
        case Kind.PROCESSED:
            return ACK
        case Kind.DROPPED:
            return DROP
        case Kind.APP_ABSENT:
            return PAUSE
        case Kind.PERMANENT:
            return DeadLetter(outcome.code or codes.UNNAMED, _message(outcome))
        case Kind.TRANSIENT | Kind.UNKNOWN:
            return _retry_or_give_up(policy, attempt, outcome, throttles, random)


def _retry_or_give_up(
    policy: Policy, attempt: int, outcome: Outcome, throttles: int, random: float
) -> Decision:
    counted = not (outcome.throttled and throttles < MOST_THROTTLES)
    if counted and attempt >= policy.max_attempts:
        times = "1 attempt" if attempt == 1 else f"{attempt} attempts"
        message = f"Retries exhausted after {times}: {_message(outcome)}"
        return DeadLetter(outcome.code or codes.UNNAMED, message)
    delay = _delay_ms(policy, attempt, outcome.retry_after_ms, random)
    return Retry(delay, attempt + 1 if counted else attempt, counted)


def _delay_ms(policy: Policy, attempt: int, asked: int | None, random: float) -> int:
    """Return the policy's delay, or what the app asked for, within what the ladder can hold.

    An app that asks for no delay at all still gets one tick of it: a job that is refused a
    hundred times for free must not come back a hundred times at once.
    """
    if asked is None:
        delay = ladder.backoff_ms(policy, attempt, random)
    else:
        delay = max(ladder.round_up(asked), ladder.TICK_MS)
    return min(delay, ladder.maximum_ms(ladder.levels_for(policy)))


def _message(outcome: Outcome) -> str:
    return outcome.message or f"the attempt failed with {outcome.code or codes.UNNAMED}"
