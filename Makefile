# Everything runs in .venv, which the first target you call creates.
#   make PYTHON=python3.12 test     chooses the interpreter (after `make clean`, if .venv exists)

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# Tests start hundreds of processes; each would compile the package anew.
unexport PYTHONDONTWRITEBYTECODE

VENV := .venv
BIN := $(VENV)/bin
# An environment holds absolute paths: a copied or moved checkout must build its own,
# or it would run the code of the old place.
PLACE := $(shell pwd | cksum | cut -d' ' -f1)
CREATED := $(VENV)/.created-$(PLACE)
DEV := $(VENV)/.dev-$(PLACE)
BENCH := $(VENV)/.bench-$(PLACE)
DOCS := $(VENV)/.docs-$(PLACE)

# The newest of these that really starts: a version manager's shim may exist and not run.
PYTHON ?= $(shell for name in python3.14 python3.13 python3.12 python3.11 python3; do \
	if $$name -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; \
	then echo $$name; break; fi; done)

UV := $(shell command -v uv 2>/dev/null)
ifdef UV
INSTALL := uv pip install --quiet --python $(BIN)/python
else
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check
endif

WORKERS ?= 3  # processes that share the tests, which wait more than they compute; each has its brokers
SHARED := --dist loadgroup --no-loadscope-reorder  # as tests/conftest.py groups and orders them

test coverage: export QUEUECRAFT_BROKER_ROOM ?= $(wildcard /dev/shm)

CHECKED := $(wildcard src tests benchmarks examples)

.PHONY: help env demo test coverage check bench scaling faults soak docs lock clean .mypy .basedpyright .layers

help: ## list the targets
	@sed -nE 's/^([a-z]+):.*## (.*)/  make \1	\2/p' $(MAKEFILE_LIST) | expand -t 16

env: $(DEV) ## nothing but the environment, .venv, with QueueCraft and its tools

demo: $(DEV) ## watch a small shop: orders, retries, dead letters, a redrive (SERVE=1: until Ctrl-C)
	@$(BIN)/python -m queuecraft demo $(if $(filter-out 0,$(SERVE)),--serve)

test: check ## check, then all tests but the long ones; brokers are installed by root, else skipped
	$(BIN)/python -m tests.brokers install
	$(BIN)/python -m pytest -n $(WORKERS) $(SHARED)

coverage: $(DEV) ## the same tests, and which lines they reach: 90 % at least
	$(BIN)/python -m tests.brokers install
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest -n $(WORKERS) $(SHARED)
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

check: $(DEV) ## lint, formatting, types, layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target .mypy .basedpyright .layers

.mypy .basedpyright: .%:
	$(BIN)/$* $(CHECKED)

.layers:
	$(BIN)/lint-imports

bench: $(BENCH) ## compare our speed with other libraries: docs/benchmarks.md; test the programs of theirs
	$(BIN)/python -m benchmarks
	$(BIN)/python -m pytest tests/benchmarks tests/docs/test_migrating.py

scaling: $(DEV) ## what a message costs as things grow: docs/scaling.md
	$(BIN)/python -m benchmarks.scaling

faults: $(DEV) ## the long tests, then every fault on every broker: docs/reliability.md
	QUEUECRAFT_SOAK=1000 $(BIN)/python -m pytest tests/runtime/test_soak.py --timeout=1200
	$(BIN)/python -m pytest tests -m faults -n $(WORKERS) $(SHARED)
	$(BIN)/python -m tests.faults.matrix

soak: $(DEV) ## half an hour of load and faults on every broker: nothing lost, nothing grows
	$(BIN)/python -m tests.faults.soak

docs: $(DOCS) ## build the documentation into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --site-dir site

lock: ## renew the pins in requirements/ (needs uv)
	@command -v uv >/dev/null || { echo 'make lock needs uv on the PATH.' >&2; exit 1; }
	$(LOCK) pyproject.toml --group dev --output-file requirements/dev.txt
	$(LOCK) --group bench --constraints requirements/dev.txt --output-file requirements/bench.txt
	$(LOCK) --group docs --constraints requirements/dev.txt --output-file requirements/docs.txt

LOCK = uv pip compile --quiet --upgrade --universal --python-version 3.11 --no-header --no-annotate

clean: ## remove the environment and everything built
	rm -rf $(VENV) site dist build .coverage .coverage.* htmlcov \
		.mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

# The three sets share one environment; bench and docs are installed on top of dev.

$(DEV): pyproject.toml requirements/dev.txt | $(CREATED)
	@echo 'Installing QueueCraft and its tools into $(VENV) …'
	@$(INSTALL) -r requirements/dev.txt
	@$(INSTALL) --no-deps --no-build-isolation --editable .
	@touch $@

$(BENCH): requirements/bench.txt $(DEV)
	@echo 'Installing the peers of the benchmarks …'
	@$(INSTALL) -r requirements/bench.txt
	@touch $@

$(DOCS): requirements/docs.txt $(DEV)
	@echo 'Installing the documentation tools …'
	@$(INSTALL) -r requirements/docs.txt
	@touch $@

# Debian and Ubuntu ship Python without ensurepip; it comes with the -venv package.
$(CREATED):
	@python='$(PYTHON)'; \
	if [ -z "$$python" ]; then \
		echo 'QueueCraft needs Python 3.11 or newer, and found none on the PATH.' >&2; \
		echo 'Debian 12+, Ubuntu 24.04+:  sudo apt-get install python3 python3-venv' >&2; \
		echo 'Or name one:                make PYTHON=/path/to/python3.12 …' >&2; \
		exit 1; \
	fi; \
	if ! "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then \
		echo "QueueCraft needs Python 3.11 or newer; PYTHON=$$python is not." >&2; \
		exit 1; \
	fi; \
	if [ -e $(VENV) ] && ! compgen -G '$(VENV)/.created-*' >/dev/null; then \
		echo '$(VENV) exists, and this Makefile did not finish making it. `make clean` removes it.' >&2; \
		exit 1; \
	fi; \
	rm -rf $(VENV); \
	trap '[ -e $@ ] || rm -rf $(VENV)' EXIT; \
	if [ -n '$(UV)' ]; then \
		uv venv --quiet --python "$$python" $(VENV); \
	else \
		if ! "$$python" -c 'import ensurepip, venv' 2>/dev/null; then \
			package="$$("$$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')"; \
			if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
				echo "Installing $$package, which $$python needs to make an environment …"; \
				apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y "$$package" >/dev/null; \
			else \
				echo "$$python cannot make an environment. Install what is missing, then try again:" >&2; \
				echo "    sudo apt-get install $$package" >&2; \
				exit 1; \
			fi; \
		fi; \
		"$$python" -m venv $(VENV); \
	fi; \
	touch $@
