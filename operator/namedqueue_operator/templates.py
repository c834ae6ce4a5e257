"""The shape of a user's pod template, as far as we have to reach into it. Pure.

The API server keeps a template unread until a Deployment is made of it. What we touch before that
has to be what we take it for; everything else is for the API server to judge.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from namedqueue_operator.sidecars import Impossible

_OBJECTS: Final = (
    ("metadata",),
    ("metadata", "labels"),
    ("metadata", "annotations"),
    ("spec",),
    ("spec", "securityContext"),
)
_LISTS: Final = ("containers", "initContainers", "volumes")


def check(template: Mapping[str, Any]) -> None:
    """Raise `Impossible` with the place of what cannot be read, if there is any."""
    for place, why in _faults(template):
        raise Impossible(f"{place} {why}")


def _faults(template: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for path in _OBJECTS:
        found: Any = template
        for key in path:
            found = (found or {}).get(key)
        if found is not None and not isinstance(found, Mapping):
            yield ".".join(path), "is no object; write it as a pod has it"
    spec = template.get("spec") or {}
    for key in _LISTS:
        entries = spec.get(key) or []
        if not isinstance(entries, list) or not all(isinstance(it, Mapping) for it in entries):
            yield f"spec.{key}", "is no list of objects; write it as a pod has it"
    for entry in spec.get("containers") or []:
        if not isinstance(entry.get("lifecycle") or {}, Mapping):
            yield "spec.containers.lifecycle", "is no object; write it as a pod has it"
    grace = spec.get("terminationGracePeriodSeconds")
    if grace is not None and (not isinstance(grace, int) or isinstance(grace, bool)):
        yield "spec.terminationGracePeriodSeconds", "is no whole number of seconds"
