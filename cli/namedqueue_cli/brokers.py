"""Which broker `nq run` uses: the builtin one, or a RabbitMQ by its address."""

import asyncio
from pathlib import Path
from urllib.parse import unquote, urlsplit

import click

from namedqueue_sidecar.brokers.builtin.broker import BuiltinBroker
from namedqueue_sidecar.brokers.builtin.storage import StorageError
from namedqueue_sidecar.brokers.port import Broker
from namedqueue_sidecar.brokers.rabbitmq.broker import RabbitMQBroker
from namedqueue_sidecar.brokers.rabbitmq.credentials import Credentials

_PATIENCE = 15.0
_MANAGEMENT_PORT = 15672


async def open_broker(data: Path | None, address: str | None, management: str | None) -> Broker:
    """Return an open broker, or end the command with a sentence."""
    if address is None:
        return await _builtin(data)
    if data is not None:
        raise click.UsageError("--data is for the builtin broker; leave it out with --broker")
    return await _rabbitmq(address, management)


async def _builtin(data: Path | None) -> Broker:
    broker = BuiltinBroker(data)
    try:
        await broker.open()
    except (OSError, StorageError) as error:
        raise click.ClickException(str(error)) from None
    return broker


async def _rabbitmq(address: str, management: str | None) -> Broker:
    try:
        credentials = Credentials.from_url(address)
    except ValueError as error:
        raise click.UsageError(f"--broker: {error}") from None
    broker = RabbitMQBroker(
        lambda: credentials,
        vhost=unquote(urlsplit(address).path[1:]) or "/",
        management_url=management or f"http://{credentials.host}:{_MANAGEMENT_PORT}",
        name="nq run",
    )
    try:
        async with asyncio.timeout(_PATIENCE):
            await broker.open()
    except TimeoutError:
        reason = broker.unavailable or f"{credentials.place} does not answer"
        await broker.close()
        raise click.ClickException(f"no broker: {reason}") from None
    return broker
