"""Metrics, and whether the process still goes round.

Liveness is not whether a broker answers: a restart would not mend that. It is whether the drift
loop, on which everything comes to rest, has gone round lately, and whether the watches still hear.
Readiness is less: the webhook has to answer for pods also while a watch is silent.
"""

import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Final

from aiohttp import web
from prometheus_client import REGISTRY, generate_latest

from namedqueue_operator import metrics
from namedqueue_operator.watching import Watches

_ROUNDS: Final = 6
_LEAST: Final = 60.0


@asynccontextmanager
async def observers(port: int, watches: Watches, *, poll: float) -> AsyncIterator[None]:
    """Answer `/metrics` and `/healthz` on a port; 0 for none."""
    application = web.Application()
    application.router.add_get("/metrics", _metrics)
    longest = max(_LEAST, _ROUNDS * poll)

    async def alive(_: web.Request) -> web.Response:
        ailing = [*_standstill(longest), *watches.silent()]
        if ailing:
            return web.Response(status=503, text="".join(f"{each}\n" for each in ailing))
        return web.Response(text="alive\n")

    async def ready(_: web.Request) -> web.Response:
        return web.Response(text="ready\n")

    application.router.add_get("/healthz/live", alive)
    application.router.add_get("/healthz/ready", ready)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    try:
        if port:
            await web.TCPSite(runner, port=port).start()
        yield
    finally:
        await runner.cleanup()


def _standstill(longest: float) -> Iterator[str]:
    tick = next(iter(metrics.TICK.collect())).samples[0].value
    still = time.time() - tick
    if tick and still > longest:
        yield f"the drift loop has not gone round for {still:.0f} s"


async def _metrics(_: web.Request) -> web.Response:
    return web.Response(
        body=generate_latest(REGISTRY),
        headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"},
    )
