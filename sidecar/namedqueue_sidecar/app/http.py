"""The app over HTTP/1.1 on loopback, by aiohttp.

No redirect is followed, no proxy, cookie or password file of the environment is used, and of an
answer no more is kept than its meaning needs.
"""

import asyncio

import aiohttp
from yarl import URL

from namedqueue.outcomes import Answer, Attempted, Failure
from namedqueue_sidecar.app.port import Call, Done
from namedqueue_sidecar.ending import end

_PROBE_TIMEOUT = 5.0
_HIGHEST_SUCCESS = 299
_NO_TIMEOUT = aiohttp.ClientTimeout(total=None)


class HttpApp:
    """The app on 127.0.0.1, or on another host in tests."""

    def __init__(self, port: int, health_path: str | None, host: str = "127.0.0.1") -> None:
        self._host, self._port, self._health_path = host, port, health_path
        self._base = f"http://{host}:{port}"
        self._under_way: set[asyncio.Task[None]] = set()
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=60),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=_NO_TIMEOUT,
            auto_decompress=False,
            skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding"),
        )

    def post(self, call: Call, done: Done) -> None:
        """Call the app; `done` gets the answer, never from within this call."""
        task = asyncio.get_running_loop().create_task(self._run(call, done))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def ready(self) -> bool:
        """Tell whether the health path answers 2xx, or else the port accepts a connection."""
        try:
            async with asyncio.timeout(_PROBE_TIMEOUT):
                if self._health_path is None:
                    _, writer = await asyncio.open_connection(self._host, self._port)
                    writer.close()
                    await writer.wait_closed()
                    return True
                url = URL(f"{self._base}{self._health_path}", encoded=True)
                async with self._session.get(url, allow_redirects=False) as response:
                    return response.status <= _HIGHEST_SUCCESS
        except (OSError, aiohttp.ClientError):
            return False

    async def close(self) -> None:
        """Drop the connections; calls under way end as resets."""
        await end(*self._under_way)
        await self._session.close()

    async def _run(self, call: Call, done: Done) -> None:
        attempted: Attempted = Failure.RESET
        try:
            attempted = await self._attempt(call)
        finally:
            done(attempted)

    async def _attempt(self, call: Call) -> Attempted:
        url = URL(f"{self._base}{call.path}", encoded=True)
        try:
            async with (
                asyncio.timeout(call.timeout),
                self._session.post(
                    url, data=call.body, headers=call.headers, allow_redirects=False
                ) as response,
            ):
                return await _read(response, call.largest_answer)
        except TimeoutError:
            return Failure.TIMEOUT
        except aiohttp.ClientConnectorError as error:
            refused = isinstance(error.os_error, ConnectionRefusedError)
            return Failure.REFUSED if refused else Failure.RESET
        except (OSError, aiohttp.ClientError):
            return Failure.RESET


async def _read(response: aiohttp.ClientResponse, largest: int) -> Answer:
    headers = response.headers
    try:
        body = await response.content.readexactly(largest + 1)
        response.close()
    except asyncio.IncompleteReadError as whole:
        body = whole.partial
    return Answer(
        status=response.status,
        content_type=headers.get("Content-Type", ""),
        body=body,
        retry_after=headers.get("Retry-After"),
        nq_outcome=headers.get("NQ-Outcome"),
    )
