"""What was seen of a queue lately: no more than decisions need, however long it goes on.

A window is a value; each look at the queue makes the next one. It begins with the replicas that are
there counting as needed, so that an operator that was restarted takes nothing away in ignorance.
"""

from dataclasses import dataclass, replace
from typing import Final, Self

SETTLED_SECONDS: Final = 6.0
"""A quorum queue tells its length every five seconds: one zero may be older than the last job."""

_LOOKS: Final = 24
_RECENT_SECONDS: Final = 60.0


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One look: jobs by stage, and who worked on them.

    `acked` is the broker's count of all acknowledgments so far, or None where it does not count.
    `at` is in seconds on a clock that only goes forward. `replicas` are those that were ready.
    """

    at: float
    ready: int = 0
    in_flight: int = 0
    waiting: int = 0
    acked: int | None = None
    replicas: int = 0

    @property
    def jobs(self) -> int:
        """What there is to do now."""
        return self.ready + self.in_flight


@dataclass(frozen=True)
class Peak:
    """A need, and when it was last felt."""

    at: float
    replicas: int


@dataclass(frozen=True)
class Busy:
    """A stretch in which no worker had to wait for a job."""

    finished: int
    replica_seconds: float


@dataclass(frozen=True, kw_only=True)
class Window:
    """All that a decision looks at.

    `current` are the replicas that the Deployment is asked to have. `unknown` says why the depth
    is not known, if so. `peaks` only ever fall: an older, lower one can never matter again.
    """

    current: int
    unknown: str = "the broker has not been asked yet"
    samples: tuple[Sample, ...] = ()
    peaks: tuple[Peak, ...] = ()
    busy: tuple[Busy, ...] = ()
    idle_since: float | None = None

    @classmethod
    def opened(cls, current: int, now: float) -> Self:
        """Begin with what is there."""
        return cls(current=current, peaks=(Peak(now, current),))

    @property
    def newest(self) -> Sample:
        """The last look."""
        return self.samples[-1]

    def seen(self, sample: Sample, current: int) -> Self:
        """Return the window after another look."""
        before = self.samples[-1] if self.samples else None
        recent = [each for each in self.samples if each.at >= sample.at - _RECENT_SECONDS]
        kept = recent or self.samples[-1:]
        stretch = _busy(before, sample)
        return replace(
            self,
            current=current,
            unknown="",
            samples=(*kept[-_LOOKS:], sample),
            busy=(*self.busy, stretch)[-_LOOKS:] if stretch else self.busy,
            idle_since=_idle_since(self.idle_since, before, sample),
        )

    def blinded(self, why: str, current: int) -> Self:
        """Return the window after a look that told nothing; whether jobs came meanwhile is open."""
        return replace(self, current=current, unknown=why, idle_since=None)

    def felt(self, needed: int, now: float) -> Self:
        """Return the window with a need noted."""
        higher = [peak for peak in self.peaks if peak.replicas > needed]
        return replace(self, peaks=(*higher, Peak(now, needed)))

    def peak(self, since: float) -> int:
        """Return the highest need since a moment."""
        return max((peak.replicas for peak in self.peaks if peak.at >= since), default=0)

    def idle(self, now: float) -> float:
        """Return for how long there has been nothing to do, as far as was seen."""
        return 0.0 if self.idle_since is None else now - self.idle_since


def counted(before: Sample, after: Sample) -> int:
    """Return what the broker counted between two looks; nothing where one of them lacks it."""
    if before.acked is None or after.acked is None:
        return 0
    return max(0, after.acked - before.acked)


def _idle_since(since: float | None, before: Sample | None, sample: Sample) -> float | None:
    worked = before is not None and before.acked != sample.acked
    if sample.jobs or sample.waiting or worked:
        return None
    return sample.at if since is None else since


def _busy(before: Sample | None, after: Sample) -> Busy | None:
    """Return the stretch between two looks, if every worker surely had work all along.

    At least as many jobs were finished as the backlog lost, also where the broker does not count
    or, after a restart, counts from zero again.
    """
    if before is None or not (before.ready and after.ready):
        return None
    if before.replicas != after.replicas or not after.replicas:
        return None
    finished = max(counted(before, after), before.jobs - after.jobs, 0)
    return Busy(finished, after.replicas * (after.at - before.at))
