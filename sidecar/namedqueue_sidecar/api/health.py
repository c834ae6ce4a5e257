"""Whether we live, whether we are ready and what is missing, and the way out."""

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from namedqueue_sidecar.api.exchange import Request, Response, reply
from namedqueue_sidecar.plane import Plane


async def live(_plane: Plane, _request: Request) -> Response:
    """Answer: the event loop turns."""
    return reply({"status": "live"})


async def ready(plane: Plane, _request: Request) -> Response:
    """Say whether jobs can flow, and if not, what is missing."""
    missing = plane.missing()
    if missing:
        return reply({"status": "not ready", "missing": missing}, 503)
    return reply({"status": "ready", "missing": []})


async def metrics(_plane: Plane, _request: Request) -> Response:
    """Return the metrics for Prometheus."""
    return Response(200, generate_latest(), CONTENT_TYPE_LATEST)


async def drain(plane: Plane, _request: Request) -> Response:
    """Finish what is in flight and take no more; answers when that is done."""
    await plane.drain(plane.grace)
    return reply({"status": "drained"})


async def wait_for_drain(plane: Plane, _request: Request) -> Response:
    """Answer when a drain has ended; the app's preStop waits here."""
    await plane.drained.wait()
    return reply({"status": "drained"})
