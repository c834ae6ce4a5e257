"""A manifest becomes workers in real pods: they do their jobs, come and go, and lose nothing.

The operator runs in the cluster, as a pod of its image with the rights that we ship for it.
"""

import threading
from typing import Any

from e2e import pods, workers
from e2e.director import Attempt
from fixtures.operators import Market
from fixtures.scale import scaled

_PATIENCE = "--timeout=120s"
_WORKER = {"port": 8080, "path": "/jobs", "timeout": "5m", "concurrency": 5}


def _asking(document: dict[str, Any], **queues: str) -> dict[str, Any]:
    """Label and annotate a pod or a template so that the webhook puts the sidecar in."""
    metadata = document.setdefault("metadata", {})
    metadata["labels"] = {"namedqueue.io/inject": "true"}
    metadata["annotations"] = {f"namedqueue.io/{role}": queue for role, queue in queues.items()}
    return document


def test_workers_go_from_zero_to_many_and_back_and_a_pod_deleted_under_load_loses_nothing(
    market: Market,
) -> None:
    market.apply(
        worker={**_WORKER, "template": market.template()},
        scaling={"maxReplicas": 3, "messagesPerReplica": 20, "pollInterval": "1s"}
        | {"cooldown": "3s", "scaleDown": {"stabilization": "3s", "maxStep": "100%"}},
    )
    market.ready()
    assert market.workers() == []
    sender = market.sender()

    release = threading.Event()

    def script(_: Attempt) -> int:
        release.wait()
        return 200

    market.director.script = script
    sent = [f"job {number}" for number in range(scaled(5000))]
    market.enqueue(sender, *sent)
    market.eventually(lambda: len(market.workers()) == 3, "there are three workers", 120)
    market.director.wait_for_begun(10)
    busy = market.director.began[0].pod
    market.kubectl("delete", "pod", busy, "--wait=false")
    release.set()
    market.director.wait_for_ended(len(sent))
    market.eventually(lambda: market.workers() == [], "the workers are gone", 120)
    market.kubectl("wait", "pod", "--selector=namedqueue.io/worker", "--for=delete", _PATIENCE)

    assert {each.payload for each in market.director.ended} == set(sent)
    assert {each.attempt for each in market.director.began} == {1}
    assert len(market.director.began) == len(sent), "no job was interrupted"
    depth = market.queue()["status"]["depth"]
    assert depth == {"ready": 0, "inFlight": 0, "waiting": 0, "dead": 0}


def test_a_users_own_deployment_is_injected_and_a_job_that_only_sends_finishes(
    market: Market,
) -> None:
    market.apply(worker={**_WORKER, "deploymentRef": {"name": "shop"}})
    market.says("WorkersReady", "False", "NoDeployment")
    shop = pods.deployment("shop", market.pod())
    template = _asking(shop["spec"]["template"], consume="orders")
    template["metadata"]["labels"] |= {"app": "shop"}
    url = f"{workers.API}/v1/queues/orders/messages"
    once = workers.job("once", market.pod("/inside/produce.py", url))
    _asking(once["spec"]["template"], produce="orders")
    market.kubectl.apply(shop, once)

    market.kubectl("wait", "job/once", "--for=condition=Complete", _PATIENCE)
    market.director.wait_for_ended(1)
    market.says("WorkersReady", "True", "1 of 1 worker is ready")
    market.ready()
    pod = market.kubectl.get("deployment", "shop")["spec"]["template"]["spec"]
    assert "initContainers" not in pod, "the user's Deployment is as the user wrote it"
