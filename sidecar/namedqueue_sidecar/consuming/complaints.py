"""Why attempts fail, in the log: each code at once, and then as a count once a minute.

So on-call sees what is being retried long before it is a dead letter, and a storm of failures is
no storm of lines. Codes are logged and messages are not, for these may quote what is in a job.
"""

import logging
import time
from collections.abc import Callable
from typing import Final

_EVERY: Final = 60.0
_MOST_CODES: Final = 50
_OTHERS: Final = "others"
_log = logging.getLogger(__name__)


class Complaints:
    """What was said of one queue's failures, and how many have not been told of yet."""

    def __init__(
        self, namespace: str, queue: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._queue = {"namespace": namespace, "queue": queue}
        self._clock = clock
        self._untold: dict[str, int] = {}
        self._told: dict[str, float] = {}

    def add(self, code: str) -> None:
        """Note a failed attempt, and say so if its code was not told of for a minute."""
        if code not in self._untold and len(self._untold) >= _MOST_CODES:
            code = _OTHERS
        count = self._untold.get(code, 0) + 1
        now = self._clock()
        if now - self._told.get(code, -_EVERY) < _EVERY:
            self._untold[code] = count
            return
        self._untold[code], self._told[code] = 0, now
        fields = {"action": "attempt", "code": code, "attempts": count, **self._queue}
        _log.warning("attempts of %s fail with %s", self._queue["queue"], code, extra=fields)
