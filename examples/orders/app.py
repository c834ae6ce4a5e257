"""An order service that only answers HTTP. It knows nothing of queues.

It fails the way real services do: its payment provider is overloaded now and then (503), some
cards are declined (422), and it has a bug: nobody taught it Norwegian kroner (500). Started with
`--with-kroner` the bug is fixed.

    POST /orders    {"order": "A-17", "amount": 42, "currency": "EUR", "card": "4242"}
    GET  /ledger    the orders that were charged
"""

import argparse
import json
import random
import time
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock

RATES = {"EUR": 1.0, "USD": 1.1}
OVERLOADED = 0.25
DECLINED_CARD = "4000"


class Ledger:
    """What was charged, by order."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._charged: dict[str, float] = {}

    def charge(self, order: str, euros: float) -> None:
        with self._lock:
            self._charged[order] = euros

    def orders(self) -> list[str]:
        with self._lock:
            return sorted(self._charged)


class Orders(BaseHTTPRequestHandler):
    """The handler: one POST is one order."""

    protocol_version = "HTTP/1.1"
    ledger = Ledger()

    def do_POST(self) -> None:
        order = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        time.sleep(random.uniform(0.005, 0.05))  # the work
        if order["card"] == DECLINED_CARD:
            self.answer(HTTPStatus.UNPROCESSABLE_ENTITY, code="CARD_DECLINED")
        elif order["currency"] not in RATES:
            self.answer(HTTPStatus.INTERNAL_SERVER_ERROR, code="CURRENCY_UNKNOWN")
        elif random.random() < OVERLOADED:
            self.answer(HTTPStatus.SERVICE_UNAVAILABLE, code="PAYMENT_PROVIDER_OVERLOADED")
        else:
            self.ledger.charge(order["order"], order["amount"] / RATES[order["currency"]])
            self.answer(HTTPStatus.OK)

    def do_GET(self) -> None:
        self.answer(HTTPStatus.OK, charged=self.ledger.orders())

    def answer(self, status: HTTPStatus, **document: object) -> None:
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing for each request."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("--with-kroner", action="store_true", help="the fixed version")
    options = parser.parse_args()
    if options.with_kroner:
        RATES["NOK"] = 11.5
    ThreadingHTTPServer(("127.0.0.1", options.port), Orders).serve_forever()


if __name__ == "__main__":
    main()
