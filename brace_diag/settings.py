"""Frozen settings: what was asked for, and every threshold with its source."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from brace_diag.errors import InputError

Axis = Literal["position", "horizon", "relative"]
By = Literal["step", "staleness"]
StalenessKind = Literal["first", "last"]
"""Which policy token's version makes a rollout's staleness."""
Baseline = Literal["auto", "critic", "group"]

N_GROUPS = 512
"""Hash groups of prompts: the clusters of the delete-one-group jackknife."""

EXACT_BELOW = 8
PER_OCTAVE = 4


def cell_edges(length: int) -> npt.NDArray[np.int64]:
    """First index of every log-spaced cell that is needed for indices 0 .. length-1.

    Cells are single indices below 8, then four to the octave: 0, 1, .., 7, 8, 10, 12, 14, 16, 20,
    24, 28, 32, ... The last entry is the first edge at or beyond `length` (exclusive end).

    Returns: int64 array (n_cells + 1,), strictly increasing, first entry 0.
    """
    edges = list(range(EXACT_BELOW))
    octave = EXACT_BELOW
    while edges[-1] < length:
        edges.extend(octave + octave * q // PER_OCTAVE for q in range(PER_OCTAVE))
        octave *= 2
    n_cells = next(i for i, edge in enumerate(edges) if edge >= length)
    return np.asarray(edges[: n_cells + 1], dtype=np.int64)


@dataclass(frozen=True, slots=True)
class GateThresholds:
    """Within-prompt variance of S_t = sum of log w from t on: what may be said at each level.

    Measured on exactly solved token MDPs (coverage of the 95 % interval by level of the variance):
    at most 1 every estimator holds; at most 4 `wdr` does (.93-.97); 4-10 only the direction is
    reliable; beyond 10 nothing logged is safe and fresh rollouts are needed. tau caps the state
    weight of wdr, tau_bracket that of its wider companion; `margin` is the gap below which it does
    no harm, in units of s_A, the within-prompt sd of the return.
    """

    good: float = 1.0
    limit: float = 4.0
    refuse: float = 10.0
    tau: float = 2.0
    tau_bracket: float = 5.0
    min_clusters: int = 10
    margin: float = 0.1


@dataclass(frozen=True, slots=True)
class GapSettings:
    """What `value_gap` is asked for.

    Attributes:
        gamma: discount per policy token, in (0, 1].
        level: level of the intervals, in (0, 1).
        baseline: `critic` centres returns by the critic alone, `group` also by the returns of the
            prompt's other rollouts, `auto` takes the one with the smaller standard error.
        by: key of the keyed estimates, or None.
        staleness: which token's version makes the key `staleness`.
        by_positions: keep the gap by position for every key, not only position 0.
        axis: `position` (unbiased) or `horizon`, `relative` (biased when lengths vary; noted).
        group_shift: a in the shift a (mean return of the prompt's others - V at the first token).
    """

    gamma: float = 1.0
    level: float = 0.95
    baseline: Baseline = "auto"
    by: By | None = None
    by_positions: bool = False
    staleness: StalenessKind = "first"
    axis: Axis = "position"
    group_shift: float = 0.8

    def __post_init__(self) -> None:
        if not 0.0 < self.gamma <= 1.0:
            raise InputError(f"gamma is {self.gamma}; it must be above 0 and at most 1")
        if not 0.0 < self.level < 1.0:
            raise InputError(f"level is {self.level}; it must lie strictly between 0 and 1")
        _one_of("baseline", self.baseline, ("auto", "critic", "group"))
        _one_of("by", self.by, (None, "step", "staleness"))
        _one_of("staleness", self.staleness, ("first", "last"))
        _one_of("axis", self.axis, ("position", "horizon", "relative"))

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class AuditSettings:
    """What `audit` is asked for.

    Attributes:
        gamma: discount per policy token, in (0, 1].
        level: level of the intervals that are printed; the rule itself uses one-sided t_.95.
        baseline: what returns are centred by, as in `GapSettings`.
        by: `step` for a judgement of every step too, or None.
        margin: the gap that is harmless, in units of s_A.
    """

    gamma: float = 1.0
    level: float = 0.95
    baseline: Baseline = "auto"
    by: Literal["step"] | None = None
    margin: float = 0.1

    def __post_init__(self) -> None:
        _one_of("by", self.by, (None, "step"))
        if not self.margin > 0.0:
            raise InputError(f"margin is {self.margin}; it must be above 0, in units of s_A")
        self.gap()

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def gap(self) -> GapSettings:
        """The same as settings of the value gap."""
        return GapSettings(gamma=self.gamma, level=self.level, baseline=self.baseline, by=self.by)


TargetName = Literal["mc", "gae", "vtrace", "capped", "brace"]

_TAKES: dict[str, tuple[str, ...]] = {
    "mc": ("gamma",),
    "gae": ("gamma", "lam"),
    "vtrace": ("n", "rho_bar", "c_bar", "gamma", "lam"),
    "capped": ("k", "rho_bar", "c_bar", "gamma", "lam"),
    "brace": ("k", "rho_bar", "c_bar", "gamma", "lam"),
}
_ALWAYS_SHOWN = ("k", "rho_bar", "c_bar")
_NEUTRAL = {"gamma": 1.0, "lam": 1.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetSpec:
    """One value target with its parameters; build it with `of` or `parse`.

    What a target does not read is at its neutral value: inf for k, n and the caps, 1 for lam.

    Attributes:
        name: which target.
        k: corrected steps of brace and capped, an integer >= 0 or inf.
        n: window of vtrace, an integer >= 1 or inf.
        rho_bar, c_bar: caps of the residual weight and of the trace, above 0 or inf.
        gamma: discount per policy token, in (0, 1]; lam: trace decay, in [0, 1].
    """

    name: TargetName
    k: float = math.inf
    n: float = math.inf
    rho_bar: float = math.inf
    c_bar: float = math.inf
    gamma: float = 1.0
    lam: float = 1.0

    def __post_init__(self) -> None:
        _one_of("target", self.name, tuple(_TAKES))
        for key, lowest in (("k", 0), ("n", 1)):
            x = getattr(self, key)
            if not (x >= lowest and (x == math.inf or x == int(x))):
                raise InputError(f"{key} is {_number(x)}; it must be an integer >= {lowest} or inf")
        for key in ("rho_bar", "c_bar"):
            if not getattr(self, key) > 0:
                raise InputError(
                    f"{key} is {_number(getattr(self, key))}; it must be above 0, or inf"
                )
        if not 0 < self.gamma <= 1:
            raise InputError(f"gamma is {_number(self.gamma)}; it must be above 0 and at most 1")
        if not 0 <= self.lam <= 1:
            raise InputError(f"lam is {_number(self.lam)}; it must lie between 0 and 1")

    @classmethod
    def of(cls, name: str, **parameters: float) -> TargetSpec:
        """A target by name; parameters left out take the target's own defaults.

        vtrace: n = inf, rho_bar = c_bar = 1; brace and capped: k = 100, rho_bar = 1.2,
        c_bar = 1.1; gamma = lam = 1.

        Raises: InputError for an unknown name, a parameter that the target does not read, or a
        value outside its range.
        """
        _one_of("target", name, tuple(_TAKES))
        takes = _TAKES[name]
        for key in parameters:
            if key not in takes:
                raise InputError(f"{name} has no parameter {key!r}; it reads {', '.join(takes)}")
        own: dict[str, float] = {}
        if name == "vtrace":
            own = {"rho_bar": 1.0, "c_bar": 1.0}
        elif name in ("capped", "brace"):
            own = {"k": 100.0, "rho_bar": 1.2, "c_bar": 1.1}
        return cls(name=name, **(own | parameters))  # type: ignore[arg-type]

    @classmethod
    def parse(cls, text: str, **defaults: float) -> TargetSpec:
        """A target as it is typed: `brace`, `brace:k=20,c_bar=1`, `vtrace:n=64`, `gae:lam=.95`.

        Args: defaults: values for parameters that the text leaves out; where the target does not
        read one it is passed over.

        Raises: InputError that names what is wrong and what may stand there.
        """
        name, colon, rest = (part.strip() for part in text.partition(":"))
        if name not in _TAKES:
            raise InputError(f"target {text!r}: the name is one of {', '.join(_TAKES)}")
        takes = ", ".join(_TAKES[name])
        given: dict[str, float] = {}
        for part in rest.split(",") if colon else ():
            key, equals, value = (word.strip() for word in part.partition("="))
            if not (key and equals and value):
                raise InputError(
                    f"target {text!r}: {part.strip()!r} is not KEY=NUMBER; {name} reads {takes}"
                )
            if key in given:
                raise InputError(f"target {text!r}: {key} is given twice")
            try:
                given[key] = float(value)
            except ValueError:
                raise InputError(f"target {text!r}: {key} is {value!r}, no number") from None
        usable = {key: value for key, value in defaults.items() if key in _TAKES[name]}
        try:
            return cls.of(name, **(usable | given))
        except InputError as error:
            raise InputError(f"target {text!r}: {error}") from None

    @property
    def parameters(self) -> dict[str, float]:
        """The parameters that the target reads, by name."""
        return {key: getattr(self, key) for key in _TAKES[self.name]}

    @property
    def reads_weights(self) -> bool:
        """Whether the target is made of importance ratios."""
        return "c_bar" in _TAKES[self.name]

    @property
    def label(self) -> str:
        """The target as `parse` reads it, every cap and window in it: `vtrace:rho_bar=1,c_bar=1`.

        Parameters that change nothing (n = inf, gamma = 1, lam = 1) are left out.
        """
        shown = [
            f"{key}={_number(value)}"
            for key, value in self.parameters.items()
            if key in _ALWAYS_SHOWN or value != _NEUTRAL.get(key, math.inf)
        ]
        return f"{self.name}:{','.join(shown)}" if shown else self.name


def parse_targets(texts: Sequence[str | TargetSpec], **defaults: float) -> tuple[TargetSpec, ...]:
    """Several targets, in the order given; `defaults` as in `TargetSpec.parse`.

    Raises: InputError where none is given, one cannot be read, or two are the same.
    """
    specs = tuple(
        t if isinstance(t, TargetSpec) else TargetSpec.parse(t, **defaults) for t in texts
    )
    if not specs:
        raise InputError("no target is given; for example brace, or vtrace:c_bar=1")
    for i, spec in enumerate(specs):
        if spec in specs[:i]:
            raise InputError(f"target {spec.label} is given twice; leave one out")
    return specs


@dataclass(frozen=True, slots=True)
class SlopeSettings:
    """What `reward_slope` is asked for.

    Attributes:
        targets: the value targets, each with its own gamma and lam.
        level: level of the intervals, in (0, 1).
        by: key of the keyed figures, or None.
        staleness: which token's version makes the key `staleness`.
    """

    targets: tuple[TargetSpec, ...]
    level: float = 0.95
    by: By | None = None
    staleness: StalenessKind = "first"

    def __post_init__(self) -> None:
        if not 0.0 < self.level < 1.0:
            raise InputError(f"level is {self.level}; it must lie strictly between 0 and 1")
        _one_of("by", self.by, (None, "step", "staleness"))
        _one_of("staleness", self.staleness, ("first", "last"))

    def to_dict(self) -> dict[str, Any]:
        labels = [spec.label for spec in self.targets]
        return {
            "targets": labels,
            "level": self.level,
            "by": self.by,
            "staleness": self.staleness,
        }


def _number(x: float) -> str:
    """The shortest text that reads back as the same number."""
    return repr(float(x)).removesuffix(".0")


def _one_of(name: str, value: object, allowed: tuple[object, ...]) -> None:
    if value not in allowed:
        choices = ", ".join("none" if a is None else str(a) for a in allowed)
        raise InputError(f"{name} is {value!r}; allowed: {choices}")
