"""Measure how stale a critic is in logs of asynchronous RL, and compute value targets that help.

Every public name is loaded when it is first used: ``import brace_diag`` costs a blink and loads
neither torch nor matplotlib nor scipy.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from brace_diag._version import __version__

if TYPE_CHECKING:
    from brace_diag.engines.local import value_gap
    from brace_diag.errors import (
        BraceDiagError,
        InputError,
        MissingExtraError,
        ReaderError,
        SchemaError,
    )
    from brace_diag.quality import DataQuality
    from brace_diag.readers import open_run
    from brace_diag.results import Curve, Estimate, ValueGap
    from brace_diag.rollouts import Rollouts
    from brace_diag.targets import (
        advantages,
        brace_targets,
        capped_targets,
        gae_targets,
        log10_kappa,
        mc_targets,
        vtrace_targets,
    )

__all__ = [
    "BraceDiagError",
    "Curve",
    "DataQuality",
    "Estimate",
    "InputError",
    "MissingExtraError",
    "ReaderError",
    "Rollouts",
    "SchemaError",
    "ValueGap",
    "__version__",
    "advantages",
    "brace_targets",
    "capped_targets",
    "gae_targets",
    "log10_kappa",
    "mc_targets",
    "open_run",
    "value_gap",
    "vtrace_targets",
]

_HOME = {
    "BraceDiagError": "brace_diag.errors",
    "Curve": "brace_diag.results",
    "DataQuality": "brace_diag.quality",
    "Estimate": "brace_diag.results",
    "InputError": "brace_diag.errors",
    "MissingExtraError": "brace_diag.errors",
    "ReaderError": "brace_diag.errors",
    "Rollouts": "brace_diag.rollouts",
    "SchemaError": "brace_diag.errors",
    "ValueGap": "brace_diag.results",
    "advantages": "brace_diag.targets",
    "brace_targets": "brace_diag.targets",
    "capped_targets": "brace_diag.targets",
    "gae_targets": "brace_diag.targets",
    "log10_kappa": "brace_diag.targets",
    "mc_targets": "brace_diag.targets",
    "open_run": "brace_diag.readers",
    "value_gap": "brace_diag.engines.local",
    "vtrace_targets": "brace_diag.targets",
}


def __getattr__(name: str) -> object:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
