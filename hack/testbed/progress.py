"""What a person sees while something takes time: one line a step, with how long it took."""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

_REMIND_SECONDS = 15.0


@contextmanager
def step(what: str) -> Iterator[None]:
    """Say what begins, remind every 15 s that it goes on, and say how it ended."""
    began = time.monotonic()
    done = threading.Event()
    reminder = threading.Thread(target=_remind, args=(what, began, done), daemon=True)
    _say(f"{what} …")
    reminder.start()
    try:
        yield
    except BaseException:
        _say(f"{what}: failed after {_elapsed(began)}")
        raise
    else:
        _say(f"{what}: done in {_elapsed(began)}")
    finally:
        done.set()
        reminder.join()


def say(line: str) -> None:
    """Say one fact."""
    _say(line)


def _remind(what: str, began: float, done: threading.Event) -> None:
    while not done.wait(_REMIND_SECONDS):
        _say(f"{what}: {_elapsed(began)} so far")


def _elapsed(began: float) -> str:
    return f"{time.monotonic() - began:.1f} s"


def _say(line: str) -> None:
    print(f"[testbed] {line}", file=sys.stderr, flush=True)
