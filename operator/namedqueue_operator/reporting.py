"""Telling about a queue in its status, and in an event when the news is new.

What has not changed is not written. A write holds only for the version that it was computed from;
if somebody was faster, the newest version is read and computed anew.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from namedqueue.api.status import Depth
from namedqueue.topology import Topology
from namedqueue_operator.cluster import Cluster, Object, Refused, Stale
from namedqueue_operator.conditions import (
    BROKER_REACHABLE,
    READY,
    TOPOLOGY_READY,
    Answer,
    find,
    no,
    settle,
    summary,
    told,
    unknown,
)
from namedqueue_operator.inventory import Body, Inventory, Key, is_same
from namedqueue_operator.troubles import BrokerTrouble, Trouble

_log = logging.getLogger(__name__)
_TRIES: Final = 5


@dataclass(frozen=True, kw_only=True)
class Report:
    """What was found out about a queue; None is for what was not looked at.

    `generation` is that of the spec which the answers are about. The queue may have a newer one by
    the time they are written, and must not seem to be ready for it.
    """

    answers: Mapping[str, Answer] = field(default_factory=dict)
    generation: int = 0
    place: str | None = None
    topology: Topology | None = None
    depth: Depth | None = None
    replicas: int | None = None
    selector: str | None = None

    @property
    def in_place(self) -> bool:
        """Whether the broker has what it shall have, as far as was looked at."""
        asked = (self.answers.get(kind) for kind in (BROKER_REACHABLE, TOPOLOGY_READY))
        return all(answer is None or answer.status == "True" for answer in asked)


def in_trouble(trouble: Trouble, generation: int, **known: Any) -> Report:
    """Report a trouble under the question that it answers."""
    if isinstance(trouble, BrokerTrouble):
        answers = {
            BROKER_REACHABLE: no(trouble.reason, str(trouble)),
            TOPOLOGY_READY: unknown(trouble.reason, "the broker cannot be asked"),
        }
    else:
        answers = {TOPOLOGY_READY: no(trouble.reason, str(trouble))}
    told = {**known.pop("answers", {}), **answers}
    return Report(answers=told, generation=generation, **known)


def status_after(body: Body, report: Report, now: str) -> dict[str, Any]:
    """Return the whole status that a report leads to."""
    status = dict(body.get("status") or {})
    if report.answers:
        generation = report.generation
        answers = dict(report.answers)
        whole = {**told(status, generation), **answers}
        if TOPOLOGY_READY in whole:  # else too little is known about this generation
            answers.setdefault(READY, summary(whole))
        before = status.get("conditions") or ()
        status["conditions"] = settle(before, answers, generation=generation, now=now)
        if READY in answers:
            status["observedGeneration"] = generation
    if report.place is not None:
        status["broker"] = report.place
    if report.depth is not None:
        status["depth"] = report.depth.model_dump(by_alias=True, mode="json")
    if report.topology is not None:
        status["topology"] = _listed(report.topology)
    if report.replicas is not None:
        status["replicas"] = report.replicas
    if report.selector is not None:
        status["selector"] = report.selector
    return status


def changes(body: Body, wanted: Mapping[str, Any]) -> list[Object]:
    """Return the JSON patch from a queue's status to the wanted one; none if they are equal."""
    if "status" not in body:
        return [{"op": "add", "path": "/status", "value": dict(wanted)}] if wanted else []
    return [
        {"op": "add", "path": f"/status/{key}", "value": value}
        for key, value in wanted.items()
        if body["status"].get(key) != value
    ]


class Reporter:
    """Writes what is new."""

    def __init__(self, cluster: Cluster, inventory: Inventory) -> None:
        self._cluster = cluster
        self._inventory = inventory

    async def report(self, key: Key, report: Report) -> None:
        """Bring a queue's status up to date; one that is gone needs none, nor its namesake."""
        body = first = self._inventory.get(key)
        for _ in range(_TRIES):
            if body is None or first is None or not is_same(first, body):
                return
            patch = changes(body, status_after(body, report, written_now()))
            if not patch:
                break
            try:
                after = await self._cluster.patch_status(body, patch)
            except Stale:
                body = await self._cluster.queue(*key)
                continue
            self._inventory.renew(after)
            await self._tell_the_news(body, after)
            break
        else:
            _log.warning("the status of %s changes faster than it can be written", "/".join(key))

    async def tell(self, body: Body, kind: str, reason: str, note: str) -> None:
        """Post an event; one that cannot be posted is logged, and nothing fails for it."""
        _log.info("%s: %s", reason, note, extra={"queue": _place(body), "action": "event"})
        try:
            await self._cluster.event(body, kind, reason, note)
        except Refused as refusal:
            _log.warning("an event was not posted: %s", refusal)

    async def _tell_the_news(self, before: Body, after: Body) -> None:
        old, new = (find(body.get("status") or {}, READY) for body in (before, after))
        if (old.get("status"), old.get("reason")) == (new.get("status"), new.get("reason")):
            return
        kind = "Normal" if new.get("status") == "True" else "Warning"
        await self.tell(after, kind, str(new.get("reason")), str(new.get("message")))


def _listed(topology: Topology) -> dict[str, Any]:
    return {
        "vhost": topology.vhost.name if topology.vhost else "",
        "exchanges": [exchange.name for exchange in topology.exchanges],
        "queues": [queue.name for queue in topology.queues],
    }


def _place(body: Body) -> str:
    return f"{body['metadata']['namespace']}/{body['metadata']['name']}"


def written_now() -> str:
    """Return this moment as conditions have it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
