"""From a parsed manifest to a model, or to sentences a person can act on.

Each problem names the field as the manifest writes it, the value found there, and the remedy.
"""

import difflib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from namedqueue.api import API_VERSION
from namedqueue.api.namedqueue import NamedQueue
from namedqueue.api.redrive import QueueRedrive
from namedqueue.api.rules import Model

Path: TypeAlias = tuple[str | int, ...]

KINDS: Mapping[str, type[NamedQueue] | type[QueueRedrive]] = {
    "NamedQueue": NamedQueue,
    "QueueRedrive": QueueRedrive,
}

_WORDS = {
    "int_type": "is not a whole number; write it without quotes or fraction",
    "float_type": "is not a number; write it without quotes",
    "string_type": "is not text; put it in quotes",
    "bool_type": "is neither true nor false",
    "tuple_type": "is not a list",
    "dict_type": "is not a mapping of fields",
    "model_type": "is not a mapping of fields",
    "model_attributes_type": "is not a mapping of fields",
    "literal_error": "must be {expected}",
    "greater_than_equal": "is too small; the least is {ge:g}",
    "greater_than": "is too small; it must be above {gt:g}",
    "less_than_equal": "is too large; the most is {le:g}",
    "too_long": "has {actual_length} entries; the most is {max_length}",
    "string_too_long": "is too long; the most is {max_length} characters",
}
_LONGEST_VALUE = 60
_UNION_MEMBERS = ("int", "str")


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong, and where."""

    path: Path
    sentence: str


class Invalid(Exception):  # noqa: N818  # the sentence «raise Invalid» says it
    """A manifest that breaks the contract."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        super().__init__("\n".join(problem.sentence for problem in problems))
        self.problems = problems


def read(document: Any) -> NamedQueue | QueueRedrive:
    """Return the model of a manifest, or raise `Invalid` with everything wrong in it."""
    if not isinstance(document, Mapping):
        raise Invalid((Problem((), "the document is not a mapping of fields"),))
    if document.get("apiVersion") != API_VERSION:
        raise Invalid((_not("apiVersion", document.get("apiVersion"), [API_VERSION]),))
    model = KINDS.get(str(document.get("kind")))
    if model is None:
        raise Invalid((_not("kind", document.get("kind"), list(KINDS)),))
    try:
        return model.model_validate(document)
    except ValidationError as error:
        raise Invalid(tuple(_problems(model, error))) from None


def dotted(path: Path) -> str:
    """Write a path as people do: `spec.stream.consumers[0].group`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def _problems(model: type[Model], error: ValidationError) -> Iterator[Problem]:
    seen: set[Path] = set()
    for detail in error.errors(include_url=False):
        path = _place(detail)
        if detail["type"] == "rules":
            at = dotted(path)
            for sentence in detail["ctx"]["sentences"]:
                yield Problem(path, sentence.replace("{at}", at))
        elif path not in seen:
            seen.add(path)
            yield Problem(path, f"{dotted(path)} {_says(model, path, detail)}")


def _place(detail: ErrorDetails) -> Path:
    """Drop what pydantic adds to a path for a member of a union."""
    path = detail["loc"]
    in_union = detail["type"] != "extra_forbidden" and path and path[-1] in _UNION_MEMBERS
    return path[:-1] if in_union else path


def _says(model: type[Model], path: Path, detail: ErrorDetails) -> str:
    kind = detail["type"]
    if kind == "missing":
        return "is missing"
    if kind == "extra_forbidden":
        return f"is not a field{_did_you_mean(model, path)}"
    if path != detail["loc"]:
        return f"({_shown(detail['input'])}) is neither a whole number nor text"
    known = _WORDS.get(kind)
    words = detail["msg"] if known is None else known.format_map(detail.get("ctx", {}))
    return words if kind == "too_long" else f"({_shown(detail['input'])}) {words}"


def _did_you_mean(model: type[Model], path: Path) -> str:
    known = _fields_at(model, path[:-1])
    close = difflib.get_close_matches(str(path[-1]), known, n=1, cutoff=0.6)
    if close:
        return f"; did you mean {close[0]}?"
    return f"; the fields here are {', '.join(known)}" if known else ""


def _fields_at(model: type[Model], path: Path) -> list[str]:
    """Return the names that may stand at a path, as the manifest writes them."""
    here: type[Model] = model
    for name in path:
        if isinstance(name, int):
            continue
        info = next(info for info in here.model_fields.values() if info.alias == name)
        below = _model_in(info.annotation)
        if below is None:
            return []
        here = below
    return [str(info.alias) for info in here.model_fields.values()]


def _model_in(annotation: Any) -> type[Model] | None:
    """Find the model inside `X | None` or `tuple[X, ...]`."""
    if isinstance(annotation, type) and issubclass(annotation, Model):
        return annotation
    inner = (_model_in(part) for part in getattr(annotation, "__args__", ()))
    return next((found for found in inner if found is not None), None)


def _shown(value: Any) -> str:
    """Write a value as a manifest does: `true` and `[]`, not `True` and `()`."""
    text = value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}…"


def _not(field: str, value: Any, allowed: list[str]) -> Problem:
    if value is None:
        return Problem((field,), f"{field} is missing; write {' or '.join(allowed)}")
    return Problem((field,), f"{field} ({_shown(value)}) must be {' or '.join(allowed)}")
