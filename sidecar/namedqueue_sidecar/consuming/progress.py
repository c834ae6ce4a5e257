"""Attempts that were made in place, for jobs that come again.

A FIFO queue retries without publishing, so the broker's copy of a job knows nothing of its
attempts. When such a job goes back to the queue and comes to us again it goes on where it was. In
another pod it begins anew, which costs attempts that are not counted and never a job.
"""

from typing import Final, NamedTuple

from namedqueue.envelope import CopyKey, Job
from namedqueue.history import History

REMEMBERED: Final = 10_000


class _Sofar(NamedTuple):
    attempt: int
    throttles: int
    history: History


class Progress:
    """Remembers, for a while, how far jobs had come."""

    def __init__(self) -> None:
        self._jobs: dict[tuple[CopyKey, int], _Sofar] = {}

    def remember(self, as_delivered: Job, as_it_is: Job) -> None:
        """Expect a job to come again as it was delivered before."""
        if as_it_is is as_delivered:
            return
        self._jobs[as_delivered.copy_key, as_delivered.enqueued_at] = _Sofar(
            as_it_is.attempt, as_it_is.throttles, as_it_is.history
        )
        while len(self._jobs) > REMEMBERED:
            del self._jobs[next(iter(self._jobs))]

    def resumed(self, job: Job) -> Job:
        """Return a job that came again with the attempts made before, once."""
        so_far = self._jobs.pop((job.copy_key, job.enqueued_at), None)
        return job if so_far is None else job._replace(**so_far._asdict())
