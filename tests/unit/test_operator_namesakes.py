"""An object that was deleted and made again has its name and nothing else of the one before."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from prometheus_client import REGISTRY

from namedqueue.api.status import Depth
from namedqueue_operator.cluster import Stale
from namedqueue_operator.conditions import TOPOLOGY_READY, yes
from namedqueue_operator.fleets import Fleets
from namedqueue_operator.following import Follower
from namedqueue_operator.inventory import Inventory
from namedqueue_operator.redrives import behind
from namedqueue_operator.redriving import Redriver
from namedqueue_operator.reporting import Report, Reporter

_KEY = ("shop", "orders")


def _object(uid: str, kind: str = "NamedQueue") -> dict[str, Any]:
    metadata = {"name": "orders", "namespace": "shop", "uid": uid, "generation": 1}
    return {
        "apiVersion": "namedqueue.io/v1alpha1",
        "kind": kind,
        "metadata": {**metadata, "resourceVersion": uid},
        "spec": {"queue": "orders"} if kind == "QueueRedrive" else {},
    }


class _Cluster:
    """Knows one object, and runs `meanwhile` while it is being written."""

    def __init__(self, there: dict[str, Any]) -> None:
        self.there = there
        self.meanwhile: Callable[[], None] = lambda: None

    async def queue(self, _namespace: str, _name: str) -> dict[str, Any]:
        return self.there

    async def read(self, _manifest: Mapping[str, Any]) -> dict[str, Any]:
        return self.there

    async def patch_status(
        self, body: Mapping[str, Any], changes: Sequence[Mapping[str, Any]]
    ) -> dict[str, Any]:
        if body["metadata"]["resourceVersion"] != self.there["metadata"]["resourceVersion"]:
            raise Stale
        [change] = changes
        self.there = {**self.there, "status": change["value"]}
        self.meanwhile()
        return self.there

    async def event(self, *_: object) -> None:
        pass


def _reporter(cluster: _Cluster, inventory: Inventory) -> Reporter:
    return Reporter(cluster, inventory)  # type: ignore[arg-type]  # as much of a cluster as it needs


async def test_what_was_found_out_about_a_queue_is_not_told_of_its_namesake() -> None:
    cluster, inventory = _Cluster(_object("2")), Inventory()
    inventory.put(_object("1"))
    report = Report(answers={TOPOLOGY_READY: yes("InPlace")}, generation=1)
    await _reporter(cluster, inventory).report(_KEY, report)
    assert "status" not in cluster.there


@pytest.mark.parametrize("after", [None, "2"])
async def test_a_queue_that_goes_while_it_is_told_of_does_not_come_back(after: str | None) -> None:
    cluster, inventory = _Cluster(_object("1")), Inventory()
    inventory.put(_object("1"))

    def meanwhile() -> None:
        inventory.drop(_object("1"))
        if after is not None:
            inventory.put(_object(after))

    cluster.meanwhile = meanwhile
    await _reporter(cluster, inventory).report(_KEY, Report(replicas=3))
    assert [body["metadata"]["uid"] for body in inventory] == ([after] if after else [])


def _redriver(cluster: _Cluster) -> Redriver:
    return Redriver(cluster, Inventory(), None, poll=1.0)  # type: ignore[arg-type]  # as much of a cluster as it needs


async def test_what_came_of_a_redrive_is_not_told_of_its_namesake() -> None:
    cluster = _Cluster(_object("2", "QueueRedrive"))
    await _redriver(cluster)._report(_object("1", "QueueRedrive"), behind("another"))
    assert "status" not in cluster.there


async def test_a_redrive_that_is_cancelled_while_it_is_told_of_does_not_come_back() -> None:
    redrive = _object("1", "QueueRedrive")
    cluster = _Cluster(redrive)
    redriver = _redriver(cluster)
    redriver.learn(redrive)
    cluster.meanwhile = lambda: redriver.forget(redrive)
    await redriver._report(redrive, behind("another"))
    assert not redriver._redrives


async def test_a_queue_that_is_gone_when_its_poll_is_answered_is_not_measured() -> None:
    gone = _object("gone")
    gone["metadata"]["name"] = "vanished"
    inventory = Inventory()
    follower = Follower(
        _Cluster(gone),  # type: ignore[arg-type]  # as much of a cluster as it needs
        inventory,
        Fleets(),
        _reporter(_Cluster(gone), inventory),
        poll=5.0,
    )
    await follower.follow(gone, Depth(ready=7), None)
    about = {"namespace": "shop", "queue": "vanished", "stage": "ready"}
    assert REGISTRY.get_sample_value("namedqueue_jobs", about) is None


async def test_whoever_is_told_late_that_an_object_is_gone_keeps_its_namesake() -> None:
    """The watch tells of each object by itself: the new one may be heard of before the end."""
    inventory = Inventory()
    redriver = _redriver(_Cluster(_object("2")))
    for uid in ("1", "2"):
        inventory.put(_object(uid))
        redriver.learn(_object(uid, "QueueRedrive"))
    inventory.drop(_object("1"))
    redriver.forget(_object("1", "QueueRedrive"))
    assert inventory.get(_KEY) == _object("2")
    assert list(redriver._redrives.values()) == [_object("2", "QueueRedrive")]


def test_a_count_that_was_asked_for_is_not_undone_by_older_news_of_its_deployment() -> None:
    def deployment(version: int, replicas: int) -> dict[str, Any]:
        metadata = {"name": "orders", "namespace": "shop", "resourceVersion": str(version)}
        return {"metadata": metadata, "spec": {"replicas": replicas, "selector": {}}}

    fleets, counts = Fleets(), []
    fleets.put(deployment(1, 2))
    fleets.asked(_KEY, 10, 5)
    for version, replicas in ((4, 2), (5, 10), (6, 7)):
        fleets.put(deployment(version, replicas))
        fleet = fleets.get(_KEY)
        assert fleet is not None
        counts.append(fleet.asked)
    assert counts == [10, 10, 7]
