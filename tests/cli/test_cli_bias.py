"""`bias` from a file on disk to a table, a document and a figure."""

import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from jsonschema import Draft202012Validator

from brace_diag import open_run, value_gap
from brace_diag.schemas import load_schema

Cli = Callable[..., Any]
LogOf = Callable[..., Path]


def parsed(outcome: Any, command: str = "bias") -> dict[str, Any]:
    """The document of a run that must have gone well, checked against its schema."""
    assert outcome.code == 0, outcome.err
    assert outcome.err == ""

    def refuse(name: str) -> float:
        raise AssertionError(f"{name} is not JSON")

    document: dict[str, Any] = json.loads(outcome.out, parse_constant=refuse)
    Draft202012Validator(load_schema(command)).validate(document)
    return document


def test_table_shows_what_the_library_computes(cli: Cli, log_of: LogOf) -> None:
    path = log_of()
    gap = value_gap(open_run(str(path)))
    outcome = cli("bias", path)
    assert (outcome.code, outcome.err) == (0, "")
    b = gap.batch.b_hat
    assert b.value is not None
    assert f"b = {b.value:+.3f}"[:8] in outcome.out
    assert f"{gap.quality.n_tokens:,} policy tokens" in outcome.out
    for note in gap.notes:
        assert note in outcome.out
    assert len([line for line in outcome.out.splitlines() if " .. " in line]) >= len(gap.gap.cells)


def test_document_holds_what_the_library_computes(cli: Cli, log_of: LogOf) -> None:
    path = log_of()
    document = parsed(cli("bias", path, "--json", "--gamma", "0.99", "--level", "0.9"))
    gap = value_gap(open_run(str(path)), gamma=0.99, level=0.9)
    assert document["settings"] == gap.settings.to_dict()
    assert document["quality"] == gap.quality.to_dict()
    assert document["source"]["paths"] == [str(path)]
    assert document["source"]["columns"]["mu_logprobs"] == "mu_logprobs"
    b = document["results"]["batch"]["b_hat"]
    # Ten significant digits are printed: half a unit of the tenth is 5e-10 at most.
    assert b["value"] == pytest.approx(gap.batch.b_hat.value, rel=5e-10)
    assert b["level"] == 0.9
    assert [c["low"] for c in document["results"]["gap"]["cells"]] == [c.low for c in gap.gap.cells]


def test_keys_and_positions(cli: Cli, log_of: LogOf) -> None:
    path = log_of()
    by_step = parsed(cli("bias", path, "--json", "--by", "step"))["results"]["by"]
    assert [entry["key"] for entry in by_step["entries"]] == [0, 10]
    assert all(len(entry["gap"]["cells"]) == 1 for entry in by_step["entries"])
    words = ("bias", path, "--by", "staleness", "--positions")
    by_staleness = parsed(cli(*words, "--json"))["results"]["by"]
    assert [entry["key"] for entry in by_staleness["entries"]] == [0, 4]
    assert all(len(entry["gap"]["cells"]) > 5 for entry in by_staleness["entries"])
    text = cli(*words).out
    assert "By staleness, at the first token" in text
    assert "staleness 4: gap by token position" in text


def test_steps_choose_rows(cli: Cli, log_of: LogOf) -> None:
    path = log_of()
    assert parsed(cli("bias", path, "--json", "--steps", "0:10"))["quality"]["n_rows"] == 96
    assert parsed(cli("bias", path, "--json", "--steps", "0:11"))["quality"]["n_rows"] == 192
    assert parsed(cli("bias", path, "--json", "--steps", "10"))["quality"]["n_rows"] == 96


def test_other_names(cli: Cli, log_of: LogOf) -> None:
    table = pq.read_table(log_of()).rename_columns({"values": "vf", "pi_logprobs": "old_logprobs"})
    path = log_of("renamed.parquet")
    pq.write_table(table, path)
    maps = ("--map", "values=vf", "--map", "pi_logprobs=old_logprobs")
    document = parsed(cli("bias", path, "--json", *maps))
    assert document["source"]["columns"]["values"] == "vf"
    plain = parsed(cli("bias", log_of(), "--json"))
    assert document["results"] == plain["results"]
    assert "  - values is taken from vf\n" in cli("bias", path, *maps).out
    unmapped = cli("bias", path, *maps[2:]).out
    assert "  - columns not used: vf (--map gives a column a meaning)\n" in unmapped


@pytest.mark.parametrize("axis", ["horizon", "relative"])
def test_other_axes_carry_their_warning(cli: Cli, log_of: LogOf, axis: str) -> None:
    document = parsed(cli("bias", log_of(), "--json", "--axis", axis))
    assert document["results"]["gap"]["axis"] == axis
    assert any("biased" in note for note in document["notes"])


def test_the_cut_into_files_changes_nothing(cli: Cli, log_of: LogOf, tmp_path: Path) -> None:
    table = pq.read_table(log_of())
    folder = tmp_path / "run"
    texts = []
    for n_files in (1, 3, 48):
        folder.mkdir()
        edges = np.linspace(0, table.num_rows, n_files + 1).astype(int)
        for i, (low, high) in enumerate(pairwise(edges)):
            pq.write_table(table.slice(low, high - low), folder / f"part-{i:03d}.parquet")
        outcome = cli("bias", folder, "--json", "--by", "step")
        parsed(outcome)
        texts.append(outcome.out)
        for part in folder.iterdir():
            part.unlink()
        folder.rmdir()
    assert texts[0] == texts[1] == texts[2]


def test_threads_change_nothing(cli: Cli, log_of: LogOf) -> None:
    path = log_of()
    one = cli("bias", path, "--json", "--threads", "1")
    assert one.out == cli("bias", path, "--json", "--threads", "3").out


@pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
@pytest.mark.parametrize("key", [(), ("--by", "step")])
def test_a_figure_is_written(
    cli: Cli, log_of: LogOf, tmp_path: Path, ending: str, key: tuple[str, ...]
) -> None:
    figure = tmp_path / f"gap.{ending}"
    outcome = cli("bias", log_of(), "--plot", figure, *key)
    assert outcome.code == 0
    assert outcome.err == f"wrote {figure}\n"
    assert "by token position" in outcome.out
    start = figure.read_bytes()[:5]
    assert start in (b"\x89PNG\r", b"<?xml", b"%PDF-")
    quiet = cli("bias", log_of(), "--plot", figure, "--quiet", *key)
    assert quiet.err == ""
    assert quiet.out == outcome.out


def test_without_a_critic(cli: Cli, log_of: LogOf) -> None:
    path = log_of(values=None)
    document = parsed(cli("bias", path, "--json"))
    batch = document["results"]["batch"]
    assert batch["b_hat"]["value"] is not None
    assert batch["critic_mean"]["value"] is None
    assert "no critic" in batch["critic_mean"]["reason"]
    text = cli("bias", path).out
    assert "V-V^pi" not in text


def test_a_column_of_nothing_but_nan(cli: Cli, log_of: LogOf) -> None:
    template = pq.read_table(log_of())["pi_logprobs"].to_pylist()
    path = log_of(pi_logprobs=[[float("nan")] * len(row) for row in template])
    document = parsed(cli("bias", path, "--json"))
    b = document["results"]["batch"]["b_hat"]
    assert b["value"] is None
    assert b["reason"]
    text = cli("bias", path).out
    assert text.startswith("No gap at the first token: ")
    assert f"{sum(map(len, template)):,} policy tokens whose pi log-prob is null" in text


def test_a_log_without_staleness_is_not_evidence(cli: Cli, log_of: LogOf) -> None:
    rows = pq.read_table(log_of())["mu_logprobs"].to_pylist()
    text = cli("bias", log_of(pi_logprobs=rows)).out
    assert text.startswith("This log cannot tell the gap:")
    assert "no staleness logged" in text


def test_columns_that_are_shifted_are_named(cli: Cli, log_of: LogOf) -> None:
    rows = pq.read_table(log_of())["mu_logprobs"].to_pylist()
    text = cli("bias", log_of(pi_logprobs=[row[1:] + row[:1] for row in rows])).out
    assert text.startswith("This log cannot tell the gap:")
    assert "MISALIGNED" in text


def test_an_engine_mismatch_withholds_the_verdict(cli: Cli, log_of: LogOf) -> None:
    rows = pq.read_table(log_of())["mu_logprobs"].to_pylist()
    text = cli("bias", log_of(pi_logprobs=[[x + 0.2 for x in row] for row in rows])).out
    assert text.startswith("This log cannot tell the gap:")
    assert "engine mismatch" in text


def test_rows_of_rollouts_are_written_where_asked(cli: Cli, log_of: LogOf, tmp_path: Path) -> None:
    log, out = log_of(), tmp_path / "rows.parquet"
    plain = cli("bias", log, "--json")
    outcome = cli("bias", log, "--json", "--per-rollout", out, "--by", "step")
    assert outcome.code == 0 and outcome.err == f"wrote {out}\n"
    table = pq.read_table(out)
    assert table.num_rows == 192 and set(table["used"].to_pylist()) == {True}
    assert table["return"].to_pylist() == pq.read_table(log)["reward"].to_pylist()
    assert table["staleness"].to_pylist()[:2] == [4, 0]
    again = cli("bias", log, "--json", "--per-rollout", out)
    assert again.code == 2 and again.out == ""
    assert again.err == f"error: {out} exists; choose another name, or replace it with --force\n"
    forced = cli("bias", log, "--json", "--per-rollout", out, "--force")
    assert forced.code == 0 and forced.out == plain.out, "the answer does not depend on the option"


def test_the_name_of_the_rows_is_refused_before_anything_is_read(
    cli: Cli, log_of: LogOf, tmp_path: Path
) -> None:
    log = log_of()
    outcome = cli("bias", log, "--per-rollout", "rows.csv")
    said = "--per-rollout rows.csv: the table is Parquet; let the name end in .parquet"
    assert (outcome.code, outcome.err) == (2, f"error: {said}\n")
    outcome = cli("bias", log, "--per-rollout", tmp_path / "no" / "rows.parquet")
    assert outcome.code == 2 and "make it first" in outcome.err


def test_the_group_mean_can_be_the_critic(cli: Cli, log_of: LogOf) -> None:
    bare = log_of("bare.parquet", values=None)
    outcome = cli("bias", bare, "--critic", "group-mean")
    assert outcome.code == 0, outcome.err
    assert "values is taken from the mean return of the prompt's other rollouts" in outcome.out
    assert "V - E_mu[R]" in outcome.out
    document = json.loads(cli("bias", bare, "--critic", "group-mean", "--json").out)
    assert document["source"]["columns"]["values"].startswith("the mean return")
    for command in ("audit", "trend", "sweep"):
        assert cli(command, bare, "--critic", "group-mean").code == 0
    assert cli("compare", bare, bare, "--critic", "group-mean").code == 0
    outcome = cli("bias", log_of("one.parquet", per_prompt=1), "--critic", "group-mean")
    assert outcome.code == 2
    assert "no prompt has two rollouts in a step" in outcome.err
