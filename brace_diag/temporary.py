"""The temporary file behind an atomic write: told from others, locked while its writer lives."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
from pathlib import Path


class TemporaryFile:
    """An empty file beside `target`, to be filled and renamed to it; the caller calls `drop`.

    Its name is hidden (readers pass it over) and in the target's folder (a rename is atomic there).
    The process holds a lock on it that ends with the process, however that ends. Files of that
    pattern that nobody holds are left by writers that were killed: making a new one removes them.
    On file systems without locks they stay.

    Attributes:
        path: where the file is.
    """

    def __init__(self, target: Path) -> None:
        remove_stale(target)
        while True:
            self.path = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
            self._lock = os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o666)
            _try_lock(self._lock)
            # Another process may have taken it for stale before it was locked.
            if self.path.exists():
                return
            os.close(self._lock)

    def drop(self) -> None:
        """Remove the file, if it still has its temporary name, and let go of it."""
        with contextlib.suppress(OSError):
            self.path.unlink()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def remove_stale(target: Path) -> None:
    """Remove the temporary files of `target` whose writers are dead."""
    pattern = re.compile(re.escape(f".{target.name}.") + r"[0-9a-f]{8}\.tmp")
    for path in target.parent.iterdir():
        if pattern.fullmatch(path.name):
            with contextlib.suppress(OSError):
                _remove_unless_held(path)


def _remove_unless_held(path: Path) -> None:
    descriptor = os.open(path, os.O_RDWR)
    try:
        if _try_lock(descriptor):
            path.unlink()
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
    """Whether the file is ours now; False where another process holds it, or nobody can tell."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
