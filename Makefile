# Two targets do all the set-up on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# The same with the lowest versions that pyproject.toml allows.
LOWEST := .venv-lowest
SOURCES := src tests benchmarks examples

.DELETE_ON_ERROR:
.PHONY: demo test check lint types layers tests oracles lowest-few lowest nightly long matrix bench peers coverage format clean

demo: $(VENV)/.run
	@$(BIN)/dither demo

# The tests of a file in one process, so that what they share is made once: servers, browsers, PostgreSQL.
PARALLEL := -n auto --dist loadfile

# PART=core|local|anonymize|lab: the tests of that part alone.
PART ?=
ifeq ($(PART),)
test: check tests oracles lowest-few
else
test: check tests
endif

check: lint types layers

lint: $(VENV)/.dev
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/ruff format --check $(SOURCES)

types: $(VENV)/.dev
	$(BIN)/mypy

layers: $(VENV)/.dev
	$(BIN)/lint-imports --no-cache

WALLED := local anonymize audit attacks
# folders and Python files: pytest takes nothing else
PATHS_core := $(filter-out $(WALLED:%=tests/%),$(patsubst %/,%,$(wildcard tests/*/))) \
	$(filter-out $(WALLED:%=src/dither/%),$(patsubst %/,%,$(wildcard src/dither/*/))) $(wildcard src/dither/*.py)
PATHS_local := tests/local src/dither/local
PATHS_anonymize := tests/anonymize src/dither/anonymize
PATHS_lab := tests/audit tests/attacks src/dither/audit src/dither/attacks
tests: $(VENV)/.dev $(VENV)/.clients
	OPENBLAS_NUM_THREADS=1 $(BIN)/pytest $(PARALLEL) --durations=25 $(PATHS_$(PART))

# Comparisons with other libraries, in an environment of their own: they choose versions that dither needn't.
oracles: $(VENV)/oracles/.made
	PYTHONPATH=$(CURDIR)/src OPENBLAS_NUM_THREADS=1 $(VENV)/oracles/bin/python -m pytest -n auto -q -p no:cacheprovider \
		-m oracle tests/laws/test_oracles.py tests/docs/test_docs.py

# What raises for one row depends on the version: the conformance suites on the lowest hard dependencies, in a minute.
FEW := tests/docs/test_versions.py tests/engines/test_edges.py tests/sql/test_grammar.py tests/sql/test_corpora.py \
	tests/engines/test_conformance.py::test_duckdb_keeps_the_contract
lowest-few: $(VENV)/lowest/.few
	DITHER_LOWEST=hard PYTHONPATH=$(CURDIR)/src OPENBLAS_NUM_THREADS=1 $(VENV)/lowest/bin/python -m pytest -n auto -q \
		-p no:cacheprovider $(FEW)

# Everything on the lowest versions of every dependency.
lowest: $(LOWEST)/.lowest $(VENV)/.clients
	DITHER_LOWEST=all OPENBLAS_NUM_THREADS=1 $(LOWEST)/bin/python -m pytest $(PARALLEL) -p no:cacheprovider

# Within three hours: everything, on the newest and on the lowest versions, then what is longer or drawn anew.
nightly: check oracles lowest-few lowest long

# The same with every supported version of Python that the machine has, each in an environment of its own.
PYTHONS := $(foreach version,3.11 3.12 3.13,$(if $(shell command -v python$(version)),$(version)))
matrix: $(PYTHONS:%=matrix-%)
matrix-%:
	$(MAKE) test PYTHON=python$* VENV=.venv-$*

# Which lines no test runs, for people to look at; no number is asked for.
coverage: $(VENV)/.dev $(VENV)/.clients
	OPENBLAS_NUM_THREADS=1 $(BIN)/pytest $(PARALLEL) -q --cov=dither --cov-report=term:skip-covered --cov-report=html $(PATHS_$(PART))

# The statistical folders twice more, since they draw from the system's source, and longer fuzzing with another seed.
long: $(VENV)/.dev $(VENV)/.clients
	DITHER_NIGHTLY=1 OPENBLAS_NUM_THREADS=1 $(BIN)/pytest $(PARALLEL) -q
	DITHER_NIGHTLY=1 OPENBLAS_NUM_THREADS=1 $(BIN)/pytest $(PARALLEL) tests/noise tests/laws tests/audit tests/attacks tests/local
	DITHER_NIGHTLY=1 OPENBLAS_NUM_THREADS=1 $(BIN)/pytest $(PARALLEL) tests/noise tests/laws tests/audit tests/attacks tests/local
	DITHER_FUZZ=60000 DITHER_SEED=$$(date +%s) OPENBLAS_NUM_THREADS=1 $(BIN)/pytest -n auto tests/server/test_fuzz_wire.py \
		tests/server/test_fuzz_http.py

# Other libraries, each in an environment of its own with pinned versions; benchmarks call them as processes.
PEERS := $(patsubst benchmarks/peers/%.txt,.venv-peers/%/.made,$(wildcard benchmarks/peers/*.txt))
peers: $(PEERS)

.venv-peers/%/.made: benchmarks/peers/%.txt
	rm -rf .venv-peers/$*
	$(PYTHON) -m venv .venv-peers/$*
	.venv-peers/$*/bin/python -m pip install --quiet --disable-pip-version-check --no-compile -r $<
	@touch $@

bench: $(VENV)/.dev
	$(BIN)/python benchmarks/noise.py
	$(BIN)/python benchmarks/accounting.py
	$(BIN)/python benchmarks/sql.py

format: $(VENV)/.dev
	$(BIN)/ruff format $(SOURCES)
	$(BIN)/ruff check --fix $(SOURCES)

clean:
	rm -rf $(VENV) $(LOWEST) .venv-peers build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

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

$(VENV)/.dev: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

# Where an oracle has no wheel, the comparisons with it are skipped.
$(VENV)/oracles/.made: pyproject.toml constraints.txt | $(BIN)/python
	rm -rf $(VENV)/oracles
	$(PYTHON) -m venv $(VENV)/oracles
	$(VENV)/oracles/bin/python -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt \
		-e '.[oracles]' || { $(VENV)/oracles/bin/python -m pip install --quiet --disable-pip-version-check \
		--no-compile -c constraints.txt -e . hypothesis pytest pytest-xdist && \
		echo 'some oracles are not available here: the comparisons with them will be skipped'; }
	@touch $@

# The lowest hard dependencies with what the conformance suites need; the source is taken from src.
$(VENV)/lowest/.few: pyproject.toml tests/lowest.py | $(BIN)/python
	rm -rf $(VENV)/lowest
	$(PYTHON) -m venv $(VENV)/lowest
	$(VENV)/lowest/bin/python tests/lowest.py --few > $(VENV)/lowest/few.txt
	$(VENV)/lowest/bin/python -m pip install --quiet --disable-pip-version-check --no-compile -r $(VENV)/lowest/few.txt
	@touch $@

# An environment of its own for the whole suite, without the oracles: those choose their own versions.
$(LOWEST)/.lowest: pyproject.toml tests/lowest.py
	rm -rf $(LOWEST)
	$(PYTHON) -m venv $(LOWEST)
	$(LOWEST)/bin/python tests/lowest.py > $(LOWEST)/lowest.txt
	$(LOWEST)/bin/python -m pip install --quiet --disable-pip-version-check -r $(LOWEST)/lowest.txt
	$(LOWEST)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -e .
	@touch $@
