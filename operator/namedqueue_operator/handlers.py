"""What kopf calls: thin, async, and returning nothing, for a result would land in the status.

kopf posts no events and takes part in no peering; ours are posted where the facts are known, and
leadership is a Lease.
"""

import copy
from typing import Any, Final

import kopf

from namedqueue.api import GROUP, VERSION
from namedqueue_operator import ANNOTATIONS, FINALIZER
from namedqueue_operator.applying import SETTLED_SECONDS
from namedqueue_operator.deleting import Deleter, Waiting
from namedqueue_operator.drifting import Drift
from namedqueue_operator.inventory import Inventory, key_of
from namedqueue_operator.reconciling import Reconciler

_KIND: Final = (GROUP, VERSION, "namedqueues")
_AGAIN_SECONDS: Final = SETTLED_SECONDS + 0.5
_SERVER_TIMEOUT: Final = 240  # whole seconds, or the API server refuses
_INACTIVITY_TIMEOUT: Final = 300.0
_CONNECT_TIMEOUT: Final = 10.0
_REQUEST_TIMEOUT: Final = 30.0


def settings() -> kopf.OperatorSettings:
    """Return how kopf shall behave."""
    chosen = kopf.OperatorSettings()
    chosen.persistence.finalizer = FINALIZER
    chosen.persistence.progress_storage = kopf.AnnotationsProgressStorage(
        prefix=ANNOTATIONS, v1=False
    )
    chosen.persistence.diffbase_storage = kopf.AnnotationsDiffBaseStorage(
        prefix=ANNOTATIONS, key="last-handled", v1=False
    )
    chosen.posting.enabled = False
    chosen.peering.standalone = True
    # A watch that went silent is noticed: the server ends each one before we would give it up.
    chosen.watching.server_timeout = _SERVER_TIMEOUT
    chosen.watching.inactivity_timeout = _INACTIVITY_TIMEOUT
    chosen.watching.connect_timeout = _CONNECT_TIMEOUT
    chosen.networking.request_timeout = _REQUEST_TIMEOUT
    chosen.execution.default_backoff = _AGAIN_SECONDS
    return chosen


def registry(
    inventory: Inventory, reconciler: Reconciler, deleter: Deleter, drift: Drift
) -> kopf.OperatorRegistry:
    """Return what to call for which event."""
    chosen = kopf.OperatorRegistry()

    @kopf.on.login(registry=chosen)
    async def log_in(**known: Any) -> kopf.ConnectionInfo | None:
        return kopf.login_with_service_account(**known) or kopf.login_with_kubeconfig(**known)

    @kopf.on.event(*_KIND, registry=chosen)
    async def learn(type: str | None, body: kopf.Body, **_: Any) -> None:  # noqa: A002  # kopf's name
        if type == "DELETED":
            inventory.drop(key_of(body))
        else:
            inventory.put(copy.deepcopy(dict(body)))

    @kopf.on.resume(*_KIND, registry=chosen)
    @kopf.on.create(*_KIND, registry=chosen)
    @kopf.on.update(*_KIND, registry=chosen)
    async def bring_about(body: kopf.Body, **_: Any) -> None:
        if await reconciler.reconcile(key_of(body)):
            drift.soon(key_of(body))

    @kopf.on.delete(*_KIND, registry=chosen)
    async def take_down(body: kopf.Body, **_: Any) -> None:
        try:
            await deleter.delete(inventory.get(key_of(body)) or body)
        except Waiting as waiting:
            raise kopf.TemporaryError(str(waiting), delay=_AGAIN_SECONDS) from None

    return chosen
