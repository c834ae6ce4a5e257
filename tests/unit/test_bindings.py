"""A pod's bindings: a folder for each queue and role, and an account for each."""

import asyncio
import http.client
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from fixtures.builtin import opened
from namedqueue.api.namedqueue import NamedQueue
from namedqueue.envelope import Job
from namedqueue_sidecar.bindings import Bindings
from namedqueue_sidecar.brokers.builtin import BuiltinBroker
from namedqueue_sidecar.brokers.port import Broker, Main, Publication, QueueKey, Topic, Verdict
from namedqueue_sidecar.brokers.several import SeveralBrokers
from namedqueue_sidecar.intake.problems import Problem
from namedqueue_sidecar.intake.sending import Sending
from testbed.ports import free_ports
from testbed.processes import wait_until

_KEYS = {"host": "rabbit", "port": "5672", "vhost": "nq-shop", "username": "u", "password": "p"}
_ORDERS, _PAYMENTS = QueueKey("shop", "orders"), QueueKey("shop", "payments")


def _bind(root: Path, role: str, queue: str, **keys: str) -> Path:
    folder = root / role / queue
    folder.mkdir(parents=True, exist_ok=True)
    for key, value in {**_KEYS, **keys}.items():
        (folder / key).write_text(value)
    return folder


def test_folders_say_what_is_worked_off_and_what_only_sent_to(tmp_path: Path) -> None:
    for role, queue in (("consume", "orders"), ("produce", "orders"), ("produce", "payments")):
        _bind(tmp_path, role, queue)
    bindings = Bindings.find(tmp_path, "shop")
    assert set(bindings.consumed) == {_ORDERS}
    assert bindings.only_produced == {_PAYMENTS}


def test_what_is_missing_in_a_mount_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="holds neither consume/<queue> nor produce/<queue>"):
        Bindings.find(tmp_path, "shop")
    folder = _bind(tmp_path, "consume", "orders")
    (folder / "vhost").unlink()
    with pytest.raises(ValueError, match="consume/orders holds no vhost"):
        Bindings.find(tmp_path, "shop")


async def test_a_new_password_is_no_move_and_a_new_place_is_one(tmp_path: Path) -> None:
    folder = _bind(tmp_path, "consume", "orders")
    moved = asyncio.create_task(Bindings.find(tmp_path, "shop").moved())
    (folder / "password").write_text("another")
    (folder / "host").unlink()  # as a mount is for a moment while it is swapped
    done, _ = await asyncio.wait({moved}, timeout=1.5)
    assert not done
    (folder / "host").write_text("other-rabbit")
    await asyncio.wait_for(moved, 30)


@pytest.mark.parametrize("comes", [True, False])
async def test_a_store_that_comes_or_goes_is_a_move_and_its_new_password_is_none(
    tmp_path: Path, *, comes: bool
) -> None:
    _bind(tmp_path, "consume", "audit")
    folder = _bind(tmp_path, "consume", "orders") / "store"
    password = folder / "password"
    if not comes:
        folder.mkdir()
        password.write_text("one")
    bindings = Bindings.find(tmp_path, "shop")
    assert bindings.store == (None if comes else folder)
    moved = asyncio.create_task(bindings.moved())
    if not comes:
        password.write_text("another")
    done, _ = await asyncio.wait({moved}, timeout=1.5)
    assert not done
    if comes:
        folder.mkdir()
    else:
        password.unlink()
        folder.rmdir()
    await asyncio.wait_for(moved, 30)


def _queue(key: QueueKey) -> NamedQueue:
    return NamedQueue.model_validate({"metadata": {"name": key.name, "namespace": key.namespace}})


def _job(number: int) -> Job:
    return Job(f"job-{number}", "orders", b"{}", 0, 0, topic="a/b")


async def _published(broker: Broker, batch: Sequence[Publication]) -> list[Verdict]:
    settled: asyncio.Future[list[Verdict]] = asyncio.get_running_loop().create_future()
    broker.publish(batch, lambda verdicts: settled.set_result(list(verdicts)))
    return await asyncio.wait_for(settled, 30)


async def test_a_batch_goes_its_ways_and_is_settled_as_one_in_order() -> None:
    async with opened() as one, opened() as other:
        several = SeveralBrokers({_ORDERS: one, _PAYMENTS: other}, None)
        for key in (_ORDERS, _PAYMENTS):
            await several.declare(_queue(key))
        unknown = QueueKey("shop", "unknown")
        batch: list[Publication] = [
            Main(_PAYMENTS, _job(1)),
            Main(unknown, _job(2)),
            Main(_ORDERS, _job(3)),
            Topic("shop", _job(4)),
            Main(_PAYMENTS, _job(5)),
        ]
        good, bad = Verdict.CONFIRMED, Verdict.UNROUTABLE
        assert await _published(several, batch) == [good, bad, good, bad, good]
        depths = [await several.depth(key) for key in (_ORDERS, _PAYMENTS, unknown)]
        assert [depth and depth.ready for depth in depths] == [1, 2, None]


async def test_a_broker_that_is_away_keeps_no_job_from_another() -> None:
    async with opened() as there:
        several = SeveralBrokers({_ORDERS: there, _PAYMENTS: BuiltinBroker()}, there)
        await several.declare(_queue(_ORDERS))
        sending = Sending(several)
        assert await sending.send([Main(_ORDERS, _job(1))]) == [Verdict.CONFIRMED]
        with pytest.raises(Problem, match="not open"):
            await sending.send([Main(_PAYMENTS, _job(2))])
        assert several.unavailable is not None


async def test_topics_go_by_the_account_that_may_send() -> None:
    async with opened() as one, opened() as other:
        several = SeveralBrokers({_ORDERS: one, _PAYMENTS: other}, other)
        subscriber = {"subscriptions": [{"topic": "a/b"}]}
        queue = {"metadata": {"name": "payments", "namespace": "shop"}, "spec": subscriber}
        await several.declare(NamedQueue.model_validate(queue))
        assert await _published(several, [Topic("shop", _job(1))]) == [Verdict.CONFIRMED]


def test_a_sidecar_serves_its_bindings_and_ends_in_good_order_when_a_queue_moves(
    tmp_path: Path,
) -> None:
    """The broker is away throughout: what is served and the way out do not depend on it."""
    away, port, observers = free_ports(3)
    place = {"host": "127.0.0.1", "port": str(away)}
    for role, queue in (("consume", "orders"), ("produce", "payments")):
        document = {
            "metadata": {"name": queue, "namespace": "shop"},
            "spec": {"worker": {"port": 1}},
        }
        kinds = {"apiVersion": "namedqueue.io/v1alpha1", "kind": "NamedQueue"}
        manifest = json.dumps(kinds | document)
        _bind(tmp_path, role, queue, **place, **{f"{queue}.json": manifest})
    command = [sys.executable, "-m", "namedqueue_sidecar", f"--bindings={tmp_path}"]
    command += ["--namespace=shop", "--grace=3", f"--port={port}", "--observe-host=127.0.0.1"]
    with subprocess.Popen([*command, f"--observe-port={observers}"]) as process:
        try:
            wait_until(lambda: _missing(observers) is not None, what="it answers", deadline=60)
            missing = _missing(observers) or []
            assert "the app of shop/orders does not answer yet" in missing
            assert not [each for each in missing if "payments" in each], "it is only sent to"
            (tmp_path / "produce/payments/vhost").write_text("elsewhere")
            assert process.wait(timeout=60) == 0
        finally:
            process.kill()


def _missing(port: int) -> list[str] | None:
    """Return what a sidecar lacks to be ready; None while nobody answers."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("GET", "/healthz/ready")
        return list(json.loads(connection.getresponse().read())["missing"])
    except OSError:
        return None
    finally:
        connection.close()
