# blisgemm: `make help` lists the targets. All of them work in $(VENV), which is made on first use.
# Another Python: make PYTHON=python3.13 VENV=.venv313 test

PYTHON ?= python3
VENV ?= .venv

RUN := $(VENV)/bin/python
PIP := $(RUN) -m pip --disable-pip-version-check --quiet

# What each purpose installs; pyproject.toml says what that is.
INSTALL_core := --editable .
INSTALL_demo := --editable '.[demo]'
INSTALL_test := --editable . --group test
INSTALL_lint := --editable . --group lint
INSTALL_bench := --editable '.[bench]'
INSTALL_notebooks := --editable . --group notebooks
INSTALL_package := --group package

.DEFAULT_GOAL := help
.NOTPARALLEL: # one pip at a time in one environment
.PHONY: help demo test test-cuda lint types bench ladder notebooks test-emulated wheel clean distclean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(firstword $(MAKEFILE_LIST)) | expand -t 16

demo: $(VENV)/.installed-demo ## what the library does, in a minute
	$(RUN) -m blisgemm demo

test: $(VENV)/.installed-test ## all tests but the emulated ones
	$(RUN) -m pytest $(PYTEST_ARGS)

test-cuda: $(VENV)/.installed-test ## the tests that need a GPU; torch holds their arrays
	$(RUN) -c 'import torch' 2>/dev/null || $(PIP) install torch
	$(RUN) -m pytest tests/cuda $(PYTEST_ARGS)

lint: $(VENV)/.installed-lint ## ruff: rules and format
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .

types: $(VENV)/.installed-lint ## mypy: strict on the pure layers
	$(RUN) -m mypy

bench: $(VENV)/.installed-bench ## against NumPy, MKL and others; results in bench/out (a few minutes)
	mkdir -p bench/out
	$(RUN) -m blisgemm bench --shapes square,skinny,small,matvec --seconds 0.5 \
		--json bench/out/bench.json --csv bench/out/bench.csv --plot bench/out/bench.png $(BENCH_ARGS)

ladder: $(VENV)/.installed-bench ## nine rungs from three plain loops to the library, timed into README.md and docs/ladder.svg
	$(RUN) -m blisgemm ladder --write-readme --plot docs/ladder.svg $(LADDER_ARGS)

notebooks: $(VENV)/.installed-notebooks ## the files of bench/notebooks as notebooks with their results, in bench/out
	$(RUN) bench/run_notebooks.py $(NOTEBOOKS)

test-emulated: $(VENV)/.installed-core ## the checks on emulated processors (AVX2, SSE2, NEON)
	PYTHON=$(abspath $(RUN)) tests/emulated/run.sh $(CPUS)

wheel: $(VENV)/.installed-package ## sdist and wheel in dist/
	rm -rf dist
	$(RUN) -m build

clean: ## remove what the targets made, not the environment
	rm -rf build dist bench/out .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find blisgemm tests bench -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean ## remove also the environment and the emulated systems
	rm -rf $(VENV) .emulated

# pip installs dependency groups since 25.1.
$(VENV)/.installed-%: pyproject.toml | $(VENV)/bin/python
	@echo "installing for $* into $(VENV)"
	@$(PIP) install 'pip>=25.1'
	@$(PIP) install $(INSTALL_$*)
	@touch $@

# Debian and Ubuntu ship venv without ensurepip unless python3-venv is installed.
$(VENV)/bin/python:
	@command -v $(PYTHON) >/dev/null || { \
		echo "blisgemm needs Python 3.10 or newer, and there is no $(PYTHON). On Debian or Ubuntu:"; \
		echo "    apt-get install python3 python3-venv"; exit 1; } >&2
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { \
		echo "blisgemm needs Python 3.10 or newer; $(PYTHON) is $$($(PYTHON) --version)."; \
		echo "Name another one: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; } >&2
	@if $(PYTHON) -c 'import ensurepip, venv' 2>/dev/null; then $(PYTHON) -m venv $(VENV); \
	elif $(PYTHON) -m virtualenv --version >/dev/null 2>&1; then $(PYTHON) -m virtualenv --quiet $(VENV); \
	elif command -v virtualenv >/dev/null; then virtualenv --quiet --python $(PYTHON) $(VENV); \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && [ "$(PYTHON)" = python3 ]; then \
		echo "installing python3-venv, which this Debian lacks"; \
		apt-get update -q >/dev/null && apt-get install -y -q python3-venv >/dev/null && $(PYTHON) -m venv $(VENV); \
	else \
		echo "$(PYTHON) cannot make a virtual environment: its ensurepip is missing. On Debian or Ubuntu:"; \
		echo "    apt-get install $$($(PYTHON) -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')"; \
		echo "(or python3-venv, or virtualenv), then run make again."; exit 1; \
	fi >&2
