# `make demo` shows a failover on a real Slurm cluster on this machine; `make test` runs the tests.
# Both set everything up by themselves. `make help` lists the rest.

VENV ?= $(shell tools/venv_path.sh)
BIN := $(VENV)/bin
SUDO := $(shell [ "$$(id -u)" = 0 ] || echo sudo)
SOURCES := $(shell find slurm_ft prolog epilog sbatch_templates examples contrib plugins -type f -not -name '*.pyc') pyproject.toml constraints.txt
SCRIPTS := $(wildcard prolog/* epilog/* tools/*.sh) .ci/run

.PHONY: help setup demo demo-refusal test lint type unit test-slurm test-core test-frameworks test-specimens test-matrix test-pythons picture bench bench-ettr bench-checkpoint gpu soak docs fmt clean
.DEFAULT_GOAL := help

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 16

setup: $(VENV)/slurm_ft.stamp ## install Slurm, munge and the Python environment

$(VENV)/slurm_ft.stamp: $(SOURCES)
	@tools/setup.sh $(VENV)
	@touch $@

demo: setup ## a training loses its GPU and finishes on another node
	@$(SUDO) $(BIN)/slurm-ft demo

demo-refusal: setup ## the same training with a bug of its own: not retried
	@$(SUDO) $(BIN)/slurm-ft demo --refusal

test: lint type unit test-slurm ## the tests; CI runs them and test-core

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-cache | tail -n 4
	shellcheck $(SCRIPTS) sbatch_templates/*

type: setup
	$(BIN)/mypy

unit: setup ## the tests that need no cluster
	$(BIN)/pytest tests/unit
	$(BIN)/pytest --reruns 1 -rR tests/checkpointing

# Real processes on a busy machine, here and in tests/checkpointing: a test that fails is run once more, and the summary says so.
test-slurm: setup ## the tests on a real cluster (root)
	$(SUDO) $(BIN)/pytest --reruns 1 -rR tests/slurm

FRAMEWORKS ?= /var/tmp/slurm_ft-frameworks
test-frameworks: setup ## real trainings in the pinned and in the newest versions of the frameworks (3 GB in FRAMEWORKS)
	@tools/frameworks.sh $(FRAMEWORKS)
	$(FRAMEWORKS)/pins/bin/python -m pytest tests/frameworks $(ONLY)
	$(FRAMEWORKS)/current/bin/python -m pytest tests/frameworks $(ONLY)
	$(SUDO) env SLURM_FT_FRAMEWORKS=$(FRAMEWORKS)/current $(BIN)/pytest tests/slurm/test_templates.py

test-core: setup ## the trainings of test-frameworks that tell most, in both sets: minutes, and part of CI
	@tools/frameworks.sh $(FRAMEWORKS)
	$(FRAMEWORKS)/pins/bin/python -m pytest tests/frameworks -m core
	$(FRAMEWORKS)/current/bin/python -m pytest tests/frameworks -m core

test-specimens: setup ## each framework resumes from what was chosen after its newest broke (12 GB in FRAMEWORKS)
	@tools/frameworks.sh $(FRAMEWORKS) pins current lightning megatron verl llamafactory nemo mindspore torchtitan
	SLURM_FT_FRAMEWORK_SETS=$(FRAMEWORKS) $(BIN)/pytest tests/specimens
	$(SUDO) env SLURM_FT_FRAMEWORKS=$(FRAMEWORKS)/current $(BIN)/pytest tests/slurm/test_templates.py

PYTHONS ?= /var/tmp/slurm_ft-pythons
test-pythons: ## the wheel and the unit tests in each Python from 3.10 to 3.13 that is here (ONLY="…" names others)
	@tools/test_pythons.sh $(PYTHONS) $(ONLY)

test-matrix: setup ## the same with Slurm 22.05, 24.11 and 26.05, the newer ones in chroots (root; 1.6 GB in /var/cache)
	@$(SUDO:%=% -E) tools/test_matrix.sh $(VENV) $(MATRIX)

bench: setup ## measure the README's numbers on this machine (root)
	$(SUDO) $(BIN)/python bench/failover.py
	$(SUDO) $(BIN)/python bench/epilog.py
	$(SUDO) $(BIN)/python bench/watch.py
	$(SUDO) $(BIN)/python bench/evidence.py
	$(BIN)/python bench/kernel_log.py
	$(SUDO) $(BIN)/python bench/checkpoints.py --cold
	$(BIN)/python bench/decide.py
	$(SUDO) $(BIN)/python bench/job_ends.py
	$(SUDO) $(BIN)/python bench/status.py
	$(SUDO) $(BIN)/python bench/wide_job.py

picture: setup ## take docs/status.svg anew, from a real failover (root)
	$(SUDO) $(BIN)/python tools/picture.py docs/status.svg

bench-ettr: setup ## simulate a week of training on 1,024 to 100,000 GPUs under four policies
	cd bench && $(abspath $(BIN))/python -m ettr

bench-checkpoint: setup ## what a checkpoint costs the training, against torch, its dcp and the Trainer (1.3 GB in FRAMEWORKS)
	@tools/frameworks.sh $(FRAMEWORKS) current
	PYTHONPATH=. $(FRAMEWORKS)/current/bin/python bench/checkpoint.py --layers 24
	PYTHONPATH=. $(FRAMEWORKS)/current/bin/python bench/checkpoint.py --layers 96 --steps 4

gpu: setup ## what needs a GPU, in under four minutes (GPU_PYTHON: a Python with torch for CUDA)
	@tools/gpu.sh $(or $(GPU_PYTHON),$(BIN)/python)

soak: setup ## 200 kills at random moments instead of a handful, ZeRO-2 saved late 50 times over (an hour)
	SLURM_FT_KILLS=200 $(BIN)/pytest tests/checkpointing/test_own_loop.py -k killed --timeout 3600
	@tools/frameworks.sh $(FRAMEWORKS)
	$(FRAMEWORKS)/pins/bin/python -m pytest tests/frameworks/soak_zero2.py tests/frameworks/soak_stock_deepspeed.py
	$(FRAMEWORKS)/current/bin/python -m pytest tests/frameworks/soak_zero2.py tests/frameworks/soak_stock_deepspeed.py

docs: setup ## build the pages into build/site; check links, commands and the pages of reference
	$(BIN)/python -m mkdocs build --quiet
	$(BIN)/pytest -q tests/unit/test_docs_*.py tests/unit/test_site_build.py

fmt: setup	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
