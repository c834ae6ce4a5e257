"""A job that is sent back with another payload: what changes, what stays, and what it is called.

An edited job is another job. It has an id of its own, because what programs knew under the old one
had other contents, and it names the job that it was made from. Its id follows from the edit, so the
same edit asked for twice is the same job.
"""

from hashlib import blake2b
from typing import NamedTuple

from namedqueue.envelope import Job


class Edit(NamedTuple):
    """What a job shall hold; None for a content type or group that stays."""

    payload: bytes
    content_type: str | None = None
    content_encoding: str | None = None
    group: str | None = None

    def id_for(self, namespace: str, queue: str, job_id: str) -> str:
        """Name the job that this edit makes of another one."""
        held = blake2b(self.payload).hexdigest()
        told = repr((namespace, queue, job_id, *self._replace(payload=held.encode())))
        return blake2b(told.encode(), digest_size=16).hexdigest()


def edited(job: Job, edit: Edit, new_id: str) -> Job:
    """Return another job with what the edit says, and with all else of the one it is made from."""
    return job._replace(
        id=new_id,
        payload=edit.payload,
        content_type=edit.content_type or job.content_type,
        content_encoding=edit.content_encoding,
        group=edit.group or job.group,
        edited_from=job.id,
    )
