"""A batch that is refused for now is sent again, for as long as the option patience says."""

import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from pyspark_namedqueue.entries import Entry
from pyspark_namedqueue.options import Writing
from pyspark_namedqueue.sending import Impatient, Sender

BATCH = [Entry("1", b'{"id":"1","payload":1}')]


class Api(HTTPServer):
    """Refuses as often as it is told, and then accepts."""

    refusals = 0


class Handler(BaseHTTPRequestHandler):
    server: Api

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.refusals -= 1
        body = b'{"accepted":1}'
        self.send_response(202 if self.server.refusals < 0 else 503)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def api() -> Iterator[Api]:
    api = Api(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=api.serve_forever)
    thread.start()
    yield api
    api.shutdown()
    thread.join()
    api.server_close()


def options(api: Api, patience: str) -> Writing:
    endpoint = f"http://127.0.0.1:{api.server_address[1]}"
    return Writing.read({"queue": "orders", "endpoint": endpoint, "patience": patience}, ("n",))


def test_rows_that_took_long_to_come_do_not_use_up_the_patience(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.refusals = 1
    with Sender(options(api, "60s")) as sender:
        an_hour_later = time.monotonic() + 3600
        monkeypatch.setattr(time, "monotonic", lambda: an_hour_later)
        sender.send(BATCH)
        assert sender.finish().accepted == 1


def test_a_batch_that_is_refused_for_longer_than_the_patience_is_given_up(api: Api) -> None:
    api.refusals = 1_000_000
    with Sender(options(api, "300ms")) as sender:
        sender.send(BATCH)
        with pytest.raises(Impatient, match="took nothing"):
            sender.finish()
