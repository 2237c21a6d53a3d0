"""A `ValueGap` for people: what it says in a sentence, its figures, its curve, its caveats."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from brace_diag.number_words import counted, interval, number, share, short
from brace_diag.report.words import gap_sentence

from .tables import Column, on_the_point, table
from .terminal import Terminal

if TYPE_CHECKING:
    from brace_diag.quality import DataQuality
    from brace_diag.results import Cell, Companion, Curve, Estimate, KeyedGap, ValueGap

GATE_STYLES = {
    "good": "green",
    "fair": "green",
    "direction": "yellow",
    "refused": "red",
    "unknown": "dim",
}
CANNOT_TELL = "This log cannot tell the gap:"
FIGURES = (
    ("b_hat", "b", "gap, V^pi - V^mu", True),
    ("reward_mu", "E_mu[R]", "mean return in the log", False),
    ("reward_pi", "E_pi[R]", "mean return of pi: E_mu[R] + b", False),
    ("critic_mean", "V", "mean critic", False),
    ("g_pi_signed", "V - E_pi[R]", "critic against pi (g_pi: its size)", True),
    ("g_mu_signed", "V - E_mu[R]", "critic against mu (g_mu: its size)", True),
    ("return_sd", "s_A", "spread of the return within a prompt", False),
)
EXTRA_COLUMNS = 3


def gap_text(gap: ValueGap, terminal: Terminal, remarks: Sequence[str] = ()) -> str:
    """The whole answer as text, with a newline at its end.

    Args:
        remarks: sentences about the log's columns.
    """
    blocks = [
        headline(gap, terminal),
        _batch(gap, terminal),
        _trust(gap, terminal),
        gap_table(gap, terminal),
        _direct(gap, terminal),
        *_keyed(gap, terminal),
        bullets("Notes", gap.notes, terminal),
        quality_text(gap.quality, terminal, gap.source, remarks),
    ]
    return "\n".join("\n".join([*block, ""]) for block in blocks if block)


def headline(gap: ValueGap, terminal: Terminal) -> list[str]:
    """What the log says about the gap at the first token, in a sentence or two."""
    if gap.invalid is not None:
        return [
            *(terminal.paint(line, "bold") for line in terminal.paragraph(CANNOT_TELL)),
            *terminal.paragraph(gap.invalid, "  ", "  "),
        ]
    told = gap_sentence(gap)
    if gap.batch.b_hat.value is None:
        return terminal.paragraph(told)
    return [terminal.paint(line, "bold") for line in terminal.paragraph(told)]


def _batch(gap: ValueGap, terminal: Terminal) -> list[str]:
    rows = [
        (symbol, meaning, signed, getattr(gap.batch, name))
        for name, symbol, meaning, signed in FIGURES
    ]
    if all(estimate.value is None for name, _, _, estimate in rows if name.startswith("V")):
        rows = [row for row in rows if not row[0].startswith("V")]
    columns = [
        Column("at the first token", [symbol for symbol, *_ in rows], left=True),
        *_estimate_columns([(e, signed) for _, _, signed, e in rows], _percent(gap)),
        Column("", [_meaning(m, e, gap.batch.b_hat.reason) for _, m, _, e in rows], left=True),
    ]
    return table(columns, terminal)


def _meaning(meaning: str, estimate: Estimate, told: str | None) -> str:
    """The meaning of a figure, and why it is not there unless that has been told already."""
    if estimate.reliable:
        return meaning
    if estimate.value is not None:
        return f"{meaning} (unreliable)"
    return f"{meaning} (none)" if estimate.reason == told else f"{meaning}: {estimate.reason}"


def _percent(gap: ValueGap) -> str:
    return f"{100 * gap.settings.level:g}% interval"


def _estimate_columns(rows: Sequence[tuple[Estimate, bool]], head: str) -> list[Column]:
    values = [number(e.value, e.se, sign=signed) for e, signed in rows]
    ends = [interval(e.ci_low, e.ci_high, e.se, sign=signed) for e, signed in rows]
    return [Column("return", on_the_point(values)), Column(head, on_the_point(ends))]


def _trust(gap: ValueGap, terminal: Terminal) -> list[str]:
    """Companions of b at the first token, a line each."""
    first = gap.gap.cells[0].companions if gap.gap.cells else {}
    v = first.get("within_var_log_product")
    gate = terminal.paint(gap.gate, GATE_STYLES[gap.gate])
    size = "cannot be measured" if v is None else f"is {_companion(v)}"
    lines = [f"gate {gate}: the within-prompt variance of the log product {size}"]
    if gap.settings.axis != "position":
        lines = [f"gate at the first token: {gate}"]
    z = gap.saturation_z.value
    if z is not None:
        lines.append(f"saturation z {z:+.1f} (beyond -2 or +2: first_order and wdr part)")
    w = gap.mean_weight
    if w.value is not None:
        ends = "" if w.se is None else f"{interval(w.ci_low, w.ci_high, w.se)}; "
        lines.append(f"mean pi/mu per token {number(w.value, w.se)} ({ends}1 for a true ratio)")
    kept = [
        f"{share(part)} over {name}"
        for name in ("positions", "prompts")
        if isinstance(part := gap.whitening.get(f"share_over_{name}"), float)
    ]
    if kept:
        lines.append(f"share of E[b^2] that advantage whitening cannot remove: {', '.join(kept)}")
    return [f"  {line}" for line in lines]


WHERE = {"fresh": "fresh rollouts from pi", "staleness_0": "rollouts of staleness 0"}


def _direct(gap: ValueGap, terminal: Terminal) -> list[str]:
    """The gap from returns alone, a line for each kind, and how far it is from the weights'."""
    if not gap.direct:
        return []
    b = [(one.b, True) for one in gap.direct]
    value, ends = _estimate_columns(b, _percent(gap))
    columns = [
        Column("from returns alone", [WHERE[one.kind] for one in gap.direct], left=True),
        Column("rollouts", [f"{one.n_drawn:,}" for one in gap.direct]),
        Column("prompts", [f"{one.n_prompts:,}" if one.n_prompts else "-" for one in gap.direct]),
        Column("b", value.cells),
        ends,
        Column("z to wdr", [short(one.z) for one in gap.direct]),
        Column("", [one.b.reason or "" for one in gap.direct], left=True),
    ]
    return table(columns, terminal)


def gap_table(gap: ValueGap, terminal: Terminal) -> list[str]:
    """The gap along its axis, a line per cell, with bracket, gate and critic bias."""
    axis = gap.gap.axis
    head = f"Gap b(t) = V^pi - V^mu by {AXES[axis]}, in units of the return"
    if not gap.gap.cells:
        return [f"{head}: no cell"]
    columns = curve_columns(gap.gap, _percent(gap))
    bias = {cell.low: cell.estimate for cell in gap.critic_bias.cells}
    values = [bias.get(cell.low) for cell in gap.gap.cells]
    if any(e is not None and e.value is not None for e in values):
        texts = [number(e.value, e.se, sign=True) if e else "-" for e in values]
        errors = [f"+- {number(e.se, e.se)}" if e and e.se is not None else "" for e in values]
        columns.append(Column("V-V^pi", on_the_point(texts), rank=1))
        columns.append(Column("se", on_the_point(errors), rank=1))
    return [terminal.paint(head, "bold"), *table(columns, terminal)]


AXES = {
    "position": "token position",
    "horizon": "remaining horizon",
    "relative": "relative position",
}


def curve_columns(curve: Curve, percent: str) -> list[Column]:
    """The columns that every gap along an axis has."""
    cells = curve.cells
    rows = [(cell.estimate, True) for cell in cells]
    value, ends = _estimate_columns(rows, percent)
    return [
        Column(curve.axis, [_range(curve.axis, cell) for cell in cells]),
        Column("rollouts", [f"{cell.estimate.n_rollouts:,}" for cell in cells]),
        Column("b", value.cells),
        ends,
        Column("first order", _bracket(cells, "first_order"), rank=2),
        Column("doubly robust", _bracket(cells, "doubly_robust"), rank=2),
        Column("v", _numbers(cells, "within_var_log_product", short), rank=0),
        Column(
            "gate",
            [str(cell.companions.get("gate", "-")) for cell in cells],
            left=True,
            style=GATE_STYLES.get,
        ),
        Column("ESS", _numbers(cells, "ess_fraction", share), rank=EXTRA_COLUMNS),
        Column("k-hat", _numbers(cells, "pareto_k", short), rank=EXTRA_COLUMNS),
    ]


def _range(axis: str, cell: Cell) -> str:
    if axis == "relative":
        return f"{100 * cell.low:.0f}-{100 * cell.high:.0f}%"
    low, high = int(cell.low), int(cell.high)
    return f"{low:,}" if low == high else f"{low:,}-{high:,}"


def _bracket(cells: Sequence[Cell], name: str) -> list[str]:
    texts = []
    for cell in cells:
        other = cell.companions.get(name)
        value: float | None = getattr(other, "value", None)
        texts.append(number(value, getattr(other, "se", None), sign=True))
    return on_the_point(texts)


def _numbers(cells: Sequence[Cell], name: str, show: Callable[[float | None], str]) -> list[str]:
    return on_the_point([_companion(cell.companions.get(name), show) for cell in cells])


def _companion(value: Companion, show: Callable[[float | None], str] = short) -> str:
    return show(value) if isinstance(value, float | int) else "-"


def _keyed(gap: ValueGap, terminal: Terminal) -> list[list[str]]:
    """One line per key, and the gap by position of each where it was asked for."""
    key = gap.settings.by
    if key is None:
        return []
    if not gap.by:
        return [[f"By {key}: the log tells no {key} for any rollout"]]
    blocks = [[terminal.paint(f"By {key}, at the first token", "bold"), *_key_table(gap, terminal)]]
    if gap.settings.by_positions:
        for entry in gap.by:
            head = terminal.paint(f"{key} {entry.key}: gap by token position", "bold")
            blocks.append([head, *table(curve_columns(entry.gap, _percent(gap)), terminal)])
    return blocks


def _key_table(gap: ValueGap, terminal: Terminal) -> list[str]:
    entries = gap.by
    b = [(entry.batch.b_hat, True) for entry in entries]
    value, ends = _estimate_columns(b, _percent(gap))
    columns = [
        Column(str(gap.settings.by), [str(entry.key) for entry in entries]),
        Column("rollouts", [f"{entry.batch.b_hat.n_rollouts:,}" for entry in entries]),
        Column("b", value.cells),
        ends,
        Column("E_mu[R]", _figure(entries, "reward_mu", False), rank=2),
        Column("E_pi[R]", _figure(entries, "reward_pi", False), rank=2),
        Column("v", on_the_point([short(entry.within_var_log_product) for entry in entries])),
        Column("gate", [entry.gate for entry in entries], left=True, style=GATE_STYLES.get),
    ]
    if any(entry.batch.critic_mean.value is not None for entry in entries):
        columns.append(Column("V", _figure(entries, "critic_mean", False), rank=3))
        columns.append(Column("V-E_pi[R]", _figure(entries, "g_pi_signed", True), rank=1))
    return table(columns, terminal)


def _figure(entries: Sequence[KeyedGap], name: str, sign: bool) -> list[str]:
    figures: list[Estimate] = [getattr(entry.batch, name) for entry in entries]
    return on_the_point([number(e.value, e.se, sign=sign) for e in figures])


def bullets(title: str, sentences: Sequence[str], terminal: Terminal) -> list[str]:
    """A titled list, a sentence per line; nothing where there is none."""
    if not sentences:
        return []
    lines = [terminal.paint(title, "bold")]
    for sentence in sentences:
        lines += terminal.paragraph(sentence, "  - ", "    ")
    return lines


def quality_text(
    quality: DataQuality, terminal: Terminal, source: str, columns: Sequence[str]
) -> list[str]:
    """What the log held, and every count of what was not taken at face value.

    Args:
        columns: sentences about the log's columns.
    """
    head = (
        f"{source}: {counted(quality.n_rows, 'row')}, {counted(quality.n_rollouts, 'rollout')}, "
        f"{counted(quality.n_tokens, 'policy token')}"
    )
    remarks = [f"{count:,} {meaning}" for _, count, meaning in quality.remarks()]
    if not remarks:
        head += "; nothing was set aside"
    lines = [terminal.paint("Data", "bold"), *terminal.paragraph(head, "  ", "  ")]
    for remark in (*remarks, *columns):
        lines += terminal.paragraph(remark, "  - ", "    ")
    return lines
