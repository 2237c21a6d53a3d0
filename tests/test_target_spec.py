"""Targets as they are typed: what is read, what is said back, what is refused."""

import math

import pytest

from brace_diag.errors import InputError
from brace_diag.settings import TargetSpec, parse_targets
from brace_diag.targets.recursion import UNBOUNDED, recursion


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("mc", "mc"),
        ("gae", "gae"),
        ("gae:lam=.95", "gae:lam=0.95"),
        ("vtrace", "vtrace:rho_bar=1,c_bar=1"),
        ("vtrace:n=64", "vtrace:n=64,rho_bar=1,c_bar=1"),
        ("vtrace:c_bar=inf", "vtrace:rho_bar=1,c_bar=inf"),
        ("brace", "brace:k=100,rho_bar=1.2,c_bar=1.1"),
        (" brace : k = 20 , c_bar = 1 ", "brace:k=20,rho_bar=1.2,c_bar=1"),
        ("brace:k=inf,gamma=0.9995001", "brace:k=inf,rho_bar=1.2,c_bar=1.1,gamma=0.9995001"),
        ("capped:k=0", "capped:k=0,rho_bar=1.2,c_bar=1.1"),
    ],
)
def test_the_label_names_every_parameter_and_reads_back(text: str, label: str) -> None:
    spec = TargetSpec.parse(text)
    assert spec.label == label
    assert TargetSpec.parse(label) == spec


@pytest.mark.parametrize("name", ["mc", "gae", "vtrace", "capped", "brace"])
def test_defaults_are_those_of_the_target_functions(name: str) -> None:
    assert recursion(name, **TargetSpec.of(name).parameters) == recursion(name)


def test_infinite_windows_reach_the_recursion() -> None:
    spec = TargetSpec.parse("brace:k=inf")
    assert spec.k == math.inf
    assert recursion("brace", **spec.parameters).window == UNBOUNDED


def test_defaults_fill_only_what_a_target_reads() -> None:
    shared = {"gamma": 0.9, "lam": 0.8, "k": 7.0, "c_bar": 1.0}
    assert TargetSpec.parse("mc", **shared) == TargetSpec.of("mc", gamma=0.9)
    assert TargetSpec.parse("gae", **shared) == TargetSpec.of("gae", gamma=0.9, lam=0.8)
    wanted = TargetSpec.of("brace", gamma=0.9, lam=0.8, k=3, c_bar=1)
    assert TargetSpec.parse("brace:k=3", **shared) == wanted


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "the name is one of mc, gae, vtrace, capped, brace"),
        ("braces", "the name is one of mc, gae, vtrace, capped, brace"),
        ("brace:", "'' is not KEY=NUMBER; brace reads k, rho_bar, c_bar, gamma, lam"),
        ("brace:20", "'20' is not KEY=NUMBER; brace reads k, rho_bar, c_bar, gamma, lam"),
        ("brace:k=", "'k=' is not KEY=NUMBER"),
        ("brace:k=20,", "'' is not KEY=NUMBER"),
        ("brace:k=20,k=30", "k is given twice"),
        ("brace:k=many", "k is 'many', no number"),
        ("brace:n=20", "brace has no parameter 'n'; it reads k, rho_bar, c_bar, gamma, lam"),
        ("vtrace:k=20", "vtrace has no parameter 'k'; it reads n, rho_bar"),
        ("mc:lam=1", "mc has no parameter 'lam'; it reads gamma"),
        ("brace:k=-1", "k is -1; it must be an integer >= 0 or inf"),
        ("brace:k=2.5", "k is 2.5; it must be an integer >= 0 or inf"),
        ("brace:k=nan", "k is nan; it must be an integer >= 0 or inf"),
        ("vtrace:n=0", "n is 0; it must be an integer >= 1 or inf"),
        ("vtrace:c_bar=0", "c_bar is 0; it must be above 0, or inf"),
        ("vtrace:rho_bar=nan", "rho_bar is nan; it must be above 0, or inf"),
        ("gae:gamma=0", "gamma is 0; it must be above 0 and at most 1"),
        ("gae:gamma=inf", "gamma is inf; it must be above 0 and at most 1"),
        ("gae:lam=1.5", "lam is 1.5; it must lie between 0 and 1"),
    ],
)
def test_what_cannot_be_read_is_named_with_what_is_allowed(text: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        TargetSpec.parse(text)
    assert str(caught.value).startswith(f"target {text!r}: ")
    assert said in str(caught.value)


def test_several_targets_keep_their_order_and_differ() -> None:
    specs = parse_targets(["gae", TargetSpec.of("mc"), "brace:k=20"])
    assert [s.name for s in specs] == ["gae", "mc", "brace"]
    with pytest.raises(InputError, match=r"brace:k=100,rho_bar=1\.2,c_bar=1\.1 is given twice"):
        parse_targets(["brace", "gae", "brace:k=100"])
    with pytest.raises(InputError, match="no target is given"):
        parse_targets([])
