# Every target sets up what it needs in .venv, so a fresh clone has nothing to prepare: `make demo`, `make test`.
# Needs python3 (3.10 or later, with venv), pip and make. PYTHON=python3.12 picks another interpreter for a new .venv.

PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.PHONY: demo test check bench torture clean
.DELETE_ON_ERROR:

demo: $(READY)
	$(BIN)/stoker demo

# Eighteen minutes is the bound of a whole run, checked between tests; a single test that hangs is ended by pyproject's timeout.
# "worksteal": each of the two begins with half of the files, so what a file sets up is mostly set up once, and whoever
# has finished takes from the other's end.
test: check
	$(BIN)/python -m pytest -m "not slow and not network and not gpu" -n 2 --dist worksteal --session-timeout=1100

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict
	$(BIN)/lint-imports

bench: $(READY)
	$(BIN)/python benchmarks/engine.py

# What takes long or kills things: before a release, and after any change in workers or slots.
torture: $(READY)
	$(BIN)/python -m pytest -m "(slow or faults) and not network and not gpu"
	$(BIN)/python -m tests.faults.torture
	$(BIN)/python -m tests.faults.stalls
	$(BIN)/python -m tests.faults.outcomes

clean:
	rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	rm -f src/stoker/slots/_streaming.so
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamp is written last, so an install that was interrupted is taken up again. Torch goes first and alone: pip then
# settles on the constrained build before it looks at anything that merely depends on torch. The extra `dev` includes
# `tools`, so the demo finds what it needs too.
$(READY): pyproject.toml constraints.txt hatch_build.py src/stoker/slots/streaming.c
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $@
