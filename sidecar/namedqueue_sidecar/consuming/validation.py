"""Whether a payload is what the queue's JSON Schema promises."""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import jsonschema_rs
import orjson

from namedqueue.envelope import Job

ProblemWith: TypeAlias = Callable[[Job], str | None]


def validator(schema: Mapping[str, Any] | None) -> ProblemWith:
    """Return a function that says what is wrong with a job's payload, or None.

    A schema stands for itself: a reference to another place is refused, for following it would
    let a manifest make us fetch what it names. An unusable schema is a ValueError.
    """
    if schema is None:
        return lambda _job: None
    try:
        compiled = jsonschema_rs.validator_for(dict(schema), retriever=_refuse)
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(f"spec.schema is not a usable JSON Schema: {reason}") from None

    def problem_with(job: Job) -> str | None:
        try:
            payload = orjson.loads(job.payload)
        except orjson.JSONDecodeError as error:
            return f"the payload is not JSON: {error}"
        try:
            compiled.validate(payload)
        except jsonschema_rs.ValidationError as error:
            place = "".join(f"/{part}" for part in error.instance_path) or "the payload"
            return f"{place}: {error.message}"
        except ValueError:  # the sentence about it would have to show it
            return "the payload violates the schema, and is nested too deeply to say where"
        return None

    return problem_with


def _refuse(address: str) -> Any:
    raise ValueError(f"{address} is outside of the schema; write it out under $defs")
