# The commands of the project. `make test` is what continuous integration runs (.ci/run).

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV   := .venv
PY     := $(VENV)/bin/python
STAMP  := $(VENV)/.installed
# What exists of the source roots and of the code around them.
CODE   := $(wildcard f1common spanstore f1server master slavepool txservices client/f1 deploy/f1deploy bench scripts tests)

.PHONY: install demo test test-unit test-long lint static format types contracts tidy proto lock bench clean

install: $(STAMP)

# Up to date when the stamp is newer than the locks; the wheels' hashes are checked, the project itself is editable.
$(STAMP): requirements-dev.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "f1db needs Python 3.11 or newer; set PYTHON=..." >&2; exit 1; }
	@test -x $(PY) || $(PYTHON) -m venv $(VENV)
	$(PY) -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r requirements-dev.lock
	$(PY) -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $(STAMP)

# Arguments: make demo ARGS="--clicks 20000 --no-prompt".
demo: install
	$(PY) scripts/demo.py $(ARGS)

# Arguments: make test ARGS="-x -q".
test: install static
	$(PY) scripts/test.py $(ARGS)

# What is quick enough to be run after every change. Arguments as above.
test-unit: install
	$(PY) scripts/test.py --only unit $(ARGS)

# Resumable: finished units of this revision are not run again. Arguments: make test-long ARGS="--list".
test-long: install
	$(PY) scripts/test_long.py $(ARGS)

lint: install static
	$(PY) -m pytest -q tests/unit/test_proto_drift.py

# One target for each tool, so that `make -k static` shows what all of them say.
static: format types contracts tidy

format: install
	$(VENV)/bin/ruff check --quiet $(CODE)
	$(VENV)/bin/ruff format --check --quiet $(CODE)

types: install
	$(VENV)/bin/mypy --strict $(CODE)

contracts: install
	$(VENV)/bin/lint-imports --no-logo

tidy: install
	$(PY) scripts/tidy.py

proto: install
	$(PY) scripts/proto.py

lock:
	scripts/lock.sh

# A quarter of an hour on an otherwise idle machine. etcd and PostgreSQL are measured beside us if they are installed.
bench: install
	$(VENV)/bin/f1 bench kv
	$(VENV)/bin/f1 bench database --svg bench/results/database.svg

clean:
	rm -rf build dist .mypy_cache .ruff_cache .import_linter_cache .pytest_cache .hypothesis
	find $(CODE) -name __pycache__ -type d -prune -exec rm -rf {} +
