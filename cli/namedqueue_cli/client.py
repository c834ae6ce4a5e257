"""The data plane's HTTP API, as the commands use it."""

import json
import os
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote, urlencode

import click
import urllib3

DEFAULT_SERVER = "http://127.0.0.1:3550"
_FIRST_ERROR = 400
_PAGE = 500
_PATIENCE = 60.0


class Refused(click.ClickException):
    """The data plane said no; its own sentence tells why."""

    def __init__(self, status: int, document: Any) -> None:
        known = document if isinstance(document, dict) else {}
        self.status, self.code = status, str(known.get("code", f"HTTP_{status}"))
        super().__init__(f"{known.get('detail', 'the data plane refused')} ({self.code})")


class Client:
    """Talks to one data plane; every failure is a sentence."""

    def __init__(self, server: str | None = None) -> None:
        self.server = (server or os.environ.get("NQ_URL") or DEFAULT_SERVER).rstrip("/")
        self._http = urllib3.PoolManager(retries=False)

    def call(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        patience: float | None = _PATIENCE,
    ) -> Any:
        """Return the answer's JSON, or raise what the person should read."""
        for name, value in (headers or {}).items():
            if not (value.isascii() and value.isprintable()):
                raise click.UsageError(f"{name} takes printable ASCII only, not {value!r}")
        try:
            answer = self._http.request(
                method,
                f"{self.server}{path}",
                body=body,
                headers=dict(headers or {}),
                timeout=urllib3.Timeout(connect=_PATIENCE, read=patience),
            )
        except urllib3.exceptions.HTTPError:
            raise click.ClickException(
                f"nothing answers at {self.server}; start it with `nq run`, "
                "or name another with --server"
            ) from None
        try:
            document = json.loads(answer.data) if answer.data else None
        except ValueError:  # something that stands between us, or another server
            if answer.status < _FIRST_ERROR:
                raise click.ClickException(
                    f"what answers at {self.server} is no data plane; name another with --server"
                ) from None
            document = None
        if answer.status >= _FIRST_ERROR:
            raise Refused(answer.status, document)
        return document

    def queues(self) -> list[dict[str, Any]]:
        """Return all queues."""
        items: list[dict[str, Any]] = self.call("GET", "/v1/queues")["items"]
        return items

    def dead_letters(
        self, queue: str, search: Mapping[str, str | None], at_once: int = _PAGE
    ) -> Iterator[dict[str, Any]]:
        """Yield dead letters, oldest first, page by page."""
        after: str | None = None
        while True:
            wanted = {**search, "limit": str(min(at_once, _PAGE)), "after": after}
            query = urlencode({name: value for name, value in wanted.items() if value is not None})
            page = self.call("GET", f"{queue_path(queue)}/dead-letters?{query}")
            yield from page["items"]
            after = page["next"]
            if after is None:
                return


def queue_path(queue: str) -> str:
    """Return the path of a queue."""
    return f"/v1/queues/{quote(queue, safe='')}"


def stream_path(queue: str) -> str:
    """Return the path of a stream."""
    return f"/v1/streams/{quote(queue, safe='')}"


def server_option(command: click.decorators.FC) -> click.decorators.FC:
    """Add `--server` to a command."""
    return click.option(
        "--server",
        metavar="URL",
        help=f"The data plane; $NQ_URL, else {DEFAULT_SERVER}.",
    )(command)
