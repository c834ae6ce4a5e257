"""Why something was refused: a status, a stable code, and a sentence that says what to do."""


class Problem(Exception):  # noqa: N818  # RFC 9457 calls it a problem
    """An answer that is not what the caller wanted."""

    def __init__(
        self, status: int, code: str, detail: str, *, retry_after: int | None = None
    ) -> None:
        super().__init__(detail)
        self.status, self.code, self.detail, self.retry_after = status, code, detail, retry_after


def invalid(detail: str) -> Problem:
    """Return the problem of a request that cannot be understood."""
    return Problem(400, "INVALID_REQUEST", detail)
