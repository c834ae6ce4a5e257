"""Enqueueing: one job or many, to a queue or to a topic."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TypeVar

from namedqueue.envelope import Job
from namedqueue.topics import is_topic
from namedqueue_sidecar.api.exchange import Request, Response, refuse_encoding, reply
from namedqueue_sidecar.brokers.port import Main, QueueKey, Topic, Verdict
from namedqueue_sidecar.intake.jobs import Intake, Wanted, entries, make_job, wanted_by_headers
from namedqueue_sidecar.intake.problems import Problem, invalid
from namedqueue_sidecar.intake.sending import refusal
from namedqueue_sidecar.plane import Plane

P = TypeVar("P", Main, Topic)


def queue_key(plane: Plane, request: Request) -> QueueKey:
    """Return the queue that a path names, or raise a 404 that helps."""
    key = _key(request)
    if key not in plane.queues:
        raise _unknown(key)
    return key


async def enqueue(plane: Plane, request: Request) -> Response:
    """Take one job; the answer comes after the broker's confirm."""
    wanted, intake = wanted_by_headers(request.headers), await intake_of(plane, request)
    publication = intake.accept(wanted, request.body, plane.now_ms())
    (verdict,) = await plane.send(publication.queue, [publication])
    problem = _refusal(plane, publication.queue, verdict)
    if problem is not None:
        raise problem
    return reply({"id": publication.job.id, "queue": publication.queue.name}, 202)


async def enqueue_batch(plane: Plane, request: Request) -> Response:
    """Take many jobs; whatever is reported accepted was confirmed."""
    key, intake, now = _key(request), await intake_of(plane, request), plane.now_ms()
    sendable, failed = _sorted(request, lambda wanted, body: intake.accept(wanted, body, now))
    verdicts = await plane.send(key, list(sendable.values()))
    failed |= _failures(sendable, verdicts, partial(_refusal, plane, key))
    return _batch_reply(verdicts, failed)


async def publish_batch(plane: Plane, request: Request) -> Response:
    """Send many messages to every queue that subscribes to their topic."""
    topic, now = _topic(request), plane.now_ms()

    def accept(wanted: Wanted, body: bytes) -> Topic:
        return Topic(request.namespace, _message(topic, wanted, body, now))

    sendable, failed = _sorted(request, accept)
    verdicts = await plane.sending.send(list(sendable.values()))
    if verdicts and all(verdict is Verdict.UNROUTABLE for verdict in verdicts):
        raise _nobody(topic)
    failed |= _failures(sendable, verdicts, partial(_refusal_of_message, topic))
    return _batch_reply(verdicts, failed)


def _sorted(
    request: Request, accept: Callable[[Wanted, bytes], P]
) -> tuple[dict[int, P], dict[int, Problem]]:
    """Return what can be sent of a batch and what cannot, each by its place in it."""
    refuse_encoding(request)
    sendable: dict[int, P] = {}
    failed: dict[int, Problem] = {}
    for index, read in enumerate(entries(request.headers, request.body)):
        try:
            sendable[index] = accept(*read())
        except Problem as problem:
            failed[index] = problem
    return sendable, failed


def _failures(
    sent: Iterable[int],
    verdicts: Sequence[Verdict],
    problem_of: Callable[[Verdict], Problem | None],
) -> dict[int, Problem]:
    """Return the problems that the broker's verdicts mean; what was confirmed has none."""
    if verdicts.count(Verdict.CONFIRMED) == len(verdicts):
        return {}
    problems = {index: problem_of(each) for index, each in zip(sent, verdicts, strict=True)}
    return {index: problem for index, problem in problems.items() if problem is not None}


def _batch_reply(verdicts: Sequence[Verdict], failed: dict[int, Problem]) -> Response:
    accepted = verdicts.count(Verdict.CONFIRMED)
    if not failed:
        return reply({"accepted": accepted}, 202)
    failures = [
        {"index": index, "code": problem.code, "detail": problem.detail}
        for index, problem in sorted(failed.items())
    ]
    return reply({"accepted": accepted, "failed": failures}, 207)


async def publish(plane: Plane, request: Request) -> Response:
    """Send a message to every queue that subscribes to its topic."""
    topic, wanted = _topic(request), wanted_by_headers(request.headers)
    job = _message(topic, wanted, request.body, plane.now_ms())
    (verdict,) = await plane.sending.send([Topic(request.namespace, job)])
    problem = _refusal_of_message(topic, verdict)
    if problem is not None:
        raise problem
    return reply({"id": job.id, "topic": topic}, 202)


def _topic(request: Request) -> str:
    topic = request.parameters["topic"]
    if not is_topic(topic):
        raise invalid(f"{topic[:100]!r} is not a topic; separate levels by /, without + and #")
    return topic


def _message(topic: str, wanted: Wanted, body: bytes, now: int) -> Job:
    if wanted.delay is not None or wanted.priority is not None:
        raise Problem(
            422,
            "INVALID_FIELD",
            "a message to a topic takes neither delay (NQ-Delay) nor priority (NQ-Priority), "
            "because the queues that subscribe may differ in both",
        )
    return make_job("", wanted, body, now, topic)


def _refusal_of_message(topic: str, verdict: Verdict) -> Problem | None:
    return _nobody(topic) if verdict is Verdict.UNROUTABLE else refusal(verdict)


def _nobody(topic: str) -> Problem:
    return Problem(404, "NO_SUBSCRIBER", f"no queue subscribes to {topic}")


async def intake_of(plane: Plane, request: Request) -> Intake:
    """Return what makes jobs for the queue that a path names, or raise why there is nothing."""
    key = _key(request)
    try:
        intake = await plane.intake(key)
    except PermissionError as error:
        raise Problem(403, "MAY_NOT_DECLARE", f"{key} cannot be made: {error}") from None
    if intake is None:
        raise _unknown(key)
    return intake


def _refusal(plane: Plane, key: QueueKey, verdict: Verdict) -> Problem | None:
    """Return the problem of a job for a queue that we know, or None."""
    queue = plane.queues.get(key)
    if verdict is Verdict.UNROUTABLE and queue is not None and queue.spec.type == "ephemeral":
        return Problem(
            503,
            "QUEUE_EXPIRED",
            f"{key} expired because nobody wanted its jobs; the operator makes it again within a "
            "minute, so send this later",
            {"Retry-After": "10"},
        )
    return refusal(verdict)


def _key(request: Request) -> QueueKey:
    return QueueKey(request.namespace, request.parameters["queue"])


def _unknown(key: QueueKey) -> Problem:
    return Problem(404, "UNKNOWN_QUEUE", f"there is no NamedQueue {key} here")
