"""The NamedQueues that exist, as the watch last told, and one lock for each.

The drift loop walks over this instead of listing anything, so that a quiet cluster is not asked.
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from namedqueue_operator import metrics

Key: TypeAlias = tuple[str, str]
Body: TypeAlias = Mapping[str, Any]


def key_of(body: Body) -> Key:
    """Return the namespace and the name of an object."""
    return (body["metadata"]["namespace"], body["metadata"]["name"])


def is_going(body: Body) -> bool:
    """Tell whether somebody has deleted the object; its finalizer may still hold it."""
    return "deletionTimestamp" in body["metadata"]


def is_same(one: Body, other: Body) -> bool:
    """Tell an object from another of the same name that was made after it had gone."""
    return bool(one["metadata"]["uid"] == other["metadata"]["uid"])


class Inventory:
    """What exists, newest version known."""

    def __init__(self) -> None:
        self._bodies: dict[Key, Body] = {}
        self._locks: defaultdict[Key, asyncio.Lock] = defaultdict(asyncio.Lock)

    def put(self, body: Body) -> None:
        """Learn of an object, unless a newer version of it is known."""
        known = self._bodies.get(key_of(body))
        if known is None or not _newer(known, body):
            self._bodies[key_of(body)] = body

    def renew(self, body: Body) -> None:
        """Learn what we wrote ourselves, unless the object is gone by now, or is another one."""
        known = self._bodies.get(key_of(body))
        if known is not None and is_same(known, body):
            self.put(body)

    def drop(self, body: Body) -> None:
        """Forget an object that is gone; another of its name may be known already."""
        key = key_of(body)
        known = self._bodies.get(key)
        if known is None or not is_same(known, body):
            return
        del self._bodies[key]
        metrics.forget(*key)
        if key in self._locks and not self._locks[key].locked():
            del self._locks[key]

    def get(self, key: Key) -> Body | None:
        """Return an object, or None if it is gone."""
        return self._bodies.get(key)

    def lock(self, key: Key) -> asyncio.Lock:
        """Return what keeps two from working on one queue at once."""
        return self._locks[key]

    def __iter__(self) -> Iterator[Body]:
        return iter(tuple(self._bodies.values()))


def _newer(one: Body, other: Body) -> bool:
    """Compare versions of one object; another object of the same name is never older."""
    if not is_same(one, other):
        return False
    first, second = one["metadata"], other["metadata"]
    return int(first["resourceVersion"]) > int(second["resourceVersion"])
