"""A queue, its ladder and its pods in simulated time.

Pods take a while to start. A broker hands jobs to whoever has room, in turns. A pod that is told to
go takes no more jobs and has a grace period for those it has; what is not finished by then goes
back to the queue, interrupted. All this is the same for every autoscaler, but for which pods go.
"""

import heapq
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Final, Protocol

from namedqueue import outcomes, retry
from namedqueue.api.namedqueue import Retry
from simulator.traces import Job, Trace

STARTING_SECONDS: Final = (6.0, 14.0)
GRACE_SECONDS: Final = 30.0
STATISTICS_SECONDS: Final = 5.0
FLAP_SECONDS: Final = 300.0


@dataclass(eq=False)
class Attempt:
    """A job on one of its ways through the queue."""

    job: Job
    number: int
    since: float


@dataclass(eq=False)
class Pod:
    """A worker: since when it is paid for, whether it takes jobs, and what it works on."""

    born: float
    room: int
    ready: bool = False
    going: bool = False
    busy: dict[Attempt, None] = field(default_factory=dict)  # in order, for the sake of repeating


@dataclass(frozen=True)
class Seen:
    """What a broker tells, some seconds late."""

    ready: int = 0
    in_flight: int = 0
    waiting: int = 0
    acked: int = 0


class Autoscaler(Protocol):
    """Decides from time to time how many pods there shall be."""

    name: str
    spares_busy_pods: bool

    def begin(self, world: "World") -> None:
        """Look at the world every now and then from here on."""


@dataclass
class Outcome:
    """What came of a trace."""

    waits: list[float] = field(default_factory=list)
    pod_seconds: float = 0.0
    flaps: int = 0
    interrupted: int = 0
    counts: list[tuple[float, int]] = field(default_factory=list)
    backlog: list[tuple[float, int]] = field(default_factory=list)

    def wait(self, part: float) -> float:
        """Return the waiting time that this part of the attempts did not exceed."""
        return sorted(self.waits)[min(len(self.waits) - 1, int(part * len(self.waits)))]


class World:
    """Everything, event by event."""

    def __init__(self, trace: Trace, autoscaler: Autoscaler, seed: int = 1) -> None:
        self.now = 0.0
        self.trace = trace
        self.pods: list[Pod] = []
        self.seen = Seen()
        self.outcome = Outcome()
        self._autoscaler = autoscaler
        self._dice = random.Random(seed)  # noqa: S311  # repeatable, not secret
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self._ready: deque[Attempt] = deque()
        self._turns: deque[Pod] = deque()
        self._waiting = self._acked = self._in_flight = 0
        self._went_down: float | None = None

    @property
    def asked(self) -> int:
        """How many pods there shall be."""
        return sum(not pod.going for pod in self.pods)

    @property
    def ready_pods(self) -> int:
        """How many of them take jobs."""
        return sum(pod.ready and not pod.going for pod in self.pods)

    def run(self) -> Outcome:
        """Let the whole trace happen."""
        for job in self.trace.jobs:
            self.at(job.at, partial(self._arrive, Attempt(job, 1, job.at)))
        self.every(STATISTICS_SECONDS, self._tell)
        self._autoscaler.begin(self)
        while self._events and self._events[0][0] <= self.trace.lasts:
            self.now, _, call = heapq.heappop(self._events)
            call()
        for pod in list(self.pods):
            self._end(pod, self.trace.lasts)
        return self.outcome

    def at(self, moment: float, call: Callable[[], None]) -> None:
        """Have something happen."""
        heapq.heappush(self._events, (moment, next(self._order), call))

    def every(self, seconds: float, call: Callable[[], None]) -> None:
        """Have something happen again and again."""

        def again() -> None:
            call()
            self.at(self.now + seconds, again)

        self.at(self.now, again)

    def scale(self, replicas: int) -> None:
        """Add pods, or tell some to go."""
        change = replicas - self.asked
        if change > 0:
            if self._went_down is not None and self.now - self._went_down < FLAP_SECONDS:
                self.outcome.flaps += 1
            self._went_down = None
            for _ in range(change):
                self._start()
        elif change < 0:
            self._went_down = self.now
            for pod in self._first_to_go()[:-change]:
                self._send_away(pod)
        if change:
            self.outcome.counts.append((self.now, replicas))

    def _first_to_go(self) -> list[Pod]:
        """Order pods as a ReplicaSet does: those that are not ready yet, then by cost or chance."""
        staying = [pod for pod in self.pods if not pod.going]
        self._dice.shuffle(staying)
        spares = self._autoscaler.spares_busy_pods
        return sorted(staying, key=lambda pod: (pod.ready, len(pod.busy) if spares else 0))

    def _start(self) -> None:
        pod = Pod(self.now, self.trace.concurrency)
        self.pods.append(pod)

        def ready() -> None:
            if not pod.going:
                pod.ready = True
                self._turns.append(pod)
                self._deliver()

        self.at(self.now + self._dice.uniform(*STARTING_SECONDS), ready)

    def _send_away(self, pod: Pod) -> None:
        pod.going = True
        if not pod.busy:
            self._end(pod, self.now)
        else:
            self.at(self.now + GRACE_SECONDS, lambda: self._kill(pod))

    def _kill(self, pod: Pod) -> None:
        if pod not in self.pods:
            return
        for attempt in pod.busy:
            self.outcome.interrupted += 1
            self._in_flight -= 1
            self._ready.appendleft(Attempt(attempt.job, attempt.number, self.now))
        pod.busy.clear()
        self._end(pod, self.now)
        self._deliver()

    def _end(self, pod: Pod, moment: float) -> None:
        self.pods.remove(pod)
        self.outcome.pod_seconds += moment - pod.born

    def _arrive(self, attempt: Attempt) -> None:
        self._ready.append(attempt)
        self._deliver()

    def _deliver(self) -> None:
        while self._ready and self._turns:
            pod = self._turns.popleft()
            if pod.going or len(pod.busy) >= pod.room:
                continue
            attempt = self._ready.popleft()
            self.outcome.waits.append(self.now - attempt.since)
            self._in_flight += 1
            pod.busy[attempt] = None
            if len(pod.busy) < pod.room:
                self._turns.append(pod)
            done = partial(self._finish, pod, attempt, self.now)
            self.at(self.now + attempt.job.seconds, done)

    def _finish(self, pod: Pod, attempt: Attempt, started: float) -> None:
        if attempt not in pod.busy:
            return  # interrupted
        full = len(pod.busy) >= pod.room
        del pod.busy[attempt]
        self._in_flight -= 1
        self._acked += 1
        begins, ends = self.trace.outage
        if begins <= started < ends:
            self._retry(attempt)
        if pod.going:
            if not pod.busy:
                self._end(pod, self.now)
        elif full:
            self._turns.append(pod)
        self._deliver()

    def _retry(self, attempt: Attempt) -> None:
        outcome = outcomes.Outcome(outcomes.Kind.TRANSIENT)
        decision = retry.decide(
            Retry(), attempt.number, outcome, throttles=0, random=self._dice.random()
        )
        if not isinstance(decision, retry.Retry):
            return  # a dead letter
        self._waiting += 1

        def back() -> None:
            self._waiting -= 1
            self._arrive(Attempt(attempt.job, attempt.number + 1, self.now))

        self.at(self.now + decision.delay_ms / 1000, back)

    def _tell(self) -> None:
        self.seen = Seen(len(self._ready), self._in_flight, self._waiting, self._acked)
        self.outcome.backlog.append((self.now, len(self._ready) + self._in_flight))
