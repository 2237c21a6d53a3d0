"""`brace-diag simulate`: a log whose true gap is known exactly, and that truth beside it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from brace_diag.errors import InputError
from brace_diag.number_words import number, share, short

from . import options as opt
from .document import document
from .files import refuse_to_replace, whole_file
from .progress import Report, progress
from .tables import Column, on_the_point, table
from .terminal import Terminal, emit, say

if TYPE_CHECKING:
    from brace_diag.tabular import Scenario, SimulatedStep, Truth

FOUR_DECIMALS = 1e-3
"""The error whose two significant digits end at the fourth decimal."""


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked for; None leaves the scenario's own value.

    Attributes:
        scenario: name of a preset.
        prompts, group_size: prompts of a step, rollouts of each.
        length: tokens of a response, or at most so many where lengths are random.
        n_steps: trainer steps, pi moving on from one to the next.
        drift: E_mu|log w| per token at the last step.
        alignment: how far the drift points where the value is, 0 to 1.
        gamma: discount of the truth.
        seed: of every random draw.
    """

    scenario: str
    prompts: int | None
    group_size: int | None
    length: int | None
    n_steps: int | None
    drift: float | None
    alignment: float | None
    gamma: float
    seed: int


@dataclass(slots=True)
class _Simulated:
    """What is kept of the steps while their logs stream to disk."""

    truths: list[tuple[int, Truth]] = field(default_factory=list)
    n_rollouts: int = 0
    n_tokens: int = 0

    def tables(
        self, steps: Iterator[SimulatedStep], total: int, report: Report | None
    ) -> Iterator[Any]:
        """The steps' logs as tables, one at a time."""
        for step in steps:
            self.truths.append((step.step, step.truth))
            self.n_rollouts += step.log.n_rollouts
            self.n_tokens += step.log.n_tokens
            yield step.log.to_table()
            if report is not None:
                report(self.n_rollouts, total)


def list_scenarios() -> None:
    """Print the names of all scenarios, and what each is."""
    from brace_diag.tabular import PRESETS

    terminal = Terminal.of(sys.stdout)
    columns = [
        Column("scenario", list(PRESETS), left=True),
        Column("what it is", [preset.about for preset in PRESETS.values()], left=True),
    ]
    emit("\n".join(table(columns, terminal)) + "\n")


def simulate(
    request: Request, output: Path | None, *, force: bool, json: bool, quiet: bool
) -> None:
    """Run the command."""
    if output is None:
        raise InputError("give the log a name with -o OUT.parquet, or see --list for the scenarios")
    truth_path = output.with_suffix(".truth.json")
    if output.suffix != ".parquet":
        raise InputError(f"-o {output}: the log is Parquet, so let the name end in .parquet")
    opt.check_folder(output, "-o")
    for path in (output, truth_path):
        refuse_to_replace(path, force=force)
    from brace_diag.writer import write_canonical

    scenario = _scenario(request)
    done = _Simulated()
    with whole_file(truth_path, force=force) as truth_file:
        with progress("simulating", quiet=quiet) as report:
            steps = _steps(scenario, request.seed)
            total = scenario.n_prompts * scenario.group_size * scenario.n_steps
            write_canonical(output, done.tables(steps, total, report), force=force)
        text = _document(request, scenario, output, truth_path, done)
        truth_file.write_text(text, encoding="utf-8")
    emit(text if json else _text(request, output, done, Terminal.of(sys.stdout)))
    say(f"wrote {output} and {truth_path}", quiet=quiet)


def _steps(scenario: Scenario, seed: int) -> Iterator[SimulatedStep]:
    import numpy as np

    from brace_diag.tabular import simulate as run

    return run(scenario, np.random.default_rng(seed))


def _scenario(request: Request) -> Scenario:
    """The preset with what was asked for in the place of its own values."""
    from brace_diag.tabular import PRESETS

    preset = PRESETS.get(request.scenario)
    if preset is None:
        raise InputError(
            f"--scenario {request.scenario!r} is none of: {', '.join(PRESETS)} (see --list)"
        )
    if preset.family.neutral and request.alignment:
        raise InputError(
            f"--alignment {request.alignment:g} does not go with {request.scenario}, whose drift "
            "has nothing to do with the value; choose another scenario, or leave --alignment out"
        )
    n_prompts = request.prompts or preset.n_prompts
    asked: dict[str, Any] = {
        "horizon": request.length,
        "drift": request.drift,
        "alignment": request.alignment,
    }
    family = replace(
        preset.family,
        n_prompts=n_prompts,
        gamma=request.gamma,
        **{name: value for name, value in asked.items() if value is not None},
    )
    return replace(
        preset,
        family=family,
        n_prompts=n_prompts,
        group_size=request.group_size or preset.group_size,
        n_steps=request.n_steps or preset.n_steps,
    )


def _document(
    request: Request, scenario: Scenario, output: Path, truth_path: Path, done: _Simulated
) -> str:
    from brace_diag.quality import DataQuality

    quality = DataQuality(
        n_rows=done.n_rollouts, n_rollouts=done.n_rollouts, n_tokens=done.n_tokens
    )
    family = scenario.family
    return document(
        "simulate",
        source={"log": str(output), "truth": str(truth_path)},
        settings={
            "scenario": request.scenario,
            "prompts": scenario.n_prompts,
            "group_size": scenario.group_size,
            "length": family.horizon,
            "n_steps": scenario.n_steps,
            "drift": family.drift,
            "alignment": family.alignment,
            "gamma": family.gamma,
            "seed": request.seed,
        },
        quality=quality.to_dict(),
        results={"steps": [{"step": step, **truth.to_dict()} for step, truth in done.truths]},
        notes=[scenario.about],
    )


def _text(request: Request, output: Path, done: _Simulated, terminal: Terminal) -> str:
    last, truth = done.truths[-1]
    head = (
        f"Scenario {request.scenario}, seed {request.seed}: {done.n_rollouts:,} rollouts, "
        f"{done.n_tokens:,} policy tokens. What the log should tell, exactly:"
    )
    at = "" if len(done.truths) == 1 else f" at step {last}"
    blocks = [
        [*terminal.paragraph(head), "", *_by_step(done, terminal)],
        [f"By token position{at}, in units of the return", *_by_position(truth, terminal)],
        [f"Now measure it: brace-diag bias {output}{_flags(request, done)}"],
    ]
    return "\n".join("\n".join([*block, ""]) for block in blocks)


def _flags(request: Request, done: _Simulated) -> str:
    by = " --by step" if len(done.truths) > 1 else ""
    return by + (f" --gamma {request.gamma:g}" if request.gamma != 1.0 else "")


def _by_step(done: _Simulated, terminal: Terminal) -> list[str]:
    truths = [truth for _, truth in done.truths]
    columns = [
        Column("step", [str(step) for step, _ in done.truths]),
        Column("b", _numbers([truth.gap for truth in truths], sign=True)),
        Column("E_mu[R]", _numbers([truth.reward_mu for truth in truths])),
        Column("E_pi[R]", _numbers([truth.reward_pi for truth in truths])),
        Column("V", _numbers([truth.critic_mean for truth in truths])),
        Column("s_A", _numbers([truth.s_within for truth in truths]), rank=1),
        Column("v", [short(float(truth.within_var_log_product[0])) for truth in truths]),
        Column("mean |log w|", [number(truth.mean_abs_log_w) for truth in truths], rank=1),
        Column("mean length", [f"{truth.mean_length:,.0f}" for truth in truths], rank=1),
    ]
    return table(columns, terminal)


def _by_position(truth: Truth, terminal: Terminal) -> list[str]:
    at = [0, *(2**i for i in range(truth.horizon.bit_length()) if 2**i < truth.horizon - 1)]
    at = sorted({*at, truth.horizon - 1})
    columns = [
        Column("position", [f"{t:,}" for t in at]),
        Column("alive", [share(float(truth.alive_by_position[t])) for t in at]),
        Column("b", _numbers([float(truth.gap_by_position[t]) for t in at], sign=True)),
        Column("v", on_the_point([short(float(truth.within_var_log_product[t])) for t in at])),
    ]
    bias = truth.critic_bias_by_position
    if bias is not None:
        columns.append(Column("V-V^pi", _numbers([float(bias[t]) for t in at], sign=True)))
    return table(columns, terminal)


def _numbers(values: list[Any], *, sign: bool = False) -> list[str]:
    """Exact numbers to four decimals, below what a log of common size can tell."""
    return on_the_point([number(value, FOUR_DECIMALS, sign=sign) for value in values])
