"""The gateway's worker. One courier's system times out until its events are redriven.

POST /events    an event as in events.ndjson
GET  /          the events that were processed
"""

import json
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

STATUSES = {"picked_up", "out_for_delivery", "delivered"}


class Worker(BaseHTTPRequestHandler):
    """One POST is one event."""

    protocol_version = "HTTP/1.1"
    processed: ClassVar[list[str]] = []

    def do_POST(self) -> None:
        event = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if event["payload"].get("status") not in STATUSES:
            self.answer(HTTPStatus.INTERNAL_SERVER_ERROR, code="MALFORMED_PAYLOAD")
        elif event["source"] == "courier-slow" and self.headers["NQ-Redrives"] == "0":
            self.answer(HTTPStatus.GATEWAY_TIMEOUT, code="ETIMEDOUT")
        else:
            self.processed.append(event["eventId"])
            self.answer(HTTPStatus.OK)

    def do_GET(self) -> None:
        self.answer(HTTPStatus.OK, processed=self.processed)

    def answer(self, status: HTTPStatus, **document: object) -> None:
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing for each request."""


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", 8080), Worker).serve_forever()
