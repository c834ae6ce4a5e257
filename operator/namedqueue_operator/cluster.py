"""The Kubernetes API, as far as the operator uses it.

Objects are plain JSON here. What we own is written by server-side apply under one field manager;
status by a JSON patch that holds only for the version of the object that it was made from.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias
from uuid import uuid4

from kubernetes.aio import client, config

from namedqueue.api import API_VERSION, GROUP, VERSION
from namedqueue_operator import FIELD_MANAGER, QUEUE_LABEL

Object: TypeAlias = dict[str, Any]

_APPLY: Final = "application/apply-patch+yaml"
_MERGE_PATCH: Final = "application/merge-patch+json"
_JSON_PATCH: Final = "application/json-patch+json"
_WEBHOOKS: Final = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
_DEADLINE: Final = 30.0
_LONGEST_NOTE: Final = 1024
_NOT_FOUND: Final = 404
_CONFLICT: Final = 409
_UNPROCESSABLE: Final = 422


class Refused(Exception):  # noqa: N818  # «raise Refused» says it
    """The API server said no."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class Stale(Exception):  # noqa: N818  # «raise Stale» says it
    """The object has changed since it was read."""


class NoCluster(Exception):  # noqa: N818  # what it says is what is wrong
    """Nothing says where the cluster is."""


async def _load_kubeconfig(known: client.Configuration) -> None:
    try:
        await config.load_kube_config(client_configuration=known)  # type: ignore[no-untyped-call]  # it has few types
    except (config.ConfigException, TypeError) as error:  # an empty file is a TypeError to it
        raise NoCluster(
            f"no cluster: this is no pod with a service account, and there is no usable kubeconfig "
            f"({error}); set KUBECONFIG"
        ) from None


class Cluster:
    """An API server, under the operator's own identity."""

    def __init__(self, api: Any) -> None:
        self._api = api

    @classmethod
    async def connect(cls) -> "Cluster":
        """Use the pod's service account, or else the kubeconfig that kubectl would use."""
        known = client.Configuration()
        try:
            config.load_incluster_config(known)  # type: ignore[no-untyped-call]  # it has few types
        except config.ConfigException:
            await _load_kubeconfig(known)
        return cls(client.ApiClient(known))

    async def close(self) -> None:
        """Close the connections."""
        await self._api.close()

    async def queue(self, namespace: str, name: str) -> Object | None:
        """Return a NamedQueue as it is now."""
        return await self._read(f"{_queues(namespace)}/{name}")

    async def secret(self, namespace: str, name: str) -> Object | None:
        """Return a Secret."""
        return await self._read(f"/api/v1/namespaces/{namespace}/secrets/{name}")

    async def read(self, manifest: Mapping[str, Any]) -> Object | None:
        """Return an object as it is now, or None if there is none of its name."""
        return await self._read(place_of(manifest))

    async def children(self, kind: str, namespace: str | None) -> list[Object]:
        """List the objects of a kind that belong to queues, in a namespace or in all."""
        root = "/apis/apps/v1" if kind == "deployments" else "/api/v1"
        place = root if namespace is None else f"{root}/namespaces/{namespace}"
        answer = await self._call("GET", f"{place}/{kind}", query={"labelSelector": QUEUE_LABEL})
        found: list[Object] = answer["items"]
        return found

    async def apply(self, manifest: Object, *, manager: str = FIELD_MANAGER) -> Object:
        """Make an object what we say, and leave alone what others say about it."""
        applied: Object = await self._call(
            "PATCH",
            place_of(manifest),
            body=manifest,
            content_type=_APPLY,
            query={"fieldManager": manager, "force": "true"},
        )
        return applied

    async def delete(self, manifest: Mapping[str, Any]) -> None:
        """Remove exactly this object and, in the background, what belongs to it."""
        exactly = {"uid": manifest["metadata"]["uid"]}
        try:
            await self._call(
                "DELETE",
                place_of(manifest),
                body={"propagationPolicy": "Background", "preconditions": exactly},
            )
        except Refused as refusal:
            if refusal.status not in {_NOT_FOUND, _CONFLICT}:
                raise

    async def patch_status(self, body: Mapping[str, Any], changes: Sequence[Object]) -> Object:
        """Change the status of exactly this version of an object of ours, or raise `Stale`."""
        version = body["metadata"]["resourceVersion"]
        guard = {"op": "test", "path": "/metadata/resourceVersion", "value": version}
        try:
            changed: Object = await self._call(
                "PATCH",
                f"{place_of(body)}/status",
                body=[guard, *changes],
                content_type=_JSON_PATCH,
                query={"fieldManager": FIELD_MANAGER},
            )
        except Refused as refusal:
            if refusal.status in {_NOT_FOUND, _CONFLICT, _UNPROCESSABLE}:
                raise Stale from None
            raise
        return changed

    async def scale(self, deployment: tuple[str, str], replicas: int) -> int:
        """Ask a Deployment for a number of replicas; return the version that it has since."""
        namespace, name = deployment
        scale = await self._call(
            "PATCH",
            f"/apis/apps/v1/namespaces/{namespace}/deployments/{name}/scale",
            body={"spec": {"replicas": replicas}},
            content_type=_MERGE_PATCH,
            query={"fieldManager": FIELD_MANAGER},
        )
        return int(scale["metadata"]["resourceVersion"])

    async def pods(self, namespace: str, selector: str) -> list[Object]:
        """List the pods that a selector selects."""
        query = {"labelSelector": selector}
        answer = await self._call("GET", f"/api/v1/namespaces/{namespace}/pods", query=query)
        found: list[Object] = answer["items"]
        return found

    async def annotate_pod(self, pod: Mapping[str, Any], notes: Mapping[str, str | None]) -> None:
        """Change annotations of a pod, None to take one away; a pod that is gone needs none."""
        metadata = pod["metadata"]
        try:
            await self._call(
                "PATCH",
                f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}",
                body={"metadata": {"annotations": dict(notes)}},
                content_type=_MERGE_PATCH,
                query={"fieldManager": FIELD_MANAGER},
            )
        except Refused as refusal:
            if refusal.status != _NOT_FOUND:
                raise

    async def lease(self, namespace: str, name: str) -> Object | None:
        """Return a Lease."""
        return await self._read(f"{_leases(namespace)}/{name}")

    async def write_lease(self, lease: Object) -> None:
        """Make or change a Lease; one that somebody else changed meanwhile is refused."""
        metadata = lease["metadata"]
        path = _leases(metadata["namespace"])
        if "resourceVersion" in metadata:
            await self._call("PUT", f"{path}/{metadata['name']}", body=lease)
        else:
            await self._call("POST", path, body=lease)

    async def write_secret(self, secret: Object) -> None:
        """Make or change a Secret; one that somebody else changed meanwhile is refused."""
        metadata = secret["metadata"]
        if "resourceVersion" in metadata:
            await self._call("PUT", place_of(secret), body=secret)
        else:
            path = f"/api/v1/namespaces/{metadata['namespace']}/secrets"
            await self._call("POST", path, body=secret)

    async def webhook_configuration(self, name: str) -> Object | None:
        """Return a MutatingWebhookConfiguration."""
        return await self._read(f"{_WEBHOOKS}/{name}")

    async def trust_webhook(self, configuration: Mapping[str, Any], bundle: str) -> None:
        """Tell the API server which authorities vouch for the webhooks of a configuration."""
        metadata = configuration["metadata"]
        version = metadata["resourceVersion"]
        guard = {"op": "test", "path": "/metadata/resourceVersion", "value": version}
        changes = [
            {"op": "add", "path": f"/webhooks/{number}/clientConfig/caBundle", "value": bundle}
            for number in range(len(configuration["webhooks"]))
        ]
        await self._call(
            "PATCH",
            f"{_WEBHOOKS}/{metadata['name']}",
            body=[guard, *changes],
            content_type=_JSON_PATCH,
            query={"fieldManager": FIELD_MANAGER},
        )

    async def event(self, body: Mapping[str, Any], kind: str, reason: str, note: str) -> None:
        """Tell about a queue or a redrive what `kubectl describe` shows."""
        metadata = body["metadata"]
        now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        event = {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {
                "name": f"{metadata['name']}.{uuid4().hex[:16]}",
                "namespace": metadata["namespace"],
            },
            "eventTime": now,
            "type": kind,
            "reason": reason,
            "action": "Reconcile",
            "note": note if len(note) <= _LONGEST_NOTE else f"{note[: _LONGEST_NOTE - 1]}…",
            "reportingController": f"{GROUP}/operator",
            "reportingInstance": FIELD_MANAGER,
            "regarding": {
                "apiVersion": API_VERSION,
                "kind": body["kind"],
                "name": metadata["name"],
                "namespace": metadata["namespace"],
                "uid": metadata["uid"],
            },
        }
        path = f"/apis/events.k8s.io/v1/namespaces/{metadata['namespace']}/events"
        await self._call("POST", path, body=event)

    async def _read(self, path: str) -> Object | None:
        try:
            found: Object = await self._call("GET", path)
        except Refused as refusal:
            if refusal.status == _NOT_FOUND:
                return None
            raise
        return found

    async def _call(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        content_type: str = "application/json",
        query: Mapping[str, str] | None = None,
    ) -> Any:
        call = await self._api.param_serialize(
            method,
            path,
            query_params=list((query or {}).items()),
            header_params={"Content-Type": content_type, "Accept": "application/json"},
            body=body,
            auth_settings=["BearerToken"],
        )
        response = await self._api.call_api(*call, _request_timeout=_DEADLINE)
        text = await response.read()
        if not 200 <= response.status < 300:  # noqa: PLR2004  # what success is in HTTP
            said = _message(text) or response.status
            raise Refused(response.status, f"{method} {path}: {said}")
        return json.loads(text or b"null")


def place_of(manifest: Mapping[str, Any]) -> str:
    """Return where the API server keeps an object, of any namespaced kind that we write."""
    version, kind, metadata = manifest["apiVersion"], manifest["kind"], manifest["metadata"]
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    return f"{root}/namespaces/{metadata['namespace']}/{kind.lower()}s/{metadata['name']}"


def _message(text: bytes) -> str:
    """Return what a Status says; one that has too much to do, or a proxy, answers without it."""
    try:
        status = json.loads(text)
    except ValueError:
        return ""
    return str(status.get("message") or "") if isinstance(status, dict) else ""


def _leases(namespace: str) -> str:
    return f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"


def _queues(namespace: str) -> str:
    return f"/apis/{GROUP}/{VERSION}/namespaces/{namespace}/namedqueues"
