"""What the webhook answers when a pod asks for the sidecar.

It only reads, so a dry run is like any other, and an answer given twice is the same. A pod that
asks for what does not exist is refused with a sentence, for it would wait for ever in silence.
"""

import base64
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeAlias

from namedqueue_operator.cluster import Refused
from namedqueue_operator.reconciling import queue_in
from namedqueue_operator.sidecars import INJECT, Impossible, Sidecar, wish_of, with_sidecar
from namedqueue_operator.troubles import Trouble
from namedqueue_operator.workers import timeout_of

Find: TypeAlias = Callable[[str, str], Awaitable[Mapping[str, Any] | None]]
"""Returns the NamedQueue of a namespace and name."""

_UNAVAILABLE: Final = 503
_FORBIDDEN: Final = 403


async def review(request: Mapping[str, Any], find: Find, sidecar: Sidecar) -> dict[str, Any]:
    """Answer the request of an AdmissionReview about a pod that is being made."""
    pod, namespace = request["object"], request["namespace"]
    if (pod["metadata"].get("labels") or {}).get(INJECT) != "true":
        return _allowed(request, [])
    try:
        wish = wish_of(pod["metadata"])
        timeouts = {name: await _timeout(find, namespace, name) for name in wish.queues}
        changed = with_sidecar(pod, wish, timeouts, sidecar, namespace)
    except Impossible as refusal:
        return _refused(request, _FORBIDDEN, str(refusal))
    except Refused as refusal:
        sentence = f"the pod's queues cannot be read now; try again ({refusal})"
        return _refused(request, _UNAVAILABLE, sentence)
    return _allowed(request, difference(pod["spec"], changed["spec"]))


def difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the JSON patch from one pod specification to another that has no less in it."""
    return [
        {"op": "add", "path": f"/spec/{key}", "value": value}
        for key, value in after.items()
        if before.get(key) != value
    ]


async def _timeout(find: Find, namespace: str, name: str) -> float:
    body = await find(namespace, name)
    if body is None:
        raise Impossible(
            f"the pod asks for the queue {name}, and there is no such NamedQueue in namespace "
            f"{namespace}; create it, or correct the pod's annotations"
        )
    try:
        return timeout_of(queue_in(body))
    except Trouble as trouble:
        raise Impossible(
            f"the pod asks for the queue {name}, which is invalid: {trouble}"
        ) from None


def _allowed(request: Mapping[str, Any], patch: list[dict[str, Any]]) -> dict[str, Any]:
    answer: dict[str, Any] = {"uid": request["uid"], "allowed": True}
    if patch:
        text = base64.b64encode(json.dumps(patch).encode()).decode()
        answer |= {"patchType": "JSONPatch", "patch": text}
    return answer


def _refused(request: Mapping[str, Any], code: int, sentence: str) -> dict[str, Any]:
    status = {"code": code, "message": sentence}
    return {"uid": request["uid"], "allowed": False, "status": status}
