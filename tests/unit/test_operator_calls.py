"""What servers answer when they are in trouble, and what the operator makes of it."""

import base64
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TypeAlias

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from kubernetes.aio import client

from namedqueue.topology import Version
from namedqueue.topology.management import Request
from namedqueue_operator.accounts import Account
from namedqueue_operator.cluster import Cluster, Refused
from namedqueue_operator.leading import Lease
from namedqueue_operator.management import Management
from namedqueue_operator.troubles import BrokerTrouble

Answer: TypeAlias = Callable[[], web.Response]


@asynccontextmanager
async def _serving(answer: Answer) -> AsyncIterator[str]:
    """Give the address of a server that answers everything alike."""

    async def answered(_: web.Request) -> web.Response:
        return answer()

    application = web.Application()
    application.router.add_route("*", "/{path:.*}", answered)
    async with TestServer(application, host="127.0.0.1") as server:
        yield str(server.make_url("")).rstrip("/")


@asynccontextmanager
async def _cluster(answer: Answer) -> AsyncIterator[Cluster]:
    async with _serving(answer) as address:
        cluster = Cluster(client.ApiClient(client.Configuration(host=address)))
        try:
            yield cluster
        finally:
            await cluster.close()


@asynccontextmanager
async def _broker(answer: Answer) -> AsyncIterator[Management]:
    async with _serving(answer) as address:
        account = Account(
            host="rabbit", port=5672, username="me", password="secret", management=address
        )
        management = Management(account, deadline=10)
        try:
            yield management
        finally:
            await management.close()


def _overloaded() -> AbstractAsyncContextManager[Cluster]:
    """Give an API server that has too much to do: it says so as plain text, not as a Status."""
    return _cluster(
        lambda: web.Response(status=429, text="Too many requests, please try again later.\n")
    )


async def test_an_api_server_that_has_too_much_to_do_refuses() -> None:
    async with _overloaded() as cluster:
        with pytest.raises(Refused, match="429"):
            await cluster.secret("shop", "rabbit")


async def test_a_lease_outlives_an_api_server_that_has_too_much_to_do() -> None:
    async with _overloaded() as cluster:
        assert not await Lease(cluster, "shop", "operator")._tried()


@pytest.mark.parametrize(
    "answer",
    [
        lambda: web.Response(text="<html>welcome</html>", content_type="text/html"),
        lambda: web.Response(status=308, headers={"Location": "https://127.0.0.1:1/"}),
        lambda: web.Response(text='["overview"]', content_type="application/json"),
        lambda: web.Response(status=404, text="default backend - 404"),
    ],
    ids=["a page", "a redirect", "another shape", "an empty place"],
)
async def test_what_is_not_a_rabbitmq_is_told_as_trouble(answer: Answer) -> None:
    async with _broker(answer) as management:
        with pytest.raises(BrokerTrouble, match="does not answer as RabbitMQ does"):
            await management.version()


async def test_a_step_that_is_answered_by_a_redirect_has_not_been_done() -> None:
    moved = web.Response(status=302, headers={"Location": "https://127.0.0.1:1/"})
    async with _broker(lambda: moved) as management:
        with pytest.raises(BrokerTrouble, match="does not answer as RabbitMQ does"):
            await management.send(Request("PUT", "vhosts/shop", {}))


async def test_a_password_is_sent_as_rabbitmq_reads_it() -> None:
    heard = []

    async def overview(request: web.Request) -> web.Response:
        heard.append(request.headers["Authorization"])
        return web.json_response({"rabbitmq_version": "4.1.0"})

    application = web.Application()
    application.router.add_get("/api/overview", overview)
    async with TestServer(application, host="127.0.0.1") as server:
        address = str(server.make_url("")).rstrip("/")
        account = Account(
            host="rabbit", port=5672, username="me", password="schlüssel€", management=address
        )
        management = Management(account)
        try:
            assert await management.version() == Version(4, 1)
        finally:
            await management.close()
    assert base64.b64decode(heard[0].removeprefix("Basic ")).decode() == "me:schlüssel€"


async def test_an_authority_that_is_no_plain_text_is_told_as_trouble() -> None:
    account = Account(
        host="rabbit",
        port=5671,
        username="me",
        password="secret",
        management="https://rabbit:15671",
        authority="# Autoridad de Certificación\n",
    )
    with pytest.raises(BrokerTrouble, match="is not a PEM certificate"):
        Management(account)
