"""The hash of ids: known answers, and one answer for every way in which a log stores an id."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from brace_diag.errors import SchemaError
from brace_diag.hashing import hash_ids, hash_rows, null_ids, stable_hash

MASK = (1 << 64) - 1


def literal(data: bytes) -> int:
    """FNV-1a and splitmix64's finaliser in plain integers."""
    h = 0xCBF29CE484222325
    for byte in data:
        h = ((h ^ byte) * 0x100000001B3) & MASK
    h = ((h ^ (h >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    h = ((h ^ (h >> 27)) * 0x94D049BB133111EB) & MASK
    return h ^ (h >> 31)


# Written down once. A change here would move prompts to other groups, and so change every
# interval that was ever reported.
KNOWN = {
    "": 0xF52A15E9A9B5E89B,
    "0": 0x8BD66332999B4192,
    "5": 0xA8BAD530F7EC48A3,
    "-5": 0xE9A1D8B4DD4642DE,
    "prompt-0": 0x06408949BF9F5729,
    "a\u00e9": 0x983F864832467140,
    "18446744073709551615": 0x36B5531ABED6D2D0,
    "-9223372036854775808": 0x475032746EA8423B,
}


@pytest.mark.parametrize(("text", "known"), KNOWN.items())
def test_known_answers_never_change(text: str, known: int) -> None:
    assert stable_hash([text]).tolist() == [known]
    assert literal(text.encode()) == known


def test_rows_without_an_id_have_known_answers_too() -> None:
    assert hash_rows(np.array([12])).tolist() == [0xA31D3DF20B1D5845]
    assert literal(b"\x00row:12") == 0xA31D3DF20B1D5845


@pytest.mark.parametrize(
    "ids",
    [
        [5, -5, 0],
        ["5", "-5", "0"],
        [5, "-5", 0],
        np.array([5, -5, 0]),
        np.array([5, -5, 0], dtype=np.int8),
        np.array(["5", "-5", "0"]),
        np.array([5.0, -5.0, -0.0]),
        pa.array([5, -5, 0], pa.int32()),
        pa.array([9, 5, -5, 0], pa.int64()).slice(1),
        pa.array(["5", "-5", "0"], pa.large_string()),
        pa.array(["x", "5", "-5", "0"]).slice(1),
        pa.array([b"5", b"-5", b"0"]),
        pa.array(["5", "-5", "0"], pa.string_view()),
        pa.array(["5", "-5", "0"]).dictionary_encode(),
        pa.chunked_array([pa.array([5]), pa.array([-5, 0])]),
        pa.array([5.0, -5.0, 0.0]),
        pa.array([5.0, -5.0, 0.0], pa.float32()),
    ],
    ids=lambda x: f"{type(x).__name__}-{getattr(x, 'type', getattr(x, 'dtype', ''))}",
)
def test_every_storage_of_an_id_hashes_alike(ids: object) -> None:
    assert stable_hash(ids).tolist() == [KNOWN["5"], KNOWN["-5"], KNOWN["0"]]


def test_the_whole_range_of_integers() -> None:
    assert stable_hash(np.array([2**64 - 1], np.uint64)).tolist() == [KNOWN[str(2**64 - 1)]]
    assert stable_hash([2**64 - 1]).tolist() == [KNOWN[str(2**64 - 1)]]
    assert stable_hash(np.array([-(2**63)])).tolist() == [KNOWN[str(-(2**63))]]


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1))
def test_integers_follow_the_definition(numbers: list[int]) -> None:
    expected = [literal(str(n).encode()) for n in numbers]
    assert stable_hash(np.array(numbers, dtype=np.int64)).tolist() == expected


@given(st.lists(st.text(st.characters(exclude_categories=("Cs",))), min_size=1))
def test_text_follows_the_definition(texts: list[str]) -> None:
    assert stable_hash(texts).tolist() == [literal(text.encode()) for text in texts]


def test_a_missing_id_is_the_row_itself() -> None:
    rows = np.array([7, 8, 9])
    hashes = hash_ids(pa.array(["a", None, None]), rows)
    assert hashes.tolist() == [literal(b"a"), literal(b"\x00row:8"), literal(b"\x00row:9")]
    assert hash_ids(None, rows).tolist() == hash_rows(rows).tolist()
    assert hash_ids(pa.nulls(3), rows).tolist() == hash_rows(rows).tolist()
    assert hash_ids(pa.array([1.0, np.nan, 2.0]), rows).tolist() == [
        literal(b"1"),
        literal(b"\x00row:8"),
        literal(b"2"),
    ]


def test_nulls_are_found_in_every_storage() -> None:
    assert null_ids(pa.array(["a", None])).tolist() == [False, True]
    assert null_ids(pa.array([1, None], pa.uint8())).tolist() == [False, True]
    assert null_ids([1.0, float("nan")]).tolist() == [False, True]
    assert null_ids(pa.nulls(2)).tolist() == [True, True]


def test_empty_input() -> None:
    for ids in ([], pa.array([], pa.string()), np.zeros(0, np.int64)):
        hashes = stable_hash(ids)
        assert hashes.shape == (0,)
        assert hashes.dtype == np.uint64


@pytest.mark.parametrize(
    "ids", [[1.5], pa.array([True]), pa.array([[1]]), [b"a", 1.5], [2.0**60], [1, object()]]
)
def test_what_is_no_id_is_refused(ids: object) -> None:
    with pytest.raises(SchemaError, match="integers or strings"):
        stable_hash(ids)


def test_another_process_with_another_hash_seed_agrees() -> None:
    code = "from brace_diag.hashing import stable_hash as h; print(h(['prompt-0'])[0])"
    for seed in ("1", "2"):
        out = subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        )
        assert int(out.stdout) == KNOWN["prompt-0"]
