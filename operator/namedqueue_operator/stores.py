"""Where the store of the sidecars is, read from a Secret in the form of a Service Binding.

The operator never speaks to the database. It reads the Secret anew for each look and hands on what
a sidecar needs, to those queues that can use it. The account is in no representation.

A Secret that is missing or wrong takes nothing away: sidecars keep the address that they have.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

from namedqueue_operator.children import Manifest, text
from namedqueue_operator.conditions import STORE_BOUND, Answer, find, no, yes
from namedqueue_operator.inventory import Body
from namedqueue_operator.troubles import StoreTrouble

_URIS: Final = ("connection_string", "uri")
_PARTS: Final = ("host", "username", "password", "database")
_KEYS: Final = (*_URIS, *_PARTS, "port", "ca.crt")
_POSTGRESQL: Final = 5432
_SET_ONE: Final = (
    "start the operator with --store or --store-secret, or set store.secretName of the chart"
)


@dataclass(frozen=True)
class Store:
    """A database that sidecars can be sent to: where it is, and the keys that say so to them."""

    place: str
    keys: Mapping[str, str] = field(repr=False)


Provision: TypeAlias = Store | StoreTrouble | None
"""What the operator has for sidecars: a store, the trouble with it, or none that was asked for."""

ReadStore: TypeAlias = Callable[[], Awaitable[Provision]]
"""Tells what there is of a store at this moment; a trouble is an answer and never raised."""


def read(data: Mapping[str, str], *, where: str) -> Store:
    """Return the store that a Secret describes, or say what is missing in it."""
    known = {key: data[key].strip() for key in _KEYS if data.get(key, "").strip()}
    authority = {key: known[key] for key in ("ca.crt",) if key in known}
    for key in _URIS:
        if key in known:
            keys = {"connection_string": known[key], **authority}
            return Store(_place(known[key], f"{key} of {where}"), keys)
    missing = [key for key in _PARTS if key not in known]
    if missing:
        raise _invalid(
            f"{where} lacks {', '.join(missing)}; write host, username, password and database, "
            "or connection_string"
        )
    port = known.setdefault("port", str(_POSTGRESQL))
    if not (port.isascii() and port.isdigit() and 0 < int(port) < 2**16):
        raise _invalid(f"port of {where} is not a number from 1 to 65535")
    place = f"{known['host']}:{port}/{known['database']}"
    return Store(place, {key: known[key] for key in (*_PARTS, "port")} | authority)


def read_folder(folder: Path) -> Store:
    """Return the store of a mounted Secret, as it is now."""
    if not folder.is_dir():
        raise StoreTrouble("SecretMissing", f"the folder {folder} is not there; mount the Secret")
    files = {key: folder / key for key in _KEYS}
    data = {key: file.read_text() for key, file in files.items() if file.is_file()}
    return read(data, where=f"the folder {folder}")


def read_secret(found: Manifest | None, source: tuple[str, str]) -> Store:
    """Return the store in a Secret, or say what is wrong with it."""
    namespace, name = source
    if found is None:
        raise StoreTrouble(
            "SecretMissing",
            f"Secret {name} is not in namespace {namespace}; create it with host, username, "
            "password and database, or correct the operator's --store-secret",
        )
    data = {key: text(found, key) for key in _KEYS}
    return read(data, where=f"Secret {name} in namespace {namespace}")


def serves(body: Body) -> bool:
    """Tell whether a queue has a use for a store: only durable jobs have keys and dead letters."""
    return _spec(body).get("type") in {None, "durable"}


def given(body: Body, provision: Provision, *, had_one: bool) -> Mapping[str, str] | None:
    """Return the keys that a queue's own Secret shall have; None leaves alone what there is.

    Where there shall be no store, a Secret that had one is emptied: we may not delete Secrets.
    """
    if isinstance(provision, Store):
        return provision.keys if serves(body) else None
    return {} if provision is None and had_one else None


def answers(body: Body, provision: Provision) -> dict[str, Answer]:
    """Answer whether a queue's sidecars have the store; nothing where nobody would ask."""
    if not serves(body):
        return {}
    if isinstance(provision, Store):
        return {STORE_BOUND: yes("Bound", f"sidecars are sent to the store at {provision.place}")}
    if _spec(body).get("idempotency"):
        return {STORE_BOUND: _lacking(provision)}
    if provision is not None:
        words = f"no sidecar needs the store, and dead letters get no records: {provision}"
        return {STORE_BOUND: yes("NotNeeded", words)}
    if find(body.get("status") or {}, STORE_BOUND):
        return {STORE_BOUND: yes("NotNeeded", "no sidecar needs a store, and there is none")}
    return {}


def _lacking(trouble: StoreTrouble | None) -> Answer:
    if trouble is None:
        return no("NoStore", f"spec.idempotency needs a store; {_SET_ONE}")
    return no(trouble.reason, f"spec.idempotency needs the store: {trouble}")


def _spec(body: Body) -> Mapping[str, Any]:
    return body.get("spec") or {}


def _place(uri: str, which: str) -> str:
    """Return where an address leads, without the account that stands in it."""
    try:
        parts = urlsplit(uri)
        port = parts.port or _POSTGRESQL
    except ValueError:
        raise _invalid(f"{which} is not an address") from None
    database = parts.path[1:]
    if parts.scheme not in {"postgresql", "postgres"} or not parts.hostname or not database:
        raise _invalid(f"{which} is not postgresql:// with a host and a database")
    return f"{parts.hostname}:{port}/{database}"


def _invalid(sentence: str) -> StoreTrouble:
    return StoreTrouble("SecretInvalid", sentence)
