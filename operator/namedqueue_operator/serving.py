"""Metrics, and whether the process still goes round.

Liveness is not whether a broker answers: a restart would not mend that. It is whether the drift
loop, on which everything comes to rest, has gone round lately.
"""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from aiohttp import web
from prometheus_client import REGISTRY, generate_latest

from namedqueue_operator import metrics

_ROUNDS: Final = 6
_LEAST: Final = 60.0


@asynccontextmanager
async def observers(port: int, *, poll: float) -> AsyncIterator[None]:
    """Answer `/metrics` and `/healthz` on a port; 0 for none."""
    application = web.Application()
    application.router.add_get("/metrics", _metrics)
    longest = max(_LEAST, _ROUNDS * poll)

    async def alive(_: web.Request) -> web.Response:
        tick = next(iter(metrics.TICK.collect())).samples[0].value
        silent = time.time() - tick
        if tick and silent > longest:
            return web.Response(status=503, text=f"no round for {silent:.0f} s\n")
        return web.Response(text="alive\n")

    application.router.add_get("/healthz", alive)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    try:
        if port:
            await web.TCPSite(runner, port=port).start()
        yield
    finally:
        await runner.cleanup()


async def _metrics(_: web.Request) -> web.Response:
    return web.Response(
        body=generate_latest(REGISTRY),
        headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"},
    )
