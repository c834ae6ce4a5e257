"""Schemathesis on our own OpenAPI document: what it foresees is what comes, for good and bad input.

The server runs on a loop of its own in a thread, because Schemathesis calls it as any client would.
It works nothing off: a worker draws random numbers, and those belong to Hypothesis here.
"""

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any, cast

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from broker.port.play import NAMESPACE, letter, publish
from broker.test_http_hostile import ENDLESS, FINAL
from fixtures.planes import OPENAPI, Stage, stage
from fixtures.scale import scaled
from namedqueue_sidecar.brokers.port import Dead, QueueKey

CASES = scaled(20_000)
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
KNOWN = ["orders", "letters", "passing", "nowhere"]
"""Queues to call; one of them does not exist."""

pytestmark = pytest.mark.timeout(3000)  # in full


def _document() -> dict[str, Any]:
    """Return the document without calls that wait, and with names that lead somewhere."""
    paths: dict[str, Any] = {}
    for path, methods in OPENAPI["paths"].items():
        kept = {
            method: operation
            for method, operation in methods.items()
            if operation["operationId"] not in (*ENDLESS, FINAL)
        }
        if kept:
            paths[path] = {method: _led(operation) for method, operation in kept.items()}
    return OPENAPI | {"paths": paths}


def _led(operation: dict[str, Any]) -> dict[str, Any]:
    names = {"type": "string", "enum": KNOWN}
    parameters = [
        each | {"schema": names} if each["name"] == "queue" else each
        for each in operation["parameters"]
    ]
    return operation | {"parameters": parameters}


SCHEMA = schemathesis.openapi.from_dict(_document())
OPERATIONS: list[Any] = [result.ok() for result in cast("Any", SCHEMA.get_all_operations())]


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Serve a plane in a thread, and give its address."""
    started: Future[str] = Future()
    over = threading.Event()
    thread = threading.Thread(target=lambda: asyncio.run(_serve(started.set_result, over)))
    thread.start()
    yield started.result(60)
    over.set()
    thread.join(60)


async def _serve(started: Callable[[str], None], over: threading.Event) -> None:
    async with stage() as scene:
        await _set(scene)
        started(scene.api.base)
        await asyncio.to_thread(over.wait)


async def _set(scene: Stage) -> None:
    await scene.apply(
        scene.queue(subscriptions=[{"topic": "#"}], worker=False),
        scene.queue("letters", worker=False),
        scene.queue("passing", type="ephemeral", worker=False),
    )
    letters = [Dead(QueueKey(NAMESPACE, "letters"), letter()) for _ in range(50)]
    await publish(scene.plane.broker, *letters)


def _is_open_to_nonsense(operation: Any) -> bool:
    """Tell whether a call takes anything that could be wrong."""
    taken = operation.definition.raw
    return bool(taken["parameters"] or "requestBody" in taken)


CALLS = [
    pytest.param(operation, mode, id=f"{operation.label} {mode.value}")
    for operation in OPERATIONS
    for mode in GenerationMode
    if mode is GenerationMode.POSITIVE or _is_open_to_nonsense(operation)
]


@pytest.mark.parametrize(("operation", "mode"), CALLS)
def test_every_answer_is_one_that_the_document_foresees(
    operation: Any, mode: GenerationMode, address: str
) -> None:
    @settings(
        max_examples=max(2, CASES // len(CALLS)),
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def call(case: Any) -> None:
        case.call_and_validate(base_url=address, checks=CHECKS, timeout=60)

    call()
