# Needs only make and Python 3.11 or later with its venv module; all else goes into .venv. With another Python:
#   make test PYTHON=python3.13
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# llama.cpp comes as a wheel or not at all: building it from source takes tens of minutes.
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --only-binary xllamacpp

.DELETE_ON_ERROR:
.PHONY: demo test lint bench clean

# Simulated providers and a real engine timed, and a report: no key, no network once installed.
demo: $(VENV)/.runs
	@$(BIN)/splitsecond demo

test: lint
	@$(BIN)/pytest -q -n auto --maxprocesses 8

lint: $(VENV)/.develops
	@$(BIN)/ruff check --quiet
	@$(BIN)/ruff format --check --quiet
	@$(BIN)/mypy --no-error-summary
	@$(BIN)/lint-imports --no-logo

# The figures of docs/performance.md, on this machine.
bench: $(VENV)/.develops
	@$(BIN)/python -m benchmarks.instrument

clean:
	@rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Stamps in the environment: what was installed there from the pyproject.toml and constraints.txt of that moment.
$(VENV)/.runs: $(BIN)/python pyproject.toml constraints.txt
	@echo "Installing splitsecond into $(VENV) ..."
	@$(INSTALL) -e '.[engine]' || \
	  { echo "No llama.cpp wheel for this platform: going on without the real engine."; $(INSTALL) -e .; }
	@touch $@

$(VENV)/.develops: $(BIN)/python pyproject.toml constraints.txt
	@echo "Installing splitsecond and its tools into $(VENV) ..."
	@$(INSTALL) -e '.[dev,engine]'
	@touch $(VENV)/.runs $@

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Splitsecond needs Python 3.11 or later; name one: make PYTHON=python3.13"; false; }
	@$(PYTHON) -m venv $(VENV)
