"""Leadership: of several replicas, the one that holds the Lease works.

A holder renews every few seconds. Whoever waits takes over when the Lease has not changed for its
whole duration by the waiting one's own clock, so clocks need not agree. A holder that cannot renew
stops before that time is over: its process ends, and comes back as one that waits. One that ends in
good order gives the Lease back, and the next need not wait.
"""

import asyncio
import contextlib
import logging
import os
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final
from uuid import uuid4

import aiohttp

from namedqueue_operator.cluster import Cluster, Object, Refused

_log = logging.getLogger(__name__)

DURATION: Final = 12.0
_RENEW_EVERY: Final = 2.0
_RENEW_WITHIN: Final = 8.0
_FAULTS: Final = (Refused, aiohttp.ClientError, OSError, TimeoutError)


class Lost(Exception):  # noqa: N818  # «raise Lost» says it
    """Another replica may lead now: this one has to stop."""


@dataclass
class Lease:
    """A Lease that one of several processes holds."""

    cluster: Cluster
    namespace: str
    name: str
    identity: str = field(
        default_factory=lambda: f"{socket.gethostname()}-{os.getpid()}-{uuid4().hex[:8]}"
    )
    _seen: tuple[Mapping[str, Any], float] | None = None

    async def acquire(self) -> None:
        """Wait until we lead."""
        _log.info("waiting for the lease", extra={"action": "lead", "identity": self.identity})
        while True:
            if await self._tried():
                break
            await asyncio.sleep(_RENEW_EVERY)
        _log.info("leading", extra={"action": "lead", "identity": self.identity})

    async def hold(self) -> None:
        """Renew for as long as we can, then raise `Lost`."""
        renewed = time.monotonic()
        while time.monotonic() - renewed < _RENEW_WITHIN:
            await asyncio.sleep(_RENEW_EVERY)
            began = time.monotonic()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_RENEW_WITHIN - (began - renewed)):
                    if await self._tried():
                        renewed = began
        raise Lost("the lease could not be renewed in time")

    async def release(self) -> None:
        """Give the Lease back, if it is ours."""
        with contextlib.suppress(*_FAULTS):
            found = await self.cluster.lease(self.namespace, self.name)
            if found is not None and found["spec"].get("holderIdentity") == self.identity:
                await self.cluster.write_lease(_held_by("", found, self.namespace, self.name))

    async def _tried(self) -> bool:
        """Take or renew the Lease if nobody else holds it; tell whether it is ours."""
        try:
            found = await self.cluster.lease(self.namespace, self.name)
            if found is not None and not self._is_free(found["spec"]):
                return False
            await self.cluster.write_lease(
                _held_by(self.identity, found, self.namespace, self.name)
            )
        except _FAULTS as fault:
            _log.warning("the lease is out of reach: %s", fault, extra={"action": "lead"})
            return False
        return True

    def _is_free(self, spec: Mapping[str, Any]) -> bool:
        """Tell whether we may take it: it is ours, nobody's, or has not changed for its time."""
        if spec.get("holderIdentity") in {self.identity, "", None}:
            return True
        now = time.monotonic()
        if self._seen is None or self._seen[0] != spec:
            self._seen = (dict(spec), now)
        return now - self._seen[1] >= float(spec.get("leaseDurationSeconds") or DURATION)


def _held_by(identity: str, found: Object | None, namespace: str, name: str) -> Object:
    """Return the Lease as it shall be; its version makes the write fail if somebody was faster."""
    now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    before = found or {"metadata": {"name": name, "namespace": namespace}, "spec": {}}
    spec = before["spec"]
    since = spec.get("acquireTime") if spec.get("holderIdentity") == identity else now
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": before["metadata"],
        "spec": {
            "holderIdentity": identity,
            "leaseDurationSeconds": int(DURATION),
            "acquireTime": since,
            "renewTime": now,
            "leaseTransitions": int(spec.get("leaseTransitions") or 0) + (since == now),
        },
    }
