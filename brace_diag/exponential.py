"""A float64 exp that the compiler can vectorise inside numba loops.

libm's exp is a call per element (about 6 ns); this one is straight-line arithmetic: Cody-Waite
reduction x = n ln 2 + r, |r| <= ln 2 / 2, a Taylor polynomial of degree 13 in r (truncation error
below 2^-57), and 2^n added to the exponent bits. Within 1 ulp of the true value.

numba caches a kernel by the file that the kernel stands in: after a change here, delete
`__pycache__` or save `cpu_kernels.py` again.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

LOWEST = -708.0
"""Below this the result would leave the normal range; it is flushed to 0."""

_LOG2_E = 1.4426950408889634
_LN2_HIGH = 6.93147180369123816490e-01  # 32 bits: n * _LN2_HIGH is exact for |n| < 2^21
_LN2_LOW = 1.90821492927058770002e-10
_ROUND = 6755399441055744.0  # 1.5 * 2^52: adding it rounds to an integer kept in the low bits
_C2, _C3, _C4, _C5, _C6, _C7 = (1.0 / math.factorial(i) for i in range(2, 8))
_C8, _C9, _C10, _C11, _C12, _C13 = (1.0 / math.factorial(i) for i in range(8, 14))


@njit(inline="always", error_model="numpy", fastmath={"contract"})
def exp(x):  # type: ignore[no-untyped-def]
    """e^x for x <= 709; NaN stays NaN, -inf and anything below `LOWEST` give 0."""
    held = x if x > LOWEST else LOWEST
    shifted = held * _LOG2_E + _ROUND
    n = shifted - _ROUND
    r = (held - n * _LN2_HIGH) - n * _LN2_LOW
    p = _C12 + r * _C13
    p = _C11 + r * p
    p = _C10 + r * p
    p = _C9 + r * p
    p = _C8 + r * p
    p = _C7 + r * p
    p = _C6 + r * p
    p = _C5 + r * p
    p = _C4 + r * p
    p = _C3 + r * p
    p = _C2 + r * p
    p = 1.0 + r * (1.0 + r * p)
    bits = np.float64(p).view(np.int64) + (np.float64(shifted).view(np.int64) << 52)
    scaled = np.int64(bits).view(np.float64)
    result = scaled if x >= LOWEST else 0.0
    return x if x != x else result
