"""Batches to the API from one task: several in flight, each on a connection that stays open.

A batch is done when every entry of it is confirmed or refused for good. While the queue is full or
the broker is away the batch is sent again, with the same ids, until nothing of the whole task got
through for as long as `patience` says.
"""

import random
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from http.client import HTTPConnection, HTTPException
from typing import Final, NamedTuple, Self

from pyspark_namedqueue.answers import Reading, Rejected, read
from pyspark_namedqueue.api import connect
from pyspark_namedqueue.entries import Entry
from pyspark_namedqueue.options import Writing

_SECONDS: Final = 60.0
_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 5.0
_HEADERS: Final = {"Content-Type": "application/x-ndjson"}


class Tally(NamedTuple):
    """What became of the entries that were sent."""

    accepted: int
    rejected: tuple[Rejected, ...]


class Impatient(Exception):  # noqa: N818  # it reads as what it is
    """Nothing got through for too long."""


class Sender:
    """Sends one task's batches."""

    def __init__(self, options: Writing) -> None:
        self._options = options
        self._pool = ThreadPoolExecutor(options.in_flight, thread_name_prefix="namedqueue")
        self._connections = threading.local()
        self._flying: set[Future[Tally]] = set()
        self._accepted = 0
        self._rejected: list[Rejected] = []
        self._progress = time.monotonic()
        self._over = threading.Event()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def send(self, batch: Sequence[Entry]) -> None:
        """Put a batch on its way; wait while as many as allowed are flying, raise what failed."""
        while len(self._flying) >= self._options.in_flight:
            self._land(wait(self._flying, return_when=FIRST_COMPLETED).done)
        self._flying.add(self._pool.submit(self._deliver, batch))

    def finish(self) -> Tally:
        """Wait until every batch has landed."""
        self._land(wait(self._flying).done)
        return Tally(self._accepted, tuple(self._rejected))

    def _land(self, landed: set[Future[Tally]]) -> None:
        for each in landed:
            self._flying.discard(each)
            tally = each.result()
            self._accepted += tally.accepted
            self._rejected += tally.rejected

    def _deliver(self, batch: Sequence[Entry]) -> Tally:
        """Send a batch until all of it is settled; runs in a thread of the pool."""
        accepted, rejected, pause = 0, list[Rejected](), _FIRST_PAUSE
        began = time.monotonic()
        while batch:
            reading = self._try(batch)
            accepted += reading.accepted
            rejected += reading.rejected
            if reading.accepted:
                self._progress, pause = time.monotonic(), _FIRST_PAUSE
            batch = reading.again
            if batch:
                seconds = max(reading.pause, pause * random.uniform(0.5, 1))  # noqa: S311  # no secret
                self._pause(seconds, max(began, self._progress), reading.why)
                pause = min(pause * 2, _LONGEST_PAUSE)
        return Tally(accepted, tuple(rejected))

    def _try(self, batch: Sequence[Entry]) -> Reading:
        body = b"\n".join([entry.line for entry in batch])
        try:
            status, headers, answer = self._post(body)
        except (OSError, HTTPException) as error:
            self._hang_up()
            why = f"{self._options.endpoint} does not answer: {str(error) or type(error).__name__}"
            return Reading(0, again=batch, why=why)
        return read(batch, status, headers, answer, self._options.target)

    def _post(self, body: bytes) -> tuple[int, Mapping[str, str], bytes]:
        connection = self._connection()
        connection.request("POST", self._options.path, body, _HEADERS)
        response = connection.getresponse()
        headers = {name.lower(): value for name, value in response.getheaders()}
        return response.status, headers, response.read()

    def _connection(self) -> HTTPConnection:
        """Return this thread's own connection."""
        if getattr(self._connections, "mine", None) is None:
            self._connections.mine = connect(self._options.endpoint, _SECONDS)
        connection: HTTPConnection = self._connections.mine
        return connection

    def _hang_up(self) -> None:
        self._connection().close()
        self._connections.mine = None

    def _pause(self, seconds: float, since: float, why: str) -> None:
        """Wait before the next try, or give up when nothing got through for too long."""
        patience = self._options.patience
        if time.monotonic() + seconds - since > patience:
            raise Impatient(
                f"{self._options.target} took nothing for {patience:g} s, the option patience; "
                f"the last answer was {why}"
            )
        if self._over.wait(seconds):
            raise Impatient("another batch of this task failed")
