"""Hundreds of things broken behind the operator's back: each is put back, and told of."""

import json
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from control_plane.crowds import is_ready
from control_plane.operating import Operated
from fixtures.api_server import ApiServer
from fixtures.scale import scaled
from namedqueue import topology
from namedqueue.api import GROUP, VERSION
from namedqueue.api.namedqueue import NamedQueue
from namedqueue.api.reading import read
from namedqueue.topology import Topology, Version
from namedqueue.topology.management import observe
from namedqueue.topology.model import Vhost
from namedqueue.topology.names import is_shared

_WITHIN = 60.0
_TEMPLATE = {"spec": {"containers": [{"name": "app", "image": "registry.example/app:1"}]}}
_WORKERS: dict[str, Any] = {
    "worker": {"port": 8080, "template": _TEMPLATE},
    "scaling": {"maxReplicas": 2},
}
_KINDS: dict[str, dict[str, Any]] = {
    "quorum": {"subscriptions": [{"topic": "order/#"}]},
    "classic": {"durable": {"storage": "classic", "mode": "lazy"}},
    "fifo": {"durable": {"fifo": {"groupBy": "body.a", "partitions": 2}}},
    "stream": {"type": "stream", "stream": {"maxAge": "7d"}},
    "short": {"retry": {"delay": "1s", "maxDelay": "2s"}},
}
_NAMES = [f"{kind}-{copy}" for copy in range(2) for kind in _KINDS]
_PLACES = {
    "ConfigMap": "/api/v1/namespaces/{}/configmaps/{}",
    "Secret": "/api/v1/namespaces/{}/secrets/{}",
    "ServiceAccount": "/api/v1/namespaces/{}/serviceaccounts/{}",
    "Deployment": "/apis/apps/v1/namespaces/{}/deployments/{}",
}


@dataclass(frozen=True)
class _Harm:
    """Something done to a queue, and the words of the event that tells of its repair."""

    queue: str
    told: str
    do: Callable[[], object]


@dataclass(frozen=True)
class _Scene:
    """A namespace with some queues of each kind; a look at all of them costs a handful of calls."""

    operated: Operated
    http: httpx.Client
    wanted: dict[str, Topology] = field(default_factory=dict)

    def listed(self, path: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.http.get(path).raise_for_status().json()["items"]
        return found

    def queues(self) -> dict[str, dict[str, Any]]:
        path = f"/apis/{GROUP}/{VERSION}/namespaces/{self.operated.namespace}/namedqueues"
        return {each["metadata"]["name"]: each for each in self.listed(path)}

    def notes(self) -> dict[str, tuple[str, str]]:
        """Return the queue and the note of each event, by the event's uid."""
        path = f"/apis/events.k8s.io/v1/namespaces/{self.operated.namespace}/events"
        return {
            each["metadata"]["uid"]: (each["regarding"]["name"], each["note"])
            for each in self.listed(path)
        }

    def compile(self) -> None:
        """Note what each queue shall be on the broker."""
        broker = topology.Broker(version=Version.parse(self.operated.broker.version))
        for name, body in self.queues().items():
            queue = read(body)
            assert isinstance(queue, NamedQueue)
            self.wanted[name] = topology.compile(queue, broker)

    def all_well(self) -> bool:
        """Tell whether every queue is ready, and all that it shall have is on the broker."""
        if not all(map(is_ready, self.queues().values())):
            return False
        vhost = quote(self.operated.vhost, safe="")
        kinds = ("exchanges", "queues", "bindings", "policies")
        there: dict[str, Any] = {kind: self.operated.listed(f"{kind}/{vhost}") for kind in kinds}
        there |= {kind: self.operated.listed(kind) for kind in ("users", "permissions")}
        place = Vhost(self.operated.vhost)
        return all(
            observe(self.operated.names(name), place, **there) == self.wanted[name]
            for name in _NAMES
        )

    def change(self, method: str, path: str, patch: object = None) -> None:
        """Do to an object of the cluster what a person would with kubectl."""
        headers = {"Content-Type": "application/merge-patch+json"}
        content = None if patch is None else json.dumps(patch)
        self.http.request(method, path, headers=headers, content=content).raise_for_status()


@pytest.fixture
def scene(operated: Operated, api_server: ApiServer) -> _Scene:
    """Give a namespace with some queues of each kind, with workers."""
    scene = _Scene(operated, api_server.http)
    for name in _NAMES:
        operated.apply(name, **_KINDS[name.partition("-")[0]], **_WORKERS)
    scene.compile()
    operated.eventually(scene.all_well, "all queues are ready", deadline=120)
    return scene


@pytest.mark.timeout(900)
def test_whatever_is_deleted_or_edited_is_back_within_a_minute_with_an_event(scene: _Scene) -> None:
    dice = random.Random(20261118)  # noqa: S311  # repeatable, not secret
    took: list[float] = []
    kinds: Counter[str] = Counter()
    while len(took) < scaled(200):
        harms = [
            dice.choice(list(possible))
            for name in _NAMES
            for possible in (
                _on_the_broker(scene, name, dice),
                _to_its_children(scene, name),
                _to_its_workers(scene, name),
            )
        ]
        took += _repaired(scene, harms)
        assert max(took) < _WITHIN
        kinds.update(harm.told.partition(" nq")[0] for harm in harms)
    print(f"{len(took)} repaired, the slowest after {max(took):.0f} s: {dict(kinds)}")  # noqa: T201  # a figure of the full run


def _repaired(scene: _Scene, harms: Sequence[_Harm]) -> list[float]:
    """Do harm; wait until all of it is repaired and told; return how long each took."""
    known = scene.notes()
    began = {}
    for harm in harms:
        harm.do()
        began[harm] = time.monotonic()
    took: dict[_Harm, float] = {}

    def told() -> bool:
        news = [note for uid, note in scene.notes().items() if uid not in known]
        for harm in harms:
            if any(harm.queue == queue and harm.told in note for queue, note in news):
                took.setdefault(harm, time.monotonic() - began[harm])
        return len(took) == len(harms)

    def left() -> str:
        return ", ".join(f"{each.told} ({each.queue})" for each in harms if each not in took)

    try:
        scene.operated.eventually(told, "every repair is told of", deadline=_WITHIN + 30)
    except AssertionError as error:
        raise AssertionError(f"{error}\nnever told: {left()}") from None
    scene.operated.eventually(scene.all_well, "everything is in place")
    return list(took.values())


def _on_the_broker(scene: _Scene, name: str, dice: random.Random) -> Iterator[_Harm]:
    """Name what can be done to a queue by someone with the broker's console."""
    wanted, vhost = scene.wanted[name], scene.operated.vhost

    def call(method: str, *path: str, body: object = None) -> Callable[[], object]:
        place = "/".join(quote(part, safe="") for part in path)
        return lambda: scene.operated.broker.api(method, place, json=body)

    exchanges = [each for each in wanted.exchanges if not is_shared(each.name)]
    policies = [each for each in wanted.policies if not is_shared(each.name)]
    queue, exchange = dice.choice(wanted.queues), dice.choice(exchanges)
    policy, permission = dice.choice(policies), dice.choice(wanted.permissions)
    user, binding = dice.choice(wanted.users), dice.choice(wanted.bindings)
    yield _Harm(name, f"recreated queue {queue.name}", call("DELETE", "queues", vhost, queue.name))
    yield _Harm(
        name,
        f"recreated exchange {exchange.name}",
        call("DELETE", "exchanges", vhost, exchange.name),
    )
    yield _Harm(
        name, f"set policy {policy.name} back", call("DELETE", "policies", vhost, policy.name)
    )
    other = {"pattern": "^x$", "definition": {"max-length": 1}, "apply-to": "queues"}
    yield _Harm(
        name,
        f"set policy {policy.name} back",
        call("PUT", "policies", vhost, policy.name, body=other),
    )
    yield _Harm(name, f"recreated user {user.name}", call("DELETE", "users", user.name))
    changed = {"password": "mine", "tags": "monitoring"}
    yield _Harm(name, f"recreated user {user.name}", call("PUT", "users", user.name, body=changed))
    everything = {"configure": ".*", "write": ".*", "read": ".*"}
    yield _Harm(
        name,
        f"set the permissions of {permission.user} back",
        call("PUT", "permissions", vhost, permission.user, body=everything),
    )
    ends = (vhost, "e", binding.source, binding.to[0], binding.destination)
    yield _Harm(
        name,
        f"bound {binding.source} to {binding.destination} again",
        call("DELETE", "bindings", *ends, binding.routing_key or "~"),
    )


def _to_its_children(scene: _Scene, name: str) -> Iterator[_Harm]:
    """Name what can be done to a queue's ConfigMap and Secrets by someone with kubectl."""
    for kind, child in (
        ("ConfigMap", f"nq-{name}"),
        ("Secret", f"nq-{name}-consumer"),
        ("Secret", f"nq-{name}-producer"),
    ):
        told = f"wrote {kind} {child}"
        yield _Harm(name, told, _change(scene, kind, child))
        yield _Harm(name, told, _change(scene, kind, child, {"data": None}))
        yield _Harm(name, told, _change(scene, kind, child, {"metadata": {"labels": None}}))


def _to_its_workers(scene: _Scene, name: str) -> Iterator[_Harm]:
    """Name what can be done to what a queue's workers run by."""
    edits: dict[str, Any] = {
        "Deployment": {"spec": {"template": {"spec": {"initContainers": None}}}},
        "ServiceAccount": {"automountServiceAccountToken": True},
    }
    for kind, edit in edits.items():
        thing = f"{kind} nq-{name}"
        deleted = _change(scene, kind, f"nq-{name}")
        unmarked = _change(scene, kind, f"nq-{name}", {"metadata": {"labels": None}})
        yield _Harm(name, f"recreated {thing}", deleted)
        yield _Harm(name, f"set {thing} back", _change(scene, kind, f"nq-{name}", edit))
        yield _Harm(name, f"set {thing} back", unmarked)


def _change(scene: _Scene, kind: str, name: str, patch: object = None) -> Callable[[], object]:
    """Return what edits an object, or without a patch deletes it."""
    path = _PLACES[kind].format(scene.operated.namespace, name)
    method = "DELETE" if patch is None else "PATCH"
    return lambda: scene.change(method, path, patch)
