# Every target sets up what it needs: `make test` in a fresh clone just works.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.slaq-installed
LOCK   := requirements/constraints.txt
PIP    := -m pip --disable-pip-version-check install --quiet --quiet
RECENT := import sys; sys.exit(sys.version_info < (3, 11))

MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help
.PHONY: help setup demo test check bench replicate docs lock clean python

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(STAMP) ## Create .venv and install slaq with its tools (PYTHON=python3.12 to choose)

# The build backend comes from the lock too, hence no build isolation.
# A .venv whose Python is missing, broken or too old is made anew.
$(STAMP): pyproject.toml $(LOCK) | python
	@echo "Installing slaq and its tools into $(VENV) (a minute or two the first time)"
	@$(BIN)/python -c '$(RECENT)' 2>/dev/null || $(PYTHON) -m venv --clear $(VENV)
	@$(BIN)/python $(PIP) -c $(LOCK) hatchling editables
	@$(BIN)/python $(PIP) -c $(LOCK) --no-build-isolation -e '.[dev,docs]'
	@touch $@

python:
	@command -v $(PYTHON) >/dev/null && $(PYTHON) -c '' 2>/dev/null || \
	  { echo "There is no working $(PYTHON) here; name a Python 3.11 or newer: make setup PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c '$(RECENT)' || \
	  { echo "slaq needs Python 3.11 or newer, and $(PYTHON) is $$($(PYTHON) -V); name another: make setup PYTHON=python3.12" >&2; exit 1; }

demo: $(STAMP) ## See slaq beat fair sharing on a small workload
	@$(BIN)/slaq demo

test: $(STAMP) ## Run every test (ARGS="-k policy" to choose)
	@$(BIN)/python -m pytest -n 2 --dist loadgroup $(ARGS)

check: $(STAMP) ## All that must pass: format, lint, types, layers, docs, tests, quick replication
	@$(BIN)/ruff format --check
	@$(BIN)/ruff check
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(MAKE) docs
	@$(MAKE) test
	@$(MAKE) replicate QUICK=1

bench: $(STAMP) ## Measure speed and decision quality
	@$(BIN)/python -m benchmarks $(ARGS)

# On all cores, with one thread of linear algebra in each process.
replicate: $(STAMP) ## Rerun the paper's evaluation (QUICK=1: tiny sizes; DATA=DIR: with outside data)
	@OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m replication $(if $(QUICK),--quick) $(if $(DATA),--data "$(DATA)") $(ARGS)

docs: $(STAMP) ## Build the documentation into build/docs; a warning is an error
	@$(BIN)/sphinx-build -W -n --keep-going -q -d build/doctrees docs build/docs
	@echo "Documentation: build/docs/index.html"

# Made with the oldest supported Python, because newer ones accept what it accepts, not the reverse; that
# goes for patch releases too (some packages want 3.11.5), so an early 3.11 is best.
lock: python ## Pin the newest versions of all dependencies (with a Python 3.11, the earlier the better)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' || \
	  { echo "The lock is made with Python 3.11, and $(PYTHON) is $$($(PYTHON) -V): make lock PYTHON=python3.11" >&2; exit 1; }
	@echo "Resolving all dependencies afresh into $(LOCK)"
	@$(PYTHON) -m venv --clear build/lock
	@build/lock/bin/python $(PIP) '.[dev,docs]'
	@{ echo '# Every dependency, pinned; regenerate with `make lock`.'; \
	   build/lock/bin/python -m pip freeze --exclude slaq; } > build/constraints.txt
	@mv build/constraints.txt $(LOCK)
	@rm -rf build/lock

clean: ## Remove what the other targets made, except .venv
	@rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	@find src tests docs -name __pycache__ -type d -prune -exec rm -rf {} +
