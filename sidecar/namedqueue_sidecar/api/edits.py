"""One dead letter sent back with another payload, where the data plane was told to allow that.

It goes the way of any redrive, and that redrive is named after the edit. So whoever asks for the
same edit again, for he was not told how the first one ended, goes on with it and is told the truth.

With a store the record names the new job before that can be sent. A record that does so and whose
letter is gone was edited, whoever was killed in between.
"""

import logging
from functools import partial

from namedqueue.edits import edited
from namedqueue.triage import OPEN, letter_key
from namedqueue_sidecar.api.dead_letters import letters_of, unknown_letter
from namedqueue_sidecar.api.exchange import Request, Response, reply
from namedqueue_sidecar.api.messages import intake_of, queue_key
from namedqueue_sidecar.api.triage import asking
from namedqueue_sidecar.brokers.port import Busy, QueueKey
from namedqueue_sidecar.intake.problems import Problem, full, unavailable
from namedqueue_sidecar.plane import Plane
from namedqueue_sidecar.redriving.runs import Run, max_length_of
from namedqueue_sidecar.redriving.wishes import Wish
from namedqueue_sidecar.store.away import Away
from namedqueue_sidecar.triaging.records import Records

_log = logging.getLogger(__name__)
_NOT_FOUND = 404


async def edit_dead_letter(plane: Plane, request: Request) -> Response:
    """Send one dead letter back with this payload, as a job of its own that names the original.

    Only where the data plane was started with `--allow-edit`. The same edit may be asked for again
    when no answer came: it is done once.
    """
    key, job_id = queue_key(plane, request), request.parameters["id"]
    letters_of(plane, key)
    if not plane.allow_edit:
        raise Problem(
            403,
            "EDITS_NOT_ALLOWED",
            "this data plane sends jobs back only as they were; to let people change them, start "
            "it with --allow-edit",
        )
    reason = plane.broker.unavailable_for(key)
    if reason is not None:
        raise unavailable(reason)
    edit = (await intake_of(plane, request)).edit(request.headers, request.body)
    new_id = edit.id_for(*key, job_id)
    run = Run(
        f"edit-{new_id}",
        Wish(limit=1, ids=frozenset({job_id})),
        most_ready=max_length_of(plane.queues[key]),
        change=partial(edited, edit=edit, new_id=new_id),
    )
    if plane.records is None:
        problem = await _refusal(plane, key, run, job_id)
    else:
        problem = await _linked(plane, plane.records, key, run, job_id, new_id)
    if problem is not None:
        raise problem
    return reply({"queue": key.name, "redriven": 1, "id": new_id, "editedFrom": job_id})


async def _linked(
    plane: Plane, records: Records, key: QueueKey, run: Run, job_id: str, new_id: str
) -> Problem | None:
    """Send the job, link the record of its original to it, and return why not, if it was not."""
    store = records.of(key)
    with asking():
        kept = await records.met(key, job_id)
    if kept is None:
        return unknown_letter(job_id)
    resumes = kept.edited_to == new_id
    if kept.state not in OPEN:
        sentence = f"a dead letter that is {kept.state} cannot be edited; its job is gone from here"
        return None if resumes else Problem(409, "REVIEW_STATE", sentence)
    with asking():
        await store.intend(kept.number, new_id)
    problem = await _refusal(plane, key, run, job_id)
    if resumes and problem is not None and problem.status == _NOT_FOUND:
        problem = None
    try:
        if problem is None:
            await store.replayed([letter_key(kept.record)], run.name, new_id)
        elif not resumes:
            await store.intend(kept.number, None)
    except Away as away:
        _log.warning("%s has no link to its edit: %s", job_id, away, extra={"action": "edit"})
    return problem


async def _refusal(plane: Plane, key: QueueKey, run: Run, job_id: str) -> Problem | None:
    """Send the job, and return why it could not be sent; None if it was."""
    try:
        await plane.redrives.run(key, run)
    except Busy as busy:
        return Problem(409, "REDRIVE_UNDER_WAY", f"{busy}; wait for its end")
    except LookupError as missing:
        return unavailable(str(missing))
    if run.redriven:
        return None
    if plane.draining:
        return unavailable("this data plane is ending; ask its successor")
    return full(run.why) if run.why else unknown_letter(job_id)
