"""Columns that are added to a log: their names, and packed numbers as lists of its rows."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from brace_diag.errors import InputError
from brace_diag.readers.chunk import Chunk
from brace_diag.rollouts import Floats
from brace_diag.settings import TargetSpec

KINDS = ("target", "advantage", "log10_kappa")


def short_label(spec: TargetSpec) -> str:
    """A target as part of a column's name: brace, brace_k20_c_bar1, vtrace_n64, gae_lam0_95.

    Only what differs from the target's own defaults is in it.
    """
    own = TargetSpec.of(spec.name).parameters
    words = [
        f"{key}{repr(float(value)).removesuffix('.0')}"
        for key, value in spec.parameters.items()
        if value != own[key]
    ]
    return re.sub(r"[^0-9A-Za-z]+", "_", "_".join([spec.name, *words]))


def added_columns(
    specs: Sequence[TargetSpec], own: Collection[str], source: str
) -> list[dict[str, str]]:
    """Names of the new columns by kind, for every target.

    Raises: InputError if the log has a column of such a name, or two targets come to one name.
    """
    names = [{kind: f"{kind}_{short_label(spec)}" for kind in KINDS} for spec in specs]
    every = [name for columns in names for name in columns.values()]
    twice = sorted({name for name in every if every.count(name) > 1})
    if twice:
        raise InputError(f"two targets would be written to {', '.join(twice)}; leave one out")
    taken = [name for name in every if name in own]
    if taken:
        raise InputError(
            f"{source} has columns {', '.join(taken)} already; leave these targets out, or start "
            "from the log that they were made of"
        )
    return names


class AlignedLists:
    """Makes list columns whose rows are as long as the rows of a chunk's own lists.

    Entries that hold no policy token are null, and so are rows whose own lists are all null.
    """

    def __init__(self, chunk: Chunk) -> None:
        import pyarrow as pa

        batch = chunk.rollouts
        offsets = np.zeros(batch.n_rollouts + 1, dtype=np.int64)
        np.cumsum(chunk.logged, out=offsets[1:])
        self.n_entries = int(offsets[-1])
        self.offsets = pa.array(offsets.astype(np.int32))
        self.null_rows = None if chunk.listed.all() else pa.array(~chunk.listed)
        self.places: npt.NDArray[np.int64] | None = None
        if batch.token_index is not None:
            self.places = np.repeat(offsets[:-1], batch.lengths) + batch.token_index

    def lists(self, packed: Floats, missing: npt.NDArray[np.bool_] | None) -> Any:
        """Numbers of the policy tokens, null where `missing`, both (n_tokens,); as a list array."""
        import pyarrow as pa

        if self.places is not None:
            entries = np.zeros(self.n_entries, packed.dtype)
            entries[self.places] = packed
            null = np.ones(self.n_entries, np.bool_)
            null[self.places] = False if missing is None else missing
            packed, missing = entries, null
        values = pa.array(packed) if missing is None else pa.array(packed, mask=missing)
        return pa.ListArray.from_arrays(self.offsets, values, mask=self.null_rows)
