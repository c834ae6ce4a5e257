"""Tending workers: from `spec.worker` to a Deployment that stays as it shall be, and an answer.

What we run from a template is ours: an edit behind our back is undone when the watch tells of it,
and what the watch does not tell is found on a walk round all of it. What a user runs by itself is
only looked at. Workers that are not ready are looked at again at each poll, for the reason may lie
in their pods, which nobody watches.
"""

import asyncio
import logging
import time
from typing import Any, Final

from namedqueue_operator import metrics
from namedqueue_operator.children import Manifest, deployment_name, is_marked, same
from namedqueue_operator.cluster import Cluster, Object, Refused
from namedqueue_operator.conditions import WORKERS_READY, Answer, find, no, yes
from namedqueue_operator.drifting import Pace
from namedqueue_operator.fleets import fleet_in, fleet_of
from namedqueue_operator.inventory import Body, Inventory, Key, is_going, key_of
from namedqueue_operator.readiness import not_injected, workers_ready
from namedqueue_operator.reconciling import queue_in
from namedqueue_operator.reporting import Report, Reporter
from namedqueue_operator.sidecars import Impossible, Sidecar, wish_of
from namedqueue_operator.troubles import Trouble
from namedqueue_operator.workers import (
    belongs_to,
    fingerprint,
    manifests,
    pod_template,
    service_account,
    timeout_of,
    uses_our_account,
    writes_replicas,
)

_log = logging.getLogger(__name__)
_SCALER: Final = "namedqueue-scaler"


class Tender:
    """Keeps workers, and knows how they are."""

    def __init__(
        self,
        cluster: Cluster,
        inventory: Inventory,
        reporter: Reporter,
        sidecar: Sidecar | None,
        pace: Pace,
    ) -> None:
        self._cluster = cluster
        self._inventory = inventory
        self._reporter = reporter
        self._sidecar = sidecar
        self._pace = pace
        self._left: dict[Key, tuple[str, int]] = {}
        """What we last wanted of each queue's Deployment, and the generation that it had then."""
        self._restless: set[Key] = set()

    async def tend(self, body: Body) -> dict[str, Answer]:
        """Bring a queue's workers about, and answer how they are; the queue's lock is held."""
        return await self._tended(body, thoroughly=True)

    async def changed(self, deployment: Key) -> None:
        """Look after every queue whose worker this Deployment is."""
        for body in self._inventory:
            if fleet_of(body) == deployment:
                await self.look(key_of(body))

    async def look(self, key: Key, *, thoroughly: bool = False) -> None:
        """Look at a queue's workers, undo what was done to them, and tell how they are."""
        async with self._inventory.lock(key):
            body = self._inventory.get(key)
            if body is None or is_going(body) or "topology" not in (body.get("status") or {}):
                self._restless.discard(key)
                return  # it is gone, or still to be brought about
            answers = await self._tended(body, thoroughly=thoroughly)
            generation = body["metadata"]["generation"]
            await self._reporter.report(key, Report(answers=answers, generation=generation))

    async def run(self) -> None:
        """Go round until cancelled."""
        walked = time.monotonic()
        while True:
            keys = set(self._restless)
            try:
                if time.monotonic() - walked >= self._pace.drift:
                    walked = time.monotonic()
                    await self._walk()
                for key in keys:
                    await self._look_unless_busy(key)
            except Exception:  # noqa: BLE001  # whatever it was, the next round comes
                _log.exception("looking after workers failed", extra={"action": "tend"})
            await asyncio.sleep(self._pace.poll)

    async def _walk(self) -> None:
        """Look at all that we own, and again after whatever is not as we left it."""
        bodies = [body for body in self._inventory if _template(body) and not is_going(body)]
        self._left = {key: left for key, left in self._left.items() if self._inventory.get(key)}
        everywhere = self._pace.namespaces is None
        namespaces = {None} if everywhere else {body["metadata"]["namespace"] for body in bodies}
        found = {
            (kind, *key_of(child)): child
            for kind in ("deployments", "serviceaccounts")
            for namespace in namespaces
            for child in await self._cluster.children(kind, namespace)
        }
        for body in bodies:
            namespace, name = key_of(body)
            there = found.get(("deployments", namespace, deployment_name(name)))
            account = found.get(("serviceaccounts", namespace, deployment_name(name)))
            intact = not uses_our_account(body) or same(account, service_account(body))
            if not (intact and self._as_left(body, there)):
                await self._look_unless_busy(key_of(body), thoroughly=True)

    async def _look_unless_busy(self, key: Key, *, thoroughly: bool = False) -> None:
        """Look, but wait for nobody: whoever is at a queue may itself wait for its broker."""
        if not self._inventory.lock(key).locked():
            await self.look(key, thoroughly=thoroughly)

    def _as_left(self, body: Body, found: Object | None) -> bool:
        _, generation = self._left.get(key_of(body), ("", -1))
        if found is None or not belongs_to(found, body):
            return False
        return bool(found["metadata"]["generation"] == generation)

    async def _tended(self, body: Body, *, thoroughly: bool) -> dict[str, Answer]:
        worker = (body.get("spec") or {}).get("worker") or {}
        had_workers = find(body.get("status") or {}, WORKERS_READY)
        try:
            if worker.get("template"):
                answer = await self._from_template(body, thoroughly=thoroughly)
            else:
                if had_workers:
                    await self._remove(body)
                if worker.get("deploymentRef"):
                    answer = await self._of_reference(body, worker["deploymentRef"]["name"])
                elif had_workers:
                    answer = yes("NoWorkers", "spec.worker names none; pods come from elsewhere")
                else:
                    return {}
        except Refused as refusal:
            answer = no("Refused", f"the API server refuses: {refusal}")
        at_ease = answer.status == "True" and answer.reason != "Starting"
        (self._restless.discard if at_ease else self._restless.add)(key_of(body))
        return {WORKERS_READY: answer}

    async def _from_template(self, body: Body, *, thoroughly: bool) -> Answer:
        if self._sidecar is None:
            return no("NoSidecar", "the operator was started without --sidecar-image; give it one")
        try:
            wanted = manifests(body, self._timeouts(body), self._sidecar)
        except Impossible as refusal:
            return no("InvalidTemplate", f"spec.worker.template: {refusal}")
        found = await self._cluster.read(wanted[-1])
        if found is not None and not belongs_to(found, body):
            return no("NotOurs", _not_ours(found))
        mark = fingerprint(wanted[-1])
        left = self._left.get(key_of(body))
        if thoroughly or found is None or left != (mark, found["metadata"]["generation"]):
            applied, mended = await self._apply(body, wanted, found)
            self._left[key_of(body)] = (mark, applied["metadata"]["generation"])
            if left is not None and left[0] == mark:
                await self._tell(body, mended)
            found = applied
        return await self._judged(body, found)

    async def _of_reference(self, body: Body, name: str) -> Answer:
        namespace, queue = key_of(body)
        found = await self._cluster.read(_deployment(namespace, name))
        if found is None:
            return no(
                "NoDeployment",
                f"there is no Deployment {name} in namespace {namespace}; create it, or correct "
                "spec.worker.deploymentRef",
            )
        lacking = not_injected(found, queue)
        return no("NotInjected", lacking) if lacking else await self._judged(body, found)

    async def _judged(self, body: Body, deployment: Object) -> Answer:
        were_ready = find(body.get("status") or {}, WORKERS_READY).get("status") == "True"
        answer = workers_ready(deployment, (), were_ready=were_ready)
        if answer.reason != "Starting":
            return answer
        namespace, selector = deployment["metadata"]["namespace"], fleet_in(deployment).selector
        pods = await self._cluster.pods(namespace, selector)
        return workers_ready(deployment, pods, were_ready=were_ready)

    def _timeouts(self, body: Body) -> dict[str, float]:
        """Return how long a job of each queue may take that the template works off."""
        namespace, name = key_of(body)
        timeouts = {}
        for queue in wish_of(pod_template(body)["metadata"]).queues:
            other = body if queue == name else self._inventory.get((namespace, queue))
            if other is None:
                raise Impossible(f"it names the queue {queue}, which is not in {namespace}")
            try:
                timeouts[queue] = timeout_of(queue_in(other))
            except Trouble as trouble:
                raise Impossible(
                    f"it names the queue {queue}, which is invalid: {trouble}"
                ) from None
        return timeouts

    async def _apply(
        self, body: Body, wanted: list[Manifest], found: Object | None
    ) -> tuple[Object, list[str]]:
        """Apply all of it; return the Deployment, and in words what was not as it shall be."""
        *others, deployment = wanted
        mended = []
        for manifest in others:
            there = await self._cluster.read(manifest)
            if not same(there, manifest):
                await self._cluster.apply(manifest)
                mended.append(_mended(manifest, there))
        if body["spec"].get("scaling") and (found is None or writes_replicas(found)):
            await self._hand_over(body, deployment, found)
        applied = await self._cluster.apply(deployment)
        if found is None or not _is_intact(found, applied, deployment):
            mended.append(_mended(deployment, found))
        return applied, mended

    async def _hand_over(self, body: Body, deployment: Manifest, found: Object | None) -> None:
        """Leave the count of replicas to the scaler, at what it is or shall begin with.

        A field that we applied and then leave out falls back to its default, unless somebody else
        holds it as well.
        """
        count = queue_in(body).spec.least_replicas if found is None else found["spec"]["replicas"]
        spec = {**deployment["spec"], "replicas": count}
        await self._cluster.apply({**deployment, "spec": spec})
        only = {key: deployment["metadata"][key] for key in ("name", "namespace")}
        kept = {**deployment, "metadata": only, "spec": {"replicas": count}}
        await self._cluster.apply(kept, manager=_SCALER)

    async def _remove(self, body: Body) -> None:
        """Take away what we ran for a queue that wants it no longer."""
        namespace, name = key_of(body)
        for kind in (_deployment, _service_account):
            found = await self._cluster.read(kind(namespace, deployment_name(name)))
            if found is not None and belongs_to(found, body):
                await self._cluster.delete(found)
        self._left.pop(key_of(body), None)

    async def _tell(self, body: Body, mended: list[str]) -> None:
        """Post an event if what we had made was not as we had left it."""
        if mended:
            metrics.REPAIRS.inc(len(mended))
            await self._reporter.tell(body, "Warning", "Repaired", "; ".join(mended))


def _is_intact(found: Object, applied: Object, wanted: Manifest) -> bool:
    """Tell whether applying has changed nothing; marks do not raise the generation."""
    unchanged: bool = found["metadata"]["generation"] == applied["metadata"]["generation"]
    return unchanged and is_marked(found, wanted)


def _mended(wanted: Manifest, found: Object | None) -> str:
    thing = f"{wanted['kind']} {wanted['metadata']['name']}"
    return f"recreated {thing}" if found is None else f"set {thing} back"


def _template(body: Body) -> Any:
    return ((body.get("spec") or {}).get("worker") or {}).get("template")


def _deployment(namespace: str, name: str) -> Manifest:
    metadata = {"namespace": namespace, "name": name}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata}


def _service_account(namespace: str, name: str) -> Manifest:
    metadata = {"namespace": namespace, "name": name}
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}


def _not_ours(found: Object) -> str:
    name = found["metadata"]["name"]
    return (
        f"Deployment {name} exists and does not belong to this queue; delete it, or name it in "
        "spec.worker.deploymentRef instead of a template"
    )
