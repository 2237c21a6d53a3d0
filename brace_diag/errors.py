"""The few kinds of error that brace-diag raises on purpose.

Every message says what is wrong, the value that was met, what is allowed and what to do next; the
command line prints it as it is and exits with 2.
"""

from __future__ import annotations


class BraceDiagError(Exception):
    """Base of every error that brace-diag raises on purpose."""


class InputError(BraceDiagError, ValueError):
    """An argument of a public function has a wrong value or shape."""


class SchemaError(BraceDiagError, ValueError):
    """A log lacks a column, or a column breaks the data contract (lengths, types)."""


class ReaderError(BraceDiagError, OSError):
    """A source cannot be found, opened or decoded."""


class MissingExtraError(BraceDiagError, ImportError):
    """An optional dependency is needed; the message names the extra to install."""
