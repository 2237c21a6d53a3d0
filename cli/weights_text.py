"""`ImportanceProducts` for people: how products fall, whether w is a ratio, what stands out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from brace_diag.number_words import counted, interval, number, share, short

from .gap_text import bullets, quality_text
from .tables import Column, on_the_point, table
from .terminal import Terminal

if TYPE_CHECKING:
    from brace_diag.results import Cell, Companion, Estimate
    from brace_diag.results_importance import ImportanceProducts, KeyedWeights, Tails

CANNOT_TELL = "This log cannot tell how the weights behave:"
VERDICTS = {
    "importance_ratio": ("yes", "green"),
    "no_staleness": ("nothing to judge", "yellow"),
    "unknown": ("cannot be judged", "yellow"),
    "misaligned": ("no: misaligned", "red"),
    "copied": ("no: pi is a copy of mu", "red"),
    "engine_mismatch": ("no: engine mismatch", "red"),
    "miscalibrated": ("not quite: miscalibrated", "red"),
}
PRODUCTS = (
    ("m", "mean of log min(c_bar, w) per token"),
    ("sigma", "its standard deviation"),
    ("sigma_hac", "long-run standard deviation"),
    ("tau_prompt", "sd between prompts of the mean"),
    ("usable_horizon", "tokens until exp(n m) is"),
)
RATIO = (
    ("mean_weight", "mean w", "per token; 1 for a true ratio"),
    ("u_control", "U", "mean over rollouts of sum (w - 1); 0 for a true ratio"),
    ("mean_abs_log_w", "E|log w|", "per token"),
    ("kl_k1", "k1", "KL(mu|pi) per token, E[-log w]"),
    ("kl_k3", "k3", "the same, E[w - 1 - log w]"),
    ("chi2_token", "chi2", "per token, E[(w - 1)^2]"),
    ("log_chi2_rollout", "log chi2", "per rollout, of the product of its w"),
)
SHARES = (
    ("ess_token", "ESS of tokens", "weights w"),
    ("ess_token_capped", "ESS of tokens, capped", "weights min(rho_bar, w)"),
    ("ess_rollout", "ESS of rollouts", "products of w"),
    ("ess_rollout_capped", "ESS of rollouts, capped", "products of min(c_bar, w)"),
    ("clip_rho_bar", "clipped by rho_bar", "tokens with w > rho_bar"),
    ("clip_c_bar", "clipped by c_bar", "tokens with w > c_bar"),
)


def weights_text(
    result: ImportanceProducts, terminal: Terminal, remarks: Sequence[str] = ()
) -> str:
    """The whole answer as text, with a newline at its end.

    Args:
        remarks: sentences about the log's columns.
    """
    blocks = [
        headline(result, terminal),
        _products(result, terminal),
        _log_products(result, terminal),
        _ratio(result, terminal),
        _shares(result, terminal),
        _tails(result, terminal),
        _keyed(result, terminal),
        bullets("Notes", result.notes, terminal),
        quality_text(result.quality, terminal, result.source, remarks),
    ]
    return "\n".join("\n".join([*block, ""]) for block in blocks if block)


def headline(result: ImportanceProducts, terminal: Terminal) -> list[str]:
    """How fast the product falls, in a sentence or two."""
    if result.invalid is not None:
        return [
            *(terminal.paint(line, "bold") for line in terminal.paragraph(CANNOT_TELL)),
            *terminal.paragraph(result.invalid, "  ", "  "),
        ]
    m = result.figures.m
    if m.value is None:
        return terminal.paragraph(f"No mean log-weight: {m.reason}.")
    return [terminal.paint(line, "bold") for line in terminal.paragraph(_sentence(result))]


def _sentence(result: ImportanceProducts) -> str:
    m, half, horizon = result.figures.m, result.half_life, result.figures.usable_horizon
    c_bar, eps = result.settings.c_bar, result.settings.eps
    ends = (
        "" if m.ci_low is None else f" ({_percent(result)} {interval(m.ci_low, m.ci_high, m.se)})"
    )
    text = (
        f"At c_bar = {c_bar:g} a token adds m = {number(m.value, m.se)} to the log-product{ends}. "
    )
    if half.value is None:
        text += f"The mean product has no half-life here: {half.reason}"
    else:
        text += f"The mean product falls to one half within {number(half.value, half.se)} tokens"
    if horizon.value is not None:
        text += f"; exp(n m) is {eps:g} after {number(horizon.value, horizon.se)}"
    if result.ratio.verdict == "miscalibrated":
        return f"{text}. But w is no exact ratio here, and none of this is to be believed."
    return f"{text}."


def _percent(result: ImportanceProducts) -> str:
    return f"{100 * result.settings.level:g}% interval"


def _rows(
    rows: Sequence[tuple[str, Estimate, str]], head: str, result: ImportanceProducts,
    terminal: Terminal,
) -> list[str]:  # fmt: skip
    """A table of estimates: name, value, interval, meaning."""
    values = [number(e.value, e.se) for _, e, _ in rows]
    ends = [interval(e.ci_low, e.ci_high, e.se) for _, e, _ in rows]
    columns = [
        Column(head, [name for name, _, _ in rows], left=True),
        Column("", on_the_point(values)),
        Column(_percent(result), on_the_point(ends)),
        Column("", [_meaning(meaning, e, result) for _, e, meaning in rows], left=True),
    ]
    return table(columns, terminal)


def _meaning(meaning: str, estimate: Estimate, result: ImportanceProducts) -> str:
    """The meaning of a figure, and why it is not there or not to be relied on, told once."""
    if estimate.reliable:
        return meaning
    told = result.figures.m
    if estimate.reason == told.reason and estimate is not told:
        return f"{meaning} ({'none' if estimate.value is None else 'unreliable'})"
    if estimate.value is None:
        return f"{meaning}: {estimate.reason}"
    return f"{meaning} (unreliable: {estimate.reason})"


def _products(result: ImportanceProducts, terminal: Terminal) -> list[str]:
    f, eps = result.figures, result.settings.eps
    rows = []
    for suffix, words in (("", f"c_bar {result.settings.c_bar:g}"), ("_uncapped", "no cap")):
        for name, meaning in PRODUCTS:
            if name == "usable_horizon":
                meaning = f"{meaning} {eps:g}"
            if suffix:
                meaning = meaning.replace("log min(c_bar, w)", "log w")
            shown = name.replace("_prompt", "").replace("sigma_hac", "s_HAC").replace("_", " ")
            rows.append((f"{shown}, {words}", getattr(f, f"{name}{suffix}"), meaning))
    rows += [
        ("half-life", result.half_life, f"of the mean product, c_bar {result.settings.c_bar:g}"),
        ("half-life, c_bar 1", result.half_life_one, "the same at c_bar 1"),
        ("1.39/E|log w|", result.half_life_rule, "the rule for c_bar 1"),
    ]
    return _rows(rows, "per token, in tokens", result, terminal)


def _log_products(result: ImportanceProducts, terminal: Terminal) -> list[str]:
    cells = result.log_products.cells
    if not cells:
        return []
    level = f"{100 * result.settings.level:g}%"
    head = (
        f"Log-product of n tokens at c_bar = {result.settings.c_bar:g}: seen, and forecast as "
        f"n m +- z spread; share of windows inside at a nominal {level}"
    )
    columns = [
        Column("n", [f"{int(cell.low):,}" for cell in cells]),
        Column("windows", [f"{_int(cell, 'n_windows'):,}" for cell in cells], rank=3),
        Column("mean", on_the_point([number(c.estimate.value, c.estimate.se) for c in cells])),
        Column("n m", _column(cells, "forecast_mean"), rank=1),
        Column("sd", _column(cells, "observed_sd")),
        Column("sqrt(n) sigma (naive)", _spread(cells, "naive")),
        Column("sqrt(n) s_HAC", _spread(cells, "hac"), rank=2),
        Column("with tau", _spread(cells, "prompt")),
        Column("E[C]", on_the_point([_mean_product(cell) for cell in cells]), rank=1),
    ]
    return [
        *(terminal.paint(line, "bold") for line in terminal.paragraph(head)),
        *table(columns, terminal),
    ]


def _int(cell: Cell, name: str) -> int:
    value = cell.companions.get(name)
    return value if isinstance(value, int) else 0


def _float(value: Companion) -> float | None:
    found = getattr(value, "value", value)
    return found if isinstance(found, float) else None


def _column(cells: Sequence[Cell], name: str) -> list[str]:
    return on_the_point([number(_float(cell.companions.get(name))) for cell in cells])


def _spread(cells: Sequence[Cell], name: str) -> list[str]:
    """Spread and, where there are windows enough, the share that it covers."""
    spreads = _column(cells, f"spread_{name}")
    covers = [share(_float(cell.companions.get(f"coverage_{name}"))) for cell in cells]
    return [f"{s} {c:>4}" for s, c in zip(spreads, covers, strict=True)]


def _mean_product(cell: Cell) -> str:
    product = cell.companions.get("mean_product")
    value: float | None = getattr(product, "value", None)
    return number(value, getattr(product, "se", None))


def _ratio(result: ImportanceProducts, terminal: Terminal) -> list[str]:
    words, style = VERDICTS[result.ratio.verdict]
    told = terminal.paint(words, style)
    lines = [terminal.paint("Is w = pi/mu an importance ratio?", "bold") + f" {told}"]
    if result.ratio.verdict in ("engine_mismatch", "miscalibrated"):
        lines += terminal.paragraph(f"likely cause: {result.ratio.cause}", "  ", "  ")
    rows = [(symbol, getattr(result.figures, name), text) for name, symbol, text in RATIO]
    if result.noise_floor.value is not None:
        rows += [
            ("noise floor", result.noise_floor, "E|log w| of rollouts of staleness 0"),
            ("above it", result.excess_abs_log_w, "E|log w| of stale rollouts less the floor"),
        ]
    return lines + _rows(rows, "", result, terminal)


def _shares(result: ImportanceProducts, terminal: Terminal) -> list[str]:
    rows = [(name, getattr(result.figures, field), text) for field, name, text in SHARES]
    columns = [
        Column("share of all", [name for name, _, _ in rows], left=True),
        Column("", [_share(e.value) for _, e, _ in rows]),
        Column(_percent(result), [_share_ends(e) for _, e, _ in rows]),
        Column("", [_meaning(text, e, result) for _, e, text in rows], left=True),
    ]
    k, limit = result.pareto_k, result.pareto_k_limit
    tail = "cannot be fitted" if k is None else f"{short(k)}, trusted up to {short(limit)}"
    return [*table(columns, terminal), f"  k-hat of the products of w: {tail}"]


def _share(value: float | None) -> str:
    """A share with one decimal, two significant digits where it is small."""
    if value is None:
        return "-"
    return f"{100 * value:.1f}%" if value >= 0.01 or value == 0.0 else f"{100 * value:.2g}%"


def _share_ends(estimate: Estimate) -> str:
    if estimate.ci_low is None or estimate.ci_high is None:
        return "-"
    return f"{_share(max(estimate.ci_low, 0.0))} .. {_share(min(estimate.ci_high, 1.0))}"


def _tails(result: ImportanceProducts, terminal: Terminal) -> list[str]:
    tails = result.tails
    lines = [terminal.paint("Tails of log w", "bold")]
    if tails.lowest is None or tails.highest is None:
        return [*lines, "  no token with both log-probs"]
    quantiles = [(f"{100 * p:g}%", q) for p, q in tails.quantiles.items()]
    columns = [
        Column("", ["log w"], left=True),
        Column("least", [_least(tails.lowest)]),
        *(
            Column(name, [number(q)], rank=1 if name not in ("1%", "50%", "99%") else 0)
            for name, q in quantiles
        ),
        Column("most", [number(tails.highest)]),
    ]
    lines += table(columns, terminal)
    lines.append(f"  {counted(tails.n_extreme, 'token')} with |log w| > 5")
    return lines + _carriers(tails, terminal)


def _least(value: float) -> str:
    return number(value) if math.isfinite(value) else "-inf"


WHERE = {"token_id": "token id", "position": "position", "horizon": "tokens before the last"}


def _carriers(tails: Tails, terminal: Terminal) -> list[str]:
    if not tails.carriers:
        return []
    rows = tails.carriers
    columns = [
        Column("carried by", [WHERE[c.kind] for c in rows], left=True),
        Column("", [f"{c.low:,}" if c.low == c.high else f"{c.low:,}-{c.high:,}" for c in rows]),
        Column("tokens", [f"{c.count:,}" for c in rows]),
        Column("share", [share(c.share) for c in rows]),
    ]
    return table(columns, terminal, indent="    ")


def _keyed(result: ImportanceProducts, terminal: Terminal) -> list[str]:
    """One line per key."""
    key = result.settings.by
    if key is None:
        return []
    if not result.by:
        return [f"By {key}: the log tells no {key} for any rollout"]
    entries = result.by
    columns = [
        Column(key, [str(entry.key) for entry in entries]),
        Column("rollouts", [f"{entry.figures.m.n_rollouts:,}" for entry in entries]),
        Column("m", _figure(entries, "m")),
        Column("sigma", _figure(entries, "sigma"), rank=1),
        Column("tau", _figure(entries, "tau_prompt"), rank=2),
        Column("horizon", _figure(entries, "usable_horizon"), rank=1),
        Column("mean w", _figure(entries, "mean_weight")),
        Column("U", _figure(entries, "u_control"), rank=2),
        Column("k3", _figure(entries, "kl_k3"), rank=2),
        Column("ESS tokens", [_share(e.figures.ess_token.value) for e in entries], rank=1),
        Column("ESS rollouts", [_share(e.figures.ess_rollout.value) for e in entries]),
        Column("> rho_bar", [_share(e.figures.clip_rho_bar.value) for e in entries], rank=1),
    ]
    return [terminal.paint(f"By {key}", "bold"), *table(columns, terminal)]


def _figure(entries: Sequence[KeyedWeights], name: str) -> list[str]:
    figures: list[Estimate] = [getattr(entry.figures, name) for entry in entries]
    return on_the_point([number(e.value, e.se) for e in figures])
