"""From what a user calls a source (file, folder, glob, URL, list of them) to files in order."""

from __future__ import annotations

import difflib
import glob
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from brace_diag.errors import InputError, MissingExtraError, ReaderError

Format = Literal["parquet", "jsonl"]

ENDINGS: dict[str, Format] = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
}
COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}
_KINDS = ".parquet, .jsonl, .ndjson or .json (also .gz, .zst)"
_GLOB = re.compile(r"[*?\[]")
_URL = re.compile(r"^[a-z][a-z0-9+.-]+://", re.IGNORECASE)
_STEP_FOLDER = re.compile(r"^step=(-?\d+)$")


@dataclass(frozen=True, slots=True)
class Place:
    """One file: its name as errors say it, its path, and the file system that holds it.

    `filesystem` is a pyarrow one, or None for the local disk.
    """

    name: str
    path: str
    filesystem: Any = None

    @property
    def format(self) -> Format | None:
        """Format by the name's ending, or None."""
        return ENDINGS.get(Path(self.bare_path).suffix.lower())

    @property
    def compression(self) -> str | None:
        """Arrow's name of the compression that wraps the file, by its ending."""
        return COMPRESSIONS.get(Path(self.path).suffix.lower())

    @property
    def bare_path(self) -> str:
        """The path without the ending of a compression."""
        path = Path(self.path)
        return str(path.with_suffix("")) if self.compression else self.path

    @property
    def folder_step(self) -> int | None:
        """Step told by the innermost folder named step=N, or None."""
        for part in reversed(self.path.split("/")[:-1]):
            match = _STEP_FOLDER.match(part)
            if match:
                return int(match[1])
        return None

    def open(self) -> Any:
        """The file as a pyarrow stream that can seek; local files are mapped into memory."""
        import pyarrow as pa

        with errors_named(self.name):
            if self.filesystem is not None:
                return self.filesystem.open_input_file(self.path)
            if Path(self.path).stat().st_size == 0:
                raise ReaderError(f"{self.name} is empty (0 bytes)")
            with open(self.path, "rb"):  # the operating system's own words on a refusal
                return pa.memory_map(self.path, "r")


@contextmanager
def errors_named(name: str) -> Iterator[None]:
    """Errors of the operating system and of pyarrow as `ReaderError`, which names the file."""
    try:
        yield
    except (ReaderError, MissingExtraError):
        raise
    except FileNotFoundError:
        raise ReaderError(f"{name}: no such file") from None
    except PermissionError as error:
        refused = error.filename or name  # of a folder, the very one below that is closed
        raise ReaderError(f"{refused} may not be read: permission denied") from None
    except OSError as error:
        raise ReaderError(f"{name} cannot be read: {_first_line(error)}") from error


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")


def find(source: Any, format: str) -> tuple[Format, list[Place]]:
    """Files of a source in natural order, and the one format that they share.

    Args:
        source: path, folder, glob or URL, or a list of these.
        format: `auto`, or the format to read: folders and globs then give files of it alone.

    Raises: ReaderError if there is nothing to read; InputError if the formats are mixed.
    """
    if format not in ("auto", "parquet", "jsonl"):
        raise InputError(f"format is {format!r}; allowed: auto, parquet, jsonl")
    parts = source if isinstance(source, (list, tuple)) else [source]
    if not parts:
        raise InputError("the source is an empty list; give at least one file")
    places: list[Place] = []
    for part in parts:
        places.extend(_expand(str(part), format))
    _check_once(places)
    return _one_format(places, format), places


def _check_once(places: list[Place]) -> None:
    seen: set[str] = set()
    for place in places:
        if place.path in seen:
            raise InputError(f"{place.name} is given more than once; a file counts once")
        seen.add(place.path)


def _one_format(places: list[Place], format: str) -> Format:
    if format == "parquet":
        return "parquet"
    if format == "jsonl":
        return "jsonl"
    kinds = {place.name: place.format or _sniff(place) for place in places}
    counts = {kind: list(kinds.values()).count(kind) for kind in sorted(set(kinds.values()))}
    if len(counts) > 1:
        told = " and ".join(f"{n} {kind}" for kind, n in counts.items())
        raise InputError(
            f"the source holds {told} files; a run has one format: "
            "choose with --format parquet or --format jsonl"
        )
    return next(iter(kinds.values()))


def _sniff(place: Place) -> Format:
    """Format by the first bytes, for a file whose name does not tell."""
    with place.open() as stream:
        head = stream.read(4096)
    if head[:4] == b"PAR1":
        return "parquet"
    if head.lstrip()[:1] == b"{":
        return "jsonl"
    raise ReaderError(
        f"{place.name} is neither Parquet nor JSON lines: it starts with {bytes(head[:16])!r}; "
        f"a log is a file named {_KINDS}"
    )


def _expand(source: str, format: str) -> list[Place]:
    if _URL.match(source):
        return _expand_url(source, format)
    path = Path(source).expanduser()
    with errors_named(source):
        if path.is_dir():
            return _in_folder(path, source, format)
        if path.exists():
            return [Place(source, str(path))]
    if _GLOB.search(source):
        return _in_glob(str(path), source, format)
    raise ReaderError(f"{source}: no such file or folder{_near(path)}")


def _near(path: Path) -> str:
    """What the user may have meant, in words, or nothing."""
    parent = path.parent
    if not parent.is_dir():
        return f" (and no folder {parent})" if str(parent) not in ("", ".") else ""
    close = difflib.get_close_matches(path.name, [p.name for p in parent.iterdir()], n=1)
    return f"; did you mean {parent / close[0]}?" if close else ""


def _in_glob(pattern: str, source: str, format: str) -> list[Place]:
    found: list[Place] = []
    for match in sorted(glob.glob(pattern, recursive=True), key=natural_order):
        if Path(match).is_dir():
            found.extend(_files_below(Path(match), format))
        elif format in ("auto", Place(match, match).format):
            found.append(Place(match, match))
    if not found:
        raise ReaderError(f"{source}: no file matches this pattern")
    # A pattern such as run/** names a folder and, again, what lies in it.
    return list({place.path: place for place in found}.values())


def _in_folder(folder: Path, source: str, format: str) -> list[Place]:
    found = _files_below(folder, format)
    if found:
        return found
    others = sorted(p.name for p in folder.iterdir())[:3]
    holds = f"it holds {', '.join(others)}" if others else "it is empty"
    wanted = _KINDS if format == "auto" else f"format {format}"
    raise ReaderError(f"folder {source} has no file to read ({holds}); a log is a file {wanted}")


def _files_below(folder: Path, format: str) -> list[Place]:
    """Log files in a folder and below; names that start with . or _ are passed over."""
    found = []
    for here, folders, files in os.walk(folder, onerror=_raise, followlinks=True):
        folders[:] = [name for name in folders if name[0] not in "._"]
        paths = [os.path.join(here, name) for name in files if name[0] not in "._"]
        found += [Place(path, path) for path in paths]
    wanted = [p for p in found if p.format is not None and format in ("auto", p.format)]
    return sorted(wanted, key=lambda p: natural_order(p.path))


def _raise(error: OSError) -> None:
    """A folder that may not be read is an error: its files would be left out without a word."""
    raise error


def natural_order(path: str) -> tuple[tuple[int, Any], ...]:
    """Sort key by which step=2 comes before step=10."""
    parts = re.split(r"(\d+)", path)
    return tuple((0, int(part)) if part.isdigit() else (1, part) for part in parts)


def _expand_url(url: str, format: str) -> list[Place]:
    from brace_diag.readers.remote import list_url

    found = [Place(name, path, filesystem) for name, path, filesystem in list_url(url)]
    wanted = [p for p in found if p.format is not None and format in ("auto", p.format)]
    if not wanted:
        raise ReaderError(f"{url}: no file to read here; a log is a file named {_KINDS}")
    return sorted(wanted, key=lambda p: natural_order(p.path))
