# Everything runs in .venv, which the first target you call builds. All you need is Python 3.11 or newer and make.
#   make test ARGS="-k noise"             hands ARGS to pytest (likewise to hushpoint demo, benchmarks/run.py and mutants/run.py)
#   make demo PYTHON=/path/to/python3.12  builds .venv with that interpreter

PYTHON ?= python3
ARGS ?=

BIN := .venv/bin
READY := .venv/.ready
RECENT := import sys; sys.exit(sys.version_info < (3, 11))

# The caller's Python settings must not leak into .venv.
unexport PYTHONPATH PYTHONHOME VIRTUAL_ENV

.PHONY: help demo test mutants lint bench wheel clean

help:
	@echo "make demo    set up, then every method on one problem: a table, figures and a page, in about a minute"
	@echo "make test    set up, then every test"
	@echo "make mutants set up, then privacy bugs planted one at a time: a test must fail for each, in about 15 minutes"
	@echo "make lint    set up, then ruff and mypy"
	@echo "make bench   set up, then the side-by-side benchmarks"
	@echo "make wheel   set up, then build dist/*.whl"
	@echo "make clean   remove caches and build products (.venv stays: delete it to start over)"

demo: $(READY)
	@$(BIN)/hushpoint demo $(ARGS)

# Two workers, one linear-algebra thread each: more threads than cores make both slower.
test: $(READY)
	@OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 MPLBACKEND=Agg $(BIN)/python -m pytest -n 2 $(ARGS)

# Two copies of the project at work; a bug that no test notices is an error.
mutants: $(READY)
	@$(BIN)/python -m mutants.run $(ARGS)

lint: $(READY)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

# One linear-algebra thread: idle ones of OpenBLAS spin, and take a core from our own threads.
bench: $(READY)
	@OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 $(BIN)/python benchmarks/run.py $(ARGS)

wheel: $(READY)
	@$(BIN)/python -m build --wheel

clean:
	@rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage htmlcov
	@find . -name .venv -prune -o -name .git -prune -o -type d -name __pycache__ -exec rm -rf {} +

# An unusable .venv (half built, or of an older Python) is built anew; a usable one is only brought up to date.
$(READY): pyproject.toml
	@"$(PYTHON)" -c '$(RECENT)' || { \
	  echo "Hushpoint needs Python 3.11 or newer, and '$(PYTHON)' is $$("$(PYTHON)" --version 2>/dev/null || echo "not there")." >&2; \
	  echo "Name another one, for example: make $(or $(MAKECMDGOALS),demo) PYTHON=python3.12" >&2; exit 1; }
	@echo "Setting up .venv: this happens once, downloads packages and takes a minute or two."
	@{ $(BIN)/python -c '$(RECENT)' && $(BIN)/python -m pip --version; } >/dev/null 2>&1 \
	  || "$(PYTHON)" -m venv --clear .venv
	@$(BIN)/python -m pip install -qq --no-input --disable-pip-version-check -e ".[dev,federated,graphs,plots,secure,simulation]"
	@$(BIN)/python -m hushpoint.kernels
	@touch $@
	@echo "Ready."
