"""Whether the watches still hear: one can fall silent while its connection stays open.

kopf watches, and gives a silent watch up by itself, but tells nobody. It talks over a session that
we make, though, and aiohttp tells of each request in it. The API server ends every watch after a
fixed span, and kopf asks for the next at once. So a watch that is older has lost its server: kopf
asks anew after a while in which nothing came, and where that brings none either, liveness says so.
"""

import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Final, Protocol

import aiohttp
import kopf
from yarl import URL

from namedqueue_operator import metrics

_log = logging.getLogger(__name__)
_REFUSED: Final = frozenset({403, 404})


@dataclass(frozen=True)
class Hearing:
    """How long a watch lasts, and how long without one is too long, in seconds."""

    span: int = 60

    @property
    def inactivity(self) -> float:
        """After so long without a word kopf asks anew; more than a span, or it would do so idly."""
        return self.span * 7 / 6

    @property
    def patience(self) -> float:
        """After so long without a living watch a restart is due: past what kopf needs to ask."""
        return self.span * 5 / 2


class Response(Protocol):
    """What has to be known of an answer."""

    @property
    def status(self) -> int: ...

    @property
    def closed(self) -> bool: ...


@dataclass
class _Watch:
    """A watch since it was granted, or since it was asked for if there is no answer yet."""

    since: float
    answer: Response | None = None
    trouble: str = "no answer"


class Watches:
    """What is known of each watch, by the place that it watches."""

    def __init__(self, hearing: Hearing, now: Callable[[], float] = time.monotonic) -> None:
        self._hearing = hearing
        self._now = now
        self._known: dict[str, _Watch] = {}

    def asked(self, place: str) -> None:
        """Note that a watch is asked for, the first one or the next."""
        now, before = self._now(), self._known.get(place)
        if before is None or (before.answer and now - before.since < self._hearing.inactivity):
            self._known[place] = _Watch(now)
        elif before.answer:
            metrics.SILENT_WATCHES.labels(_resource(place)).inc()
            _log.warning(
                "the watch of %s was silent and is asked for anew", place, extra={"action": "watch"}
            )
            self._known[place] = _Watch(before.since)

    def answered(self, place: str, answer: Response) -> None:
        """Note what the API server said to it."""
        if answer.status in _REFUSED:
            self._known.pop(place, None)  # that is no silence; kopf knows what to make of it
        elif answer.status < 300:  # noqa: PLR2004  # what success is in HTTP
            self._known[place] = _Watch(self._now(), answer)
            metrics.WATCHED.labels(_resource(place)).set_to_current_time()
        else:
            self.failed(place, f"HTTP {answer.status}")

    def failed(self, place: str, trouble: str) -> None:
        """Note that there was no answer, and why."""
        if place in self._known:
            self._known[place].trouble = trouble

    def silent(self) -> Iterator[str]:
        """Say of each watch that has heard nothing for too long what is the matter with it."""
        now = self._now()
        for place, watch in self._known.items():
            age = now - watch.since
            if age <= self._hearing.patience or (watch.answer and watch.answer.closed):
                continue  # one that was closed in good order is followed by another, or not wanted
            why = "it should have ended" if watch.answer else watch.trouble
            yield f"the watch of {place} has been silent for {age:.0f} s: {why}"


def logged_in(info: kopf.ConnectionInfo, watches: Watches) -> kopf.AiohttpSession:
    """Return the session that kopf shall use, with an ear on its watches."""
    session = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, ssl=info.as_ssl_context()),
        headers=info.as_http_headers(),
        proxy=info.proxy_url,
        trust_env=info.trust_env,
        trace_configs=[_tracing(watches)],
    )
    return kopf.AiohttpSession(
        server=info.server, default_namespace=info.default_namespace, aiohttp_session=session
    )


def _tracing(watches: Watches) -> aiohttp.TraceConfig:
    async def asked(_: Any, __: SimpleNamespace, told: aiohttp.TraceRequestStartParams) -> None:
        if _watches(told.url):
            watches.asked(told.url.path)

    async def answered(_: Any, __: SimpleNamespace, told: aiohttp.TraceRequestEndParams) -> None:
        if _watches(told.url):
            watches.answered(told.url.path, told.response)

    async def failed(
        _: Any, __: SimpleNamespace, told: aiohttp.TraceRequestExceptionParams
    ) -> None:
        if _watches(told.url):
            watches.failed(told.url.path, str(told.exception) or type(told.exception).__name__)

    tracing = aiohttp.TraceConfig()
    tracing.on_request_start.append(asked)
    tracing.on_request_end.append(answered)
    tracing.on_request_exception.append(failed)
    return tracing


def _watches(url: URL) -> bool:
    return url.query.get("watch") == "true"


def _resource(place: str) -> str:
    return place.rpartition("/")[2]
