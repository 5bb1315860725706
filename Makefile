# Two commands do all the set-up: `make demo` and `make test`. Everything lands in .venv.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
export MATHERON_DATA ?= $(if $(wildcard ../shared/data),$(abspath ../shared/data))

.PHONY: help demo test test-slow lint format types imports install install-bench gallery reference clean

help:
	@echo "make demo       set up .venv, fit a Gaussian process on real flights, draw its predictions"
	@echo "make test       set up .venv, then lint, types, import rules and tests"
	@echo "make test-slow  the longer checks"
	@echo "make gallery    every experiment at --budget quick"
	@echo "make reference  the page of public names, from their docstrings"
	@echo "make install-bench  the libraries that experiments and benchmarks compare with, into .venv"

install: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

# They ask for torchvision, which they do not need here and which would bring a PyTorch of its own: the extra
# `laplace` has all else that they import.
WITHOUT_DEPENDENCIES := laplace-torch==0.3 curvlinops-for-pytorch==3.0.1 backpack-for-pytorch==1.7.1

$(VENV)/.installed-bench: $(VENV)/.installed
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,bench]'
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps $(WITHOUT_DEPENDENCIES)
	touch $@

install-bench: $(VENV)/.installed-bench

demo: install
	$(BIN)/python -m experiments demo --out demo

test: install lint types imports
	$(BIN)/python -m pytest -n 2 --dist worksteal

test-slow: install
	$(BIN)/python -m pytest -m slow

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: install
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: install
	$(BIN)/mypy

imports: install
	$(BIN)/lint-imports

gallery: install-bench
	$(BIN)/python -m experiments all --budget quick

reference: install
	$(BIN)/python docs/reference.py

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis demo
