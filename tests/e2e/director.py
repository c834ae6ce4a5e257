"""What the apps in a test's pods do is decided here, in the test, one job at a time.

Each app asks before it listens and before it answers a job. So a test holds jobs in flight for as
long as it wants, and its record of them outlives every pod.
"""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple, TypeAlias

from testbed.processes import wait_until


class Attempt(NamedTuple):
    """A job as it came to an app."""

    pod: str
    id: str
    attempt: int
    most: int
    payload: Any


Script: TypeAlias = Callable[[Attempt], int]
_OK = 200
_SECONDS_EACH = 0.05
"""Every attempt goes through this process, on a machine that runs the whole cluster besides."""


class Director:
    """Tells apps what to do, and remembers what they were given."""

    def __init__(self) -> None:
        self.address = ""
        self.began: list[Attempt] = []
        self.ended: list[Attempt] = []
        self.script: Script = lambda _: _OK
        self.may_listen = threading.Event()
        self.may_listen.set()

    def start(self) -> int:
        self.may_listen.wait()
        return _OK

    def answer(self, attempt: Attempt) -> int:
        self.began.append(attempt)
        status = self.script(attempt)
        self.ended.append(attempt)
        return status

    def forget(self) -> None:
        """Begin with empty books."""
        self.began.clear()
        self.ended.clear()

    def wait_for_begun(self, attempts: int) -> None:
        """Wait until the apps were given so many attempts."""
        _wait(lambda: len(self.began) >= attempts, attempts, "began")

    def wait_for_ended(self, attempts: int) -> None:
        """Wait until so many attempts were answered."""
        _wait(lambda: len(self.ended) >= attempts, attempts, "ended")


def _wait(condition: Callable[[], bool], attempts: int, what: str) -> None:
    deadline = 120 + attempts * _SECONDS_EACH
    wait_until(condition, what=f"{attempts} attempts {what}", deadline=deadline)


class _Handler(BaseHTTPRequestHandler):
    server: "_Server"

    def do_POST(self) -> None:
        document = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        director = self.server.director
        starts = self.path == "/start"
        told = director.start() if starts else director.answer(Attempt(**document))
        body = str(told).encode()
        self.send_response(_OK)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
        """Say nothing for each request."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, host: str, director: Director) -> None:
        super().__init__((host, 0), _Handler)
        self.director = director

    def handle_error(self, _request: Any, _client: Any) -> None:
        """Expect it: pods are killed while they wait for their answer."""


@contextmanager
def directing(host: str) -> Iterator[Director]:
    """Listen on an address that pods reach; whatever is still held goes on at the end."""
    director = Director()
    with _Server(host, director) as server:
        director.address = f"{host}:{server.server_port}"
        serving = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        serving.start()
        try:
            yield director
        finally:
            director.may_listen.set()
            server.shutdown()
            serving.join()
