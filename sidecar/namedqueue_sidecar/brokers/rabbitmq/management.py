"""What only RabbitMQ's management API can do: policies, and how many jobs are in flight.

A tiny client for `nq run --broker` and for tests; in a cluster the operator sees to policies.
"""

from base64 import b64encode
from typing import Any, Final
from urllib.parse import quote

import aiohttp
from yarl import URL

from namedqueue.topology.management import Request
from namedqueue_sidecar.brokers.rabbitmq.credentials import Provider

_TIMEOUT: Final = aiohttp.ClientTimeout(total=15)
_NOT_FOUND: Final = 404


class Management:
    """The management API at an address, under the account of the broker itself."""

    def __init__(self, url: str, credentials: Provider) -> None:
        self._url = url.rstrip("/")
        self._credentials = credentials

    async def send(self, request: Request) -> None:
        """Perform a request; what shall be deleted may be gone already."""
        await self._call(request.method, request.path, request.body)

    async def queue(self, vhost: str, name: str) -> dict[str, Any] | None:
        """Return what the broker tells about a queue, or None without such a queue."""
        path = f"queues/{quote(vhost, safe='')}/{quote(name, safe='')}"
        found: dict[str, Any] | None = await self._call("GET", path, None)
        return found

    async def _call(self, method: str, path: str, body: Any) -> Any:
        try:
            return await self._answer(method, path, body)
        except aiohttp.ClientError as error:
            raise ConnectionError("the broker's management API does not answer") from error

    async def _answer(self, method: str, path: str, body: Any) -> Any:
        credentials = self._credentials()
        login = b64encode(f"{credentials.username}:{credentials.password}".encode()).decode()
        url = URL(f"{self._url}/api/{path}", encoded=True)
        async with (
            aiohttp.ClientSession(timeout=_TIMEOUT) as session,
            session.request(
                method, url, json=body, headers={"Authorization": f"Basic {login}"}
            ) as response,
        ):
            if response.status == _NOT_FOUND and method != "PUT":
                return None
            if not response.ok:
                raise RuntimeError(f"the broker refuses {method} {path}: {response.status}")
            return await response.json() if method == "GET" else None
