"""What is seen on a broker, and what is done about it, without a broker."""

import base64
import hashlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from namedqueue import topology
from namedqueue.topology import NOTHING, Broker, Names, Topology, management
from namedqueue.topology.actions import (
    Bind,
    CreateUser,
    CreateVhost,
    DeclareQueue,
    DeleteExchange,
    DeleteQueue,
    DeleteUser,
    RequireEmpty,
    SetPermission,
    Unbind,
)
from namedqueue.topology.names import TRANSIT
from namedqueue_operator import children, repairs
from namedqueue_operator.applying import (
    SETTLED_SECONDS,
    Applied,
    Emptiness,
    Held,
    apply,
    entering,
    parted,
)
from namedqueue_operator.deleting import plan
from namedqueue_operator.inventory import Inventory
from namedqueue_operator.observing import Look
from unit.manifests import named_queue

_NAMES = Names("shop", "orders")
_VHOST = _NAMES.vhost
_PASSWORDS = {_NAMES.consumer: "one", _NAMES.producer: "two"}


def _compiled(**spec: Any) -> Topology:
    return topology.compile(named_queue(**spec), Broker())


def _user(name: str, password: str, tags: list[str] | None = None) -> dict[str, Any]:
    salt = b"salt"
    digest = base64.b64encode(salt + hashlib.sha256(salt + password.encode()).digest()).decode()
    algorithm = "rabbit_password_hashing_sha256"
    return {
        "name": name,
        "password_hash": digest,
        "hashing_algorithm": algorithm,
        "tags": tags or [],
    }


def _listed(desired: Topology, vhost: str = _VHOST) -> dict[str, Any]:
    """Write a topology as the management API lists it."""
    at = {"vhost": vhost}
    return {
        "vhosts": [vhost],
        "exchanges": [
            at
            | {"name": it.name, "type": it.type, "durable": it.durable}
            | {"auto_delete": it.auto_delete, "arguments": dict(it.arguments)}
            for it in desired.exchanges
        ],
        "queues": [
            at
            | {"name": it.name, "durable": it.durable, "auto_delete": it.auto_delete}
            | {"arguments": dict(it.arguments), "messages": 0}
            for it in desired.queues
        ],
        "bindings": [
            at
            | {"source": it.source, "destination": it.destination}
            | {"destination_type": it.to, "routing_key": it.routing_key}
            for it in desired.bindings
        ],
        "policies": [
            at
            | {"name": it.name, "pattern": it.pattern, "definition": dict(it.definition)}
            | {"priority": it.priority, "apply-to": it.apply_to}
            for it in desired.policies
        ],
        "users": [_user(user.name, _PASSWORDS[user.name]) for user in desired.users],
        "permissions": [
            at | {"user": it.user, "configure": it.configure, "write": it.write, "read": it.read}
            for it in desired.permissions
        ],
    }


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"subscriptions": [{"topic": "order/#"}, {"topic": "a/+"}]},
        {"durable": {"fifo": {"groupBy": "body.a", "partitions": 3}}},
        {"type": "stream"},
    ],
)
def test_what_was_compiled_is_seen_as_it_was_compiled(spec: dict[str, Any]) -> None:
    desired = _compiled(**spec)
    assert Look(**_listed(desired)).topology(_NAMES, _VHOST, _PASSWORDS) == desired


def test_a_neighbour_whose_name_begins_alike_is_not_seen() -> None:
    listed = _listed(_compiled(subscriptions=[{"topic": "order/#"}]))
    seen = Look(**listed).topology(Names("shop", "order"), _VHOST)
    assert (seen.queues, seen.bindings, seen.users) == ((), (), ())
    assert [it.name for it in seen.policies] == [TRANSIT]


def test_a_user_with_another_password_or_a_tag_counts_as_missing() -> None:
    listed = _listed(_compiled())
    for user in (_user(_NAMES.consumer, "other"), _user(_NAMES.consumer, "one", ["management"])):
        changed = listed | {"users": [user, _user(_NAMES.producer, "two")]}
        seen = Look(**changed).topology(_NAMES, _VHOST, _PASSWORDS)
        assert [it.name for it in seen.users] == [_NAMES.producer]


def test_users_are_seen_even_where_their_vhost_is_gone() -> None:
    seen = Look(**_listed(_compiled()) | {"vhosts": []}).topology(_NAMES, _VHOST)
    assert (seen.vhost, len(seen.users), seen.queues) == (None, 2, ())


def test_jobs_are_counted_by_stage() -> None:
    lengths = {
        "main": (3, 2),
        "delay.0": (4, 0),
        "delay.1": (1, 0),
        "redrive": (2, 0),
        "dlq": (5, 1),
    }
    queues = [
        {
            "vhost": _VHOST,
            "name": f"{_NAMES.prefix}.{name}",
            "messages": ready + unacked,
            "messages_ready": ready,
            "messages_unacknowledged": unacked,
        }
        for name, (ready, unacked) in lengths.items()
    ]
    depth = Look(queues=queues).depth(_NAMES, _VHOST)
    assert depth is not None
    assert (depth.ready, depth.in_flight, depth.waiting, depth.dead) == (3, 2, 7, 6)


def test_a_depth_is_unknown_when_one_queue_keeps_silent() -> None:
    queues = [{"vhost": _VHOST, "name": _NAMES.main}]
    assert Look(queues=queues).depth(_NAMES, _VHOST) is None
    assert Look().depth(_NAMES, _VHOST) is None


def test_we_let_ourselves_into_a_vhost_after_it_is_made_and_before_all_else() -> None:
    creation = topology.diff(NOTHING, _compiled())
    entered = entering(creation, "operator", admitted=False)
    assert isinstance(entered[0], CreateVhost)
    assert isinstance(entered[1], SetPermission)
    assert (entered[1].permission.user, entered[2:]) == ("operator", creation[1:])
    assert entering(creation, "operator", admitted=True) == creation
    assert entering((), "operator", admitted=False) == ()


@given(st.lists(st.tuples(st.floats(0, 4), st.integers(0, 1)), max_size=30))
def test_a_queue_is_trusted_to_be_empty_only_after_it_was_seen_so_for_some_time(
    readings: list[tuple[float, int]],
) -> None:
    now = 0.0
    empty_since: float | None = None
    emptiness = Emptiness(now=lambda: now)
    for pause, jobs in readings:
        now += pause
        empty_since = None if jobs else now if empty_since is None else empty_since
        settled = emptiness.settled(_VHOST, "q", jobs)
        assert settled == (empty_since is not None and now - empty_since >= SETTLED_SECONDS)


class _EmptyBroker:
    """Does what it is told, and says of every queue that it is empty."""

    def __init__(self, has: Topology) -> None:
        self._queues = tuple(queue.name for queue in has.queues)

    async def listed(self, _kind: str, _vhost: str) -> list[dict[str, Any]]:
        return [{"name": name, "messages": 0} for name in self._queues]

    async def send(self, request: management.Request, *, within: float | None = None) -> None:
        pass


async def test_a_level_that_jobs_were_led_to_again_has_to_be_seen_empty_anew() -> None:
    """A ladder shrinks, grows again before it is done, and shrinks: an old zero is no reason."""
    large, small = _compiled(), _compiled(retry={"delay": "1s", "maxDelay": "1s"})
    broker, now = _EmptyBroker(large), 0.0
    emptiness = Emptiness(now=lambda: now)

    async def become(desired: Topology, observed: Topology) -> Applied:
        steps = topology.diff(observed, desired)
        return await apply(steps, broker, _VHOST, emptiness=emptiness, passwords={})  # type: ignore[arg-type]  # as much of a client as it needs

    first = await become(small, large)
    assert first.held is not None
    cut = {step.binding for step in first.done if isinstance(step, Unbind)}
    gone = {step.exchange for step in first.done if isinstance(step, DeleteExchange)}
    left = replace(
        large,
        bindings=tuple(each for each in large.bindings if each not in cut),
        exchanges=tuple(each for each in large.exchanges if each not in gone),
    )
    assert (await become(large, left)).done
    now += SETTLED_SECONDS
    assert (await become(small, large)).held is not None
    now += SETTLED_SECONDS
    assert [step for step in (await become(small, large)).done if isinstance(step, DeleteQueue)]


def test_jobs_that_are_left_are_counted_in_words() -> None:
    assert str(Held({"a": 1, "b": 0})) == "1 job is left: 1 in a"
    assert str(Held({"a": 1, "b": 2})) == "3 jobs are left: 1 in a, 2 in b"


def test_retain_takes_only_the_users() -> None:
    steps = plan(_compiled(), named_queue(), force=True)
    assert {type(step) for step in steps} == {DeleteUser}
    assert len(steps) == 2


def test_delete_asks_whether_jobs_are_left_unless_it_is_forced() -> None:
    queue = named_queue(deletionPolicy="Delete")
    asking = plan(_compiled(), queue, force=False)
    assert any(isinstance(step, RequireEmpty) for step in asking)
    forced = plan(_compiled(), queue, force=True)
    assert not any(isinstance(step, RequireEmpty) for step in forced)
    assert all(not step.if_empty for step in forced if isinstance(step, DeleteQueue))


def test_a_repair_is_told_in_one_short_sentence() -> None:
    steps = topology.diff(NOTHING, _compiled())
    words = repairs.sentence(steps)
    assert words.startswith(f"recreated vhost {_VHOST}; ")
    told = [step for step in steps if not isinstance(step, Bind)]
    assert words.endswith(f"; and {len(told) - 6} more")
    assert repairs.sentence(()) == ""


def test_a_binding_is_told_of_only_if_both_its_ends_were_still_there() -> None:
    steps = topology.diff(NOTHING, _compiled())
    [binding] = [s for s in steps if isinstance(s, Bind) and s.binding.destination == _NAMES.main]
    [queue] = [s for s in steps if isinstance(s, DeclareQueue) and s.queue.name == _NAMES.main]
    bound = f"bound {_NAMES.main_exchange} to {_NAMES.main} again"
    assert repairs.sentence([binding]) == bound
    assert repairs.sentence([queue, binding]) == f"recreated queue {_NAMES.main}"


def _body(
    version: int = 1, uid: str = "u", annotations: Mapping[str, str] | None = None
) -> dict[str, Any]:
    metadata = {
        "name": "orders",
        "namespace": "shop",
        "uid": uid,
        "generation": 1,
        "resourceVersion": str(version),
        "annotations": annotations or {},
    }
    return {"metadata": metadata, "spec": {}}


def test_a_password_is_kept_until_the_annotation_changes() -> None:
    def stored(password: str, rotated: str) -> dict[str, Any]:
        data = {"password": base64.b64encode(password.encode()).decode()}
        return {"metadata": {"annotations": {children.ROTATED: rotated}}, "data": data}

    rotate = {"namedqueue.io/rotate-credentials": "2"}
    assert children.password_for(_body(), stored("old", "")) == "old"
    assert children.password_for(_body(annotations=rotate), stored("old", "2")) == "old"
    assert children.password_for(_body(annotations=rotate), stored("old", "1")) != "old"
    fresh = {children.password_for(_body(), None) for _ in range(9)}
    assert len(fresh) == 9
    assert min(map(len, fresh)) >= 32


def test_nothing_of_the_operators_own_memory_reaches_a_config_map() -> None:
    made = children.config_map(_body(annotations={"operator.namedqueue.io/last-handled": "{}"}))
    assert "operator.namedqueue.io" not in str(made)
    assert children.same(made, made)
    assert not children.same(None, made)


def test_an_older_version_never_replaces_a_newer_one() -> None:
    inventory = Inventory()
    inventory.put(_body(5))
    inventory.put(_body(4))
    assert [body["metadata"]["resourceVersion"] for body in inventory] == ["5"]
    inventory.put(_body(1, uid="another of the same name"))
    assert [body["metadata"]["resourceVersion"] for body in inventory] == ["1"]


@pytest.mark.parametrize(
    "spec",
    [
        {"subscriptions": [{"topic": "order/#"}]},
        {"durable": {"fifo": {"groupBy": "body.a", "partitions": 3}}},
        {"type": "stream", "subscriptions": [{"topic": "#"}]},
        {"type": "ephemeral"},
    ],
)
def test_what_is_new_is_made_by_one_call_between_its_vhost_and_whoever_can_reach_it(
    spec: dict[str, Any],
) -> None:
    steps = entering(topology.diff(NOTHING, _compiled(**spec)), "operator", admitted=False)
    first, together, then = parted(steps)
    assert [type(action) for action in first] == [CreateVhost, SetPermission]
    assert sorted(map(str, (*first, *together, *then))) == sorted(map(str, steps))
    entrances = [each for each in then if isinstance(each, Bind)]
    assert len(entrances) == len(spec.get("subscriptions", []))
    assert all(isinstance(each, Bind | CreateUser | SetPermission) for each in then)
    call = management.definitions(together, _VHOST)
    assert call.body is not None
    assert sum(map(len, call.body.values())) == len(together)


def test_what_somebody_may_be_using_is_mended_step_by_step() -> None:
    desired = _compiled()
    without = replace(desired, queues=desired.queues[1:], exchanges=desired.exchanges[1:])
    steps = topology.diff(without, desired)
    assert parted(steps) == (list(steps), [], [])
