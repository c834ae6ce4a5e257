"""How far a redrive is, asked of the process that carries it out, at its pod's address.

Reading its log would need the right to read every pod's log in the namespace. What does not answer
at once is asked again in the next round; the counts of before stay until then.
"""

import asyncio
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Self

import aiohttp

from namedqueue_operator.inventory import Body
from namedqueue_operator.sidecars import OBSERVED

_DEADLINE: Final = 2.0


class Progress:
    """Asks redrives how far they are; to be used as a context, which closes the connections."""

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        timeout = aiohttp.ClientTimeout(total=_DEADLINE)
        self._session = aiohttp.ClientSession(timeout=timeout, trust_env=False)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def of(self, pods: Sequence[Body]) -> Mapping[str, Any]:
        """Return what the one pod that runs says; nothing if none does or it is silent."""
        found = await asyncio.gather(*(self._asked(pod) for pod in pods if _runs(pod)))
        return next((each for each in found if each), {})

    async def _asked(self, pod: Body) -> Mapping[str, Any]:
        address = pod["status"].get("podIP")
        if not address or self._session is None:
            return {}
        host = f"[{address}]" if ":" in address else address
        try:
            url = f"http://{host}:{OBSERVED}/progress"
            async with self._session.get(url, allow_redirects=False) as response:
                said = await response.json()
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError):
            return {}
        return said if isinstance(said, dict) else {}


def _runs(pod: Body) -> bool:
    return (pod.get("status") or {}).get("phase") == "Running"
