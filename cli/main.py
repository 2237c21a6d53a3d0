"""The commands and their options, and what becomes of their errors.

Only the standard library and typer are loaded here: whatever computes is imported inside the
command that needs it, so that `--help` and shell completion answer at once.
"""

from __future__ import annotations

import sys
import traceback
import warnings
from collections.abc import Sequence
from typing import Annotated

import typer

from brace_diag.errors import BraceDiagError

from .commands import add_commands
from .terminal import say

EXIT_ERROR = 2
EXIT_INTERRUPTED = 130
# typer brings its own click, or uses the installed one: both hang this class above BadParameter.
UsageError: type[Exception] = typer.BadParameter.__mro__[1]

app = typer.Typer(
    name="brace-diag",
    help="Measure how stale a critic is, from the log of an asynchronous RL run.",
    epilog="Start with: brace-diag demo",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from brace_diag._version import __version__

        typer.echo(f"brace-diag {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help(), err=True)
        raise typer.Exit(EXIT_ERROR)


add_commands(app)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    0: a result was printed; 1, 3: a verdict that `audit --fail-on` was to fail on; 2: wrong usage
    or a log that cannot be read; 130: interrupted.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in words
    for stream in (sys.stdout, sys.stderr):
        # A terminal that lacks a letter shows a question mark; it does not cost the result.
        getattr(stream, "reconfigure", lambda **_: None)(errors="replace")
    with warnings.catch_warnings():
        if not debug:
            warnings.showwarning = _show_warning
        try:
            return _run(words)
        except Exception as error:
            if debug:
                traceback.print_exc()
            else:
                say(_explain(error, words))
            return EXIT_ERROR


def _run(words: list[str]) -> int:
    command = typer.main.get_command(app)
    try:
        code = command.main(args=words, prog_name="brace-diag", standalone_mode=False)
    except (KeyboardInterrupt, typer.Abort):
        code = EXIT_INTERRUPTED
    if code == EXIT_INTERRUPTED:
        say("interrupted")
    return code if isinstance(code, int) else 0


def _explain(error: Exception, words: Sequence[str]) -> str:
    """An error as the one or two lines that its reader can act on."""
    if isinstance(error, BraceDiagError):
        return f"error: {error}"
    if isinstance(error, UsageError):
        return _explain_usage(error, words)
    if isinstance(error, MemoryError):
        return "error: not enough memory; give the program more, or read fewer steps with --steps"
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename else ""
        return f"error: {where}{error.strerror}"
    kind = type(error).__name__
    return (
        f"internal error: {kind}: {' '.join(str(error).split())}\n"
        "this is a fault of brace-diag: run again with --debug and report what it prints"
    )


def _explain_usage(error: Exception, words: Sequence[str]) -> str:
    message = getattr(error, "format_message", error.__str__)().replace("Value error, ", "")
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "brace-diag"
    text = " ".join(message.split()).rstrip(".")
    got = _value_given(getattr(getattr(error, "param", None), "opts", ()), words)
    if got is not None and repr(got) not in text:
        text += f"; it is {got!r}"
    return f"error: {text}\nsee: {command} --help"


def _value_given(names: Sequence[str], words: Sequence[str]) -> str | None:
    """What follows an option on the command line; the messages of typer leave it out."""
    for name in names:
        for word, following in zip(words, [*words[1:], None], strict=True):
            if word == name:
                return following
            if name.startswith("--") and word.startswith(f"{name}="):
                return word.removeprefix(f"{name}=")
    return None


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    say(f"warning: {' '.join(str(message).split())}")
