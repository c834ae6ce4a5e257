"""Conditions change when the answer does, and a status is written only when it differs."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from namedqueue.api.status import Depth, NamedQueueStatus
from namedqueue_operator.conditions import (
    BROKER_REACHABLE,
    READY,
    TOPOLOGY_READY,
    Answer,
    find,
    holds,
    no,
    settle,
    summary,
    unknown,
    yes,
)
from namedqueue_operator.reporting import Report, changes, in_trouble, status_after
from namedqueue_operator.troubles import BrokerTrouble, TopologyTrouble

_WORDS = st.sampled_from(["InPlace", "Refused", "Unreachable"])
_ANSWERS = st.builds(Answer, st.sampled_from(["True", "False", "Unknown"]), _WORDS, st.text())
_KINDS = st.sampled_from([READY, BROKER_REACHABLE, TOPOLOGY_READY])
_ROUNDS = st.lists(st.dictionaries(_KINDS, _ANSWERS), min_size=1, max_size=5)


def _body(**status: Any) -> dict[str, Any]:
    metadata = {"name": "orders", "namespace": "shop", "generation": 3, "resourceVersion": "7"}
    return {"metadata": metadata, **({"status": status} if status else {})}


@given(_ROUNDS)
def test_a_transition_time_moves_only_when_the_status_flips(
    rounds: list[dict[str, Answer]],
) -> None:
    conditions: list[dict[str, Any]] = []
    for number, answers in enumerate(rounds):
        before = {each["type"]: each for each in conditions}
        conditions = settle(conditions, answers, generation=1, now=f"t{number}")
        for each in conditions:
            old = before.get(each["type"])
            if old is not None and old["status"] == each["status"]:
                assert each["lastTransitionTime"] == old["lastTransitionTime"]
            else:
                assert each["lastTransitionTime"] == f"t{number}"
        NamedQueueStatus.model_validate({"conditions": conditions})


@given(_ROUNDS)
def test_the_same_answers_again_change_nothing(rounds: list[dict[str, Answer]]) -> None:
    body = _body()
    for answers in rounds:
        body = _body(**status_after(body, Report(answers=answers, depth=Depth(ready=1)), "then"))
        again = status_after(body, Report(answers=answers, depth=Depth(ready=1)), "later")
        assert changes(body, again) == []


def test_ready_says_what_the_first_bad_answer_says() -> None:
    assert summary({BROKER_REACHABLE: yes("Reachable"), TOPOLOGY_READY: yes("InPlace")}) == yes(
        "Ready", "jobs can be sent"
    )
    away = no("Unreachable", "it does not answer")
    answers = {TOPOLOGY_READY: unknown("Unreachable", "?"), BROKER_REACHABLE: away}
    assert summary(answers) == away


def test_a_trouble_is_told_under_the_question_that_it_answers() -> None:
    away = in_trouble(BrokerTrouble("Unreachable", "nobody answers"), 3)
    assert away.answers[BROKER_REACHABLE].status == "False"
    assert away.answers[TOPOLOGY_READY].status == "Unknown"
    reachable = {BROKER_REACHABLE: yes("Reachable")}
    refused = in_trouble(TopologyTrouble("Conflict", "it differs"), 3, answers=reachable)
    assert refused.answers[BROKER_REACHABLE].status == "True"
    assert refused.answers[TOPOLOGY_READY] == no("Conflict", "it differs")


def test_other_peoples_conditions_and_fields_stay() -> None:
    theirs = {
        "type": "WorkersReady",
        "status": "True",
        "reason": "R",
        "message": "",
        "lastTransitionTime": "then",
        "observedGeneration": 1,
    }
    body = _body(conditions=[theirs], replicas=4)
    after = status_after(body, Report(answers={TOPOLOGY_READY: yes("InPlace")}), "now")
    assert after["replicas"] == 4
    assert find(after, "WorkersReady") == theirs
    assert [op["path"] for op in changes(body, after)] == [
        "/status/conditions",
        "/status/observedGeneration",
    ]


def test_a_condition_of_an_older_spec_does_not_hold() -> None:
    status = {"conditions": settle([], {READY: yes("Ready")}, generation=2, now="now")}
    assert holds(status, READY, 2)
    assert not holds(status, READY, 3)
    assert not holds({}, READY, 0)


def test_answers_about_an_older_spec_never_speak_for_a_newer_one() -> None:
    report = Report(answers={TOPOLOGY_READY: yes("InPlace")}, generation=2)
    status = status_after(_body(), report, "now")
    assert status["observedGeneration"] == 2
    assert holds(status, READY, 2)
    assert not holds(status, READY, 3)


def test_a_message_past_the_limit_of_the_api_is_cut() -> None:
    [condition] = settle([], {READY: no("Refused", "x" * 9999)}, generation=1, now="now")
    assert len(condition["message"]) == 4096
