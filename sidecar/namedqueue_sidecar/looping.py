"""The event loop that jobs run on, and the garbage collector beside it."""

import gc
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

import uvloop

T = TypeVar("T")

_ALLOCATIONS: Final = 100_000
"""How many more objects there must be before the collector looks; Python's own is 700."""


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a data plane until it ends.

    Jobs are tuples and bytes without circles, and gone as soon as nobody holds them. The collector
    finds nothing in them, but it would walk over all that are in flight again and again, for a
    tenth of what an enqueue costs. So it looks seldom, and never at what was there from the start.
    """
    gc.freeze()
    gc.set_threshold(_ALLOCATIONS, 20, 50)
    return uvloop.run(main)
