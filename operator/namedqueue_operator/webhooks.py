"""The webhook as a server, with a certificate that is changed in time, and the API server told.

Every replica serves, the one that stands by too. They share the certificate through a Secret; which
of them changes it does not matter, for a write holds only for the version that was read. The
MutatingWebhookConfiguration is made by whoever installs us, so that it goes when we go; we read
from it under which name we are called, and write only its `caBundle`.
"""

import asyncio
import base64
import logging
import os
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

import aiohttp
from aiohttp import web

from namedqueue_operator import FIELD_MANAGER
from namedqueue_operator.certificates import Keyring, Pair, decide, keyring_in, settling
from namedqueue_operator.cluster import Cluster, Object, Refused
from namedqueue_operator.injecting import review
from namedqueue_operator.sidecars import Sidecar

_log = logging.getLogger(__name__)
_FAULTS: Final = (Refused, aiohttp.ClientError, OSError, TimeoutError)
_LOOKS: Final = 6
"""How often to look while a change settles: in time, also where certificates last but seconds."""
_LARGEST: Final = 8 * 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class Webhook:
    """Where the webhook is served and kept."""

    port: int
    secret: tuple[str, str]
    configuration: str
    lifetime: float


class Keeper:
    """Keeps the certificate of a webhook good, and known."""

    def __init__(self, cluster: Cluster, webhook: Webhook) -> None:
        self._cluster = cluster
        self._webhook = webhook
        self._served: Pair | None = None
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_3
        self.ready = asyncio.Event()

    async def run(self) -> None:
        """Look after it until cancelled."""
        pause = settling(self._webhook.lifetime) / _LOOKS
        while True:
            try:
                await self._round()
            except _FAULTS as fault:
                _log.warning("the webhook's certificate: %s", fault, extra={"action": "certify"})
            await asyncio.sleep(pause)

    async def _round(self) -> None:
        configuration = await self._cluster.webhook_configuration(self._webhook.configuration)
        if configuration is None:
            name = self._webhook.configuration
            _log.warning(
                "there is no MutatingWebhookConfiguration %s; create it, or start the operator "
                "without --webhook-configuration",
                name,
                extra={"action": "certify"},
            )
            return
        found = await self._cluster.secret(*self._webhook.secret)
        keyring = keyring_in((found or {}).get("data") or {})
        wanted = decide(
            keyring,
            hosts(configuration),
            announced=keyring is not None and _is_told(configuration, keyring),
            now=time.time(),
            lifetime=self._webhook.lifetime,
        )
        if wanted != keyring:
            await self._keep(found, wanted)
            _log.info("the webhook's certificates changed", extra={"action": "certify"})
        if not _is_told(configuration, wanted):
            await self._cluster.trust_webhook(configuration, _encoded(wanted.bundle))
        self._serve(wanted.serving)

    async def _keep(self, found: Object | None, keyring: Keyring) -> None:
        """Write the Secret, unless somebody else has done so since it was read."""
        namespace, name = self._webhook.secret
        metadata = {"namespace": namespace, "name": name}
        labels = {"app.kubernetes.io/managed-by": FIELD_MANAGER}
        before = found["metadata"] if found else {**metadata, "labels": labels}
        await self._cluster.write_secret(
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "type": "Opaque",
                "metadata": before,
                "data": keyring.data(),
            }
        )

    def _serve(self, pair: Pair) -> None:
        """Use a pair for every connection from now on."""
        if pair != self._served:
            # The one call that takes certificates wants a file; this one is in no file system.
            with os.fdopen(os.memfd_create("certificate"), "w", encoding="ascii") as file:
                file.write(pair.certificate + pair.key)
                file.flush()
                self.context.load_cert_chain(f"/proc/self/fd/{file.fileno()}")
            self._served = pair
        self.ready.set()


def hosts(configuration: Mapping[str, Any]) -> list[str]:
    """Return under which names the API server calls us."""
    found: dict[str, None] = {}
    for webhook in configuration.get("webhooks") or ():
        client = webhook["clientConfig"]
        if "service" in client:
            service = client["service"]
            found[f"{service['name']}.{service['namespace']}.svc"] = None
        else:
            found[urlsplit(client["url"]).hostname or ""] = None
    return list(found)


async def serve(cluster: Cluster, webhook: Webhook, sidecar: Sidecar) -> None:
    """Serve the webhook, from the moment that there is a certificate for it, until cancelled."""
    keeper = Keeper(cluster, webhook)
    async with asyncio.TaskGroup() as parts:
        parts.create_task(keeper.run())
        parts.create_task(_serve(cluster, webhook, sidecar, keeper))


async def _serve(cluster: Cluster, webhook: Webhook, sidecar: Sidecar, keeper: Keeper) -> None:
    await keeper.ready.wait()

    async def inject(incoming: web.Request) -> web.Response:
        document = await incoming.json()
        answer = await review(document["request"], cluster.queue, sidecar)
        kinds = {key: document[key] for key in ("apiVersion", "kind")}
        return web.json_response({**kinds, "response": answer})

    application = web.Application(client_max_size=_LARGEST)
    application.router.add_post("/inject", inject)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, port=webhook.port, ssl_context=keeper.context).start()
        _log.info("the webhook is served", extra={"action": "certify", "port": webhook.port})
        await asyncio.Event().wait()
    finally:
        await runner.cleanup()


def _is_told(configuration: Mapping[str, Any], keyring: Keyring) -> bool:
    bundle = _encoded(keyring.bundle)
    webhooks = configuration.get("webhooks") or ()
    return all(each["clientConfig"].get("caBundle") == bundle for each in webhooks)


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
