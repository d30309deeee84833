# Two commands matter: `make run` and `make test`. Each sets up everything it needs, once.
PYTHON ?= python3.11
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --constraint constraints.txt
# All processors compile what pip installed; pip would use one. Some packages hold files that are no Python: they are left.
# So are files that are never imported here: tests of packages, and the sources of tools that are compiled or seldom run.
COMPILE := $(BIN)/python -m compileall -qq -j 0 -x '/(tests?|mypyc?|pip|setuptools)/' $(VENV)/lib || true
SETUP  := pyproject.toml constraints.txt
# One worker more than there are processors, because some tests wait for other processes. A file goes to one worker,
# which sets up once what its tests share. Files keep their order: the last ones take little time.
FAST   := -n $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1) --dist loadfile --no-loadscope-reorder -m "not slow and not bench"

.DEFAULT_GOAL := help
.PHONY: help run test lint types layers coverage unit docs bench slow vectors explorer clean

help: ## Show this list
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-9s %s\n", $$1, $$2}'

run: $(VENV)/.run ## Train a model across 40 clients, privately, and watch it
	@$(BIN)/coterie run $(ARGS)

# The types and the layers are checked beside the tests, and reported after them.
test: lint ## Everything a change must pass
	@report=$$(mktemp); trap 'rm -f "$$report"' EXIT; \
	$(MAKE) --no-print-directory types layers >"$$report" 2>&1 & checks=$$!; \
	$(MAKE) --no-print-directory unit; tests=$$?; \
	wait $$checks; failed=$$?; cat "$$report"; exit $$((tests || failed))

lint: $(VENV)/.dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check

types: $(VENV)/.dev
	$(BIN)/mypy

layers: $(VENV)/.dev
	$(BIN)/lint-imports

# The share of covered lines means something only after the whole suite: `unit` has no such gate.
coverage: $(VENV)/.dev ## The tests again, traced: at least 95% of the protocol's and the audits' lines are executed
	$(BIN)/pytest $(FAST) --cov --cov-report= $(ARGS)
	$(BIN)/python -m coverage report --fail-under=95

unit: $(VENV)/.dev ## The tests alone; a folder, a file or one test with ARGS=tests/unit/secagg
	$(BIN)/pytest $(FAST) $(ARGS)

slow: $(VENV)/.rivals ## The checks that take minutes; simulations on Flower among them
	$(BIN)/pytest -m slow $(ARGS)
	COTERIE_EXAMPLES=search $(BIN)/pytest $(FAST) $(ARGS)

docs: $(VENV)/.dev ## Build the documentation site in build/docs; a warning is an error
	$(BIN)/python -m sphinx --quiet --fail-on-warning --keep-going docs build/docs
	@echo "The site is in build/docs/index.html"

bench: $(VENV)/.rivals ## Measure speed against the machine's limits and against Flower and pfl
	$(BIN)/pytest -m bench tests/speed $(ARGS)

vectors: $(VENV)/.dev ## Rewrite the committed test vectors (only when the wire format changes)
	$(BIN)/python -m tests.vectors.generate

explorer: frontend/node_modules/.made ## Build the page of `coterie explore` from frontend/ (needs node)
	cd frontend && npm run build

clean: ## Remove the environment and all caches
	rm -rf $(VENV) frontend/node_modules .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis .coverage .benchmarks build/docs

$(VENV)/bin/python:
	@command -v $(PYTHON) >/dev/null || { echo "make needs $(PYTHON); set PYTHON=... to another Python 3.11-3.13"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@$(PIP) --upgrade pip # an old one takes twice as long to find the packages

$(VENV)/.run: $(VENV)/bin/python $(SETUP)
	@echo "Installing Coterie into $(VENV) (once) ..."
	@$(PIP) --editable '.[train]'
	@$(COMPILE)
	@touch $@

$(VENV)/.dev: $(VENV)/bin/python $(SETUP)
	@echo "Installing Coterie and its development tools into $(VENV) (once) ..."
	@$(PIP) --editable '.[dev]'
	@$(COMPILE)
	@touch $@ $(VENV)/.run

frontend/node_modules/.made: frontend/package.json frontend/package-lock.json
	cd frontend && npm ci
	@touch $@

# pfl asks for an older dp-accounting than ours, and for any torch; it needs neither here.
$(VENV)/.rivals: $(VENV)/.dev
	@echo "Installing Flower, NVFlare and pfl, and what optional extras need (once) ..."
	@$(PIP) --editable '.[dev,flower,simulation,nvflare,parquet,tracking]'
	@$(PIP) --no-deps pfl==0.6.0 prv-accountant==0.2.0 multiprocess dill
	@$(COMPILE)
	@touch $@
