"""The list of packages; everything else is in pyproject.toml.

The folder ``cli/`` is shipped as the module ``brace_diag_cli``. Setuptools can rename a folder, but
not while it discovers packages by itself, so the list is made here.
"""

from setuptools import find_packages, setup

setup(
    packages=[
        *find_packages(include=["brace_diag", "brace_diag.*"]),
        "brace_diag_cli",
        *(f"brace_diag_cli.{name}" for name in find_packages("cli")),
    ],
    package_dir={"brace_diag_cli": "cli"},
)
