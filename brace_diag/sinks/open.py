"""Trackers behind one door: open, log at a step, close."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any, Protocol

from brace_diag.errors import InputError, MissingExtraError
from brace_diag.sinks.metrics import PREFIX, Metrics

STEP = f"{PREFIX}/step"
DEFAULT_FOLDER = "runs/brace-diag"
DEFAULT_PROJECT = "brace-diag"


class Sink(Protocol):
    """Where metrics go."""

    @property
    def where(self) -> str:
        """What a person has to open to see them."""

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Numbers of one step."""

    def close(self) -> None:
        """Write out what is still held."""


def check_sink(name: str) -> None:
    """Refuse a tracker that cannot be opened, without opening it: nothing is made or begun.

    Raises: as `open_sink`.
    """
    kind = name.partition(":")[0]
    if kind not in _OPEN:
        raise InputError(f"--log-to {name!r}: allowed: {', '.join(_OPEN)}, or NAME:WHERE")
    if find_spec(kind) is None:
        raise _missing(kind)


def open_sink(name: str) -> Sink:
    """A tracker by name, with where it writes to behind a colon.

    `tensorboard[:FOLDER]`, `wandb[:PROJECT]` (a run that is already open is used), and
    `mlflow[:EXPERIMENT]` (an active run is used, as is the tracking URI that MLflow knows).

    Raises: InputError for another name; MissingExtraError where the package is not installed.
    """
    check_sink(name)
    kind, _, where = name.partition(":")
    return _OPEN[kind](where)


def log_metrics(sink: Sink, metrics: Iterable[Metrics]) -> int:
    """Log every step and close the sink; returns how many steps there were."""
    n = 0
    try:
        for own in metrics:
            sink.log(own.step, own.values)
            n += 1
    finally:
        sink.close()
    return n


class TensorBoard:
    """Event files that TensorBoard reads; its own package writes them, without TensorFlow."""

    def __init__(self, folder: str) -> None:
        """Begin a new event file in a folder, made if need be."""
        writer = _module("tensorboard.summary.writer.event_file_writer", "tensorboard")
        self.event = _module("tensorboard.compat.proto.event_pb2", "tensorboard").Event
        self.summary = _module("tensorboard.compat.proto.summary_pb2", "tensorboard").Summary
        self.folder = folder or DEFAULT_FOLDER
        self.writer: Any = writer.EventFileWriter(self.folder)

    @property
    def where(self) -> str:
        return f"tensorboard --logdir {self.folder}"

    def log(self, step: int, values: Mapping[str, float]) -> None:
        scalars = [self.summary.Value(tag=k, simple_value=x) for k, x in values.items()]
        summary = self.summary(value=scalars)
        self.writer.add_event(self.event(step=step, wall_time=time.time(), summary=summary))

    def close(self) -> None:
        self.writer.close()


class WandB:
    """A wandb run: the open one, or a new one that is finished on closing."""

    def __init__(self, project: str) -> None:
        """Use the run that is open, else begin one in a project."""
        wandb = _module("wandb", "wandb")
        self.own = wandb.run is None
        self.run: Any = wandb.run or wandb.init(project=project or DEFAULT_PROJECT)
        # An axis of its own: the run's step counts calls and may run ahead of the trainer's.
        self.run.define_metric(STEP, hidden=True)
        self.run.define_metric(f"{PREFIX}/*", step_metric=STEP)

    @property
    def where(self) -> str:
        return str(self.run.url or self.run.dir)

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self.run.log({**values, STEP: step})

    def close(self) -> None:
        if self.own:
            self.run.finish()


class MLflow:
    """An MLflow run: the active one, or a new one that is ended on closing."""

    def __init__(self, experiment: str) -> None:
        """Use the run that is active, else make one; the active experiment stays what it was."""
        mlflow: Any = _module("mlflow", "mlflow")
        self.client: Any = mlflow.MlflowClient()
        active = mlflow.active_run()
        self.own = active is None
        self.id = self._begin(experiment or DEFAULT_PROJECT) if self.own else active.info.run_id

    def _begin(self, name: str) -> str:
        found = self.client.get_experiment_by_name(name)
        known = self.client.create_experiment(name) if found is None else found.experiment_id
        return str(self.client.create_run(known, run_name="brace-diag").info.run_id)

    @property
    def where(self) -> str:
        return f"run {self.id} at {self.client.tracking_uri}"

    def log(self, step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self.client.log_metric(self.id, name, value, step=step)

    def close(self) -> None:
        if self.own:
            self.client.set_terminated(self.id)


_OPEN: dict[str, type[TensorBoard] | type[WandB] | type[MLflow]] = {
    "wandb": WandB,
    "tensorboard": TensorBoard,
    "mlflow": MLflow,
}


def _missing(extra: str) -> MissingExtraError:
    install = f"pip install 'brace-diag[{extra}]'"
    return MissingExtraError(f"--log-to {extra} needs the package {extra}: {install}")


def _module(name: str, extra: str) -> ModuleType:
    try:
        return import_module(name)
    except ImportError as error:
        raise _missing(extra) from error
