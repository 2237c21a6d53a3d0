"""A `Trend` for people: whether the gap leaves the margin, every key, every trend test."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from brace_diag.number_words import counted, interval, number, share, short
from brace_diag.results_trend import KEYS, SERIES

from .gap_text import GATE_STYLES, bullets, quality_text
from .tables import Column, on_the_point, table
from .terminal import Terminal

if TYPE_CHECKING:
    from brace_diag.results import Estimate
    from brace_diag.results_trend import Trend, TrendTest

SIGNED = frozenset({"b_hat", "g_pi", "g_mu", "m"})
SHARES = frozenset({"ess_rollout", "kept_rho_bar", "kept_c_bar"})
HEADS = {
    "b_hat": "b",
    "g_pi": "V-E_pi[R]",
    "g_mu": "V-E_mu[R]",
    "reward_mu": "E_mu[R]",
    "reward_pi": "E_pi[R]",
    "critic_mean": "V",
    "explained_variance": "EV",
    "m": "m",
    "ess_rollout": "ESS",
    "kept_rho_bar": "w<=rho_bar",
    "kept_c_bar": "w<=c_bar",
}


def trend_text(found: Trend, terminal: Terminal, remarks: Sequence[str] = ()) -> str:
    """The whole answer as text, with a newline at its end.

    Args:
        remarks: sentences about the log's columns.
    """
    blocks = [
        _headline(found, terminal),
        _points(found, terminal),
        _tests(found, terminal),
        quality_text(found.quality, terminal, found.source, remarks),
        bullets("Notes", found.notes, terminal),
    ]
    return "\n".join("\n".join([*block, ""]) for block in blocks if block)


def _headline(found: Trend, terminal: Terminal) -> list[str]:
    key, unit = found.settings.by, f"{found.settings.margin:g} s_A"
    if not found.points:
        return [f"The log tells no {key} for any rollout"]
    if found.invalid is not None:
        return terminal.paragraph(found.invalid, "", "  ")
    if not found.n_judged:
        return [f"The gap cannot be held against the margin ({unit}) at any {key}"]
    if found.first_beyond is None:
        text = f"The gap is not seen beyond the margin ({unit}) at {_any_of(found)}"
        lines = [terminal.paint(text, "bold")]
    else:
        text = (
            f"The gap first lies beyond the margin ({unit}) at {key} {found.first_beyond}; it does "
            f"at {found.n_beyond} of {_keys(found)}"
        )
        lines = [terminal.paint(text, "bold")]
        expected = 0.05 * found.n_judged
        if found.n_beyond <= max(1.0, 2.0 * expected):
            more = "each is judged alone at 95 %, so one in twenty may be chance"
            lines += terminal.paragraph(more, "  ", "  ")
    lines += terminal.paragraph(_moving(found), "  ", "  ")
    return lines


def _keys(found: Trend) -> str:
    one = found.settings.by
    many = KEYS[one]
    return f"{found.n_judged:,} {many if found.n_judged != 1 else one}"


def _any_of(found: Trend) -> str:
    return f"any of {_keys(found)}" if found.n_judged > 1 else f"the only {found.settings.by}"


def _moving(found: Trend) -> str:
    """Which figures move, by a test at the level of the intervals."""
    alpha = 1.0 - found.settings.level
    moving = [
        f"{HEADS[name]} {'rises' if (test.slope.value or 0.0) > 0 else 'falls'}"
        for name, test in found.tests.items()
        if test.p_value is not None and test.p_value < alpha
    ]
    if not any(test.p_value is not None for test in found.tests.values()):
        reason = found.tests["reward_mu"].slope.reason
        return f"no trend can be tested: {reason}"
    if not moving:
        return f"no figure has a trend at the {alpha:.2g} level"
    return f"with the {found.settings.by}, {', '.join(moving)} (p < {alpha:.2g}, each alone)"


def _points(found: Trend, terminal: Terminal) -> list[str]:
    if not found.points:
        return []
    points = found.points

    def figure(name: str) -> list[Estimate]:
        return [point.figures[name] for point in points]

    def shown(name: str) -> list[str]:
        if name in SHARES:
            return [share(own.value) for own in figure(name)]
        return on_the_point(
            [number(own.value, own.se, sign=name in SIGNED) for own in figure(name)]
        )

    b = figure("b_hat")
    ends = [interval(own.ci_low, own.ci_high, own.se, sign=True) for own in b]
    columns = [
        Column(found.settings.by, [f"{point.key:,}" for point in points]),
        Column("rollouts", [f"{own.n_rollouts:,}" for own in figure("reward_mu")], rank=3),
        Column("b", shown("b_hat")),
        Column(f"{100 * found.settings.level:g}% interval", on_the_point(ends)),
        Column("margin", on_the_point([number(point.margin) for point in points]), rank=1),
        Column("beyond", [_yes(point.beyond) for point in points], left=True, style=_alarm),
        Column(
            "v", on_the_point([short(point.within_var_log_product) for point in points]), rank=1
        ),
        Column("gate", [point.gate for point in points], left=True, style=GATE_STYLES.get),
    ]
    ranks = {"g_pi": 2, "g_mu": 4, "explained_variance": 2, "m": 2, "ess_rollout": 2}
    for name in SERIES:
        if name != "b_hat" and any(own.value is not None for own in figure(name)):
            columns.append(Column(HEADS[name], shown(name), rank=ranks.get(name, 4)))
    return [terminal.paint(f"By {found.settings.by}", "bold"), *table(columns, terminal)]


def _yes(beyond: bool | None) -> str:
    return {True: "yes", False: "no", None: "?"}[beyond]


def _alarm(text: str) -> str | None:
    return "red" if text == "yes" else None


def _tests(found: Trend, terminal: Terminal) -> list[str]:
    tests = {name: test for name, test in found.tests.items() if test.p_value is not None}
    if not tests:
        return []
    own = list(tests.values())
    columns = [
        Column("figure", [HEADS[name] for name in tests], left=True),
        Column(f"per {found.settings.by}", on_the_point([_slope(test) for test in own])),
        Column(
            f"{100 * found.settings.level:g}% interval",
            on_the_point([_ends(test) for test in own]),
        ),
        Column("p", on_the_point([_p(test) for test in own])),
        Column("", [SERIES[name] for name in tests], left=True, rank=1),
    ]
    n = max(test.n_keys for test in own)
    head = f"Trend over {counted(n, 'key')} (least squares, HAC error with lag {own[0].lag})"
    lines = [terminal.paint(head, "bold"), *table(columns, terminal)]
    rough = next((test.slope.reason for test in own if test.slope.reason), None)
    if rough is not None:
        lines += terminal.paragraph(f"not to be relied on: {rough}", "  ", "  ")
    return lines


def _slope(test: TrendTest) -> str:
    return number(test.slope.value, test.slope.se, sign=True)


def _ends(test: TrendTest) -> str:
    own = test.slope
    return interval(own.ci_low, own.ci_high, own.se, sign=True)


def _p(test: TrendTest) -> str:
    assert test.p_value is not None
    return "<.001" if test.p_value < 0.001 else f"{test.p_value:.3f}"
