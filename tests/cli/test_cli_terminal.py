"""Colour, width and progress: on a terminal, and nowhere else."""

import io
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from brace_diag.errors import InputError
from brace_diag_cli.files import whole_file
from brace_diag_cli.terminal import Terminal

LogOf = Callable[..., Path]
HIDE_CURSOR = b"\033[?25l"


class Screen(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def on_a_terminal(*words: str | Path, **variables: str) -> tuple[bytes, bytes]:
    """What a process writes to stdout and to stderr where both are terminals."""
    environment: Mapping[str, str] = {**os.environ, "TERM": "xterm", "COLUMNS": "120", **variables}
    streams = [os.openpty(), os.openpty()]
    running = subprocess.Popen(
        [sys.executable, "-m", "brace_diag_cli", *map(str, words)],
        stdout=streams[0][1],
        stderr=streams[1][1],
        env=environment,
    )
    for _, ours in streams:
        os.close(ours)
    # Both at once: a terminal that nobody reads fills up and stops whoever writes to it.
    with ThreadPoolExecutor(2) as readers:
        out, err = readers.map(read_all, (master for master, _ in streams))
    assert running.wait(timeout=60) == 0
    return out, err


def read_all(descriptor: int) -> bytes:
    """Everything until the other side of a pseudo-terminal is closed, which Linux tells by EIO."""
    text = b""
    try:
        while part := os.read(descriptor, 65536):
            text += part
    except OSError:
        return text
    finally:
        os.close(descriptor)
    return text


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment that asks for nothing."""
    for name in ("NO_COLOR", "TERM", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("bare")
def test_a_file_has_no_width_and_no_colour() -> None:
    assert Terminal.of(io.StringIO()) == Terminal(None, False)


@pytest.mark.usefixtures("bare")
def test_a_terminal_has_both(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "77")
    assert Terminal.of(Screen()) == Terminal(77, True)


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_colour_can_be_switched_off(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(name, value)
    assert not Terminal.of(Screen()).colour


def test_painting_is_undone_without_colour() -> None:
    assert Terminal(80, True).paint("good", "green") == "\033[32mgood\033[0m"
    assert Terminal(80, False).paint("good", "green") == "good"
    assert Terminal(80, True).paint("good", None) == "good"


def test_a_terminal_sees_colour_and_progress(log_of: LogOf) -> None:
    out, err = on_a_terminal("bias", log_of(), NO_COLOR="")
    assert b"\033[32mgood\033[0m" in out
    assert HIDE_CURSOR in err
    assert b"measuring the gap" in err


def test_quiet_and_no_color_are_heeded(log_of: LogOf) -> None:
    out, err = on_a_terminal("bias", log_of(), "--quiet", NO_COLOR="1")
    assert b"good" in out
    assert b"\033[" not in out
    assert err == b""


def test_a_file_is_whole_or_not_there(tmp_path: Path) -> None:
    path = tmp_path / "note.txt"

    def fail() -> None:
        with whole_file(path, force=False) as temporary:
            temporary.write_text("half")
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        fail()
    assert list(tmp_path.iterdir()) == []
    with whole_file(path, force=False) as temporary:
        temporary.write_text("whole")
        assert not path.exists()
    assert path.read_text() == "whole"
    with (
        pytest.raises(InputError, match="exists; choose another name"),
        whole_file(path, force=False),
    ):
        raise AssertionError("must be refused before the block runs")
    assert [entry.name for entry in tmp_path.iterdir()] == ["note.txt"]
