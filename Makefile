# `make hello` runs the main job, `make check` passes the tests; both set up what they need.
PYTHON ?= python3
BIN := .venv/bin

TIERS := unit session process compat stress

.PHONY: hello check lint types test $(TIERS) shuffled compat-newest drift parity bench docs site house dist clean

hello: .venv/ready
	@$(BIN)/parley --print --model offline "say Hello from Parley: no key, no network."

check: lint types test

lint: .venv/ready-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/ready-dev
	$(BIN)/mypy

test: .venv/ready-dev
	$(BIN)/python -m pytest -n auto --dist worksteal

# One tier of the tests; `make unit` takes less than a minute.
$(TIERS): .venv/ready-dev
	$(BIN)/python -m pytest -n auto --dist worksteal tests/$@

# The unit and session tiers in random order. To repeat an order: make shuffled SEED=7
SEED ?= $(shell date +%s)
shuffled: .venv/ready-dev
	$(BIN)/python -m pytest -n auto --dist worksteal --random-order --random-order-seed=$(SEED) tests/unit tests/session

# The official clients at their newest versions instead of the pinned ones (tests/compat/install.py).
compat-newest: .venv/ready-dev
	PARLEY_REQUIRE_COMPAT=1 PARLEY_NEWEST_CLIENTS=1 $(BIN)/python -m pytest tests/compat

# docs/parity.md, from the rows in scripts/parity/rows and the pinned official packages.
parity: .venv/ready
	$(BIN)/python scripts/drift.py

# What the newest official releases declare that has no row yet. Not part of `make check`.
drift: .venv/ready
	$(BIN)/python scripts/drift.py --newest --check

# The wheel and the source distribution, and proof that the wheel works in a clean environment.
dist: .venv/ready
	rm -rf dist
	$(BIN)/pip install --quiet --disable-pip-version-check build
	$(BIN)/python -m build --outdir dist
	rm -rf build/try && $(PYTHON) -m venv build/try
	build/try/bin/pip install --quiet --disable-pip-version-check dist/*.whl
	cd build && env -i try/bin/parley --print --model offline "say Hello from the wheel."

bench: .venv/ready
	$(BIN)/python bench/engines.py parley=$(BIN)/parley
	$(BIN)/python bench/engines.py --only first,warm,one-shot "offline=$(BIN)/parley --model offline"

docs: .venv/ready
	for script in scripts/gen_*.py; do $(BIN)/python $$script || exit 1; done

# How the source is built: import cycles, folder sizes, long functions, repeated names. A report, not a gate.
house: .venv/ready
	$(BIN)/python scripts/house.py

# The documentation as a web site, in build/site. A broken link is an error.
site: .venv/ready
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

.venv/ready: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Parley needs Python 3.11 or newer; run: make PYTHON=/path/to/python3.11")'
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(BIN)/pip install --quiet --disable-pip-version-check --editable .
	@$(BIN)/python -m compileall -q src
	@touch $@

.venv/ready-dev: .venv/ready
	@$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

clean:
	rm -rf .venv .compat .mypy_cache .ruff_cache .pytest_cache
