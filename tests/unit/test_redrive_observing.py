"""How far a redrive is, asked over HTTP as the operator asks."""

import asyncio
import json

import aiohttp

from namedqueue_sidecar.redriving.observing import observed


def test_whoever_asks_gets_the_counts_of_that_moment() -> None:
    counts = {"redriven": 0}

    async def ask() -> list[int]:
        async with (
            observed(lambda: json.dumps(counts), "127.0.0.1", 0) as port,
            aiohttp.ClientSession(trust_env=False) as http,
        ):
            seen = []
            for redriven in (3, 7):
                counts["redriven"] = redriven
                async with http.get(f"http://127.0.0.1:{port}/progress") as answer:
                    seen.append((await answer.json())["redriven"])
            return seen

    assert asyncio.run(ask()) == [3, 7]


def test_a_caller_that_sends_rubbish_or_leaves_disturbs_nobody() -> None:
    async def ask() -> bytes:
        async with observed(lambda: "{}", "127.0.0.1", 0) as port:
            for rubbish in (b"", b"x" * 20_000):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(rubbish)
                writer.close()
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET / HTTP/1.1\r\n\r\n")
            answer = await reader.read()
            writer.close()
            return answer

    assert asyncio.run(ask()).endswith(b"\r\n\r\n{}")
