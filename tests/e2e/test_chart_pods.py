"""The life of a release in a real cluster: installed, used, watched, upgraded, taken away.

One release is shared by all tests here, which come in the order of its life.
"""

import base64
import json
import os
import re
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import dashboard
from e2e import pods
from e2e.director import Attempt
from e2e.permissions import Access, granted, used
from e2e.releases import HOME, RELEASE, SHOP, Release, installed, page
from fixtures.pages import ROOT, steps
from testbed.helm import Helm
from testbed.images import Image
from testbed.postgresql import Postgres
from testbed.processes import TestbedError, wait_until
from testbed.prometheus import Prometheus
from testbed.providers import Cluster
from testbed.rabbitmq import Broker

pytestmark = pytest.mark.timeout(900)  # the first starts the cluster and all its servers

_DEAD = 'namedqueue_jobs{namespace="shop", queue="orders", stage="dead"}'
_NO_TEMPLATE = [
    {"op": "remove", "path": "/spec/worker/template"},
    {"op": "remove", "path": "/spec/scaling"},
]
_OF_BRIEF = ("deployment/nq-brief", "serviceaccount/nq-brief")
# Read again when somebody else has written in the same moment, which no test can bring about.
_IN_A_COLLISION = {Access(SHOP, "namedqueue.io", "queueredrives", "", "get")}
_OPERATOR = f"system:serviceaccount:{HOME}:{RELEASE}"
_ROLES = ("role", "rolebinding", "clusterrole", "clusterrolebinding")
_CRDS = [
    f"customresourcedefinition.apiextensions.k8s.io/{kind}.namedqueue.io"
    for kind in ("namedqueues", "queueredrives")
]


@pytest.fixture(scope="module")
def release(
    cluster: Cluster,
    pods_broker: Broker,
    postgres: Postgres,
    operator_image: Image,  # noqa: ARG001  # built before any test's time-out runs
    sidecar_image: Image,  # noqa: ARG001  # likewise
    python_image: Image,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Release]:
    """Install the chart by following «getting started»."""
    if cluster.provider != "local":
        pytest.skip("Prometheus runs on this machine and only the local provider's pods are near")
    folder = tmp_path_factory.mktemp("release")
    with installed(folder, cluster, pods_broker, postgres, python_image) as release:
        yield release


def test_whoever_follows_getting_started_has_a_job_done(release: Release) -> None:
    *_, queue, forward, job, look = page("getting-started.md")
    release.guide.follow(queue)
    with release.guide.serving(forward.commands.strip()):
        release.guide.follow(job)
        release.guide.follow(look)


def test_prometheus_scrapes_operators_and_sidecars_by_the_monitors_of_the_chart(
    release: Release,
) -> None:
    def scraped() -> bool:
        jobs = release.prometheus.scraped()
        return jobs.count("ServiceMonitor") == 2 and jobs.count("PodMonitor") >= 1

    wait_until(scraped, what="both operators and the sidecar are scraped")
    processed = 'sum(namedqueue_deliveries_total{queue="orders", outcome="processed"})'
    wait_until(lambda: release.prometheus.value(processed) == 1, what="one job was processed")
    wait_until(lambda: release.prometheus.value(f"max({_DEAD})") == 1, what="and one is dead")


def test_prometheus_counts_retries_and_duplicates(release: Release) -> None:
    market, watching = release.market, release.prometheus
    release.deploy(minReplicas=1, maxReplicas=1)  # what a pod counted goes with it
    market.director.forget()
    market.director.script = _fail_once
    sent = [{"order": f"twice {number}"} for number in range(20)]
    market.enqueue(release.worker(), *sent)
    market.director.wait_for_ended(2 * len(sent))
    market.enqueue(release.worker(), *sent)
    for query in (
        'sum(namedqueue_deliveries_total{queue="orders", outcome="transient"})',
        'sum(namedqueue_duplicates_total{queue="orders", key="processed"})',
    ):
        market.eventually(partial(_is, watching, query, len(sent)), f"{query} is {len(sent)}")


def _is(prometheus: Prometheus, query: str, value: float) -> bool:
    return prometheus.value(query) == value


def _fail_once(attempt: Attempt) -> int:
    return 503 if attempt.attempt == 1 else 200


def test_an_alert_fires_on_dead_letters_and_clears_when_they_are_sent_back(
    release: Release,
) -> None:
    market, watching = release.market, release.prometheus
    release.deploy(minReplicas=1, maxReplicas=3)
    market.director.script = _refuse
    market.enqueue(release.worker(), *({"order": number} for number in range(5)))
    market.eventually(lambda: _alert(watching) is not None, "the alert fires", 120)
    alert = _alert(watching)
    assert alert is not None
    assert alert["annotations"]["summary"] == "Jobs of shop/orders fail for good"
    market.eventually(lambda: watching.value(f"max({_DEAD})") == 6, "six dead letters are seen")

    market.director.script = _accept
    market.kubectl.apply(_redrive())
    market.kubectl("wait", "nqr/after-the-fix", "--for=condition=Complete", "--timeout=120s")
    market.eventually(lambda: _alert(watching) is None, "the alert clears", 120)
    market.eventually(lambda: watching.value(f"max({_DEAD})") == 0, "no dead letter is seen")


def _alert(prometheus: Prometheus) -> dict[str, Any] | None:
    wanted = {"alertname": "NamedQueueDeadLettersGrowing", "namespace": SHOP, "queue": "orders"}
    alerts = (each for each in prometheus.firing() if wanted.items() <= each["labels"].items())
    return next(alerts, None)


def _refuse(_: Attempt) -> int:
    return 422


def _accept(_: Attempt) -> int:
    return 200


def _redrive() -> dict[str, Any]:
    return {
        "apiVersion": "namedqueue.io/v1alpha1",
        "kind": "QueueRedrive",
        "metadata": {"name": "after-the-fix"},
        "spec": {"queue": "orders", "waitForRollout": True},
    }


def test_an_upgrade_with_jobs_in_flight_loses_nothing(release: Release) -> None:
    market = release.market
    release.deploy(minReplicas=2, maxReplicas=3)
    market.eventually(lambda: len(market.workers()) >= 2, "there are two workers")
    market.director.forget()
    go_on = threading.Event()

    def hold(_: Attempt) -> int:
        go_on.wait()
        return 200

    market.director.script = hold
    sent = [{"order": f"upgrade {number}"} for number in range(100)]
    market.enqueue(release.worker(), *sent)
    market.director.wait_for_begun(10)
    before = set(market.workers())

    upgrade, test = page("upgrade.md")[0].commands.strip().splitlines()
    release.guide.sh(f"{upgrade} --set sidecar.resources.requests.memory=100Mi")
    release.home("rollout", "status", f"deployment/{RELEASE}", "--timeout=120s")
    market.eventually(lambda: not before <= set(market.workers()), "workers are replaced", 120)
    market.enqueue(release.worker(), {"order": "meanwhile"})
    go_on.set()
    release.guide.sh(test)
    market.kubectl("rollout", "status", "deployment/nq-orders", "--timeout=120s")
    market.director.wait_for_ended(len(sent) + 1)
    market.eventually(lambda: not before & set(market.workers()), "no old worker is left", 120)

    done = [each.payload["order"] for each in market.director.ended]
    assert sorted(done) == sorted(each["order"] for each in (*sent, {"order": "meanwhile"}))
    assert {each.attempt for each in market.director.began} == {1}, "no job was interrupted"
    at_rest = {"ready": 0, "inFlight": 0, "waiting": 0, "dead": 0}
    market.eventually(lambda: market.queue()["status"]["depth"] == at_rest, "nothing is left")


def test_the_commands_of_every_runbook_work(release: Release) -> None:
    market = release.market
    market.director.script = _refuse
    market.eventually(lambda: len(market.workers()) == 2, "no worker is about to go")
    worker = release.worker()
    market.enqueue(worker, {"order": "for the runbooks"})
    market.eventually(lambda: market.queue()["status"]["depth"]["dead"] == 1, "it is dead")
    with release.guide.serving(f"kubectl -n {SHOP} port-forward pod/{worker} 3550"):
        [letter] = json.loads(release.guide.sh("nq dlq ls orders -o json"))
        names = {"namespace": SHOP, "queue": "orders", "worker": worker, "job": letter["eventId"]}
        names |= {"release": RELEASE, "release_namespace": HOME, "redrive": "after-the-fix"}
        known = "".join(f"{name}={value}\n" for name, value in names.items())
        for runbook in sorted(ROOT.glob("docs/runbooks/*.md")):
            [look] = steps(runbook.read_text())
            lines = [line for line in look.commands.splitlines() if "port-forward" not in line]
            # What is searched for is there only when there is trouble.
            release.guide.sh(known + re.sub(r"\| grep .*", "", "\n".join(lines)))


def test_every_panel_of_the_dashboard_shows_something(release: Release) -> None:
    """Draw them as well where `NQ_PICTURES` says to."""
    now = time.time()
    answers = [
        (panel, dashboard.ask(release.prometheus, panel, release.since, now))
        for panel in dashboard.panels()
    ]
    empty = [
        panel.title
        for panel, lines in answers
        if not panel.is_row and all(line.most is None for line in lines)
    ]
    assert empty == []
    if folder := os.environ.get("NQ_PICTURES"):
        dashboard.draw(answers, now - release.since, Path(folder) / "dashboard.svg")


def test_each_permission_is_used_and_the_workers_have_none(release: Release) -> None:
    """Judge by the audit log of all tests here; what none of them needs is done first."""
    market = release.market
    _inject(release)
    _break_the_webhooks_secret(release)
    _stop_running_workers(release)
    objects = Helm(release.cluster.helm).render(
        {"watchNamespaces": [SHOP]}, release=RELEASE, namespace=HOME
    )
    log = release.cluster.audit_log
    assert log is not None
    permissions = set(granted(objects, RELEASE)) - _IN_A_COLLISION
    assert len(permissions) > 30

    def unused() -> list[str]:
        uses = used(log, _OPERATOR)
        return sorted(str(each) for each in permissions if not any(map(each.allows, uses)))

    with suppress(TestbedError):
        wait_until(lambda: unused() == [], what="each was used", deadline=60)
    assert unused() == [], "never used by any test of this file; were all of them run?"
    not_granted = Access(SHOP, "", "pods", "", "delete")
    assert not any(map(not_granted.allows, used(log, _OPERATOR)))
    assert used(log, f"system:serviceaccount:{SHOP}:nq-orders") == set()
    assert (
        market.kubectl.get("serviceaccount", "nq-orders")["automountServiceAccountToken"] is False
    )


def _inject(release: Release) -> None:
    """Have the webhook asked about a pod."""
    sender = pods.pod("sender", release.market.pod())
    sender["metadata"]["labels"] = {"namedqueue.io/inject": "true"}
    sender["metadata"]["annotations"] = {"namedqueue.io/produce": "orders"}
    release.market.kubectl.apply(sender)
    found = release.market.kubectl.get("pod", "sender")["spec"]["initContainers"]
    assert [each["name"] for each in found] == ["namedqueue"]
    release.market.kubectl("delete", "pod", "sender", "--wait=false")


def _break_the_webhooks_secret(release: Release) -> None:
    """Have the certificates written anew."""
    name = f"{RELEASE}-webhook"
    release.home("patch", "secret", name, '--patch={"stringData": {"tls.crt": "nonsense"}}')
    nonsense = base64.b64encode(b"nonsense").decode()
    wait_until(
        lambda: release.home.get("secret", name)["data"]["tls.crt"] != nonsense,
        what="the webhook's certificate is mended",
    )


def _stop_running_workers(release: Release) -> None:
    """Take the template away from a queue that has one."""
    market = release.market
    worker = {"port": 8080, "path": "/jobs"}
    scaling = {"minReplicas": 0, "maxReplicas": 1, "messagesPerReplica": 20}
    market.apply("brief", worker={**worker, "template": market.template()}, scaling=scaling)
    market.ready("brief")
    market.kubectl("patch", "nq", "brief", "--type=json", f"--patch={json.dumps(_NO_TEMPLATE)}")
    market.eventually(
        lambda: not market.kubectl("get", *_OF_BRIEF, "--ignore-not-found", "--output=name"),
        "the workers of brief are gone",
    )


def test_uninstalling_leaves_queues_jobs_and_workers(release: Release) -> None:
    market = release.market
    market.director.forget()
    market.director.script = _accept
    before = market.observed()
    release.guide.sh(f"helm uninstall {RELEASE} --namespace {HOME} --wait")

    assert market.kubectl("get", *_CRDS, "--output=name").split() == _CRDS
    assert market.queue()["spec"]["deletionPolicy"] == "Retain"
    assert market.observed() == before == market.desired(), "the broker has all that it had"
    market.enqueue(release.worker(), {"order": "after"})
    market.director.wait_for_ended(1)
    ours = f"--selector=app.kubernetes.io/instance={RELEASE}"
    for kind in (*_ROLES, "deployment", "mutatingwebhookconfiguration", "service", "networkpolicy"):
        assert release.home("get", kind, "--all-namespaces", ours, "--output=name") == "", kind
    left = release.home("get", "secret,lease", "--output=name").split()
    assert left == [
        "secret/namedqueue-webhook",
        "secret/postgres",
        "secret/rabbit",
        "lease.coordination.k8s.io/namedqueue",
    ]
