"""What a queue has in Kubernetes: a ConfigMap for its sidecars, a Secret for each role, a store's.

Pure builders. All of it belongs to the NamedQueue and goes with it, and nothing of the queue's own
annotations is copied. The Secrets have the keys of a Service Binding, one Secret per role, so that
a pod that only produces never holds what a consumer may do; nor does it learn of the store.
"""

import base64
import json
import secrets
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from namedqueue.api import API_VERSION
from namedqueue.topology.model import Role
from namedqueue_operator import FIELD_MANAGER, QUEUE_LABEL, ROTATE
from namedqueue_operator.accounts import Account

Manifest: TypeAlias = dict[str, Any]

ROTATED: Final = "namedqueue.io/rotated"
SHARERS: Final = "replicas"
STORE_KEYS: Final = (
    "connection_string",
    "host",
    "port",
    "username",
    "password",
    "database",
    "ca.crt",
)
_SECRET_TYPE: Final = "servicebinding.io/rabbitmq"  # noqa: S105  # a type, not a secret
_STORE_TYPE: Final = "servicebinding.io/postgresql"
_BYTES: Final = 24


def config_map_name(queue: str) -> str:
    """Name the ConfigMap that sidecars mount."""
    return f"nq-{queue}"


def deployment_name(queue: str) -> str:
    """Name the Deployment that runs `spec.worker.template`."""
    return f"nq-{queue}"


def secret_name(queue: str, role: Role) -> str:
    """Name the Secret that the sidecars of a role mount."""
    return f"nq-{queue}-{role}"


def store_secret_name(queue: str) -> str:
    """Name the Secret with the store's address, for those who consume."""
    return f"nq-{queue}-store"


def secret_names(queue: str) -> tuple[str, ...]:
    """Name every Secret that a queue may have."""
    return (*(secret_name(queue, role) for role in Role), store_secret_name(queue))


def config_map(body: Mapping[str, Any]) -> Manifest:
    """Return the queue's manifest as its sidecars read it: a file `<name>.json`."""
    metadata = body["metadata"]
    manifest = {
        "apiVersion": API_VERSION,
        "kind": "NamedQueue",
        "metadata": {key: metadata[key] for key in ("name", "namespace", "generation")},
        "spec": body.get("spec") or {},
    }
    text = json.dumps(manifest, sort_keys=True, ensure_ascii=False)
    shared_by = sharers(body)
    shares = {} if shared_by is None else {SHARERS: str(shared_by)}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata_of(body, config_map_name(metadata["name"])),
        "data": {f"{metadata['name']}.json": text, **shares},
    }


def sharers(body: Mapping[str, Any]) -> int | None:
    """Return how many replicas share the queue's rate limit; None where there is none to share."""
    worker = (body.get("spec") or {}).get("worker") or {}
    if not worker.get("rateLimit"):
        return None
    return max(1, int((body.get("status") or {}).get("replicas", 0)))


def secret(
    body: Mapping[str, Any], role: Role, account: Account, vhost: str, login: tuple[str, str]
) -> Manifest:
    """Return where the broker is, and how a role logs in to it."""
    username, password = login
    keys = {
        "type": "rabbitmq",
        "provider": "namedqueue",
        "host": account.host,
        "port": str(account.port),
        "vhost": vhost,
        "username": username,
        "password": password,
    }
    if account.tls:
        keys["tls"] = "true"
    if account.authority is not None:
        keys["ca.crt"] = account.authority
    metadata = metadata_of(body, secret_name(body["metadata"]["name"], role))
    metadata["annotations"] = {ROTATED: wanted_rotation(body)}
    return _secret(metadata, _SECRET_TYPE, keys)


def store_secret(body: Mapping[str, Any], keys: Mapping[str, str]) -> Manifest:
    """Return where the store is, and how everybody logs in to it."""
    metadata = metadata_of(body, store_secret_name(body["metadata"]["name"]))
    named = {"type": "postgresql", "provider": "namedqueue"}
    return _secret(metadata, _STORE_TYPE, {**named, **keys})


def password_for(body: Mapping[str, Any], found: Mapping[str, Any] | None) -> str:
    """Return the password of a role: the one it has, or a new one if that is lost or worn."""
    kept = text(found, "password")
    rotated = ((found or {}).get("metadata", {}).get("annotations") or {}).get(ROTATED, "")
    return kept if kept and rotated == wanted_rotation(body) else secrets.token_urlsafe(_BYTES)


def wanted_rotation(body: Mapping[str, Any]) -> str:
    """Return what the queue's annotation says now; another text asks for other passwords."""
    return str((body["metadata"].get("annotations") or {}).get(ROTATE, ""))


def same(found: Mapping[str, Any] | None, wanted: Mapping[str, Any]) -> bool:
    """Tell whether an object in the cluster has all that we want of it."""
    content = wanted.keys() - {"apiVersion", "kind", "metadata"}
    return (
        found is not None
        and all(found.get(key) == wanted[key] for key in content)
        and is_marked(found, wanted)
    )


def is_marked(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Tell whether an object in the cluster can be known for ours: owner, labels, annotations."""
    metadata, ours = found["metadata"], wanted["metadata"]
    owners = {owner["uid"] for owner in metadata.get("ownerReferences") or ()}
    return (
        ours["ownerReferences"][0]["uid"] in owners
        and ours["labels"].items() <= (metadata.get("labels") or {}).items()
        and ours.get("annotations", {}).items() <= (metadata.get("annotations") or {}).items()
    )


def text(secret: Mapping[str, Any] | None, key: str) -> str:
    """Read one key of a Secret; what is not there or not text is empty."""
    encoded = ((secret or {}).get("data") or {}).get(key)
    try:
        return base64.b64decode(encoded or "").decode()
    except ValueError:
        return ""


def _secret(metadata: Manifest, kind: str, keys: Mapping[str, str]) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": kind,
        "metadata": metadata,
        "data": {key: base64.b64encode(value.encode()).decode() for key, value in keys.items()},
    }


def metadata_of(body: Mapping[str, Any], name: str) -> Manifest:
    """Return the metadata of an object that belongs to a queue and goes with it."""
    queue = body["metadata"]
    return {
        "name": name,
        "namespace": queue["namespace"],
        "labels": {"app.kubernetes.io/managed-by": FIELD_MANAGER, QUEUE_LABEL: queue["name"]},
        "ownerReferences": [
            {
                "apiVersion": API_VERSION,
                "kind": "NamedQueue",
                "name": queue["name"],
                "uid": queue["uid"],
                "controller": True,
                "blockOwnerDeletion": False,
            }
        ],
    }
