# Everything that developers and CI do with a checkout. Needs make, git and Python >= 3.11; the rest goes into .venv.

PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
COMPILE := uv pip compile --universal --generate-hashes --no-emit-index-url --no-emit-find-links --no-header --quiet

# Parallel test processes: two more than cores, because many tests wait for a process or a socket; at most 8.
WORKERS ?= $(shell n=$$(( $$(nproc) + 2 )); [ $$n -gt 8 ] && n=8; echo $$n)
PYTEST_ARGS ?=
BENCH_ARGS ?=
FUZZ_ARGS ?=
INCIDENTS_ARGS ?= --write

.DEFAULT_GOAL := help
.PHONY: help venv fmt check test soak incidents fuzz bench demo demo-down demo-edge demo-edge-down docs lock clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

venv: $(STAMP) ## create or update .venv (the other targets do it by themselves)

$(STAMP): requirements-dev.lock pyproject.toml
	@command -v $(PYTHON) >/dev/null || { echo "make: $(PYTHON) was not found; install Python 3.11 or newer, or name one: make PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "make: $$($(PYTHON) --version) is too old; Python 3.11 or newer is needed: make PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { echo "make: $(PYTHON) cannot make virtual environments; on Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }
	@$(BIN)/python -c 'import pip, sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || $(PYTHON) -m venv --clear .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.lock
	@$(BIN)/python -m pip uninstall -qq --yes reconciler # of an environment from before the distribution was renamed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

fmt: $(STAMP) ## format the code and sort imports
	$(BIN)/ruff check --select I --fix --quiet .
	$(BIN)/ruff format .

check: $(STAMP) ## format, lint, types, import contracts
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: $(STAMP) ## the whole suite (REQUIRE_SERVERS=1: a missing server is a failure; PYTEST_ARGS="-k name")
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(PYTEST_ARGS)

soak: $(STAMP) ## an idle minute, random real faults against a real daemon for ten minutes (SOAK_SECONDS=600; as root, for the small disk), 200 histories, five real incidents
	IDLE_SECONDS=60 SOAK_SECONDS=$${SOAK_SECONDS:-600} $(BIN)/python -m pytest -n 0 -o timeout=0 tests/e2e/test_idle.py tests/e2e/test_faults.py -k "random or idle" $(PYTEST_ARGS)
	HISTORIES=$${HISTORIES:-200} $(BIN)/python -m pytest -n $(WORKERS) -o timeout=0 tests/laws/test_histories.py $(PYTEST_ARGS)
	$(BIN)/python -m tests.incidents.real

incidents: $(STAMP) ## the same incidents under this program and under other tools, judged; writes the tables of docs/healing.md (INCIDENTS_ARGS="2 8a --sizes 3")
	$(BIN)/python -m tests.incidents $(INCIDENTS_ARGS)

fuzz: $(STAMP) ## search every surface for inputs that break it (FUZZ_SECONDS=300; FUZZ_ARGS="--write")
	$(BIN)/python -m tests.fuzz --seconds $${FUZZ_SECONDS:-300} $(FUZZ_ARGS)

bench: $(STAMP) ## measure, beside the peers that are installed (BENCH_ARGS="--write probes")
	$(BIN)/python -m bench $(BENCH_ARGS)

demo: $(STAMP) ## the main job on this machine, without Docker
	$(BIN)/python examples/demo.py up

demo-down: $(STAMP) ## stop and remove what the demo started
	$(BIN)/python examples/demo.py down

demo-edge: $(STAMP) ## the main job on Docker, HAProxy and BIND; starts on loopback what is missing (as root)
	$(BIN)/python examples/edge/demo.py up

demo-edge-down: $(STAMP) ## stop and remove what demo-edge made and started
	$(BIN)/python examples/edge/demo.py down

docs: $(STAMP) ## generate the reference pages from the models
	$(BIN)/python -m manifests.docs.reference
	$(BIN)/python -m providers.reference
	$(BIN)/python -m reconciler.metrics.reference

lock: ## resolve pyproject.toml into requirements.lock and requirements-dev.lock (LOCK_ARGS="--upgrade")
	@command -v uv >/dev/null || { echo "make: uv was not found; it resolves for all platforms at once: pip install uv" >&2; exit 1; }
	$(COMPILE) $(LOCK_ARGS) pyproject.toml -o requirements.lock
	$(COMPILE) $(LOCK_ARGS) --extra dev pyproject.toml -o requirements-dev.lock

clean: ## remove the environment and all caches
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
