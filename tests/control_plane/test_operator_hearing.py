"""A watch that falls silent is noticed: it is asked for anew, or liveness says which one it is.

The operator reaches the API server through a relay, which stands for the network in between.
"""

import os
import sys
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from control_plane.operating import Operated, binding
from e2e.relays import Relay, relay_to
from fixtures.brokers import VERSIONS
from fixtures.kubernetes import ControlPlane
from testbed import processes
from testbed.kubectl import Kubectl
from testbed.ports import free_port
from testbed.rabbitmq import Broker

_SPAN = 3
_PATIENT = 90.0


@dataclass(frozen=True)
class Distant(Operated):
    """A namespace that is watched through a relay."""

    relay: Relay
    observers: str

    def live(self) -> tuple[int, str]:
        """Ask what the kubelet asks."""
        answer = httpx.get(f"{self.observers}/healthz/live", trust_env=False, timeout=30)
        return answer.status_code, answer.text

    def silent_watches(self, resource: str) -> float:
        """Return how many watches of a kind fell silent so far."""
        wanted = f'namedqueue_operator_silent_watches_total{{resource="{resource}"}}'
        shown = httpx.get(f"{self.observers}/metrics", trust_env=False, timeout=30).text
        values = [line.split()[-1] for line in shown.splitlines() if line.startswith(wanted)]
        return float(values[0]) if values else 0.0


@pytest.fixture
def distant(
    control_plane: ControlPlane,
    crds: None,  # noqa: ARG001  # the CRDs come first
    shared_broker: Callable[[str], Broker],
    tmp_path: Path,
) -> Iterator[Distant]:
    """Run an operator whose watches are ended every few seconds, behind a relay."""
    administrator = Kubectl(control_plane.kubectl, control_plane.kubeconfig)
    namespace, broker = f"distant-{uuid.uuid4().hex[:8]}", shared_broker(VERSIONS[-1])
    administrator("create", "namespace", namespace)
    secret = tmp_path / "broker"
    secret.mkdir()
    for key, value in binding(broker).items():
        (secret / key).write_text(value)
    server = administrator("config", "view", "--minify", "--output=jsonpath={..server}")
    with relay_to(urlsplit(server).port or 443) as relay:
        kubeconfig, port = tmp_path / "kubeconfig", free_port()
        there = control_plane.kubeconfig.read_text()
        kubeconfig.write_text(there.replace(server, f"https://127.0.0.1:{relay.port}"))
        started = processes.start(
            "operator",
            [
                *(sys.executable, "-m", "namedqueue_operator", f"--broker={secret}"),
                *(f"--namespace={namespace}", f"--port={port}", f"--watch-span={_SPAN}"),
                *("--poll-interval=1", "--drift-interval=600"),
            ],
            tmp_path,
            env={**os.environ, "KUBECONFIG": str(kubeconfig)},
        )
        kubectl = administrator.within(namespace)
        yield Distant(kubectl, broker, started.log, relay, f"http://127.0.0.1:{port}")
        relay.hear()
        processes.stop("operator", tmp_path)
    administrator("patch", "nq/orders", f"--namespace={namespace}", "--type=merge", _LET_GO)
    administrator("delete", "namespace", namespace, "--wait=false")
    broker.delete_vhost(f"nq-{namespace}")


_LET_GO = '--patch={"metadata":{"finalizers":null}}'


def test_a_watch_that_falls_silent_is_asked_for_anew_and_missed_edits_are_acted_on(
    distant: Distant,
) -> None:
    distant.apply()
    distant.ready()
    distant.eventually(lambda: distant.live() == (200, "alive\n"), "all watches are there")

    distant.relay.silence()
    distant.apply(retry={"maxAttempts": 7})
    distant.eventually(
        lambda: distant.silent_watches("namedqueues") > 0, "the silence is noticed", _PATIENT
    )
    distant.eventually(lambda: distant.live()[0] == 200, "all watches are there again", _PATIENT)
    distant.ready()
    assert "of namedqueues was silent" in distant.operator_log.read_text().replace(
        f"/apis/namedqueue.io/v1alpha1/namespaces/{distant.namespace}/", ""
    )


def test_liveness_names_the_watches_that_stay_silent_until_they_hear_again(
    distant: Distant,
) -> None:
    distant.apply()
    distant.ready()
    place = f"/apis/namedqueue.io/v1alpha1/namespaces/{distant.namespace}/namedqueues"

    distant.relay.silence(for_good=True)
    distant.eventually(
        lambda: distant.live()[0] == 503 and f"the watch of {place} has been" in distant.live()[1],
        "liveness names what is silent",
        _PATIENT,
    )
    distant.relay.hear()
    distant.eventually(lambda: distant.live() == (200, "alive\n"), "it hears again", _PATIENT)
