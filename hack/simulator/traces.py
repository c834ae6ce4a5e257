"""Arrivals to compare on: when each job comes, how long it takes, and how often it fails.

Everything is drawn from a seed, so that each autoscaler meets the very same jobs.
"""

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

_HOUR: Final = 3600.0


@dataclass(frozen=True)
class Job:
    """A job: when it comes, and how long an attempt takes."""

    at: float
    seconds: float


@dataclass(frozen=True)
class Trace:
    """A load, and the workers and target that go with it.

    Attempts that start within `outage` fail and come back by the default retry policy.
    """

    name: str
    about: str
    jobs: tuple[Job, ...]
    lasts: float
    concurrency: int = 10
    per_replica: int = 20
    outage: tuple[float, float] = (0.0, 0.0)


def traces(seed: int = 20261118) -> list[Trace]:
    """Return every trace."""
    dice = random.Random(seed)  # noqa: S311  # repeatable, not secret
    quick = _exponential(dice, 0.5)
    return [
        Trace(
            "steady",
            "30 jobs a second for an hour, 0.5 s each",
            tuple(_arrivals(dice, lambda _: 30.0, _HOUR, quick)),
            _HOUR + 900,
        ),
        Trace(
            "spike",
            "a job every 2 s, and twice 3,000 at once",
            tuple(_with_spikes(dice, quick)),
            _HOUR + 900,
        ),
        Trace(
            "sawtooth",
            "from 0 to 150 jobs a second in 10 minutes, then none for 2; five times",
            tuple(_arrivals(dice, _saw, _HOUR, quick)),
            _HOUR + 900,
        ),
        Trace(
            "diurnal",
            "a day in four hours: none at night, 120 a second at noon",
            tuple(_arrivals(dice, _day, 4 * _HOUR, quick)),
            4 * _HOUR + 900,
        ),
        Trace(
            "slow jobs",
            "jobs of 10 s to 5 minutes, two at a time in a pod, in waves",
            tuple(_arrivals(dice, _waves, 2 * _HOUR, _lognormal(dice, 45.0, 0.8))),
            2 * _HOUR + 1800,
            concurrency=2,
            per_replica=2,
        ),
        Trace(
            "retry storm",
            "20 jobs a second; from minute 15 to 25 every attempt fails",
            tuple(_arrivals(dice, lambda _: 20.0, _HOUR, quick)),
            _HOUR + 900,
            outage=(900.0, 1500.0),
        ),
    ]


def _arrivals(
    dice: random.Random,
    rate: Callable[[float], float],
    until: float,
    seconds: Callable[[], float],
) -> Iterator[Job]:
    """Draw a Poisson process whose rate changes, second by second."""
    for second in range(int(until)):
        left = rate(second)
        at = float(second)
        while left > 0:
            at += dice.expovariate(left)
            if at >= second + 1:
                break
            yield Job(at, seconds())


def _with_spikes(dice: random.Random, seconds: Callable[[], float]) -> list[Job]:
    calm = _arrivals(dice, lambda _: 0.5, _HOUR, seconds)
    spikes = [Job(at + dice.random(), seconds()) for at in (600.0, 2400.0) for _ in range(3000)]
    return sorted([*calm, *spikes], key=lambda job: job.at)


def _saw(second: float) -> float:
    phase = second % 720
    return 150 * phase / 600 if phase < 600 else 0.0  # noqa: PLR2004  # ten minutes up


def _day(second: float) -> float:
    return max(0.0, -120 * math.cos(2 * math.pi * second / (4 * _HOUR)))


def _waves(second: float) -> float:
    return 0.4 if second % 1200 < 600 else 0.05  # noqa: PLR2004  # ten minutes each


def _exponential(dice: random.Random, mean: float) -> Callable[[], float]:
    return lambda: dice.expovariate(1 / mean)


def _lognormal(dice: random.Random, median: float, sigma: float) -> Callable[[], float]:
    return lambda: min(300.0, max(10.0, dice.lognormvariate(math.log(median), sigma)))
