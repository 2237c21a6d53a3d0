"""`critic`: what it prints, what it writes, and what it refuses."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from jsonschema import Draft202012Validator

from brace_diag import critic_fit, open_run
from brace_diag.schemas import load_schema
from brace_diag_cli.critic_text import critic_text, headline
from brace_diag_cli.terminal import Terminal

Cli = Callable[..., Any]
LogOf = Callable[..., Path]
DEMO = Path(__file__).parents[2] / "brace_diag" / "data" / "demo.parquet"
PLAIN = Terminal(None, False)


def parsed(outcome: Any) -> dict[str, Any]:
    assert outcome.code == 0, outcome.err
    document: dict[str, Any] = json.loads(outcome.out)
    Draft202012Validator(load_schema("critic")).validate(document)
    return document


@pytest.mark.parametrize("by", [(), ("--by", "step"), ("--by", "staleness")])
def test_the_document_fits_its_schema_and_is_the_result(
    cli: Cli, log_of: LogOf, by: tuple[str, ...]
) -> None:
    path = log_of()
    document = parsed(cli("critic", path, "--json", *by))
    result = critic_fit(open_run(path), by=by[1] if by else None)
    ev = document["results"]["fit"]["explained_variance"]
    assert ev["value"] == pytest.approx(result.fit.explained_variance.value, rel=1e-9)
    assert document["settings"]["targets"] == list(document["results"]["targets"])
    assert document["settings"]["targets"] == ["mc", "brace:k=100,rho_bar=1.2,c_bar=1.1"]
    entries = document["results"].get("by", {}).get("entries", [])
    assert [entry["key"] for entry in entries] == [entry.key for entry in result.by]
    for entry in entries:
        pictured = [target["density"] is not None for target in entry["targets"].values()]
        assert pictured == [by[1] == "staleness"] * 2


def test_the_schema_refuses_what_is_wrong(cli: Cli, log_of: LogOf) -> None:
    good = parsed(cli("critic", log_of(), "--json", "--by", "step"))
    validator = Draft202012Validator(load_schema("critic"))
    for change in ({"command": "bias"}, {"extra": 1}):
        assert list(validator.iter_errors(good | change))
    for name in good["results"]:
        if name != "by":
            rest = {k: v for k, v in good["results"].items() if k != name}
            assert list(validator.iter_errors(good | {"results": rest})), name
    good["results"]["fit"]["slope"] |= {"value": None, "reason": None}
    assert list(validator.iter_errors(good)), "a null without a reason must not pass"


def test_the_same_document_from_1_3_and_50_files(cli: Cli, tmp_path: Path) -> None:
    table = pq.read_table(DEMO)
    wanted = parsed(cli("critic", DEMO, "--json", "--by", "step"))
    for n_files in (3, 50):
        folder = tmp_path / str(n_files)
        folder.mkdir()
        for i, rows in enumerate(np.array_split(np.arange(table.num_rows), n_files)):
            pq.write_table(table.slice(rows[0], len(rows)), folder / f"{i:02d}.parquet")
        found = parsed(cli("critic", folder, "--json", "--by", "step"))
        for part in ("settings", "quality", "results", "notes"):
            assert found[part] == wanted[part]


def test_targets_take_what_they_do_not_state_from_the_options(cli: Cli, log_of: LogOf) -> None:
    words = ("--target", "gae", "--target", "brace:k=3", "--lam", "0.9", "--c-bar", "1")
    document = parsed(cli("critic", log_of(), "--json", *words, "--gamma", "0.99"))
    assert document["settings"]["targets"] == [
        "gae:gamma=0.99,lam=0.9",
        "brace:k=3,rho_bar=1.2,c_bar=1,gamma=0.99,lam=0.9",
    ]
    assert document["settings"]["gamma"] == 0.99


def test_everything_is_printed(cli: Cli, log_of: LogOf) -> None:
    outcome = cli("critic", log_of(), "--by", "staleness")
    assert (outcome.code, outcome.err) == (0, "")
    for part in (
        "The critic's explained variance of mu's returns is -",
        "Distance of the critic from its targets",
        "Mean return by the critic's value",
        "By token position: explained variance, and mean |target - V|",
        "By staleness, over all tokens",
        "explained variance is below 0",
        "staleness is that of the version logged for each rollout",
    ):
        assert part in outcome.out
    assert outcome.out.isascii()


def test_without_pi_it_answers_and_refuses_ratios_by_name(cli: Cli, log_of: LogOf) -> None:
    path = log_of(pi_logprobs=None)
    outcome = cli("critic", path)
    assert outcome.code == 0
    assert "the log has no pi_logprobs" in outcome.out
    assert "left out of w statistics" not in outcome.out
    for target in ("vtrace", "capped", "brace:k=3"):
        refused = cli("critic", path, "--target", target)
        assert refused.code == 2
        assert refused.out == ""
        assert "no column pi_logprobs, which the target" in refused.err
        assert target.partition(":")[0] in refused.err


def test_a_broken_critic_is_said_first(cli: Cli, log_of: LogOf) -> None:
    values = [
        (40 * np.array(row) - 16).tolist() for row in pq.read_table(log_of())["values"].to_pylist()
    ]
    outcome = cli("critic", log_of(values=values))
    assert outcome.code == 0
    assert outcome.out.splitlines()[0] == "This critic cannot be judged:"
    assert "CRITIC_INVALID" in outcome.out.splitlines()[1]


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (("--figure", "target"), "--figure target belongs to --plot"),
        (("--staleness", "last"), "--staleness last belongs to --by staleness"),
        (("--by", "staleness", "--staleness", "last"), "per-token versions"),
        (("--target", "braec"), "the name is one of"),
        (("--target", "brace", "--target", "brace:k=100"), "given twice"),
        (("--level", "2"), "level is 2"),
        (("--gamma", "0"), "gamma is 0"),
        (("--plot", "x.jpg"), "one of .png, .svg, .pdf"),
    ],
)
def test_what_is_wrong_is_said(cli: Cli, log_of: LogOf, words: tuple[str, ...], part: str) -> None:
    outcome = cli("critic", log_of(), *words)
    assert outcome.code == 2
    assert outcome.out == ""
    assert part in outcome.err
    assert len(outcome.err.strip().splitlines()) <= 2


@pytest.mark.parametrize("figure", ["calibration", "target"])
def test_figures_are_written(cli: Cli, log_of: LogOf, tmp_path: Path, figure: str) -> None:
    path = tmp_path / f"{figure}.svg"
    outcome = cli("critic", log_of(), "--plot", path, "--figure", figure, "--by", "staleness")
    assert outcome.code == 0
    assert outcome.err == f"wrote {path}\n"
    assert path.read_text(encoding="utf-8").startswith("<?xml")


def test_a_narrow_terminal_keeps_the_numbers(log_of: LogOf) -> None:
    fit = critic_fit(open_run(log_of()), by="step")
    text = critic_text(fit, Terminal(60, False))
    tables = [line for line in text.splitlines() if "|mc - V|" in line]
    assert tables
    assert all(len(line) <= 60 for line in tables)


def test_the_sentence_says_which_way_the_slope_is_off(log_of: LogOf) -> None:
    rng = np.random.default_rng(1)
    skill = np.tile(np.repeat(np.linspace(0.05, 0.95, 24), 4), 2)
    reward = (rng.random(192) < skill).astype(float)
    lengths = [len(v) for v in pq.read_table(log_of())["values"].to_pylist()]
    said = {}
    for spread in (0.4, 1.0, 1.6):
        values = [[0.5 + spread * (s - 0.5)] * n for s, n in zip(skill, lengths, strict=True)]
        fit = critic_fit(open_run(log_of(values=values, reward=reward)))
        said[spread] = " ".join(headline(fit, PLAIN))
    assert "differ less" in said[0.4] and "above 1" in said[0.4]
    assert "No miscalibration of its slope can be told" in said[1.0]
    assert "differ more" in said[1.6] and "below 1" in said[1.6]
