"""The words on a figure: the finding in a sentence, what it rests on, what to beware of."""

from __future__ import annotations

import math

from brace_diag.results import Estimate, Gate, ValueGap
from brace_diag.settings import GateThresholds

V_PI, V_MU = r"$V^{\pi}$", r"$V^{\mu}$"
B_HAT = r"$\hat{b}(0)$"

SOURCE_LENGTH = 60
NO_BREAK = "\N{NO-BREAK SPACE}"

AXIS_LABELS = {
    "position": "policy token position t",
    "horizon": "remaining horizon T − 1 − t, in policy tokens",
    "relative": "relative position t / T",
}
GAP_LABELS = {
    "position": f"gap b(t) = {V_PI} − {V_MU}",
    "horizon": f"gap {V_PI} − {V_MU} (biased axis)",
    "relative": f"gap {V_PI} − {V_MU} (biased axis)",
}
BIASED = {
    "horizon": "Biased where lengths vary: a cell of remaining horizons conditions on the realised "
    "length, which is the future. Read the gap by position.",
    "relative": "Biased where lengths vary: a relative position conditions on the realised length, "
    "which is the future. Read the gap by position.",
}


def finding(result: ValueGap) -> str:
    """What the log says about the gap at the first token, with its interval."""
    if result.invalid is not None:
        return "This log cannot tell the gap"
    b = result.batch.b_hat
    if b.value is None and result.gate == "refused":
        return refusal(result)
    if b.value is None:
        return (
            f"No estimate of the gap at the first token: {plain(b.reason or 'none could be made')}"
        )
    return f"{_comparison(b, result.gate)}: {with_interval(b)}"


def refusal(result: ValueGap) -> str:
    """Why the gate lets no estimate through, and what would help."""
    more = "fresh rollouts from π are needed"
    if result.probe_rollouts is not None:
        more = f"about {result.probe_rollouts:,} {more}"
    limit = GateThresholds().refuse
    return f"Refused at the first token: v is above {limit:g}; {more}"


def _comparison(b: Estimate, gate: Gate) -> str:
    assert b.value is not None
    if b.ci_low is None or b.ci_high is None or b.ci_low <= 0.0 <= b.ci_high:
        return "The gap at the first token cannot be told from 0"
    side = "above" if b.value > 0.0 else "below"
    size = " (read the sign only)" if gate == "direction" else ""
    return f"At the first token {V_PI} lies {side} {V_MU}{size}"


def with_interval(b: Estimate) -> str:
    """b̂(0) = +0.102 ± 0.090 (95 %); both to the two leading digits of the half-width."""
    assert b.value is not None
    if b.ci_low is None or b.ci_high is None:
        return f"{B_HAT} = {signed(b.value)} (no interval: {plain(b.reason or 'unknown')})"
    half = (b.ci_high - b.ci_low) / 2.0
    digits = decimals(half)
    text = f"{B_HAT} = {signed(b.value, digits)} ± {half:.{digits}f} ({percent(b.level)})"
    return text.replace(" ", NO_BREAK)


def basis(result: ValueGap) -> str:
    """Source, counts, discount and estimator: what the finding rests on."""
    b = result.batch.b_hat
    parts = [
        plain(elide(result.source)),
        f"{b.n_rollouts:,} rollouts",
        f"{b.n_clusters:,} clusters of prompts",
        f"γ = {result.settings.gamma:g}",
        plain(b.method.replace("tau=", "τ = ")),
    ]
    parts[1:4] = [part.replace(" ", NO_BREAK) for part in parts[1:4]]
    return " · ".join(parts)


def cautions(result: ValueGap, *, axis: str = "position") -> list[str]:
    """Sentences without which the figure misleads."""
    found = []
    if result.invalid is not None:
        found.append(plain(result.invalid))
    if axis in BIASED:
        found.append(BIASED[axis])
    n, least = result.batch.b_hat.n_clusters, GateThresholds().min_clusters
    if 0 < n < least:
        found.append(f"{n} clusters of prompts: intervals are rough below {least}.")
    return found


def percent(level: float) -> str:
    """A level as 95 %."""
    return f"{100 * level:g}{NO_BREAK}%"


def decimals(half: float) -> int:
    """Decimals that show two digits of a half-width."""
    if not half > 0.0:
        return 3
    return min(max(0, 1 - math.floor(math.log10(half))), 8)


def signed(value: float, digits: int | None = None) -> str:
    """A number with its sign, a true minus, and three digits of its own unless told otherwise."""
    if digits is None:
        digits = 3 if value == 0.0 else min(max(0, 2 - math.floor(math.log10(abs(value)))), 8)
    # Adding 0 turns the -0.0 that rounding leaves into 0.0.
    return f"{round(value, digits) + 0.0:+.{digits}f}".replace("-", "−")


def elide(text: str, limit: int = SOURCE_LENGTH) -> str:
    """A long name without its middle: a path tells most at its end."""
    if len(text) <= limit:
        return text
    head = limit // 3
    return f"{text[:head]}…{text[head + 1 - limit :]}"


def plain(text: str) -> str:
    """Text that is not ours, so that a dollar sign in it does not start mathematics."""
    return text.replace("$", r"\$")
