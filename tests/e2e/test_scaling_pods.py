"""Scaling in under load: whoever has nothing to do goes, and no job is interrupted."""

import threading

from e2e.director import Attempt
from fixtures.operators import Market


def test_the_pod_that_works_stays_when_idle_ones_go(market: Market) -> None:
    market.apply(
        worker={"port": 8080, "path": "/jobs", "timeout": "5m", "concurrency": 1}
        | {"template": market.template()},
        scaling={"maxReplicas": 3, "messagesPerReplica": 1, "pollInterval": "1s"}
        | {"cooldown": "3s", "scaleDown": {"stabilization": "0s", "maxStep": "100%"}},
    )
    market.ready()
    sender = market.sender()
    gates = {name: threading.Event() for name in ("short", "brief", "long")}

    def script(attempt: Attempt) -> int:
        gates[attempt.payload].wait()
        return 200

    market.director.script = script
    market.enqueue(sender, *gates)
    market.director.wait_for_begun(3)
    at_work = {each.payload: each.pod for each in market.director.began}
    assert len(set(at_work.values())) == 3, "each has one"

    gates["short"].set()
    gates["brief"].set()
    market.eventually(lambda: len(market.workers()) == 1, "two workers went", 120)
    assert market.workers() == [at_work["long"]], "the one that works stayed"
    gates["long"].set()
    market.director.wait_for_ended(3)
    market.eventually(lambda: market.workers() == [], "the last one went", 120)
    assert len(market.director.began) == 3, "no job was interrupted"
