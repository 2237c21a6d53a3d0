"""BRACE targets against stored ones, made by an independent exact simulator.

Each file holds rollouts of a small token MDP and, for caps tagged c{c_bar}_r{rho_bar}_l{lambda} and
several k, the BRACE target of every token (`v_*`, terminal reward, no bootstrap).
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from brace_diag.targets import brace_targets

GOLDEN = Path(__file__).parents[1] / "golden"
KEY = re.compile(r"v_c(?P<c>[\d.]+|inf)_r(?P<rho>[\d.]+|inf)_l(?P<lam>[\d.]+)_k(?P<k>\d+)")


@pytest.mark.parametrize("name", ["golden_t16", "golden_t16_gamma97", "golden_t32_null"])
def test_stored_brace_targets(name):
    with np.load(GOLDEN / f"{name}.npz") as golden:
        keys = [match for key in golden.files if (match := KEY.fullmatch(key))]
        assert len(keys) == 5 * len(golden["ks"])  # five caps, every k
        for key in keys:
            got = brace_targets(
                golden["logmu"],
                golden["logpi"],
                golden["V_phi"],
                golden["R"],
                k=int(key["k"]),
                rho_bar=float(key["rho"]),
                c_bar=float(key["c"]),
                gamma=float(golden["gamma"]),
                lam=float(key["lam"]),
            )
            # Relative to the rewards' size (0 or 1): some targets are 0 up to rounding.
            np.testing.assert_allclose(
                got, golden[key.string], rtol=1e-10, atol=1e-14, err_msg=key.string
            )
