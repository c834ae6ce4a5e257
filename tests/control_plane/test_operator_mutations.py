"""Whatever the API server accepts comes to rest: acted on, told, and then nothing moves any more.

Specs are drawn as for the agreement of models and API server, so that about half of them have a
slip, and are applied to queues that exist. Each that is accepted must be observed; and when all
were, no error is counted any more and no status is written, whatever the conditions say.
"""

import json
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from control_plane.crowds import Crowd, Key, namespaces, operator_for
from control_plane.operating import broker_secret
from fixtures import specs
from fixtures.api_server import ApiServer, as_kubectl_sends
from fixtures.brokers import VERSIONS
from fixtures.kubernetes import ControlPlane
from fixtures.scale import scaled
from testbed.rabbitmq import Broker

Json: TypeAlias = dict[str, Any]

_NAMESPACES = 5
_BATCH = 20
_ALIKE = 8
_STILL_SECONDS = 12.0
_PARTITIONS = 2
_TEMPLATES: list[Any] = [
    {},
    {"spec": {"containers": [{"name": "app", "image": "registry.example/app:1"}]}},
    {"spec": {"containers": [{"name": "Not A Name", "image": ""}]}},
    {"spec": {"containers": [5]}},
    {"metadata": {"annotations": {"namedqueue.io/produce": "nobody"}}},
]


@pytest.fixture
def crowd(
    control_plane: ControlPlane,
    api_server: ApiServer,
    shared_broker: Callable[[str], Broker],
    tmp_path: Path,
) -> Iterator[Crowd]:
    """Run an operator with a store and a sidecar, so that nothing is refused for want of one."""
    broker = shared_broker(VERSIONS[-1])
    prefix = f"mutant{uuid.uuid4().hex[:6]}-"
    store = tmp_path / "store"
    store.mkdir()
    keys = {"host": "db.example", "username": "nq", "password": "secret", "database": "nq"}
    for key, value in ({"type": "postgresql"} | keys).items():
        (store / key).write_text(value)
    image = "registry.example/sidecar:1"
    options = (f"--store={store}", f"--sidecar-image={image}", "--give-up-deleting=5")
    with (
        namespaces(api_server.http, prefix, _NAMESPACES),
        operator_for(
            api_server.http, prefix, broker, tmp_path, control_plane, (1, 5), options
        ) as crowd,
    ):
        for number in range(_NAMESPACES):
            secret = broker_secret(broker, "rabbit")
            path = f"/api/v1/namespaces/{prefix}{number}/secrets"
            api_server.http.post(path, json=secret).raise_for_status()
        yield crowd
    for number in range(_NAMESPACES):
        broker.delete_vhost(f"nq-{prefix}{number}")


@pytest.mark.timeout(1800)
def test_random_mutations_of_specs_never_end_in_an_error_loop(crowd: Crowd) -> None:
    drawn = _drawn(scaled(1000))
    queues = _Queues(crowd)
    said: Counter[bool] = Counter()
    reasons: Counter[str] = Counter()
    for first in range(0, len(drawn), _BATCH):
        changed = set()
        for document in drawn[first : first + _BATCH]:
            key = queues.place_for(document["spec"])
            accepted = _apply(crowd, key, document["spec"])
            said[accepted] += 1
            if accepted:
                changed.add(key)
                queues.known.add(key)
        reasons.update(_settled(crowd, changed))
    _stands_still(crowd)
    assert "Traceback" not in crowd.log()
    _all_can_go(crowd)
    print(  # noqa: T201  # a figure of the full run
        f"{said[True]} of {said.total()} mutations were accepted, on {len(queues.known)} queues; "
        f"where they came to rest: {dict(reasons)}"
    )
    assert min(said[True], said[False]) > said.total() / 20, "both have to happen"
    assert reasons.total() > said[True] / 2, "most came to rest before the next"
    assert reasons["Ready"] > reasons.total() / 5, "trouble alone would prove little"


class _Queues:
    """The queues that specs are applied to, by what of a spec can never change.

    Some are alike, so that most changes come to rest before their queue is changed again.
    """

    def __init__(self, crowd: Crowd) -> None:
        self._crowd = crowd
        self._alike: defaultdict[str, list[Key]] = defaultdict(list)
        self._made = 0
        self.known: set[Key] = set()

    def place_for(self, spec: Any) -> Key:
        """Return a queue that a spec fits: a new one, or of some that are alike the next."""
        alike = self._alike[json.dumps(_unchangeable(spec), sort_keys=True)]
        if len(alike) < _ALIKE:
            self._made += 1
            place = f"{self._crowd.prefix}{self._made % _NAMESPACES}"
            alike.append((place, f"queue-{self._made}"))
        else:
            alike.append(alike.pop(0))
        return alike[-1]


def _unchangeable(spec: Any) -> object:
    if not isinstance(spec, dict):
        return None
    durable = spec.get("durable")
    fixed = [spec.get("type") or "durable"]
    if isinstance(durable, dict):
        fixed += [durable.get(key) for key in ("storage", "maxPriority", "fifo")]
    return fixed


def _drawn(count: int) -> list[Json]:
    """Draw so many manifests, the same in every run."""
    found: list[Json] = []

    @settings(
        max_examples=count,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(specs.named_queues, st.sampled_from(_TEMPLATES), st.booleans())
    def draw(document: Json, template: Any, here: bool) -> None:
        found.append(_affordable(document, template, here=here))

    draw()
    return found


def _affordable(document: Json, template: Any, *, here: bool) -> Json:
    """Keep a manifest as it is but for what a small broker, or none at all, would make of it."""
    spec = document["spec"]
    if isinstance(spec, dict):
        durable, worker = spec.get("durable"), spec.get("worker")
        if isinstance(durable, dict) and isinstance(durable.get("fifo"), dict):
            durable["fifo"]["partitions"] = _PARTITIONS
        if isinstance(worker, dict) and isinstance(worker.get("template"), dict):
            worker["template"] = template
        if here and "brokerSecretRef" in spec:
            spec["brokerSecretRef"] = {"name": "rabbit"}
    return document


def _apply(crowd: Crowd, key: Key, spec: Any) -> bool:
    """Apply a spec; tell whether the API server accepted it."""
    answer = crowd.try_to_apply(key, as_kubectl_sends(spec))
    misread = "failed to create typed patch object" in answer.text  # a 500, for a wrong type
    assert answer.is_success or misread or answer.status_code in {400, 422}, answer.text
    return answer.is_success


def _settled(crowd: Crowd, changed: set[Key]) -> Iterator[str]:
    """Wait until each of these queues was acted on; return the reason that each gives."""

    def observed() -> bool:
        time.sleep(0.5)
        return all(_is_observed(queue) for queue in _of(crowd, changed))

    crowd.eventually(observed, "all accepted specs are observed", deadline=300)
    return (_ready(queue)["reason"] for queue in _of(crowd, changed))


def _stands_still(crowd: Crowd) -> None:
    """Wait for a while in which no error is counted and no queue is written to.

    It is longer than whatever comes back by itself: polls, looks, a ladder that shrinks.
    """
    moved: set[tuple[str, ...]] = set()

    def still() -> bool:
        before = _movements(crowd)
        time.sleep(_STILL_SECONDS)
        moved.clear()
        moved.update(_movements(crowd) ^ before)
        return not moved

    try:
        crowd.eventually(still, "everything is at rest", deadline=180)
    except Exception as error:
        raise AssertionError(f"{error}; still moving: {sorted(moved)}") from error


def _movements(crowd: Crowd) -> set[tuple[str, ...]]:
    """Return what changes as long as something is not at rest: errors, and versions of queues."""
    errors = crowd.metric("namedqueue_reconcile_errors_total")
    versions = {
        (each["metadata"]["name"], each["metadata"]["resourceVersion"], json.dumps(each["status"]))
        for each in crowd.queues()
    }
    return {("errors", f"{errors}"), *versions}


def _of(crowd: Crowd, keys: set[Key]) -> list[Json]:
    queues = crowd.queues()
    return [
        queue
        for queue in queues
        if (queue["metadata"]["namespace"], queue["metadata"]["name"]) in keys
    ]


def _is_observed(queue: Json) -> bool:
    generation = queue["metadata"]["generation"]
    return bool(_ready(queue).get("observedGeneration") == generation)


def _ready(queue: Json) -> Json:
    conditions = queue.get("status", {}).get("conditions", [])
    return next((each for each in conditions if each["type"] == "Ready"), {})


def _all_can_go(crowd: Crowd) -> None:
    """Delete every queue: none is in a state that holds it."""
    for queue in crowd.queues():
        namespace, name = queue["metadata"]["namespace"], queue["metadata"]["name"]
        crowd.http.delete(crowd.path((namespace, name))).raise_for_status()
    crowd.eventually(lambda: not crowd.queues(), "all queues are gone", deadline=180)
