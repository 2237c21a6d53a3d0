"""`targets`: the file, the table and the document of one run, and what is refused how."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from jsonschema import Draft202012Validator

from brace_diag import brace_targets
from brace_diag.schemas import load_schema

Cli = Callable[..., Any]
LogOf = Callable[..., Path]
TWO = ("--target", "brace:k=3,c_bar=1", "--target", "gae:lam=.9")


def parsed(outcome: Any) -> dict[str, Any]:
    assert outcome.code == 0, outcome.err
    document: dict[str, Any] = json.loads(outcome.out)
    Draft202012Validator(load_schema("targets")).validate(document)
    return document


def test_file_table_and_document_are_of_one_run(cli: Cli, log_of: LogOf, tmp_path: Path) -> None:
    log, out = log_of(), tmp_path / "out.parquet"
    outcome = cli("targets", log, "-o", out, *TWO)
    assert outcome.code == 0 and outcome.err == f"wrote {out}\n"
    text = outcome.out
    assert f"{out}: 192 rows with 2 targets, computed on cpu" in text
    assert "target_gae_lam0_9, advantage_gae_lam0_9, log10_kappa_gae_lam0_9: gae:lam=0.9" in text
    assert "brace:k=3,rho_bar=1.2,c_bar=1\n" in text, "every cap is said"
    assert "outside: beyond the returns of the log, 0 to 1" in text
    table = pq.read_table(out)
    own = pq.read_table(log)
    assert table.select(own.column_names).equals(own)
    row = own.slice(5, 1).to_pylist()[0]
    wanted = brace_targets(
        np.array([row["mu_logprobs"]], np.float32),
        np.array([row["pi_logprobs"]], np.float32),
        np.array([row["values"]], np.float32),
        np.array([[row["reward"]]]),
        k=3,
        c_bar=1,
    )
    assert table["target_brace_k3_c_bar1"][5].as_py() == wanted[0].tolist()
    document = parsed(cli("targets", log, "-o", out, *TWO, "--json", "--force", "-q"))
    found = document["results"]["targets"]["brace:k=3,rho_bar=1.2,c_bar=1"]
    flat = np.concatenate(table["target_brace_k3_c_bar1"].to_pylist())
    # The document rounds to 10 digits.
    assert found["mean"]["value"] == pytest.approx(flat.mean(dtype=np.float64), rel=1e-9)
    assert found["nulls"] == dict.fromkeys(
        ("off_mask", "log_prob", "value", "reward", "overflow"), 0
    )
    assert document["settings"]["targets"]["gae:lam=0.9"] == {
        "name": "gae", "gamma": 1.0, "lam": 0.9
    }  # fmt: skip


def test_options_are_defaults_of_the_targets(cli: Cli, log_of: LogOf, tmp_path: Path) -> None:
    words = ("--target", "brace", "--target", "vtrace:c_bar=2", "--target", "mc", "--json")
    given = ("--k", "inf", "--rho-bar", "1.5", "--gamma", "0.99", "--lam", "0.9", "--c-bar", "1")
    document = parsed(cli("targets", log_of(), "-o", tmp_path / "o.parquet", *words, *given))
    assert list(document["settings"]["targets"]) == [
        "brace:k=inf,rho_bar=1.5,c_bar=1,gamma=0.99,lam=0.9",
        "vtrace:rho_bar=1.5,c_bar=2,gamma=0.99,lam=0.9",
        "mc:gamma=0.99",
    ]
    assert document["settings"]["return_gamma"] == 0.99
    assert any(note.startswith("outside:") for note in document["notes"])


def test_one_target_by_default(cli: Cli, log_of: LogOf, tmp_path: Path) -> None:
    document = parsed(cli("targets", log_of(), "-o", tmp_path / "o.parquet", "--json"))
    assert list(document["results"]["targets"]) == ["brace:k=100,rho_bar=1.2,c_bar=1.1"]


def test_three_files_give_the_document_of_one(cli: Cli, log_of: LogOf, tmp_path: Path) -> None:
    log = log_of()
    table = pq.read_table(log)
    (tmp_path / "three").mkdir()
    for i in range(3):
        pq.write_table(table.slice(64 * i, 64), tmp_path / "three" / f"{i}.parquet")
    documents = []
    for source in (log, tmp_path / "three"):
        out = tmp_path / "o.parquet"
        found = parsed(cli("targets", source, "-o", out, *TWO, "--json", "--force"))
        documents.append(found | {"source": None})
    assert documents[0] == documents[1]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "error: give the new log a name with -o OUT.parquet\n"),
        (("-o", "x.csv"), "error: -o x.csv: the log is Parquet, so let the name end in .parquet\n"),
        (("-o", "no/x.parquet"), "error: -o no/x.parquet: there is no folder no; make it first\n"),
        (
            ("-o", "x.parquet", "--target", "brase"),
            "error: target 'brase': the name is one of mc, gae, vtrace, capped, brace\n",
        ),
        (
            ("-o", "x.parquet", "--target", "brace", "--target", "brace:k=100"),
            "error: target brace:k=100,rho_bar=1.2,c_bar=1.1 is given twice; leave one out\n",
        ),
        (
            ("-o", "x.parquet", "--gamma", "2"),
            "error: target 'brace': gamma is 2; it must be above 0 and at most 1\n",
        ),
        (
            ("-o", "x.parquet", "--level", "1"),
            "error: level is 1.0; it must lie strictly between 0 and 1\n",
        ),
        (
            ("-o", "x.parquet", "--device", "cuda"),
            "error: device is 'cuda', but this machine has no driver of a CUDA device; "
            "allowed here: auto, cpu\n",
        ),
    ],
)
def test_refusals_are_one_line_and_leave_nothing(
    cli: Cli,
    log_of: LogOf,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    said: str,
) -> None:
    log = log_of()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("brace_diag.targets.device._DRIVERS", ())
    outcome = cli("targets", log, *words)
    assert (outcome.code, outcome.out, outcome.err) == (2, "", said)
    assert os.listdir(tmp_path) == ["run.parquet"]


def test_what_is_there_is_not_overwritten(cli: Cli, log_of: LogOf, tmp_path: Path) -> None:
    log, out = log_of(), tmp_path / "out.parquet"
    assert cli("targets", log, "-o", out, "-q").code == 0
    before = out.read_bytes()
    refused = cli("targets", log, "-o", out)
    assert refused.code == 2
    assert refused.err == f"error: {out} exists; choose another name, or replace it with --force\n"
    assert out.read_bytes() == before
    again = cli("targets", out, "-o", tmp_path / "more.parquet")
    assert again.code == 2
    assert again.err.startswith(f"error: {out} has columns target_brace, advantage_brace, log10_")


def test_a_missing_column_is_named_with_the_target(cli: Cli, log_of: LogOf, tmp_path: Path) -> None:
    log = log_of(pi_logprobs=None)
    outcome = cli(
        "targets", log, "-o", tmp_path / "o.parquet", "--target", "gae", "--target", "brace"
    )
    assert outcome.code == 2
    assert "no column pi_logprobs, which the target brace:k=100" in outcome.err
    assert cli("targets", log, "-o", tmp_path / "o.parquet", "--target", "gae").code == 0


def test_writing_into_the_folder_that_is_read_is_warned(
    cli: Cli, log_of: LogOf, tmp_path: Path
) -> None:
    log_of("run/a.parquet")
    outcome = cli("targets", tmp_path / "run", "-o", tmp_path / "run" / "o.parquet")
    assert outcome.code == 0 and "is part of it next time" in outcome.err


def test_a_full_disk_leaves_nothing(log_of: LogOf, tmp_path: Path) -> None:
    """The system refuses to let the file grow, as a full disk does."""
    log = log_of(n_prompts=200)
    (tmp_path / "out").mkdir()
    out = tmp_path / "out" / "t.parquet"
    # The first run compiles what the second needs: the limit would cut the cache's files as well.
    code = (
        "import resource, sys\n"
        "from brace_diag_cli.main import main\n"
        "log, warm, out = sys.argv[1:]\n"
        "assert main(['targets', log, '-o', warm, '--target', 'mc', '-q']) == 0\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))\n"
        "sys.exit(main(['targets', log, '-o', out, '--target', 'mc']))\n"
    )
    words = [sys.executable, "-c", code, str(log), str(tmp_path / "warm.parquet"), str(out)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2
    assert done.stderr == f"error: {out}: File too large\n"
    assert os.listdir(tmp_path / "out") == []
