"""Questions to the API, from the driver and from tasks: asked again while it is away.

Batches have a way of their own in `sending`, with several in flight; what is read comes one page
after the other, on one connection.
"""

import json
import random
import time
from collections.abc import Mapping
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any, Final, Self
from urllib.parse import quote, urlencode, urlsplit

_SECONDS: Final = 90.0
"""Longer than the API lets anybody wait."""

_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 5.0
_LATER: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
_FIRST_ERROR: Final = 400


class Refusal(Exception):  # noqa: N818  # it reads as what it is
    """The API will never answer this as it was asked; `code` says why."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code = code


def connect(endpoint: str, seconds: float = _SECONDS) -> HTTPConnection:
    """Return a connection to the API; it opens itself when it is first used."""
    parts = urlsplit(endpoint)
    kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    return kind(str(parts.hostname), parts.port, timeout=seconds)


def path(*parts: str) -> str:
    """Return a path of the API from its parts, each written so that it stays one part."""
    return "/v1/" + "/".join(quote(part, safe="") for part in parts)


class Api:
    """Asks one API, for as long as `patience` says that nothing may come back."""

    def __init__(self, endpoint: str, patience: float) -> None:
        self._endpoint, self._patience = endpoint, patience
        self._connection = connect(endpoint)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def get(self, target: str, **query: str | int | None) -> dict[str, Any]:
        """Return a document; what is None is not asked for."""
        given = {name.rstrip("_"): value for name, value in query.items() if value is not None}
        return self._ask("GET", f"{target}?{urlencode(given)}" if given else target)

    def post(self, target: str, document: Mapping[str, Any]) -> dict[str, Any]:
        """Send a document that may be sent twice, and return the answer."""
        return self._ask("POST", target, json.dumps(document).encode())

    def _ask(self, method: str, target: str, body: bytes | None = None) -> dict[str, Any]:
        began, pause = time.monotonic(), _FIRST_PAUSE
        while True:
            try:
                status, document = self._exchange(method, target, body)
            except (OSError, HTTPException) as error:
                self._connection.close()
                why = f"no answer: {str(error) or type(error).__name__}"
            else:
                if status < _FIRST_ERROR:
                    return document
                why = f"{document.get('code', status)}: {document.get('detail', '')}"
                if status not in _LATER:
                    raise Refusal(str(document.get("code")), f"{method} {target} answers {why}")
            if time.monotonic() + pause - began > self._patience:
                raise TimeoutError(
                    f"{self._endpoint} gave nothing for {self._patience:g} s, the option "
                    f"patience; {method} {target} had {why}"
                )
            time.sleep(pause * random.uniform(0.5, 1))  # noqa: S311  # no secret
            pause = min(pause * 2, _LONGEST_PAUSE)

    def _exchange(self, method: str, target: str, body: bytes | None) -> tuple[int, dict[str, Any]]:
        self._connection.request(method, target, body)
        response = self._connection.getresponse()
        return response.status, document_of(response.read())


def document_of(body: bytes) -> dict[str, Any]:
    """Read an answer; what stands between us and the API may answer with anything."""
    try:
        document = json.loads(body)
    except ValueError:
        return {"detail": body[:200].decode(errors="replace")}
    return document if isinstance(document, dict) else {}
