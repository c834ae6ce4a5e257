"""What a person reads who starts a process without what it needs."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


def start(module: str, *options: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", module, *options],
        env={**os.environ, **env},
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )


def account(folder: Path) -> Path:
    for key, value in {"host": "127.0.0.1", "username": "nq", "password": "hunter2"}.items():
        (folder / key).write_text(value)
    (folder / "management_uri").write_text("http://127.0.0.1:1")
    return folder


@pytest.mark.parametrize("kubeconfig", ["missing", "empty"])
def test_an_operator_without_a_cluster_says_how_to_name_one(
    tmp_path: Path, kubeconfig: str
) -> None:
    file = tmp_path / "kubeconfig"
    if kubeconfig == "empty":
        file.write_text("")
    said = start("namedqueue_operator", f"--broker={account(tmp_path)}", KUBECONFIG=str(file))
    assert said.returncode == 2
    assert "\nnamedqueue_operator: no cluster:" in f"\n{said.stderr}"
    assert "set KUBECONFIG" in said.stderr
    assert "Traceback" not in said.stderr


def test_a_sidecar_whose_queues_are_not_mounted_does_not_take_them_for_none(
    tmp_path: Path,
) -> None:
    options = (f"--broker={account(tmp_path)}", "--queues=/nowhere", "--namespace=shop")
    said = start("namedqueue_sidecar", *options)
    assert said.returncode == 2
    assert "/nowhere is not a folder" in said.stderr
