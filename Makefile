# Everything a developer types. 'make' alone lists it.

.DEFAULT_GOAL := help
SHELL := bash
.SHELLFLAGS := -euo pipefail -c

VENV := .venv
PYTHON_BIN := $(VENV)/bin/python
DEV := $(VENV)/.setup-dev
# The demo needs less than the tests; where their tools are set up already, that will do.
RUNTIME := $(if $(wildcard $(DEV)),$(DEV),$(VENV)/.setup-runtime)
PEERS := .venv-peers/.setup

# The tests wait more than they work: four processes leave a fifth of the two cores idle that the limit is made for.
JOBS ?= 5
ARGS ?=
SEEDS ?= 2000
FROM ?= 0
BUG ?=
CAMPAIGN_SEEDS ?= 1000000

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: setup
setup: $(DEV) ## Make .venv with Onceward and every tool; quick when nothing changed

$(DEV): pyproject.toml scripts/setup.sh
	@scripts/setup.sh dev

$(VENV)/.setup-runtime: pyproject.toml scripts/setup.sh
	@scripts/setup.sh runtime

.PHONY: demo
demo: $(RUNTIME) ## Tell the story of a crash: make demo ARGS="--seed 7 --store postgres"
	@$(VENV)/bin/onceward demo $(ARGS)

# All these processes collect the same modules, and their children import them again, hundreds of times: what is
# compiled is kept, also where the environment says otherwise.
test campaign: export PYTHONDONTWRITEBYTECODE :=

.PHONY: test
test: $(DEV) ## Run every test, with PostgreSQL and PgBouncer of their own: make test ARGS="-k lease"
	@scripts/services.sh
	@$(PYTHON_BIN) -m pytest -n $(JOBS) --dist loadgroup $(ARGS)

.PHONY: check
check: $(DEV) ## Lint, formatting and types
	$(VENV)/bin/ruff check
	$(VENV)/bin/ruff format --check
	$(VENV)/bin/mypy --strict
	$(VENV)/bin/pyright --pythonpath $(VENV)/bin/python tests/typing

.PHONY: sim
sim: $(DEV) ## Simulate crashes: make sim SEEDS=2000 FROM=0, or with a planted bug: BUG=no-fence
	@$(PYTHON_BIN) -m onceward.testing.simulate --seeds $(SEEDS) --from $(FROM) $(if $(BUG),--bug $(BUG))

.PHONY: campaign
campaign: $(DEV) ## The long tiers, hours: a million seeds, every property and kill point many times
	@scripts/services.sh
	$(PYTHON_BIN) -m onceward.testing.simulate --seeds $(CAMPAIGN_SEEDS) --from $(FROM)
	ONCEWARD_TEST_TIER=campaign $(PYTHON_BIN) -m pytest -n $(JOBS) --dist loadgroup --timeout 0 $(ARGS)
	for store in sqlite postgres; do $(PYTHON_BIN) -m tests.campaign.histories --store $$store --seed $(FROM) --histories 500; done
	for store in sqlite postgres; do ONCEWARD_TEST_TIER=campaign $(PYTHON_BIN) -m tests.campaign.chaos --store $$store --seconds 7200; done
	$(PYTHON_BIN) -m tests.campaign.power --images 20000
	$(PYTHON_BIN) -m tests.campaign.power --images 20000 --big 100
	for store in sqlite postgres; do ONCEWARD_TEST_TIER=campaign $(PYTHON_BIN) -m tests.campaign.soak --store $$store --seconds 14400 --waiting 100000; done
	$(PYTHON_BIN) -m tests.campaign.mutants --module core --seed $(FROM)
	@$(PYTHON_BIN) -m tests.campaign.report

.PHONY: docs
docs: $(DEV) ## Build the documentation into site/; a warning is an error
	@$(PYTHON_BIN) scripts/generate_docs.py
	@$(PYTHON_BIN) -m sphinx --quiet --fail-on-warning --keep-going -b html docs site
	@echo "The documentation is in site/index.html"

.PHONY: screenshots
screenshots: $(DEV) ## Take the pictures of the dashboard in docs/images with a real browser
	@scripts/services.sh
	@PYTHONPATH=. $(PYTHON_BIN) scripts/screenshots.py

.PHONY: bench
bench: $(DEV) $(PEERS) ## Measure beside a peer: make bench ARGS="three-step --store postgres --peer dbos --json"
	@$(PYTHON_BIN) -m benchmarks $(ARGS)

.PHONY: peers
peers: $(PEERS) ## Make .venv-peers with what the benchmarks compare with

$(PEERS): $(DEV) scripts/peers.sh
	@scripts/peers.sh

.PHONY: dist
dist: $(DEV) ## Build the wheel and the source distribution into dist/
	@rm -rf dist
	@$(PYTHON_BIN) -m build --outdir dist .

.PHONY: clean
clean: ## Remove everything that make made
	rm -rf $(VENV) .venv-peers dist build site docs/generated .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
