"""`beta` from a file on disk to tables, a document and a figure."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from jsonschema import Draft202012Validator

from brace_diag import open_run, reward_slope
from brace_diag.schemas import load_schema

Cli = Callable[..., Any]
LogOf = Callable[..., Path]


def parsed(outcome: Any) -> dict[str, Any]:
    """The document of a run that must have gone well, checked against its schema."""
    assert outcome.code == 0, outcome.err
    assert outcome.err == ""

    def refuse(name: str) -> float:
        raise AssertionError(f"{name} is not JSON")

    document: dict[str, Any] = json.loads(outcome.out, parse_constant=refuse)
    Draft202012Validator(load_schema("beta")).validate(document)
    return document


def test_tables_show_what_the_library_computes(cli: Cli, log_of: LogOf) -> None:
    path = log_of()
    measured = reward_slope(open_run(str(path)))
    outcome = cli("beta", path)
    assert (outcome.code, outcome.err) == (0, "")
    lines = outcome.out.splitlines()
    for label, slopes in measured.slopes.items():
        head = lines.index(f"{label}, by tokens to go")
        for cell, line in zip(slopes.within.cells, lines[head + 2 :], strict=False):
            words = line.split()
            low = words[0].split("-")[0].replace(",", "")
            assert int(low) == cell.low
            assert float(words[2]) == pytest.approx(cell.estimate.value, abs=0.006)
    for note in measured.notes:
        assert " ".join(note.split()) in " ".join(outcome.out.split())
    assert f"{measured.quality.n_tokens:,} policy tokens" in outcome.out


def test_the_first_lines_say_how_much_is_left(cli: Cli, log_of: LogOf) -> None:
    path = log_of()
    out = cli("beta", path, "--target", "gae:lam=.5", "--target", "vtrace:n=3").out
    assert out.startswith("How much of the reward reaches each target (return weight:")
    lines = out.splitlines()
    assert lines[1].startswith("  gae:lam=0.5: 1.00 at the last token, 0.000")
    assert lines[1].endswith("below one half from 2 to go")
    assert lines[2].endswith("0 with 16-19 tokens to go; below one half from 3 to go")


def test_document_holds_what_the_library_computes(cli: Cli, log_of: LogOf) -> None:
    path = log_of()
    typed = ("--target", "vtrace:n=4", "--target", "brace:k=3", "--target", "mc")
    document = parsed(cli("beta", path, "--json", *typed, "--gamma", "0.99", "--level", "0.9"))
    measured = reward_slope(
        open_run(str(path)), ["vtrace:n=4", "brace:k=3", "mc"], gamma=0.99, level=0.9
    )
    assert document["settings"] == measured.settings.to_dict()
    assert document["quality"] == measured.quality.to_dict()
    assert document["notes"] == list(measured.notes)
    slopes = document["results"]["slopes"]
    assert list(slopes) == list(measured.slopes)
    for label, own in measured.slopes.items():
        for name in ("within", "pooled", "return_weight", "kappa_log10_median"):
            curve = getattr(own, name)
            assert slopes[label][name]["axis"] == "horizon"
            for got, cell in zip(slopes[label][name]["cells"], curve.cells, strict=True):
                assert (got["low"], got["high"]) == (cell.low, cell.high)
                # Ten significant digits are printed: half a unit of the tenth is 5e-10 at most.
                wanted = cell.estimate.value
                assert got["value"] == (
                    None if wanted is None else pytest.approx(wanted, rel=5e-10)
                )
    first = slopes["vtrace:n=4,rho_bar=1,c_bar=1,gamma=0.99"]["kappa_log10_median"]["cells"]
    assert [cell["zero_share"] for cell in first[:5]] == [0, 0, 0, 0, 1]
    assert first[4]["value"] is None and first[4]["p95"] is None and first[4]["mean"]["value"] == 0


def test_parameters_are_defaults_of_targets_that_read_them(cli: Cli, log_of: LogOf) -> None:
    path = log_of()
    shared = ("--k", "5", "--c-bar", "1.05", "--rho-bar", "inf", "--lam", "0.9")
    document = parsed(cli("beta", path, "--json", *shared))
    assert document["settings"]["targets"] == [
        "gae:lam=0.9",
        "vtrace:rho_bar=inf,c_bar=1.05,lam=0.9",
        "brace:k=5,rho_bar=inf,c_bar=1.05,lam=0.9",
    ]


def test_files_do_not_matter(cli: Cli, log_of: LogOf, tmp_path: Path) -> None:
    """One file and many give the same document but for the name of the source."""
    whole = log_of()
    table = pq.read_table(whole)
    folder = tmp_path / "parts"
    folder.mkdir()
    for i, start in enumerate(range(0, table.num_rows, 37)):
        pq.write_table(table.slice(start, 37), folder / f"part-{i:03}.parquet")
    one, many = (parsed(cli("beta", path, "--json")) for path in (whole, folder))
    del one["source"]["paths"], many["source"]["paths"]
    assert one == many


def test_threads_do_not_matter(cli: Cli, log_of: LogOf) -> None:
    path = log_of()
    one = cli("beta", path, "--json", "--threads", "1").out
    assert cli("beta", path, "--json", "--threads", "5").out == one


@pytest.mark.parametrize(("key", "values"), [("step", [0, 10]), ("staleness", [0, 4])])
def test_one_line_for_each_key_and_target(
    cli: Cli, log_of: LogOf, key: str, values: list[int]
) -> None:
    path = log_of()
    document = parsed(cli("beta", path, "--json", "--by", key))
    entries = document["results"]["by"]["entries"]
    assert [entry["key"] for entry in entries] == values
    assert list(entries[0]["overall"]) == document["settings"]["targets"]
    text = cli("beta", path, "--by", key).out
    table = text[text.index(f"By {key}, over all horizons") :].splitlines()[2:]
    assert [line.split()[:2] for line in table[:6]] == [
        [str(value), label] for value in values for label in document["settings"]["targets"]
    ]


def test_the_figure_is_written(cli: Cli, log_of: LogOf, tmp_path: Path) -> None:
    for name in ("slopes.png", "slopes.svg", "slopes.pdf"):
        outcome = cli("beta", log_of(), "--plot", tmp_path / name)
        assert outcome.code == 0
        assert outcome.err == f"wrote {tmp_path / name}\n"
        assert (tmp_path / name).stat().st_size > 1000
    assert "BRACE" in (tmp_path / "slopes.svg").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--target", "braces"), "target 'braces': the name is one of mc, gae, vtrace"),
        (("--target", "brace:n=3"), "brace has no parameter 'n'; it reads k, rho_bar"),
        (("--target", "brace", "--target", "brace:k=100"), "is given twice"),
        (("--k", "1.5"), "k is 1.5; it must be an integer >= 0 or inf"),
        (("--gamma", "2"), "gamma is 2; it must be above 0 and at most 1"),
        (("--level", "1"), "level is 1"),
        (("--plot", "slopes.gif"), "the ending .gif is not one of"),
        (("--staleness", "last"), "belongs to --by staleness"),
    ],
)
def test_wrong_usage_is_two_lines_at_most(
    cli: Cli, log_of: LogOf, words: tuple[str, ...], said: str
) -> None:
    outcome = cli("beta", log_of(), *words)
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith("error: ")
    assert said in outcome.err
    assert len(outcome.err.splitlines()) <= 2


def test_a_log_without_ratios_answers_for_targets_that_need_none(cli: Cli, log_of: LogOf) -> None:
    path = log_of(pi_logprobs=None)
    outcome = cli("beta", path)
    assert outcome.code == 2
    assert "no column pi_logprobs, which the slope of vtrace:rho_bar=1,c_bar=1 needs" in outcome.err
    document = parsed(cli("beta", path, "--json", "--target", "gae:lam=.9", "--target", "mc"))
    cells = document["results"]["slopes"]["mc"]["within"]["cells"]
    assert {cell["value"] for cell in cells} == {1.0}


def test_one_prompt_has_no_interval(cli: Cli, log_of: LogOf) -> None:
    path = log_of(n_prompts=1, per_prompt=8)
    document = parsed(cli("beta", path, "--json", "--target", "vtrace"))
    (slopes,) = document["results"]["slopes"].values()
    cell = slopes["pooled"]["cells"][0]
    assert cell["value"] is not None and cell["se"] is None
    assert "one prompt only" in cell["reason"]
    assert cli("beta", path).code == 0


def test_shifted_columns_withhold_the_verdict(cli: Cli, log_of: LogOf, tmp_path: Path) -> None:
    rows = pq.read_table(log_of())["mu_logprobs"].to_pylist()
    path = log_of(pi_logprobs=[row[1:] + row[:1] for row in rows])
    text = cli("beta", path, "--plot", tmp_path / "x.svg").out
    assert text.startswith("This log cannot tell what corrections do:\n  MISALIGNED lag=+1")
    assert "This log cannot tell" in (tmp_path / "x.svg").read_text(encoding="utf-8")


def test_nothing_usable_is_a_table_of_reasons(cli: Cli, log_of: LogOf, tmp_path: Path) -> None:
    template = pq.read_table(log_of())["pi_logprobs"].to_pylist()
    path = log_of(pi_logprobs=[[float("nan")] * len(row) for row in template])
    document = parsed(cli("beta", path, "--json"))
    for slopes in document["results"]["slopes"].values():
        assert slopes["within"]["cells"] == []
        assert slopes["overall"]["within"]["reason"]
    outcome = cli("beta", path, "--plot", tmp_path / "x.png")
    assert outcome.code == 0
    assert "no rollout with all that this needs" in outcome.out
    assert "192 of 192 rollouts are left out" in outcome.out


def test_slopes_that_mean_nothing_are_said_at_once(cli: Cli, log_of: LogOf) -> None:
    text = cli("beta", log_of(reward=[1.0] * 192), "--target", "brace").out
    third = text.splitlines()[2]
    assert third.startswith("Slopes: the return is the same in every rollout")
    assert "Slopes:" not in cli("beta", log_of(), "--target", "brace").out
