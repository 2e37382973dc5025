# Everything sets itself up: a virtual environment in .venv from the system's Python and pip, nothing else needed.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
TORCH_BIN := .venv-torch/bin
TORCH_STAMP := .venv-torch/.installed
FLOWER_BIN := .venv-federated/bin
FLOWER_STAMP := .venv-federated/.installed
SCALE_BIN := .venv-scale/bin
SCALE_STAMP := .venv-scale/.installed
RELEASE_BIN := .venv-release/bin
RELEASE_STAMP := .venv-release/.installed
# Interpreters that a release is tried with, such as "python3.11 python3.12 python3.13".
RELEASE_PYTHONS ?= $(PYTHON)
# Modules whose guards `make guards` removes.
MODULES ?= mechanisms/bounded.py papers/adaptation/bounded_losses.py mechanisms/bounded_neighbours.py persist.py \
	evaluation.py transfer/public_models.py accounting/ledger.py accounting/store.py accounting/chain.py \
	accounting/calibrate.py accounting/cost.py accounting/receipt.py mechanisms/events.py
# Tests that may also notice a guard that is missing: those of ledgers use all stores.
GUARD_TESTS ?= tests/accounting/test_ledger.py
DOCS_BIN := .venv-docs/bin
DOCS_STAMP := .venv-docs/.installed

.PHONY: demo test test-all test-networks test-federated test-scale lint audit mutants guards bench docs release-check clean

$(STAMP): pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	touch $(STAMP)

# Apart, so that the core is tested without torch. Torch goes first and alone, as in docs/guides/networks.md.
$(TORCH_STAMP): pyproject.toml
	$(PYTHON) -m venv .venv-torch
	$(TORCH_BIN)/python -m pip install --quiet --disable-pip-version-check torch==2.13.0
	$(TORCH_BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[torch,dev]'
	touch $(TORCH_STAMP)

# Apart, so that the core is tested without Flower and Ray.
$(FLOWER_STAMP): pyproject.toml
	$(PYTHON) -m venv .venv-federated
	$(FLOWER_BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[federated,dev]'
	touch $(FLOWER_STAMP)

# Apart, so that the core is tested without psycopg and Dask.
$(SCALE_STAMP): pyproject.toml
	$(PYTHON) -m venv .venv-scale
	$(SCALE_BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[postgres,scale,dev]'
	touch $(SCALE_STAMP)

$(DOCS_STAMP): pyproject.toml
	$(PYTHON) -m venv .venv-docs
	$(DOCS_BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[docs]'
	touch $(DOCS_STAMP)

## the main job on real data that ships inside installed packages
demo: $(STAMP)
	$(BIN)/dpadapt demo --out demo-report

# One thread per process: boosting would start one per core in both processes. Test files are compiled once, not in each.
ONE_THREAD := OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=

## what protects users, in five minutes on two cores
test: $(STAMP)
	# Neighbouring tests share what they fit.
	$(ONE_THREAD) $(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow and not thorough"

## the rest but the heavy audits: variants, algorithms of the papers, benchmarks, code on pages, planted bugs
test-all: $(STAMP)
	$(ONE_THREAD) $(BIN)/python -m pytest -n 2 --dist worksteal -m "thorough and not slow"

## what needs torch: networks, their examples and their page
test-networks: $(TORCH_STAMP)
	OMP_NUM_THREADS=1 $(TORCH_BIN)/python -m pytest -n 2 -m "not slow" tests/networks tests/papers/adaptation/test_network.py tests/benchmarks/test_mirror.py tests/benchmarks/test_performance.py src/dpadapt/networks
	OMP_NUM_THREADS=1 $(TORCH_BIN)/python -m pytest -q -m "not slow" tests/contract -k "PrivateNetwork or every_estimator"
	OMP_NUM_THREADS=1 $(TORCH_BIN)/python -m pytest -q tests/test_docs.py -k network

## what needs Flower: people behind real clients, in simulation and as separate processes
test-federated: $(FLOWER_STAMP)
	OMP_NUM_THREADS=1 $(FLOWER_BIN)/python -m pytest -q tests/integrations/test_flower.py src/dpadapt/integrations/flower.py
	# Ray leaves its own processes to the garbage collector, which pytest would report.
	OMP_NUM_THREADS=1 $(FLOWER_BIN)/python -m pytest -q -p no:unraisableexception tests/test_docs.py -k federated

## what needs a PostgreSQL server (Debian: apt-get install postgresql) or Dask: ledgers and rows on several machines
test-scale: $(SCALE_STAMP)
	OMP_NUM_THREADS=1 $(SCALE_BIN)/python -m pytest -q -m "not slow" tests/integrations/test_postgres.py tests/cli/test_ledger_on_a_server.py
	OMP_NUM_THREADS=1 $(SCALE_BIN)/python -m pytest -q -m "not slow" tests/accounting/test_store.py tests/accounting/test_ledger.py -k server
	OMP_NUM_THREADS=1 $(SCALE_BIN)/python -m pytest -q -m "not slow" tests/integrations/test_dask.py
	# Dask leaves sockets to the garbage collector, and warns where its ports are taken.
	OMP_NUM_THREADS=1 $(SCALE_BIN)/python -m pytest -q -W default tests/test_docs.py -k large-data

lint: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

## statistical audits of every mechanism and estimator, crash tests at full size; prints what each of them counted
audit: $(STAMP) $(SCALE_STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 -m slow -r aP
	OMP_NUM_THREADS=1 $(SCALE_BIN)/python -m pytest -m slow -r aP tests/integrations/test_postgres.py tests/integrations/test_dask.py
	HYPOTHESIS_PROFILE=explore $(BIN)/python -m pytest -n 2 -q tests/mechanisms/test_bounded.py tests/tables tests/accounting

## planted privacy bugs, one at a time: the tests named for each must find it
mutants: $(STAMP) $(TORCH_STAMP) $(SCALE_STAMP)
	$(BIN)/python tools/mutants.py --processes 2

## each guard of the modules removed once: lists those that the modules' own tests do not miss
guards: $(STAMP)
	$(BIN)/python -m tools.guards $(MODULES) --contract $(GUARD_TESTS)

bench: $(STAMP)
	$(BIN)/python -m benchmarks performance

## the site, with its tutorials executed, in build/site; then open build/site/index.html
docs: $(DOCS_STAMP)
	rm -rf build/site docs/reference/api
	OMP_NUM_THREADS=1 $(DOCS_BIN)/python -m sphinx -W --keep-going -q -c docs -d build/doctrees -E . build/site
	$(DOCS_BIN)/python tools/check_site.py build/site

$(RELEASE_STAMP): pyproject.toml
	$(PYTHON) -m venv .venv-release
	$(RELEASE_BIN)/python -m pip install --quiet --disable-pip-version-check build
	touch $(RELEASE_STAMP)

# A release: set the version in src/dpadapt/__init__.py and CITATION.cff; give the section "Unreleased" of CHANGELOG.md a
# version and a date ("## 0.3.0 (2026-12-01)") and begin a new one; run this with RELEASE_PYTHONS="python3.11 python3.12
# python3.13", and `make audit`.
## builds wheel and sdist into dist/, checks what they contain, and tries each in a new environment
release-check: $(RELEASE_STAMP)
	$(RELEASE_BIN)/python tools/release_check.py $(RELEASE_PYTHONS)

clean:
	rm -rf .venv .venv-torch .venv-federated .venv-scale .venv-docs .venv-release build dist demo-report docs/reference/api
