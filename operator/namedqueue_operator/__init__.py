"""The control plane: `kubectl apply` of a NamedQueue makes it exist, stay, follow edits, and go.

A way down from an event of Kubernetes to its effect: `handlers` → `reconciling` or `deleting` →
`observing` (what the broker has) → the contract's `topology.diff` → `applying` → `reporting`.
`drifting` walks the same way on its own account, so that nothing stays broken. `tending` runs the
workers and `webhooks` puts the sidecar into other pods; both by `sidecars`.
"""

from typing import Final

FIELD_MANAGER: Final = "namedqueue-operator"
FINALIZER: Final = "namedqueue.io/finalizer"
ANNOTATIONS: Final = "operator.namedqueue.io"
"""The prefix of what kopf remembers on our objects. Changing it would re-handle everything."""

FORCE_DELETE: Final = "namedqueue.io/force-delete"
ROTATE: Final = "namedqueue.io/rotate-credentials"
QUEUE_LABEL: Final = "namedqueue.io/queue"
