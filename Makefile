# Two targets do all the set-up on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
SOURCES := src tests benchmarks examples

.DELETE_ON_ERROR:
.PHONY: demo test check lint types layers tests bench format clean

demo: $(VENV)/.run
	@$(BIN)/dither demo

test: check tests

check: lint types layers

lint: $(VENV)/.dev
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/ruff format --check $(SOURCES)

types: $(VENV)/.dev
	$(BIN)/mypy

layers: $(VENV)/.dev
	$(BIN)/lint-imports --no-cache

tests: $(VENV)/.dev $(VENV)/.clients
	OPENBLAS_NUM_THREADS=1 $(BIN)/pytest -n auto

bench: $(VENV)/.dev
	$(BIN)/python benchmarks/noise.py
	$(BIN)/python benchmarks/accounting.py
	$(BIN)/python benchmarks/sql.py

format: $(VENV)/.dev
	$(BIN)/ruff format $(SOURCES)
	$(BIN)/ruff check --fix $(SOURCES)

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# What the demo needs: the package, its hard dependencies and pictures.
$(VENV)/.run: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[plots]'
	@touch $@

# A browser and clients of PostgreSQL that pip doesn't have; where one can't be had, its tests skip.
$(VENV)/.clients: tests/server/clients/fetch.sh | $(BIN)/python
	@sh tests/server/clients/fetch.sh $(VENV)/clients
	@touch $@

# What the tests need. The oracles are other libraries to compare with; where one has no wheel, its tests skip.
$(VENV)/.dev: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,oracles]' \
		|| { $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]' && \
			echo 'some oracles are not available here: the comparisons with them will be skipped'; }
	@touch $@
