"""Decoding ahead: order, bounds, errors in their turn, and no thread left behind."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from reading import log

from brace_diag.readers import open_run
from brace_diag.readers.ahead import in_order


def our_threads() -> list[str]:
    return [t.name for t in threading.enumerate() if t.name.startswith("brace-diag")]


def test_results_come_in_order_whatever_takes_long() -> None:
    def task(i: int) -> int:
        time.sleep(0.02 if i % 3 == 0 else 0.0)
        return i

    assert list(in_order(iter([partial(task, i) for i in range(20)]), threads=4)) == list(range(20))
    assert our_threads() == []


def test_nothing_to_do() -> None:
    assert list(in_order(iter([]))) == []
    assert our_threads() == []


def test_only_a_few_are_made_ahead() -> None:
    drawn = 0

    def tasks() -> Iterator[Callable[[], int]]:
        nonlocal drawn
        for i in range(100):
            drawn += 1
            yield partial(int, i)

    stream = in_order(tasks(), threads=2)
    assert next(stream) == 0
    time.sleep(0.3)
    # One given out, three waiting, one in the hands of the feeder.
    assert drawn <= 5
    stream.close()
    assert our_threads() == []


def test_an_error_comes_in_its_turn() -> None:
    def fail() -> int:
        raise ValueError("third")

    stream = in_order(iter([lambda: 1, lambda: 2, fail, lambda: 4]), threads=2)
    assert [next(stream), next(stream)] == [1, 2]
    with pytest.raises(ValueError, match="third"):
        next(stream)
    assert our_threads() == []


def test_an_error_between_tasks_comes_in_its_turn() -> None:
    def tasks() -> Iterator[Callable[[], int]]:
        yield lambda: 1
        raise ValueError("no second")

    stream = in_order(tasks(), threads=2)
    assert next(stream) == 1
    with pytest.raises(ValueError, match="no second"):
        next(stream)
    assert our_threads() == []


def test_stopping_early_closes_the_source() -> None:
    closed = threading.Event()

    def tasks() -> Iterator[Callable[[], int]]:
        try:
            for i in range(10**9):
                yield partial(int, i)
        finally:
            closed.set()

    for got in in_order(tasks(), threads=2):
        if got == 3:
            break
    assert closed.wait(5)
    for _ in range(100):
        if not our_threads():
            break
        time.sleep(0.05)
    assert our_threads() == []


def test_a_run_that_is_left_early_leaves_no_thread(tmp_path: Path) -> None:
    path = tmp_path / "run.parquet"
    pq.write_table(log(60), path, row_group_size=2)
    stream = open_run(path).rollouts(chunk_tokens=1)
    next(stream)
    assert our_threads() != []
    stream.close()
    assert our_threads() == []
