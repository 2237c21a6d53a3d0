"""The canonical columns of a log: their kinds, and the names that other programs give them."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import Literal

Kind = Literal["floats", "ints", "bools", "float", "int", "bool", "id"]
"""A plural kind is a list column with one entry per token; the others hold one value per row."""


@dataclass(frozen=True, slots=True)
class CanonicalColumn:
    """One column of the data contract.

    Attributes:
        name: canonical name.
        kind: what a row holds there.
        meaning: one line, for messages and `inspect`.
        known_as: names that other programs use; they are suggested, never taken unasked.
    """

    name: str
    kind: Kind
    meaning: str
    known_as: tuple[str, ...] = ()

    @property
    def is_list(self) -> bool:
        """Whether a row holds a list, one entry per token."""
        return self.kind in ("floats", "ints", "bools")

    @property
    def wanted_type(self) -> str:
        """The Arrow type to write, for messages."""
        return {
            "floats": "list<float32>",
            "ints": "list<int32>",
            "bools": "list<bool>",
            "float": "float64",
            "int": "int64",
            "bool": "bool",
            "id": "string or int64",
        }[self.kind]


COLUMNS: dict[str, CanonicalColumn] = {
    column.name: column
    for column in (
        CanonicalColumn(
            "mu_logprobs",
            "floats",
            "log mu(a_t|s_t) of the sampled token, as sampled",
            (
                "rollout_log_probs",
                "rollout_logprobs",
                "behavior_logprobs",
                "mu_logp",
                "infer_logprobs",
                "generation_logprobs",
                "sampling_logprobs",
                "logprobs",
            ),
        ),
        CanonicalColumn(
            "pi_logprobs",
            "floats",
            "log pi(a_t|s_t) under the policy being updated",
            (
                "log_probs",
                "pi_logp",
                "prev_logprobs",
                "old_log_probs",
                "old_logprobs",
                "action_log_probs",
                "trainer_logprobs",
            ),
        ),
        CanonicalColumn(
            "values",
            "floats",
            "critic V(s_t), the state before token t",
            ("value", "vf_preds", "critic_values", "value_preds"),
        ),
        CanonicalColumn(
            "reward",
            "float",
            "terminal reward of the rollout",
            ("score", "raw_reward", "total_reward", "trajectory_reward", "terminal_reward"),
        ),
        CanonicalColumn(
            "rewards", "floats", "one reward per token", ("token_level_rewards", "token_reward")
        ),
        CanonicalColumn(
            "policy_mask",
            "bools",
            "true where the policy sampled the token",
            ("mask", "response_mask", "action_mask", "completion_mask", "masks"),
        ),
        CanonicalColumn(
            "loss_mask", "bools", "tokens that the trainer kept in the loss", ("loss_masks",)
        ),
        CanonicalColumn(
            "prompt_id",
            "id",
            "prompt, the cluster of every interval",
            ("group_id", "group_index", "uid", "prompt_idx", "prompt", "task_id"),
        ),
        CanonicalColumn("rollout_id", "id", "rollout", ("sample_id", "sample_index")),
        CanonicalColumn(
            "step", "int", "trainer step that consumed the rollout", ("global_step", "train_step")
        ),
        CanonicalColumn(
            "trainer_version",
            "int",
            "version of the policy being updated",
            ("current_version", "learner_version"),
        ),
        CanonicalColumn(
            "behavior_version",
            "int",
            "version of the policy that sampled the rollout",
            ("policy_version", "weight_version", "model_version", "generator_version"),
        ),
        CanonicalColumn(
            "versions",
            "ints",
            "version of the policy that sampled each token",
            ("version", "weight_versions", "token_versions"),
        ),
        CanonicalColumn(
            "truncated", "bool", "cut before the end of the sequence", ("is_truncated",)
        ),
        CanonicalColumn(
            "bootstrap_value", "float", "V after the last token of a truncated rollout"
        ),
        CanonicalColumn("entropy", "floats", "entropy of mu at t", ("entropies", "entropys")),
        CanonicalColumn(
            "prox_logprobs",
            "floats",
            "proximal policy, where it is neither mu nor pi",
            ("prox_logp", "prox_log_probs"),
        ),
        CanonicalColumn(
            "token_ids",
            "ints",
            "sampled tokens",
            ("response_tokens", "response_ids", "tokens", "completion_ids"),
        ),
    )
}
"""Every canonical column by name, in the order in which they are shown."""

_TYPE_WORDS = {"halffloat": "float16", "float": "float32", "double": "float64"}


@functools.cache
def type_text(kind: object) -> str:
    """An Arrow type as this project writes it: list<float32>, whatever a writer calls its items."""
    plain = re.sub(r"\b(?:item|element|array|l): ", "", str(kind)).replace(" not null", "")
    return re.sub(r"\b[a-z]+\b", lambda word: _TYPE_WORDS.get(word[0], word[0]), plain)


LIST_COLUMNS = tuple(name for name, column in COLUMNS.items() if column.is_list)
SCALAR_COLUMNS = tuple(name for name, column in COLUMNS.items() if not column.is_list)
