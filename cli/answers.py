"""Which questions a log can answer, judged by its columns alone."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Answer:
    """One question to a log.

    Attributes:
        command: what to run.
        question: what it answers.
        possible: whether the log has the columns for it.
        reason: which columns it lacks, or how far the answer goes without them; else None.
    """

    command: str
    question: str
    possible: bool
    reason: str | None


@dataclass(frozen=True, slots=True)
class _Question:
    command: str
    question: str
    # One of each group must be there.
    needs: tuple[tuple[str, ...], ...]


_GAP = (("mu_logprobs",), ("pi_logprobs",), ("reward", "rewards"))
_STALENESS = ("behavior_version", "versions")
_QUESTIONS = (
    _Question("audit", "whether the critic needs correction", _GAP),
    _Question("report", "all of it on one page", (("reward", "rewards"),)),
    _Question("sweep", "which k, rho_bar, c_bar recover the gap", (*_GAP, ("values",))),
    _Question("bias", "value gap V^pi - V^mu by position", _GAP),
    _Question("bias", "critic bias V - V^pi by position", (*_GAP, ("values",))),
    _Question("bias --by step", "both for each trainer step", (*_GAP, ("step",))),
    _Question("trend", "whether gap, critic and weights move over steps", (*_GAP, ("step",))),
    _Question(
        "bias --by staleness",
        "both for each staleness",
        (*_GAP, ("trainer_version",), _STALENESS),
    ),
    _Question(
        "weights",
        "products of pi/mu: how fast they fall, whether pi/mu is a ratio",
        _GAP,
    ),
    _Question("beta", "how much of the reward reaches each value target", (*_GAP, ("values",))),
    _Question(
        "beta --target gae --target mc",
        "the same for targets without ratios",
        (("values",), ("reward", "rewards")),
    ),
    _Question(
        "critic",
        "how well the critic fits the returns, and mean |target - V|",
        (("values",), ("reward", "rewards")),
    ),
    _Question("bias --baseline group", "the gap without a good critic", (*_GAP, ("prompt_id",))),
    _Question(
        "targets -o OUT.parquet",
        "value targets and advantages beside its columns",
        (*_GAP, ("values",)),
    ),
)


def answers(columns: Collection[str]) -> tuple[Answer, ...]:
    """Every question, and whether a log with these canonical columns can answer it."""
    return tuple(_answer(question, columns) for question in _QUESTIONS)


def _answer(question: _Question, columns: Collection[str]) -> Answer:
    missing = [group for group in question.needs if not set(group) & set(columns)]
    if missing:
        names = ", ".join(" or ".join(group) for group in missing)
        return Answer(question.command, question.question, False, f"the log has no {names}")
    return Answer(question.command, question.question, True, _caveat(question, columns))


def _caveat(question: _Question, columns: Collection[str]) -> str | None:
    """How far the gap can be had without columns that help; said once, with the gap itself."""
    if question.needs != _GAP:
        return None
    if "prompt_id" not in columns:
        return "each rollout counts as a prompt of its own: the log has no prompt_id"
    if "values" not in columns:
        return "centred by the returns of the prompt's other rollouts: the log has no values"
    return None
