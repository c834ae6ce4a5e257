"""An order service that only answers HTTP. It knows nothing of queues.

It fails the way real services do: its payment provider is overloaded now and then (503), some
cards are declined (422), and it has a bug: nobody taught it Norwegian kroner (500). Started with
`--with-kroner` the bug is fixed.

    POST /orders                {"order": "A-17", "amount": 42, "currency": "EUR", "card": "4242"}
    POST /invoices, /parcels    {"order": "A-17"}
    GET  /ledger                what became of the orders
"""

import argparse
import json
import random
import signal
import sys
import time
from collections import Counter
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock
from typing import Any

CURRENCIES = {"EUR", "USD"}
OVERLOADED = 0.25
OVERLOADED_AT_MOST = 2  # times for one order
DECLINED_CARD = "4000"


class Ledger:
    """Which orders were charged, invoiced and packed, each once, however often it comes."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._orders: dict[str, set[str]] = {"charged": set(), "invoices": set(), "parcels": set()}

    def enter(self, column: str, order: str) -> None:
        with self._lock:
            self._orders[column].add(order)

    def columns(self) -> dict[str, list[str]]:
        with self._lock:
            return {column: sorted(orders) for column, orders in self._orders.items()}


class PaymentProvider:
    """It is overloaded now and then, but never for long."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._refused = Counter[str]()

    def refuses(self, order: str) -> bool:
        with self._lock:
            refused = self._refused[order] < OVERLOADED_AT_MOST and random.random() < OVERLOADED
            self._refused[order] += refused
            return refused


class Orders(BaseHTTPRequestHandler):
    """The handler: one POST is one order."""

    protocol_version = "HTTP/1.1"
    ledger = Ledger()
    provider = PaymentProvider()

    def do_POST(self) -> None:
        order = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        time.sleep(random.uniform(0.005, 0.05))  # the work
        if self.path == "/orders":
            self.charge(order)
        else:
            self.ledger.enter(self.path.strip("/"), order["order"])
            self.answer(HTTPStatus.OK)

    def charge(self, order: dict[str, Any]) -> None:
        if order["card"] == DECLINED_CARD:
            self.answer(HTTPStatus.UNPROCESSABLE_ENTITY, code="CARD_DECLINED")
        elif order["currency"] not in CURRENCIES:
            self.answer(HTTPStatus.INTERNAL_SERVER_ERROR, code="CURRENCY_UNKNOWN")
        elif self.provider.refuses(order["order"]):
            self.answer(HTTPStatus.SERVICE_UNAVAILABLE, code="PAYMENT_PROVIDER_OVERLOADED")
        else:
            self.ledger.enter("charged", order["order"])
            self.answer(HTTPStatus.OK)

    def do_GET(self) -> None:
        self.answer(HTTPStatus.OK, **self.ledger.columns())

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
        CURRENCIES.add("NOK")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())  # in a container nobody else sees to it
    ThreadingHTTPServer(("127.0.0.1", options.port), Orders).serve_forever()


if __name__ == "__main__":
    main()
