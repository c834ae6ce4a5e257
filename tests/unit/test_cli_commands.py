"""`nq` with odd input, odd answers and odd apps: always a sentence, never a traceback."""

import asyncio
import io
import json
import os
import sys
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import TypeAlias

import pytest
from rich.console import Console

from namedqueue_cli.dashboard import LiveTable, Row
from namedqueue_cli.main import main
from namedqueue_cli.output import make_table
from namedqueue_cli.supervising import App

Answer: TypeAlias = tuple[int, bytes]


class Server:
    """Answers with what it is given, in turn, and keeps what it was asked."""

    def __init__(self) -> None:
        self.answers: list[Answer] = []
        self.bodies: list[bytes] = []
        asked = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                asked.bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
                status, body = asked.answers.pop(0)
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    server = Server()
    monkeypatch.setenv("NQ_URL", server.url)
    thread = Thread(target=server.http.serve_forever)
    thread.start()
    yield server
    server.http.shutdown()
    thread.join()
    server.http.server_close()


def ended(*arguments: str) -> int | str | None:
    """Run a command and return its exit code."""
    with pytest.raises(SystemExit) as end:
        main(list(arguments))
    return end.value.code


def reading(monkeypatch: pytest.MonkeyPatch, lines: Sequence[bytes]) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\n".join(lines))))


def accepted(count: int) -> Answer:
    return 202, json.dumps({"accepted": count}).encode()


@pytest.mark.parametrize("said", ["no such file [/etc/passwd]", "[red]look[/red]", "[/]"])
def test_a_table_shows_brackets_as_they_are(said: str) -> None:
    console = Console(file=io.StringIO(), width=120)
    console.print(make_table(("ID", "MESSAGE"), [("a", said)]))
    assert said in console.file.getvalue()  # type: ignore[attr-defined]  # it is a StringIO


def test_an_error_with_brackets_does_not_end_the_live_table() -> None:
    console = Console(file=io.StringIO(), width=160, force_terminal=True)
    with LiveTable(console, "") as table:
        table.show([Row("orders", 0, 0, 0, 1, last_error="no such file [/etc/passwd]")])
    assert "[/etc/passwd]" in console.file.getvalue()  # type: ignore[attr-defined]  # as above


def test_lines_go_in_batches_that_the_api_takes(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading(monkeypatch, [b'"%s"' % (b"x" * 1_000_000)] * 20)
    server.answers = [accepted(8), accepted(8), accepted(4)]
    assert ended("enqueue", "orders", "--lines") == 0
    assert [body.count(b"payload") for body in server.bodies] == [8, 8, 4]


def test_a_refused_line_is_named_by_its_place_in_the_file(
    server: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    reading(monkeypatch, [b"1", b"", b"", b"{"])
    failed = [{"index": 1, "code": "INVALID", "detail": "no JSON"}]
    server.answers = [(207, json.dumps({"accepted": 1, "failed": failed}).encode())]
    assert ended("enqueue", "orders", "--lines") == 1
    assert "line 4: no JSON" in capsys.readouterr().err


def test_lines_that_are_refused_midway_say_how_many_were_accepted(
    server: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    reading(monkeypatch, [b"1"] * 1500)
    server.answers = [accepted(1000), (503, b'{"code": "AWAY", "detail": "no broker"}')]
    assert ended("enqueue", "orders", "--lines") == 1
    assert "no broker (AWAY); 1000 accepted before line 1001" in capsys.readouterr().err


@pytest.mark.parametrize("answer", [(502, b"<html>bad gateway</html>"), (200, b"hello")])
def test_an_answer_that_is_no_json_is_no_bug_of_ours(
    server: Server, capsys: pytest.CaptureFixture[str], answer: Answer
) -> None:
    server.answers = [answer]
    assert ended("enqueue", "orders", "{}") == 1
    assert "bug" not in capsys.readouterr().err


@pytest.mark.parametrize("key", ["日本", "a\nb", "\udcff"])
def test_a_value_that_no_header_holds_is_refused_with_a_sentence(
    capsys: pytest.CaptureFixture[str], key: str
) -> None:
    assert ended("enqueue", "orders", "{}", "--key", key) == 2
    assert "Idempotency-Key takes printable ASCII only" in capsys.readouterr().err


def test_a_payload_that_is_no_text_is_sent_byte_for_byte(server: Server) -> None:
    server.answers = [(202, b'{"id": "1"}')]
    assert ended("enqueue", "orders", os.fsdecode(b"\xff\x00")) == 0
    assert server.bodies == [b"\xff\x00"]


def test_a_file_that_cannot_be_written_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert ended("dlq", "export", "orders", "/no/such/folder/letters.ndjson") == 2
    error = capsys.readouterr().err
    assert "/no/such/folder/letters.ndjson" in error
    assert "bug" not in error


async def test_an_app_may_write_a_line_of_any_length() -> None:
    said: list[str] = []
    script = "print('x' * 200_000); print('after')"
    app = App([sys.executable, "-c", script], {}, said.append)
    assert await app.run_once() == 0
    assert said[-1] == "after"


async def test_what_the_app_left_behind_is_ended_with_it() -> None:
    began = asyncio.Event()
    app = App(["sh", "-c", "sleep 60 & echo $!"], {}, lambda _: began.set())
    running = asyncio.create_task(app.run_once())
    await began.wait()
    await asyncio.sleep(0.1)  # the shell itself is gone by then
    await app.stop()
    async with asyncio.timeout(10):
        await running
