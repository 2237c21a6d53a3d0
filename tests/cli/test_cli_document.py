"""The JSON document is strict, ordered, and free of rounding noise."""

import json
import math

import pytest

from brace_diag import __version__
from brace_diag_cli.document import document, dump


def strict(text: str) -> dict[str, object]:
    def refuse(name: str) -> float:
        raise AssertionError(f"{name} is not JSON")

    parsed: dict[str, object] = json.loads(text, parse_constant=refuse)
    return parsed


def test_document_has_its_eight_keys_in_order() -> None:
    text = document(
        "bias", source={"path": "x"}, settings={}, quality={}, results={"b": 1.5}, notes=("one",)
    )
    parsed = strict(text)
    assert list(parsed) == [
        "schema", "command", "version", "source", "settings", "quality", "results", "notes",
    ]  # fmt: skip
    assert parsed["schema"] == "brace-diag/1"
    assert parsed["version"] == __version__
    assert parsed["notes"] == ["one"]
    assert text.endswith("}\n")


def test_what_is_no_number_is_null() -> None:
    parsed = strict(dump({"x": [math.nan, math.inf, -math.inf, 1.0, {"y": math.nan}]}))
    assert parsed == {"x": [None, None, None, 1.0, {"y": None}]}


def test_order_of_addition_leaves_no_trace() -> None:
    # The sums of one log in two orders differ by a few units in the last place of float64.
    a, b = 0.1 + 0.2 + 0.3, 0.3 + 0.2 + 0.1
    assert a != b
    assert dump({"x": a}) == dump({"x": b})
    assert "-" not in dump({"x": -0.0})


def test_integers_booleans_and_none_stay_what_they_are() -> None:
    content = {"n": 12345678901234567, "yes": True, "none": None, "text": "π", "t": (1, 2)}
    assert strict(dump(content)) == content | {"t": [1, 2]}


def test_numbers_keep_ten_digits() -> None:
    # Rounding to ten significant digits moves a number by half a unit of the tenth: 5e-10 at most.
    assert strict(dump({"x": 1 / 3}))["x"] == pytest.approx(1 / 3, rel=5e-10, abs=0)
