"""Requests from whoever hates us: valid ones made from the OpenAPI document, and raw bytes.

Whatever comes, nothing is a 500, nothing hangs, the server goes on, and no job arrives at the app
with a header that its producer had no right to.
"""

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from typing import Any
from urllib.parse import quote, urlencode

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.port.play import NAMESPACE, answer, letter, publish
from fixtures.planes import HOST, OPENAPI, Answer, Stage, check_against_openapi, stage
from fixtures.scale import scaled
from namedqueue import headers as h
from namedqueue_sidecar.brokers.port import Dead, Depth, QueueKey

PATIENCE = 120.0
pytestmark = pytest.mark.timeout(1800)  # in full
ORDERS = QueueKey(NAMESPACE, "orders")
NONE = Depth(0, 0, 0, 0)
HONEST = b"\r\n".join(
    [
        b"POST /v1/queues/orders/messages HTTP/1.1",
        *(b"Host: localhost", b"Connection: close", b"Content-Length: 2", b"", b"{}"),
    ]
)
ENDLESS = ("wait_for_drain", "lease_jobs")  # or as good as: a drawn lease may be for hours
FINAL = "drain"
OURS = frozenset(
    {
        *("content-type", "content-length", "content-encoding", "host", "accept-encoding"),
        *("ce-specversion", "ce-id", "ce-source", "ce-type", "ce-time"),
        *("nq-queue", "nq-attempt", "nq-max-attempts", "nq-retry-count", "nq-redrives"),
        *("nq-group", "nq-topic", "idempotency-key", "traceparent", "tracestate"),
    }
)


class Victim:
    """A whole plane on a loop of its own, which turns while a request is under way.

    It shares the test's thread, because Hypothesis owns the thread's randomness.
    """

    def __init__(self, runner: asyncio.Runner, scene: Stage) -> None:
        self._runner, self._stage = runner, scene

    def send(self, request: bytes, *, cut: bool = False) -> bytes:
        """Send bytes, and return all that is answered until the server closes."""
        return self._runner.run(_talk(self._stage.port, request, cut=cut))

    def forged(self) -> list[str]:
        """Name what came to the app and must not have; forget what came."""
        got, self._stage.app.got = self._stage.app.got, []
        return [wrong for job in got for wrong in _wrong(job.headers)]

    def finish(self) -> int:
        """Send an honest job after all that, let all jobs come to the app, and count them."""

        async def worked_off() -> None:
            await answer(lambda: self._stage.plane.broker.depth(ORDERS), lambda left: left == NONE)

        assert check_answers(self.send(HONEST)) == [202]
        self._runner.run(worked_off())
        return self._stage.app.finished


async def _set(scene: Stage) -> None:
    await scene.apply(
        scene.queue(subscriptions=[{"topic": "a/#"}]),
        scene.queue("full", worker=False),
        scene.queue("log", worker=False, type="stream", subscriptions=[{"topic": "a/#"}]),
    )
    one = Dead(QueueKey(NAMESPACE, "full"), letter())  # at a drawn rate two may take hours
    await publish(scene.plane.broker, one)


async def _talk(port: int, request: bytes, *, cut: bool) -> bytes:
    reader, writer = await asyncio.open_connection(HOST, port)
    try:
        writer.write(request)
        with suppress(ConnectionError):
            if cut:
                writer.write_eof()
            return await asyncio.wait_for(reader.read(), PATIENCE)
        return b""
    finally:
        writer.transport.abort()


def _wrong(headers: Any) -> Iterator[str]:
    for name, value in headers.items():
        bare = name.removeprefix("nq-header-")
        if name not in OURS and (bare == name or not h.user_headers({bare: value})):
            yield f"{name}: {value!r}"
    for name, value in (("nq-attempt", "1"), ("nq-retry-count", "0"), ("nq-redrives", "0")):
        if headers[name] != value:
            yield f"{name}: {headers[name]!r}"


@pytest.fixture(scope="module")
def victim() -> Iterator[Victim]:
    with asyncio.Runner() as runner:
        opening = stage()
        scene = runner.run(opening.__aenter__())
        runner.run(_set(scene))
        running = Victim(runner, scene)
        yield running  # to whichever of the tests below this worker was given
        assert running.finish() > 0
        assert running.forged() == []
        runner.run(opening.__aexit__(None, None, None))


def check_answers(said: bytes) -> list[int]:
    """Fail unless these bytes are whole HTTP answers, all errors among them problems."""
    statuses = []
    while said:
        head, end, rest = said.partition(b"\r\n\r\n")
        assert end, said[:500]
        status = int(head.split(b" ", 2)[1])
        lines = [line.partition(b":") for line in head.split(b"\r\n")[1:]]
        headers = {name.lower(): value.strip() for name, _, value in lines}
        size = int(headers.get(b"content-length", b"0"))
        body, said = rest[:size], rest[size:]
        assert status != 500, body
        if status >= 400 and headers[b"content-type"] != b"application/json":
            assert headers[b"content-type"] == b"application/problem+json", head
            assert orjson.loads(body)["status"] == status
        statuses.append(status)
    return statuses


# From our own OpenAPI document

OPERATIONS = [
    (method, path, operation)
    for path, methods in OPENAPI["paths"].items()
    for method, operation in methods.items()
    if operation["operationId"] not in (*ENDLESS, FINAL)
]
odd_text = st.text(max_size=20) | st.sampled_from(
    [
        "",
        "0",
        "-1",
        "1e9",
        "null",
        "../..",
        "%",
        "%2F",
        "a" * 300,
        "\x00",
        "\ufeff",
        "\U0001d518",
        "'--",
    ]
)
any_json: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | odd_text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(odd_text, inner, max_size=3),
    max_leaves=5,
)


def resolved(schema: dict[str, Any]) -> dict[str, Any]:
    ref = schema.get("$ref")
    found: dict[str, Any] = OPENAPI["components"]["schemas"][ref.rsplit("/")[-1]] if ref else schema
    return found


def values(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Draw what a schema allows, and now and then something else."""
    schema = resolved(schema)
    match schema.get("type"):
        case "object" if "properties" in schema:
            fields = {name: values(each) for name, each in schema["properties"].items()}
            needed = {name: fields.pop(name) for name in schema["required"]}
            right: st.SearchStrategy[Any] = st.fixed_dictionaries(needed, optional=fields)
        case "object":
            right = st.dictionaries(
                st.sampled_from(["tenant", "x-death", "CC", "nq-attempt"]), odd_text
            )
        case "array":
            right = st.lists(values(schema["items"]), max_size=4)
        case "integer":
            low, high = schema.get("minimum", 0), schema.get("maximum", 2**70)
            right = st.integers(low, high)
        case "boolean":
            right = st.booleans()
        case "string" if "pattern" in schema:
            most = schema["maxLength"]
            right = st.from_regex(schema["pattern"].rstrip("$"), fullmatch=True).map(
                lambda t: t[:most]
            )
        case "string":
            right = odd_text
        case _:
            right = any_json
    return st.one_of(right, right, right, any_json)


def text_of(value: Any) -> str:
    return value if isinstance(value, str) else orjson.dumps(str(value)).decode().strip('"')


PLACES = {
    "queue": st.sampled_from(["orders", "orders", "orders", "full", "log", "nope"]) | odd_text,
    "group": st.sampled_from(["audit", "nobody"]) | odd_text,
    "topic": st.sampled_from(["a/b", "a", "c", "a/+"]) | odd_text,
    "id": odd_text,
    "lease": odd_text,
}


@st.composite
def calls(draw: st.DrawFn) -> tuple[str, str, bytes]:
    """Draw a request that the document allows, more or less: method, path, and the whole."""
    method, path, operation = draw(st.sampled_from(OPERATIONS))
    query: dict[str, str] = {}
    headers = {"Host": "localhost", "Connection": "close"}
    for parameter in operation["parameters"]:
        name = parameter["name"]
        if parameter["in"] == "path":
            written = quote(draw(PLACES[name]), safe=draw(st.sampled_from(["", "/"])))
            path = path.replace(f"{{{name}}}", written)
        elif draw(st.booleans()):
            value = text_of(draw(values(parameter["schema"])))
            (query if parameter["in"] == "query" else headers)[name] = value
    body = b""
    if "requestBody" in operation:
        kind = draw(st.sampled_from(sorted(operation["requestBody"]["content"])))
        schema = operation["requestBody"]["content"][kind]["schema"]
        drawn = draw(
            st.lists(values({"$ref": "/Entry"}), max_size=3) if "ndjson" in kind else values(schema)
        )
        body = b"\n".join(map(dumped, drawn)) if "ndjson" in kind else dumped(drawn)
        headers |= {"Content-Type": kind if kind != "*/*" else "application/json"}
    if query:
        path = f"{path}?{urlencode(query)}"
    lines = [f"{name}: {value}" for name, value in headers.items()]
    head = "\r\n".join(
        [f"{method.upper()} {path} HTTP/1.1", *lines, f"Content-Length: {len(body)}"]
    )
    return method.upper(), path, head.encode(errors="replace") + b"\r\n\r\n" + body


def dumped(value: Any) -> bytes:
    try:
        return orjson.dumps(value)
    except TypeError:  # an integer past 64 bits, or half a surrogate pair
        return repr(value).encode(errors="backslashreplace")


@settings(max_examples=scaled(10_000))
@given(call=calls())
def test_whatever_the_document_allows_is_answered_as_the_document_says(
    victim: Victim, call: tuple[str, str, bytes]
) -> None:
    method, path, request = call
    said = victim.send(request)
    [status] = check_answers(said)
    head, _, body = said.partition(b"\r\n\r\n")
    lines = [line.partition(": ") for line in head.decode("latin-1").split("\r\n")[1:]]
    if status != 400:  # a header of the drawn values may not be HTTP at all
        check_against_openapi(
            method,
            path.partition("?")[0],
            Answer(status, {name: value for name, _, value in lines}, body),
        )
    assert victim.forged() == []


# Raw bytes

METHODS = st.sampled_from([b"GET", b"POST", b"DELETE", b"PUT", b"OPTIONS", b"CONNECT", b"HEAD"]) | (
    st.binary(max_size=8)
)
TARGETS = st.sampled_from(
    [
        *(b"/v1/queues/orders/messages", b"/v1/queues/orders/messages:batch", b"*", b"", b"/"),
        *(b"/v1/topics/a/b/messages", b"/v1/queues/full/dead-letters?after=\xff&limit=%00"),
        *(b"http://evil/v1/queues", b"//v1//queues", b"/v1/queues/\xff\xfe/messages", b"evil:80"),
        *(b"/v1/queues/orders/../full", b"/v1/queues/full/redrive", b"/%zz", b"/?%", b"/#a"),
        *(b"/v1/topics/" + b"a/" * 3000 + b"/messages", b"http://[::1", b"/\x7f", b"/metrics"),
    ]
) | st.binary(max_size=30)
NAMES = st.sampled_from(
    [
        *(b"NQ-Header-tenant", b"NQ-Header-X-Death", b"NQ-Header-CC", b"NQ-Header-nq-attempt"),
        *(
            b"NQ-Attempt",
            b"NQ-Redrives",
            b"NQ-Retry-Count",
            b"x-death",
            b"CC",
            b"BCC",
            b"NQ-Header-",
        ),
        *(b"NQ-Delay", b"NQ-Priority", b"NQ-Group", b"NQ-Type", b"Idempotency-Key", b"traceparent"),
        *(b"tracestate", b"Content-Type", b"Content-Encoding", b"Content-Length", b"Host"),
        *(
            b"Transfer-Encoding",
            b"Expect",
            b"Connection",
            b"Upgrade",
            b"Range",
            b"Cookie",
            b"nq-history",
        ),
    ]
) | st.binary(max_size=10)
VALUES = st.sampled_from(
    [
        *(
            b"1",
            b"0",
            b"-1",
            b"99999999999999999999",
            b"chunked",
            b"gzip",
            b"100-continue",
            b"close",
        ),
        *(
            b"websocket",
            b"a\r\nX-Death: 1",
            b"a\nCC: 1",
            b"\x00",
            b"\xff\xfe",
            b"\xc3\xa9",
            b"x" * 9000,
        ),
        *(b"1s", b"application/x-ndjson", b"application/json", b"deflate", b"identity", b"5, 5"),
        *(b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", b"%0d%0aX-Death: 1", b"\x0b"),
    ]
) | st.binary(max_size=20)
BODIES = st.sampled_from(
    [
        *(
            b"",
            b"{}",
            b"[]",
            b"NaN",
            b"[" * 5000,
            b'{"a":' * 2000,
            b"1" * 5000,
            b"\xff\xfe",
            b"1e999",
        ),
        *(b'[{"payload":1,"headers":{"x-death":[1],"CC":"a","nq-attempt":7}}]', b'{"dryRun":true}'),
        *(
            b'[{"payload":1,"id":"a","headers":{"a":"b"}},{"payload":2,"priority":1e400}]',
            b"\x00" * 99,
        ),
        *(
            b"5\r\nhello\r\n0\r\n\r\n",
            b"fffffffffffffffff\r\n",
            b"-1\r\n\r\n",
            b"0\r\nX-Death: 1\r\n\r\n",
        ),
        *(b'[{"payload":"\\ud800"}]', b'[{"payload":%b%b}]' % (b"[" * 700, b"]" * 700)),
        *(
            b"GET /v1/queues HTTP/1.1\r\nConnection: close\r\n\r\n",
            b'[{"payload":' + b"9" * 5000 + b"}]",
        ),
    ]
) | st.binary(max_size=60)


@st.composite
def hostile(draw: st.DrawFn) -> bytes:
    """Draw something that resembles a request."""
    body = draw(BODIES)
    lines = [
        name + b": " + value for name, value in draw(st.lists(st.tuples(NAMES, VALUES), max_size=5))
    ]
    framing = [
        *([b"Content-Length: %d" % len(body)] * 4),
        b"Transfer-Encoding: chunked",
        *(b"Content-Length: %d" % (len(body) + off) for off in (-1, 1)),
        b"X: y",
    ]
    lines += [draw(st.sampled_from(framing)), b"Connection: close"]
    lines += draw(st.sampled_from([[b"Host: localhost"]] * 4 + [[]]))
    version = draw(st.sampled_from([b"HTTP/1.1"] * 6 + [b"HTTP/1.0", b"HTTP/2.0", b"", b"ICY"]))
    first = draw(METHODS) + b" " + draw(TARGETS) + b" " + version
    return b"\r\n".join([first, *lines]) + b"\r\n\r\n" + body


@settings(max_examples=scaled(10_000))
@given(request=hostile() | st.binary(max_size=200))
def test_no_bytes_make_a_fault_or_a_forged_job(victim: Victim, request: bytes) -> None:
    check_answers(victim.send(request, cut=True))
    assert victim.forged() == []
