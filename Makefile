# `make hello` runs the main job, `make check` passes the tests; both set up what they need.
PYTHON ?= python3
# An interpreter that is named on the command line is checked even if .venv is ready.
NAMED := $(if $(filter file,$(origin PYTHON)),,| python)
BIN := .venv/bin
PIP := $(BIN)/pip install --quiet --disable-pip-version-check
# The three distributions of this repository, with the versions of other packages that constraints.txt names.
SERVER_AND_KIT := --editable packages/server --editable packages/kit
PINNED := $(PIP) --constraint constraints.txt
MERMAID := 11.17.2

TIERS := unit session process compat stress
# Tests wait for programs most of their time, so three times as many run as there are cores.
WORKERS ?= $(shell expr 3 \* $$(nproc 2>/dev/null || echo 2))
# It decides which variables the tests see, and leaves nothing behind.
RUN := $(BIN)/python -m tests.run
PYTEST := $(RUN) -n $(WORKERS) --dist worksteal

.PHONY: hello check lint types test failed $(TIERS) compiled shuffled drift programs parity bench bench-original plots docs site pictures house mutants dist lock clean python

hello: .venv/ready
	@$(BIN)/parley --print --model offline "say Hello from Parley: no key, no network."

check: lint types test

lint: .venv/ready-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/ready-dev
	$(BIN)/mypy

# `make stress` runs the short forms of the stress programs; CI runs both.
test: compiled
	$(PYTEST) $(filter-out tests/stress,$(addprefix tests/,$(TIERS)))

# The tests that failed in the last `make test`, one at a time.
failed: .venv/ready-dev
	$(RUN) --last-failed --last-failed-no-failures none tests

# One tier of the tests; `make unit` takes less than a minute.
$(TIERS): compiled
	$(PYTEST) tests/$@

# With PYTHONDONTWRITEBYTECODE every engine of a test would compile what was changed since the installation.
compiled: .venv/ready-dev
	@$(BIN)/python -m compileall -q src

# The unit and session tiers in random order, the property tests with other examples than in every other run. To repeat an
# order: make shuffled SEED=7
SEED ?= $(shell date +%s)
shuffled: .venv/ready-dev
	$(PYTEST) --hypothesis-profile=random --random-order --random-order-seed=$(SEED) tests/unit tests/session

# Do the rows in scripts/parity/rows name what the pinned official packages declare?
parity: .venv/ready
	$(BIN)/python scripts/drift.py

# The newest official releases instead of the pinned ones: which declared names have no row, which checks and programs
# of the compat tier fail, as one page. Not part of `make check`, so that a release of theirs never breaks our main branch.
drift: compiled
	$(BIN)/python scripts/drift.py --newest --run -q -n $(WORKERS) --dist worksteal

# Programs from the registries that drive `claude`, import the SDKs or read transcripts, each with a real task, as a table.
# Some of them: make programs NAMES="acpx agno". The newest releases: make programs NEWEST=1
programs: compiled
	$(BIN)/python -m tests.programs $(NAMES) $(if $(NEWEST),--newest)

# A wheel and a source distribution of each package, and proof that each works in a clean environment outside the checkout.
dist: .venv/ready
	rm -rf dist
	@$(PINNED) build
	$(BIN)/python -m build --outdir dist
	$(BIN)/python -m build --outdir dist packages/server
	$(BIN)/python -m build --outdir dist packages/kit
	$(BIN)/python scripts/try_dist.py dist

# constraints.txt: the newest versions of everything that the environment of this repository has.
lock:
	@place=$$(mktemp -d) && $(PYTHON) -m venv $$place/venv \
	    && $$place/venv/bin/pip install --quiet --disable-pip-version-check --editable '.[dev,docs,plots]' $(SERVER_AND_KIT) build \
	    && { echo '# Written by make lock: what the environment of this repository has. Wheels have no upper limits.'; \
	         $$place/venv/bin/pip freeze --exclude-editable; } > constraints.txt; rm -rf $$place

bench: .venv/ready
	$(BIN)/python bench/engines.py parley=$(BIN)/parley
	$(BIN)/python bench/engines.py --only first,warm,one-shot "offline=$(BIN)/parley --model offline"

# Parley beside Claude Code, recorded for docs/performance.md: make bench-original ORIGINAL=/path/to/claude && make plots
# It takes about 10 minutes; the machine should have nothing else to do. Further engines: MORE='"label=command"'
RUNS ?= 20
bench-original: .venv/ready
	@test -x "$(ORIGINAL)" || { echo "no executable '$(ORIGINAL)'; run: make bench-original ORIGINAL=/path/to/claude"; exit 2; }
	$(BIN)/python bench/engines.py original=$(ORIGINAL) parley=$(BIN)/parley $(MORE) --runs $(RUNS) --json docs/performance/engines.json

# The tables and the plots of docs/performance.md and docs/scale.md, from the recorded figures.
plots: .venv/ready-plots
	$(BIN)/python scripts/gen_performance.py
	$(BIN)/python scripts/plots.py
	$(BIN)/python scripts/simulate_scale.py --write

# All pages of the documentation, with the parts that come from the code, in build/docs.
docs: .venv/ready
	$(BIN)/python scripts/pages.py

# Change the source in 320 places, one at a time: how many of the changes does a test notice? Several hours; a part of
# it: make mutants TAKE=40
TAKE ?= 1000
mutants: compiled
	$(BIN)/python -m tests.stress.mutants --take $(TAKE)

# How the source is built: import cycles, folder sizes, long functions, repeated names. A report, not a gate.
house: .venv/ready
	$(BIN)/python scripts/house.py

# The documentation as a web site, in build/site. A broken link is an error.
site: docs .venv/ready-site build/mermaid/package
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# The pictures of the documentation, from real runs of the command line and the console.
pictures: .venv/ready-dev
	$(BIN)/python scripts/pictures.py
	$(BIN)/python scripts/console_pictures.py

python:
	@$(PYTHON) -c ''
	@test ! -x $(BIN)/python || test "$$($(BIN)/python -V)" = "$$($(PYTHON) -V)" || \
		{ echo ".venv has $$($(BIN)/python -V), not $$($(PYTHON) -V); run first: rm -r .venv"; exit 1; }

.venv/ready: pyproject.toml packages/server/pyproject.toml packages/kit/pyproject.toml constraints.txt $(NAMED)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Parley needs Python 3.11 or newer; run: make PYTHON=/path/to/python3.11")'
	@test -x $(BIN)/python || { echo "setting up: creating the virtual environment .venv"; $(PYTHON) -m venv .venv; }
	@echo "setting up: installing Parley and what it needs (about 10 seconds)"
	@$(PINNED) --editable '.[pdf,search]' $(SERVER_AND_KIT)
	@echo "setting up: compiling"
	@$(BIN)/python -m compileall -q src
	@touch $@

.venv/ready-dev: .venv/ready
	@echo "setting up: installing the tools for lint, types and tests"
	@$(PINNED) --editable '.[dev]' $(SERVER_AND_KIT)
	@touch $@

.venv/ready-site: .venv/ready
	@echo "setting up: installing the tools for the documentation"
	@$(PINNED) --editable '.[docs]' $(SERVER_AND_KIT)
	@touch $@

.venv/ready-plots: .venv/ready
	@echo "setting up: installing the tools for the plots"
	@$(PINNED) --editable '.[plots]' $(SERVER_AND_KIT)
	@touch $@

# The site serves Mermaid itself, so that a reader's browser asks no other server.
build/mermaid/package:
	@echo "setting up: fetching Mermaid from the npm registry"
	@rm -rf build/mermaid && mkdir -p build/mermaid
	@cd build/mermaid && npm pack --silent @mermaid-js/tiny@$(MERMAID) >/dev/null && tar xzf *.tgz

clean:
	rm -rf .venv .compat .mypy_cache .ruff_cache .pytest_cache build dist
