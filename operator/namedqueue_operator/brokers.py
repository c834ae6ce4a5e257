"""Which broker a queue lives on, and a connection to each.

A broker is known by where its account comes from: the operator's own, or a Secret in the queue's
namespace. Accounts are read anew for each visit; queues with an equal account share one client,
and each client has deadlines and a bound of its own, so a broker that hangs delays nobody else's.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from namedqueue.api.namedqueue import NamedQueue
from namedqueue.topology import Broker, Names, Tenancy, Version
from namedqueue_operator import accounts
from namedqueue_operator.accounts import Account
from namedqueue_operator.applying import Emptiness
from namedqueue_operator.children import text
from namedqueue_operator.cluster import Cluster
from namedqueue_operator.looks import Looks
from namedqueue_operator.management import Management
from namedqueue_operator.observing import Look
from namedqueue_operator.troubles import BrokerTrouble

Source: TypeAlias = tuple[str, str] | None
"""The namespace and name of a Secret, or None for the operator's own broker."""

_VERSION_SECONDS: Final = 60.0
_AT_ONCE: Final = 8


def source_of(queue: NamedQueue) -> Source:
    """Return where a queue's broker account comes from."""
    reference = queue.spec.broker_secret_ref
    return None if reference is None else (queue.metadata.namespace, reference.name)


@dataclass
class Link:
    """A broker that can be asked.

    `turns` bounds how many queues are brought about on it at once: the others wait, and those at
    work are done soon, rather than all of them late.
    """

    account: Account
    management: Management
    mqtt_bridge: bool = False
    emptiness: Emptiness = field(default_factory=Emptiness)
    turns: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_AT_ONCE))
    _version: tuple[float, Version] | None = None

    def __post_init__(self) -> None:
        self._looks = Looks(self.management, users=not self.shared)

    @property
    def shared(self) -> bool:
        """Whether we live in what we were given, without users of our own."""
        return self.account.tenancy is Tenancy.SHARED

    @property
    def everywhere(self) -> str | None:
        """What a look at all queues has to cover: our one vhost, or the whole broker (None)."""
        return self.account.vhost if self.shared else None

    def vhost(self, names: Names) -> str:
        """Return where a queue lives."""
        return self.account.vhost if self.shared else names.vhost

    async def look(self, vhost: str | None) -> Look:
        """Return what a vhost has, or the whole broker, after this call."""
        return await self._looks.look(vhost)

    async def described(self) -> Broker:
        """Return what the compiler has to know; a version is asked for once a minute."""
        now = time.monotonic()
        if self._version is None or now - self._version[0] > _VERSION_SECONDS:
            self._version = (now, await self.management.version())
        return Broker(
            version=self._version[1],
            tenancy=self.account.tenancy,
            vhost=self.account.vhost,
            mqtt_bridge=self.mqtt_bridge,
        )


class Brokers:
    """All brokers in use."""

    def __init__(
        self,
        cluster: Cluster,
        own: Callable[[], Awaitable[Account]],
        *,
        tenancy: Tenancy,
        mqtt_bridge: bool,
    ) -> None:
        self._cluster = cluster
        self._own = own
        self._tenancy = tenancy
        self._mqtt_bridge = mqtt_bridge
        self._links: dict[Account, Link] = {}
        self._last: dict[Source, Link] = {}

    async def reach(self, source: Source) -> Link:
        """Return the way to a broker, or raise `BrokerTrouble` about its Secret."""
        account = await (self._own() if source is None else self._account(source))
        link = self._links.get(account)
        if link is None:
            link = Link(account, Management(account), self._mqtt_bridge)
            self._links[account] = link
        self._last[source] = link
        return link

    async def reach_at_last(self, source: Source) -> Link:
        """Return the way to a broker for a farewell: its Secret may have gone before the queue."""
        try:
            return await self.reach(source)
        except BrokerTrouble:
            if source not in self._last:
                raise
            return self._last[source]

    async def close(self) -> None:
        """Close all connections."""
        for link in self._links.values():
            await link.management.close()

    async def _account(self, source: tuple[str, str]) -> Account:
        return read_secret(await self._cluster.secret(*source), source, tenancy=self._tenancy)


def read_secret(
    found: dict[str, Any] | None, source: tuple[str, str], *, tenancy: Tenancy
) -> Account:
    """Return the account in a Secret, or say what is wrong with it."""
    namespace, name = source
    if found is None:
        raise BrokerTrouble(
            "SecretMissing",
            f"Secret {name} is not in namespace {namespace}; create it with host, username, "
            "password and management_uri, or correct spec.brokerSecretRef",
        )
    data = {key: text(found, key) for key in accounts.KEYS}
    return accounts.read(data, where=f"Secret {name}", tenancy=tenancy)
