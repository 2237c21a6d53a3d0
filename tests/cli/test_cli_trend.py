"""`trend` from a file on disk to tables, a document and a figure."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from jsonschema import Draft202012Validator

from brace_diag import open_run, trend
from brace_diag.results_trend import SERIES
from brace_diag.schemas import load_schema

Cli = Callable[..., Any]
LogOf = Callable[..., Path]
DATA = Path(__file__).parents[1] / "data" / "async_run.parquet"


def test_tables_show_what_the_library_computes(cli: Cli, log_of: LogOf) -> None:
    path = log_of(steps=5)
    found = trend(open_run(str(path)))
    outcome = cli("trend", path)
    assert (outcome.code, outcome.err) == (0, "")
    lines = outcome.out.splitlines()
    assert lines[0].startswith("The gap ")
    head = lines.index("By step")
    for point, line in zip(found.points, lines[head + 2 :], strict=False):
        words = line.split()
        assert int(words[0]) == point.key
        assert float(words[2]) == pytest.approx(point.figures["b_hat"].value, abs=6e-4)
    tests = next(i for i, line in enumerate(lines) if line.startswith("Trend over 5 keys"))
    assert len([x for x in lines[tests + 2 : tests + 2 + len(SERIES)] if x.startswith("  ")]) == 11
    assert "not to be relied on: 5 keys, fewer than 8" in outcome.out


def test_few_steps_are_told_and_a_single_one(cli: Cli, log_of: LogOf) -> None:
    out = cli("trend", log_of(steps=1)).out
    assert "at the only step" in out
    assert "no trend can be tested: 1 key has this figure; a trend needs 4" in out
    assert "Trend over" not in out


def test_the_document_fits_its_schema_and_is_the_result(cli: Cli, log_of: LogOf) -> None:
    path = log_of(steps=5)
    validator = Draft202012Validator(load_schema("trend"))
    for words in ((), ("--by", "staleness"), ("--margin", ".02", "--c-bar", "inf")):
        document = json.loads(cli("trend", path, "--json", *words).out)
        validator.validate(document)
    found = trend(open_run(str(path)))
    document = json.loads(cli("trend", path, "--json").out)
    points = document["results"]["points"]
    assert [p["key"] for p in points] == [p.key for p in found.points]
    assert points[0]["b_hat"]["value"] == pytest.approx(found.points[0].figures["b_hat"].value)
    test = document["results"]["tests"]["m"]
    assert test["p_value"] == pytest.approx(found.tests["m"].p_value)
    for name in document["results"]:
        rest = {key: value for key, value in document["results"].items() if key != name}
        assert list(validator.iter_errors(document | {"results": rest})), name


def test_cut_into_files_the_document_is_the_same(cli: Cli, log_of: LogOf, tmp_path: Path) -> None:
    whole = log_of(steps=4)
    table = pq.read_table(whole)
    folder = tmp_path / "cut"
    folder.mkdir()
    for i, start in enumerate(range(0, table.num_rows, 70)):
        pq.write_table(table.slice(start, 70), folder / f"part-{i}.parquet")
    one = json.loads(cli("trend", whole, "--json").out)
    for threads in ("1", "2"):
        other = json.loads(cli("trend", folder, "--json", "--threads", threads).out)
        assert other["results"] == one["results"]


def test_a_log_without_the_key_is_refused_by_name(cli: Cli, log_of: LogOf) -> None:
    outcome = cli("trend", log_of(step=None))
    assert outcome.code == 2
    assert outcome.err == "error: --by step needs a step column; the log has none\n"
    outcome = cli("trend", DATA, "--staleness", "last")
    assert outcome.err == "error: --staleness last belongs to --by staleness; add it\n"


def test_the_figure_is_written(cli: Cli, tmp_path: Path) -> None:
    for ending in ("png", "svg", "pdf"):
        path = tmp_path / f"trend.{ending}"
        outcome = cli("trend", DATA, "--plot", path)
        assert (outcome.code, outcome.err) == (0, f"wrote {path}\n")
        assert path.stat().st_size > 5_000


def test_every_step_goes_to_a_tracker(cli: Cli, tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    outcome = cli("trend", DATA, "--log-to", f"tensorboard:{tmp_path / 'trend'}")
    assert outcome.code == 0
    assert outcome.err == f"logged 3 steps: tensorboard --logdir {tmp_path / 'trend'}\n"
    outcome = cli("audit", DATA, "--by", "step", "--log-to", f"tensorboard:{tmp_path / 'audit'}")
    assert outcome.code == 0
    for name, tag in (("trend", "brace/trend/b_hat"), ("audit", "brace/audit/b_hat")):
        board = EventAccumulator(str(tmp_path / name))
        board.Reload()
        assert [s.step for s in board.Scalars(tag)] == [40, 80, 160]
    for words in (("audit", DATA), ("trend", DATA, "--by", "staleness")):
        outcome = cli(*words, "--log-to", "tensorboard")
        assert (outcome.code, outcome.out) == (2, "")
        assert outcome.err == "error: --log-to logs every trainer step; add --by step\n"
    # A log that is not there begins no run.
    never = tmp_path / "never"
    assert cli("trend", tmp_path / "none.parquet", "--log-to", f"tensorboard:{never}").code == 2
    assert not never.exists()
    outcome = cli("trend", DATA, "--log-to", "comet")
    assert outcome.err.startswith("error: --log-to 'comet': allowed: wandb, tensorboard, mlflow")
