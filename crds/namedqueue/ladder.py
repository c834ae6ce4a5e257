"""The delay ladder: how a job waits in the broker without holding up another.

Level i is a topic exchange and a queue that keeps every job for the same 250 ms · 2^i. A delay is
a number of ticks of 250 ms, written in binary: bit i set means «wait at level i». The bits travel
as the words of the routing key, lowest first, so 1.25 s is five ticks and the key `1.0.1`.
Dead-lettering keeps the key, and exchange i looks only at word i of it:

    exchange i   word i is 1  ->  queue i          pattern `*.*.1.#` for i = 2
                 word i is 0  ->  exchange i-1     pattern `*.*.0.#`
    queue i      expires      ->  exchange i-1     (below level 0 lies the main exchange)

A job enters at its highest set bit and its key ends there, so nothing that a job meets depends on
how many levels lie above: levels can be added while jobs are on their way.

Delays are rounded up, for a retry must not come before its time. The ladder of a policy is as high
as the longest delay that the policy can reach: with five attempts the defaults wait 1, 2, 4 and
8 s, so six levels (15.75 s) hold them with their jitter, and `maxDelay: 60s` is never met. See
docs/decisions/0002-ladder-levels.md.
"""

import math
from typing import NamedTuple

from namedqueue.api.namedqueue import Retry

TICK_MS = 250

HIGHEST_LEVELS = 25
"""RabbitMQ keeps a message for less than 2^32 ms, and level 24 is the last one below that."""

_NOISE_MS = 0.001


class Route(NamedTuple):
    """Where a delayed job enters the ladder, and the key that leads it down."""

    level: int
    key: str


def round_up(delay_ms: int) -> int:
    """Return the next delay that the ladder can keep exactly."""
    return -(-delay_ms // TICK_MS) * TICK_MS


def route(delay_ms: int) -> Route | None:
    """Return the way through the ladder, or None for no delay: straight to the main exchange."""
    if delay_ms < 0:
        raise ValueError(f"a delay of {delay_ms} ms lies in the past; the least is 0")
    ticks = round_up(delay_ms) // TICK_MS
    if ticks == 0:
        return None
    return Route(ticks.bit_length() - 1, ".".join(reversed(f"{ticks:b}")))


def remaining_ms(key: str, level: int) -> int:
    """Return how long a job with this key still waits, seen from the exchange of `level`."""
    bits = key.split(".")[: level + 1]
    if len(bits) != level + 1 or not set(bits) <= {"0", "1"}:
        raise ValueError(f"{key!r} is no routing key for level {level}; see namedqueue.ladder")
    return sum(hold_ms(i) for i, bit in enumerate(bits) if bit == "1")


def hold_ms(level: int) -> int:
    """Return how long the queue of `level` keeps a job."""
    return TICK_MS << level


def maximum_ms(levels: int) -> int:
    """Return the longest delay that a ladder of so many levels can keep."""
    return ((1 << levels) - 1) * TICK_MS


def wait_pattern(level: int) -> str:
    """Return the binding from the exchange of `level` to its own queue."""
    return "*." * level + "1.#"


def skip_pattern(level: int) -> str:
    """Return the binding from the exchange of `level` to the one below."""
    return "*." * level + "0.#"


def backoff_ms(policy: Retry, attempt: int, random: float) -> int:
    """Return the delay after a failed `attempt`, stretched by `random` (0 to 1) of the jitter."""
    delay = min(_grown_ms(policy, attempt), policy.max_delay.milliseconds)
    stretched = delay * (1 + policy.jitter * random)
    return round_up(math.ceil(stretched - _NOISE_MS))


def longest_backoff_ms(policy: Retry) -> int:
    """Return the longest delay that the policy can reach.

    A policy of a single attempt counts as one of two, because a `Retry-After` that uses no attempt
    needs room too.
    """
    return backoff_ms(policy, max(1, policy.max_attempts - 1), random=1.0)


def levels_for(policy: Retry) -> int:
    """Return how many levels the ladder of a policy has; there is always one."""
    ticks = longest_backoff_ms(policy) // TICK_MS
    return min(max(1, ticks.bit_length()), HIGHEST_LEVELS)


def wait_ms(policy: Retry, times: int, random: float) -> int:
    """Return how long a job waits that is put off so many times, and uses no attempt by it.

    That may be more often than the policy has attempts, whose delays are all that the ladder has
    levels for. What it cannot hold would never arrive. And a job never comes back at once.
    """
    delay = min(backoff_ms(policy, times, random), maximum_ms(levels_for(policy)))
    return max(delay, TICK_MS)


def _grown_ms(policy: Retry, attempt: int) -> float:
    try:
        return float(policy.delay.milliseconds * policy.multiplier ** (attempt - 1))
    except OverflowError:
        return math.inf if policy.delay.milliseconds else 0.0
