"""Dead letters go back by `kubectl apply` of a QueueRedrive, in real pods."""

from typing import Any

from e2e.director import Attempt
from fixtures.operators import Market

_WORKER = {"port": 8080, "path": "/jobs", "timeout": "1m", "concurrency": 5}
_JOBS = 5


def _redrive(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "namedqueue.io/v1alpha1",
        "kind": "QueueRedrive",
        "metadata": {"name": "after-the-fix"},
        "spec": {"queue": "orders", **spec},
    }


def test_after_a_fix_the_dead_letters_are_done_by_applying_a_redrive(market: Market) -> None:
    market.apply(
        worker={**_WORKER, "template": market.template()},
        scaling={"minReplicas": 1, "maxReplicas": 1, "messagesPerReplica": 20},
    )
    market.ready()

    def refuse(_: Attempt) -> int:
        return 422

    market.director.script = refuse
    market.send(_JOBS)
    market.eventually(
        lambda: market.queue()["status"]["depth"]["dead"] == _JOBS, "the jobs are dead letters", 120
    )

    def accept(_: Attempt) -> int:
        return 200

    market.director.script = accept
    market.kubectl.apply(_redrive(reason="HTTP_422", waitForRollout=True, ratePerSecond=2))
    market.kubectl("wait", "nqr/after-the-fix", "--for=condition=Complete", "--timeout=120s")
    market.director.wait_for_ended(2 * _JOBS)

    status = market.kubectl.get("nqr", "after-the-fix")["status"]
    assert status["phase"] == "Succeeded"
    assert (status["matched"], status["redriven"], status["remaining"]) == (_JOBS, _JOBS, 0)
    market.told(f"Succeeded: {_JOBS} dead letters were sent back", "after-the-fix")
    again = [each for each in market.director.ended[_JOBS:] if each.attempt == 1]
    assert len(again) == _JOBS, "attempts begin anew"
    market.eventually(
        lambda: market.queue()["status"]["depth"]["dead"] == 0, "no dead letter is left"
    )
