"""Which pods go when some have to: those that have nothing to do.

A ReplicaSet removes the pods of the lowest deletion cost first. Right before a step down each pod's
sidecar is asked how many jobs its app is working on, and as many pods as shall go, with the fewest
jobs, are marked. A sidecar that does not answer at once counts as busy. Whoever goes in spite of
work drains first, so this saves waiting, not jobs.
"""

import asyncio
import re
from collections.abc import Mapping, Sequence
from math import inf
from typing import Any, Final

import aiohttp

from namedqueue_operator.cluster import Cluster, Object
from namedqueue_operator.inventory import Key

COST: Final = "controller.kubernetes.io/pod-deletion-cost"
CHEAP: Final = "-1"

_PORT: Final = 3551
_DEADLINE: Final = 2.0
_LONGEST: Final = 1 << 20
_IN_FLIGHT: Final = re.compile(r"^namedqueue_in_flight(?:\{[^\n]*\})? ([0-9.e+]+)$", re.MULTILINE)


class Sidecars:
    """What the sidecars of pods say about themselves."""

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()

    async def in_flight(self, pod: Mapping[str, Any]) -> float:
        """Return how many jobs a pod is working on, of whichever queue; silence is without end."""
        address = (pod.get("status") or {}).get("podIP")
        if not address:
            return inf
        host = f"[{address}]" if ":" in address else address
        if self._session is None:
            timeout = aiohttp.ClientTimeout(total=_DEADLINE)
            self._session = aiohttp.ClientSession(timeout=timeout, trust_env=False)
        try:
            url = f"http://{host}:{_PORT}/metrics"
            async with self._session.get(url, allow_redirects=False) as response:
                text = (await response.content.read(_LONGEST)).decode(errors="replace")
        except (aiohttp.ClientError, OSError, TimeoutError):
            return inf
        return in_flight_in(text) if response.ok else inf


async def mark_idle(cluster: Cluster, sidecars: Sidecars, key: Key, selector: str, go: int) -> None:
    """Let as many pods of a Deployment, those with the fewest jobs, be the first to go."""
    pods = [pod for pod in await cluster.pods(key[0], selector) if _stays(pod)]
    jobs = await asyncio.gather(*(sidecars.in_flight(pod) for pod in pods))
    for pod, cost in marks(pods, jobs, go):
        await cluster.annotate_pod(pod, {COST: cost})


def marks(
    pods: Sequence[Object], jobs: Sequence[float], go: int
) -> list[tuple[Object, str | None]]:
    """Return the pods whose mark has to change, with the new one; None takes it away."""
    ranked = sorted(zip(jobs, pods, strict=True), key=lambda each: each[0])
    found: list[tuple[Object, str | None]] = []
    for number, (_, pod) in enumerate(ranked):
        wanted = CHEAP if number < go else None
        marked = (pod["metadata"].get("annotations") or {}).get(COST)
        if marked != wanted and CHEAP in {marked, wanted}:
            found.append((pod, wanted))
    return found


def in_flight_in(text: str) -> float:
    """Sum up the jobs in flight in a page of metrics; a page that does not say is without end."""
    found = _IN_FLIGHT.findall(text)
    return sum(map(float, found)) if found else inf


def _stays(pod: Mapping[str, Any]) -> bool:
    finished = (pod.get("status") or {}).get("phase") in {"Succeeded", "Failed"}
    return "deletionTimestamp" not in pod["metadata"] and not finished
