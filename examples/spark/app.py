"""The app behind the pipeline's queue: it books a sale and leaves a receipt for it.

A sale without an amount in euros is refused for good (422, NO_RATE). The receipt goes to the
topic `sale/booked`, and the stream `receipts` keeps it.
"""

import json
import os
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.request import Request, urlopen

API = os.environ.get("NQ_URL", "http://127.0.0.1:3550")


class Bookings(BaseHTTPRequestHandler):
    """The handler: one POST is one sale."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        sale = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if sale["euros"] is None:
            self.answer(HTTPStatus.UNPROCESSABLE_ENTITY, code="NO_RATE")
            return
        receipt = json.dumps({"sale": sale["sale"], "euros": sale["euros"]}).encode()
        json_type = {"Content-Type": "application/json"}
        urlopen(Request(f"{API}/v1/topics/sale/booked/messages", receipt, json_type)).close()
        self.answer(HTTPStatus.OK)

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
    ThreadingHTTPServer(("127.0.0.1", 8080), Bookings).serve_forever()
