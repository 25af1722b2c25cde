# `make` lists the targets. Variables: DEBIAN_MIRROR, ROCM_SUITE, ROCM_PATH, PYTHON (tools/rocm.sh says what they do),
# TESTS (a part of the suite for `make test`), STACKS (for `make test-stacks`), ARGS (more arguments for its tool).

TESTS =
ARGS =
# Suites of Debian with other generations of AMD's libraries than the one that `make rocm` takes.
STACKS = sid

# Each folder of tests in a process of its own: what HIP keeps there for good does not meet the tests of the node. So
# many at a time, the longest first.
PARTS = $(filter-out tests/__pycache__,$(patsubst %/,%,tests/softgpu/ tests/hip/ $(wildcard tests/*/)))
JOBS = $(shell nproc)
SYNC = $(if $(filter 1,$(words $(TESTS))),none,target)

# What depends on the generation of the libraries: the objects of HSA and HIP, modules, launches, kernels, other clients.
STACK_PARTS = tests/hip tests/hsa tests/kernels tests/blas tests/test_broken_input.py tests/test_kernels.py tests/test_gate.py tests/ffi \
	tests/softgpu/test_hip_python.py

# Sets up what is missing, then runs the Python that can load ROCm's libraries.
WITH_ROCM = python=$$(sh tools/rocm.sh python) && exec "$$python"
# AMD's own binding, which a test and a row of the benchmark are about. They say so themselves if it cannot be had.
HIP_PYTHON = sh tools/rocm.sh hip-python || true
# A Python of this machine for the development tools, which need no ROCm.
DEV = build/venv-dev/bin/python

.PHONY: help demo test test-slow test-stacks pytest lint bench kernels rocm clean

help:
	@echo 'make demo        copy verified bytes over every engine of eight GPUs, on the software node (no GPU needed)'
	@echo 'make test        the whole test suite (TESTS=tests/ffi for a part of it, ARGS for pytest)'
	@echo 'make test-slow   random cases by the thousand and all combinations, which take long (hours on the software node)'
	@echo 'make test-stacks the tests of HSA and HIP objects and of kernels on other generations of ROCm (STACKS=sid: 6.4.3)'
	@echo 'make bench       what a call, a packet and a copy cost from Python, beside the same in C; what a C3 run costs'
	@echo 'make lint        ruff and mypy'
	@echo 'make rocm        ROCm for the others: the one of this machine, else Debian'\''s packages in build/rocm'
	@echo 'make kernels     build the HIP kernels of kernels_src for every target that the compiler knows'
	@echo 'make clean       remove build/ and all caches'

demo:
	@$(WITH_ROCM) tools/sweep.py dma --node soft --quick $(ARGS)

test:
	@sh tools/rocm.sh python >/dev/null
	@$(HIP_PYTHON)
	@$(MAKE) --no-print-directory --keep-going --jobs=$(JOBS) --output-sync=$(SYNC) \
		$(or $(TESTS:%=pytest/%),$(PARTS:%=pytest/%) pytest)

# Hypothesis is compiled for one version of Python: the one that can load ROCm's libraries gets its own.
build/slow/.complete: build/venv-dev/.complete
	@version=$$($(WITH_ROCM) -c 'import sys; print("%d.%d" % sys.version_info[:2])') && \
		$(DEV) -m pip install --quiet --target build/slow --python-version "$$version" --only-binary=:all: hypothesis
	@touch $@

test-slow: build/slow/.complete
	@PYTHONPATH=$(CURDIR)/build/slow; export PYTHONPATH; \
		$(WITH_ROCM) -m pytest -m slow $(or $(TESTS),tests/collectives) $(ARGS)

test-stacks:
	@failed=0; for suite in $(STACKS); do \
		$(MAKE) --no-print-directory test ROCM_SUITE=$$suite TESTS='$(or $(TESTS),$(STACK_PARTS))' || failed=1; \
	done; exit $$failed

pytest: # those of no folder
	@$(WITH_ROCM) -m pytest $(wildcard tests/test_*.py) $(ARGS) || [ $$? -eq 5 ]

pytest/%:
	@$(WITH_ROCM) -m pytest $* $(ARGS) || [ $$? -eq 5 ]

bench:
	@$(HIP_PYTHON)
	@$(WITH_ROCM) tools/bench.py $(ARGS)

rocm:
	@sh tools/rocm.sh

kernels:
	@$(WITH_ROCM) -m hsakit.compiler $(ARGS)

lint: build/venv-dev/.complete
	@$(DEV) -m ruff check .
	@$(DEV) -m mypy

build/venv-dev/.complete: pyproject.toml
	@$(or $(PYTHON),python3) -m venv build/venv-dev
	@$(DEV) -m pip install --quiet '.[dev]' && $(DEV) -m pip uninstall --quiet --yes hsakit
	@touch $@

clean:
	rm -rf build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
