"""The models and the API server say yes to the same specs, and no in the same words.

Each generated manifest is read by the models and sent to a real API server as a strict dry run.
"""

import copy
import itertools
import json
from collections import Counter
from collections.abc import Callable
from typing import Any, TypeAlias

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fixtures import specs
from fixtures.api_server import Answer, ApiServer, Resources
from fixtures.broken import BROKEN_RANGES, BROKEN_RULES, FORBIDDEN_CHANGES, Broken
from fixtures.scale import FULL, scaled
from namedqueue.api.namedqueue import NamedQueue
from namedqueue.api.reading import Invalid, read
from namedqueue.api.redrive import QueueRedrive

Json: TypeAlias = dict[str, Any]

_STRIDE = 19

# The same examples in every run: a new disagreement is found on purpose, not on a Friday.
_examples = settings(
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@pytest.fixture(scope="module")
def queues(api_server: ApiServer) -> Resources:
    return api_server.resources("namedqueues")


@pytest.fixture(scope="module")
def redrives(api_server: ApiServer) -> Resources:
    return api_server.resources("queueredrives")


@pytest.mark.timeout(1800)
def test_models_and_api_server_accept_the_same_named_queues(queues: Resources) -> None:
    _agree_on(specs.named_queues, queues, max(300, scaled(2_000)))


@pytest.mark.timeout(1800)
def test_models_and_api_server_accept_the_same_redrives(redrives: Resources) -> None:
    _agree_on(specs.queue_redrives, redrives, scaled(2_000))


@pytest.mark.timeout(1800)
def test_models_and_api_server_agree_on_every_slip_in_every_field(api_server: ApiServer) -> None:
    seen = Counter[bool]()
    for document in itertools.islice(specs.all_slips(), 0, None, 1 if FULL else _STRIDE):
        resources = api_server.resources(f"{document['kind'].lower()}s")
        seen[_agree(document, resources)] += 1
    _both_happened(seen)


@pytest.mark.timeout(1800)
def test_models_and_api_server_forbid_the_same_changes_of_a_named_queue(queues: Resources) -> None:
    _agree_on_changes("NamedQueue", specs.named_queue_changes(), queues, scaled(1_000))


@pytest.mark.timeout(1800)
def test_models_and_api_server_forbid_the_same_changes_of_a_redrive(redrives: Resources) -> None:
    _agree_on_changes("QueueRedrive", specs.redrive_changes(), redrives, scaled(500))


@pytest.mark.parametrize("broken", BROKEN_RULES + BROKEN_RANGES, ids=lambda broken: broken.says)
def test_the_api_server_gives_the_sentence_of_nq_validate(
    broken: Broken, api_server: ApiServer
) -> None:
    answer = api_server.resources(f"{broken.kind.lower()}s").create(broken.document, dry_run=True)
    assert not answer.accepted
    assert broken.says in answer.message


@pytest.mark.parametrize(("before", "after", "field"), FORBIDDEN_CHANGES)
def test_the_api_server_refuses_to_change_what_cannot_change(
    before: Json, after: Json, field: str, queues: Resources
) -> None:
    answer = _changed("NamedQueue", before, after, queues)
    assert not answer.accepted
    assert f"{field} cannot change; make a NamedQueue with another name" in answer.message


def test_the_api_server_refuses_to_change_a_redrive(redrives: Resources) -> None:
    answer = _changed("QueueRedrive", {"queue": "a"}, {"queue": "b"}, redrives)
    assert "spec cannot change; make another QueueRedrive" in answer.message


def _agree_on(documents: st.SearchStrategy[Json], resources: Resources, count: int) -> None:
    seen = Counter[bool]()

    def check(document: Json) -> None:
        seen[_agree(document, resources)] += 1

    _for_each(documents, check, count)
    _both_happened(seen)


def _agree(document: Json, resources: Resources) -> bool:
    """Have a manifest judged by both; return what both say."""
    answer = resources.create(document, dry_run=True)
    read_as = _read(document)
    if isinstance(read_as, Invalid):
        assert not answer.accepted, f"only the models refuse {document}: {read_as}"
    else:
        assert answer.accepted, f"only the API server refuses {document}: {answer.message}"
        _is_kept_whole(read_as, answer.body)
    return answer.accepted


def _read(document: Json) -> NamedQueue | QueueRedrive | Invalid:
    try:
        return read(document)
    except Invalid as invalid:
        return invalid


def _is_kept_whole(model: NamedQueue | QueueRedrive, returned: Json) -> None:
    """Nothing was pruned, and the API server's defaults are the models'."""
    again = read(returned)
    assert again.spec == model.spec
    written = model.spec.model_dump(by_alias=True, mode="json", exclude_none=True)
    assert _sizes_as_text(returned["spec"]) == written


def _sizes_as_text(spec: Json) -> Json:
    """Write a stream's size as the models do, which know only one way."""
    spec = copy.deepcopy(spec)
    if "maxBytes" in spec.get("stream", {}):
        spec["stream"]["maxBytes"] = str(spec["stream"]["maxBytes"])
    return spec


def _agree_on_changes(
    kind: str, changes: st.SearchStrategy[tuple[Json, Json]], resources: Resources, count: int
) -> None:
    seen = Counter[bool]()

    def agree(change: tuple[Json, Json]) -> None:
        before, after = change
        old: Any = _read(_document(kind, before))
        new: Any = _read(_document(kind, after))
        if isinstance(old, Invalid) or isinstance(new, Invalid):
            return
        answer = _changed(kind, before, after, resources)
        forbidden = new.spec.forbidden_changes(old.spec)
        assert answer.accepted == (forbidden == ()), answer.message or forbidden
        assert [says for says in forbidden if says not in answer.message] == []
        seen[answer.accepted] += 1

    _for_each(changes, agree, count)
    _both_happened(seen)


def _changed(kind: str, before: Json, after: Json, resources: Resources) -> Answer:
    """Store an object and try an update on it."""
    stored = resources.create(_document(kind, before))
    assert stored.accepted, stored.message
    try:
        metadata = stored.body["metadata"]
        return resources.replace(_document(kind, after) | {"metadata": metadata}, dry_run=True)
    finally:
        resources.delete(stored.body["metadata"]["name"])


def _document(kind: str, spec: Json) -> Json:
    return {
        "apiVersion": "namedqueue.io/v1alpha1",
        "kind": kind,
        "metadata": {"name": "changing"},
        "spec": spec,
    }


def _for_each(values: st.SearchStrategy[Any], check: Callable[[Any], None], count: int) -> None:
    @settings(_examples, max_examples=count)
    @given(values)
    def every(value: Any) -> None:
        check(value)

    every()


def _both_happened(seen: Counter[bool]) -> None:
    """Agreement on refusals alone, or on acceptances alone, would prove little."""
    print(json.dumps({"accepted": seen[True], "refused": seen[False]}))  # noqa: T201  # shown by `pytest -rP`
    assert min(seen[True], seen[False]) > seen.total() / 20
