"""How a job becomes a POST: its path, its headers, its time."""

from urllib.parse import quote

from namedqueue.api.namedqueue import Retry
from namedqueue.api.workers import Worker
from namedqueue.envelope import Job
from namedqueue.handler import handler_headers
from namedqueue.topics import matches
from namedqueue_sidecar.app.port import Call


class Caller:
    """Builds the calls of one queue."""

    def __init__(self, worker: Worker, retry: Retry) -> None:
        self._path = worker.path
        self._routes = tuple((route.topic, route.path) for route in worker.routes)
        self._timeout = worker.timeout.seconds
        self._retry = retry

    def call(self, job: Job) -> Call:
        """Return the POST for one attempt at a job."""
        path = self._path
        if self._routes and job.topic:
            path = self._routed(job.topic)
        if "{type}" in path:
            path = path.replace("{type}", quote(job.type, safe=""))
        return Call(path, handler_headers(job, self._retry), job.payload, self._timeout)

    def _routed(self, topic: str) -> str:
        found = (path for pattern, path in self._routes if matches(pattern, topic))
        return next(found, self._path)
