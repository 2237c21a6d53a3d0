"""Which column of a log is taken for what, decided once and stated in words."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal

from brace_diag.errors import InputError, SchemaError
from brace_diag.rollouts_schema import COLUMNS

How = Literal["exact", "mapped", "folder", "computed"]


@dataclass(frozen=True, slots=True)
class ColumnUse:
    """One canonical column and where it comes from.

    Attributes:
        name: canonical name.
        theirs: name in the log.
        type: Arrow type there; several, if the files differ.
        how: `exact` (same name), `mapped` (as asked), `folder` (from folders named step=N), or
            `computed` (from other columns; `theirs` says how).
        n_files: files that have it.
    """

    name: str
    theirs: str
    type: str
    how: How
    n_files: int

    def statement(self, n_files: int) -> str:
        """Where the column comes from, in words."""
        if self.how == "folder":
            return "from the folder names step=N"
        text = f"{self.theirs}: {self.type} ({self.how})"
        return text if self.n_files == n_files else f"{text}, in {self.n_files} of {n_files} files"


@dataclass(frozen=True, slots=True)
class FileSchema:
    """What one file offers: `types` by its own column names, and the step that its folder tells."""

    name: str
    types: Mapping[str, str]
    folder_step: int | None = None


def resolve(
    files: list[FileSchema], columns_map: Mapping[str, str]
) -> tuple[dict[str, ColumnUse], tuple[str, ...]]:
    """Canonical columns of a run in canonical order, and the names of unused columns.

    A column counts as present if any file has it; `mu_logprobs` and a reward must be in every one.

    Raises: InputError if `columns_map` names no canonical column; SchemaError if a column is
        missing.
    """
    _check_map(columns_map, files)
    uses: dict[str, ColumnUse] = {}
    for name in COLUMNS:
        theirs = columns_map.get(name, name)
        have = [file.types[theirs] for file in files if theirs in file.types]
        if have:
            types = " / ".join(dict.fromkeys(have))
            how: How = "mapped" if name in columns_map else "exact"
            uses[name] = ColumnUse(name, theirs, types, how, len(have))
    if "step" not in uses and any(file.folder_step is not None for file in files):
        n_folders = sum(file.folder_step is not None for file in files)
        uses["step"] = ColumnUse("step", "step=N", "int64", "folder", n_folders)
        uses = {name: uses[name] for name in COLUMNS if name in uses}
    for file in files:
        _check_required(file, columns_map)
    taken = {use.theirs for use in uses.values()}
    unused = dict.fromkeys(t for file in files for t in file.types if t not in taken)
    return uses, tuple(unused)


def check_needed(needed: Collection[str]) -> None:
    """Raise InputError for a name that is not canonical."""
    unknown = sorted(set(needed) - set(COLUMNS))
    if unknown:
        raise InputError(f"no such column: {', '.join(unknown)}; there are: {', '.join(COLUMNS)}")


def _check_map(columns_map: Mapping[str, str], files: list[FileSchema]) -> None:
    for name, theirs in columns_map.items():
        if name not in COLUMNS:
            close = difflib.get_close_matches(name, COLUMNS, n=1)
            hint = f" (did you mean {close[0]}?)" if close else ""
            raise InputError(f"cannot map to {name}{hint}; a column can be: {', '.join(COLUMNS)}")
        if not any(theirs in file.types for file in files):
            have = list(dict.fromkeys(t for file in files for t in file.types))
            close = difflib.get_close_matches(theirs, have, n=1)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise SchemaError(
                f"{files[0].name} has no column {theirs} to take as {name}{hint}\n"
                f"its columns: {', '.join(have)}"
            )


def _check_required(file: FileSchema, columns_map: Mapping[str, str]) -> None:
    has = {name for name in COLUMNS if columns_map.get(name, name) in file.types}
    if "mu_logprobs" not in has:
        raise _missing(file, "mu_logprobs", columns_map)
    if not has & {"reward", "rewards"}:
        raise _missing(file, "reward", columns_map)


def _missing(file: FileSchema, name: str, columns_map: Mapping[str, str]) -> SchemaError:
    wanted = "reward (or rewards, per token)" if name == "reward" else name
    if name in columns_map:
        return SchemaError(f"{file.name} has no column {columns_map[name]}, mapped to {name}")
    free = [theirs for theirs in file.types if theirs not in COLUMNS]
    close = suggest(name, free)
    hint = f"if {close} is it: --map {name}={close}" if close else f"name it with --map {name}=NAME"
    have = ", ".join(file.types) or "none"
    return SchemaError(f"{file.name} has no column {wanted}; {hint}\nits columns: {have}")


def suggest(name: str, theirs: list[str]) -> str | None:
    """The column that most likely holds `name` under another name, or None."""
    known = COLUMNS[name].known_as
    for candidate in known:
        if candidate in theirs:
            return candidate
    for spelling in (name, *known):
        close = difflib.get_close_matches(spelling, theirs, n=1, cutoff=0.75)
        if close:
            return close[0]
    return None
