"""The sidecar follows a mounted ConfigMap through every state that a swap of it has."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from broker.port.play import eventually
from namedqueue_sidecar import manifests
from namedqueue_sidecar.manifests import Mounted


class Mount:
    """A folder as the kubelet mounts a ConfigMap: names that lead through one swapped link."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._versions = 0

    def write(self, files: dict[str, str]) -> None:
        self._versions += 1
        version = self.folder / f"..{self._versions}"
        version.mkdir()
        for name, text in files.items():
            (version / name).write_text(text)
        link = self.folder / "..data_tmp"
        link.symlink_to(version.name)
        link.rename(self.folder / "..data")
        for name in files:
            if not (self.folder / name).is_symlink():
                (self.folder / name).symlink_to(f"..data/{name}")


class Followed:
    """What was applied, in order."""

    def __init__(self) -> None:
        self.applied: list[dict[str, int]] = []
        self.shares: dict[str, float] = {}

    async def apply(self, mounted: Mounted) -> None:
        self.applied.append({q.metadata.name: q.spec.retry.max_attempts for q in mounted.queues})
        self.shares = {key.name: share for key, share in mounted.shares.items()}

    async def shares_come_to(self, wanted: dict[str, float]) -> None:
        await eventually(lambda: self.shares == wanted, f"the shares are {wanted}")

    async def comes_to(self, wanted: dict[str, int]) -> None:
        await eventually(
            lambda: bool(self.applied) and self.applied[-1] == wanted, f"{wanted} is applied"
        )


@pytest.fixture
def mount(tmp_path: Path) -> Mount:
    return Mount(tmp_path)


@pytest.fixture
async def followed(mount: Mount, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Followed]:
    monkeypatch.setattr(manifests, "_POLL_SECONDS", 0.01)
    followed = Followed()
    watching = asyncio.create_task(manifests.watch(mount.folder, followed.apply))
    yield followed
    assert not watching.done()
    watching.cancel()
    await asyncio.wait([watching])


def manifest(name: str, attempts: int) -> str:
    return json.dumps(
        {
            "apiVersion": "namedqueue.io/v1alpha1",
            "kind": "NamedQueue",
            "metadata": {"name": name, "namespace": "shop"},
            "spec": {"retry": {"maxAttempts": attempts}},
        }
    )


async def test_what_is_there_at_the_start_is_applied(mount: Mount, followed: Followed) -> None:
    mount.write({"orders.json": manifest("orders", 5)})
    await followed.comes_to({"orders": 5})


async def test_a_swapped_mount_is_applied_as_a_whole(mount: Mount, followed: Followed) -> None:
    mount.write({"orders.json": manifest("orders", 5), "bills.json": manifest("bills", 5)})
    await followed.comes_to({"orders": 5, "bills": 5})
    mount.write({"orders.json": manifest("orders", 3), "bills.json": manifest("bills", 4)})
    await followed.comes_to({"orders": 3, "bills": 4})
    assert {"orders": 3, "bills": 5} not in followed.applied


async def test_a_name_that_leads_nowhere_for_a_moment_ends_nothing(
    mount: Mount, followed: Followed
) -> None:
    mount.write({"orders.json": manifest("orders", 5), "bills.json": manifest("bills", 5)})
    await followed.comes_to({"orders": 5, "bills": 5})
    mount.write({"orders.json": manifest("orders", 3)})
    await asyncio.sleep(0.1)  # it looks at the dangling name many times
    assert followed.applied[-1] == {"orders": 5, "bills": 5}
    (mount.folder / "bills.json").unlink()
    await followed.comes_to({"orders": 3})


async def test_a_manifest_with_an_error_keeps_the_last_good_state_and_is_logged_once(
    mount: Mount, followed: Followed, caplog: pytest.LogCaptureFixture
) -> None:
    mount.write({"orders.json": manifest("orders", 5)})
    await followed.comes_to({"orders": 5})
    with caplog.at_level(logging.ERROR):
        mount.write({"orders.json": manifest("orders", 0)})
        await eventually(lambda: bool(caplog.records), "the error is logged")
        await asyncio.sleep(0.1)  # many more looks at the same error
    assert len(caplog.records) == 1
    assert "orders.json" in caplog.text
    assert followed.applied[-1] == {"orders": 5}
    mount.write({"orders.json": manifest("orders", 7)})
    await followed.comes_to({"orders": 7})


async def test_the_share_follows_the_number_of_replicas_beside_the_manifest(
    mount: Mount, followed: Followed, caplog: pytest.LogCaptureFixture
) -> None:
    orders = {"orders.json": manifest("orders", 5)}
    mount.write(orders)
    await followed.shares_come_to({"orders": 1.0})
    for replicas, share in (("4", 0.25), ("1\n", 1.0), ("0", 1.0), ("10", 0.1)):
        mount.write(orders | {"replicas": replicas})
        await followed.shares_come_to({"orders": share})
    with caplog.at_level(logging.ERROR):
        mount.write(orders | {"replicas": "many"})
        await eventually(lambda: "'many', which is no number" in caplog.text, "it is logged")
    assert followed.shares == {"orders": 0.1}


async def test_each_folder_has_a_number_of_replicas_of_its_own(tmp_path: Path) -> None:
    for name, replicas in (("orders", "2"), ("bills", "5")):
        folder = tmp_path / "consume" / name
        folder.mkdir(parents=True)
        (folder / f"{name}.json").write_text(manifest(name, 5))
        (folder / "replicas").write_text(replicas)
    shares = manifests.load(tmp_path, "*/*/*.json").shares
    assert {key.name: share for key, share in shares.items()} == {"orders": 0.5, "bills": 0.2}
