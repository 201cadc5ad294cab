# Every target makes .venv itself when it is missing or older than what it is made from.

PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
PIP := $(BIN)/python -m pip --disable-pip-version-check

.DEFAULT_GOAL := help
.PHONY: help venv demo bench test test-arm test-isa soak lint types imports doctest docs clean

help:
	@echo "make demo     train a sparse language model on real text and write demo-report/"
	@echo "make bench    time sparse products against dense ones and print the table"
	@echo "make test     run the tests"
	@echo "make test-arm run the kernels for 64-bit Arm under an emulator"
	@echo "make test-isa run the tests of the products on every older instruction set"
	@echo "make soak     compute a hundred thousand random products in one process"
	@echo "make lint     check style, types and the direction of imports"
	@echo "make doctest  run every example in docstrings and docs"
	@echo "make docs     build the pages into docs/_build/html; warnings are errors"
	@echo "make clean    remove what was built; .venv stays"
	@echo
	@echo "Another Python: make test PYTHON=python3.12"

venv: $(STAMP)

# pip first: dependency groups need 25.1. torch second and alone: the one version that is pinned.
$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "sparsetile needs Python 3.11 or newer; '$(PYTHON)' is not." \
	    "Name one that is: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@echo "making .venv (a few minutes, 1.5 GB)"
	@$(PYTHON) -m venv .venv
	@$(PIP) install --quiet --upgrade 'pip>=25.1'
	@echo "  torch"
	@$(PIP) install --quiet -r constraints.txt
	@echo "  sparsetile, its extras and its tools"
	@$(PIP) install --quiet -c constraints.txt -e '.[all]' --group dev
	@touch $@

demo: $(STAMP)
	@$(BIN)/sparsetile demo

bench: $(STAMP)
	@$(BIN)/sparsetile table

test: $(STAMP)
	$(BIN)/python -m pytest

# The emulator and the linker are the system's: Debian has them as qemu-user, gcc-aarch64-linux-gnu
# and libc6-dev-arm64-cross.
test-arm: $(STAMP)
	@for tool in qemu-aarch64 aarch64-linux-gnu-gcc; do command -v $$tool >/dev/null || { \
	  echo "make test-arm needs $$tool, not found here; on Debian or Ubuntu:" \
	    "apt-get install qemu-user gcc-aarch64-linux-gnu libc6-dev-arm64-cross" >&2; exit 1; }; done
	$(BIN)/python -m pytest -m arm tests/ops/cpu/test_qemu.py

# Each instruction set that can run here but for the best, which 'make test' takes.
test-isa: $(STAMP)
	@sets="$$($(BIN)/python -c 'from sparsetile.ops.cpu import instruction_sets; \
	  print(*instruction_sets()[1][:-1])')" && for isa in $$sets; do \
	  echo "== $$isa" && SPARSETILE_ISA=$$isa $(BIN)/python -m pytest tests/ops || exit 1; done

soak: export OMP_NUM_THREADS = 1
soak: $(STAMP)
	$(BIN)/python tests/soak.py --calls 100000

lint: $(STAMP) types imports
	$(BIN)/ruff check
	$(BIN)/ruff format --check

types: $(STAMP)
	$(BIN)/mypy

imports: $(STAMP)
	$(BIN)/lint-imports

# Docstrings by pytest, pages by Sphinx (docs/conf.py says which blocks of a page run).
doctest: export OMP_NUM_THREADS = 1
doctest: $(STAMP)
	$(BIN)/python -m pytest --doctest-modules src
	$(BIN)/python -m sphinx -q -W -b doctest docs docs/_build/doctest

docs: $(STAMP)
	$(BIN)/python -m sphinx -q -W --keep-going -b html docs docs/_build/html
	@echo "open docs/_build/html/index.html"

clean:
	rm -rf build dist docs/_build demo-report .pytest_cache .hypothesis .mypy_cache .ruff_cache \
	  .import_linter_cache
	find src tests docs -name __pycache__ -prune -exec rm -rf {} +
