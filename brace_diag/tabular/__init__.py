"""Token MDPs solved exactly, and logs sampled from them: the ground truth of tests and `simulate`.

Nothing here shares code with the estimators and targets that it judges.
"""

from brace_diag.tabular.disturb import RatioNoise, ToolHoles
from brace_diag.tabular.eos import EosMDP
from brace_diag.tabular.exact import (
    log_product_moments,
    mean_abs_log_w,
    mean_alive,
    occupancy,
    policy_value,
    return_moments,
    start,
)
from brace_diag.tabular.latent import LatentFamily
from brace_diag.tabular.log import SimulatedLog, concatenate
from brace_diag.tabular.mdp import TokenMDP, token_mdp
from brace_diag.tabular.operator import (
    GapShare,
    exact_gap_fixed_point,
    expected_return_weight,
    expected_target,
    fixed_point,
)
from brace_diag.tabular.sample import sample_log
from brace_diag.tabular.scenarios import PRESETS, Scenario, SimulatedStep, simulate
from brace_diag.tabular.tree import Paths, enumerate_paths, prefix_tree
from brace_diag.tabular.truth import Truth, exact_truth

__all__ = [
    "PRESETS",
    "EosMDP",
    "GapShare",
    "LatentFamily",
    "Paths",
    "RatioNoise",
    "Scenario",
    "SimulatedLog",
    "SimulatedStep",
    "TokenMDP",
    "ToolHoles",
    "Truth",
    "concatenate",
    "enumerate_paths",
    "exact_gap_fixed_point",
    "exact_truth",
    "expected_return_weight",
    "expected_target",
    "fixed_point",
    "log_product_moments",
    "mean_abs_log_w",
    "mean_alive",
    "occupancy",
    "policy_value",
    "prefix_tree",
    "return_moments",
    "sample_log",
    "simulate",
    "start",
    "token_mdp",
]
