"""The sidecar in real pods: from another pod's call to the app, and out again without a loss."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

import pytest

from e2e import workers
from e2e.director import Attempt
from fixtures.pods import Shop
from fixtures.scale import scaled
from testbed.processes import wait_until

_QUICK = {"maxAttempts": 3, "delay": "250ms", "maxDelay": "1s"}
_MOST_IDLE_KIB = 80 * 1024
_MEMORY = "from pathlib import Path; print(Path('/proc/1/status').read_text())"
_KILL = """
import os, pathlib, signal
for file in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
    if file.read_bytes().split(b"\\0")[1:3] == [b"-m", b"namedqueue_sidecar"]:
        os.kill(int(file.parent.name), signal.SIGKILL)
"""


@pytest.fixture(scope="module")
def open_all_day(open_shop: Callable[[], Any]) -> Iterator[Shop]:
    """Run a worker and a producer for all tests that leave them as they are."""
    with open_shop() as shop:
        shop.declare(retry=_QUICK)
        shop.start("producer", "--produce-only", ready=False)
        shop.start("worker")
        shop.kubectl("wait", "pod/producer", "--for=condition=Ready", "--timeout=120s")
        yield shop


@pytest.fixture
def running(open_all_day: Shop) -> Shop:
    """Give the running shop, with nothing in its books."""
    open_all_day.director.forget()
    open_all_day.director.script = lambda _: 200
    return open_all_day


def test_a_job_from_another_pod_is_worked_off_by_the_app(running: Shop) -> None:
    sent = [{"order": number} for number in range(scaled(2000))]
    running.enqueue("producer", *sent)
    running.director.wait_for_ended(len(sent))
    running.comes_to_rest("worker")
    ended = sorted(running.director.ended, key=lambda each: int(each.payload["order"]))
    assert [each.payload for each in ended] == sent
    assert {(each.pod, each.attempt) for each in ended} == {("worker", 1)}


def test_failing_jobs_are_retried_and_dead_lettered_with_their_history(running: Shop) -> None:
    answers = {"good": [200], "flaky": [503, 500, 200], "broken": [500] * 3, "wrong": [422]}
    running.director.script = lambda job: answers[job.payload][job.attempt - 1]
    running.enqueue("producer", *answers)
    running.director.wait_for_ended(sum(map(len, answers.values())))
    running.comes_to_rest("worker", dead=2)

    attempts = Counter(each.payload for each in running.director.ended)
    assert attempts == {name: len(statuses) for name, statuses in answers.items()}
    dead = {letter.job.payload: letter for letter in running.dead_letters()}
    assert set(dead) == {b'"broken"', b'"wrong"'}
    assert [each.error_code for each in dead[b'"broken"'].job.history.records] == ["HTTP_500"] * 3
    assert [each.error_code for each in dead[b'"wrong"'].job.history.records] == ["HTTP_422"]


def test_metrics_are_on_the_pods_address_and_the_api_is_not(running: Shop) -> None:
    address = running.kubectl.get("pod", "worker")["status"]["podIP"]
    status, text = running.call("producer", "GET", f"http://{address}:3551/metrics")
    assert status == 200
    assert "namedqueue_deliveries_total{" in text
    assert running.call("producer", "POST", f"http://{address}:3551/drain", {})[0] == 404
    status, refusal = running.call("producer", "GET", f"http://{address}:3550/v1/queues")
    assert status == 0
    assert "refused" in refusal
    assert running.call("worker", "GET", f"{workers.API}/v1/queues")[0] == 200


def test_the_sidecar_needs_little_memory_and_no_token(running: Shop) -> None:
    inside = ["exec", "worker", "--container=namedqueue", "--"]
    status = running.kubectl(*inside, "python", "-c", _MEMORY)
    resident = next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS"))
    assert int(resident) < _MOST_IDLE_KIB
    assert not running.kubectl.succeeds(*inside, "test", "-e", "/var/run/secrets/kubernetes.io")


def test_a_pod_is_not_ready_before_its_app_answers_and_no_attempt_is_used(shop: Shop) -> None:
    shop.declare()
    shop.director.may_listen.clear()
    shop.start("worker", ready=False)
    running = "--for=jsonpath={.status.phase}=Running"
    shop.kubectl("wait", "pod/worker", running, "--timeout=120s")
    nothing_else = [f"the app of {shop.queue} does not answer yet"]
    wait_until(lambda: shop.missing("worker") == nothing_else, what="only the app is missing")
    shop.enqueue("worker", "early")
    assert not shop.container("worker", "namedqueue")["ready"]
    assert shop.depth().ready == 1

    shop.director.may_listen.set()
    shop.kubectl("wait", "pod/worker", "--for=condition=Ready", "--timeout=120s")
    shop.director.wait_for_ended(1)
    shop.comes_to_rest("worker")
    assert [(each.payload, each.attempt) for each in shop.director.began] == [("early", 1)]


def test_a_pod_deleted_under_load_loses_nothing_and_counts_no_attempt(shop: Shop) -> None:
    """One job outlasts the drain of its pod and is handed back; the others end where they began."""
    shop.declare(concurrency=10)
    shop.start("first", "--grace=20", terminationGracePeriodSeconds=60)
    release = threading.Event()
    sent = [f"job {number}" for number in range(scaled(2000))]

    def script(job: Attempt) -> int:
        release.wait()
        if job.pod == "first" and job.payload == stubborn:
            threading.Event().wait(60)
        return 200

    stubborn = sent[0]
    shop.director.script = script
    shop.enqueue("first", *sent)
    shop.director.wait_for_begun(10)
    told = time.monotonic()
    shop.kubectl("delete", "pod", "first", "--wait=false")
    wait_until(lambda: "draining" in shop.missing("first"), what="the sidecar drains")
    release.set()
    shop.start("second")
    shop.kubectl("wait", "pod/first", "--for=delete", "--timeout=120s")
    assert time.monotonic() - told < 60, "it was killed at the end of its grace period"

    shop.director.wait_for_ended(len(sent))
    shop.comes_to_rest("second")
    assert {each.payload for each in shop.director.ended} == set(sent)
    assert {each.attempt for each in shop.director.began} == {1}
    again = [
        job for job, times in Counter(e.payload for e in shop.director.began).items() if times > 1
    ]
    assert again == [stubborn]


def test_a_killed_sidecar_comes_back_and_nothing_is_lost(shop: Shop) -> None:
    shop.declare(concurrency=5)
    shop.start("worker", shareProcessNamespace=True)
    release = threading.Event()
    shop.director.script = lambda _: 200 if release.wait() else 500
    sent = [f"job {number}" for number in range(scaled(2000))]
    shop.enqueue("worker", *sent)
    shop.director.wait_for_begun(5)

    shop.kubectl("exec", "worker", "--container=app", "--", "python3", "-c", _KILL)
    wait_until(
        lambda: shop.container("worker", "namedqueue")["restartCount"] > 0,
        what="the sidecar was started again",
    )
    release.set()
    shop.director.wait_for_ended(len(sent) + 5)
    shop.comes_to_rest("worker")
    assert {each.payload for each in shop.director.ended} == set(sent)
    assert {each.attempt for each in shop.director.began} == {1}
    assert shop.container("worker", "app")["restartCount"] == 0


def test_an_edited_config_map_is_followed_without_a_restart(shop: Shop) -> None:
    shop.declare(concurrency=1, retry=_QUICK)
    shop.start("worker")
    release = threading.Event()
    shop.director.script = lambda _: 200 if release.wait() else 500
    shop.enqueue("worker", *range(10))
    shop.director.wait_for_begun(1)
    wait_until(lambda: shop.depth()[:2] == (9, 1), what="one job is in flight")
    before = shop.container("worker", "namedqueue")["containerID"]

    shop.declare(concurrency=4, retry=_QUICK | {"maxAttempts": 7})
    shop.sync("worker")
    shop.director.wait_for_begun(4)
    assert [each.most for each in shop.director.began] == [3, 7, 7, 7]
    release.set()
    shop.director.wait_for_ended(10)
    shop.comes_to_rest("worker")
    assert shop.container("worker", "namedqueue")["containerID"] == before
    assert len(shop.director.began) == 10


def test_a_rotated_secret_is_used_from_the_next_connection_on(shop: Shop) -> None:
    everything = {"configure": ".*", "write": ".*", "read": ".*"}
    broker, user = shop.broker, f"users/{shop.namespace}"
    broker.api("PUT", user, {"password": "before", "tags": ""})
    broker.api("PUT", f"permissions/{shop.vhost}/{shop.namespace}", everything)
    shop.bind(shop.namespace, "before")
    shop.declare()
    shop.start("worker")
    shop.enqueue("worker", "before")

    shop.bind(shop.namespace, "after")
    shop.sync("worker")
    mounted = ["exec", "worker", "--container=namedqueue", "--"]
    read = ["cat", "/etc/namedqueue/broker/password"]
    wait_until(
        lambda: shop.kubectl(*mounted, *read) == "after",
        what="the Secret is mounted",
        deadline=150,  # at the latest when the kubelet looks by itself
    )
    shop.enqueue("worker", "between")
    broker.api("PUT", user, {"password": "after", "tags": ""})
    wait_until(lambda: len(_connections(shop)) == 2, what="the broker lists both connections")
    old = _connections(shop)
    for name in old:
        broker.api("DELETE", f"connections/{quote(name, safe='')}")

    wait_until(lambda: len(_connections(shop) - old) == 2, what="both connections are back")
    wait_until(lambda: shop.missing("worker") == [], what="the sidecar is ready again")
    shop.enqueue("worker", "after")
    shop.director.wait_for_ended(3)
    shop.comes_to_rest("worker")
    assert {each.payload for each in shop.director.ended} == {"before", "between", "after"}
    assert shop.container("worker", "namedqueue")["restartCount"] == 0
    broker.api("DELETE", user)


def test_a_pod_whose_work_is_done_ends_although_its_sidecar_runs(shop: Shop) -> None:
    shop.declare()
    url = f"{workers.API}/v1/queues/orders/messages"
    app = shop.app("/inside/produce.py", url)
    shop.kubectl.apply(workers.job("once", workers.spec(shop.sidecar("--produce-only"), app)))
    shop.kubectl("wait", "job/once", "--for=condition=Complete", "--timeout=120s")
    assert shop.depth().ready == 1


def _connections(shop: Shop) -> set[str]:
    """Return the names of a shop's connections; the broker lists them a moment late."""
    every = shop.broker.api("GET", f"vhosts/{shop.vhost}/connections").json()
    return {each["name"] for each in every if each.get("user") == shop.namespace}
