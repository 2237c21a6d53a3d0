"""The little languages of the options, and what they refuse."""

from pathlib import Path

import pytest

from brace_diag.errors import InputError
from brace_diag_cli.options import check_plot, parse_map


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
