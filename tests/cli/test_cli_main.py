"""Exit codes, the two streams, errors in one or two lines, and what `--help` costs."""

import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from brace_diag import __version__
from brace_diag.errors import SchemaError

COMMANDS = ("demo", "inspect", "bias", "beta", "critic", "simulate")
HEAVY = ("torch", "scipy", "matplotlib", "numba", "polars", "pyarrow", "numpy", "statsmodels")
PROGRAM = (sys.executable, "-m", "brace_diag_cli")

Cli = Callable[..., Any]
LogOf = Callable[..., Path]


def program(*words: str | Path, **changes: Any) -> subprocess.CompletedProcess[str]:
    """The command line in a process of its own, streams apart."""
    return subprocess.run(
        [*PROGRAM, *map(str, words)], capture_output=True, text=True, timeout=120, **changes
    )


def assert_refused(outcome: Any, *parts: str) -> None:
    """Exit 2, nothing on stdout, one or two lines on stderr that hold every part."""
    assert outcome.code == 2
    assert outcome.out == ""
    lines = outcome.err.rstrip("\n").split("\n")
    assert 1 <= len(lines) <= 2, outcome.err
    assert lines[0].startswith("error: ")
    assert "Traceback" not in outcome.err
    for part in parts:
        assert part in outcome.err


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_loads_nothing_heavy(command: str) -> None:
    code = (
        "import sys\n"
        "from brace_diag_cli.main import main\n"
        f"code = main({[*command.split(), '--help']})\n"
        "print(*sorted(name for name in sys.modules if '.' not in name), file=sys.stderr)\n"
        "sys.exit(code)"
    )
    start = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    print(f"brace-diag {command} --help: {time.perf_counter() - start:.2f} s")
    assert done.returncode == 0
    assert "Usage: brace-diag" in done.stdout
    loaded = set(done.stderr.split())
    assert "typer" in loaded
    assert loaded.isdisjoint(HEAVY)


def test_help_names_every_command(cli: Cli) -> None:
    outcome = cli("--help")
    assert outcome.code == 0
    assert outcome.err == ""
    for command in COMMANDS:
        assert f"\n  {command} " in outcome.out
    assert "..." not in outcome.out.replace("[ARGS]...", "")


def test_help_is_plain(cli: Cli) -> None:
    assert cli("bias", "--help").out.isascii()


def test_version(cli: Cli) -> None:
    outcome = cli("--version")
    assert (outcome.code, outcome.out, outcome.err) == (0, f"brace-diag {__version__}\n", "")


def test_no_command_shows_the_help_and_fails(cli: Cli) -> None:
    outcome = cli()
    assert outcome.code == 2
    assert outcome.out == ""
    assert "Commands:" in outcome.err


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (("bais", "x"), ("No such command 'bais'", "see: brace-diag --help")),
        (("bias",), ("Missing argument 'SOURCE...'", "see: brace-diag bias --help")),
        (("bias", "x", "--nope"), ("No such option: --nope",)),
        (("bias", "x", "--by", "prompt"), ("'--by'", "'prompt'", "'step', 'staleness'")),
        (("bias", "x", "--axis", "time"), ("'--axis'", "'time'", "'position'")),
        (("bias", "x", "--gamma", "high"), ("'--gamma'", "it is 'high'")),
        (("bias", "x", "--gamma=high"), ("'--gamma'", "it is 'high'")),
        (("bias", "x", "--threads", "0"), ("'--threads'", "it is '0'")),
        (("bias", "x", "--gamma", "1.5"), ("gamma is 1.5", "above 0 and at most 1")),
        (("bias", "x", "--level", "95"), ("level is 95.0", "between 0 and 1")),
        (("bias", "x", "--positions"), ("--positions belongs to --by",)),
        (("bias", "x", "--steps", "a:b"), ("steps is 'a:b'", "for example 60:220:20")),
        (("bias", "x", "--map", "values"), ("--map 'values' is not CANONICAL=THEIRS",)),
        (("bias", "x", "--plot", "gap.jpg"), ("the ending .jpg", ".png, .svg, .pdf")),
        (("bias", "x", "--plot", "nowhere/gap.png"), ("there is no folder nowhere",)),
    ],
)
def test_wrong_usage(cli: Cli, words: tuple[str, ...], parts: tuple[str, ...]) -> None:
    assert_refused(cli(*words), *parts)


@pytest.mark.parametrize("command", ["bias", "inspect"])
def test_a_source_that_is_not_there(cli: Cli, tmp_path: Path, command: str) -> None:
    assert_refused(cli(command, tmp_path / "nowhere.parquet"), "nowhere.parquet")


@pytest.mark.parametrize("command", ["bias", "inspect"])
def test_an_empty_folder(cli: Cli, tmp_path: Path, command: str) -> None:
    assert_refused(cli(command, tmp_path), str(tmp_path))


@pytest.mark.parametrize("command", ["bias", "inspect"])
@pytest.mark.parametrize("name", ["log.txt", "log.parquet", "log.jsonl"])
def test_a_text_file(cli: Cli, tmp_path: Path, name: str, command: str) -> None:
    path = tmp_path / name
    path.write_text("step 1: reward 0.3\nstep 2: reward 0.4\n")
    assert_refused(cli(command, path), name)


def test_a_cut_file(cli: Cli, log_of: LogOf) -> None:
    path = log_of()
    path.write_bytes(path.read_bytes()[:-200])
    assert_refused(cli("bias", path), "run.parquet")


@pytest.mark.parametrize("command", ["bias", "inspect"])
def test_a_file_that_may_not_be_read(
    cli: Cli, log_of: LogOf, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    # Root may read everything, so the refusal is the reader's own word for it.
    def refuse(*_: Any, **__: Any) -> None:
        raise PermissionError(13, "Permission denied", "run.parquet")

    monkeypatch.setattr("brace_diag.readers.open_run", refuse)
    assert_refused(cli(command, log_of()), "run.parquet: Permission denied")


@pytest.mark.parametrize("column", ["mu_logprobs", "pi_logprobs", "reward"])
def test_a_missing_column(cli: Cli, log_of: LogOf, column: str) -> None:
    assert_refused(cli("bias", log_of(**{column: None})), column, "--map")


def test_a_map_to_a_column_that_is_not_there(cli: Cli, log_of: LogOf) -> None:
    assert_refused(cli("bias", log_of(), "--map", "values=vf"), "vf")


def test_a_map_of_a_name_that_is_not_canonical(cli: Cli, log_of: LogOf) -> None:
    assert_refused(cli("bias", log_of(), "--map", "logits=values"), "logits")


def test_steps_that_the_log_does_not_have(cli: Cli, log_of: LogOf) -> None:
    assert_refused(cli("bias", log_of(), "--steps", "500:600"), "500")


def test_a_key_that_the_log_does_not_have(cli: Cli, log_of: LogOf) -> None:
    assert_refused(cli("bias", log_of(step=None), "--by", "step"), "step")


def test_an_error_of_the_package_is_printed_as_it_is(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise SchemaError("row 7: mu 5, pi 4")

    monkeypatch.setattr("brace_diag.readers.open_run", refuse)
    outcome = cli("bias", "x")
    assert (outcome.code, outcome.out, outcome.err) == (2, "", "error: row 7: mu 5, pi 4\n")


def test_a_fault_of_the_program_says_so(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise KeyError("some\nthing")

    monkeypatch.setattr("brace_diag.readers.open_run", fail)
    outcome = cli("bias", "x")
    assert outcome.code == 2
    assert outcome.err.startswith("internal error: KeyError: ")
    assert "run again with --debug and report" in outcome.err
    assert "Traceback" not in outcome.err
    debugged = cli("bias", "x", "--debug")
    assert debugged.code == 2
    assert "Traceback" in debugged.err


def test_an_interruption_is_no_error(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("brace_diag.readers.open_run", interrupt)
    outcome = cli("bias", "x")
    assert (outcome.code, outcome.out, outcome.err) == (130, "", "interrupted\n")


def test_a_warning_is_one_line(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def warn(*_: Any, **__: Any) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.showwarning(RuntimeWarning("odd\nthing"), RuntimeWarning, "x.py", 1)
        raise SchemaError("stop here")

    monkeypatch.setattr("brace_diag.readers.open_run", warn)
    assert cli("bias", "x").err == "warning: odd thing\nerror: stop here\n"


def test_a_process_keeps_its_streams_apart(log_of: LogOf) -> None:
    done = program("bias", log_of(), "--steps", "0:1")
    assert done.returncode == 0
    assert done.stderr == ""
    assert "\033[" not in done.stdout
    assert "by token position" in done.stdout
    failed = program("bias", "nowhere.parquet")
    assert failed.returncode == 2
    assert failed.stdout == ""
    assert "nowhere.parquet" in failed.stderr


def test_a_closed_pipe_is_no_error(log_of: LogOf) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as closed:
        done = subprocess.run(
            [*PROGRAM, "bias", str(log_of())], stdout=closed, stderr=subprocess.PIPE, timeout=120
        )
    assert done.returncode == 0
    assert done.stderr == b""


def test_a_full_disk_is_told(log_of: LogOf) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*PROGRAM, "bias", str(log_of())], stdout=full, stderr=subprocess.PIPE, timeout=120
        )
    assert done.returncode == 2
    assert b"error: " in done.stderr
    assert b"cannot be written to stdout: No space left" in done.stderr
    assert b"Traceback" not in done.stderr


def test_ctrl_c_ends_a_process_quietly() -> None:
    code = (
        "import os, signal, sys, brace_diag.readers\n"
        "from brace_diag_cli.main import main\n"
        "def wait(*words, **options):\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    signal.pause()\n"
        "brace_diag.readers.open_run = wait\n"
        "sys.exit(main(['bias', 'x']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")
