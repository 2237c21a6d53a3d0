"""What the two output streams can show, and how text is put on them."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from dataclasses import dataclass
from typing import TextIO

from brace_diag.errors import InputError

STYLES = {"green": "32", "yellow": "33", "red": "31", "cyan": "36", "dim": "2", "bold": "1"}
NOTE_WIDTH = 100


@dataclass(frozen=True, slots=True)
class Terminal:
    """A stream's abilities.

    Attributes:
        width: columns, or None where nothing limits a line (a file, a pipe).
        colour: whether escape codes may be written.
    """

    width: int | None
    colour: bool

    @classmethod
    def of(cls, stream: TextIO) -> Terminal:
        """Width and colour only on a terminal; NO_COLOR and TERM=dumb switch colour off."""
        if not stream.isatty():
            return cls(None, False)
        plain = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
        return cls(shutil.get_terminal_size().columns, not plain)

    def paint(self, text: str, style: str | None) -> str:
        """Text in a style of `STYLES`, or as it is."""
        if style is None or not self.colour:
            return text
        return f"\033[{STYLES[style]}m{text}\033[0m"

    def paragraph(self, text: str, first: str = "", rest: str = "") -> list[str]:
        """Lines of a text: wrapped on a terminal, one line elsewhere, where grep wants it whole."""
        if self.width is None:
            return [first + text]
        return textwrap.wrap(
            text,
            max(min(self.width, NOTE_WIDTH), 40),
            initial_indent=first,
            subsequent_indent=rest,
            break_long_words=False,
            break_on_hyphens=False,
        ) or [first]


def emit(text: str) -> None:
    """Write a result to stdout; a reader that closed the pipe (`| head`) has had enough."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        # Python flushes stdout once more at exit and would complain there.
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    except OSError as error:
        raise InputError(f"the result cannot be written to stdout: {error.strerror}") from error


def say(text: str, *, quiet: bool = False) -> None:
    """Write a line to stderr, unless quiet."""
    if not quiet:
        print(text, file=sys.stderr, flush=True)
