"""Where a key is found in a job: the group of a FIFO queue, or the key of idempotency.

A manifest says `body.<field>…`, `header.<name>` or `messageId`. Keys are compared as text, so a
number or a boolean counts as its JSON text (`17` and `"17"` are one key), and what has no plain
text (null, an empty text, an object, an array) is no key.

A payload is a stranger's. Nothing in it makes this module raise: what is too deep, not JSON, or
compressed has no key. A key that is longer than a header of ours may be is replaced by its digest,
so that two keys that differ stay different.
"""

import json
import math
from hashlib import blake2b
from typing import Final

from pydantic_core import from_json

from namedqueue import headers as h
from namedqueue.envelope import Job

BODY: Final = "body."
_HEADER: Final = "header."


def extract(path: str, job: Job) -> str | None:
    """Return the key that a path of a manifest leads to in a job, or None."""
    if path.startswith(BODY):
        return _written(_below(_document(job), path.removeprefix(BODY).split(".")))
    if path.startswith(_HEADER):
        return _written(dict(job.headers).get(path.removeprefix(_HEADER)))
    return _written(job.id)


def _document(job: Job) -> object:
    if job.content_encoding:
        return None
    try:
        document: object = from_json(job.payload)
    except ValueError:
        return None
    return document


def _below(document: object, fields: list[str]) -> object:
    for field in fields:
        if not isinstance(document, dict):
            return None
        document = document.get(field)
    return document


def _written(value: object) -> str | None:
    match value:
        case str():
            written = value
        case bool() | int():
            written = json.dumps(value)
        case float() if math.isfinite(value):
            written = json.dumps(value)
        case _:
            return None
    return h.text(written) or _digest(written)


def _digest(text: str) -> str | None:
    if not text:
        return None
    return f"blake2b-{blake2b(text.encode(errors='surrogatepass'), digest_size=16).hexdigest()}"
