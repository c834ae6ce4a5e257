"""Taking a queue down after `kubectl delete`.

`Retain` leaves every exchange, queue, binding and policy with the jobs in them, so that another
NamedQueue of the same name finds them again. The users go in any case: their passwords are in
Secrets that vanish with the NamedQueue, and an account that nobody can use is only a risk.

`Delete` closes the entrances, waits until no job is left at any stage, and then removes everything;
the annotation `namedqueue.io/force-delete: "true"` does not wait. Jobs that are left hold the queue
for as long as they are there. Trouble with the broker does so for five minutes at most: then what
may still be there is named in an event, and the NamedQueue goes. They begin anew after each answer
of the broker, so one that is restarted while jobs are waited for is waited for as well.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import replace

from namedqueue import topology
from namedqueue.api.namedqueue import NamedQueue
from namedqueue.api.status import Depth
from namedqueue.topology import NOTHING, Names, Topology
from namedqueue.topology.actions import Action, discarding_jobs
from namedqueue_operator import FORCE_DELETE
from namedqueue_operator.applying import Held, apply, entering
from namedqueue_operator.brokers import Brokers, source_of
from namedqueue_operator.conditions import READY, no
from namedqueue_operator.inventory import Body, Inventory, Key, key_of
from namedqueue_operator.reconciling import queue_in
from namedqueue_operator.repairs import orphans
from namedqueue_operator.reporting import Report, Reporter
from namedqueue_operator.troubles import Trouble

_log = logging.getLogger(__name__)


class Waiting(Exception):  # noqa: N818  # not an error: the queue goes when it can
    """The queue cannot go yet."""


def plan(observed: Topology, queue: NamedQueue, *, force: bool) -> tuple[Action, ...]:
    """Return the steps that take a queue down as its deletion policy says."""
    if queue.spec.deletion_policy == "Retain":
        left = replace(observed, users=(), permissions=())
        return topology.diff(observed, left)
    steps = topology.diff(observed, NOTHING)
    return discarding_jobs(steps) if force else steps


class Deleter:
    """Takes queues down."""

    def __init__(
        self,
        brokers: Brokers,
        inventory: Inventory,
        reporter: Reporter,
        *,
        give_up: float,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._brokers = brokers
        self._inventory = inventory
        self._reporter = reporter
        self._give_up = give_up
        self._now = now
        self._troubled: dict[str, float] = {}
        """Since when there has been trouble with the broker of a queue, by the queue's uid."""

    async def delete(self, body: Body) -> None:
        """Take a queue down, or raise `Waiting` with why it has to stay for now."""
        key = key_of(body)
        async with self._inventory.lock(key):
            try:
                held, depth = await self._take_down(body)
            except Trouble as trouble:
                await self._in_trouble(key, body, trouble)
                return
            self._troubled.pop(body["metadata"]["uid"], None)
            if held is not None:
                await self._hold(key, held, depth, body["metadata"]["generation"])

    async def _take_down(self, body: Body) -> tuple[Held | None, Depth | None]:
        queue = queue_in(body)
        names = Names(*key_of(body))
        link = await self._brokers.reach_at_last(source_of(queue))
        vhost = link.vhost(names)
        await link.management.version()  # whoever is no broker says of everything: not found
        seen = await link.look(vhost)
        observed = seen.topology(names, vhost)
        steps = plan(observed, queue, force=_forced(body))
        if not link.shared and observed.vhost is not None:
            steps = entering(
                steps, link.account.username, seen.admits(link.account.username, vhost)
            )
        applied = await apply(steps, link.management, vhost, emptiness=link.emptiness, passwords={})
        return applied.held, seen.depth(names, vhost)

    async def _hold(self, key: Key, held: Held, depth: Depth | None, generation: int) -> None:
        advice = (
            f"; work them off, or annotate the queue with {FORCE_DELETE}=true to drop them"
            if held.left
            else ""
        )
        reason = "JobsLeft" if held.left else "Deleting"
        answers = {READY: no(reason, f"{held}{advice}")}
        report = Report(answers=answers, generation=generation, depth=depth)
        await self._reporter.report(key, report)
        raise Waiting(str(held))

    async def _in_trouble(self, key: Key, body: Body, trouble: Trouble) -> None:
        uid = body["metadata"]["uid"]
        if self._now() - self._troubled.setdefault(uid, self._now()) < self._give_up:
            note = f"{trouble}; the queue goes anyway when that has lasted for {self._give_up:g} s"
            answers = {READY: no(trouble.reason, note)}
            generation = body["metadata"]["generation"]
            await self._reporter.report(key, Report(answers=answers, generation=generation))
            raise Waiting(str(trouble))
        del self._troubled[uid]
        await self._reporter.tell(body, "Warning", "Orphaned", f"{trouble}; {orphans(body)}")


def _forced(body: Body) -> bool:
    return (body["metadata"].get("annotations") or {}).get(FORCE_DELETE) == "true"
