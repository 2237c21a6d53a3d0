"""The little languages of the options, and what they refuse."""

from pathlib import Path

import pytest

from brace_diag.errors import InputError
from brace_diag_cli.options import check_plot, parse_map, parse_steps


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, None),
        ("100:200", slice(100, 200, None)),
        ("100:200:20", slice(100, 200, 20)),
        ("100:", slice(100, None, None)),
        (":200", slice(None, 200, None)),
        ("::5", slice(None, None, 5)),
        (":", slice(None, None, None)),
        ("150", slice(150, 151, None)),
        (" 1 : 2 ", slice(1, 2, None)),
    ],
)
def test_steps(text: str | None, expected: slice | None) -> None:
    assert parse_steps(text) == expected


@pytest.mark.parametrize("text", ["", "a", "1:b", "1:2:3:4", "1.5:2", "1-2", " "])
def test_steps_that_are_no_steps(text: str) -> None:
    with pytest.raises(InputError, match=r"is not A:B:C; write for example --steps 100:200"):
        parse_steps(text)


@pytest.mark.parametrize("text", ["1:9:0", "1:9:-1"])
def test_steps_go_up(text: str) -> None:
    with pytest.raises(InputError, match="the stride is"):
        parse_steps(text)


@pytest.mark.parametrize("text", ["200:100", "100:100"])
def test_steps_that_hold_none(text: str) -> None:
    with pytest.raises(InputError, match="holds no step"):
        parse_steps(text)


def test_map() -> None:
    assert parse_map(None) is None
    assert parse_map([]) is None
    assert parse_map(["values=vf", " reward = score "]) == {"values": "vf", "reward": "score"}
    assert parse_map(["values=a=b"]) == {"values": "a=b"}


@pytest.mark.parametrize("pair", ["values", "values=", "=vf", "", "="])
def test_map_that_is_none(pair: str) -> None:
    with pytest.raises(InputError, match="is not CANONICAL=THEIRS; write for example"):
        parse_map([pair])


def test_map_given_twice() -> None:
    assert parse_map(["values=vf", "values=vf"]) == {"values": "vf"}
    with pytest.raises(InputError, match="gives values twice: 'vf' and 'v'"):
        parse_map(["values=vf", "values=v"])


def test_plot_names(tmp_path: Path) -> None:
    check_plot(None)
    for ending in ("png", "svg", "pdf", "PNG"):
        check_plot(tmp_path / f"gap.{ending}")
    with pytest.raises(InputError, match=r"the ending \.txt is not one of \.png, \.svg, \.pdf"):
        check_plot(tmp_path / "gap.txt")
    with pytest.raises(InputError, match=r"the ending \(none\)"):
        check_plot(tmp_path / "gap")
    with pytest.raises(InputError, match=r"there is no folder .*nowhere; make it first"):
        check_plot(tmp_path / "nowhere" / "gap.png")
    (tmp_path / "folder.png").mkdir()
    with pytest.raises(InputError, match="is a folder"):
        check_plot(tmp_path / "folder.png")
