"""Files behind a URL: pyarrow's own file systems, and fsspec's where pyarrow has none."""

from __future__ import annotations

import fnmatch
import importlib
import re
from typing import Any

from brace_diag.errors import MissingExtraError, ReaderError


def list_url(url: str) -> list[tuple[str, str, Any]]:
    """Files at a URL, or below it, or that match its glob: (name, path, pyarrow file system).

    Raises: MissingExtraError if the scheme needs a package that is not installed; ReaderError if
        nothing is there or the store refuses.
    """
    scheme = url.split("://", 1)[0]
    wild = re.search(r"[*?\[]", url)
    # The listing starts at the folder above the first wildcard.
    base = url[: url.rfind("/", 0, wild.start())] if wild else url
    filesystem, path = _file_system(base, url)
    paths = _files_at(filesystem, path, url)
    if wild:
        pattern = path + url[len(base) :]
        paths = [p for p in paths if fnmatch.fnmatch(p, pattern)]
    return [(f"{scheme}://{p.lstrip('/')}", p, filesystem) for p in paths]


def _file_system(base: str, url: str) -> tuple[Any, str]:
    """The file system of a URL, and the path on it."""
    import pyarrow as pa
    from pyarrow import fs

    try:
        filesystem, path = fs.FileSystem.from_uri(base)
        return filesystem, path
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        pass  # no file system of pyarrow's own: fsspec may have one
    except OSError as error:
        raise ReaderError(f"{url} cannot be opened: {error}") from error
    try:
        fsspec = importlib.import_module("fsspec.core")
    except ImportError:
        raise _missing(url, "fsspec") from None
    try:
        inner, path = fsspec.url_to_fs(base)
    except ImportError as error:
        raise _missing(url, str(error)) from None
    except (ValueError, OSError) as error:
        raise ReaderError(f"{url} cannot be opened: {error}") from error
    return fs.PyFileSystem(fs.FSSpecHandler(inner)), path


def _files_at(filesystem: Any, path: str, url: str) -> list[str]:
    from pyarrow import fs

    try:
        here = filesystem.get_file_info(path)
        if here.type == fs.FileType.File:
            return [here.path]
        below = filesystem.get_file_info(fs.FileSelector(path, recursive=True))
    except FileNotFoundError:
        raise ReaderError(f"{url}: no such file or folder") from None
    except OSError as error:
        raise ReaderError(f"{url} cannot be listed: {error}") from error
    return [info.path for info in below if info.type == fs.FileType.File]


def _missing(url: str, what: str) -> MissingExtraError:
    scheme = url.split("://", 1)[0]
    package = {"s3": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "hf": "huggingface_hub"}.get(scheme)
    install = f"pip install fsspec {package}" if package else "pip install fsspec"
    return MissingExtraError(f"{url}: reading {scheme}:// needs a package ({what}): {install}")
