"""Small text files, whole or not there at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from brace_diag.errors import InputError


def refuse_to_replace(path: Path, *, force: bool) -> None:
    """Say what to do about a file that is in the way."""
    if path.exists() and not force:
        raise InputError(f"{path} exists; choose another name, or replace it with --force")


@contextmanager
def whole_file(path: Path, *, force: bool) -> Iterator[Path]:
    """A temporary file beside `path`, which takes its place once the block has ended well."""
    refuse_to_replace(path, force=force)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        yield temporary
        with open(temporary, "rb") as written:
            os.fsync(written.fileno())
        refuse_to_replace(path, force=force)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
