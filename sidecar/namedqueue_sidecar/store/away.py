"""The one exception of the store, and how it is worded."""

from typing import Final

_LONGEST_REASON: Final = 200


class Away(Exception):  # noqa: N818  # the sentence «raise Away» says it
    """There is no store to be had; its text says why, without a secret."""


class Slow(Away):
    """The store is there, but what was asked takes it too long."""


def because(place: str, error: BaseException, secret: str = "") -> Away:
    """Word an error: the database's own first line, never the statement or its parameters."""
    root: BaseException = getattr(error, "orig", None) or error  # SQLAlchemy wraps its adapters'
    root = root.__cause__ or root  # and those wrap the driver's own
    reason = getattr(root, "strerror", None) or str(root).partition("\n")[0]
    if secret:
        reason = reason.replace(secret, "…")
    reason = reason[:_LONGEST_REASON] or type(root).__name__
    return Away(f"the store {place} cannot be used: {reason}")
