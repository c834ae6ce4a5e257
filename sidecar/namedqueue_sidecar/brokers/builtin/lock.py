"""One process at a time.

The operating system drops the lock with the process, however it ends, so nothing stale is ever
left to clean up. The file's text only tells the next one whom to ask.
"""

import fcntl
import os
from pathlib import Path
from typing import IO

from namedqueue_sidecar.brokers.builtin.storage import StorageError


class FolderLock:
    """Holds a folder for this process, from creation to `release`."""

    def __init__(self, folder: Path) -> None:
        """Take the lock, or raise a StorageError that names the process that has it."""
        path = folder / "lock"
        self._file: IO[str] = path.open("a+", encoding="ascii")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._file.seek(0)
            owner = self._file.read(20).strip()
            self._file.close()
            who = f"process {owner}" if owner.isdigit() else "another process"
            raise StorageError(
                f"{folder} is in use by {who}; stop it first, or choose another folder"
            ) from None
        self._file.truncate(0)
        self._file.write(f"{os.getpid()}\n")
        self._file.flush()

    def release(self) -> None:
        """Let the next process in."""
        self._file.truncate(0)
        self._file.close()
