"""Where the test bed keeps things: what was built once, and what is running now.

Neither lies in the repository. The cache survives, so a second start is quick; the state of an
instance goes away when the instance is stopped.
"""

import os
from pathlib import Path


def cache_dir(*parts: str) -> Path:
    """Return a folder for what is expensive to make and safe to keep."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return _made(Path(base, "namedqueue", *parts))


def state_dir(*parts: str) -> Path:
    """Return a folder for one running instance: its data, logs and pid files."""
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return _made(Path(base, "namedqueue", *parts))


def _made(path: Path) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    return path
