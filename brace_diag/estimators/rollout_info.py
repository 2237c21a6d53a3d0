"""What the first pass over a log knows of the rollouts of a batch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class RolloutInfo:
    """What the first pass over a log knows of each rollout of a batch.

    Attributes:
        use: (n_rollouts,) takes part in the gap.
        counted: (n_rollouts,) takes part in plain means (False for duplicates).
        z: (n_rollouts,) mean return of the prompt's other rollouts in the step minus the critic at
            the first token; 0 where there is no other.
        siblings: key of the rollout's set of siblings; expected: rows of that set, 0 if unknown.
    """

    use: npt.NDArray[np.bool_]
    counted: npt.NDArray[np.bool_]
    z: Array
    siblings: npt.NDArray[np.uint64]
    expected: npt.NDArray[np.int64]
