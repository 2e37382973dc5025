# Everything sets itself up: a virtual environment in .venv from the system's Python and pip, nothing else needed.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed

.PHONY: demo test lint audit bench docs clean

$(STAMP): pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	touch $(STAMP)

## the main job on real data that ships inside installed packages
demo: $(STAMP)
	$(BIN)/dpadapt demo --out demo-report

## everything but the heavy audits and benchmarks
test: $(STAMP)
	$(BIN)/python -m pytest -n 2 -m "not slow"

lint: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

## statistical audits of every mechanism and estimator, crash tests at full size
audit: $(STAMP)
	$(BIN)/python -m pytest -n 2 -m slow
	HYPOTHESIS_PROFILE=explore $(BIN)/python -m pytest -n 2 -q tests/contract/test_bounded.py tests/contract/test_accountants.py tests/test_tables.py tests/accounting

bench: $(STAMP)
	$(BIN)/dpadapt bench performance

docs: $(STAMP)
	$(BIN)/python -m pytest -q tests/test_docs.py

clean:
	rm -rf .venv build dist demo-report
