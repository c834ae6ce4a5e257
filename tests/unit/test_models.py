"""The models hold the design's defaults and rules, and what they write they read."""

import copy
import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from pydantic import ValidationError

from fixtures import specs
from fixtures.broken import BROKEN_RANGES, BROKEN_RULES, FORBIDDEN_CHANGES, Broken
from namedqueue.api.crd import NO_FRACTION, named_queue_crd, queue_redrive_crd
from namedqueue.api.durations import Duration
from namedqueue.api.namedqueue import NamedQueue, NamedQueueSpec
from namedqueue.api.reading import Invalid, read
from namedqueue.api.redrive import QueueRedrive, QueueRedriveSpec
from namedqueue.api.rules import VALIDATIONS


def _written(model: Any) -> dict[str, Any]:
    dumped: dict[str, Any] = model.model_dump(by_alias=True, mode="json", exclude_none=True)
    return dumped


def test_an_empty_spec_is_a_durable_queue_with_the_designs_defaults() -> None:
    assert _written(NamedQueueSpec()) == {
        "type": "durable",
        "subscriptions": [],
        "retry": {
            "maxAttempts": 5,
            "delay": "1s",
            "multiplier": 2,
            "maxDelay": "60s",
            "jitter": 0.2,
        },
        "errors": {"permanent": [], "transient": []},
        "deadLetter": {"retention": "90d"},
        "replicas": 0,
        "deletionPolicy": "Retain",
    }


@pytest.mark.parametrize(
    ("spec", "block", "defaults"),
    [
        (
            {"durable": {}},
            "durable",
            {"storage": "quorum", "mode": "default", "maxPriority": 0},
        ),
        (
            {"durable": {"fifo": {"groupBy": "body.a"}}},
            "durable",
            {
                "storage": "quorum",
                "mode": "default",
                "maxPriority": 0,
                "fifo": {"groupBy": "body.a", "partitions": 8},
            },
        ),
        ({"type": "stream", "stream": {}}, "stream", {"consumers": []}),
        (
            {
                "type": "stream",
                "stream": {"consumers": [{"group": "audit"}]},
                "worker": {"port": 80},
            },
            "stream",
            {"consumers": [{"group": "audit", "from": "first", "onError": "halt"}]},
        ),
        ({"type": "ephemeral", "ephemeral": {}}, "ephemeral", {"idleExpiry": "5m"}),
        ({"idempotency": {"key": "body.a"}}, "idempotency", {"key": "body.a", "ttl": "30d"}),
        (
            {"worker": {"port": 8080, "rateLimit": {"requests": 100}, "batch": {}}},
            "worker",
            {
                "port": 8080,
                "path": "/",
                "routes": [],
                "timeout": "30s",
                "concurrency": 10,
                "rateLimit": {"requests": 100, "per": "1s"},
                "batch": {"maxMessages": 100, "maxWait": "50ms"},
            },
        ),
        (
            {"worker": {"port": 8080}, "scaling": {}},
            "scaling",
            {
                "minReplicas": 0,
                "maxReplicas": 20,
                "pollInterval": "5s",
                "cooldown": "300s",
                "scaleDown": {"stabilization": "120s", "maxStep": "50%"},
            },
        ),
    ],
)
def test_a_block_fills_in_the_designs_defaults(
    spec: dict[str, Any], block: str, defaults: dict[str, Any]
) -> None:
    assert _written(NamedQueueSpec.model_validate(spec))[block] == defaults


def test_a_redrive_needs_only_its_queue() -> None:
    assert _written(QueueRedriveSpec.model_validate({"queue": "orders"})) == {
        "queue": "orders",
        "ids": [],
        "dryRun": False,
        "waitForRollout": False,
    }


def test_a_block_that_is_not_written_means_its_defaults() -> None:
    spec = NamedQueueSpec()
    assert spec.durable_or_default.storage == "quorum"
    assert spec.stream_or_default.consumers == ()
    assert spec.ephemeral_or_default.idle_expiry == Duration.parse("5m")


@given(specs.named_queues | specs.queue_redrives)
def test_what_the_models_write_they_read_as_the_same(document: dict[str, Any]) -> None:
    try:
        model = read(document)
    except Invalid:
        return
    written = _written(model)
    assert read(written) == model
    assert _written(read(written)) == written


@pytest.mark.parametrize("document", specs.COMPLETE, ids=lambda document: document["kind"])
def test_nothing_that_is_written_gets_lost(document: dict[str, Any]) -> None:
    written = _written(read(document))["spec"]
    assert [path for path in _leaves(document["spec"]) if path not in set(_leaves(written))] == []


def _leaves(value: Any, at: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for key, below in value.items():
            yield from _leaves(below, f"{at}.{key}")
    elif isinstance(value, list):
        for number, below in enumerate(value):
            yield from _leaves(below, f"{at}[{number}]")
    else:
        yield at, str(float(value) if isinstance(value, int) else value)


@pytest.mark.parametrize("broken", BROKEN_RULES + BROKEN_RANGES, ids=lambda broken: broken.says)
def test_a_broken_rule_is_refused_with_its_sentence_alone(broken: Broken) -> None:
    with pytest.raises(Invalid) as refused:
        read(broken.document)
    assert str(refused.value) == broken.says


def test_every_rule_of_the_crds_has_a_spec_that_breaks_it() -> None:
    said = {broken.says for broken in BROKEN_RULES + BROKEN_RANGES}
    said |= {
        f"{field} cannot change; make a NamedQueue with another name"
        for _, _, field in FORBIDDEN_CHANGES
    }
    said.add("spec cannot change; make another QueueRedrive")
    rules = {
        rule["message"]
        for crd in (named_queue_crd(), queue_redrive_crd())
        for rule in _rules(crd)
        if rule["rule"] != NO_FRACTION
    }
    assert set(map(_without_values, rules)) == set(map(_without_values, said))


def _rules(schema: Any) -> Iterator[dict[str, str]]:
    if isinstance(schema, dict):
        yield from schema.get(VALIDATIONS, ())
    below = schema.values() if isinstance(schema, dict) else schema
    for part in below:
        if isinstance(part, dict | list):
            yield from _rules(part)


def _without_values(sentence: str) -> str:
    return re.sub(r" \([^)]*\)|(?<=spec\.type) \w+(?=;)", "", sentence)


@pytest.mark.parametrize(("before", "after", "field"), FORBIDDEN_CHANGES)
def test_what_cannot_change_is_named(
    before: dict[str, Any], after: dict[str, Any], field: str
) -> None:
    old, new = NamedQueueSpec.model_validate(before), NamedQueueSpec.model_validate(after)
    sentence = f"{field} cannot change; make a NamedQueue with another name"
    assert new.forbidden_changes(old) == (sentence,)
    assert old.forbidden_changes(new) == (sentence,)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, {"durable": {}}),
        ({"durable": {"maxLength": 5}}, {}),
        ({"retry": {"delay": "1s"}}, {"retry": {"delay": "2s"}}),
        ({"durable": {"storage": "classic"}}, {"durable": {"storage": "classic", "mode": "lazy"}}),
        (
            {"durable": {"fifo": {"groupBy": "body.a"}}},
            {"durable": {"fifo": {"groupBy": "body.a", "partitions": 8}}},
        ),
    ],
)
def test_what_may_change_may_change_both_ways(
    before: dict[str, Any], after: dict[str, Any]
) -> None:
    old, new = NamedQueueSpec.model_validate(before), NamedQueueSpec.model_validate(after)
    assert new.forbidden_changes(old) == old.forbidden_changes(new) == ()


def test_a_redrive_cannot_change_but_its_ids_have_no_order() -> None:
    old = QueueRedriveSpec.model_validate({"queue": "orders", "ids": ["a", "b"]})
    same = QueueRedriveSpec.model_validate({"queue": "orders", "ids": ["b", "a"]})
    other = QueueRedriveSpec.model_validate({"queue": "orders", "ids": ["a"]})
    assert same.forbidden_changes(old) == ()
    assert other.forbidden_changes(old) == ("spec cannot change; make another QueueRedrive",)


def test_a_null_means_absent_and_a_whole_float_is_an_integer() -> None:
    spec = NamedQueueSpec.model_validate({"retry": {"maxAttempts": 7.0, "delay": None}})
    assert (spec.retry.max_attempts, spec.retry.delay) == (7, Duration.parse("1s"))


def test_models_are_values() -> None:
    one, other = (NamedQueueSpec.model_validate({"retry": {"delay": d}}) for d in ("60s", "1m"))
    assert one == other
    assert one != NamedQueueSpec()
    with pytest.raises(ValidationError, match="frozen"):
        one.type = "stream"  # type: ignore[misc]  # the point: it cannot be set


@pytest.mark.parametrize("document", specs.COMPLETE, ids=lambda document: document["kind"])
def test_reading_leaves_the_document_as_it_was(document: dict[str, Any]) -> None:
    before = copy.deepcopy(document)
    assert isinstance(read(document), NamedQueue | QueueRedrive)
    assert document == before
