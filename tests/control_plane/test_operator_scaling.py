"""Workers follow their jobs: what a user sees of a Deployment while jobs come and go."""

import json
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import pika
import pytest

from control_plane.operating import Operated, RunningOperator
from fixtures.brokers import VERSIONS
from testbed import leases, rabbitmq
from testbed.rabbitmq import Broker

COST = "controller.kubernetes.io/pod-deletion-cost"
QUICK: dict[str, Any] = {
    "messagesPerReplica": 2,
    "maxReplicas": 8,
    "pollInterval": "1s",
    "cooldown": "1s",
    "scaleDown": {"stabilization": "0s"},
}


def _deploy(operated: Operated, name: str = "crew", replicas: int = 0) -> None:
    """Make a Deployment as users have them; its pods are made, and no kubelet runs them."""
    labels = {"app": name, "namedqueue.io/inject": "true"}
    annotations = {"namedqueue.io/consume": "orders"}
    operated.kubectl.apply(
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": name},
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": {"app": name}},
                "template": {
                    "metadata": {"labels": labels, "annotations": annotations},
                    "spec": {"containers": [{"name": "app", "image": "none"}]},
                },
            },
        }
    )


def _apply(operated: Operated, worker: dict[str, Any] | None = None, **scaling: Any) -> None:
    crew = {"deploymentRef": {"name": "crew"}, "port": 8080, **(worker or {})}
    operated.apply(worker=crew, scaling={**QUICK, **scaling})
    operated.says("TopologyReady", "True", "InPlace")


def _asked(operated: Operated, name: str = "crew") -> int:
    return int(operated.kubectl.get("deployment", name)["spec"]["replicas"])


def _reaches(operated: Operated, replicas: int) -> None:
    operated.eventually(lambda: _asked(operated) == replicas, f"{replicas} replicas are asked for")


def _starts(operated: Operated) -> None:
    """Say of the first pod what a kubelet would say."""
    found: list[dict[str, Any]] = []

    def made() -> bool:
        answer = operated.kubectl("get", "pods", "--selector=app=crew", "--output=json")
        found[:] = json.loads(answer)["items"]
        return bool(found)

    operated.eventually(made, "a pod was made")
    ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    _set_status(operated, f"pod/{found[0]['metadata']['name']}", ready)


def _set_status(operated: Operated, thing: str, status: dict[str, Any]) -> None:
    patch = json.dumps({"status": status})
    operated.kubectl("patch", thing, "--subresource=status", "--type=merge", f"--patch={patch}")


def test_workers_go_from_none_to_many_and_back_to_none(operated: Operated) -> None:
    _deploy(operated)
    _apply(operated)
    operated.says("ScalingActive", "True", "Idle: no replicas: nothing is ready")
    operated.send(9)
    _reaches(operated, 5)
    operated.says("ScalingActive", "True", "5 replicas: 9 ready and 0 in flight at 2 for each")
    assert operated.queue()["status"]["depth"]["ready"] == 9
    operated.purge(operated.names().main)
    _reaches(operated, 0)
    operated.says("ScalingActive", "True", "Idle: no replicas")


def test_a_limit_and_a_step_down_are_told(operated: Operated) -> None:
    _deploy(operated, replicas=6)
    _apply(operated, maxReplicas=3, minReplicas=1, scaleDown={"stabilization": "10m"})
    _reaches(operated, 3)
    operated.says("ScalingActive", "True", "Stabilizing: 3 replicas on the way down")
    operated.send(10)
    operated.says("ScalingActive", "True", "Limited: 3 replicas, the most (maxReplicas); 5 would")


def _gauges(operated: Operated, operator: RunningOperator) -> set[str]:
    """Name the metrics about replicas that there are of the queue."""
    shown = httpx.get(f"{operator.observers}/metrics", trust_env=False, timeout=30).text
    named = (line.partition("{") for line in shown.splitlines())
    return {
        name
        for name, _, labels in named
        if name.endswith("_replicas") and f'namespace="{operated.namespace}"' in labels
    }


def test_what_others_set_is_corrected_while_the_queue_scales(operated: Operated) -> None:
    _deploy(operated)
    _apply(operated)
    operated.send(4)
    _reaches(operated, 2)
    operated.kubectl("scale", "deployment/crew", "--replicas=7")
    _reaches(operated, 2)
    operated.kubectl("scale", "nq/orders", "--replicas=3")
    _reaches(operated, 3)
    operated.says("ScalingActive", "True", "3 replicas, the least")


def test_nothing_is_scaled_without_being_asked_to(
    operated: Operated, operator: RunningOperator
) -> None:
    _deploy(operated)
    _apply(operated)
    operated.says("ScalingActive", "True", "Idle")
    shown = {"namedqueue_desired_replicas", "namedqueue_max_replicas", "namedqueue_replicas"}
    operated.eventually(lambda: _gauges(operated, operator) == shown, "the gauges are there")
    operated.apply(worker={"deploymentRef": {"name": "crew"}, "port": 8080})
    operated.says("ScalingActive", "False", "Off: spec.scaling is not given")
    assert _gauges(operated, operator) == {"namedqueue_replicas"}
    operated.kubectl("scale", "deployment/crew", "--replicas=7")
    operated.send(1)
    operated.eventually(
        lambda: operated.queue()["status"]["depth"]["ready"] == 1, "the depth is told"
    )
    assert _asked(operated) == 7


def test_a_deployment_that_is_missing_is_named_and_followed_once_it_is_there(
    operated: Operated,
) -> None:
    _apply(operated)
    operated.says("ScalingActive", "False", "NoDeployment: there is no Deployment crew")
    _deploy(operated)
    operated.send(3)
    _reaches(operated, 2)


@pytest.fixture
def frail_broker() -> Iterator[Broker]:
    """Give a broker of this test's own, to harm."""
    name = f"pytest-private-rabbitmq-{uuid.uuid4().hex[:12]}"
    with leases.shared(
        name,
        start=lambda: rabbitmq.start(VERSIONS[-1], name),
        find=lambda: None,
        stop=lambda: rabbitmq.remove(name),
    ) as broker:
        yield broker


def test_an_unknown_depth_holds_the_count_and_says_so(
    operated: Operated, frail_broker: Broker
) -> None:
    there = operated.on(frail_broker)
    _deploy(there)
    crew = {"deploymentRef": {"name": "crew"}, "port": 8080}
    there.apply(brokerSecretRef={"name": "rabbit"}, worker=crew, scaling=QUICK)
    there.says("TopologyReady", "True", "InPlace")
    there.send(8)
    _reaches(there, 4)
    frail_broker.pause()
    try:
        there.says("ScalingActive", "Unknown", "DepthUnknown: 4 replicas kept, for the management")
        assert _asked(there) == 4
    finally:
        frail_broker.resume()
    there.says("ScalingActive", "True", "Following: 4 replicas")


def test_a_patient_queue_is_not_read_at_every_poll(operated: Operated) -> None:
    _deploy(operated)
    # Turns lie on a grid of the machine's clock: the next one shall be as far away as can be.
    interval = max(range(100, 301), key=lambda seconds: seconds - time.monotonic() % seconds)
    operated.apply(
        "calm",
        worker={"deploymentRef": {"name": "crew"}, "port": 8080},
        scaling={**QUICK, "pollInterval": f"{interval}s"},
    )
    operated.says("ScalingActive", "True", "Idle", "calm")
    operated.apply("eager")
    operated.ready("eager")
    operated.send(1, "calm")
    for count in (1, 2):
        operated.send(1, "eager")
        operated.eventually(
            lambda count=count: operated.queue("eager")["status"]["depth"]["ready"] == count,  # type: ignore[misc]  # bound per round
            "the other queue of the broker was read",
        )
    assert operated.queue("calm")["status"]["depth"]["ready"] == 0
    assert _asked(operated) == 0


def test_drain_time_is_met_by_measured_rates(operated: Operated) -> None:
    """One worker finishes some jobs a second, as the broker's own counter tells."""
    _deploy(operated)
    scaling = {**QUICK, "drainTime": "10s", "maxReplicas": 50}
    del scaling["messagesPerReplica"]
    operated.apply(worker={"deploymentRef": {"name": "crew"}, "port": 8080}, scaling=scaling)
    operated.says("ScalingActive", "True", "Idle")
    operated.send(60)
    _reaches(operated, 1)
    _starts(operated)
    with _slow_worker(operated, per_second=2):
        found = operated.says("ScalingActive", "True", "/s by each replica")
        operated.eventually(lambda: _asked(operated) > 1, "more than one is asked for")
    assert "jobs to be done in 10 s" in found["message"]


@contextmanager
def _slow_worker(operated: Operated, per_second: float) -> Iterator[None]:
    broker = operated.broker
    credentials = pika.PlainCredentials(broker.username, broker.password)
    done = threading.Event()

    def work() -> None:
        parameters = pika.ConnectionParameters(
            "127.0.0.1", broker.amqp_port, operated.vhost, credentials
        )
        connection = pika.BlockingConnection(parameters)
        channel = connection.channel()
        channel.basic_qos(prefetch_count=10)
        for method, _, _ in channel.consume(operated.names().main, inactivity_timeout=1):
            if done.wait(1 / per_second):
                break
            if method is not None:
                channel.basic_ack(method.delivery_tag or 0)
        connection.close()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join(timeout=30)


def test_replicas_share_a_rate_limit_that_is_told_to_the_sidecars(operated: Operated) -> None:
    _deploy(operated)
    _apply(operated, worker={"rateLimit": {"requests": 100}})
    operated.eventually(lambda: _shares(operated) == "1", "one has it all")
    operated.send(6)
    _reaches(operated, 3)
    operated.eventually(lambda: _shares(operated) == "3", "three share")
    operated.eventually(lambda: operated.queue()["status"]["replicas"] == 3, "they are counted")
    assert operated.queue()["status"]["selector"] == "app=crew"
    assert not [event for event in operated.events() if "ConfigMap" in event]


def _shares(operated: Operated) -> str | None:
    data = operated.kubectl.get("configmap", "nq-orders")["data"]
    return str(data["replicas"]) if "replicas" in data else None


def test_idle_pods_are_the_first_to_go(operated: Operated) -> None:
    """One of many has to go: one is idle, one is busy, and the others do not answer."""
    _deploy(operated, replicas=3)
    with ExitStack() as running:
        pods = {
            "busy": running.enter_context(_sidecar(2)),
            "idle": running.enter_context(_sidecar(0)),
            "mute": "127.77.255.254",
        }
        for name, address in pods.items():
            _pod(operated, name, address)
        operated.kubectl("annotate", "pod/busy", f"{COST}=-1")
        _apply(operated, minReplicas=2)

        def spared() -> bool:
            """Tell who was marked; if a sidecar's answer came late, let the choice be made anew."""
            _reaches(operated, 2)
            marks = {name: _cost(operated, name) for name in pods}
            if marks == {"busy": None, "idle": "-1", "mute": None}:
                return True
            operated.kubectl("scale", "deployment/crew", "--replicas=3")
            return False

        operated.eventually(spared, "the idle pod is marked, and no other")


def _pod(operated: Operated, name: str, address: str) -> None:
    operated.kubectl.apply(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "labels": {"app": "crew"}},
            "spec": {"containers": [{"name": "app", "image": "none"}]},
        }
    )
    status = {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]}
    _set_status(operated, f"pod/{name}", status)


def _cost(operated: Operated, pod: str) -> str | None:
    annotations: dict[str, str] = operated.kubectl.get("pod", pod)["metadata"].get(
        "annotations", {}
    )
    return annotations.get(COST)


@contextmanager
def _sidecar(in_flight: int) -> Iterator[str]:
    """Answer as a sidecar does, on an address of loopback that is this pod's alone."""
    page = f'namedqueue_in_flight{{namespace="shop",queue="orders"}} {in_flight}.0\n'.encode()

    class Metrics(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(page)))
            self.end_headers()
            self.wfile.write(page)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    token = uuid.uuid4().bytes
    address = f"127.77.{token[0]}.{1 + token[1] % 250}"
    server = ThreadingHTTPServer((address, 3551), Metrics)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield address
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
