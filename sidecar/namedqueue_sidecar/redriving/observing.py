"""How far a redrive is, for whoever asks: one JSON document over HTTP, and nothing else.

The operator asks at the pod's address and writes the counts into the QueueRedrive. Whatever is
asked for, the answer is the same; it holds no job and no secret.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Final

_PATIENCE: Final = 5.0
_LONGEST_HEAD: Final = 8192


@contextlib.asynccontextmanager
async def observed(document: Callable[[], str], host: str, port: int) -> AsyncIterator[int]:
    """Answer with the document as it is at that moment; give the port, chosen for port 0."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, TimeoutError, EOFError, asyncio.LimitOverrunError):
            async with asyncio.timeout(_PATIENCE):
                await reader.readuntil(b"\r\n\r\n")
                writer.write(_response(document()))
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, host, port, limit=_LONGEST_HEAD)
    try:
        yield int(server.sockets[0].getsockname()[1])
    finally:
        server.close()


def _response(document: str) -> bytes:
    body = document.encode()
    head = (
        "HTTP/1.1 200 OK\r\n"
        "Content-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n"
        "Connection: close\r\n\r\n"
    )
    return head.encode() + body
