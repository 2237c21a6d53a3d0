"""Which setting is recommended, on points whose figures are given."""

from dataclasses import replace

from brace_diag.estimators.sweep_choice import recommend, why_none
from brace_diag.results import Estimate
from brace_diag.results_sweep import PAPER_DEFAULT, SweepSetting


def known(value: float | None, se: float | None = 0.01) -> Estimate:
    return Estimate(value, se, None, None, 0.95, 100, 10, 40, "by hand", value is not None, None)


def point(
    k: float, rho_bar: float, c_bar: float, share: float | None, ratio: float, **changes: Estimate
) -> SweepSetting:
    made = SweepSetting(
        k=k,
        rho_bar=rho_bar,
        c_bar=c_bar,
        share=known(share),
        residual_bound=0.0,
        pull=known(0.5),
        variance_ratio=known(ratio),
        clip_share_rho=known(0.0),
        clip_share_c=known(0.0),
        distance=known(0.1),
    )
    return replace(made, **changes)  # type: ignore[arg-type]


PAPER = point(*PAPER_DEFAULT, 0.4, 0.9)


def chosen(*points: SweepSetting) -> tuple[float, float, float]:
    found = recommend((*points, PAPER))
    assert found is not None
    assert found.paper_default is PAPER
    return found.chosen.k, found.chosen.rho_bar, found.chosen.c_bar


def test_the_least_variance_among_those_that_recover_the_gap() -> None:
    a, b, c = point(64, 2, 1, 0.95, 0.5), point(256, 2, 1, 0.99, 0.4), point(16, 2, 1, 0.3, 0.1)
    assert chosen(a, b, c) == (256, 2, 1)
    # Within 10 % the variance is the same: the larger share goes first, or else the window.
    near = replace(a, variance_ratio=known(0.39))
    assert chosen(near, b, c) == (256, 2, 1)
    assert chosen(replace(near, share=b.share), b, c) == (64, 2, 1)


def test_a_share_that_is_not_known_well_does_not_win() -> None:
    lucky = replace(point(64, 1, 1, 1.0, 0.2), share=known(1.0, 0.5))
    assert chosen(lucky, point(256, 2, 1, 0.95, 0.4)) == (256, 2, 1)


def test_hardly_any_pull_is_taken_only_without_others() -> None:
    weak = point(256, 2, 1, 0.99, 0.1, pull=known(0.01))
    found = recommend((weak, point(256, 2, 1.1, 0.95, 0.6), PAPER))
    assert found is not None
    assert found.label == "brace:k=256,rho_bar=2,c_bar=1.1"
    assert "and pull at 5% or more" in found.reason
    assert chosen(weak) == (256, 2, 1)


def test_where_nothing_recovers_enough_the_reason_says_so() -> None:
    found = recommend((point(256, 2, 1, 0.6, 0.5), point(16, 2, 1, 0.58, 0.3), PAPER))
    assert found is not None
    assert found.chosen.k == 16
    assert found.reason.startswith("no setting is seen to recover 90% of the gap")
    assert "the paper's default (k = 100, rho_bar = 1.2, c_bar = 1.1) recovers 40%" in found.reason


def test_the_paper_s_default_can_be_the_answer() -> None:
    found = recommend((replace(PAPER, share=known(0.95)),))
    assert found is not None
    assert found.chosen is found.paper_default
    assert found.reason.endswith("it is the paper's default")


def test_marks_of_the_share_stand_in_the_reason() -> None:
    marked = replace(known(0.95), reliable=False, reason="pi has moved far")
    found = recommend((replace(point(64, 2, 1, 0.95, 0.5), share=marked), PAPER))
    assert found is not None
    assert found.reason.endswith("marked: pi has moved far")


def test_without_a_share_there_is_no_recommendation() -> None:
    assert recommend((replace(PAPER, share=known(None, None)),)) is None
    refused = replace(known(None, None), reason="fresh rollouts are needed")
    assert why_none(refused, "refused", False) == "fresh rollouts are needed"
    assert "not told apart from 0" in (why_none(known(0.01), "good", False) or "")
    alone = replace(known(0.3, None), reason="one prompt only: no standard error")
    assert "without an interval: one prompt only" in (why_none(alone, "good", False) or "")
    assert why_none(known(0.3), "good", True) is None
