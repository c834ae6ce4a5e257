"""Plans are carried out step by step on a model of a broker; no step may lose or strand a job."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fixtures.scale import scaled
from namedqueue import topology
from namedqueue.api.namedqueue import NamedQueue
from namedqueue.ladder import HIGHEST_LEVELS
from namedqueue.topology import NOTHING, Broker, Tenancy, Topology, Version
from namedqueue.topology.actions import (
    Action,
    Conflict,
    DeclareQueue,
    DeleteQueue,
    RequireEmpty,
    SetPolicy,
    Unbind,
    discarding_jobs,
)
from namedqueue.topology.model import Arguments
from namedqueue.topology.names import holds_jobs, is_shared
from unit.manifests import brokers, named_queue, named_queues, versions
from unit.model_broker import ModelBroker

VERSION_4 = Broker(version=Version.parse("4.3"))
RUNS = scaled(2000)
NO_BIT, EVERY_BIT = "0" * HIGHEST_LEVELS, "1" * HIGHEST_LEVELS
delays = st.lists(st.text("01", min_size=HIGHEST_LEVELS, max_size=HIGHEST_LEVELS), max_size=2).map(
    lambda drawn: [NO_BIT, EVERY_BIT, *drawn]
)


def queues_of_jobs(found: Topology) -> list[str]:
    return [queue.name for queue in found.queues if holds_jobs(queue.name)]


def carry_out(
    broker: ModelBroker,
    actions: tuple[Action, ...],
    observed: Topology,
    desired: Topology,
    delays: list[str],
) -> bool:
    """Apply a plan up to the first refusal; tell whether it was carried out whole."""
    lasting = {it.name for it in observed.exchanges} & {it.name for it in desired.exchanges}
    lasting = {name for name in lasting if ".delay." in name}
    before = set(broker.lost(delays, lasting))
    for action in actions:
        if not broker.apply(action):
            return False
        assert set(broker.lost(delays, lasting)) <= before, f"after «{action}»"
    return True


def without_shared(found: Topology) -> Topology:
    return Topology(
        exchanges=tuple(it for it in found.exchanges if not is_shared(it.name)),
        queues=found.queues,
        bindings=tuple(it for it in found.bindings if not is_shared(it.destination)),
        policies=tuple(it for it in found.policies if not is_shared(it.name)),
        users=found.users,
        permissions=found.permissions,
    )


@settings(max_examples=RUNS)
@given(queue=named_queues(), broker=brokers)
def test_compiling_twice_gives_equal_hashable_values_that_need_no_step(
    queue: NamedQueue, broker: Broker
) -> None:
    once, again = topology.compile(queue, broker), topology.compile(queue, broker)
    assert once == again
    assert hash(once) == hash(again)
    assert topology.diff(once, again) == ()


@settings(max_examples=RUNS)
@given(queue=named_queues(), broker=brokers, delays=delays)
def test_creation_and_deletion_are_safe_at_each_step(
    queue: NamedQueue, broker: Broker, delays: list[str]
) -> None:
    desired = topology.compile(queue, broker)
    start = Topology(vhost=None if broker.tenancy is Tenancy.DEDICATED else desired.vhost)
    model = ModelBroker(start)
    assert carry_out(model, topology.diff(start, desired), start, desired, delays)
    assert model.topology() == desired
    assert carry_out(model, topology.diff(desired, NOTHING), desired, NOTHING, delays)
    assert without_shared(model.topology()) == NOTHING


@settings(max_examples=RUNS)
@given(data=st.data(), broker=brokers, delays=delays)
def test_an_update_that_the_api_accepts_is_carried_out_without_losing_a_job(
    data: st.DataObject, broker: Broker, delays: list[str]
) -> None:
    before = data.draw(named_queues())
    after = data.draw(named_queues(like=before))
    assert after.spec.forbidden_changes(before.spec) == ()
    observed = topology.compile(before, broker)
    desired = topology.compile(after, broker)
    jobs = data.draw(st.sets(st.sampled_from(queues_of_jobs(observed))))
    model = ModelBroker(observed, jobs)

    finished = carry_out(model, topology.diff(observed, desired), observed, desired, delays)
    assert jobs <= model.queues.keys()
    model.jobs.clear()
    rest = topology.diff(model.topology(), desired)
    assert bool(rest) is not finished
    assert carry_out(model, rest, observed, desired, delays)
    assert model.topology() == desired


@settings(max_examples=RUNS)
@given(data=st.data(), broker=brokers, delays=delays)
def test_whatever_was_taken_away_behind_our_back_comes_back(
    data: st.DataObject, broker: Broker, delays: list[str]
) -> None:
    before = data.draw(named_queues())
    whole = topology.compile(before, broker)
    observed = data.draw(damaged(whole))
    desired = topology.compile(data.draw(named_queues(like=before)), broker)
    model = ModelBroker(observed)
    assert carry_out(model, topology.diff(observed, desired), observed, desired, delays)
    assert model.topology() == desired


@settings(max_examples=RUNS)
@given(one=named_queues(), other=named_queues(), broker=brokers)
def test_between_any_two_queues_there_is_a_whole_plan_or_only_conflicts(
    one: NamedQueue, other: NamedQueue, broker: Broker
) -> None:
    plan = topology.diff(topology.compile(one, broker), topology.compile(other, broker))
    conflicts = [action for action in plan if isinstance(action, Conflict)]
    assert len(conflicts) in (0, len(plan))
    if not other.spec.forbidden_changes(one.spec):
        assert not conflicts


@settings(max_examples=RUNS)
@given(queue=named_queues(), old=versions, new=versions)
def test_a_broker_can_be_upgraded_under_its_queues(
    queue: NamedQueue, old: Version, new: Version
) -> None:
    plan = topology.diff(
        topology.compile(queue, Broker(version=old)), topology.compile(queue, Broker(version=new))
    )
    assert all(isinstance(action, SetPolicy) for action in plan)


@settings(max_examples=RUNS)
@given(queue=named_queues(), broker=brokers, data=st.data(), delays=delays)
def test_deletion_touches_no_queue_while_a_job_is_left_anywhere(
    queue: NamedQueue, broker: Broker, data: st.DataObject, delays: list[str]
) -> None:
    observed = topology.compile(queue, broker)
    job = data.draw(st.sampled_from(queues_of_jobs(observed)))
    model = ModelBroker(observed, {job})
    assert not carry_out(model, topology.diff(observed, NOTHING), observed, NOTHING, delays)
    assert model.topology().queues == observed.queues
    assert all(not user.endswith(".producer") for user in model.users)
    assert observed.vhost is None or not any(is_shared(it.source) for it in own(model, observed))


@st.composite
def damaged(draw: st.DrawFn, whole: Topology) -> Topology:
    """Take some objects away, with the bindings that RabbitMQ would take along."""

    def some(names: list[str]) -> set[str]:
        return draw(st.sets(st.sampled_from(names))) if names else set()

    exchanges = some([it.name for it in whole.exchanges])
    queues = some([it.name for it in whole.queues])
    users = some([it.name for it in whole.users])
    bindings = some([it.name for it in whole.bindings])
    policies = some([it.name for it in whole.policies])
    return Topology(
        vhost=whole.vhost,
        exchanges=tuple(it for it in whole.exchanges if it.name not in exchanges),
        queues=tuple(it for it in whole.queues if it.name not in queues),
        bindings=tuple(
            it
            for it in whole.bindings
            if it.name not in bindings
            and it.source not in exchanges
            and it.destination not in (queues if it.to == "queue" else exchanges)
        ),
        policies=tuple(it for it in whole.policies if it.name not in policies),
        users=tuple(it for it in whole.users if it.name not in users),
        permissions=tuple(it for it in whole.permissions if it.user not in users),
    )


def own(model: ModelBroker, observed: Topology) -> list[topology.model.Binding]:
    names = {it.name for it in observed.exchanges if not is_shared(it.name)}
    return [it for it in model.bindings if it.destination in names]


def test_a_longer_policy_only_adds_levels_on_top() -> None:
    short = topology.compile(named_queue(retry={"maxAttempts": 3}), VERSION_4)
    long = topology.compile(named_queue(retry={"maxAttempts": 8}), VERSION_4)
    plan = topology.diff(short, long)
    assert [str(action) for action in plan if isinstance(action, DeclareQueue)] == [
        f"declare queue nq.shop.orders.delay.{level} (quorum)" for level in (4, 5, 6, 7, 8)
    ]
    assert not any(isinstance(action, Unbind | DeleteQueue | SetPolicy) for action in plan)


def test_levels_go_from_the_top_and_only_when_empty() -> None:
    long = topology.compile(named_queue(retry={"maxAttempts": 8}), VERSION_4)
    short = topology.compile(named_queue(retry={"maxAttempts": 6}), VERSION_4)
    assert [str(action) for action in topology.diff(long, short)] == [
        "unbind nq.shop.orders.delay.8 -> queue nq.shop.orders.delay.8 [*.*.*.*.*.*.*.*.1.#]",
        "delete queue nq.shop.orders.delay.8 when empty",
        "unbind nq.shop.orders.delay.8 -> exchange nq.shop.orders.delay.7 [*.*.*.*.*.*.*.*.0.#]",
        "delete exchange nq.shop.orders.delay.8",
        "unbind nq.shop.orders.delay.7 -> queue nq.shop.orders.delay.7 [*.*.*.*.*.*.*.1.#]",
        "delete queue nq.shop.orders.delay.7 when empty",
        "unbind nq.shop.orders.delay.7 -> exchange nq.shop.orders.delay.6 [*.*.*.*.*.*.*.0.#]",
        "delete exchange nq.shop.orders.delay.7",
    ]


def test_the_dead_letters_are_made_first_and_the_users_last() -> None:
    plan = topology.diff(NOTHING, topology.compile(named_queue(), VERSION_4))
    steps = [str(action) for action in plan]
    assert steps[:9] == [
        "create vhost nq-shop",
        "declare exchange nq.shop.orders.dlq (fanout)",
        "set policy nq.shop.orders.dlq",
        "declare queue nq.shop.orders.dlq (quorum)",
        "bind nq.shop.orders.dlq -> queue nq.shop.orders.dlq",
        "declare exchange nq.shop.orders (fanout)",
        "set policy nq.shop.orders.main",
        "declare queue nq.shop.orders.main (quorum)",
        "bind nq.shop.orders -> queue nq.shop.orders.main",
    ]
    assert steps[-4:] == [
        "create user nq.shop.orders.consumer",
        "create user nq.shop.orders.producer",
        "set the permissions of nq.shop.orders.consumer",
        "set the permissions of nq.shop.orders.producer",
    ]


def test_a_changed_argument_is_a_conflict_that_says_what_to_do() -> None:
    quorum = topology.compile(named_queue(), VERSION_4)
    classic = topology.compile(named_queue(durable={"storage": "classic"}), VERSION_4)
    (conflict,) = topology.diff(quorum, classic)
    assert str(conflict) == (
        "queue nq.shop.orders.main cannot change: x-dead-letter-strategy is at-least-once and "
        "shall be not set; x-queue-type is quorum and shall be classic; put the manifest back, or "
        "move the jobs away and delete the queue so that it is made anew"
    )


def test_a_partition_is_never_taken_away() -> None:
    def ordered(partitions: int) -> Topology:
        fifo = {"groupBy": "body.customer", "partitions": partitions}
        return topology.compile(named_queue(durable={"fifo": fifo}), VERSION_4)

    plan = topology.diff(ordered(3), ordered(2))
    assert "\n".join(map(str, plan)) == (
        "queue nq.shop.orders.main.2 is a partition of a FIFO queue that shall have fewer of them; "
        "put spec.durable.fifo.partitions back, or make a NamedQueue with another name"
    )


def test_a_queue_cannot_move_to_another_vhost() -> None:
    dedicated = topology.compile(named_queue(), VERSION_4)
    shared = topology.compile(named_queue(), Broker(tenancy=Tenancy.SHARED, vhost="team"))
    (conflict,) = topology.diff(dedicated, shared)
    assert "vhost nq-shop is where the queue lives" in str(conflict)


def test_the_books_of_a_stream_do_not_keep_it() -> None:
    spec = {"stream": {"consumers": [{"group": "audit"}]}, "worker": {"port": 8080}}
    made = topology.compile(named_queue(type="stream", **spec), VERSION_4)
    plan = [str(action) for action in topology.diff(made, NOTHING)]
    assert "go on only when no job is left in nq.shop.orders.main" in plan
    assert {step for step in plan if step.startswith("delete queue")} == {
        "delete queue nq.shop.orders.cursors",
        "delete queue nq.shop.orders.readers.audit",
        "delete queue nq.shop.orders.main when empty",
    }
    fewer = topology.compile(named_queue(type="stream"), VERSION_4)
    assert "delete queue nq.shop.orders.readers.audit" in map(str, topology.diff(made, fewer))


def test_someone_who_lets_jobs_go_is_asked_nothing() -> None:
    plan = topology.diff(topology.compile(named_queue(), VERSION_4), NOTHING)
    forced = discarding_jobs(plan)
    assert not any(isinstance(action, RequireEmpty) for action in forced)
    assert all(not action.if_empty for action in forced if isinstance(action, DeleteQueue))
    assert len(forced) == len(plan) - 1


@given(one=named_queues(), other=named_queues(), broker=brokers)
def test_queues_of_a_vhost_agree_on_what_they_share(
    one: NamedQueue, other: NamedQueue, broker: Broker
) -> None:
    assume(one != other)
    mine, yours = topology.compile(one, broker), topology.compile(other, broker)
    exchanges = [{it for it in each.exchanges if is_shared(it.name)} for each in (mine, yours)]
    policies = [{it for it in each.policies if is_shared(it.name)} for each in (mine, yours)]
    assert (exchanges[0], policies[0]) == (exchanges[1], policies[1])


@pytest.mark.parametrize(
    "edit",
    [
        {"pattern": r"\Qnq.shop.orders.delay\E"},
        {"definition": Arguments({"ha-mode": "nodes", "ha-params": ["rabbit@a"]})},  # type: ignore[dict-item]  # what the broker takes, and we never write
    ],
    ids=["a pattern that Python cannot read", "a list of nodes"],
)
def test_a_policy_that_was_edited_in_the_brokers_own_words_is_set_back(
    edit: dict[str, Any],
) -> None:
    desired = topology.compile(named_queue(), VERSION_4)
    edited = replace(desired, policies=tuple(replace(it, **edit) for it in desired.policies))
    steps = topology.diff(edited, desired)
    assert {type(step) for step in steps} == {SetPolicy}
    assert len(steps) == len(desired.policies)
