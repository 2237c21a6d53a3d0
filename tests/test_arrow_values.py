"""Arrow buffers as numpy: the same as pyarrow's own conversion, and no pandas on the way."""

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

from brace_diag.arrow_values import numpy_values, valid_entries


@pytest.mark.parametrize(
    "kind", ["int8", "int32", "int64", "uint64", "float", "double", "halffloat"]
)
@pytest.mark.parametrize(("start", "n"), [(0, 11), (3, 5), (11, 0)])
def test_numbers_equal_pyarrows_own(kind: str, start: int, n: int) -> None:
    array = pa.array(np.arange(11), pa.int64()).cast(kind).slice(start, n)
    got = numpy_values(array)
    np.testing.assert_array_equal(got, array.to_numpy())
    assert got.dtype == array.to_numpy().dtype


def test_null_floats_are_nan_and_the_rest_is_a_view() -> None:
    array = pa.array([1.5, None, 3.5, None, 5.5]).slice(1, 4)
    np.testing.assert_array_equal(numpy_values(array), [np.nan, 3.5, np.nan, 5.5])
    assert valid_entries(array).tolist() == [False, True, False, True]
    whole = pa.array(np.arange(4.0))
    address = numpy_values(whole).__array_interface__["data"][0]
    assert address == whole.buffers()[1].address


@pytest.mark.parametrize("start", [0, 1, 7, 8, 9])
def test_booleans_of_any_offset(start: int) -> None:
    flags = np.random.default_rng(0).random(40) < 0.5
    array = pa.array(flags.tolist()).slice(start, 21)
    got = numpy_values(array)
    assert got.dtype == np.bool_
    np.testing.assert_array_equal(got, flags[start : start + 21])


def test_reading_a_log_loads_no_pandas() -> None:
    code = (
        "import sys; from brace_diag import open_run; import importlib.resources as r; "
        "log = r.files('brace_diag') / 'data' / 'demo.parquet'; "
        "run = open_run(str(log)); run.index(); print(sum(b.n_tokens for b in run)); "
        "sys.exit('pandas' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "98304"
