# Every target sets up what it needs: `make test` in a fresh clone just works.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
LOCK   := requirements/constraints.txt
# PyTorch, whose builds differ by gigabytes: its version is held here, and `make lock` resolves only what it needs.
HELD   := torch==2.13.0
NEEDED := filelock fsspec networkx sympy
# Options of pip that say where it comes from, such as the index of small builds that PyTorch's makers publish.
TORCH_FROM ?=
# What `make demo` needs, and all that the other targets need besides; the second adds to the first.
BASE   := $(VENV)/.slaq-base
TOOLS  := $(VENV)/.slaq-tools
RECENT := import sys; sys.exit(sys.version_info < (3, 11))

# uv where it is on PATH, pip where it is not. The build backends come from the lock too, hence no build isolation.
UV := $(shell command -v uv 2>/dev/null)
ifdef UV
  MAKE_VENV := rm -rf $(VENV) && uv venv --quiet --python "$(PYTHON)" $(VENV)
  INSTALL   := uv pip install --quiet --python $(BIN)/python -c $(LOCK) --no-build-isolation
  USABLE    := $(RECENT)
else
  MAKE_VENV := "$(PYTHON)" -m venv --clear $(VENV)
  INSTALL   := $(BIN)/python -m pip --disable-pip-version-check install -qq -c $(LOCK) --no-build-isolation --no-compile
  USABLE    := import pip; $(RECENT)
endif
# Through pip also where uv is, which does not take a build for CPUs that a machine holds ready (2.13.0+cpu).
PIP    := $(BIN)/python -m pip --disable-pip-version-check

MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help
.PHONY: help setup demo test test-gpu frameworks check bench replicate docs lock clean python

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(TOOLS) ## Create .venv and install slaq with its tools (PYTHON=python3.12 to choose)

# A .venv whose Python is missing, broken or too old is made anew.
$(BASE): pyproject.toml $(LOCK) | python
	@echo "Installing slaq into $(VENV) (up to a minute the first time)"
	@$(BIN)/python -c '$(USABLE)' 2>/dev/null || $(MAKE_VENV)
	@$(INSTALL) hatchling editables
	@$(INSTALL) -e '.[plot,scipy]'
	@touch $@

# PySpark is published as source only, so setuptools has to be there before it. Compiling at the end, on all
# cores, spares the many short processes of the tests from compiling what they import.
$(TOOLS): $(BASE)
	@echo "Installing the tools, Spark and PyTorch into $(VENV) (a few minutes the first time)"
	@$(INSTALL) hatchling editables 'setuptools>=77'
	@$(PIP) --version >/dev/null 2>&1 || $(BIN)/python -m ensurepip >/dev/null
	@$(PIP) install -qq -c $(LOCK) --no-compile $(TORCH_FROM) '$(HELD)'
	@$(INSTALL) -e '.[dev,docs]'
	@$(BIN)/python -m compileall -qq -j 0 $(VENV)/lib || true
	@touch $@

python:
	@command -v $(PYTHON) >/dev/null && $(PYTHON) -c '' 2>/dev/null || \
	  { echo "There is no working $(PYTHON) here; name a Python 3.11 or newer: make setup PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c '$(RECENT)' || \
	  { echo "slaq needs Python 3.11 or newer, and $(PYTHON) is $$($(PYTHON) -V); name another: make setup PYTHON=python3.12" >&2; exit 1; }

demo: $(BASE) ## See slaq and fair sharing train the same jobs (four minutes; ARGS="--jobs 10")
	@$(BIN)/slaq demo $(ARGS)

# Bytecode is kept, because the tests start hundreds of processes.
test: $(TOOLS) ## Run every test (ARGS="-k policy" to choose, ARGS="-m 'not slow'" for the quick ones)
	@env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m pytest -n 2 --dist loadgroup $(ARGS)

# Nothing is installed: it needs PyTorch for the card, pytest, NumPy and cloudpickle. No plugin of pytest is used, nor its
# settings, which name some.
test-gpu: ## Run the tests of elastic training on a card (PYTHON=that of an environment with PyTorch for it)
	@SLAQ_TEST_DEVICE=cuda PYTHONPATH=src:. "$(PYTHON)" -m pytest -c /dev/null --rootdir . --import-mode=importlib --noconftest \
	  -p no:cacheprovider -q -rs tests/integration/test_elastic.py tests/integration/test_elastic_scale.py \
	  tests/integration/test_elastic_devices.py $(ARGS)

# What is not installed there is skipped, and told.
frameworks: ## Test the callbacks with real frameworks (PYTHON=that of an environment with slaq, pytest and frameworks)
	@"$(PYTHON)" -m pytest -rs tests/integration/test_framework_callbacks.py $(ARGS)

check: $(TOOLS) ## All that must pass: format, lint, types, layers, docs, tests, quick replication
	@$(BIN)/ruff format --check
	@$(BIN)/ruff check
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(MAKE) docs
	@$(MAKE) test
	@$(MAKE) replicate QUICK=1

bench: $(TOOLS) ## Measure speed and decision quality
	@$(BIN)/python -m benchmarks $(ARGS)

# On all cores, with one thread of linear algebra in each process.
replicate: $(TOOLS) ## Rerun the paper's evaluation (QUICK=1: tiny sizes; DATA=DIR: with outside data)
	@OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m replication $(if $(QUICK),--quick) $(if $(DATA),--data "$(DATA)") $(ARGS)

docs: $(TOOLS) ## Build the documentation into build/docs; a warning is an error
	@$(BIN)/sphinx-build -W -n --keep-going -q -d build/doctrees docs build/docs
	@echo "Documentation: build/docs/index.html"

# Made with pip and the oldest supported Python, because newer ones accept what it accepts, not the reverse; that
# goes for patch releases too (some packages want 3.11.5), so an early 3.11 is best.
lock: python ## Pin the newest versions of all dependencies (with a Python 3.11, the earlier the better)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' || \
	  { echo "The lock is made with Python 3.11, and $(PYTHON) is $$($(PYTHON) -V): make lock PYTHON=python3.11" >&2; exit 1; }
	@echo "Resolving all dependencies afresh into $(LOCK)"
	@$(PYTHON) -m venv --clear build/lock
	@build/lock/bin/python -m pip --disable-pip-version-check install -qq --upgrade '.[dev,docs]' setuptools $(NEEDED)
	@{ echo '# Every dependency, pinned; regenerate with `make lock`.'; \
	   { build/lock/bin/python -m pip freeze --all --exclude pip --exclude slaq; echo '$(HELD)'; } | sort -f; \
	 } > build/constraints.txt
	@mv build/constraints.txt $(LOCK)
	@rm -rf build/lock

clean: ## Remove what the other targets made, except .venv
	@rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	@find src tests docs -name __pycache__ -type d -prune -exec rm -rf {} +
