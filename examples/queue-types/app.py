"""A shop's back office with a path for each queue.

POST /fulfil, /presence, /audit    a job or a message
GET  /                             how often each path was called
"""

import json
from collections import Counter
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar


class BackOffice(BaseHTTPRequestHandler):
    """Counts its calls."""

    protocol_version = "HTTP/1.1"
    calls: ClassVar[Counter[str]] = Counter()

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.calls[self.path] += 1
        self.answer("")

    def do_GET(self) -> None:
        self.answer(json.dumps(self.calls, sort_keys=True))

    def answer(self, text: str) -> None:
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing for each request."""


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", 8080), BackOffice).serve_forever()
