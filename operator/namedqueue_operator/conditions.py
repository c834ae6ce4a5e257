"""The answers that a NamedQueue gives to its users' questions.

Pure: from answers and the conditions of before to the conditions of now. A transition time moves
only when a status flips, and what has not changed is the same to the letter, so that nothing is
written for nothing.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from namedqueue.topology import Topology

Status: TypeAlias = Literal["True", "False", "Unknown"]

READY: Final = "Ready"
TOPOLOGY_READY: Final = "TopologyReady"
BROKER_REACHABLE: Final = "BrokerReachable"
STORE_BOUND: Final = "StoreBound"
WORKERS_READY: Final = "WorkersReady"
SCALING_ACTIVE: Final = "ScalingActive"

_NEEDED: Final = (BROKER_REACHABLE, TOPOLOGY_READY, STORE_BOUND, WORKERS_READY)
_ORDER: Final = (READY, *_NEEDED, SCALING_ACTIVE)
_LONGEST: Final = 4096


@dataclass(frozen=True)
class Answer:
    """A status with one word for programs and a sentence for people."""

    status: Status
    reason: str
    message: str = ""


def yes(reason: str, message: str = "") -> Answer:
    """Answer that all is well."""
    return Answer("True", reason, message)


def no(reason: str, message: str) -> Answer:
    """Answer what is wrong."""
    return Answer("False", reason, message)


def unknown(reason: str, message: str) -> Answer:
    """Answer that it cannot be told."""
    return Answer("Unknown", reason, message)


def reachable(version: object, place: str) -> Answer:
    """Answer that the broker can be asked."""
    return yes("Reachable", f"RabbitMQ {version} at {place} answers")


def in_place(topology: Topology, *remarks: str) -> Answer:
    """Answer that everything is there, with what else there is to say about it."""
    vhost = topology.vhost.name if topology.vhost else ""
    counts = (
        f"{_some(len(topology.queues), 'queue')} and {_some(len(topology.exchanges), 'exchange')}"
    )
    return yes("InPlace", "; ".join((f"{counts} in vhost {vhost}", *topology.notes, *remarks)))


def summary(answers: Mapping[str, Answer]) -> Answer:
    """Sum up: ready when jobs can be sent and are worked off, else what the first no says."""
    for name in _NEEDED:
        answer = answers.get(name)
        if answer is not None and answer.status != "True":
            return no(answer.reason, answer.message)
    return yes("Ready", "jobs can be sent")


def settle(
    before: Sequence[Mapping[str, Any]],
    answers: Mapping[str, Answer],
    *,
    generation: int,
    now: str,
) -> list[dict[str, Any]]:
    """Return the whole list of conditions after these answers.

    Conditions that were not asked about stay as they were, other people's included.
    """
    known = {str(each["type"]): dict(each) for each in before}
    for kind, answer in answers.items():
        flipped = known.get(kind, {}).get("status") != answer.status
        known[kind] = {
            "type": kind,
            "status": answer.status,
            "reason": answer.reason,
            "message": _shortened(answer.message),
            "lastTransitionTime": now if flipped else known[kind]["lastTransitionTime"],
            "observedGeneration": generation,
        }
    return [known[kind] for kind in _in_order(known)]


def find(status: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    """Return a condition, or nothing where it was never answered."""
    found = (each for each in status.get("conditions") or () if each.get("type") == kind)
    return next(found, {})


def told(status: Mapping[str, Any], generation: int) -> dict[str, Answer]:
    """Return the answers that a status holds about this generation of the spec."""
    return {
        str(each["type"]): Answer(each["status"], each["reason"], each.get("message", ""))
        for each in status.get("conditions") or ()
        if each.get("observedGeneration") == generation
    }


def holds(status: Mapping[str, Any], kind: str, generation: int) -> bool:
    """Tell whether a condition is true of this generation of the spec."""
    condition = find(status, kind)
    return condition.get("status") == "True" and condition.get("observedGeneration") == generation


def _in_order(kinds: Iterable[str]) -> list[str]:
    return sorted(kinds, key=lambda kind: (_ORDER.index(kind) if kind in _ORDER else 99, kind))


def _some(count: int, thing: str) -> str:
    return f"{count} {thing}{'' if count == 1 else 's'}"


def _shortened(message: str) -> str:
    return message if len(message) <= _LONGEST else f"{message[: _LONGEST - 1]}…"
