"""The JSON document: one shape for every command, strict, the same for the same log."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

SCHEMA = "brace-diag/1"
DIGITS = 10
"""Significant digits of a number. What lies beyond is the order in which float64 sums were added,
so a log gives the same document however it is cut into files."""


def document(
    command: str,
    *,
    source: Mapping[str, Any],
    settings: Mapping[str, Any],
    quality: Mapping[str, int],
    results: Mapping[str, Any],
    notes: Iterable[str],
) -> str:
    """The document as text, with a newline at its end."""
    from brace_diag._version import __version__

    return dump(
        {
            "schema": SCHEMA,
            "command": command,
            "version": __version__,
            "source": source,
            "settings": settings,
            "quality": quality,
            "results": results,
            "notes": list(notes),
        }
    )


class Result(Protocol):
    """What the results of every question share."""

    @property
    def settings(self) -> Any: ...
    @property
    def quality(self) -> Any: ...
    @property
    def notes(self) -> tuple[str, ...]: ...
    def to_dict(self) -> dict[str, Any]: ...


def result_document(command: str, source: Mapping[str, Any], result: Result) -> str:
    """The document of a result: its settings, counts, numbers and notes."""
    return document(
        command,
        source=source,
        settings=result.settings.to_dict(),
        quality=result.quality.to_dict(),
        results=result.to_dict(),
        notes=result.notes,
    )


def dump(content: Mapping[str, Any]) -> str:
    """Strict JSON (no NaN, no Infinity), keys in the order given."""
    return json.dumps(_rounded(content), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _rounded(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _rounded(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(inner) for inner in value]
    if isinstance(value, float):
        # -0.0 + 0.0 is 0.0: no stray minus sign.
        return float(f"{value:.{DIGITS}g}") + 0.0 if math.isfinite(value) else None
    return value
