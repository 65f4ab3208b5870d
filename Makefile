# Needs make and Python 3.11 or later with its venv module. Everything else is installed into .venv. Another Python:
#   make test PYTHON=python3.13
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Install llama.cpp only as a wheel: building it from source takes tens of minutes.
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --only-binary xllamacpp
# Clients that are not in .venv, as they need other versions of its libraries, or Node.js.
CLIENTS := build/clients
NEWEST := build/clients-newest
# Codex's command line and Claude Code, for tests/clients/test_codex.py and test_ten_turns.py.
CODEX := build/codex
CLAUDE := build/claude
NPM_CLIENTS := @ai-sdk/anthropic @ai-sdk/openai @anthropic-ai/sdk ai axe-core openai zod
# More clients, for the table of tests/clients/matrix.
NPM_MORE := @ai-sdk/google @ai-sdk/openai-compatible @google/genai @langchain/anthropic @langchain/core @langchain/google-genai \
  @langchain/ollama @langchain/openai @openrouter/ai-sdk-provider @openrouter/sdk groq-sdk ollama
MATRIX := build/clients-matrix
PYTEST := $(BIN)/pytest -q -n auto --maxprocesses 8
# Tests start hundreds of processes. Each would compile every module that it imports.
unexport PYTHONDONTWRITEBYTECODE
# A new seed each time for `make fuzz`.
SEED := $(shell date +%s)
# Tests with processes wait more than they work.
SEVERAL := -n 4 --dist loadgroup --durations=25

.DELETE_ON_ERROR:
.PHONY: demo test test-all examples system fuzz lint style types all-clients clients clients-newest bench docs shots dist clean

# Benchmark simulated providers, and write a report. Needs no key, and no network once installed.
demo: $(VENV)/.runs
	@$(BIN)/splitsecond demo
	@echo "Next, a gateway:  . $(BIN)/activate && splitsecond init --yes && splitsecond serve"

# Run the fast tests: they start no process, wait in virtual time, and are the same every time. In a fresh clone, a tenth of
# their time would be rewriting of asserts. So only tests that fail are rewritten, and run again to show what they compared.
test: $(VENV)/.develops
	@$(PYTEST) -m 'not system' --assert=plain || { $(BIN)/pytest -q -m 'not system' --last-failed --last-failed-no-failures=none; false; }

# Run all tests: after the fast ones those with more generated examples, then the others.
test-all: test examples system

examples: $(VENV)/.develops
	@HYPOTHESIS_PROFILE=all $(PYTEST) -m 'hypothesis and not system'

# Run the tests with processes, browsers, PostgreSQL, the real engine and other clients, and those that take long.
system: $(VENV)/.develops all-clients
	@$(PYTEST) $(SEVERAL) -m system

# Search for faults: the fast tests that generate examples, with new ones, eight times as many. To repeat a search, give
# its seed: make fuzz SEED=1234
fuzz: $(VENV)/.develops
	@echo "make fuzz SEED=$(SEED)"
	@HYPOTHESIS_PROFILE=fuzz $(PYTEST) -m 'hypothesis and not system' --hypothesis-seed=$(SEED)

# Install the clients that tests/clients runs, and axe-core for tests of pages, at their pinned versions. Needs Node.js 18 or later, with npm.
clients: $(CLIENTS)/.installed

all-clients: $(CLIENTS)/.installed $(CODEX)/.installed $(CLAUDE)/.installed

# The same tests with the newest version of every client, the tests of the vendors' own libraries, and the table of every client,
# feature and target in docs/reference/client-matrix.md. Needs Node.js 22.
clients-newest: $(BIN)/python
	@$(PYTHON) -m venv $(NEWEST)
	@$(NEWEST)/bin/python -m pip install --quiet --upgrade -r tests/clients/requirements.in
	@npm install --prefix $(NEWEST) --no-audit --no-fund --loglevel error $(NPM_CLIENTS:%=%@latest)
	@$(PYTHON) -m venv $(NEWEST)/vendors
	@$(NEWEST)/vendors/bin/python -m pip install --quiet --upgrade --upgrade-strategy eager -e '.[dev]'
	@SPLITSECOND_CLIENTS=$(CURDIR)/$(NEWEST) $(NEWEST)/vendors/bin/pytest -q tests/clients/test_clients.py \
	  tests/gateway/api_formats tests/gateway/test_openai_library.py tests/gateway/test_anthropic_library.py
	@$(PYTHON) -m venv $(MATRIX)
	@$(MATRIX)/bin/python -m pip install --quiet --upgrade -r tests/clients/matrix/requirements.in
	@$(PYTHON) -m venv $(MATRIX)/apart
	@$(MATRIX)/apart/bin/python -m pip install --quiet --upgrade -r tests/clients/matrix/requirements-apart.in
	@npm install --prefix $(MATRIX) --no-audit --no-fund --loglevel error $(NPM_CLIENTS:%=%@latest) $(NPM_MORE:%=%@latest)
	@$(BIN)/python -m tests.clients.matrix

# Check the style, the import contract and the types. Lizard counts and, or, conditional expressions and comprehensions as
# branches, too; ruff counts statements only.
lint: style types

style: $(VENV)/.develops
	@$(BIN)/ruff check --quiet
	@$(BIN)/ruff format --check --quiet
	@$(BIN)/lizard -l python -C 15 -w src/splitsecond
	@$(BIN)/lint-imports --no-logo

types: $(VENV)/.develops
	@$(BIN)/mypy --no-error-summary

# Measure the figures of docs/performance.md on this machine.
bench: $(VENV)/.develops
	@$(BIN)/python -m benchmarks.instrument

# Build the documents into build/site, and fail if a link leads nowhere. Open build/site/index.html.
docs: $(VENV)/.documents
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "build/site/index.html"

# Make pictures of every page and screen in build/shots, and those of README and documents again. Needs Chromium.
shots: $(VENV)/.documents
	@$(BIN)/python -m benchmarks.shots

# Build the wheel and the source distribution into dist, and check that the package index can show the README.
dist: $(VENV)/.documents
	@rm -rf dist
	@$(BIN)/python -m build --outdir dist . >/dev/null
	@$(BIN)/twine check --strict dist/*

clean:
	@rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Stamp files in .venv record the installation. It runs again when pyproject.toml or constraints.txt changes.
$(VENV)/.runs: $(BIN)/python pyproject.toml constraints.txt
	@echo "Installing splitsecond into $(VENV) ..."
	@$(INSTALL) -e '.[engine]' || \
	  { echo "No llama.cpp wheel for this platform. Continuing without the real engine."; $(INSTALL) -e .; }
	@touch $@

$(VENV)/.develops: $(BIN)/python pyproject.toml constraints.txt
	@echo "Installing splitsecond and its tools into $(VENV) ..."
	@$(INSTALL) -e '.[dev,engine]'
	@touch $(VENV)/.runs $@

$(VENV)/.documents: $(VENV)/.develops
	@$(INSTALL) -e '.[dev,docs,engine]'
	@touch $@

$(CLIENTS)/.installed: tests/clients/requirements.txt tests/clients/package-lock.json
	@command -v npm >/dev/null || { echo "The tests of clients and pages need Node.js 18 or later, with npm."; false; }
	@echo "Installing clients into $(CLIENTS) ..."
	@mkdir -p $(CLIENTS) && cp tests/clients/package.json tests/clients/package-lock.json $(CLIENTS)
	@npm ci --prefix $(CLIENTS) --no-audit --no-fund --loglevel error
	@$(PYTHON) -m venv $(CLIENTS)
	@$(CLIENTS)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-compile \
	  -r tests/clients/requirements.txt
	@touch $@

$(CODEX)/.installed $(CLAUDE)/.installed: build/%/.installed: tests/clients/%/package-lock.json
	@command -v npm >/dev/null || { echo "The tests of clients need Node.js, with npm."; false; }
	@echo "Installing $* into build/$* ..."
	@mkdir -p build/$* && cp tests/clients/$*/package.json tests/clients/$*/package-lock.json build/$*
	@npm ci --prefix build/$* --no-audit --no-fund --loglevel error
	@touch $@

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Splitsecond needs Python 3.11 or later. Use make PYTHON=python3.13."; false; }
	@$(PYTHON) -m venv $(VENV)
