"""Carrying redrives out: from a QueueRedrive to its Job, and from the Job to its status.

Each round looks at every redrive that has not finished, and one is made at once when there is news.
A QueueRedrive has no finalizer: it owns its Job, so deleting it is all that it takes to cancel it,
whether the operator runs or not.
"""

import asyncio
import contextlib
import logging
from collections import defaultdict
from collections.abc import Mapping
from typing import Any, Final

import aiohttp

from namedqueue_operator import metrics
from namedqueue_operator.cluster import Cluster, Object, Refused, Stale
from namedqueue_operator.conditions import settle
from namedqueue_operator.fleets import fleet_of
from namedqueue_operator.inventory import Body, Inventory, Key, is_going, is_same, key_of
from namedqueue_operator.progress import Progress
from namedqueue_operator.redrive_jobs import REDRIVE_LABEL, REDRIVEN_LABEL, config_map, job
from namedqueue_operator.redrives import (
    Standing,
    behind,
    cancelled,
    held_up,
    impossible,
    in_turn,
    is_finished,
    queue_of,
    refused,
    rolling_out,
    standing,
    unready,
    without_workers,
)
from namedqueue_operator.reporting import changes, written_now
from namedqueue_operator.sidecars import Sidecar

_log = logging.getLogger(__name__)
_TRIES: Final = 5
_NO_IMAGE: Final = (
    "the operator does not know the sidecar's image; start it with --sidecar-image, or set "
    "sidecar.image of the chart"
)


class Redriver:
    """Knows the redrives that exist, and carries them out one at a time per queue."""

    def __init__(
        self, cluster: Cluster, inventory: Inventory, sidecar: Sidecar | None, *, poll: float
    ) -> None:
        self._cluster = cluster
        self._inventory = inventory
        self._sidecar = sidecar
        self._poll = poll
        self._redrives: dict[Key, Body] = {}
        self._news = asyncio.Event()
        self._progress = Progress()

    def learn(self, redrive: Body) -> None:
        """Learn of a redrive, or of a change to one."""
        self._redrives[key_of(redrive)] = redrive
        if not is_finished(redrive):
            self._news.set()

    def forget(self, redrive: Body) -> None:
        """Forget a redrive that is gone, not its namesake; the next of its queue may begin."""
        known = self._redrives.get(key_of(redrive))
        if known is not None and is_same(known, redrive):
            del self._redrives[key_of(redrive)]
        self._news.set()

    async def run(self) -> None:
        """Go round until cancelled: at each poll, and whenever there is news."""
        async with self._progress:
            while True:
                self._news.clear()
                await self._round()
                self._measure()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._news.wait(), self._poll)

    async def _round(self) -> None:
        queues: defaultdict[Key, list[Body]] = defaultdict(list)
        for redrive in self._redrives.values():
            if not is_going(redrive):
                queues[queue_of(redrive)].append(redrive)
        for queue, redrives in queues.items():
            first, *others = in_turn(redrives) or (None,)
            if first is None:
                continue
            try:
                await self._report(first, await self._advanced(first, self._inventory.get(queue)))
                for other in others:
                    await self._report(other, behind(first["metadata"]["name"]))
            except (Refused, aiohttp.ClientError, OSError, TimeoutError) as fault:
                _log.warning(
                    "redrives of %s wait: %s", "/".join(queue), fault, extra={"action": "redrive"}
                )

    def _exists(self, redrive: Body) -> bool:
        known = self._redrives.get(key_of(redrive))
        return known is not None and is_same(known, redrive) and not is_going(known)

    def _measure(self) -> None:
        """Count the redrives by phase; one that failed counts until somebody deletes it."""
        metrics.REDRIVES.clear()
        for redrive in self._redrives.values():
            phase = (redrive.get("status") or {}).get("phase")
            if phase:
                metrics.REDRIVES.labels(*queue_of(redrive), phase).inc()

    async def _advanced(self, redrive: Body, queue: Body | None) -> Standing:
        """Take a redrive as far as it can go now, and tell where it stands."""
        if self._sidecar is None:
            return impossible(_NO_IMAGE)
        wanted = job(redrive, self._sidecar)
        found = await self._cluster.read(wanted)
        if found is not None and not _belongs(found, redrive):
            return held_up(f"Job {wanted['metadata']['name']} of an earlier redrive is still there")
        if found is None:
            waits = await self._waits(redrive, queue)
            if waits is not None:
                return waits
            if not self._exists(redrive):
                return cancelled()
            try:
                await self._cluster.apply(config_map(redrive))
                found = await self._cluster.apply(wanted)
            except Refused as refusal:
                return refused(str(refusal))
        pods = await self._pods(redrive, REDRIVE_LABEL, redrive["metadata"]["name"])
        live = await self._progress.of(pods)
        return standing(found, pods, live, dry_run=bool(redrive["spec"].get("dryRun")))

    async def _waits(self, redrive: Body, queue: Body | None) -> Standing | None:
        """Tell what the redrive has to wait for before its Job is made, or None."""
        waits = unready(redrive, queue)
        if waits is not None or queue is None:
            return waits
        left = [
            pod["metadata"]["name"]
            for pod in await self._pods(redrive, REDRIVEN_LABEL, redrive["spec"]["queue"])
            if _runs(pod)
        ]
        if left:
            return held_up(f"pod {left[0]} of a redrive that was cancelled has not ended yet")
        if redrive["spec"].get("waitForRollout"):
            return await self._rollout(queue)
        return None

    async def _rollout(self, queue: Body) -> Standing | None:
        fleet = fleet_of(queue)
        if fleet is None:
            return without_workers(queue["metadata"]["name"])
        namespace, name = fleet
        place = {"name": name, "namespace": namespace}
        deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": place}
        return rolling_out(name, await self._cluster.read(deployment))

    async def _pods(self, redrive: Body, label: str, value: str) -> list[Object]:
        return await self._cluster.pods(redrive["metadata"]["namespace"], f"{label}={value}")

    async def _report(self, redrive: Body, standing: Standing) -> None:
        """Write what is new; a redrive that is gone needs no status, nor does its namesake."""
        body: Body | None = redrive
        for _ in range(_TRIES):
            if body is None or is_going(body) or not is_same(redrive, body):
                return
            patch = changes(body, _status(body, standing))
            if not patch:
                return
            try:
                after = await self._cluster.patch_status(body, patch)
            except Stale:
                body = await self._cluster.read(body)
                continue
            if self._exists(after):
                self._redrives[key_of(after)] = after
            await self._tell(body, after)
            return

    async def _tell(self, before: Body, after: Body) -> None:
        """Post an event when a redrive enters another phase."""
        was, is_now = ((each.get("status") or {}).get("phase") for each in (before, after))
        if was == is_now:
            return
        told = after["status"]["conditions"][0]
        note = f"{is_now}: {told['message']}"
        _log.info("%s", note, extra={"redrive": "/".join(key_of(after)), "action": "event"})
        with contextlib.suppress(Refused):
            kind = "Warning" if is_now == "Failed" else "Normal"
            await self._cluster.event(after, kind, told["reason"], note)


def _status(redrive: Body, standing: Standing) -> dict[str, Any]:
    status = dict(redrive.get("status") or {})
    generation = redrive["metadata"]["generation"]
    before = status.get("conditions") or ()
    conditions = settle(before, standing.answers, generation=generation, now=written_now())
    known = {"observedGeneration": generation, "phase": standing.phase, "conditions": conditions}
    return {**status, **known, **standing.counts}


def _belongs(found: Object, redrive: Body) -> bool:
    owners = found["metadata"].get("ownerReferences") or ()
    return any(owner["uid"] == redrive["metadata"]["uid"] for owner in owners)


def _runs(pod: Mapping[str, Any]) -> bool:
    return (pod.get("status") or {}).get("phase") in {None, "Pending", "Running"}
