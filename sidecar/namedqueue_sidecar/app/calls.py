"""How a job becomes a POST: its path, its headers, its time; or a part of a POST of many."""

from urllib.parse import quote

from namedqueue import batches
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
        self._batched = worker.batch is not None

    def call(self, job: Job) -> Call:
        """Return the POST for one attempt at a job, or with `spec.worker.batch` its entry."""
        path = self.path(job)
        if self._batched:
            said = {"Content-Type": batches.CONTENT_TYPE, "NQ-Queue": job.queue}
            return Call(path, said, batches.entry(job, self._retry), self._timeout, job.id)
        headers = handler_headers(job, self._retry)
        return Call(path, headers, job.payload, self._timeout, job.id)

    def path(self, job: Job) -> str:
        """Return the path of the handler that is called for a job."""
        path = self._path
        if self._routes and job.topic:
            path = self._routed(job.topic)
        return path.replace("{type}", quote(job.type, safe="")) if "{type}" in path else path

    def _routed(self, topic: str) -> str:
        found = (path for pattern, path in self._routes if matches(pattern, topic))
        return next(found, self._path)
