"""A node that vanishes is noticed, and one that returns runs its pods again."""

import pytest

from e2e import pods
from testbed.kubectl import Kubectl
from testbed.processes import wait_until
from testbed.providers import Cluster

pytestmark = pytest.mark.timeout(600)  # each starts a cluster of its own


def test_a_lost_node_is_marked_and_its_pods_run_again_when_it_returns(
    private_cluster: Cluster, kubectl: Kubectl, busybox: str
) -> None:
    lost = private_cluster.node_names[-1]
    spec = {
        "containers": [pods.shell("main", busybox, "echo up; exec sleep 3600")],
        "nodeSelector": {"kubernetes.io/hostname": lost},
        "terminationGracePeriodSeconds": 1,
    }
    kubectl.apply(pods.pod("here", spec))
    kubectl("wait", "pod/here", "--for=condition=Ready", "--timeout=120s")

    private_cluster.stop_node(lost)

    kubectl("wait", f"node/{lost}", "--for=condition=Ready=Unknown", "--timeout=120s")
    kubectl("wait", "pod/here", "--for=condition=Ready=False", "--timeout=60s")
    assert not kubectl.succeeds("logs", "here")

    private_cluster.start_node(lost)

    kubectl("wait", f"node/{lost}", "--for=condition=Ready", "--timeout=120s")
    kubectl("wait", "pod/here", "--for=condition=Ready", "--timeout=120s")
    assert kubectl.get("pod", "here")["status"]["containerStatuses"][0]["restartCount"] >= 1
    wait_until(lambda: kubectl("logs", "here").strip() == "up", what="its log is seen again")


def test_pods_on_different_nodes_reach_each_other_through_a_service(
    private_cluster: Cluster, kubectl: Kubectl, busybox: str
) -> None:
    first, second = private_cluster.node_names[:2]
    server = pods.shell("main", busybox, "echo hello > /tmp/index.html; httpd -f -p 8080 -h /tmp")
    server["securityContext"] = {**server["securityContext"], "readOnlyRootFilesystem": False}
    server["readinessProbe"] = {"tcpSocket": {"port": 8080}, "periodSeconds": 1}
    spec = {"containers": [server], "nodeSelector": {"kubernetes.io/hostname": second}}
    kubectl.apply(pods.deployment("web", spec), pods.service("web", 80, 8080))
    kubectl("rollout", "status", "deployment/web", "--timeout=120s")

    # The Service leads nowhere until the client's node has heard of the server.
    fetch = "until timeout 10 wget -qO- http://web 2> /dev/null; do sleep 1; done"
    client = {
        "containers": [pods.shell("main", busybox, fetch)],
        "nodeSelector": {"kubernetes.io/hostname": first},
        "restartPolicy": "Never",
    }
    kubectl.apply(pods.pod("client", client))
    kubectl("wait", "pod/client", "--for=jsonpath={.status.phase}=Succeeded", "--timeout=120s")
    assert kubectl("logs", "client").strip() == "hello"
