"""Pods with a store: what one pod wrote down holds for those that come after it."""

from typing import Any

from e2e import workers
from e2e.director import Attempt
from fixtures.operators import Market

_WORKER = {"port": 8080, "path": "/jobs", "timeout": "1m", "concurrency": 5}
_LETTERS = f"{workers.API}/v1/queues/orders/dead-letters"


def _letters(market: Market, pod: str) -> list[dict[str, Any]]:
    status, page = market.call(pod, "GET", _LETTERS)
    assert status == 200, page
    found: list[dict[str, Any]] = page["items"]
    return found


def _only_worker(market: Market, *, but: str = "") -> str:
    """Wait until there is one worker, other than this one, and it is ready."""
    market.eventually(lambda: {*market.workers()} - {but} != set(), "there is a worker", 120)
    [worker] = {*market.workers()} - {but}
    market.kubectl("wait", f"pod/{worker}", "--for=condition=Ready", "--timeout=120s")
    return worker


def test_keys_and_dead_letters_outlive_the_pod_that_wrote_them(market: Market) -> None:
    market.apply(
        idempotency={"key": "body.order"},
        worker={**_WORKER, "template": market.template()},
        scaling={"minReplicas": 1, "maxReplicas": 1},
    )
    market.ready()
    market.says("StoreBound", "True", "sidecars are sent to the store at")

    def script(attempt: Attempt) -> int:
        return 422 if attempt.payload["order"] == "bad" else 200

    market.director.script = script
    sender, first = market.sender(), _only_worker(market)
    market.enqueue(sender, {"order": "a"}, {"order": "a"}, {"order": "bad"})
    market.eventually(lambda: len(_letters(market, first)) == 1, "there is a dead letter", 60)
    [letter] = _letters(market, first)
    assert (letter["terminalReasonCode"], letter["idempotencyKey"]) == ("HTTP_422", "bad")
    reviewed = {"state": "reviewed"}
    assert market.call(first, "PATCH", f"{_LETTERS}/{letter['eventId']}", reviewed)[0] == 200

    market.kubectl("delete", "pod", first, "--wait=false")
    second = _only_worker(market, but=first)
    market.enqueue(sender, {"order": "a"}, {"order": "b"})
    market.eventually(
        lambda: {"order": "b"} in [each.payload for each in market.director.ended],
        "the last job is done",
        60,
    )
    market.eventually(lambda: not any(_busy(market)), "no job is left", 60)
    done = sorted(each.payload["order"] for each in market.director.began)
    assert done == ["a", "b", "bad"], "the app was given each key once"
    assert [each["state"] for each in _letters(market, second)] == ["reviewed"]


def _busy(market: Market) -> list[int]:
    depth = market.queue()["status"]["depth"]
    return [depth["ready"], depth["inFlight"], depth["waiting"]]
