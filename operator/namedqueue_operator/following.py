"""Following the jobs: from each poll to the replicas of a queue's workers, and to what is told.

While a queue has `spec.scaling` its Deployment's count is ours: one that somebody else set is
corrected at the next poll. A count goes down only after the idle pods were marked to go first.

Depths change all the time. What a program may wait for is told at once: another count, another
reason, a stage that fills or empties. Mere figures are told at most every ten seconds.
"""

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any, Final

from namedqueue.api.status import Depth
from namedqueue_operator import children, metrics
from namedqueue_operator.cluster import Cluster, Refused
from namedqueue_operator.conditions import SCALING_ACTIVE, Answer, find, no, unknown, yes
from namedqueue_operator.fleets import Fleet, Fleets, fleet_of
from namedqueue_operator.inventory import Body, Inventory, Key, is_same, key_of
from namedqueue_operator.reconciling import queue_in
from namedqueue_operator.reporting import Report, Reporter
from namedqueue_operator.scaling import Decision, Policy, Reason, Sample, Window, decide, policy_of
from namedqueue_operator.sparing import Sidecars, mark_idle
from namedqueue_operator.troubles import Trouble

_FIGURES_SECONDS: Final = 10.0
_SILENT: Final = "the broker does not say how many jobs the queue holds"


@dataclass
class _Followed:
    """What is known of a queue from poll to poll."""

    version: tuple[str, int]
    policy: Policy | None
    interval: float | None
    due: float = 0.0
    window: Window | None = None
    told: tuple[float, Any] = field(default=(float("-inf"), None))
    empty_at: float | None = None


class Follower:
    """Keeps a window on each queue, and its workers at the right number."""

    def __init__(
        self,
        cluster: Cluster,
        inventory: Inventory,
        fleets: Fleets,
        reporter: Reporter,
        *,
        poll: float,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cluster = cluster
        self._inventory = inventory
        self._fleets = fleets
        self._reporter = reporter
        self._poll = poll
        self._now = now
        self._sidecars = Sidecars()
        self._known: dict[Key, _Followed] = {}

    async def close(self) -> None:
        """Close the connections to sidecars."""
        await self._sidecars.close()

    def retain(self, keys: Collection[Key]) -> None:
        """Forget all queues but these."""
        self._known = {key: self._known[key] for key in keys if key in self._known}

    def due(self, body: Body) -> bool:
        """Tell whether it is a queue's turn."""
        return self._of(body).due <= self._now()

    def needs_rates(self, body: Body) -> bool:
        """Tell whether a queue's policy asks how fast its jobs are finished."""
        policy = self._of(body).policy
        return policy is not None and policy.drain_time is not None

    async def follow(self, body: Body, depth: Depth | None, acked: int | None) -> None:
        """Act on what a poll has found, unless the queue went while the broker was asked."""
        if self._is_gone(body):
            return
        followed, now = self._of(body), self._now()
        self._put_off(followed, known=depth is not None)
        if depth is not None:
            self._measure(followed, key_of(body), depth, now)
        await self._act(body, followed, depth, acked, _SILENT)

    async def lost(self, body: Body, why: str) -> None:
        """Hold what there is, for a broker that cannot be asked."""
        if self._is_gone(body):
            return
        followed = self._of(body)
        self._put_off(followed, known=False)
        await self._act(body, followed, None, None, why)

    def _is_gone(self, body: Body) -> bool:
        """Tell whether this very queue exists no more; its figures would stay for ever."""
        newest = self._inventory.get(key_of(body))
        return newest is None or not is_same(newest, body)

    def _put_off(self, followed: _Followed, *, known: bool) -> None:
        """Say when it is a queue's turn again; one whose depth is not known has it soon.

        Turns lie on a grid, so that queues with the same interval are read by the same call,
        whenever each of them was made.
        """
        interval = followed.interval or self._poll
        if not known:
            interval = min(interval, self._poll)
        followed.due = (self._now() // interval + 1) * interval

    async def _act(
        self, body: Body, followed: _Followed, depth: Depth | None, acked: int | None, why: str
    ) -> None:
        worker = fleet_of(body)
        fleet = self._fleets.get(worker) if worker else None
        if followed.policy is None:
            metrics.forget_scaling(*key_of(body))
            await self._tell(body, followed, depth, fleet, _off(body))
            return
        if worker is None or fleet is None:
            missing = no("NoDeployment", f"there is no Deployment {worker[1] if worker else ''}")
            await self._tell(body, followed, depth, fleet, missing)
            return
        decision = self._decided(followed, followed.policy, fleet, depth, acked, why)
        answer = await self._obeyed(worker, fleet, decision)
        if self._is_gone(body):
            return
        metrics.DESIRED_REPLICAS.labels(*key_of(body)).set(decision.replicas)
        metrics.MAX_REPLICAS.labels(*key_of(body)).set(followed.policy.most)
        await self._tell(body, followed, depth, fleet, answer, decision.replicas)

    def _decided(
        self,
        followed: _Followed,
        policy: Policy,
        fleet: Fleet,
        depth: Depth | None,
        acked: int | None,
        why: str,
    ) -> Decision:
        now = self._now()
        window = followed.window or Window.opened(fleet.asked, now)
        if depth is None:
            window = window.blinded(why, fleet.asked)
        else:
            sample = Sample(
                at=now,
                ready=depth.ready,
                in_flight=depth.in_flight,
                waiting=depth.waiting,
                acked=acked,
                replicas=fleet.ready,
            )
            window = window.seen(sample, fleet.asked)
        decision = decide(window, policy, now)
        followed.window = window if window.unknown else window.felt(decision.needed, now)
        return decision

    async def _obeyed(self, worker: Key, fleet: Fleet, decision: Decision) -> Answer:
        """Ask the Deployment for as many as were decided on, and answer what came of it."""
        try:
            if decision.replicas < fleet.asked:
                go = fleet.asked - decision.replicas
                await mark_idle(self._cluster, self._sidecars, worker, fleet.selector, go)
            if decision.replicas != fleet.asked:
                version = await self._cluster.scale(worker, decision.replicas)
                self._fleets.asked(worker, decision.replicas, version)
        except Refused as refusal:
            return no("Refused", f"{decision.sentence}; but the API server refuses: {refusal}")
        answer = unknown if decision.reason is Reason.DEPTH_UNKNOWN else yes
        return answer(decision.reason.value, decision.sentence)

    async def _tell(
        self,
        body: Body,
        followed: _Followed,
        depth: Depth | None,
        fleet: Fleet | None,
        answer: Answer | None,
        desired: int | None = None,
    ) -> None:
        existing = fleet.existing if fleet else 0
        stages = depth and [bool(jobs) for jobs in depth.model_dump().values()]
        essence = (answer and (answer.status, answer.reason), desired, fleet, stages)
        at, before = followed.told
        now = self._now()
        if fleet_of(body):
            metrics.REPLICAS.labels(*key_of(body)).set(existing)
        else:
            metrics.REPLICAS.remove(*key_of(body))
        if essence == before and now - at < _FIGURES_SECONDS:
            return
        followed.told = (now, essence)
        report = Report(
            answers={SCALING_ACTIVE: answer} if answer else {},
            generation=body["metadata"]["generation"],
            depth=depth,
            replicas=existing if fleet_of(body) else None,
            selector=fleet.selector if fleet else None,
        )
        if children.sharers(body) is None:
            await self._reporter.report(key_of(body), report)
        else:
            await self._tell_and_share(body, report)

    async def _tell_and_share(self, body: Body, report: Report) -> None:
        """Let the sidecars know, too, how many share a rate limit, once that has changed."""
        key = key_of(body)
        async with self._inventory.lock(key):  # or a reconciliation would write the old number
            await self._reporter.report(key, report)
            newest = self._inventory.get(key)
            if newest is not None and children.sharers(newest) != children.sharers(body):
                await self._cluster.apply(children.config_map(newest))

    def _of(self, body: Body) -> _Followed:
        metadata = body["metadata"]
        version = (metadata["uid"], metadata["generation"])
        known = self._known.get(key_of(body))
        if known is None or known.version[0] != version[0]:
            known = self._known[key_of(body)] = _Followed(version, *_read(body))
        elif known.version != version:
            known.version = version
            known.policy, known.interval = _read(body)
        return known

    def _measure(self, followed: _Followed, key: Key, depth: Depth, now: float) -> None:
        for stage, jobs in depth.model_dump(by_alias=True).items():
            metrics.JOBS.labels(*key, stage).set(jobs)
        if not depth.ready or followed.empty_at is None:
            followed.empty_at = now
        metrics.OLDEST_JOB.labels(*key).set(now - followed.empty_at)


def _read(body: Body) -> tuple[Policy | None, float | None]:
    """Return a queue's policy and poll interval; none where the manifest is not valid."""
    try:
        spec = queue_in(body).spec
    except Trouble:
        return None, None
    return policy_of(spec), spec.scaling.poll_interval.seconds if spec.scaling else None


def _off(body: Body) -> Answer | None:
    """Answer that nothing is scaled any more, where something was."""
    if find(body.get("status") or {}, SCALING_ACTIVE):
        return no("Off", "spec.scaling is not given; nothing is scaled")
    return None
