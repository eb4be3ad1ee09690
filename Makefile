# `make demo` and `make test` do all the set-up on a fresh machine with Python 3.11 and make.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
PIP := .venv/bin/python -m pip --disable-pip-version-check
SOURCES := pyproject.toml constraints.txt

.PHONY: demo test test-all docs lint clean

demo: .venv/.demo
	.venv/bin/python examples/demo.py --out demo

test: .venv/.test
	.venv/bin/lint-imports
	.venv/bin/python -m pytest -m "not slow" -n 2 --durations=10

test-all: .venv/.all lint
	.venv/bin/lint-imports
	.venv/bin/python -m pytest -n 2 --durations=20

docs: .venv/.docs
	NO_MKDOCS_2_WARNING=1 .venv/bin/mkdocs build --strict
	@echo "Open site/index.html."

lint: .venv/.test
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/pyright

clean:
	rm -rf .venv demo site

.venv/bin/python:
	$(PYTHON) -c "import sys; assert sys.version_info >= (3, 11), f'Python 3.11 or newer is needed, this is {sys.version}'"
	$(PYTHON) -m venv .venv

.venv/.demo: .venv/bin/python $(SOURCES)
	$(PIP) install -q -c constraints.txt -e ".[data,plot]"
	touch $@

.venv/.docs: .venv/.demo
	$(PIP) install -q -c constraints.txt -e ".[data,plot,docs]"
	touch $@

.venv/.test: .venv/bin/python $(SOURCES)
	$(PIP) install -q -c constraints.txt -e ".[test]"
	touch $@ .venv/.demo

.venv/.all: .venv/.test
	$(PIP) install -q -c constraints.txt -e ".[test,bench,explore,browser,ray,docs]"
	touch $@
