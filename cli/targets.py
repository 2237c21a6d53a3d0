"""`brace-diag targets`: a log with value targets beside its own columns, and how they differ."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from brace_diag.errors import InputError
from brace_diag.number_words import counted, number

from . import options as opt
from .document import document
from .files import refuse_to_replace
from .gap_text import quality_text
from .progress import progress
from .sources import column_remarks, open_source, source_block
from .tables import Column, on_the_point, table
from .terminal import Terminal, emit, say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from brace_diag.readers import Run
    from brace_diag.results import Estimate
    from brace_diag.results_targets import TargetFigures, TargetsWritten


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked for.

    Attributes:
        targets: as typed.
        defaults: parameters that a target takes where it does not state them.
        device: auto, cpu or cuda.
        level: of the intervals.
    """

    targets: list[str]
    defaults: dict[str, float]
    device: str
    level: float


def targets(
    source: list[str],
    output: Path | None,
    request: Request,
    *,
    format: opt.LogFormat,
    map: list[str] | None,
    steps: str | None,
    force: bool,
    json: bool,
    quiet: bool,
) -> None:
    """Run the command."""
    from brace_diag.settings import parse_targets

    specs = parse_targets(request.targets, **request.defaults)
    path = _checked(output, force)
    if any(path.resolve().is_relative_to(Path(s).resolve()) for s in source if Path(s).is_dir()):
        say(
            f"warning: {path} lies in the folder that is read, and is part of it next time",
            quiet=quiet,
        )
    run = open_source(source, format=format, map=map, steps=steps)
    from brace_diag.engines.targets import write_targets

    with progress("writing targets", quiet=quiet) as report:
        written = write_targets(
            run,
            path,
            specs,
            device=request.device,
            level=request.level,
            force=force,
            progress=report,
        )
    if json:
        emit(_document(source, steps, run, request, written))
    else:
        emit(targets_text(written, Terminal.of(sys.stdout), column_remarks(run)))
    say(f"wrote {path}", quiet=quiet)


def _checked(output: Path | None, force: bool) -> Path:
    """The file to write, refused before anything is read."""
    if output is None:
        raise InputError("give the new log a name with -o OUT.parquet")
    if output.suffix != ".parquet":
        raise InputError(f"-o {output}: the log is Parquet, so let the name end in .parquet")
    opt.check_folder(output, "-o")
    refuse_to_replace(output, force=force)
    return output


def _document(
    source: list[str], steps: str | None, run: Run, request: Request, written: TargetsWritten
) -> str:
    """The JSON document of `targets`."""
    parameters = {
        t.label: {"name": t.spec.name} | {k: _plain(v) for k, v in t.spec.parameters.items()}
        for t in written.targets
    }
    return document(
        "targets",
        source=source_block(source, steps, run),
        settings={
            "targets": parameters,
            "return_gamma": written.gamma,
            "level": request.level,
            "device": request.device,
        },
        quality=written.quality.to_dict(),
        results=written.to_dict(),
        notes=written.notes,
    )


def _plain(value: float) -> float | str:
    """A parameter for JSON, which has no infinity."""
    return value if value < float("inf") else "inf"


def targets_text(written: TargetsWritten, terminal: Terminal, remarks: Sequence[str]) -> str:
    """The whole answer as text, with a newline at its end."""
    notes = [line for note in written.notes for line in terminal.paragraph(note, "  - ", "    ")]
    blocks = [
        _headline(written, terminal),
        _figures(written, terminal),
        _correlations(written, terminal),
        [terminal.paint("Notes", "bold"), *notes] if notes else [],
        quality_text(written.quality, terminal, written.source, remarks),
    ]
    return "\n".join("\n".join([*block, ""]) for block in blocks if block)


def _headline(written: TargetsWritten, terminal: Terminal) -> list[str]:
    n = counted(len(written.targets), "target")
    text = (
        f"{written.path}: {counted(written.n_rows, 'row')} with {n}, computed on {written.device}"
    )
    lines = [terminal.paint(line, "bold") for line in terminal.paragraph(text)]
    for target in written.targets:
        lines += terminal.paragraph(f"{', '.join(target.columns.values())}: {target.label}", "  ")
    return lines


def _short(target: TargetFigures) -> str:
    """A target by what its columns end in; the head of the answer says what that is."""
    return target.columns["target"].removeprefix("target_")


def _figures(written: TargetsWritten, terminal: Terminal) -> list[str]:
    """How the targets differ over the tokens where all are known."""
    names = [_short(target) for target in written.targets]
    rows = [_row(t.mean, t.variance, t.minus_return, t.distance) for t in written.targets]
    rows.append(_row(written.return_mean, written.return_variance, None, None))
    names.append("return")
    if written.values_mean is not None and written.values_variance is not None:
        rows.append(_row(written.values_mean, written.values_variance, None, None))
        names.append("values")
    blank = [""] * (len(names) - len(written.targets))
    outside = [_share(None if t.outside is None else t.outside.value) for t in written.targets]
    nulls = [_share(t.null_share) for t in written.targets]
    titles = ("mean", "variance", "minus return", "|target - V|")
    columns = [Column("target", names, left=True)]
    columns += [
        Column(title, on_the_point([row[i] for row in rows]), rank=rank)
        for i, (title, rank) in enumerate(zip(titles, (0, 1, 0, 2), strict=True))
    ]
    columns += [Column("outside", [*outside, *blank], rank=3), Column("null", [*nulls, *blank])]
    head = f"Over {counted(written.n_compared, 'policy token')}"
    if written.return_range is not None:
        low, high = written.return_range
        head += f"; outside: beyond the returns of the log, {low:g} to {high:g}"
    return [
        terminal.paint("How they differ", "bold"),
        *terminal.paragraph(head, "  "),
        "",
        *table(columns, terminal),
    ]


def _row(*estimates: Estimate | None) -> list[str]:
    mean, variance, minus, distance = (
        "" if e is None else number(e.value, e.se, sign=i == 2) for i, e in enumerate(estimates)
    )
    return [mean, variance, minus, distance]


def _share(value: float | None) -> str:
    """A share in per cent, a small one not rounded to nothing."""
    if value is None:
        return "-"
    return f"{100 * value:.2g}%" if 0.0 < value < 0.01 else f"{100 * value:.0f}%"


def _correlations(written: TargetsWritten, terminal: Terminal) -> list[str]:
    """The correlation of every target with the return, the critic and each other."""
    short = {target.label: _short(target) for target in written.targets}
    known = written.targets[0].correlation
    others = [name for name in ("return", "values", *short) if name in known or name in short]
    columns = [Column("correlation with", list(short.values()), left=True)]
    for rank, other in enumerate(others if len(short) > 1 else others[:-1]):
        found = [t.correlation.get(other) for t in written.targets]
        cells = ["" if e is None else number(e.value, 1e-2) for e in found]
        columns.append(Column(short.get(other, other), cells, rank=rank))
    return table(columns, terminal)
