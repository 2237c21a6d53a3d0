"""The package's front door: what an import costs, and which names stand there."""

import subprocess
import sys
from importlib.metadata import version

import pytest

import brace_diag

HEAVY = (
    "torch",
    "matplotlib",
    "scipy",
    "numba",
    "pandas",
    "statsmodels",
    "polars",
    "pyarrow",
    "numpy",
)


def modules_after(statement: str) -> set[str]:
    """Top-level modules that a fresh interpreter holds once it has run the statement."""
    code = f"{statement}\nimport sys\nprint(*{{name.partition('.')[0] for name in sys.modules}})"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    return set(done.stdout.split())


def test_import_loads_nothing_heavy() -> None:
    loaded = modules_after("import brace_diag")
    assert "brace_diag" in loaded
    assert loaded.isdisjoint(HEAVY)


def test_probe_sees_what_is_loaded() -> None:
    # Guards the test above: the same probe does report a heavy module once one is imported.
    assert "numba" in modules_after("import brace_diag, numba")


@pytest.mark.parametrize("name", brace_diag.__all__)
def test_public_name_resolves(name: str) -> None:
    value = getattr(brace_diag, name)
    if name != "__version__":
        assert value.__name__ == name
        assert value.__doc__


def test_every_public_name_is_listed() -> None:
    assert set(brace_diag.__all__) <= set(dir(brace_diag))
    assert len(brace_diag.__all__) == len(set(brace_diag.__all__))


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'brace_target'"):
        _ = brace_diag.brace_target


def test_version_is_the_installed_one() -> None:
    assert brace_diag.__version__ == version("brace-diag")
