"""What is no call of the API: unknown paths, wrong methods, and what is not even HTTP."""

import asyncio

import orjson
import pytest

from broker.http_api.orders import LETTERS, MESSAGES, ORDERS
from fixtures.planes import HOST, OPENAPI, Stage
from namedqueue.api.namedqueue import NamedQueue


@pytest.mark.parametrize(
    "path", ["/", "/v1", "/v2/queues", "/v1/queues/", "//", "/%00", "/v1/queues/a/b"]
)
async def test_an_unknown_path_is_a_problem_too(idle: Stage, path: str) -> None:
    refused = await idle.api.get(path)
    assert (refused.status, refused.code) == (404, "UNKNOWN_PATH")


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", MESSAGES, "POST"),
        ("PUT", "/v1/queues", "GET"),
        ("POST", f"{LETTERS}/a", "GET, PATCH, DELETE"),
        ("DELETE", f"{LETTERS}/groups", "GET"),
        ("PROPFIND", "/metrics", "GET"),
        ("GET", "/drain", "POST"),
    ],
)
async def test_the_wrong_method_is_a_405_that_names_the_right_ones(
    idle: Stage, method: str, path: str, allowed: str
) -> None:
    refused = await idle.api.call(method, path)
    assert (refused.status, refused.code) == (405, "METHOD_NOT_ALLOWED")
    assert refused.headers["Allow"] == allowed


@pytest.mark.parametrize(
    "request_",
    [
        b"nonsense\r\n\r\n",
        b"GET /v1/queues HTTP/9.9\r\n\r\n",
        b"GET / HTTP/1.1\r\nno colon\r\n\r\n",
        b"GET / HTTP/1.1\r\nA: \x00\r\n\r\n",
        b"POST /v1/queues/orders/messages HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"GET /" + b"a" * 10_000 + b" HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nA: " + b"a" * 10_000 + b"\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
    ],
)
async def test_what_is_not_even_http_is_answered_with_a_problem(
    idle: Stage, request_: bytes
) -> None:
    reader, writer = await asyncio.open_connection(HOST, idle.port)
    writer.write(request_)
    said = await asyncio.wait_for(reader.read(), 30)
    writer.close()
    await writer.wait_closed()
    head, _, body = said.partition(b"\r\n\r\n")
    assert head.split(b" ")[1] == b"400", said
    assert b"application/problem+json" in head
    assert orjson.loads(body)["code"] == "MALFORMED_HTTP"


async def test_the_description_is_served_and_names_every_path(idle: Stage) -> None:
    async with idle.api.session.get(f"{idle.api.base}/openapi.json") as response:
        assert (response.status, response.content_type) == (200, "application/json")
        assert orjson.loads(await response.read()) == orjson.loads(orjson.dumps(OPENAPI))
    operations = [each for path in OPENAPI["paths"].values() for each in path.values()]
    names = [each["operationId"] for each in operations]
    assert len(set(names)) == len(names)
    assert all(each["summary"] for each in operations)


async def test_names_are_no_way_out_of_the_namespace(idle: Stage) -> None:
    metadata = {"name": "orders", "namespace": "bank"}
    other = NamedQueue.model_validate({"metadata": metadata, "spec": {}})
    await idle.plane.apply([other], declare=True, work=False)
    assert (await idle.api.get(ORDERS)).status == 404
    assert (await idle.api.get("/v1/queues")).json["items"] == []
    assert (await idle.api.post(MESSAGES, b"1")).status == 404
