# One verb for each habit. `make` alone lists them.
VENV  := .venv
PREFIX ?= /usr/local
# What compiles the kernels; the program; the program with what tests, lint and packages need.
COMPILER := $(VENV)/.compiler
PROGRAM := $(VENV)/.program
STAMP := $(VENV)/.installed
# Newest first; the newest Python that numba has wheels for leads the list (0.68: 3.15).
PYTHONS ?= python3.15 python3.14 python3.13 python3.12 python3.11 python3 python

# Processes of `make test`: four for two cores, as many tests wait. Each runs one file after the other.
WORKERS ?= 4

PIP := $(VENV)/bin/python -m pip install --disable-pip-version-check --no-color --progress-bar off
COMMA := ,
# Of pip's output: at a terminal the library that it is at, and its errors, which go past the pipe.
SHOW_STEP := while read -r verb what rest; do \
    case "$$verb" in Collecting|Downloading|Building|Preparing|Installing) \
      [ ! -t 1 ] || printf '\r\033[K  %s %s' "$$verb" "$$what";; esac; \
  done; [ ! -t 1 ] || printf '\r\033[K'
install_into_venv = { $(PIP) $(1) || touch $(VENV)/.failed; } | { $(SHOW_STEP); }; \
  if [ -e $(VENV)/.failed ]; then rm $(VENV)/.failed; false; fi
WARM_UP := $(VENV)/bin/python -c "from schedd.service.warmup import warm_up; warm_up()"
# Bytecode is kept although the environment may forbid it (images of containers do): without it each process of
# a test run compiles the tests and the libraries again.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help setup install demo lint check test research soak bench docs locks packages clean

help: ## list the verbs
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 14

setup: $(STAMP) ## make the virtual environment .venv (again only when pyproject.toml changed)

install: $(PROGRAM) ## link schedd and the users' commands below PREFIX (/usr/local), never over a file
	$(VENV)/bin/schedd install --prefix $(PREFIX)

demo: $(PROGRAM) ## daemon, adapter and an emulated pbs_server (SERVER=torque or openpbs); Ctrl-C ends it
	$(VENV)/bin/schedd demo --open $(if $(SERVER),--server $(SERVER))

lint: $(STAMP) ## ruff, mypy strict, import contracts
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports

# Tests that start no processes and no database.
IN_PROCESS := $(addprefix tests/,alternatives api client dialect engine optimize plan policy predict server_adapter wire)

check: $(STAMP) ## for daily work: lint, then the tests within one process
	@$(MAKE) lint & linted=$$!; \
	$(WARM_UP) && \
	$(VENV)/bin/pytest --workers 2 $(IN_PROCESS) --ignore tests/server_adapter/bridge; \
	tested=$$?; wait $$linted && exit $$tested

# On two cores each step runs beside another: the kernels are compiled while the other libraries are installed;
# lint runs beside the collection and the first tests.
# A compilation may fail, as its libraries may be replaced meanwhile: the tests compile what is missing.
# Most of the libraries' bytecode is never used: what is imported is compiled then.
test: PIP_OPTIONS := --no-compile
test: $(COMPILER) ## lint, all tests but the long ones
	@$(WARM_UP) 2>$(VENV)/.warm-up.log & compiled=$$!; \
	{ export PYTHONPATH=.; $(VENV)/bin/python tests/service/promtool.py; $(VENV)/bin/python tests/dashboard/browser.py; } & \
	browser=$$!; \
	$(MAKE) --no-print-directory $(STAMP) || { wait; exit 1; }; \
	$(MAKE) --no-print-directory lint & linted=$$!; \
	wait $$compiled; wait $$browser || exit 1; \
	$(VENV)/bin/pytest --workers $(WORKERS) --ignore tests/research; \
	tested=$$?; wait $$linted && exit $$tested

research: $(STAMP) ## list the stale pages of results; the tests of research/
	$(VENV)/bin/python -m research stale
	$(VENV)/bin/pytest -m "research and not soak" --workers 3 tests/research

soak: $(STAMP) ## the long runs, all tests with new examples, the kernels with their indices checked
	@# All tests with all their examples, seeds and checks, of which `make test` takes a part.
	HYPOTHESIS_PROFILE=explore $(VENV)/bin/pytest --workers $(WORKERS) --ignore tests/research
	@# Kernels of their own: those in the cache do not look whether an index is within its array.
	NUMBA_BOUNDSCHECK=1 SCHEDD_KERNEL_CACHE=$(CURDIR)/build/checked $(VENV)/bin/pytest tests/plan tests/optimize
	$(VENV)/bin/python -m research removal
	@# The daemon is killed 10,000 times on each database: this takes a night.
	SCHEDD_CRASH_ROUNDS=$${SCHEDD_CRASH_ROUNDS:-100} $(VENV)/bin/pytest -m soak --timeout 0

bench: $(STAMP) ## measure the planner and the daemon, compare with the last version; build/*.json has the figures
	mkdir -p build
	$(VENV)/bin/python -m research bench engine --jobs 5000 --json build/engine-5000.json
	$(VENV)/bin/python -m research bench engine --jobs 25000 --json build/engine-25000.json
	$(VENV)/bin/python -m research bench plan --nodes 219 --jobs 5000 --json build/bench-5000.json
	$(VENV)/bin/python -m research bench plan --nodes 219 --jobs 25000 --json build/bench-25000.json
	$(VENV)/bin/python -m research bench plan --nodes 10000 --jobs 100000 --profile large --json build/bench-large.json
	for jobs in 1000 10000 25000; do \
	  $(VENV)/bin/python -m research bench events --jobs $$jobs --json build/events-$$jobs.json && \
	  $(VENV)/bin/python -m tests.store.postgres $(VENV)/bin/python -m research bench events --jobs $$jobs \
	    --json build/events-$$jobs-postgresql.json --database || exit; \
	done
	$(VENV)/bin/python -m research bench http --json build/http.json
	$(VENV)/bin/python -m research bench compare build/engine-*.json build/bench-*.json build/events-*.json

docs: $(STAMP) ## write the reference of commands, check the links between the documents
	$(VENV)/bin/python docs/scripts/build.py

LOCK := uv pip compile --universal --python-version 3.11 --generate-hashes --no-header

locks: ## write the lock files (needs uv and an index); of requirements-compile.lock keep only numba and llvmlite
	$(LOCK) pyproject.toml --extra oidc --extra postgresql -o requirements.lock
	$(LOCK) pyproject.toml $(foreach extra,charts compile postgresql oidc pictures experiments pareto,--extra $(extra)) \
	  -c requirements.lock -o requirements-extras.lock
	$(LOCK) pyproject.toml --extra compile -c requirements.lock -o requirements-compile.lock
	printf 'bokeh==3.9.2\nhatchling\n' | $(LOCK) - -c requirements.lock -o requirements-build.lock

packages: $(STAMP) ## wheel, sdist, deb and rpm of daemon and adapter, and what is in them, in dist/
	$(VENV)/bin/python release/build.py $(if $(PREFIX_PYTHON),--python $(PREFIX_PYTHON)) $(if $(WHEELS),--wheels $(WHEELS))

clean: ## remove what the other verbs made
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# A candidate counts only when it runs (a shim on PATH may not) and can make an environment.
$(COMPILER): pyproject.toml
	@if ! $(VENV)/bin/python -c '' 2>/dev/null; then \
	  py= ; bare= ; \
	  for name in $(PYTHONS); do \
	    old=$$IFS; IFS=:; for dir in $$PATH; do IFS=$$old; \
	      [ -z "$$py" ] && [ -x "$$dir/$$name" ] || continue; \
	      "$$dir/$$name" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 15))' 2>/dev/null || continue; \
	      if "$$dir/$$name" -c 'import venv, ensurepip' 2>/dev/null; then py="$$dir/$$name"; else bare="$$dir/$$name"; fi; \
	    done; IFS=$$old; \
	  done; \
	  if [ -z "$$py" ]; then \
	    [ -z "$$bare" ] || echo "$$bare is new enough but has no venv or ensurepip."; \
	    echo "No Python 3.11 to 3.15 with venv on PATH. Install one:"; \
	    echo "  Debian, Ubuntu:  apt install python3-venv"; \
	    echo "  Fedora, RHEL:    dnf install python3.12"; \
	    echo "  openSUSE:        zypper install python312"; \
	    exit 1; \
	  fi >&2; \
	  echo "Making $(VENV) with $$py"; \
	  "$$py" -m venv --clear $(VENV); \
	fi
	@echo "Installing schedd and its libraries into $(VENV) (450 MB)"
	@# What links the checkout is installed first: an environment for the build would get Bokeh and NumPy once more.
	@$(call install_into_venv,$(PIP_OPTIONS) numba pydantic python-dateutil structlog 'hatchling>=1.27' editables)
	@touch $@

# The kernels are compiled meanwhile: see `test`.
$(PROGRAM): $(COMPILER)
	@echo "Compiling the kernels, and installing the other libraries meanwhile"
	@$(WARM_UP) 2>$(VENV)/.warm-up.log & compiled=$$!; \
	$(call install_into_venv,$(PIP_OPTIONS) --no-build-isolation --editable '.[charts$(COMMA)compile$(COMMA)postgresql]'); \
	installed=$$?; wait $$compiled; exit $$installed
	@touch $@

$(STAMP): $(COMPILER)
	@echo "Installing what tests, lint and packages need into $(VENV) (1 GB more)"
	@$(call install_into_venv,--no-compile --no-build-isolation --editable '.[dev]')
	@touch $(PROGRAM) $@
