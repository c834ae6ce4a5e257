"""The API on a socket, by aiohttp. No other module knows the HTTP library."""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable
from functools import partial
from ipaddress import ip_address
from typing import Any, Final, TypeAlias

from aiohttp import http_exceptions, web

from namedqueue_sidecar.api.exchange import Request, Response, problem_response, reply
from namedqueue_sidecar.api.openapi import document
from namedqueue_sidecar.api.routes import OBSERVATION_ROUTES, ROUTES, Route, Table
from namedqueue_sidecar.brokers.port import Missing
from namedqueue_sidecar.intake.problems import Problem, invalid, too_large, unavailable
from namedqueue_sidecar.plane import Plane

BODY_PATIENCE: Final = 30.0
"""Seconds in which a body has to be here; a caller that stalls must not hold us."""

_GRACE: Final = 5.0
_HTTP_1_1: Final = (1, 1)
_FAULT: Final = 500
_PORT: Final = re.compile(r":[0-9]*$")
_log = logging.getLogger(__name__)

Check: TypeAlias = Callable[[web.BaseRequest], None]
"""Raises the problem with a caller, if there is one."""


class Server:
    """Serves one plane on any number of addresses."""

    def __init__(self, plane: Plane) -> None:
        self._plane = plane
        self._runners: list[web.ServerRunner] = []

    async def listen(self, host: str, port: int) -> int:
        """Serve the whole API; return the port, which is chosen for port 0."""
        description = reply(document(ROUTES + OBSERVATION_ROUTES))

        async def describe(_plane: Plane, _request: Request) -> Response:
            """Return this description."""
            return description

        itself = Route("GET", "/openapi.json", describe, (200,))
        table = Table((*ROUTES, *OBSERVATION_ROUTES, itself))
        return await self._listen(host, port, table, partial(_refuse_other_names, host))

    async def listen_for_observers(self, host: str, port: int) -> int:
        """Serve health and metrics, and nothing else."""
        return await self._listen(host, port, Table(OBSERVATION_ROUTES), _refuse_nobody)

    async def close(self) -> None:
        """Stop listening; requests under way get a moment to end."""
        for runner in self._runners:
            await runner.cleanup()

    async def _listen(self, host: str, port: int, table: Table, check: Check) -> int:
        async def handle(incoming: web.BaseRequest) -> web.Response:
            return _outgoing(await self._answer(table, check, incoming))

        # A payload is passed on as it came, so what is compressed stays so.
        connections = _Connections(
            handle, access_log=None, handler_cancellation=False, auto_decompress=False
        )
        runner = web.ServerRunner(connections, shutdown_timeout=_GRACE)
        await runner.setup()
        self._runners.append(runner)
        site = web.TCPSite(runner, host, port)
        await site.start()
        return int(runner.addresses[0][1])

    async def _answer(self, table: Table, check: Check, incoming: web.BaseRequest) -> Response:
        try:
            check(incoming)
            _refuse_other_sites(incoming)
            route, parameters = table.find(incoming.method, incoming.rel_url.raw_path)
            request = Request(
                namespace=self._plane.namespace,
                parameters=parameters,
                query=incoming.query,
                headers=_headers(incoming),
                body=await _body(incoming, route.largest_body),
            )
            call = route.call(self._plane, request)
            if route.waits and isinstance(incoming.protocol, _Connection):
                return await incoming.protocol.while_there(call)
            return await call
        except Problem as problem:
            return problem_response(problem)
        except Missing as missing:
            return problem_response(unavailable(str(missing)))
        except (ConnectionError, TimeoutError) as error:
            _log.warning("the broker is away: %s", error, extra={"action": "call"})
            return problem_response(unavailable("the broker is away; send it again"))
        except Exception:  # noqa: BLE001  # the edge: a fault is logged and answered, not raised
            _log.exception("a call failed", extra={"action": "call", "path": incoming.path})
            return problem_response(_fault())


def _refuse_nobody(_incoming: web.BaseRequest) -> None:
    """Let anyone see health and metrics, by whatever name."""


def _refuse_other_names(ours: str, incoming: web.BaseRequest) -> None:
    """Refuse a call by a name that is not ours: any page can have its own name lead to loopback."""
    for host in incoming.headers.getall("Host", ()):
        name = _PORT.sub("", host.strip()).lower()
        if name not in ("", "localhost", ours) and not _is_address(name):
            raise Problem(
                403,
                "FOREIGN_HOST",
                f"this API does not answer to the name {name[:100]}; call it by its address, as "
                "in http://127.0.0.1:3550, or as localhost",
            )


def _is_address(name: str) -> bool:
    try:
        ip_address(name.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True


def _refuse_other_sites(incoming: web.BaseRequest) -> None:
    """Refuse what a browser sends for some web page: loopback is open to every page's scripts."""
    origin = incoming.headers.get("Origin")
    if origin is not None and origin.partition("://")[2] != incoming.headers.get("Host"):
        raise Problem(403, "FOREIGN_ORIGIN", "web pages of other sites may not call this API")


class _Connections(web.Server):
    """Makes a protocol for each connection."""

    def __call__(self) -> web.RequestHandler:
        return _Connection(self, loop=self._loop, **self._kwargs)


class _Connection(web.RequestHandler):
    """Answers what is not even HTTP with a problem, too, and knows when its caller has gone."""

    __slots__ = ("_waiting",)

    def __init__(self, manager: web.Server, **options: Any) -> None:
        super().__init__(manager, **options)
        self._waiting: asyncio.Future[Response] | None = None

    async def while_there(self, call: Awaitable[Response]) -> Response:
        """Make a call, and give it up when its caller is gone."""
        self._waiting = asyncio.ensure_future(call)
        if self.transport is None:
            self._waiting.cancel()
        try:
            return await self._waiting
        finally:
            self._waiting = None

    def connection_lost(self, exc: BaseException | None) -> None:
        """Give up what the caller waited for."""
        if self._waiting is not None:
            self._waiting.cancel()
        super().connection_lost(exc)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = _FAULT,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Return the answer to a request that could not be read; the connection ends with it."""
        if request.writer.output_size > 0:
            raise ConnectionError("an answer is on its way already")
        if status >= _FAULT:
            _log.error("a request failed", exc_info=exc, extra={"action": "call"})
            response = _outgoing(problem_response(_fault()))
        else:
            reason = (message or "").strip().partition("\n")[0].rstrip(":")
            problem = Problem(status, "MALFORMED_HTTP", reason or "this is not HTTP/1.1")
            response = _outgoing(problem_response(problem))
        response.force_close()
        return response


def _headers(incoming: web.BaseRequest) -> dict[str, str]:
    """Return the headers by lower case name; one that comes twice is a list, as HTTP has it."""
    headers: dict[str, str] = {}
    for name, value in incoming.headers.items():
        folded = name.lower()
        headers[folded] = f"{headers[folded]}, {value}" if folded in headers else value
    return headers


async def _body(incoming: web.BaseRequest, largest: int) -> bytes:
    """Read the body, and no more of it than the call takes."""
    announced = incoming.content_length
    if announced is not None and announced > largest:
        raise too_large(f"the largest body here is {largest} bytes")
    await _encourage(incoming)
    try:
        async with asyncio.timeout(BODY_PATIENCE):
            return await _read(incoming, largest)
    except TimeoutError:
        raise Problem(408, "BODY_TIMEOUT", f"the body took over {BODY_PATIENCE:g} s") from None
    except (web.RequestPayloadError, http_exceptions.HttpProcessingError, ConnectionError):
        raise invalid("the body ended early or is not what its headers say") from None


async def _read(incoming: web.BaseRequest, largest: int) -> bytes:
    chunks, size = [], 0
    async for chunk in incoming.content.iter_any():
        size += len(chunk)
        if size > largest:
            raise too_large(f"the largest body here is {largest} bytes")
        chunks.append(chunk)
    return b"".join(chunks)


async def _encourage(incoming: web.BaseRequest) -> None:
    """Tell a caller that waits with its body, as curl does with a large one, to send it."""
    if incoming.version >= _HTTP_1_1 and "100-continue" in incoming.headers.get("Expect", ""):
        await incoming.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        incoming.writer.output_size = 0


def _outgoing(response: Response) -> web.Response:
    headers = {"Server": "namedqueue", **response.headers}
    if response.body:
        headers["Content-Type"] = response.content_type
    return web.Response(status=response.status, body=response.body, headers=headers)


def _fault() -> Problem:
    detail = "this is a fault of NamedQueue; its log has the details"
    return Problem(_FAULT, "INTERNAL_ERROR", detail)
