"""The schemas are valid, whole in themselves, and hold what the results hold."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from brace_diag.errors import InputError
from brace_diag.results import Estimate, KeyedGap, ValueGap
from brace_diag.schemas import load_schema
from brace_diag.settings import GapSettings
from brace_diag_cli.document import document

COMMANDS = (
    "audit",
    "bias",
    "compare",
    "critic",
    "demo",
    "inspect",
    "simulate",
    "sweep",
    "targets",
    "trend",
)


def bias_json(gap: ValueGap) -> dict[str, Any]:
    source = {
        "paths": ["x"],
        "steps": None,
        "columns": {"values": "vf", "step": None},
        "unused": [],
    }
    text = document(
        "bias",
        source=source,
        settings=gap.settings.to_dict(),
        quality=gap.quality.to_dict(),
        results=gap.to_dict(),
        notes=gap.notes,
    )
    parsed: dict[str, Any] = json.loads(text)
    return parsed


def errors(document: Any, command: str = "bias") -> list[str]:
    validator = Draft202012Validator(load_schema(command))
    return [error.message for error in validator.iter_errors(document)]


@pytest.mark.parametrize("command", COMMANDS)
def test_schema_is_valid_and_refers_only_to_itself(command: str) -> None:
    schema = load_schema(command)
    Draft202012Validator.check_schema(schema)
    text = json.dumps(schema)
    for part in text.split('"$ref": "')[1:]:
        reference = part.split('"')[0]
        assert reference.startswith("#/$defs/")
        assert reference.removeprefix("#/$defs/") in schema["$defs"]


def test_shared_definitions_are_the_same_everywhere() -> None:
    seen: dict[str, Any] = {}
    for command in COMMANDS:
        for name, definition in load_schema(command)["$defs"].items():
            assert seen.setdefault(name, definition) == definition, name


def test_a_command_without_schema_is_refused() -> None:
    with pytest.raises(InputError, match=r"no JSON schema for 'bais'; there is one for: .*bias, "):
        load_schema("bais")


def test_a_gap_fits_its_schema(gap_of: Callable[..., ValueGap]) -> None:
    gap = gap_of()
    assert errors(bias_json(gap)) == []
    entry = KeyedGap(3, gap.batch, gap.gap, "unknown", None)
    by_step = replace(gap, settings=GapSettings(by="step"), by=(entry,))
    assert errors(bias_json(by_step)) == []


def test_the_schema_refuses_what_is_wrong(
    gap_of: Callable[..., ValueGap], estimate_of: Callable[..., Estimate]
) -> None:
    good = bias_json(gap_of())
    for change in ({"schema": "brace-diag/2"}, {"command": "beta"}, {"extra": 1}):
        assert errors(good | change)
    for missing in good:
        assert errors({name: value for name, value in good.items() if name != missing})
    unexplained = replace(estimate_of(None), reason=None)
    gap = gap_of()
    bad = bias_json(replace(gap, batch=replace(gap.batch, b_hat=unexplained)))
    assert errors(bad), "a null without a reason must not pass"
    bad = bias_json(gap)
    bad["results"]["gap"]["cells"][0]["surprise"] = 1.0
    assert errors(bad)
    bad = bias_json(gap)
    bad["results"]["gap"]["cells"][0]["gate"] = "excellent"
    assert errors(bad)
