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
from namedqueue_operator.fleets import Fleets
from namedqueue_operator.inventory import Inventory, key_of
from namedqueue_operator.reconciling import Reconciler
from namedqueue_operator.redriving import Redriver
from namedqueue_operator.tending import Tender
from namedqueue_operator.watching import Hearing, Watches, logged_in

_KIND: Final = (GROUP, VERSION, "namedqueues")
_AGAIN_SECONDS: Final = SETTLED_SECONDS + 0.5
_CONNECT_TIMEOUT: Final = 10.0
_REQUEST_TIMEOUT: Final = 30.0


def settings(hearing: Hearing) -> kopf.OperatorSettings:
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
    chosen.watching.server_timeout = hearing.span
    chosen.watching.inactivity_timeout = hearing.inactivity
    chosen.watching.connect_timeout = _CONNECT_TIMEOUT
    chosen.networking.request_timeout = _REQUEST_TIMEOUT
    chosen.execution.default_backoff = _AGAIN_SECONDS
    return chosen


def registry(
    inventory: Inventory,
    fleets: Fleets,
    reconciler: Reconciler,
    deleter: Deleter,
    drift: Drift,
    tender: Tender,
    redriver: Redriver,
    watches: Watches,
) -> kopf.OperatorRegistry:
    """Return what to call for which event."""
    chosen = kopf.OperatorRegistry()
    _register_redrives(chosen, redriver)

    @kopf.on.login(registry=chosen)
    async def log_in(**known: Any) -> kopf.AiohttpSession | None:
        info = kopf.login_with_service_account(**known) or kopf.login_with_kubeconfig(**known)
        return None if info is None else logged_in(info, watches)

    @kopf.on.event(*_KIND, registry=chosen)
    async def learn(type: str | None, body: kopf.Body, **_: Any) -> None:  # noqa: A002  # kopf's name
        if type == "DELETED":
            inventory.drop(body)
        else:
            inventory.put(copy.deepcopy(dict(body)))

    @kopf.on.event("apps", "v1", "deployments", registry=chosen)
    async def look_after(type: str | None, body: kopf.Body, **_: Any) -> None:  # noqa: A002  # kopf's name
        if type == "DELETED":
            fleets.drop(key_of(body))
        else:
            fleets.put(body)
        await tender.changed(key_of(body))

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


def _register_redrives(chosen: kopf.OperatorRegistry, redriver: Redriver) -> None:
    @kopf.on.event(GROUP, VERSION, "queueredrives", registry=chosen)
    async def redrive(type: str | None, body: kopf.Body, **_: Any) -> None:  # noqa: A002  # kopf's name
        if type == "DELETED":
            redriver.forget(body)
        else:
            redriver.learn(copy.deepcopy(dict(body)))
