"""Where a broker is and who we are there, read from a Secret in the form of a Service Binding.

A Secret comes from an API server or as a mounted folder; either is a mapping of text here. The
password and the certificate are in no representation.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from yarl import URL

from namedqueue.topology import Tenancy
from namedqueue_operator.troubles import BrokerTrouble

KEYS: Final = (
    "connection_string",
    "host",
    "port",
    "username",
    "password",
    "management_uri",
    "ca.crt",
    "vhost",
    "tenancy",
)
_AMQP: Final = {False: 5672, True: 5671}
_MANAGEMENT: Final = {False: 15672, True: 15671}


@dataclass(frozen=True, kw_only=True)
class Account:
    """An account on a broker. `vhost` is where queues live when tenancy is shared.

    With `tls` and no `authority` the broker is one that the system's authorities vouch for.
    """

    host: str
    port: int
    username: str = field(repr=False)
    password: str = field(repr=False)
    management: str
    tls: bool = False
    authority: str | None = field(default=None, repr=False)
    vhost: str = "/"
    tenancy: Tenancy = Tenancy.DEDICATED

    @property
    def place(self) -> str:
        """Where the broker is, for people."""
        return f"{self.host}:{self.port}"


def read(data: Mapping[str, str], *, where: str, tenancy: Tenancy) -> Account:
    """Return the account that a Secret describes, or say what is missing in it."""
    known = {key: data[key].strip() for key in KEYS if data.get(key, "").strip()}
    known |= _connection(known.get("connection_string"), where)
    missing = [key for key in ("host", "username", "password") if key not in known]
    if missing:
        raise _invalid(
            f"{where} lacks {', '.join(missing)}; write host, username and password, "
            "or connection_string"
        )
    tls = "ca.crt" in known or known.get("scheme") == "amqps"
    return Account(
        host=known["host"],
        port=_port(known.get("port"), where, _AMQP[tls]),
        username=known["username"],
        password=known["password"],
        management=_management(known, where, tls=tls),
        tls=tls,
        authority=known.get("ca.crt"),
        vhost=known.get("vhost", "/"),
        tenancy=_tenancy(known.get("tenancy"), where, tenancy),
    )


def read_folder(folder: Path, *, tenancy: Tenancy) -> Account:
    """Return the account of a mounted Secret, as it is now."""
    if not folder.is_dir():
        raise BrokerTrouble("SecretMissing", f"the folder {folder} is not there; mount the Secret")
    files = {key: folder / key for key in KEYS}
    data = {key: file.read_text() for key, file in files.items() if file.is_file()}
    return read(data, where=f"the folder {folder}", tenancy=tenancy)


def _connection(text: str | None, where: str) -> dict[str, str]:
    """Take an address apart; what it says wins over the single keys."""
    if text is None:
        return {}
    try:
        url = URL(text)
        port = url.explicit_port
    except ValueError:
        raise _invalid(f"connection_string of {where} is not an address") from None
    if url.scheme not in {"amqp", "amqps"} or not url.host:
        raise _invalid(f"connection_string of {where} is not amqp:// or amqps:// with a host")
    vhost = url.path.removeprefix("/")
    parts = {
        "scheme": url.scheme,
        "host": url.host,
        "port": "" if port is None else str(port),
        "username": url.user or "",
        "password": url.password or "",
        "vhost": vhost,
    }
    return {key: value for key, value in parts.items() if value}


def _port(text: str | None, where: str, default: int) -> int:
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and 0 < int(text) < 2**16):
        raise _invalid(f"port of {where} is not a number from 1 to 65535")
    return int(text)


def _management(known: Mapping[str, str], where: str, *, tls: bool) -> str:
    """Return the management API's address, without an account that may stand in it."""
    text = known.get("management_uri")
    if text is None:
        host = f"[{known['host']}]" if ":" in known["host"] else known["host"]
        return f"{'https' if tls else 'http'}://{host}:{_MANAGEMENT[tls]}"
    try:
        url = URL(text)
        usable = url.scheme in {"http", "https"} and url.host is not None
        bare = url.with_user(None).with_query(None).with_fragment(None) if usable else None
    except ValueError:
        bare = None
    if bare is None:
        raise _invalid(f"management_uri of {where} is not http:// or https:// with a host")
    return str(bare).rstrip("/").removesuffix("/api")


def _tenancy(text: str | None, where: str, default: Tenancy) -> Tenancy:
    try:
        return default if text is None else Tenancy(text)
    except ValueError:
        raise _invalid(f"tenancy of {where} is neither {' nor '.join(Tenancy)}") from None


def _invalid(sentence: str) -> BrokerTrouble:
    return BrokerTrouble("SecretInvalid", sentence)
