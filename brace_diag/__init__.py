"""Measure how stale a critic is in logs of asynchronous RL, and compute value targets that help.

Every public name is loaded when it is first used: ``import brace_diag`` costs a blink and loads
neither torch nor matplotlib nor scipy.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from brace_diag._version import __version__

if TYPE_CHECKING:
    from brace_diag.engines.compare import compare
    from brace_diag.engines.critic_fit import critic_fit
    from brace_diag.engines.group_mean import with_group_mean
    from brace_diag.engines.importance import importance_products
    from brace_diag.engines.local import value_gap
    from brace_diag.engines.reward_slope import reward_slope
    from brace_diag.engines.sweep import sweep
    from brace_diag.engines.targets import write_targets
    from brace_diag.engines.trend import trend
    from brace_diag.errors import (
        BraceDiagError,
        InputError,
        MissingExtraError,
        ReaderError,
        SchemaError,
    )
    from brace_diag.quality import DataQuality
    from brace_diag.readers import open_run
    from brace_diag.report.render import render_report
    from brace_diag.results import Curve, Estimate, ValueGap
    from brace_diag.results_audit import Audit
    from brace_diag.results_compare import Comparison
    from brace_diag.results_critic import CriticFit
    from brace_diag.results_importance import ImportanceProducts
    from brace_diag.results_report import Findings
    from brace_diag.results_slope import RewardSlope
    from brace_diag.results_sweep import Sweep, SweepSettings
    from brace_diag.results_targets import TargetsWritten
    from brace_diag.results_trend import Trend
    from brace_diag.rollouts import Rollouts
    from brace_diag.settings import TargetSpec
    from brace_diag.sinks.metrics import metrics_of
    from brace_diag.sinks.open import log_metrics, open_sink
    from brace_diag.targets import (
        advantages,
        brace_targets,
        capped_targets,
        gae_targets,
        log10_kappa,
        mc_targets,
        vtrace_targets,
    )
    from brace_diag.verdicts.audit import audit
    from brace_diag.verdicts.findings import gather_findings

__all__ = [
    "Audit",
    "BraceDiagError",
    "Comparison",
    "CriticFit",
    "Curve",
    "DataQuality",
    "Estimate",
    "Findings",
    "ImportanceProducts",
    "InputError",
    "MissingExtraError",
    "ReaderError",
    "RewardSlope",
    "Rollouts",
    "SchemaError",
    "Sweep",
    "SweepSettings",
    "TargetSpec",
    "TargetsWritten",
    "Trend",
    "ValueGap",
    "__version__",
    "advantages",
    "audit",
    "brace_targets",
    "capped_targets",
    "compare",
    "critic_fit",
    "gae_targets",
    "gather_findings",
    "importance_products",
    "log10_kappa",
    "log_metrics",
    "mc_targets",
    "metrics_of",
    "open_run",
    "open_sink",
    "render_report",
    "reward_slope",
    "sweep",
    "trend",
    "value_gap",
    "vtrace_targets",
    "with_group_mean",
    "write_targets",
]

_HOME = {
    "Audit": "brace_diag.results_audit",
    "BraceDiagError": "brace_diag.errors",
    "Comparison": "brace_diag.results_compare",
    "CriticFit": "brace_diag.results_critic",
    "Curve": "brace_diag.results",
    "DataQuality": "brace_diag.quality",
    "Estimate": "brace_diag.results",
    "Findings": "brace_diag.results_report",
    "ImportanceProducts": "brace_diag.results_importance",
    "InputError": "brace_diag.errors",
    "MissingExtraError": "brace_diag.errors",
    "ReaderError": "brace_diag.errors",
    "RewardSlope": "brace_diag.results_slope",
    "Rollouts": "brace_diag.rollouts",
    "SchemaError": "brace_diag.errors",
    "Sweep": "brace_diag.results_sweep",
    "SweepSettings": "brace_diag.results_sweep",
    "TargetSpec": "brace_diag.settings",
    "TargetsWritten": "brace_diag.results_targets",
    "Trend": "brace_diag.results_trend",
    "ValueGap": "brace_diag.results",
    "advantages": "brace_diag.targets",
    "audit": "brace_diag.verdicts.audit",
    "brace_targets": "brace_diag.targets",
    "capped_targets": "brace_diag.targets",
    "compare": "brace_diag.engines.compare",
    "critic_fit": "brace_diag.engines.critic_fit",
    "gae_targets": "brace_diag.targets",
    "gather_findings": "brace_diag.verdicts.findings",
    "importance_products": "brace_diag.engines.importance",
    "log10_kappa": "brace_diag.targets",
    "log_metrics": "brace_diag.sinks.open",
    "mc_targets": "brace_diag.targets",
    "metrics_of": "brace_diag.sinks.metrics",
    "open_run": "brace_diag.readers",
    "open_sink": "brace_diag.sinks.open",
    "render_report": "brace_diag.report.render",
    "reward_slope": "brace_diag.engines.reward_slope",
    "sweep": "brace_diag.engines.sweep",
    "trend": "brace_diag.engines.trend",
    "value_gap": "brace_diag.engines.local",
    "vtrace_targets": "brace_diag.targets",
    "with_group_mean": "brace_diag.engines.group_mean",
    "write_targets": "brace_diag.engines.targets",
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
