"""A day in the life of a queue, told in half a minute. `make demo` runs it under `nq run`.

A shop sends orders. Some are retried, some are dead-lettered. The person on call groups the dead
letters by reason, deploys a fix and sends them back. At the end every order is accounted for.
"""

import json
import os
import random
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from pathlib import Path
from typing import Any

QUEUE = "orders"
ORDERS = 60
APP = Path(__file__).with_name("app.py")
APP_PORT = 8080


def main() -> int:
    """Play the whole story; 0 if every order ended where it should."""
    tell("starting the order service: a plain HTTP handler with a bug in it")
    app = start_app()
    try:
        orders = [make_order(number) for number in range(1, ORDERS + 1)]
        tell(f"the shop sends {ORDERS} orders")
        send(orders)
        wait_until_settled("the queue works them off and retries what fails for now")
        tell("what is left are dead letters, by reason:")
        for group in api("GET", "dead-letters/groups")["items"]:
            tell(f"  {group['count']:>3} x {group['reason']}  ({group['message']})")
        show_a_story("CURRENCY_UNKNOWN")
        charged = ledger()
        app.terminate()
        app.wait()
        tell("deploying a version that knows kroner; no job is tried while the app is away")
        app = start_app("--with-kroner")
        answer = api("POST", "redrive", {"reason": "CURRENCY_UNKNOWN"})
        tell(f"redrive: {json.dumps(answer)}")
        wait_until_settled("the redriven orders go through")
        return summary(orders, charged | ledger())
    finally:
        app.terminate()
        app.wait()


def make_order(number: int) -> dict[str, Any]:
    currency = "NOK" if number % 6 == 0 else random.choice(["EUR", "USD"])
    card = "4000" if number % 15 == 1 else "4242"
    return {"order": f"A-{number}", "amount": 10 + number, "currency": currency, "card": card}


def send(orders: list[dict[str, Any]]) -> None:
    for order in orders:
        api("POST", "messages", order)
        time.sleep(0.05)


def wait_until_settled(what: str) -> None:
    tell(what)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        depth = api("GET", "")["depth"]
        if depth["ready"] + depth["inFlight"] + depth["waiting"] == 0:
            return
        time.sleep(0.2)
    sys.exit("the queue did not settle within a minute")


def show_a_story(reason: str) -> None:
    letters = api("GET", f"dead-letters?reason={reason}&limit=1")["items"]
    for letter in letters:
        tell(f"the story of {letter['payloadSnapshot']['order']}:")
        for attempt in letter["attemptHistory"]:
            at = attempt["at"][11:23]
            tell(f"  attempt {attempt['attempt']} at {at}: {attempt['errorCode']}")


def summary(orders: list[dict[str, Any]], charged: set[str]) -> int:
    left = Counter(
        letter["terminalReasonCode"] for letter in api("GET", "dead-letters?limit=1000")["items"]
    )
    tell(f"{len(orders)} orders sent, {len(charged)} charged, {left.total()} left for a person")
    for reason, count in left.items():
        tell(f"  {count:>3} x {reason}")
    lost = len(orders) - len(charged) - left.total()
    tell("every order is accounted for" if lost == 0 else f"{lost} orders are missing")
    return 0 if lost == 0 else 1


def start_app(*options: str) -> subprocess.Popen[bytes]:
    app = subprocess.Popen([sys.executable, APP, "--port", str(APP_PORT), *options])
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            ledger()
        except OSError:
            time.sleep(0.05)
        else:
            return app
    sys.exit("the order service did not start")


def ledger() -> set[str]:
    with urllib.request.urlopen(f"http://127.0.0.1:{APP_PORT}/ledger") as answer:
        return set(json.load(answer)["charged"])


def api(method: str, path: str, body: object = None) -> Any:
    url = f"{os.environ['NQ_URL']}/v1/queues/{QUEUE}/{path}".rstrip("/")
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(url, data, headers, method=method)
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


def tell(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
