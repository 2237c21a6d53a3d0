"""JSON schemas (draft 2020-12) of the documents that the commands print with `--json`."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

from brace_diag.errors import InputError


def load_schema(command: str) -> dict[str, Any]:
    """The schema of a command's document, whole in itself.

    Args:
        command: name of the command, e.g. "bias".

    Raises:
        InputError: no command of that name prints JSON.
    """
    folder = files(__name__)
    names = sorted(
        f.name.removesuffix(".json") for f in folder.iterdir() if f.name.endswith(".json")
    )
    if command not in names:
        raise InputError(f"no JSON schema for {command!r}; there is one for: {', '.join(names)}")
    schema: dict[str, Any] = json.loads((folder / f"{command}.json").read_text(encoding="utf-8"))
    return schema
