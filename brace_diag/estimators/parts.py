"""Compiled work in parts, by plain threads that sleep when there is nothing to do.

The kernels hold no lock of the interpreter. Threads of an OpenMP region would spin at its end and
take the cores from whoever decodes the next batch; these do not.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable

PARTS_PER_THREAD = 4
"""Parts of a batch for each thread, so that a thread that was held up leaves work to the others."""


def in_parts(work: Callable[[int], None], n_parts: int, threads: int) -> None:
    """Call work(0) .. work(n_parts - 1), each once, on up to `threads` threads; wait for all.

    Raises: the first error that a part raised, once the others have ended.
    """
    if threads <= 1 or n_parts <= 1:
        for part in range(n_parts):
            work(part)
        return
    ticket = itertools.count()  # next() is atomic under the interpreter lock
    errors: list[BaseException] = []

    def run() -> None:
        try:
            while (part := next(ticket)) < n_parts:
                work(part)
        except BaseException as error:
            errors.append(error)

    others = [threading.Thread(target=run) for _ in range(min(threads, n_parts) - 1)]
    for thread in others:
        thread.start()
    run()
    for thread in others:
        thread.join()
    if errors:
        raise errors[0]
