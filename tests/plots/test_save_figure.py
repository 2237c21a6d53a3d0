"""Files: the right format, the same bytes each time, whole or not at all."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import matplotlib
import pytest
from matplotlib.figure import Figure
from matplotlib.image import imread

from brace_diag.errors import InputError
from brace_diag.plots import gap_figure, keyed_figure, save_figure


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_the_same_bytes_each_time(make_gap: Any, tmp_path: Path, suffix: str) -> None:
    one, two, again = (tmp_path / f"{name}.{suffix}" for name in ("one", "two", "again"))
    figure = gap_figure(make_gap(64))
    save_figure(figure, one)
    with matplotlib.rc_context({"savefig.dpi": 30, "svg.hashsalt": None, "savefig.bbox": "tight"}):
        save_figure(figure, two)
        save_figure(gap_figure(make_gap(64)), again)
    assert one.read_bytes() == two.read_bytes() == again.read_bytes()
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(p.name for p in (one, two, again))


def test_png_has_200_dots_an_inch(make_gap: Any, tmp_path: Path) -> None:
    save_figure(gap_figure(make_gap(64), size=(7.0, 5.0)), tmp_path / "gap.PNG")
    assert imread(tmp_path / "gap.PNG").shape[:2] == (1000, 1400)


def test_svg_is_xml_whose_text_is_text(make_gap: Any, tmp_path: Path) -> None:
    path = tmp_path / "gap.svg"
    save_figure(gap_figure(make_gap(64, source="runs & <more> $1$.parquet")), path)
    root = ET.parse(path).getroot()
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    text = " ".join("".join(e.itertext()) for e in root.iter("{http://www.w3.org/2000/svg}text"))
    text = re.sub(r"\s+", " ", text)
    for label in (
        "policy token position t",
        "rollouts alive",
        "v(t), within-prompt variance of the log product",
        "95 % simultaneous (sup-t)",
        "doubly robust",
        "good (v ≤ 1)",
        "runs & <more> $1$.parquet",
        "512 rollouts",
    ):
        assert label in text, label
    assert "<dc:date>" not in path.read_text()


def test_many_keys_keep_the_svg_small(make_gap: Any, make_by: Any, tmp_path: Path) -> None:
    path = tmp_path / "steps.svg"
    save_figure(keyed_figure(make_gap(16, key="step", by=make_by(range(3000)))), path)
    # Lines and bands of 3,000 keys as paths take about 1 MB; as many markers would double that.
    assert path.stat().st_size < 1_500_000


@pytest.mark.parametrize("name", ["gap.eps", "gap", "gap.jpeg", ".png"])
def test_other_suffixes_are_refused_by_name(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match=r"allowed: \.png, \.svg, \.pdf"):
        save_figure(Figure(), tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_a_missing_folder_is_said(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"folder .*nowhere does not exist"):
        save_figure(Figure(), tmp_path / "nowhere" / "gap.png")


def test_a_folder_in_place_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "gap.png").mkdir()
    with pytest.raises(InputError, match="is a folder"):
        save_figure(Figure(), tmp_path / "gap.png")


def test_an_old_file_is_replaced(make_gap: Any, tmp_path: Path) -> None:
    path = tmp_path / "gap.png"
    path.write_bytes(b"old")
    save_figure(gap_figure(make_gap(8)), path)
    assert path.read_bytes().startswith(b"\x89PNG")


def test_what_cannot_be_written_leaves_the_old_file(
    make_gap: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "gap.png"
    path.write_bytes(b"old")

    def full(self: Path, data: bytes) -> int:
        with open(self, "wb") as file:
            file.write(data[:10])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(InputError, match="No space left on device"):
        save_figure(gap_figure(make_gap(8)), path)
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["gap.png"]
