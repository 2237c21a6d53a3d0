"""Metrics in the real trackers, offline: what arrives is what the results say, at its step."""

import math
import os
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from brace_diag import (
    Audit,
    InputError,
    MissingExtraError,
    Trend,
    audit,
    log_metrics,
    metrics_of,
    open_run,
    open_sink,
    trend,
)

LOG = Path(__file__).parents[1] / "data" / "async_run.parquet"


@pytest.fixture(scope="module")
def steps() -> Trend:
    return trend(open_run(LOG))


@pytest.fixture(scope="module")
def judged() -> Audit:
    return audit(open_run(LOG), by="step")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, so that what trackers leave behind is left there."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_names_and_numbers_are_those_of_the_result(steps: Trend) -> None:
    found = metrics_of(steps)
    assert [own.step for own in found] == [point.key for point in steps.points]
    for own, point in zip(found, steps.points, strict=True):
        b = point.figures["b_hat"]
        assert own.values["brace/trend/b_hat"] == b.value
        assert own.values["brace/trend/b_hat_low"] == b.ci_low
        assert own.values["brace/trend/margin"] == point.margin
        assert own.values["brace/trend/beyond"] == float(point.beyond or 0)
        assert all(name.startswith("brace/trend/") for name in own.values)
        assert all(math.isfinite(x) for x in own.values.values())


def test_an_audit_is_told_by_step(judged: Audit) -> None:
    found = metrics_of(judged)
    assert [own.step for own in found] == list(judged.by)
    for own, one in zip(found, judged.by.values(), strict=True):
        assert own.values["brace/audit/b_hat"] == one.b_hat.value
        needs = own.values["brace/audit/needs_correction"]
        assert needs == float(one.verdict == "needs_correction")


def test_what_does_not_exist_is_left_out(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    bare = tmp_path / "bare.parquet"
    pq.write_table(pq.read_table(LOG).drop_columns(["pi_logprobs", "values"]), bare)
    for own in metrics_of(trend(open_run(bare))):
        assert "brace/trend/reward_mu" in own.values
        assert not any("b_hat" in name or "explained" in name for name in own.values)


def test_results_without_steps_are_refused() -> None:
    with pytest.raises(InputError, match="a trend by staleness has no step"):
        metrics_of(trend(open_run(LOG), by="staleness"))
    with pytest.raises(InputError, match="an audit of a whole log has no step"):
        metrics_of(audit(open_run(LOG)))


def test_tensorboard_reads_what_was_logged(steps: Trend, here: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    sink = open_sink(f"tensorboard:{here / 'board'}")
    assert sink.where == f"tensorboard --logdir {here / 'board'}"
    assert log_metrics(sink, metrics_of(steps)) == len(steps.points)
    board = EventAccumulator(str(here / "board"))
    board.Reload()
    scalars = board.Scalars("brace/trend/b_hat")
    assert [s.step for s in scalars] == [point.key for point in steps.points]
    for scalar, point in zip(scalars, steps.points, strict=True):
        # Event files hold float32.
        assert scalar.value == pytest.approx(point.figures["b_hat"].value, rel=1e-6)


@pytest.fixture
def mlflow(here: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """MLflow with its store in the folder; the part that logs has no database."""
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    import mlflow

    before = mlflow.get_tracking_uri()
    mlflow.set_tracking_uri((here / "mlruns").as_uri())
    yield mlflow
    mlflow.set_tracking_uri(before)


def test_mlflow_reads_what_was_logged(steps: Trend, mlflow: Any) -> None:
    sink = open_sink("mlflow:staleness")
    log_metrics(sink, metrics_of(steps))
    assert mlflow.active_run() is None
    (experiment,) = mlflow.MlflowClient().search_experiments(filter_string="name = 'staleness'")
    (run,) = mlflow.MlflowClient().search_runs([experiment.experiment_id])
    history = mlflow.MlflowClient().get_metric_history(run.info.run_id, "brace/trend/b_hat")
    told = {metric.step: metric.value for metric in history}
    assert told == {point.key: point.figures["b_hat"].value for point in steps.points}


def test_an_active_mlflow_run_is_used_and_left_open(judged: Audit, mlflow: Any) -> None:
    with mlflow.start_run() as mine:
        log_metrics(open_sink("mlflow"), metrics_of(judged))
        assert mlflow.active_run().info.run_id == mine.info.run_id
    history = mlflow.MlflowClient().get_metric_history(mine.info.run_id, "brace/audit/b_hat")
    assert len(history) == len(judged.by)


@pytest.fixture
def wandb(here: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """wandb, offline, in the folder; it reads its settings once, so it is torn down afterwards."""
    for name, value in (("MODE", "offline"), ("SILENT", "true"), ("DIR", str(here))):
        monkeypatch.setenv(f"WANDB_{name}", value)
    import wandb

    yield wandb
    wandb.teardown()


def wandb_records(folder: Path) -> list[Any]:
    """Records of an offline run: a LevelDB log of protocol buffers after 7 bytes of header."""
    from wandb.proto.wandb_internal_pb2 import Record

    (path,) = folder.glob("wandb/offline-run-*/*.wandb")
    data, at, whole, found = path.read_bytes(), 7, b"", []
    while at + 7 <= len(data):
        left = 32768 - at % 32768
        if left < 7:
            at += left
            continue
        length, kind = struct.unpack_from("<HB", data, at + 4)
        whole += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # full, or the last of several
            record = Record()
            record.ParseFromString(whole)
            found.append(record)
            whole = b""
    return found


def wandb_history(folder: Path) -> list[dict[str, float]]:
    return [
        {item.key or "/".join(item.nested_key): float(item.value_json) for item in r.history.item}
        for r in wandb_records(folder)
        if r.WhichOneof("record_type") == "history"
    ]


def test_wandb_holds_what_was_logged_on_an_axis_of_its_own(
    steps: Trend, here: Path, wandb: Any
) -> None:
    log_metrics(open_sink("wandb:staleness"), metrics_of(steps))
    assert wandb.run is None
    rows = [row for row in wandb_history(here) if "brace/trend/b_hat" in row]
    assert [row["brace/step"] for row in rows] == [point.key for point in steps.points]
    for row, point in zip(rows, steps.points, strict=True):
        assert row["brace/trend/b_hat"] == pytest.approx(point.figures["b_hat"].value)
    axes = [
        r.metric
        for r in wandb_records(here)
        if r.WhichOneof("record_type") == "metric" and r.metric.glob_name == "brace/*"
    ]
    assert [metric.step_metric for metric in axes] == ["brace/step"]


def test_an_open_wandb_run_is_used_and_left_open(steps: Trend, here: Path, wandb: Any) -> None:
    mine = wandb.init(project="training")
    for i in range(3):
        mine.log({"loss": float(i)})
    log_metrics(open_sink("wandb"), metrics_of(steps))
    assert wandb.run is mine
    mine.finish()
    assert sum("loss" in row for row in wandb_history(here)) == 3


def test_another_name_is_refused_and_a_missing_package_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(InputError, match="allowed: wandb, tensorboard, mlflow"):
        open_sink("comet")
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'brace-diag\[wandb\]'"):
        open_sink("wandb")


def test_a_sink_is_closed_when_a_step_fails(here: Path) -> None:
    sink = open_sink(f"tensorboard:{here}")
    closed = []
    sink.close = lambda: closed.append(True)  # type: ignore[method-assign]

    def failing() -> Iterator[Any]:
        raise RuntimeError("a broken result")
        yield

    with pytest.raises(RuntimeError, match="a broken result"):
        log_metrics(sink, failing())
    assert closed == [True]
    assert os.listdir(here)
