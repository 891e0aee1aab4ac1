# Every target sets up .venv as needed; the machine needs only Python 3.11 or newer, make and git.
# `make help` lists the targets.

# The interpreter for .venv; empty: the first suitable one.
PYTHON ?=
# One process more than cores, because tests wait for servers and processes a third of the time.
WORKERS ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)
ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install -qq

# What a lock installs, in one line.
packages = sed -nE 's/^([A-Za-z0-9_.-]+)==.*/\1/p' requirements/$(1).txt | uniq | paste -sd ' ' -

# Status 77 says that the programs cannot be had here; the command has given the reason.
or_skip = $(1) || { status=$$?; [ $$status -eq 77 ] || exit $$status; }

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

.PHONY: help
help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | awk -F '\t' '{ printf "  make %-12s %s\n", $$1, $$2 }'

.PHONY: demo
demo: $(VENV)/.ready-to-run  ## schedule the pods of examples/demo in virtual time and explain the result
	@status=0; $(BIN)/moorage simulate -f examples/demo $(ARGS) || status=$$?; \
	    [ $$status -ne 2 ] || echo "(exit status 2: some pods stay pending, as they should in this example)" >&2; \
	    [ $$status -eq 0 ] || [ $$status -eq 2 ]

.PHONY: test
test: $(VENV)/.ready-to-test  ## run all tests; FLOOR=core those of one floor without slow ones, ARGS='-k ports' some, WORKERS=1 in one process
	@$(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal $(if $(FLOOR),tests/$(FLOOR) -m 'not slow') $(ARGS)

BASE ?= main
.PHONY: quick
quick: $(VENV)/.ready-to-test  ## run the tests that a change can reach by imports; BASE=HEAD~3 says since when, ARGS='-m "not slow"' leaves slow ones out
	@found=$$($(BIN)/python -m tools.reach --base $(BASE)) || { echo "nothing differs from $(BASE)"; exit 0; }; \
	    $(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal $(ARGS) $$found

FAULTS ?= 40
SEED ?= 0
.PHONY: mutants
mutants: $(VENV)/.ready-to-test  ## put faults into FILES='src/moorage/state/table.py', one at a time, and see which the tests find; FAULTS=40 of them, SEED=0
	@$(BIN)/python -m tools.mutants $(FILES) --count $(FAULTS) --seed $(SEED) $(ARGS)

ROUNDS ?= 10
CLUSTERS ?= 200
FIRST ?= 0
.PHONY: explore
explore: $(VENV)/.ready-to-test  ## run the property tests on new random examples; ROUNDS=100 for more
	@for round in $$(seq $(ROUNDS)); do \
	    $(BIN)/python -m pytest -q -n $(WORKERS) -m hypothesis --hypothesis-profile=other $(ARGS) || exit 1; \
	done

.PHONY: recordings
recordings: $(VENV)/.ready-to-test  ## compare the verdicts of all plugins with every recorded decision of kube-scheduler
	@MOORAGE_RECORDINGS=1 $(BIN)/python -m pytest -q -n $(WORKERS) tests/laboratory/test_verdicts.py tests/conformance/test_earlier_releases.py $(ARGS)

SEEDS ?= 200
.PHONY: simtest
simtest: $(VENV)/.ready-to-test  ## run schedulers under faults in virtual time; SEEDS=10000 for more, ARGS='--seed N' repeats one
	@$(BIN)/python -m tools.simtest --seeds $(SEEDS) $(ARGS)

MINUTES ?= 60
.PHONY: soak
soak: $(VENV)/.ready-to-run  ## run up, run and record for MINUTES=60 and measure their memory; ARGS='--pods-a-minute 60' for work
	@$(BIN)/python -m tools.soak --minutes $(MINUTES) $(ARGS)

.PHONY: fuzz
fuzz: $(VENV)/.ready-to-test  ## attack every route of the embedded API server; ROUNDS=100 for more, ARGS='--seed N' repeats one
	@$(BIN)/python -m tools.attacks --rounds $(ROUNDS) $(ARGS)

CALLS ?= 200
SEED ?= 0
.PHONY: hostile
hostile: $(VENV)/.ready-to-test  ## call every function and macro of expressions and check every keyword of schemas with hostile values; CALLS=1000 for more, SEED=1 for others
	@MOORAGE_HOSTILE=$(CALLS) MOORAGE_HOSTILE_SEED=$(SEED) $(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal --timeout 0 \
	    tests/api/cel/test_hostile_values.py tests/cluster/apiserver/test_hostile_schemas.py $(ARGS)

.PHONY: least-change
least-change: $(VENV)/.ready-to-test  ## compare least changes, conflicts and preemption with brute force; CLUSTERS=2000 random clusters, FIRST=0 the first seed
	@CLUSTERS=$(CLUSTERS) FIRST=$(FIRST) $(BIN)/python -m pytest -q --timeout 0 tests/laboratory/test_least_change_oracle.py \
	    tests/laboratory/test_remedies.py tests/laboratory/test_conflicts.py \
	    tests/laboratory/test_explanations.py tests/laboratory/test_pending_sets.py

.PHONY: atlas
atlas: $(VENV)/.ready-to-test  ## write docs/atlas from tests/reports/atlas
	@$(BIN)/python -m tests.reports.atlas_pages

.PHONY: offers
offers: $(VENV)/.ready-to-test  ## run the commands of each answer in up; CLUSTERS=2000 random clusters, FIRST=0 the first seed
	@CLUSTERS=$(CLUSTERS) FIRST=$(FIRST) $(BIN)/python -m pytest -q --timeout 0 tests/laboratory/test_offers_hold.py

.PHONY: conflicts
conflicts: $(VENV)/.ready-to-test  ## compare conflicts alone with brute force; CLUSTERS and FIRST as for least-change, which includes it
	@CLUSTERS=$(CLUSTERS) FIRST=$(FIRST) $(BIN)/python -m pytest -q --timeout 0 tests/laboratory/test_conflicts.py

SCENARIOS ?= 500
.PHONY: differential
differential: $(VENV)/.ready-to-test  ## compare decisions with kube-scheduler's own code (needs Go); SCENARIOS=5000 random ones, SEED=1 others, ARGS='--release 1.36'
	@status=0; $(BIN)/python -m tools.differential scheduler --seed $(SEED) --count $(SCENARIOS) $(ARGS) || status=$$?; \
	    [ $$status -eq 77 ] || exit $$status

.PHONY: oracles
oracles: $(VENV)/.ready-to-run  ## build the real programs in oracles/ (needs Go); one that cannot be had is skipped with the reason
	@$(BIN)/python -m tools.oracles $(ARGS)

.PHONY: oracle-test
oracle-test: $(VENV)/.ready-to-test  ## compare with the real programs: COUNT=500 of each kind, SEED=0, ORACLES="verdicts cluster" only these; skipped without Go
	@COUNT="$(COUNT)" SEED="$(SEED)" ORACLES="$(ORACLES)" scripts/oracle-test

NODES ?= 3
SCHEDULER ?= none
.PHONY: real-cluster
real-cluster: $(VENV)/.ready-to-run  ## run a real control plane until Ctrl-C (needs Go); NODES=10, SCHEDULER=kube-scheduler, ARGS='-- COMMAND' runs that in it
	@$(BIN)/python -m tools.real_cluster run --nodes $(NODES) --scheduler $(SCHEDULER) $(ARGS)

.PHONY: live-real
live-real: $(VENV)/.ready-to-test  ## run the live tests on a real control plane (needs Go); ARGS=--quick runs the shortest
	@$(call or_skip,$(BIN)/python -m tools.real_cluster.live_suite $(ARGS))

.PHONY: upstream-e2e
upstream-e2e: $(VENV)/.ready-to-run  ## run Kubernetes' own end-to-end tests and write docs/contribute/upstream-e2e.md (needs Go; an hour); ARGS=scheduling selects
	@$(call or_skip,$(BIN)/python -m tools.upstream_e2e --write $(ARGS))

.PHONY: side-by-side
side-by-side: $(VENV)/.ready-to-run  ## measure kube-scheduler's code and ours, in process and on a real API server (needs Go); ARGS=--in-process for one half, ARGS=--write for the page
	@$(call or_skip,$(BIN)/python -m benchmarks side-by-side $(ARGS))

.PHONY: lint
lint: $(VENV)/.ready-to-test  ## check formatting, lint, types and import layers
	@scripts/check lint

.PHONY: check
check: $(VENV)/.ready-to-test  ## run lint, then all tests, as CI does
	@scripts/check

.PHONY: format
format: $(VENV)/.ready-to-test  ## reformat the sources and fix lint findings
	@$(BIN)/ruff check -q --fix && $(BIN)/ruff format -q

.PHONY: bench
bench: $(VENV)/.ready-to-run  ## measure scheduling throughput; ARGS='basic --nodes 1000' selects a workload, see benchmarks/README.md
	@$(BIN)/python -m benchmarks run $(ARGS)

.PHONY: docs
docs: $(VENV)/.ready-for-docs  ## build the documentation site in build/site, with strict links
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build -q && echo "built build/site/index.html"

.PHONY: docs-serve
docs-serve: $(VENV)/.ready-for-docs  ## show the documentation site, and rebuild it after each change
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve

.PHONY: man
man: $(VENV)/.ready-to-run  ## write the man pages that the wheel installs, from the help of the commands
	@$(BIN)/moorage man --write man

.PHONY: reference
reference: $(VENV)/.ready-to-run  ## write what comes from the code: parts of the reference between comments, the types that plugins see, and the page's types of questions
	@$(BIN)/python -m tools.plugin_types
	@$(BIN)/python -m tools.question_types
	@$(BIN)/python -m tools.reference_parts

.PHONY: ui
ui:  ## test the web page in ui/ and build it into src/moorage/interfaces/web/bundle (needs Node 20 or newer and npm)
	@cd ui && npm ci --silent && npm test --silent && npm run build --silent

.PHONY: wheel
wheel: $(VENV)/.ready-to-test  ## build dist/*.whl and dist/*.tar.gz
	@$(BIN)/python -m build --no-isolation --outdir dist . >/dev/null
	@ls dist

.PHONY: setup
setup: $(VENV)/.ready-to-test  ## only set up .venv

.PHONY: lock
lock:  ## update the pinned requirements from requirements/*.in (needs uv)
	@for set in run test docs; do \
	    (cd requirements && uv pip compile -q --upgrade --universal --generate-hashes --no-header --no-emit-index-url \
	        --python-version 3.11 $$set.in -o $$set.txt) || exit 1; \
	done

.PHONY: clean
clean:  ## remove .venv, builds and caches
	@rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# -- setup: each step leaves a stamp in .venv and is repeated when its lock or pyproject.toml changes ----------------------

$(VENV)/.made:
	@found=$$(scripts/find-python $(PYTHON)) && echo "setting up $(VENV) with $$found" && "$$found" -m venv $(VENV)
	@touch $@

$(VENV)/.ready-to-run: $(VENV)/.made requirements/run.txt pyproject.toml
	@echo "installing into $(VENV): $$($(call packages,run))"
	@$(PIP) --require-hashes -r requirements/run.txt
	@$(PIP) --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/.ready-to-test: $(VENV)/.made requirements/test.txt pyproject.toml
	@echo "installing into $(VENV): $$($(call packages,test))"
	@$(PIP) --require-hashes -r requirements/test.txt
	@$(PIP) --no-deps --no-build-isolation -e .
	@touch $@ $(VENV)/.ready-to-run

$(VENV)/.ready-for-docs: $(VENV)/.ready-to-test requirements/docs.txt
	@echo "installing into $(VENV): $$($(call packages,docs))"
	@$(PIP) --require-hashes -r requirements/docs.txt
	@touch $@
