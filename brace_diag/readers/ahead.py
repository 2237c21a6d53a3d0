"""Chunks decoded ahead of their consumer: in order, bounded, and closed when it stops."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")

# Decoding shares the machine with the consumer; more threads only hold more chunks in memory.
DECODE_THREADS = max(1, min(4, os.cpu_count() or 1))
_POLL_SECONDS = 0.1


def in_order(
    tasks: Iterator[Callable[[], T]], threads: int = DECODE_THREADS
) -> Generator[T, None, None]:
    """Results of the tasks in their order, worked on by a few threads ahead of the consumer.

    One thread draws the tasks (an iterator may itself read a file to find its next task) and
    hands them to `threads` others; at most `threads` + 1 results wait. An error in a task, or in
    the iterator of tasks, is raised here in its turn. Closing the generator stops all threads.
    """
    waiting: queue.Queue[Future[T] | None] = queue.Queue(maxsize=threads + 1)
    stop = threading.Event()
    pool = ThreadPoolExecutor(threads, thread_name_prefix="brace-diag-decode")
    feeder = threading.Thread(
        target=_feed, args=(tasks, pool, waiting, stop), name="brace-diag-read", daemon=True
    )
    feeder.start()
    try:
        while (future := waiting.get()) is not None:
            yield future.result()
    finally:
        stop.set()
        feeder.join()
        pool.shutdown(wait=True, cancel_futures=True)


def _feed(
    tasks: Iterator[Callable[[], T]],
    pool: ThreadPoolExecutor,
    waiting: queue.Queue[Future[T] | None],
    stop: threading.Event,
) -> None:
    """Submit every task and queue its future; an error while drawing tasks is queued as one."""
    try:
        for task in tasks:
            if not _put(pool.submit(task), waiting, stop):
                return
    except BaseException as error:  # raised again by the consumer, in its turn
        failed: Future[T] = Future()
        failed.set_exception(error)
        _put(failed, waiting, stop)
    finally:
        close = getattr(tasks, "close", None)
        if close is not None:
            close()
    _put(None, waiting, stop)


def _put(
    item: Future[T] | None, waiting: queue.Queue[Future[T] | None], stop: threading.Event
) -> bool:
    """Queue an item, or give up if the consumer has stopped."""
    while not stop.is_set():
        try:
            waiting.put(item, timeout=_POLL_SECONDS)
            return True
        except queue.Full:
            continue
    return False
