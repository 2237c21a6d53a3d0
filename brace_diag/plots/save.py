"""Figures to files: PNG, SVG and PDF, the same bytes every time, never half a file."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from brace_diag.errors import InputError
from brace_diag.plots.style import drawing

PNG_DPI = 200
# No dates: the same figure gives the same bytes.
_OPTIONS: dict[str, dict[str, Any]] = {
    ".png": {"dpi": PNG_DPI},
    ".svg": {"metadata": {"Date": None}},
    ".pdf": {"metadata": {"CreationDate": None}},
}


def save_figure(figure: Figure, path: str | os.PathLike[str]) -> None:
    """Write a figure; the suffix of `path` chooses PNG (200 dpi), SVG (text as text) or PDF.

    The file appears whole or not at all, and replaces an older one of the name.

    Raises:
        InputError: another suffix, a missing folder, or a place that cannot be written.
    """
    target = Path(path)
    suffix = target.suffix.lower()
    if suffix not in _OPTIONS:
        raise InputError(
            f"{target}: figures are not written as {suffix or 'a name without suffix'}; "
            f"allowed: {', '.join(_OPTIONS)}"
        )
    if not target.parent.is_dir():
        raise InputError(f"{target}: the folder {target.parent} does not exist; make it first")
    if target.is_dir():
        raise InputError(f"{target} is a folder; give the name of a file")
    rendered = io.BytesIO()
    with drawing(figure.get_figwidth()):
        figure.savefig(rendered, format=suffix[1:], **_OPTIONS[suffix])
    _replace(target, rendered.getvalue())


def _replace(target: Path, content: bytes) -> None:
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        part.write_bytes(content)
        os.replace(part, target)
    except OSError as error:
        raise InputError(f"{target}: cannot be written ({error.strerror})") from error
    finally:
        part.unlink(missing_ok=True)
