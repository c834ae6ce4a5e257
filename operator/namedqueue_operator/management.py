"""RabbitMQ's management API: a small client with deadlines, retries and a bound on concurrency.

Every call here may be repeated without harm, so a connection that breaks and an answer of the 500s
are tried again within the deadline. A 404 on DELETE is success. An error is a sentence without
credentials: `BrokerTrouble` when the broker cannot be asked, `TopologyTrouble` when it says no.
"""

import asyncio
import base64
import ssl
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias
from urllib.parse import quote, urlencode

import aiohttp
from yarl import URL

from namedqueue.topology import Version
from namedqueue.topology.management import Request
from namedqueue_operator import metrics
from namedqueue_operator.accounts import Account
from namedqueue_operator.troubles import BrokerTrouble, TopologyTrouble

Listed: TypeAlias = Sequence[Mapping[str, Any]]

COUNTED: Final = {"disable_stats": "true", "enable_queue_totals": "true"}
"""Makes a list of queues cheap, and the same on all versions: no statistics, only counts."""

_LENGTHS: Final = ("vhost", "name", "messages", "messages_ready", "messages_unacknowledged")
_WITH_ACKS: Final = {"columns": ",".join((*_LENGTHS, "message_stats.ack"))}
_DEADLINE: Final = 20.0
_PAUSES: Final = (0.2, 0.8, 2.0)
_LONGEST_REASON: Final = 300
_AT_ONCE: Final = 8
_NOT_FOUND: Final = 404
_FORBIDDEN: Final = frozenset({401, 403})
_SERVER_ERROR: Final = 500
_REDIRECTS: Final = range(300, 400)


class Management:
    """The management API of one broker, under one account."""

    def __init__(self, account: Account, *, deadline: float = _DEADLINE) -> None:
        self._account = account
        self._deadline = deadline
        self._at_once = asyncio.Semaphore(_AT_ONCE)
        self._session = aiohttp.ClientSession(
            headers={"Authorization": _login(account)},
            connector=aiohttp.TCPConnector(limit=_AT_ONCE, ssl=_trust(account)),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=deadline / 4),
            trust_env=False,
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._session.close()

    async def version(self) -> Version:
        """Return the broker's version, or refuse one that is too old."""
        overview = await self._get("overview")
        if not isinstance(overview, Mapping):
            raise self._away(ValueError("this is no overview"))
        try:
            return Version.parse(str(overview.get("rabbitmq_version")))
        except ValueError as error:
            raise BrokerTrouble("Unsupported", f"{error}; upgrade the broker") from None

    async def listed(self, kind: str, vhost: str | None = None) -> Listed | None:
        """List all of a kind, in one vhost or everywhere; None without such a vhost."""
        path = kind if vhost is None else f"{kind}/{_quoted(vhost)}"
        query = f"?{urlencode(COUNTED)}" if kind == "queues" else ""
        found: Listed | None = await self._get(f"{path}{query}")
        return found

    async def counted(self, vhost: str | None, *, acks: bool) -> Listed | None:
        """List how long queues are, and with `acks` how many jobs were ever acknowledged.

        Acknowledgments are a statistic, and a broker that has to gather those takes longer.
        """
        if not acks:
            return await self.listed("queues", vhost)
        path = "queues" if vhost is None else f"queues/{_quoted(vhost)}"
        found: Listed | None = await self._get(f"{path}?{urlencode(_WITH_ACKS)}")
        return found

    async def permissions(self, vhost: str) -> Listed | None:
        """List who may do what in a vhost."""
        found: Listed | None = await self._get(f"vhosts/{_quoted(vhost)}/permissions")
        return found

    async def send(self, request: Request, *, within: float | None = None) -> None:
        """Perform a request; what shall be deleted may be gone already.

        `within` is for a call that does the work of many, and may take longer than one.
        """
        await self._call(request.method, request.path, request.body, within)

    async def _get(self, path: str) -> Any:
        return await self._call("GET", path, None)

    async def _call(
        self, method: str, path: str, body: Mapping[str, Any] | None, within: float | None = None
    ) -> Any:
        try:
            async with asyncio.timeout(within or self._deadline), self._at_once:
                return await self._insistently(method, path, body)
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            raise self._away(error) from None

    async def _insistently(self, method: str, path: str, body: Mapping[str, Any] | None) -> Any:
        for pause in _PAUSES:
            try:
                return await self._once(method, path, body)
            except (aiohttp.ClientConnectionError, _ServerError):
                await asyncio.sleep(pause)
        return await self._once(method, path, body)

    async def _once(self, method: str, path: str, body: Mapping[str, Any] | None) -> Any:
        metrics.MANAGEMENT_REQUESTS.labels(method).inc()
        url = URL(f"{self._account.management}/api/{path}", encoded=True)
        async with self._session.request(method, url, json=body, allow_redirects=False) as response:
            if response.status in _REDIRECTS:
                raise ValueError("it sends us elsewhere")
            if response.ok:
                return await response.json(content_type=None) if method == "GET" else None
            if response.status == _NOT_FOUND and method in {"GET", "DELETE"}:
                return None
            if response.status >= _SERVER_ERROR:
                raise _ServerError(f"it answers {response.status}")
            raise self._refusal(method, path, response.status, await _reason(response))

    def _refusal(self, method: str, path: str, status: int, reason: str) -> Exception:
        words = reason.replace(self._account.password, "…")
        if status in _FORBIDDEN:
            return BrokerTrouble(
                "AccessRefused",
                f"the broker at {self._account.place} refuses {method} {path.partition('?')[0]} "
                f"({words}); check the account in the Secret: it needs the tag administrator, "
                "or policymaker and tenancy shared",
            )
        return TopologyTrouble(
            "Refused",
            f"the broker refuses {method} {path.partition('?')[0]} with {status}: {words}",
        )

    def _away(self, error: Exception) -> BrokerTrouble:
        """Say that nobody answers, in words that stay the same while that lasts."""
        match error:
            case aiohttp.ClientConnectorCertificateError() | ssl.SSLError():
                what = "has a certificate that is not trusted; put its authority into ca.crt"
            case aiohttp.ClientConnectorDNSError():
                what = "has a host name that cannot be resolved; check the Secret"
            case _ServerError():
                what = f"is in trouble: {error}"
            case aiohttp.ClientResponseError() | ValueError():
                what = "does not answer as RabbitMQ does; check management_uri in the Secret"
            case _:
                what = "does not answer; check that the broker runs and can be reached"
        return BrokerTrouble("Unreachable", f"the management API at {self._where} {what}")

    @property
    def _where(self) -> str:
        return self._account.management


class _ServerError(aiohttp.ClientError):
    """An answer of the 500s."""


async def _reason(response: aiohttp.ClientResponse) -> str:
    try:
        words = str((await response.json(content_type=None))["reason"])
    except (ValueError, KeyError, TypeError):
        words = await response.text(errors="replace")
    return words.strip()[:_LONGEST_REASON]


def _login(account: Account) -> str:
    """Return who we are, in UTF-8 as RabbitMQ reads it."""
    pair = f"{account.username}:{account.password}"
    return f"Basic {base64.b64encode(pair.encode()).decode()}"


def _trust(account: Account) -> ssl.SSLContext | bool:
    if account.authority is None:
        return True
    try:
        return ssl.create_default_context(cadata=account.authority)
    except (ssl.SSLError, TypeError):  # the latter for what is not ASCII
        raise BrokerTrouble(
            "SecretInvalid", "ca.crt of the broker's Secret is not a PEM certificate"
        ) from None


def _quoted(name: str) -> str:
    return quote(name, safe="")
