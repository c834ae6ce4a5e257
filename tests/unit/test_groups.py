"""Which job of a FIFO queue may run next: the head of a line, one at a time, in fair turns."""

from collections import defaultdict

from hypothesis import given
from hypothesis import strategies as st

from broker.port.play import job
from namedqueue.history import History
from namedqueue_sidecar.brokers.port import Delivery
from namedqueue_sidecar.consuming.groups import Group, Groups, Place
from namedqueue_sidecar.consuming.progress import Progress


def place(number: int = 0) -> Place:
    made = job(id=str(number))
    return Place(Delivery(made, number), made)


def tags(places: list[Place]) -> list[int]:
    return [each.delivery.tag for each in places]


def test_only_the_head_of_a_group_may_start() -> None:
    groups = Groups()
    for number in range(3):
        groups.add("a", place(number))
    group = groups.take()
    assert group.line[0].delivery.tag == 0
    assert not groups.any_ready
    assert groups.settle(group).delivery.tag == 0
    assert groups.take().line[0].delivery.tag == 1


def test_groups_take_turns() -> None:
    groups = Groups()
    for number in range(6):
        groups.add("abc"[number % 3], place(number))
    order = []
    while groups.any_ready:
        order.append(groups.settle(groups.take()).delivery.tag)
    assert order == [0, 1, 2, 3, 4, 5]


def test_a_head_that_is_freed_unsettled_starts_again_before_the_others_of_its_group() -> None:
    groups = Groups()
    groups.add("a", place(0))
    groups.add("a", place(1))
    groups.free(groups.take())
    assert groups.take().line[0].delivery.tag == 0


def test_all_but_the_heads_of_busy_groups_leave() -> None:
    groups = Groups()
    for number in range(6):
        groups.add("ab"[number % 2], place(number))
    busy = groups.take()
    assert sorted(tags(groups.leave())) == [1, 2, 3, 4, 5]
    assert not groups.any_ready
    assert groups.settle(busy).delivery.tag == 0
    assert list(groups) == []


def test_a_busy_group_whose_jobs_are_void_holds_up_what_comes_again() -> None:
    groups = Groups()
    groups.add("a", place(0))
    busy = groups.take()
    assert tags(groups.void()) == [0]
    groups.add("a", place(1))
    assert not groups.any_ready
    groups.free(busy)
    assert groups.take().line[0].delivery.tag == 1


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["add", "go", "end", "retry"]))))
def test_each_group_is_settled_in_its_own_order_whatever_happens(
    steps: list[tuple[str, str]],
) -> None:
    groups = Groups()
    sent: defaultdict[str, list[int]] = defaultdict(list)
    settled: defaultdict[str, list[int]] = defaultdict(list)
    busy: list[Group] = []
    for number, (name, step) in enumerate(steps):
        if step == "add":
            groups.add(name, place(number))
            sent[name].append(number)
        elif step == "go" and groups.any_ready:
            busy.append(groups.take())
        elif step == "end" and busy:
            group = busy.pop(0)
            settled[group.name].append(groups.settle(group).delivery.tag)
        elif step == "retry" and busy:
            groups.free(busy.pop())
        assert len({group.name for group in busy}) == len(busy)
    while busy or groups.any_ready:
        group = busy.pop() if busy else groups.take()
        settled[group.name].append(groups.settle(group).delivery.tag)
    assert settled == sent
    assert len(groups) == 0


def test_attempts_made_in_place_go_on_when_the_job_comes_again() -> None:
    progress, sent = Progress(), job()
    tried = sent._replace(attempt=3, throttles=1, history=History())
    progress.remember(sent, tried)
    assert progress.resumed(sent) == tried
    assert progress.resumed(sent) is sent


def test_a_job_of_the_same_id_that_is_another_one_begins_anew() -> None:
    progress, sent = Progress(), job()
    progress.remember(sent, sent._replace(attempt=3))
    other = sent._replace(enqueued_at=sent.enqueued_at + 1)
    assert progress.resumed(other) is other
