"""The public functions: one answer whatever the container, and clear errors."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch

from brace_diag import targets as public
from brace_diag.errors import BraceDiagError, InputError
from brace_diag.targets import (
    advantages,
    brace_targets,
    capped_targets,
    gae_targets,
    log10_kappa,
    mc_targets,
    vtrace_targets,
)

# The packed and the padded way run the same kernel on the same numbers.
SAME = {"rtol": 0, "atol": 0}
V = [0.5, 0.4, 0.6]
MU = [-1.0, -2.0, -0.5]
PI = (np.array(MU) + np.log([1.5, 0.5, 1.0])).tolist()


def function_of(target):
    return getattr(public, f"{target}_targets")


def padded(batch, mask, packed, fill):
    out = np.full(mask.shape, fill, dtype=packed.dtype)
    out[mask] = packed
    return out


def holes(batch, rng):
    """A mask with holes, leading and trailing pads, in rows as long as the batch's rollouts."""
    lengths = np.diff(batch.offsets)
    mask = np.zeros((len(lengths), int(lengths.max()) + 4), dtype=bool)
    for row, length in zip(mask, lengths, strict=True):
        row[rng.choice(len(row), size=length, replace=False)] = True
    return mask


def test_worked_numbers():
    close = {"rtol": 0, "atol": 2e-15}  # a few units in the last place of numbers near 1
    np.testing.assert_allclose(gae_targets(V, 1.0), [1, 1, 1], **close)
    np.testing.assert_allclose(mc_targets([0, 0, 1]), [1, 1, 1], **close)
    np.testing.assert_allclose(vtrace_targets(MU, PI, V, 1.0), [0.7, 0.7, 1], **close)
    np.testing.assert_allclose(vtrace_targets(MU, PI, V, 1.0, n=1), [0.4, 0.5, 1], **close)
    for k, wanted in ((0, [1, 1, 1]), (1, [1.04, 0.7, 1]), (2, [0.71, 0.7, 1])):
        np.testing.assert_allclose(brace_targets(MU, PI, V, 1.0, k=k), wanted, **close)
    np.testing.assert_allclose(brace_targets(MU, PI, V, 1.0), [0.71, 0.7, 1], **close)
    np.testing.assert_allclose(capped_targets(MU, PI, V, 1.0, k=1), [0.93, 0.7, 1], **close)
    got = advantages(brace_targets(MU, PI, V, 1.0, k=1), V, 1.0)
    np.testing.assert_allclose(got, [0.2, 0.6, 0.4], **close)
    pi = (np.array(MU) + np.log([1.5, 0.5, 0.5])).tolist()
    np.testing.assert_allclose(capped_targets(MU, pi, V, 1.0, k=1), [0.71, 0.6, 0.8], **close)
    np.testing.assert_allclose(brace_targets(MU, pi, V, 1.0, k=1), [1.04, 0.7, 1], **close)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("fill", [0.0, np.nan, 1e30, -np.inf])
def test_packed_padded_numpy_torch_agree(target, dtype, fill, rng, make_batch):
    batch = make_batch((5, 0, 1, 12), rng, dtype=dtype)
    mask = holes(batch, rng)
    function, name = function_of(target), target
    both = {"bootstrap": batch.bootstrap, "gamma": 0.9}
    packed_arguments = batch.arguments(name, batch.terminal)
    packed = function(*packed_arguments, offsets=batch.offsets, **both)
    *tokens, rewards = packed_arguments
    grids = [padded(batch, mask, x, fill) for x in tokens]
    got = function(*grids, rewards, mask=mask, **both)
    assert isinstance(got, np.ndarray)
    assert got.dtype == packed.dtype == dtype
    assert got.shape == mask.shape
    np.testing.assert_allclose(got[mask], packed, **SAME)
    assert (got[~mask] == 0).all()

    tensor = function(
        *map(torch.from_numpy, packed_arguments), offsets=torch.from_numpy(batch.offsets), **both
    )
    assert isinstance(tensor, torch.Tensor)
    assert tensor.dtype == (torch.float32 if dtype == np.float32 else torch.float64)
    np.testing.assert_allclose(tensor.numpy(), packed, **SAME)
    tensor = function(
        *map(torch.from_numpy, grids),
        torch.from_numpy(rewards).unsqueeze(1),
        mask=torch.from_numpy(mask).long(),
        **both,
    )
    np.testing.assert_allclose(tensor.numpy(), got, **SAME)


def test_dense_rewards_agree_too(target, rng, make_batch):
    batch = make_batch((5, 0, 1, 12), rng)
    mask = holes(batch, rng)
    arguments = batch.arguments(target, batch.rewards)
    packed = function_of(target)(*arguments, offsets=batch.offsets)
    # Off the mask NaN is padding; a number there would be a reward.
    got = function_of(target)(*(padded(batch, mask, x, np.nan) for x in arguments), mask=mask)
    np.testing.assert_allclose(got[mask], packed, **SAME)


def test_a_packed_batch_may_have_a_mask(rng, make_batch):
    batch = make_batch((4, 6), rng)
    keep = np.array([1, 0, 1, 1, 0, 0, 1, 1, 1, 0], dtype=bool)
    got = brace_targets(
        *batch.arguments("brace", batch.terminal), offsets=batch.offsets, mask=keep, k=1
    )
    arguments = (batch.mu[keep], batch.pi[keep], batch.values[keep], batch.terminal)
    wanted = brace_targets(*arguments, offsets=[0, 3, 6], k=1)
    np.testing.assert_array_equal(got[keep], wanted)
    assert (got[~keep] == 0).all()


@pytest.mark.parametrize("half", [torch.float16, torch.bfloat16])
def test_half_precision_is_read_exactly_and_answered_in_float32(half, rng, make_batch):
    batch = make_batch((5, 9), rng, dtype=np.float32)
    low = [torch.from_numpy(x).to(half) for x in batch.arguments("brace", batch.rewards)]
    got = brace_targets(*low, offsets=batch.offsets, k=2)
    assert got.dtype == torch.float32
    wanted = brace_targets(*(x.float() for x in low), offsets=batch.offsets, k=2)
    assert torch.equal(got, wanted)
    if half is torch.float16:
        got = brace_targets(*(x.numpy() for x in low), offsets=batch.offsets, k=2)
        assert got.dtype == np.float32
        np.testing.assert_array_equal(got, wanted.numpy())


def test_one_float64_array_makes_the_result_float64(rng, make_batch):
    batch = make_batch((5, 9), rng, dtype=np.float32)
    mu, pi, values, rewards = batch.arguments("brace", batch.rewards)
    both = {"offsets": batch.offsets}
    assert brace_targets(mu, pi, values.astype(np.float64), rewards, **both).dtype == np.float64
    assert brace_targets(mu, pi, values, rewards.astype(np.float64), **both).dtype == np.float32
    assert mc_targets(rewards.astype(np.float64), **both).dtype == np.float64
    assert gae_targets(np.array([1, 2]), 1.0).dtype == np.float64


def test_strided_and_foreign_byte_orders(rng, make_batch):
    batch = make_batch((6,), rng)
    arguments = batch.arguments("brace", batch.rewards)
    wanted = brace_targets(*arguments, k=2)
    strided = [np.repeat(x, 2)[::2] for x in arguments]
    np.testing.assert_array_equal(brace_targets(*strided, k=2), wanted)
    swapped = [x.astype(">f8") for x in arguments]
    np.testing.assert_array_equal(brace_targets(*swapped, k=2), wanted)
    transposed = [np.asfortranarray(np.stack([x, x])) for x in arguments]
    np.testing.assert_array_equal(brace_targets(*transposed, k=2)[1], wanted)


def test_nulls_and_hidden_cells_are_missing():
    hidden = np.ma.masked_array(np.zeros(3), mask=[0, 1, 0])
    for mu in (hidden, [0.0, None, 0.0]):
        got = brace_targets(mu, np.zeros(3), np.zeros(3), 1.0, k=1)
        np.testing.assert_array_equal(got, [1, np.nan, 1])


def test_torch_results_carry_no_gradient_and_leave_inputs_alone(rng, make_batch):
    batch = make_batch((6,), rng)
    tensors = [torch.from_numpy(x.copy()) for x in batch.arguments("brace", batch.rewards)]
    tensors[1].requires_grad_()
    got = brace_targets(*tensors)
    assert not got.requires_grad
    for tensor, array in zip(tensors, batch.arguments("brace", batch.rewards), strict=True):
        np.testing.assert_array_equal(tensor.detach().numpy(), array)


# Windows of k = 2 over T = 6 with the ratio of token 3 missing: brace reads w_s .. w_{j-1},
# j = min(s + 2, 5); capped reads all ratios from s on; vtrace n = 2 reads w_s, w_{s+1}.
TOUCHED = {
    "brace": [0, 0, 1, 1, 0, 0],
    "capped": [1, 1, 1, 1, 0, 0],
    "vtrace": [0, 0, 1, 1, 0, 0],
    "gae": [0, 0, 0, 0, 0, 0],
    "mc": [0, 0, 0, 0, 0, 0],
}


@pytest.mark.parametrize(
    ("mu", "pi"), [(np.nan, -1.0), (-1.0, np.nan), (-np.inf, -1.0), (-np.inf, -np.inf)]
)
def test_a_missing_ratio_makes_nan_of_exactly_its_windows(target, mu, pi, rng, make_batch):
    batch = make_batch((6, 6, 6), rng)
    window = {"brace": {"k": 2}, "capped": {"k": 2}, "vtrace": {"n": 2}}.get(target, {})
    both = {"offsets": batch.offsets, **window}
    whole = function_of(target)(*batch.arguments(target, batch.rewards), **both)
    batch.mu[9], batch.pi[9] = mu, pi
    got = function_of(target)(*batch.arguments(target, batch.rewards), **both)
    touched = np.array([0] * 6 + TOUCHED[target] + [0] * 6, dtype=bool)
    np.testing.assert_array_equal(np.isnan(got), touched)
    np.testing.assert_array_equal(got[~touched], whole[~touched])


def test_the_last_ratio_is_never_read_by_brace(rng, make_batch):
    batch = make_batch((6,), rng)
    batch.mu[5] = -np.inf
    for k in (0, 1, 5, 6, np.inf):
        assert np.isfinite(brace_targets(*batch.arguments("brace", 1.0), k=k)).all()
    assert np.isnan(capped_targets(*batch.arguments("capped", 1.0))).all()


def test_a_policy_that_excludes_the_token_has_weight_zero(rng, make_batch, expected):
    batch = make_batch((6,), rng)
    batch.pi[3] = -np.inf
    batch.bootstrap[:] = 0
    got = brace_targets(*batch.arguments("brace", batch.rewards), k=4)
    np.testing.assert_allclose(got, expected(batch, "brace", k=4), rtol=1e-13, atol=1e-14)
    assert got[3] == batch.values[3]  # rho = 0: the residual of token 3 counts nothing


def test_missing_values_reach_their_windows_only(rng, make_batch):
    batch = make_batch((6,), rng)
    batch.values[3] = np.nan
    got = brace_targets(*batch.arguments("brace", batch.rewards), k=1)
    np.testing.assert_array_equal(np.isnan(got), [0, 0, 1, 1, 0, 0])
    assert np.isfinite(brace_targets(*batch.arguments("brace", batch.rewards), k=0)).all()


def test_rewards_fold_to_the_policy_token_before():
    nan = np.nan
    mask = np.array([[0, 1, 0, 0, 1, 0], [0, 0, 1, 1, 0, 0], [0] * 6], dtype=bool)
    rewards = np.array([[0.5, 1, 2, nan, 3, 4], [1, 2, 3, 4, 5, -np.inf], [7] * 6])
    got = mc_targets(rewards, mask=mask)
    # Row 0: .5 + 1 + 2 at its first token, 3 + 4 at its second. Row 1: 1 + 2 + 3, then 4 + 5.
    np.testing.assert_array_equal(got, [[0, 10.5, 0, 0, 7, 0], [0, 0, 15, 9, 0, 0], [0] * 6])
    got = mc_targets(torch.from_numpy(rewards).float(), mask=torch.from_numpy(mask))
    assert got.sum(1).tolist() == [17.5, 24, 0]


def test_shapes_of_terminal_rewards_and_bootstraps():
    offsets = [0, 2, 2, 3]
    values = np.zeros(3)
    wanted = [1, 1, 3]
    for rewards in ([[1], [2], [3]], np.array([[1.0], [2.0], [3.0]])):
        got = gae_targets(values, rewards, offsets=offsets)
        np.testing.assert_array_equal(got, wanted)
    per_token = gae_targets(values, [[1, 2, 3]], offsets=offsets)
    np.testing.assert_array_equal(per_token, [3, 2, 3])
    got = gae_targets(values, [[0], [0], [0]], offsets=offsets, bootstrap=2)
    np.testing.assert_array_equal(got, [2, 2, 2])
    got = gae_targets(values, [[0], [0], [0]], offsets=offsets, bootstrap=[[1], [2], [3]])
    np.testing.assert_array_equal(got, wanted)
    # With one token in every rollout, per token and per rollout are the same thing.
    np.testing.assert_array_equal(mc_targets([1, 2], offsets=[0, 1, 2]), [1, 2])
    got = mc_targets([1, 2], mask=[[True, True], [True, False]])
    np.testing.assert_array_equal(got, [[1, 1], [2, 0]])
    got = mc_targets([1.0], offsets=[0, 4])
    np.testing.assert_array_equal(got, [1, 1, 1, 1])


@pytest.mark.parametrize("shape", [(0,), (0, 5), (3, 0)])
def test_no_tokens(shape):
    nothing = np.empty(shape, dtype=np.float32)
    for function in (brace_targets, capped_targets, vtrace_targets):
        got = function(nothing, nothing, nothing, nothing)
        assert got.shape == shape
        assert got.dtype == np.float32
    assert gae_targets(nothing, nothing).shape == shape
    assert mc_targets(nothing).shape == shape
    assert advantages(nothing, nothing, nothing).shape == shape
    assert log10_kappa(nothing, nothing).shape == shape
    assert brace_targets([], [], [], np.empty((0, 1)), offsets=[0]).shape == (0,)


def test_a_mask_that_is_false_everywhere(rng):
    grid = rng.standard_normal((2, 3))
    got = brace_targets(grid, grid, grid, [1, 2], mask=np.zeros((2, 3), dtype=bool))
    np.testing.assert_array_equal(got, np.zeros((2, 3)))


ONES = np.ones(3)
GRID = np.ones((2, 3))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: gae_targets(ONES, None), "rewards is None"),
        (lambda: gae_targets(None, 1.0), "values is None; this target needs it"),
        (lambda: brace_targets(ONES, None, ONES, 1.0), "pi_logprobs is None"),
        (
            lambda: brace_targets(ONES, np.ones(4), ONES, 1.0),
            r"pi_logprobs has shape \(4,\), but mu_logprobs has \(3,\)",
        ),
        (
            lambda: gae_targets(np.ones((1, 2, 3)), 1.0),
            r"values has shape \(1, 2, 3\); allowed: \(n_tokens,\) with offsets, or",
        ),
        (lambda: gae_targets(GRID, [1, 2], offsets=[0, 3]), "offsets go with packed 1-D arrays"),
        (lambda: gae_targets([[1, 2], [3]], [1, 2]), "values is ragged; pad it, or pack it"),
        (lambda: gae_targets(["a"], 1.0), "values holds <U1; it must hold real numbers"),
        (
            lambda: gae_targets(ONES, 1.0, offsets=[0.0, 3.0]),
            r"offsets has shape \(2,\) and type float64; it must be integers",
        ),
        (lambda: gae_targets(ONES, 1.0, offsets=[0, 2]), "from 0 to 2; they must .* tokens, 3"),
        (lambda: gae_targets(ONES, 1.0, offsets=[1, 3]), "from 1 to 3"),
        (
            lambda: gae_targets(ONES, [1, 2, 3, 4], offsets=[0, 2, 1, 2, 3]),
            "offsets fall from 2 to 1 at rollout 1",
        ),
        (
            lambda: gae_targets(ONES, ONES, offsets=[0, 0, 2, 3]),
            r"3 tokens and 3 rollouts; pass terminal rewards as shape \(3, 1\)",
        ),
        (
            lambda: gae_targets(GRID, ONES),
            r"rewards has shape \(3,\); allowed: .* \(2,\) or \(2, 1\), or \(2, 3\) per token",
        ),
        (lambda: gae_targets(GRID, 1.0), r"rewards has shape \(\)"),
        (lambda: gae_targets(GRID, [1, 2], bootstrap=ONES), r"bootstrap has shape \(3,\); allowed"),
        (
            lambda: gae_targets(GRID, [1, 2], mask=[[1, 1], [1, 1]]),
            r"mask has shape \(2, 2\), but values has \(2, 3\)",
        ),
        (lambda: gae_targets(ONES, 1.0, mask=[0, 1, 2]), "mask holds 2; allowed: true and false"),
        (lambda: gae_targets(ONES, 1.0, mask=[0, 1, np.nan]), "mask holds nan"),
        (lambda: gae_targets(ONES, 1.0, gamma=0.0), "gamma is 0.0; it must be above 0"),
        (lambda: gae_targets(ONES, 1.0, gamma=1.01), "gamma is 1.01"),
        (lambda: gae_targets(ONES, 1.0, lam=-0.1), "lam is -0.1; it must lie between 0 and 1"),
        (lambda: mc_targets(ONES, gamma=float("nan")), "gamma is nan"),
        (lambda: advantages(ONES, ONES, ONES, gamma=2.0), "gamma is 2.0"),
        (lambda: brace_targets(ONES, ONES, ONES, 1.0, rho_bar=0), "rho_bar is 0.0; .* above 0"),
        (lambda: brace_targets(ONES, ONES, ONES, 1.0, c_bar=float("nan")), "c_bar is nan"),
        (lambda: brace_targets(ONES, ONES, ONES, 1.0, k=-1), "k is -1; .* an integer >= 0, or"),
        (lambda: brace_targets(ONES, ONES, ONES, 1.0, k=1.5), "k is 1.5"),
        (lambda: brace_targets(ONES, ONES, ONES, 1.0, k=float("nan")), "k is nan"),
        (lambda: vtrace_targets(ONES, ONES, ONES, 1.0, n=0), "n is 0; .* an integer >= 1"),
        (lambda: brace_targets(ONES, ONES, ONES, 1.0, k="5"), "k is '5'; it must be a number"),
        (lambda: gae_targets(ONES, 1.0, gamma=None), "gamma is None; it must be a number"),
        (lambda: mc_targets([1, 2], offsets="ab"), "offsets has shape .* it must be integers"),
    ],
)
def test_errors_say_what_came_and_what_is_allowed(call, message):
    with pytest.raises(InputError, match=message) as caught:
        call()
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, BraceDiagError)
    assert "\n" not in str(caught.value)


def test_k_may_be_an_integer_valued_float_or_beyond_any_length(rng, make_batch):
    batch = make_batch((6,), rng)
    arguments = batch.arguments("brace", batch.rewards)
    np.testing.assert_array_equal(brace_targets(*arguments, k=2.0), brace_targets(*arguments, k=2))
    far = brace_targets(*arguments, k=10**30)
    np.testing.assert_array_equal(far, brace_targets(*arguments, k=float("inf")))


def test_numpy_callers_never_load_torch():
    code = (
        "import sys, brace_diag.targets as t;"
        "assert 'torch' not in sys.modules and 'numba' not in sys.modules;"
        "assert t.brace_targets([-1.0], [-1.0], [0.5], 1.0).tolist() == [1.0];"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
