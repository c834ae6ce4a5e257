"""A manifest becomes a model, or sentences that name the field, the value and the remedy."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fixtures import specs
from namedqueue.api.namedqueue import NamedQueue
from namedqueue.api.reading import Invalid, Problem, read
from namedqueue.api.redrive import QueueRedrive


def _queue(spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "namedqueue.io/v1alpha1",
        "kind": "NamedQueue",
        "metadata": {"name": "orders"},
        "spec": spec,
    }


def _problems(document: Any) -> list[str]:
    with pytest.raises(Invalid) as refused:
        read(document)
    return [problem.sentence for problem in refused.value.problems]


def test_each_kind_is_read_as_its_model() -> None:
    assert isinstance(read(_queue({})), NamedQueue)
    assert isinstance(read(_queue({"queue": "orders"}) | {"kind": "QueueRedrive"}), QueueRedrive)


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ({"retyr": {}}, "spec.retyr is not a field; did you mean retry?"),
        (
            {"retry": {"maxAttempt": 3}},
            "spec.retry.maxAttempt is not a field; did you mean maxAttempts?",
        ),
        (
            {"retry": {"max_delay": "1s"}},
            "spec.retry.max_delay is not a field; did you mean maxDelay?",
        ),
        (
            {"deadLetter": {"zzz": None}},
            "spec.deadLetter.zzz is not a field; the fields here are retention",
        ),
        (
            {"subscriptions": [{"topic": "a"}, {"topic": "b", "topics": "c"}]},
            "spec.subscriptions[1].topics is not a field; did you mean topic?",
        ),
        (
            {"idempotency": {"key": "messageId", "int": 1}},
            "spec.idempotency.int is not a field; the fields here are key, ttl",
        ),
    ],
)
def test_an_unknown_field_gets_a_did_you_mean(spec: dict[str, Any], sentence: str) -> None:
    assert _problems(_queue(spec)) == [sentence]


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ([], "spec ([]) is not a mapping of fields"),
        ({"worker": {}}, "spec.worker.port is missing"),
        ({"type": "log"}, "spec.type (log) must be 'durable', 'ephemeral' or 'stream'"),
        (
            {"retry": {"maxAttempts": "5"}},
            "spec.retry.maxAttempts (5) is not a whole number; write it without quotes or fraction",
        ),
        (
            {"retry": {"maxAttempts": 2.5}},
            (
                "spec.retry.maxAttempts (2.5) is not a whole number; "
                "write it without quotes or fraction"
            ),
        ),
        (
            {"retry": {"maxAttempts": 0}},
            "spec.retry.maxAttempts (0) is too small; the least is 1",
        ),
        ({"retry": {"jitter": 1.5}}, "spec.retry.jitter (1.5) is too large; the most is 1"),
        (
            {"retry": {"multiplier": "2"}},
            "spec.retry.multiplier (2) is not a number; write it without quotes",
        ),
        (
            {"retry": {"delay": 5}},
            (
                "spec.retry.delay (5) is not a duration; "
                "write one whole number and one of ms, s, m, h, d, as in 90s"
            ),
        ),
        (
            {"type": "stream", "stream": {"maxBytes": "10 GB"}},
            (
                "spec.stream.maxBytes (10 GB) is not a size; "
                "write bytes or a Kubernetes quantity, as in 10Gi"
            ),
        ),
        ({"errors": {"permanent": "HTTP_422"}}, "spec.errors.permanent (HTTP_422) is not a list"),
        (
            {"errors": {"permanent": ["http_422"]}},
            (
                "spec.errors.permanent[0] (http_422) is not an error code; "
                "use capitals, digits and underscores, as in HTTP_422"
            ),
        ),
        (
            {"worker": {"port": 80}, "scaling": {"scaleDown": {"maxStep": True}}},
            "spec.scaling.scaleDown.maxStep (true) is neither a whole number nor text",
        ),
        (
            {"worker": {"port": 80}, "scaling": {"scaleDown": {"maxStep": "0%"}}},
            (
                "spec.scaling.scaleDown.maxStep (0%) is no step; "
                "write a count as in 2, or a percentage as in 50%"
            ),
        ),
        (
            {"subscriptions": [{"topic": f"t{number}"} for number in range(65)]},
            "spec.subscriptions has 65 entries; the most is 64",
        ),
    ],
)
def test_a_wrong_value_is_named_with_its_place_and_the_remedy(spec: Any, sentence: str) -> None:
    assert _problems(_queue(spec)) == [sentence]


def test_a_name_that_stands_twice_is_named() -> None:
    [sentence] = _problems(_queue({"subscriptions": [{"topic": "a"}, {"topic": "a"}]}))
    assert sentence.startswith("spec.subscriptions ")
    assert sentence.endswith(" names a twice; once is enough")


def test_every_problem_is_told_at_once_and_with_its_path() -> None:
    with pytest.raises(Invalid) as refused:
        read(_queue({"retry": {"delay": "soon", "jitter": -1}, "deletionPolicy": "Keep"}))
    assert [problem.path for problem in refused.value.problems] == [
        ("spec", "retry", "delay"),
        ("spec", "retry", "jitter"),
        ("spec", "deletionPolicy"),
    ]


def test_a_long_value_is_cut_short() -> None:
    [sentence] = _problems(_queue({"type": "x" * 500}))
    assert f"({'x' * 60}…)" in sentence


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        ([], Problem((), "the document is not a mapping of fields")),
        (None, Problem((), "the document is not a mapping of fields")),
        (
            {"kind": "NamedQueue"},
            Problem(("apiVersion",), "apiVersion is missing; write namedqueue.io/v1alpha1"),
        ),
        (
            {"apiVersion": "v1"},
            Problem(("apiVersion",), "apiVersion (v1) must be namedqueue.io/v1alpha1"),
        ),
        (
            {"apiVersion": "namedqueue.io/v1alpha1", "kind": "Queue"},
            Problem(("kind",), "kind (Queue) must be NamedQueue or QueueRedrive"),
        ),
        (
            {"apiVersion": "namedqueue.io/v1alpha1", "kind": "NamedQueue"},
            Problem(("metadata",), "metadata is missing"),
        ),
    ],
)
def test_what_is_no_manifest_of_ours_is_refused(document: Any, problem: Problem) -> None:
    with pytest.raises(Invalid) as refused:
        read(document)
    assert refused.value.problems == (problem,)


_yaml = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=3) | st.integers() | st.booleans(), inner, max_size=3)
    ),
    max_leaves=5,
)


@given(_yaml, _yaml, st.sampled_from(["NamedQueue", "QueueRedrive"]))
def test_nothing_that_yaml_can_say_is_worse_than_invalid(
    metadata: Any, spec: Any, kind: str
) -> None:
    document = _queue(spec) | {"kind": kind, "metadata": metadata}
    with pytest.raises(Invalid) as refused:
        read(document)
    assert all(problem.sentence for problem in refused.value.problems)


@given(specs.named_queues | specs.queue_redrives)
def test_every_slip_is_told_in_whole_sentences(document: dict[str, Any]) -> None:
    try:
        read(document)
    except Invalid as invalid:
        told = [problem.sentence for problem in invalid.problems]
        assert [says for says in told if "Input should" in says or "{at}" in says] == []
