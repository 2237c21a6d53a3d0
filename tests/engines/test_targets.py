"""Targets written into a log: equal to the public functions, aligned, whole or not there."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from brace_diag import (
    InputError,
    SchemaError,
    advantages,
    brace_targets,
    gae_targets,
    log10_kappa,
    mc_targets,
    open_run,
    vtrace_targets,
)
from brace_diag.engines.target_columns import short_label
from brace_diag.engines.targets import write_targets
from brace_diag.results_targets import TargetsWritten
from brace_diag.settings import TargetSpec

SPECS = ("brace:k=3", "vtrace:n=2", "brace:k=2,c_bar=1", "gae:lam=.9", "mc", "capped:k=1")


def a_log(n: int = 60, seed: int = 0, *, dense: bool = False, holes: bool = True) -> pa.Table:
    """Ragged rollouts; with `holes` also masks, empty and null rows, and missing numbers."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 12, n)
    if holes:
        lengths[::9] = 0

    def floats(draw: Any, missing: float) -> pa.Array:
        rows: list[Any] = [np.float32(draw(m)).astype(float).tolist() for m in lengths]
        if holes:
            rows = [[x if rng.random() >= missing else None for x in row] for row in rows]
            rows[7] = None
        return pa.array(rows, pa.list_(pa.float32()))

    mask: list[Any] = [(rng.random(m) < (0.7 if holes else 2)).tolist() for m in lengths]
    if holes:
        mask[7] = None
    columns = {
        "note": pa.array([{"a": i, "b": [f"x{i}"]} for i in range(n)]),
        "step": pa.array(np.arange(n) // 20),
        "prompt_id": pa.array([f"p{i % 14}" for i in range(n)]),
        "mu_logprobs": floats(lambda m: -rng.exponential(size=m) - 0.01, 0.03),
        "pi_logprobs": floats(lambda m: -rng.exponential(size=m) - 0.01, 0.03),
        "values": floats(rng.random, 0.03),
        "policy_mask": pa.array(mask, pa.list_(pa.bool_())),
        "truncated": pa.array((rng.random(n) < 0.3).tolist()),
        "bootstrap_value": pa.array(rng.random(n).round(2)),
    }
    if dense:
        columns["rewards"] = floats(lambda m: (rng.random(m) < 0.3) * 1.0, 0.03)
    else:
        missing = 0.9 if holes else 2
        columns["reward"] = pa.array([x if x < missing else None for x in rng.random(n).round(3)])
    return pa.table(columns)


def row_of(table: pa.Table, i: int) -> dict[str, Any]:
    """One rollout as padded arrays of one row, missing numbers as NaN."""
    row = table.slice(i, 1).to_pylist()[0]
    names = ("mu_logprobs", "pi_logprobs", "values", "rewards")
    arrays = {
        name: np.array([[math.nan if x is None else x for x in row[name]]], np.float32)
        for name in names
        if row.get(name) is not None
    }
    mask = np.array([row["policy_mask"]], np.bool_)
    rewards = arrays.pop("rewards", None)
    if rewards is None:
        rewards = np.array([[math.nan if row["reward"] is None else row["reward"]]])
    bootstrap = [row["bootstrap_value"] if row["truncated"] else 0.0]
    return arrays | {"rewards": rewards, "mask": mask, "bootstrap": bootstrap}


def expected(spec: TargetSpec, row: dict[str, Any]) -> dict[str, Any]:
    """Target, advantage and log10 kappa of one rollout by the public functions, (1, width)."""
    rest = {name: row[name] for name in ("rewards", "mask", "bootstrap")}
    ratios = (row["mu_logprobs"], row["pi_logprobs"], row["values"])
    p = dict(spec.parameters)
    if spec.name in ("brace", "capped"):
        from brace_diag import capped_targets

        function = brace_targets if spec.name == "brace" else capped_targets
        target = function(*ratios, **rest, **p)
    elif spec.name == "vtrace":
        target = vtrace_targets(*ratios, **rest, **p)
    elif spec.name == "gae":
        target = gae_targets(row["values"], **rest, **p)
    else:
        target = mc_targets(**rest, **p).astype(np.float32)
    return {
        "target": target,
        "advantage": advantages(target, row["values"], **rest, gamma=spec.gamma),
        "log10_kappa": log10_kappa(
            row["mu_logprobs"], row["pi_logprobs"], mask=row["mask"], target=spec.name, **p
        ),
    }


def written(tmp_path: Path, table: pa.Table, *specs: str, **options: Any) -> TargetsWritten:
    return write_targets(open_run(table), tmp_path / "out.parquet", specs or SPECS, **options)


@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("holes", [False, True])
def test_columns_equal_the_public_functions(tmp_path: Path, dense: bool, holes: bool) -> None:
    table = a_log(dense=dense, holes=holes)
    result = written(tmp_path, table)
    out = pq.read_table(tmp_path / "out.parquet")
    assert out.select(table.column_names).equals(table)
    assert out.column_names[: table.num_columns] == table.column_names
    for figures in result.targets:
        seen = 0
        for i in range(table.num_rows):
            mu = table["mu_logprobs"][i].as_py()
            if not mu:
                assert all(out[name][i].as_py() == mu for name in figures.columns.values())
                continue
            row = row_of(table, i)
            for kind, array in expected(figures.spec, row).items():
                got = out[figures.columns[kind]][i].as_py()
                on = row["mask"][0]
                # The same kernels on the same float32 numbers, so the same to the last digit.
                wanted = [None if np.isnan(x) else float(x) for x in array[0, on]]
                assert [x for x, kept in zip(got, on, strict=True) if kept] == wanted
                assert all(x is None for x, kept in zip(got, on, strict=True) if not kept)
                seen += len(wanted)
        assert seen > 500 and out.schema.field(figures.columns["target"]).type == pa.list_(
            pa.float32()
        )


def test_float64_in_float64_out(tmp_path: Path) -> None:
    table = a_log(holes=False)
    wide = table.set_column(
        table.column_names.index("values"), "values",
        table["values"].cast(pa.list_(pa.float64())),
    )  # fmt: skip
    written(tmp_path, wide, "brace")
    out = pq.read_table(tmp_path / "out.parquet")
    assert out.schema.field("target_brace").type == pa.list_(pa.float64())


def one_rollout(**changes: Any) -> pa.Table:
    columns = {
        "mu_logprobs": [-1.0] * 6,
        "pi_logprobs": [-1.1] * 6,
        "values": [0.5, 0.4, 0.3, 0.2, 0.1, 0.6],
        "reward": 1.0,
    } | changes
    return pa.table({name: [column] for name, column in columns.items()})


@pytest.mark.parametrize(
    ("changes", "nulls", "reason"),
    [
        # Token 3's ratio is read by brace k=2 from s = 2, 3 alone; its last residual's weight is 1.
        ({"mu_logprobs": [-1.0, -1, -1, None, -1, -1]}, [2, 3], "log_prob"),
        ({"mu_logprobs": [-1.0, -1, -1, -math.inf, -1, -1]}, [2, 3], "log_prob"),
        ({"pi_logprobs": [-1.0, -1, -1, -1, -1, None]}, [], "log_prob"),
        # Values enter one step before their token, too.
        ({"values": [0.5, 0.4, 0.3, None, 0.1, 0.6]}, [1, 2, 3], "value"),
        ({"reward": None}, [0, 1, 2, 3, 4, 5], "reward"),
        (
            {"reward": None, "pi_logprobs": [-1.0, None, -1, -1, -1, -1]},
            [0, 1, 2, 3, 4, 5],
            "reward",
        ),
    ],
)
def test_a_target_is_null_where_its_window_touches_a_missing_number(
    tmp_path: Path, changes: dict[str, Any], nulls: list[int], reason: str
) -> None:
    both = pa.concat_tables([one_rollout(**changes), one_rollout()], promote_options="permissive")
    result = written(tmp_path, both, "brace:k=2")
    got = pq.read_table(tmp_path / "out.parquet")["target_brace_k2"].to_pylist()
    assert [i for i, x in enumerate(got[0]) if x is None] == nulls
    assert None not in got[1]
    figures = result.targets[0]
    counted = {"off_mask": 0, "log_prob": 0, "value": 0, "reward": 0, "overflow": 0}
    assert figures.nulls == counted | {reason: len(nulls)}
    assert figures.null_share == len(nulls) / 12
    assert any(f"{len(nulls)} tokens are null" in note for note in result.notes) == bool(nulls)


def test_products_that_overflow_are_null_and_named(tmp_path: Path) -> None:
    table = one_rollout(mu_logprobs=[-700.0] * 6, pi_logprobs=[-0.1] * 6)
    result = written(tmp_path, table, "vtrace:rho_bar=inf,c_bar=inf", "brace")
    assert result.targets[0].nulls["overflow"] > 0
    assert result.targets[1].nulls["overflow"] == 0
    assert any("beyond the range of the numbers" in note for note in result.notes)


def test_column_names_say_what_differs_from_the_default() -> None:
    names = {
        "brace": "brace",
        "brace:k=20,c_bar=1": "brace_k20_c_bar1",
        "brace:k=100,c_bar=1.1": "brace",
        "vtrace:n=64": "vtrace_n64",
        "vtrace:c_bar=inf": "vtrace_c_barinf",
        "gae:lam=.95": "gae_lam0_95",
        "mc:gamma=0.999": "mc_gamma0_999",
    }
    assert {text: short_label(TargetSpec.parse(text)) for text in names} == names


def test_the_footer_says_what_each_column_is(tmp_path: Path) -> None:
    written(tmp_path, a_log(), "brace:k=2", "mc")
    stored = pq.read_metadata(tmp_path / "out.parquet").metadata[b"brace_diag.targets"]
    assert json.loads(stored) == {
        "target_brace_k2": "brace:k=2,rho_bar=1.2,c_bar=1.1",
        "target_mc": "mc",
    }


def test_the_same_from_one_file_and_from_three(tmp_path: Path) -> None:
    table = a_log(300, seed=3)
    pq.write_table(table, tmp_path / "one.parquet", row_group_size=37)
    (tmp_path / "three").mkdir()
    for i in range(3):
        part = table.slice(100 * i, 100)
        pq.write_table(part, tmp_path / "three" / f"{i}.parquet", row_group_size=11)
    outs, results = [], []
    for source in ("one.parquet", "three"):
        out = tmp_path / f"out-{source}.parquet"
        results.append(write_targets(open_run(str(tmp_path / source)), out, SPECS))
        outs.append(pq.read_table(out))
    assert outs[0].equals(outs[1])
    one, three = (r.to_dict() | {"path": None} for r in results)
    assert one == three
    again = write_targets(open_run(table), tmp_path / "m.parquet", SPECS, device="cpu")
    assert again.to_dict() | {"path": None} == one


def test_json_lines_come_out_under_canonical_names(tmp_path: Path) -> None:
    table = a_log(40, seed=5)
    lines = []
    for row in table.to_pylist():
        row["vf"] = row.pop("values")
        lines.append({k: v for k, v in row.items() if v is not None})
    (tmp_path / "log.jsonl").write_text("\n".join(map(json.dumps, lines)))
    run = open_run(str(tmp_path / "log.jsonl"), columns_map={"values": "vf"})
    result = write_targets(run, tmp_path / "out.parquet", ["brace:k=2"])
    written(tmp_path, table, "brace:k=2", force=True)
    from_table = pq.read_table(tmp_path / "out.parquet")
    result = write_targets(run, tmp_path / "json.parquet", ["brace:k=2"])
    out = pq.read_table(tmp_path / "json.parquet")
    assert out["values"].to_pylist() == table["values"].to_pylist()
    assert out.schema.field("values").type == pa.list_(pa.float64())
    for mine, other in zip(
        out["target_brace_k2"].to_pylist(), from_table["target_brace_k2"].to_pylist(), strict=True
    ):
        assert (mine is None) == (other is None)
        for a, b in zip(mine or [], other or [], strict=True):
            # JSON numbers are float64, the table's float32: one rounding apart.
            assert (a is None and b is None) or a == pytest.approx(b, rel=1e-6)
    assert any("not copied: note" in note for note in result.notes)


def test_steps_are_filtered_and_folders_tell_them(tmp_path: Path) -> None:
    table = a_log(60).drop_columns("step")
    for step in range(3):
        (tmp_path / "run" / f"step={step}").mkdir(parents=True)
        part = table.slice(20 * step, 20)
        pq.write_table(part, tmp_path / "run" / f"step={step}" / "log.parquet")
    run = open_run(str(tmp_path / "run"), steps="1:3")
    result = write_targets(run, tmp_path / "out.parquet", ["mc"])
    out = pq.read_table(tmp_path / "out.parquet")
    assert result.n_rows == out.num_rows == 40
    assert out["step"].to_pylist() == [1] * 20 + [2] * 20
    assert out.select(table.column_names).equals(table.slice(20))


def test_files_of_different_columns_become_one_table(tmp_path: Path) -> None:
    table = a_log(20, holes=False)
    pq.write_table(table.drop_columns(["note", "truncated"]), tmp_path / "0.parquet")
    wide = table.set_column(5, "values", table["values"].cast(pa.list_(pa.float64())))
    pq.write_table(wide, tmp_path / "1.parquet")
    write_targets(open_run(str(tmp_path)), tmp_path / "out.parquet", ["brace"])
    out = pq.read_table(tmp_path / "out.parquet")
    assert out["note"].null_count == 20
    assert out.schema.field("values").type == pa.list_(pa.float64())
    odd = table.set_column(0, "note", pa.array(["text"] * 20))
    pq.write_table(odd, tmp_path / "2.parquet")
    with pytest.raises(SchemaError, match="cannot be put into one table"):
        write_targets(open_run(str(tmp_path)), tmp_path / "no.parquet", ["brace"])


def test_what_is_refused(tmp_path: Path) -> None:
    table = a_log(20)
    path = tmp_path / "out.parquet"
    first = written(tmp_path, table, "brace", "mc")
    before = path.read_bytes()
    with pytest.raises(InputError, match=r"out\.parquet exists; .*--force"):
        written(tmp_path, table, "brace")
    assert path.read_bytes() == before
    again = open_run(str(path))
    with pytest.raises(InputError, match="has columns target_brace, advantage_brace, log10_kappa_"):
        write_targets(again, tmp_path / "b.parquet", ["brace", "gae"])
    write_targets(again, tmp_path / "b.parquet", ["gae"])
    with pytest.raises(InputError, match=r"brace:k=100,rho_bar=1\.2,c_bar=1\.1 is given twice"):
        written(tmp_path, table, "brace", "brace:k=100")
    with pytest.raises(SchemaError, match=r"no column pi_logprobs, which the target brace:k=100"):
        write_targets(open_run(table.drop_columns("pi_logprobs")), tmp_path / "c", ["gae", "brace"])
    with pytest.raises(SchemaError, match="no column values, which the target gae needs"):
        write_targets(open_run(table.drop_columns("values")), tmp_path / "c", ["mc", "gae"])
    with pytest.raises(InputError, match="device is 'tpu'; allowed: auto, cpu, cuda"):
        write_targets(open_run(table), tmp_path / "c", device="tpu")
    with pytest.raises(InputError, match="pass what open_run returned"):
        write_targets([], tmp_path / "c")  # type: ignore[arg-type]
    assert sorted(os.listdir(tmp_path)) == ["b.parquet", "out.parquet"]
    assert first.to_frame()["target"].to_list() == ["brace:k=100,rho_bar=1.2,c_bar=1.1", "mc"]


def test_without_a_critic_mc_is_written_and_its_advantage_is_null(tmp_path: Path) -> None:
    result = written(tmp_path, a_log(40, holes=False).drop_columns("values"), "mc")
    out = pq.read_table(tmp_path / "out.parquet")
    assert out["target_mc"].null_count == 0
    assert {x for row in out["advantage_mc"].to_pylist() for x in row} == {None}
    assert result.values_mean is None and result.targets[0].distance is None
    assert "the log has no values: the advantages are null" in result.notes


def test_other_programs_read_the_file(tmp_path: Path) -> None:
    table = a_log(600, seed=2)
    written(tmp_path, table, "brace")
    path = tmp_path / "out.parquet"
    wanted = pq.read_table(path)["target_brace"].to_pylist()
    assert pl.read_parquet(path)["target_brace"].to_list() == wanted
    frame = pd.read_parquet(path)
    assert list(frame.columns)[-3:] == ["target_brace", "advantage_brace", "log10_kappa_brace"]
    assert [None if x is None else len(x) for x in frame["target_brace"]] == [
        None if x is None else len(x) for x in wanted
    ]
    assert open_run(str(path)).n_rows == 600


def big_log(path: Path, rows: int = 4000, length: int = 1500) -> None:
    """Some 6 million tokens, so that writing takes a while."""
    rng = np.random.default_rng(0)
    flat = -rng.exponential(size=512 * length).astype(np.float32)
    lists = pa.ListArray.from_arrays(
        pa.array(np.arange(0, 512 * length + 1, length, dtype=np.int32)), pa.array(flat)
    )
    block = pa.table(
        {"mu_logprobs": lists, "pi_logprobs": lists, "values": lists, "reward": np.ones(512)}
    )
    with pq.ParquetWriter(path, block.schema) as writer:
        for _ in range(rows // 512):
            writer.write_table(block)


@pytest.mark.slow
def test_a_kill_in_the_middle_leaves_nothing_under_the_name(tmp_path: Path) -> None:
    big_log(tmp_path / "log.parquet")
    out = tmp_path / "out"
    out.mkdir()
    words = ["targets", str(tmp_path / "log.parquet"), "-o", str(out / "t.parquet"), "-q"]
    child = subprocess.Popen([sys.executable, "-m", "brace_diag_cli", *words])
    deadline = time.monotonic() + 60
    while not any(p.stat().st_size > 1_000_000 for p in out.glob(".*.tmp")):
        assert child.poll() is None and time.monotonic() < deadline, "not killed in the middle"
        time.sleep(0.01)
    child.send_signal(signal.SIGKILL)
    child.wait(timeout=30)
    left = os.listdir(out)
    assert len(left) == 1 and left[0].startswith(".t.parquet.") and left[0].endswith(".tmp")
    write_targets(open_run(a_log(20)), out / "t.parquet", ["mc"])
    assert os.listdir(out) == ["t.parquet"], "the next run removes what the killed one left"


def stale_log(**changes: Any) -> pa.Table:
    """Sixty rollouts whose pi is not mu, sampled by version 1 and consumed by version 3."""
    rng = np.random.default_rng(1)
    mu = (-rng.exponential(size=(60, 8)) - 0.05).astype(np.float32)
    columns = {
        "mu_logprobs": list(mu),
        "pi_logprobs": list(mu + rng.normal(0, 0.01, mu.shape).astype(np.float32)),
        "values": list(rng.random(mu.shape).astype(np.float32)),
        "reward": rng.integers(0, 2, 60).astype(float),
        "trainer_version": [3] * 60,
        "behavior_version": [1] * 60,
    }
    return pa.table(columns | changes)


def test_a_sound_log_needs_no_note(tmp_path: Path) -> None:
    assert written(tmp_path, stale_log(), "brace").notes == ()


@pytest.mark.parametrize(
    ("changes", "specs", "said"),
    [
        (
            lambda t: {"pi_logprobs": t["mu_logprobs"]},
            ("brace",),
            "pi is bit-identical to mu on more than 99 % of the tokens while 60 rollouts are "
            "stale: copied, not recomputed; the targets correct nothing",
        ),
        (
            lambda t: {"pi_logprobs": [[*r[1:], r[-1]] for r in t["mu_logprobs"].to_pylist()]},
            ("brace", "mc"),
            "MISALIGNED lag=+1: pi fits mu shifted by +1 token far better than unshifted; the "
            "targets rest on ratios of different tokens, do not train on them",
        ),
        (
            lambda t: {"values": [[7.0] * 8] * 60},
            ("gae",),
            "100 % of the critic's values lie outside the returns' range [0, 1]",
        ),
        (
            lambda t: {"truncated": [True] * 60},
            ("mc",),
            "60 truncated rollouts have no bootstrap_value; their targets take 0 for what comes "
            "after",
        ),
        (lambda t: {"reward": [1.0] * 60}, ("mc",), "all returns are one number"),
        (
            lambda t: {},
            ("mc:gamma=0.9", "gae"),
            "the targets differ in gamma; they are compared with the undiscounted return",
        ),
    ],
)
def test_traps_are_said(tmp_path: Path, changes: Any, specs: tuple[str, ...], said: str) -> None:
    table = stale_log(**changes(stale_log()))
    notes = written(tmp_path, table, *specs).notes
    assert any(note.startswith(said) for note in notes), notes


def test_a_copied_pi_is_no_trap_for_targets_without_ratios(tmp_path: Path) -> None:
    log = stale_log()
    assert written(tmp_path, stale_log(pi_logprobs=log["mu_logprobs"]), "gae", "mc").notes == ()


def test_a_row_that_repeats_another_is_written_and_compared_once(tmp_path: Path) -> None:
    ids = {"prompt_id": [f"p{i // 4}" for i in range(60)], "rollout_id": list(range(60))}
    log = stale_log(**ids)
    once = written(tmp_path, log, "brace")
    twice = written(tmp_path, pa.concat_tables([log, log.slice(0, 30)]), "brace", force=True)
    assert twice.n_rows == 90 and twice.quality.n_duplicates == 30
    assert pq.read_metadata(tmp_path / "out.parquet").num_rows == 90
    assert twice.targets[0].mean == once.targets[0].mean
    assert twice.n_compared == once.n_compared == 480


def test_a_log_may_be_replaced_by_itself_with_targets(tmp_path: Path) -> None:
    table = a_log(300, seed=8)
    path = tmp_path / "log.parquet"
    pq.write_table(table, path, row_group_size=20)
    write_targets(open_run(str(path)), path, ["gae"], force=True)
    out = pq.read_table(path)
    assert out.select(table.column_names).equals(table) and "target_gae" in out.column_names
