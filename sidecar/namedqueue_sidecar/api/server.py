"""The API on a socket, by aiohttp. No other module knows the HTTP library."""

import logging

from aiohttp import web

from namedqueue_sidecar.api.exchange import Request, Response, problem_response, reply
from namedqueue_sidecar.api.openapi import document
from namedqueue_sidecar.api.routes import OBSERVATION_ROUTES, ROUTES, Route, Table
from namedqueue_sidecar.intake.jobs import LARGEST_BATCH
from namedqueue_sidecar.intake.problems import Problem
from namedqueue_sidecar.plane import Plane

_log = logging.getLogger(__name__)


class Server:
    """Serves one plane on any number of addresses."""

    def __init__(self, plane: Plane) -> None:
        self._plane = plane
        self._runners: list[web.ServerRunner] = []

    async def listen(self, host: str, port: int) -> int:
        """Serve the whole API; return the port, which is chosen for port 0."""
        return await self._listen(host, port, ROUTES + OBSERVATION_ROUTES)

    async def listen_for_observers(self, host: str, port: int) -> int:
        """Serve health and metrics, and nothing else."""
        return await self._listen(host, port, OBSERVATION_ROUTES)

    async def close(self) -> None:
        """Stop listening; requests under way get a moment to end."""
        for runner in self._runners:
            await runner.cleanup()

    async def _listen(self, host: str, port: int, routes: tuple[Route, ...]) -> int:
        table, description = Table(routes), reply(document(routes))

        async def handle(incoming: web.BaseRequest) -> web.Response:
            if incoming.method == "GET" and incoming.path == "/openapi.json":
                return _outgoing(description)
            return _outgoing(await self._answer(table, incoming))

        runner = web.ServerRunner(
            web.Server(handle, access_log=None, handler_cancellation=False), shutdown_timeout=5
        )
        await runner.setup()
        self._runners.append(runner)
        site = web.TCPSite(runner, host, port)
        await site.start()
        return int(runner.addresses[0][1])

    async def _answer(self, table: Table, incoming: web.BaseRequest) -> Response:
        try:
            route, parameters = table.find(incoming.method, incoming.rel_url.raw_path)
            request = Request(
                namespace=self._plane.namespace,
                parameters=parameters,
                query=incoming.query,
                headers={name.lower(): value for name, value in incoming.headers.items()},
                body=await _body(incoming),
            )
            return await route.call(self._plane, request)
        except Problem as problem:
            return problem_response(problem)
        except Exception:  # noqa: BLE001  # the edge: a fault is logged and answered, not raised
            _log.exception("a call failed", extra={"action": "call", "path": incoming.path})
            detail = "this is a fault of NamedQueue; its log has the details"
            return problem_response(Problem(500, "INTERNAL_ERROR", detail))


async def _body(incoming: web.BaseRequest) -> bytes:
    """Read the body, and no more of it than the largest call takes."""
    announced = incoming.content_length
    if announced is not None and announced > LARGEST_BATCH:
        raise Problem(413, "BODY_TOO_LARGE", f"the largest body is {LARGEST_BATCH} bytes")
    chunks, size = [], 0
    async for chunk in incoming.content.iter_any():
        size += len(chunk)
        if size > LARGEST_BATCH:
            raise Problem(413, "BODY_TOO_LARGE", f"the largest body is {LARGEST_BATCH} bytes")
        chunks.append(chunk)
    return b"".join(chunks)


def _outgoing(response: Response) -> web.Response:
    headers = {**response.headers, "Content-Type": response.content_type}
    return web.Response(status=response.status, body=response.body, headers=headers)
