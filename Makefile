# Two commands do all set-up: `make demo` and `make test`. `make` alone lists the rest.
#   PYTHON=python3.12 make test         another interpreter (3.11 or newer)
#   make test PYTEST_ARGS="-k targets"  arguments for pytest

PYTHON ?= python3
PYTEST_ARGS ?=
VENV := .venv
BIN := $(VENV)/bin
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test test-fast test-browser lint format bench validation clean

help:
	@echo "make demo       set up .venv and run brace-diag on the log that the package ships"
	@echo "make test       set up .venv and run every test"
	@echo "make test-fast  the same without the slow ones"
	@echo "make test-browser  open reports in Chromium and look at them"
	@echo "make lint       ruff, mypy and import-linter"
	@echo "make format     let ruff rewrite the code"
	@echo "make bench      run the benchmarks"
	@echo "make validation measure the audit's error rates and write docs/validation.md"
	@echo "make clean      remove .venv and what tools leave behind"

demo: $(VENV)/.ready
	$(BIN)/brace-diag demo

test: $(VENV)/.ready-test
	$(BIN)/python -m pytest -n 2 -m "not browser" $(PYTEST_ARGS)

test-fast: $(VENV)/.ready-test
	$(BIN)/python -m pytest -n 2 -m "not slow and not browser" $(PYTEST_ARGS)

# Needs Chromium: CHROMIUM=/path/to/it where it is not on the PATH.
test-browser: $(VENV)/.ready-browser
	$(BIN)/python -m pytest -m browser $(PYTEST_ARGS)

lint: $(VENV)/.ready-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.ready-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.ready-test
	@set -e; for script in benchmarks/[a-z]*.py; do echo "== $$script"; $(BIN)/python "$$script"; done

validation: $(VENV)/.ready-test
	$(BIN)/python -m validation

clean:
	rm -rf $(VENV) build *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis

# One stamp for each set of packages: plain, with the test extra, and with dev or browser on top.
# An install runs again only where pyproject.toml, setup.py or constraints.txt changed since. The
# build backend is installed first, so that it too is the pinned one.
$(VENV)/.ready: EXTRAS :=
$(VENV)/.ready-test: EXTRAS := [test]
$(VENV)/.ready-dev: EXTRAS := [test,dev]
$(VENV)/.ready-browser: EXTRAS := [test,browser]

$(VENV)/.ready $(VENV)/.ready-test $(VENV)/.ready-dev $(VENV)/.ready-browser: pyproject.toml setup.py constraints.txt
	@echo "Setting up $(VENV) (the first time takes a few minutes)"
	$(PYTHON) -m venv $(VENV)
	$(PIP_INSTALL) setuptools
	$(PIP_INSTALL) --no-build-isolation -e ".$(EXTRAS)"
	@touch $@
