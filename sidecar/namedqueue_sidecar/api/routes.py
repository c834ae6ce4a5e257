"""Which path leads to which call.

`{topic}` may hold slashes, every other `{name}` is one segment. The table is what the server
dispatches by and what the OpenAPI document is made from.
"""

import re
from collections.abc import Awaitable, Callable
from typing import NamedTuple, TypeAlias
from urllib.parse import unquote

from namedqueue_sidecar.api import (
    dead_letters,
    edits,
    health,
    leases,
    messages,
    queues,
    redrives,
    streams,
)
from namedqueue_sidecar.api.exchange import Request, Response
from namedqueue_sidecar.intake.jobs import LARGEST_BATCH, LARGEST_PAYLOAD
from namedqueue_sidecar.intake.problems import Problem
from namedqueue_sidecar.plane import Plane

Call: TypeAlias = Callable[[Plane, Request], Awaitable[Response]]


class Route(NamedTuple):
    """A method and a path, the call behind them, and the statuses it may answer with.

    A call that `waits` for what may come is given up when its caller goes away.
    """

    method: str
    path: str
    call: Call
    statuses: tuple[int, ...]
    largest_body: int = LARGEST_PAYLOAD
    waits: bool = False


_MESSAGES = "/v1/queues/{queue}/messages"
_TOPIC = "/v1/topics/{topic}/messages"
_DEAD_LETTERS = "/v1/queues/{queue}/dead-letters"
_LEASES = "/v1/queues/{queue}/leases"
_STREAM = "/v1/streams/{queue}"
_SENT = (202, 400, 404, 413, 422, 429, 503)
_BATCH = (202, 207, 400, 404, 413, 415, 422, 429, 503)

ROUTES = (
    Route("GET", "/v1/queues", queues.list_queues, (200, 503)),
    Route("GET", "/v1/queues/{queue}", queues.show_queue, (200, 404, 503)),
    Route("POST", _MESSAGES, messages.enqueue, _SENT),
    Route("POST", f"{_MESSAGES}:batch", messages.enqueue_batch, _BATCH, LARGEST_BATCH),
    Route("POST", _TOPIC, messages.publish, _SENT),
    Route("POST", f"{_TOPIC}:batch", messages.publish_batch, _BATCH, LARGEST_BATCH),
    Route("GET", _DEAD_LETTERS, dead_letters.list_dead_letters, (200, 400, 404, 409, 503)),
    Route(
        "GET", f"{_DEAD_LETTERS}/groups", dead_letters.group_dead_letters, (200, 400, 404, 409, 503)
    ),
    Route("GET", f"{_DEAD_LETTERS}/{{id}}", dead_letters.show_dead_letter, (200, 404, 409, 503)),
    Route(
        "PATCH",
        f"{_DEAD_LETTERS}/{{id}}",
        dead_letters.review_dead_letter,
        (200, 400, 404, 409, 413, 415, 503),
    ),
    Route(
        "DELETE", f"{_DEAD_LETTERS}/{{id}}", dead_letters.discard_dead_letter, (204, 404, 409, 503)
    ),
    Route(
        "POST",
        f"{_DEAD_LETTERS}/{{id}}/edit",
        edits.edit_dead_letter,
        (200, 403, 404, 409, 413, 422, 429, 503),
    ),
    Route(
        "POST",
        "/v1/queues/{queue}/redrive",
        redrives.redrive,
        (200, 400, 404, 409, 413, 415, 503),
    ),
    Route("GET", "/v1/queues/{queue}/redrive", redrives.show_redrive, (200, 404)),
    Route("POST", _LEASES, leases.lease_jobs, (200, 400, 404, 409, 413, 415, 503), waits=True),
    Route(
        "POST",
        f"{_LEASES}/{{lease}}",
        leases.finish_lease,
        (200, 400, 404, 410, 413, 415, 503),
    ),
    Route("GET", "/v1/queues/{queue}/in-flight", leases.list_in_flight, (200, 404)),
    Route("GET", _STREAM, streams.show_stream, (200, 404, 409, 503)),
    Route(
        "GET",
        f"{_STREAM}/messages",
        streams.read_messages,
        (200, 400, 404, 409, 503),
        waits=True,
    ),
    Route("GET", f"{_STREAM}/groups", streams.list_groups, (200, 404, 409, 503)),
    Route(
        "POST",
        f"{_STREAM}/groups/{{group}}/commit",
        streams.commit,
        (200, 400, 404, 409, 413, 415, 422, 503),
    ),
    Route(
        "POST",
        f"{_STREAM}/groups/{{group}}/seek",
        streams.seek,
        (200, 400, 404, 409, 413, 415, 503),
    ),
    Route("POST", "/drain", health.drain, (200,)),
)
OBSERVATION_ROUTES = (
    Route("GET", "/healthz/live", health.live, (200,)),
    Route("GET", "/healthz/ready", health.ready, (200, 503)),
    Route("GET", "/metrics", health.metrics, (200,)),
    Route("GET", "/wait-for-drain", health.wait_for_drain, (200,), waits=True),
)
"""Health, metrics and the wait for an end are served on the pod's address too: they start nothing.

The kubelet's `httpGet` hook, which needs no tool in the app's image, can only call that address.
"""


class Table:
    """Finds the route for a request; where two paths fit, the one that stands first."""

    def __init__(self, routes: tuple[Route, ...]) -> None:
        methods: dict[str, dict[str, Route]] = {}
        for route in routes:
            methods.setdefault(route.path, {})[route.method] = route
        self._paths = [(re.compile(_pattern(path)), methods[path]) for path in methods]

    def find(self, method: str, raw_path: str) -> tuple[Route, dict[str, str]]:
        """Return the route and the path's parameters, or raise 404 or 405."""
        for pattern, methods in self._paths:
            found = pattern.fullmatch(raw_path)
            if found is None:
                continue
            if method in methods:
                parameters = {name: unquote(text) for name, text in found.groupdict().items()}
                return methods[method], parameters
            allowed = ", ".join(methods)
            detail = f"this path takes {allowed}"
            raise Problem(405, "METHOD_NOT_ALLOWED", detail, {"Allow": allowed})
        raise Problem(404, "UNKNOWN_PATH", "there is no such path; see /openapi.json")


def _pattern(path: str) -> str:
    pattern = re.escape(path).replace(r"\{topic\}", "(?P<topic>.+)")
    return re.sub(r"\\\{(\w+)\\\}", r"(?P<\1>[^/]+)", pattern)
