"""Why something was refused: a status, a stable code, and a sentence that says what to do."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

_LONGEST_DETAIL: Final = 1000
_NO_HEADERS: Final[Mapping[str, str]] = MappingProxyType({})
_RETRY_AFTER: Final[Mapping[str, str]] = MappingProxyType({"Retry-After": "1"})


class Problem(Exception):  # noqa: N818  # RFC 9457 calls it a problem
    """An answer that is not what the caller wanted."""

    def __init__(
        self, status: int, code: str, detail: str, headers: Mapping[str, str] = _NO_HEADERS
    ) -> None:
        """Keep a detail that any caller can be told: not too long, and writable as UTF-8."""
        self.detail = detail[:_LONGEST_DETAIL].encode(errors="replace").decode()
        super().__init__(self.detail)
        self.status, self.code, self.headers = status, code, headers


def invalid(detail: str) -> Problem:
    """Return the problem of a request that cannot be understood."""
    return Problem(400, "INVALID_REQUEST", detail)


def too_large(detail: str) -> Problem:
    """Return the problem of a body beyond the limits."""
    return Problem(413, "PAYLOAD_TOO_LARGE", detail)


def unavailable(detail: str) -> Problem:
    """Return the problem of a broker that is away; it may be back in a moment."""
    return Problem(503, "BROKER_UNAVAILABLE", detail, _RETRY_AFTER)


def full(detail: str) -> Problem:
    """Return the problem of a queue without room; it may have some in a moment."""
    return Problem(429, "QUEUE_FULL", detail, _RETRY_AFTER)
