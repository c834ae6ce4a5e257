"""How long a queue that was deleted waits, and for what."""

from typing import Any

import pytest

from namedqueue import topology
from namedqueue.topology import Broker, Names, Version, management
from namedqueue_operator.accounts import Account
from namedqueue_operator.applying import SETTLED_SECONDS, Emptiness
from namedqueue_operator.brokers import Link
from namedqueue_operator.deleting import Deleter, Waiting
from namedqueue_operator.inventory import Inventory
from namedqueue_operator.reconciling import Reconciler
from namedqueue_operator.troubles import BrokerTrouble
from unit.manifests import named_queue
from unit.test_operator_planning import _listed

_GIVE_UP = 300.0
_NAMES = Names("shop", "orders")


class _Broker:
    """A broker with one queue; it refuses whoever is let into a vhost that is not there."""

    def __init__(self, **spec: Any) -> None:
        self.listed_as = _listed(topology.compile(named_queue(**spec), Broker()))
        self.away = False
        self.strange = False
        self.jobs = 0
        self.sent: list[management.Request] = []

    async def version(self) -> Version:
        if self.away or self.strange:
            raise BrokerTrouble("Unreachable", "no broker answers")
        return Version(4, 1)

    async def listed(self, kind: str, vhost: str | None = None) -> Any:
        if self.away:
            raise BrokerTrouble("Unreachable", "nobody answers")
        if self.strange:
            return None
        if vhost is not None and vhost not in self.listed_as["vhosts"]:
            return None
        if kind == "vhosts":
            return [{"name": each} for each in self.listed_as["vhosts"]]
        if kind == "queues":
            return [each | {"messages": self.jobs} for each in self.listed_as["queues"]]
        return self.listed_as[kind]

    async def permissions(self, _vhost: str) -> Any:
        return self.listed_as["permissions"]

    async def send(self, request: management.Request, *, within: float | None = None) -> None:  # noqa: ARG002  # a client's
        if request.path.startswith("permissions/") and not self.listed_as["vhosts"]:
            raise BrokerTrouble("Refused", "there is no such vhost")
        self.sent.append(request)


class _Surroundings:
    """Stands for brokers and cluster: one broker, nothing in the cluster, and nobody listens."""

    def __init__(self, broker: _Broker) -> None:
        account = Account(
            host="rabbit", port=5672, username="me", password="secret", management="http://rabbit"
        )
        self.now = 0.0
        self.link = Link(account, broker, emptiness=Emptiness(now=lambda: self.now))  # type: ignore[arg-type]  # as much of a client as it needs
        self.events: list[str] = []

    async def reach(self, _source: object) -> Link:
        return self.link

    reach_at_last = reach

    async def secret(self, *_: object) -> None:
        return None

    async def read(self, *_: object) -> None:
        return None

    async def apply(self, *_: object) -> None:
        return None

    async def report(self, *_: object) -> None:
        return None

    async def tell(self, _body: object, _kind: str, reason: str, _note: str) -> None:
        self.events.append(reason)

    def deleter(self) -> Deleter:
        return Deleter(self, Inventory(), self, give_up=_GIVE_UP, now=lambda: self.now)  # type: ignore[arg-type]  # as much of them as it needs


def _queue(**spec: Any) -> dict[str, Any]:
    metadata = {"name": "orders", "namespace": "shop", "uid": "u", "generation": 1}
    return {
        "apiVersion": "namedqueue.io/v1alpha1",
        "kind": "NamedQueue",
        "metadata": {**metadata, "resourceVersion": "1"},
        "spec": spec,
    }


async def test_a_broker_that_restarts_while_jobs_are_waited_for_costs_the_queue_nothing() -> None:
    broker = _Broker()
    around = _Surroundings(broker)
    deleter, queue = around.deleter(), _queue(deletionPolicy="Delete")
    queue["metadata"]["deletionTimestamp"] = "2020-01-01T00:00:00Z"
    broker.jobs = 3
    with pytest.raises(Waiting, match="jobs are left"):
        await deleter.delete(queue)
    for away in (True, False, True):
        broker.away = away
        around.now += _GIVE_UP - 1
        with pytest.raises(Waiting):
            await deleter.delete(queue)
    assert around.events == []
    around.now += _GIVE_UP
    await deleter.delete(queue)
    assert around.events == ["Orphaned"]


async def test_a_server_that_is_no_broker_is_not_believed_that_nothing_is_there() -> None:
    """The broker's host is somebody else's by now, who answers 404 to everything."""
    broker = _Broker()
    around = _Surroundings(broker)
    await around.link.described()
    broker.strange = True
    with pytest.raises(Waiting):
        await around.deleter().delete(_queue())


@pytest.mark.parametrize("policy", ["Retain", "Delete"])
async def test_a_queue_whose_vhost_is_gone_goes_at_once_with_its_users(policy: str) -> None:
    broker = _Broker()
    broker.listed_as |= {"vhosts": [], "permissions": []}
    await _Surroundings(broker).deleter().delete(_queue(deletionPolicy=policy))
    users = {f"users/{_NAMES.consumer}", f"users/{_NAMES.producer}"}
    assert {(each.method, each.path) for each in broker.sent} == {("DELETE", at) for at in users}


async def test_a_queue_that_lived_again_has_to_be_seen_empty_anew() -> None:
    """It is seen empty while it goes, stays after all, is used, and is deleted again."""
    broker = _Broker()
    around = _Surroundings(broker)
    deleter, going = around.deleter(), _queue(deletionPolicy="Delete")
    with pytest.raises(Waiting, match="making sure"):
        await deleter.delete(going)
    inventory = Inventory()
    inventory.put(_queue())

    async def nothing(*_: object) -> Any:
        return {}

    async def no_store() -> None:
        return None

    reconciler = Reconciler(around, around, inventory, around, nothing, no_store)  # type: ignore[arg-type]  # as much of them as it needs
    await reconciler.reconcile(("shop", "orders"))
    around.now += SETTLED_SECONDS
    with pytest.raises(Waiting, match="making sure"):
        await deleter.delete(going)
