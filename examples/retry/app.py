"""A relay that greylists: it takes a message at the third try, and one to nobody never.

POST /mails, POST /texts    {"to": "ada"}
GET  /                      every try so far
"""

import json
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

TAKEN_AT_RETRY = 2


class Relay(BaseHTTPRequestHandler):
    """One POST is one try."""

    protocol_version = "HTTP/1.1"
    tries: ClassVar[list[str]] = []

    def do_POST(self) -> None:
        to = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["to"]
        retries = int(self.headers["NQ-Retry-Count"])
        self.tries.append(f"{self.path} {to}: x-retry-count {retries}")
        taken = retries >= TAKEN_AT_RETRY and to != "nobody"
        self.answer(HTTPStatus.OK if taken else HTTPStatus.SERVICE_UNAVAILABLE)

    def do_GET(self) -> None:
        self.answer(HTTPStatus.OK, "".join(f"{line}\n" for line in self.tries))

    def answer(self, status: HTTPStatus, text: str = "") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(text.encode())))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing for each request."""


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", 8080), Relay).serve_forever()
