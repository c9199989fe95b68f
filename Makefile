# Front door of the project: `make` lists the targets. Each sets up what it needs, once.
#
# PYTHON       the Python that .venv is made of (default: python3)
# CUDA_ARCHS   what the CUDA half is built for: "80 90", "all", or "none" for the CPU half alone
#              (default: this machine's GPUs; of make wheel: all)
# CUDA_HOME    the CUDA toolkit (default: this machine's; of make wheel: CUDA 12.4, which it fetches)
# CPU_TARGETS  "all": code for every x86-64 processor (default: for this one; of make wheel: all)
# GPU_PYTHON   a Python that has torch and TensorFlow for the GPU (default: .venvs/gpu, made for it)
# TEST_JOBS    processes of make test-python (default: as many as cores, at most 8)
# ARGS         further arguments of pytest, the demo or the benchmarks
PYTHON ?= python3
WHEEL_ARCHS := $(or $(CUDA_ARCHS),all)
LOCAL_ARCHS := $(shell tools/cuda/local_archs.sh)
CUDA_ARCHS ?= $(LOCAL_ARCHS)
CPU_TARGETS ?= native
GPU_PYTHON ?=
TEST_JOBS ?= $(shell n=$$(nproc); echo $$((n < 8 ? n : 8)))
ARGS ?=

# A GPU to time, and code for it.
MEASURES := $(and $(filter-out none,$(LOCAL_ARCHS)),$(filter-out none,$(CUDA_ARCHS)))

# With a GPU, TensorFlow for CUDA.
REQUIREMENTS := requirements-dev$(if $(filter-out none,$(LOCAL_ARCHS)),-cuda).txt

VENV := .venv
PY := $(VENV)/bin/python
VENV_STAMP := $(VENV)/.$(REQUIREMENTS)-stamp
GPU_VENV := .venvs/gpu
GPU_VENV_STAMP := $(GPU_VENV)/.requirements-stamp
BENCH_VENV := .venvs/bench
BENCH_VENV_STAMP := $(BENCH_VENV)/.requirements-stamp
DOCS_VENV := .venvs/docs
DOCS_VENV_STAMP := $(DOCS_VENV)/.requirements-stamp
BAZEL_RUN := tools/run_bazel.sh
GLIBC := 2_17
MATRIX_VERSIONS := 2.16.2:oldest 2.16.2 2.17.1 2.18.1 2.19.1 2.20.0 2.21.0

export CUDA_ARCHS CPU_TARGETS PYTHON

.DEFAULT_GOAL := help
.PHONY: help venv deps build wheel wheel-aarch64 release test test-lib test-aarch64 test-python test-xla test-jax test-wheel test-gpu sanitize \
        test-tf-matrix demo tutorials docs lint format bench bench-cpp fit-plan clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "make %-16s %s\n", $$1, $$2 }' Makefile

venv: $(VENV_STAMP)  ## make .venv with the pinned requirements

$(VENV_STAMP): requirements.txt requirements-tensorflow.txt requirements-tools.txt requirements-dev.txt \
               requirements-dev-cuda.txt requirements-no-deps.txt
	tools/make_venv.sh $(PYTHON) $(VENV) $(REQUIREMENTS)
	@touch $@

$(GPU_VENV_STAMP): requirements.txt requirements-gpu.txt
	tools/make_venv.sh $(PYTHON) $(GPU_VENV) requirements-gpu.txt
	@touch $@

$(BENCH_VENV_STAMP): requirements.txt requirements-bench.txt
	tools/make_venv.sh $(PYTHON) $(BENCH_VENV) requirements-bench.txt
	@touch $@

$(DOCS_VENV_STAMP): requirements-docs.txt
	tools/make_venv.sh $(PYTHON) $(DOCS_VENV) requirements-docs.txt
	@touch $@

deps:  ## install Bazel, Google Highway's headers and a C++ compiler where they are missing
	@tools/install_deps.sh

build: deps $(VENV_STAMP)  ## build the libraries for this machine and put them into haste_keras/
	$(BAZEL_RUN) build //haste_keras:libraries
	tools/install_libraries.sh

# Libraries of their own, which every machine can load; the source tree keeps what it has.
wheel wheel-aarch64: CPU_TARGETS = all
wheel wheel-aarch64: export MANYLINUX = $(GLIBC)
wheel: CUDA_ARCHS := $(WHEEL_ARCHS)
wheel: deps $(VENV_STAMP)  ## pack dist/haste_keras-*.whl, and haste_keras_cuda-*.whl beside it
	tools/build_libraries.sh build/libraries
	LIBRARIES=build/libraries tools/build_wheel.sh $(PY) manylinux_$(GLIBC)_$(shell uname -m)

wheel-aarch64: CUDA_ARCHS = none
wheel-aarch64: deps $(VENV_STAMP)  ## the same for aarch64, the CPU half alone, by a cross compiler
	tools/install_deps.sh aarch64
	STRIP=aarch64-linux-gnu-strip tools/build_libraries.sh build/libraries-aarch64 --config=aarch64
	LIBRARIES=build/libraries-aarch64 tools/build_wheel.sh $(PY) manylinux_$(GLIBC)_aarch64

# Not what this machine's GPUs would have `make build` make.
release: CUDA_ARCHS := $(WHEEL_ARCHS)
release: deps $(VENV_STAMP)  ## everything for an index in dist/, checked; ARGS of tools/release/release.py
	$(PY) tools/release/release.py $(ARGS)

test: test-lib test-python  ## everything that runs without a GPU

test-lib: deps $(VENV_STAMP)  ## C++ tests
	$(BAZEL_RUN) test //lib:libhaste.so //tests/lib/... //tests/tf/... //tests/xla/... //examples/cpp/... //benchmarks/cpp/...

test-aarch64: $(VENV_STAMP)  ## C++ tests for aarch64, cross-compiled and run under qemu
	tools/test_aarch64.sh

test-python: build  ## Python tests
	$(BAZEL_RUN) build //examples/... //benchmarks/cpp/planner:libplan_costs.so
	$(PY) -m pytest tests --ignore=tests/gpu --ignore=tests/wheel -n $(TEST_JOBS) --dist loadfile $(ARGS)

test-xla: build  ## the layers' tests with every model compiled by XLA on the CPU
	HASTE_TEST_XLA=1 $(PY) -m pytest tests/keras tests/xla $(ARGS)

test-jax: build  ## the recurrence in JAX, which is installed into build/jax
	$(PY) -m pip install --quiet --no-deps --upgrade --target build/jax -r requirements-jax.txt
	PYTHONPATH=build/jax $(PY) -m pytest tests/xla/test_jax.py $(ARGS)

test-wheel: $(VENV_STAMP)  ## the wheels of make wheel: what is in them, their tags, sizes and drivers
	$(PY) tools/release/wheel_limits.py dist/*.whl
	$(PY) -m pytest tests/wheel $(ARGS)

test-gpu: build $(if $(GPU_PYTHON),,$(GPU_VENV_STAMP))  ## tests that need an NVIDIA GPU
	$(BAZEL_RUN) build //examples/cpp/...
	HASTE_REQUIRE_GPU=1 $(or $(GPU_PYTHON),$(GPU_VENV)/bin/python) -m pytest tests/gpu $(ARGS)

sanitize: build $(if $(GPU_PYTHON),,$(GPU_VENV_STAMP))  ## each GPU engine under compute-sanitizer
	tools/sanitize.sh $(or $(GPU_PYTHON),$(GPU_VENV)/bin/python) $(ARGS)

test-tf-matrix: build  ## one wheel, tested under every supported TensorFlow
	tools/build_wheel.sh $(PY)
	$(PY) tools/release/tf_matrix.py dist/haste_keras-*-linux_*.whl $(MATRIX_VERSIONS)

demo: build  ## train, sample from, export and reload a character model: some six minutes in all
	PYTHONPATH=. $(PY) examples/char_model.py $(ARGS)

tutorials: build  ## run every tutorial of docs/tutorials in full: some ten minutes
	for each in docs/tutorials/*.ipynb; do PYTHONPATH=. $(PY) tools/notebooks.py run $$each || exit 1; done

bench: build $(BENCH_VENV_STAMP)  ## benchmarks against Keras, PyTorch and ONNX Runtime on the CPU
	$(BENCH_VENV)/bin/python -m benchmarks.cpu $(ARGS)

bench-cpp: deps  ## benchmarks of the CPU engine through the C++ API
	$(BAZEL_RUN) run //benchmarks/cpp:cpu -- $(ARGS)

fit-plan: deps $(VENV_STAMP)  ## fit the GPU planner's costs, to timings of this machine's GPU if it has one
	$(BAZEL_RUN) build //benchmarks/cpp/... $(if $(MEASURES),//lib/cuda:libhaste_cuda.so)
	$(PY) -m benchmarks.fit_plan $(if $(MEASURES),--measure) $(ARGS)

docs: $(DOCS_VENV_STAMP)  ## the documentation site in build/site; a warning or a broken link is an error
	NO_MKDOCS_2_WARNING=1 $(DOCS_VENV)/bin/mkdocs build

# Untracked files too: what is about to be committed is checked before it is.
CXX_SOURCES = git ls-files --cached --others --exclude-standard '*.c' '*.cc' '*.h' '*.cuh' '*.cu'

lint: $(VENV_STAMP)  ## check style and formatting
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	git ls-files --cached --others --exclude-standard '*.ipynb' | xargs -r $(PY) tools/notebooks.py check
	$(CXX_SOURCES) | xargs -r $(VENV)/bin/clang-format --dry-run -Werror

format: $(VENV_STAMP)  ## fix style and formatting
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .
	$(CXX_SOURCES) | xargs -r $(VENV)/bin/clang-format -i

clean:  ## remove what was built; .venv and .venvs stay
	-$(BAZEL_RUN) clean
	rm -rf build dist haste_keras/*.so
