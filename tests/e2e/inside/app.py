"""The app of a test's pod: it asks the test what to answer to each job, and answers that.

It listens as soon as the test lets it, and like any good app it ends when it is told to.
"""

import http.client
import json
import os
import signal
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

POD = os.environ["HOSTNAME"]
DIRECTOR = os.environ["DIRECTOR"]


def ask(path: str, document: object) -> int:
    """Return the number that the test answers with, however long it takes."""
    connection = http.client.HTTPConnection(DIRECTOR)
    try:
        connection.request("POST", path, json.dumps(document))
        return int(connection.getresponse().read())
    finally:
        connection.close()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        payload = self.rfile.read(int(self.headers["Content-Length"]))
        job = {
            "pod": POD,
            "id": self.headers["ce-id"],
            "attempt": int(self.headers["NQ-Attempt"]),
            "most": int(self.headers["NQ-Max-Attempts"]),
            "payload": json.loads(payload),
        }
        self.send_response(HTTPStatus(ask("/job", job)))
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
        """Say nothing for each request."""


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    ask("/start", POD)
    ThreadingHTTPServer(("127.0.0.1", 8080), Handler).serve_forever()


if __name__ == "__main__":
    main()
