"""Figures to files: PNG, SVG and PDF, the same bytes every time, never half a file."""

from __future__ import annotations

import io
import os
import re
from pathlib import Path
from typing import Any

from matplotlib import rc_context
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


def svg_text(figure: Figure, prefix: str) -> str:
    """A figure as an `<svg>` element to stand in a page, without prologue, size and style sheet.

    Letters are outlines, so that the page looks the same wherever it is opened. Every id begins
    with `prefix`: two figures on one page share none. The page has to set `stroke-linejoin: round;
    stroke-linecap: butt` for what is inside.
    """
    rendered = io.StringIO()
    with drawing(figure.get_figwidth()), rc_context({"svg.fonttype": "path"}):
        figure.savefig(rendered, format="svg", metadata=dict.fromkeys(_SVG_METADATA))
    text = rendered.getvalue()
    text = text[text.index("<svg") :].strip()
    text = re.sub(r"<style[^>]*>.*?</style>", "", text, flags=re.S)
    text = re.sub(r"<metadata>.*?</metadata>\s*", "", text, flags=re.S)
    text = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", text, count=1)
    text = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", text, count=1)
    text = re.sub(r'\bid="', f'id="{prefix}-', text)
    text = re.sub(r'href="#', f'href="#{prefix}-', text)
    return re.sub(r"url\(#", f"url(#{prefix}-", text)


_SVG_METADATA = ("Date", "Creator", "Format", "Type")


def _replace(target: Path, content: bytes) -> None:
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        part.write_bytes(content)
        os.replace(part, target)
    except OSError as error:
        raise InputError(f"{target}: cannot be written ({error.strerror})") from error
    finally:
        part.unlink(missing_ok=True)
