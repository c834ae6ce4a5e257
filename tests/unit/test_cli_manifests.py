"""`nq validate` and `nq topology` as people and scripts meet them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from namedqueue_cli.main import VERBS, main, nq

ROOT = Path(__file__).parents[2]
ORDERS = str(ROOT / "examples/orders/queue.yaml")
VALID = """\
apiVersion: namedqueue.io/v1alpha1
kind: NamedQueue
metadata: {name: orders, namespace: shop}
"""
DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: app}
"""
BILLION_LAUGHS = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 9)}]\n" for level in range(1, 12)
)


def run(*arguments: str, stdin: str | bytes = "") -> Result:
    return CliRunner().invoke(nq, arguments, input=stdin)


def test_standard_input_holds_several_documents_and_foreign_ones_are_skipped() -> None:
    result = run("validate", "-", stdin=f"---\n{DEPLOYMENT}---\n---\n{VALID}")
    assert result.exit_code == 0
    assert result.output.splitlines() == [
        "<stdin>:2: skipped, Deployment is not ours to check",
        "<stdin>: NamedQueue shop/orders is valid",
    ]


def test_a_list_is_checked_item_by_item_and_problems_have_their_own_line() -> None:
    listed = """\
apiVersion: v1
kind: List
items:
  - apiVersion: namedqueue.io/v1alpha1
    kind: NamedQueue
    metadata: {name: one}
  - apiVersion: namedqueue.io/v1alpha1
    kind: NamedQueue
    metadata: {name: two}
    spec:
      retry:
        maxAttempts: 1000
"""
    result = run("validate", "-", stdin=listed)
    assert result.exit_code == 1
    assert result.output.splitlines() == [
        "<stdin>: NamedQueue default/one is valid",
        "<stdin>:12: spec.retry.maxAttempts (1000) is too large; the most is 100",
    ]


def test_all_problems_of_a_manifest_are_told_at_once() -> None:
    spec = "spec: {retry: {maxAttempts: 0, jitter: 2}, type: queue}\n"
    result = run("validate", "-", stdin=VALID + spec)
    assert len(result.output.splitlines()) == 3


def test_json_is_for_programs() -> None:
    result = run("validate", "-o", "json", ORDERS)
    assert json.loads(result.output) == [
        {
            "file": ORDERS,
            "line": 2,
            "verdict": "valid",
            "sentence": "NamedQueue shop/orders is valid",
            "field": "",
        }
    ]
    result = run("validate", "-o", "json", "-", stdin=VALID + "spec: {retry: {jitter: 2}}")
    assert result.exit_code == 1
    assert [finding["field"] for finding in json.loads(result.output)] == ["spec.retry.jitter"]


def test_a_file_without_any_queue_is_not_called_valid() -> None:
    result = run("validate", "-", stdin=DEPLOYMENT)
    assert result.exit_code == 1
    assert "there is no NamedQueue or QueueRedrive in here; check the path" in result.output


def test_a_time_without_quotes_stays_text() -> None:
    consumers = "[{group: audit, from: 2026-02-26T12:00:00Z}]"
    spec = f"spec: {{type: stream, worker: {{port: 80}}, stream: {{consumers: {consumers}}}}}\n"
    assert run("validate", "-", stdin=VALID + spec).exit_code == 0


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"[" * 5000, id="deep"),
        pytest.param(b"{" * 300 + b"}" * 300, id="deep mappings"),
        pytest.param(b"a: \x00", id="NUL"),
        pytest.param(b"- a\n- b\n", id="list"),
        pytest.param(b"just text", id="scalar"),
        pytest.param(b"? {a: b}\n: c\n", id="mapping as a key"),
        pytest.param(b"a: !!python/object:os.system x", id="tag"),
        pytest.param(b"a: *unknown", id="alias"),
        pytest.param(b"a: &a [*a]", id="endless"),
        pytest.param(BILLION_LAUGHS.encode(), id="billion laughs"),
        pytest.param(b"apiVersion: [1]\nkind: {a: 1}\n", id="shapes"),
        pytest.param(b"kind: List\nitems: {a: 1}\napiVersion: v1\n", id="list of no items"),
        pytest.param(VALID.encode() + b"spec: {retry: [1], worker: 7}", id="wrong shapes"),
        pytest.param(b"\xef\xbb\xbfkind: NamedQueue\n", id="byte order mark"),
    ],
)
def test_nothing_in_a_file_makes_a_traceback(content: bytes) -> None:
    result = run("validate", "-", stdin=content)
    assert result.exit_code == 1
    assert isinstance(result.exception, SystemExit)
    assert result.output.startswith(("<stdin>", "-:"))


def test_what_cannot_be_read_is_exit_code_2(tmp_path: Path) -> None:
    latin = tmp_path / "latin.yaml"
    latin.write_bytes(b"name: caf\xe9")
    empty = tmp_path / "empty"
    empty.mkdir()
    for path, words in (
        (tmp_path / "missing.yaml", "cannot be read: No such file or directory"),
        (latin, "is not UTF-8 text (byte 9)"),
        (empty, "the folder holds no .yaml, .yml, .json file"),
    ):
        for verb in ("validate", "topology"):
            result = run(verb, str(path))
            assert result.exit_code == 2
            assert f"{path}: {words}" in result.output


def test_a_folder_is_read_in_order_and_doubles_are_found_across_files(tmp_path: Path) -> None:
    for name in ("b.yaml", "a.yml", "notes.txt"):
        (tmp_path / name).write_text(VALID)
    result = run("validate", str(tmp_path))
    assert result.exit_code == 1
    assert result.output == (
        f"{tmp_path}/a.yml: NamedQueue shop/orders is valid\n"
        f"{tmp_path}/b.yaml:1: NamedQueue shop/orders is already defined at {tmp_path}/a.yml:1; "
        "remove one of them\n"
    )


def test_the_topology_table_groups_by_stage_and_says_what_for() -> None:
    output = run("topology", ORDERS).output
    stages = [line for line in output.splitlines() if line in {"topics", "main", "delay", "users"}]
    assert stages == ["topics", "main", "delay", "users"]
    assert "holds a job for 250ms, then sends it on to nq.shop.orders" in output
    assert "[0-9]+" in output
    assert "\x1b[" not in output


def test_the_topology_is_json_and_dot_as_well() -> None:
    (found,) = json.loads(run("topology", ORDERS, "-o", "json").output)
    assert (found["namespace"], found["name"]) == ("shop", "orders")
    assert found["vhost"] == {"name": "nq-shop", "managed": True}
    assert {queue["name"] for queue in found["queues"]} >= {"nq.shop.orders.main"}
    dot = run("topology", ORDERS, "-o", "dot").output
    assert dot.startswith("digraph topology {")
    assert '"exchange nq.shop.orders" -> "queue nq.shop.orders.main"' in dot


def test_the_broker_can_be_chosen() -> None:
    lazy = str(ROOT / "examples/lazy/queue.yaml")
    assert "queue-mode=lazy" in run("topology", lazy, "--broker-version", "3.10.8").output
    newest = run("topology", lazy).output
    assert "queue-mode" not in newest
    assert "note: spec.durable.mode lazy is built in" in newest
    shared = run("topology", lazy, "--tenancy", "shared", "--vhost", "team").output
    assert "vhost team" in shared
    assert "nq.reporting.nightly-reports.consumer" not in shared
    refused = run("topology", lazy, "--broker-version", "3.8")
    assert refused.exit_code == 2
    assert "RabbitMQ 3.8 is too old; the oldest supported is 3.10" in refused.output


def test_an_invalid_manifest_has_no_topology() -> None:
    result = run("topology", "-", stdin=VALID + "spec: {type: queue}")
    assert result.exit_code == 1
    assert "<stdin>:4: spec.type (queue) must be" in result.stderr
    assert result.stdout == ""


def test_help_names_every_verb_and_the_exit_codes() -> None:
    text = run("--help").output
    assert all(verb in text for verb in VERBS)
    for verb in ("validate", "topology"):
        assert "Exit codes: 0" in run(verb, "--help").output
        assert run(verb, "--help").exit_code == 0


def test_help_loads_no_verb() -> None:
    heavy = "[name for name in ('pydantic', 'yaml', 'rich', 'httpx') if name in sys.modules]"
    code = (
        "import sys; from click.testing import CliRunner; from namedqueue_cli.main import nq; "
        f"CliRunner().invoke(nq, ['--help']); print({heavy})"
    )
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert found.stdout.strip() == "[]"


@pytest.mark.parametrize("name", ["nq", "kubectl-nq"])
def test_the_installed_command_works_in_a_process_of_its_own(name: str) -> None:
    command = str(Path(sys.executable).with_name(name))
    done = subprocess.run(
        [command, "validate", "-"],
        input=VALID + "spec: {retry: {jitter: 2}}\n",
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "COLUMNS": "80"},
    )
    assert done.returncode == 1
    assert done.stdout == "<stdin>:4: spec.retry.jitter (2) is too large; the most is 1\n"
    assert done.stderr == ""


def test_a_bug_is_one_line_and_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("boom")

    monkeypatch.delenv("NQ_DEBUG", raising=False)
    monkeypatch.setattr(nq, "main", fail)
    with pytest.raises(SystemExit) as ended:
        main(["validate"])
    assert ended.value.code == 70
    assert capsys.readouterr().err.startswith("nq: this is a bug in nq: RuntimeError: boom")
