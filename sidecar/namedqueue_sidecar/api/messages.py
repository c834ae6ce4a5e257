"""Enqueueing: one job, many jobs, or a message to a topic."""

from namedqueue.topics import is_topic
from namedqueue_sidecar.api.exchange import Request, Response, refuse_encoding, reply
from namedqueue_sidecar.brokers.port import Main, QueueKey, Topic, Verdict
from namedqueue_sidecar.intake.jobs import Intake, entries, make_job, wanted_by_headers
from namedqueue_sidecar.intake.problems import Problem, invalid
from namedqueue_sidecar.intake.sending import refusal
from namedqueue_sidecar.plane import Plane


def queue_key(plane: Plane, request: Request) -> QueueKey:
    """Return the queue that a path names, or raise a 404 that helps."""
    key = QueueKey(request.namespace, request.parameters["queue"])
    if key not in plane.queues:
        raise _unknown(key)
    return key


async def enqueue(plane: Plane, request: Request) -> Response:
    """Take one job; the answer comes after the broker's confirm."""
    wanted, intake = wanted_by_headers(request.headers), _intake(plane, request)
    publication = intake.accept(wanted, request.body, plane.now_ms())
    (verdict,) = await plane.sending.send([publication])
    problem = refusal(verdict)
    if problem is not None:
        raise problem
    return reply({"id": publication.job.id, "queue": publication.queue.name}, 202)


async def enqueue_batch(plane: Plane, request: Request) -> Response:
    """Take many jobs; whatever is reported accepted was confirmed."""
    intake, now = _intake(plane, request), plane.now_ms()
    refuse_encoding(request)
    sendable: list[tuple[int, Main]] = []
    failed: dict[int, Problem] = {}
    for index, read in enumerate(entries(request.headers, request.body)):
        try:
            sendable.append((index, intake.accept(*read(), now)))
        except Problem as problem:
            failed[index] = problem
    verdicts = await plane.sending.send([publication for _, publication in sendable])
    for (index, _), verdict in zip(sendable, verdicts, strict=True):
        refused = refusal(verdict)
        if refused is not None:
            failed[index] = refused
    confirmed = sum(verdict is Verdict.CONFIRMED for verdict in verdicts)
    return _batch_reply(confirmed, failed)


def _batch_reply(accepted: int, failed: dict[int, Problem]) -> Response:
    if not failed:
        return reply({"accepted": accepted}, 202)
    failures = [
        {"index": index, "code": problem.code, "detail": problem.detail}
        for index, problem in sorted(failed.items())
    ]
    return reply({"accepted": accepted, "failed": failures}, 207)


async def publish(plane: Plane, request: Request) -> Response:
    """Send a message to every queue that subscribes to its topic."""
    topic = request.parameters["topic"]
    if not is_topic(topic):
        raise invalid(f"{topic[:100]!r} is not a topic; separate levels by /, without + and #")
    wanted = wanted_by_headers(request.headers)
    if wanted.delay is not None or wanted.priority is not None:
        raise Problem(
            422,
            "INVALID_FIELD",
            "a message to a topic takes neither NQ-Delay nor NQ-Priority, because the queues "
            "that subscribe may differ in both",
        )
    job = make_job("", wanted, request.body, plane.now_ms(), topic)
    (verdict,) = await plane.sending.send([Topic(request.namespace, job)])
    if verdict is Verdict.UNROUTABLE:
        raise Problem(404, "NO_SUBSCRIBER", f"no queue subscribes to {topic}")
    problem = refusal(verdict)
    if problem is not None:
        raise problem
    return reply({"id": job.id, "topic": topic}, 202)


def _intake(plane: Plane, request: Request) -> Intake:
    key = QueueKey(request.namespace, request.parameters["queue"])
    intake = plane.intake(key)
    if intake is None:
        raise _unknown(key)
    return intake


def _unknown(key: QueueKey) -> Problem:
    return Problem(404, "UNKNOWN_QUEUE", f"there is no NamedQueue {key} here")
