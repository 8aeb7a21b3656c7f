# Two commands matter: `make demo` shows the example app, `make test` runs everything there is to run.
# PORT= chooses the demo's port, PYTHON= the Python (3.11 or newer) that .venv is made from.

PORT ?= 5000
PYTHON ?=
# Tests wait more than they work: three at a time keep two cores busy.
WORKERS ?= 3
VENV := .venv
RUN := $(VENV)/bin/python -m

.PHONY: help demo test chaos check docs translations bench screenshots clean

help:
	@echo "make demo   start the example app: http://127.0.0.1:$(PORT) (PORT= for another)"
	@echo "make test   install what the tests need, then run them all (ARGS= for pytest's arguments)"
	@echo "make chaos  what is too long for make test: every fault at every point of a run, storms (writes docs/reliability.md)"
	@echo "make check  style, types and documentation"
	@echo "make docs   build the documentation into docs/_build/html"
	@echo "make translations  put new strings into the catalogues of flask_instruct/translations, and compile what was translated"
	@echo "make bench  measure deltas, turns, workers, the ledger, live pages and changes, beside other libraries (ARGS=--check)"
	@echo "make screenshots  make the pictures of the example app in docs/images anew"
	@echo "make clean  remove everything that these made, but the data of the example app"

demo:
	@PYTHON="$(PYTHON)" tools/install.sh demo
	@exec $(RUN) flask --app example_app instruct dev --port $(PORT)

test:
	@PYTHON="$(PYTHON)" tools/install.sh dev
	@tools/system-packages.sh
	@exec $(RUN) pytest -n $(WORKERS) --maxschedchunk=8 $(ARGS)

chaos:
	@PYTHON="$(PYTHON)" tools/install.sh dev
	@tools/system-packages.sh
	@rm -f test-artifacts/crash-matrix.jsonl test-artifacts/chaos-remarks.jsonl
	@$(RUN) pytest -n 2 -o faulthandler_timeout=1200 -m "chaos or matrix" $(ARGS); status=$$?; \
		$(RUN) tests.runs.results docs/reliability.md && exit $$status

check: docs
	$(RUN) ruff check .
	$(RUN) ruff format --check .
	$(RUN) mypy
	tools/check-js.sh

docs:
	@PYTHON="$(PYTHON)" tools/install.sh dev
	$(RUN) sphinx -W --keep-going -q -b html docs docs/_build/html

translations:
	@PYTHON="$(PYTHON)" tools/install.sh dev
	$(RUN) tools.translations

bench:
	@PYTHON="$(PYTHON)" tools/install.sh dev
	@$(VENV)/bin/python -c 'from importlib.util import find_spec; import sys; sys.exit(not all(map(find_spec, sys.argv[1:])))' \
		agents flask_rq flask_socketio llm pydantic_ai || \
		$(RUN) pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[bench]"
	@status=0; for name in wire jobs live changes; do $(RUN) benchmarks $$name $(ARGS) || status=$$?; done; exit $$status

screenshots:
	@PYTHON="$(PYTHON)" tools/install.sh dev
	@tools/system-packages.sh
	@exec $(RUN) pytest -m screenshots tests/example_app/test_screenshots.py

clean:
	rm -rf $(VENV) docs/_build build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis test-artifacts
	find flask_instruct example_app tests -name __pycache__ -prune -exec rm -rf {} +
