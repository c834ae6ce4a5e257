"""Spark's executors are pods with the sidecar in them: what they write arrives, and they end.

`spark-submit` runs on this machine, as a data engineer has it, with the files of examples/spark.
"""

import json
import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pika
import pyspark
import pytest
import yaml

from e2e import workers
from e2e.director import Attempt
from fixtures.operators import Market
from testbed.images import Image
from testbed.processes import wait_until
from testbed.providers import Cluster

EXAMPLES = Path(__file__).parents[2] / "examples" / "spark"
HOME = Path(pyspark.__file__).parent
ROWS, TASKS = 600, 6
SETTINGS = {
    "spark.executor.instances": "2",
    "spark.executor.cores": "1",
    "spark.executor.memory": "512m",
    "spark.driver.memory": "512m",
    "spark.kubernetes.driver.request.cores": "100m",
    "spark.kubernetes.executor.request.cores": "100m",
    "spark.kubernetes.authenticate.driver.serviceAccountName": "spark",
    "spark.kubernetes.container.image.pullPolicy": "IfNotPresent",
    "spark.kubernetes.driver.podTemplateContainerName": "spark",
    "spark.kubernetes.executor.podTemplateContainerName": "spark",
    "spark.kubernetes.executor.deleteOnTermination": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10",
    "spark.kubernetes.submission.waitAppCompletion": "false",
    "spark.kubernetes.executor.apiPollingInterval": "5s",
    "spark.kubernetes.executor.missingPodDetectDelta": "5s",
}


@pytest.fixture
def spark_market(market: Market, cluster: Cluster, spark_image: Image) -> Market:
    """Give a namespace with the queue, and with what a driver needs."""
    cluster.load_image(spark_image.archive)
    market.apply()
    market.ready()
    market.kubectl.apply(*yaml.safe_load_all((EXAMPLES / "rbac.yaml").read_text()))
    return market


def example(name: str) -> str:
    """Return a file of the example, for the queue `orders`."""
    return (EXAMPLES / name).read_text().replace("bookings", "orders")


def templates(folder: Path) -> dict[str, str]:
    """Write the template of the example, and for the driver with the program of the test in it."""
    pod: dict[str, Any] = yaml.safe_load(example("pod.yaml"))
    (folder / "executor.yaml").write_text(yaml.safe_dump(pod))
    pod["spec"]["volumes"].append({"name": "inside", "configMap": {"name": "inside"}})
    mount = {"name": "inside", "mountPath": "/inside", "readOnly": True}
    pod["spec"]["containers"][0]["volumeMounts"].append(mount)
    (folder / "driver.yaml").write_text(yaml.safe_dump(pod))
    return {
        f"spark.kubernetes.{role}.podTemplateFile": str(folder / f"{role}.yaml")
        for role in ("driver", "executor")
    }


def submit(market: Market, cluster: Cluster, image: Image, folder: Path) -> None:
    """Start a job in cluster mode."""
    view = ("config", "view", "--minify", "--output=jsonpath={.clusters[0].cluster.server}")
    settings = SETTINGS | {
        "spark.kubernetes.namespace": market.kubectl.namespace,
        "spark.kubernetes.container.image": image.name,
        **templates(folder),
    }
    command = [
        str(HOME / "bin" / "spark-submit"),
        *(f"--master=k8s://{market.kubectl(*view)}", "--deploy-mode=cluster", "--name=orders"),
        *(f"--conf={name}={value}" for name, value in settings.items()),
        *("local:///inside/spark_app.py", str(ROWS), str(TASKS), market.director.address),
    ]
    env = {**os.environ, "SPARK_HOME": str(HOME), "KUBECONFIG": str(cluster.kubeconfig)}
    done = subprocess.run(command, env=env, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-5000:]


@contextmanager
def logs_on_failure(market: Market) -> Iterator[None]:
    """Add the pods, and the driver's last words, to whatever fails."""
    try:
        yield
    except Exception as failure:
        driver = ("logs", "--selector=spark-role=driver", "--tail=40", "--all-containers")
        failure.add_note(market.kubectl("get", "pods", "--output=wide"))
        failure.add_note(market.kubectl(*driver))
        raise


def pods(market: Market, role: str) -> dict[str, str]:
    """Return the phases of the pods of a role."""
    selector = f"--selector=spark-role={role}"
    found = json.loads(market.kubectl("get", "pods", selector, "--output=json"))["items"]
    return {pod["metadata"]["name"]: pod["status"]["phase"] for pod in found}


def arrived(market: Market) -> dict[str, list[Any]]:
    """Take all jobs out of the queue: the payloads that came under each id."""
    vhost = f"nq-{market.kubectl.namespace}"
    connection = pika.BlockingConnection(pika.URLParameters(market.broker.amqp_url(vhost)))
    channel = connection.channel()
    found: dict[str, list[Any]] = {}
    while True:
        method, properties, body = channel.basic_get(
            f"nq.{market.kubectl.namespace}.orders.main", auto_ack=True
        )
        if method is None or properties is None or body is None:
            connection.close()
            return found
        found.setdefault(str(properties.message_id), []).append(json.loads(body))


@pytest.mark.timeout(900)
def test_rows_survive_an_executor_that_is_killed_and_all_pods_finish(
    spark_market: Market, cluster: Cluster, spark_image: Image, tmp_path: Path
) -> None:
    market, director = spark_market, spark_market.director
    killed = threading.Event()

    def script(_: Attempt) -> int:
        """Hold all tasks until one executor is gone."""
        killed.wait()
        return 200

    director.script = script
    submit(market, cluster, spark_image, tmp_path)
    with logs_on_failure(market):
        wait_until(
            lambda: len({each.pod for each in director.began}) == 2,
            what="both executors are in the middle of a task",
            deadline=300,
        )
        wait_until(
            lambda: market.queue()["status"]["depth"]["ready"] > 0,
            what="rows of both are in the queue",
            deadline=60,
        )
        victim = director.began[0].pod
        market.kubectl("delete", "pod", victim, "--grace-period=0", "--force")
        killed.set()
        wait_until(
            lambda: set(pods(market, "driver").values()) <= {"Succeeded", "Failed"},
            what="the driver ends",
            deadline=300,
        )
        assert set(pods(market, "driver").values()) == {"Succeeded"}
    market.eventually(
        lambda: not {"Pending", "Running"} & set(pods(market, "executor").values()),
        "no executor is kept alive by its sidecar",
        60,
    )
    assert victim not in pods(market, "executor")
    jobs = [[each["id"] for each in payloads] for payloads in arrived(market).values()]
    assert sorted(numbers[0] for numbers in jobs) == list(range(ROWS))
    assert all(len(set(numbers)) == 1 for numbers in jobs), "an id is one row, always"
    assert sum(map(len, jobs)) > ROWS, "some were sent twice, under the same ids"


@pytest.mark.timeout(600)
def test_the_example_runs_in_client_mode_as_a_job(spark_market: Market) -> None:
    market = spark_market
    files = {name: example(name) for name in ("pod.yaml", "pipeline.py", "sales.csv")}
    market.kubectl.apply(
        workers.config_map("orders", files), *yaml.safe_load_all(example("job.yaml"))
    )
    market.kubectl("wait", "job/orders", "--for=condition=Complete", "--timeout=300s")
    assert sorted(arrived(market)) == [f"S-{number}" for number in range(1, 9)]
