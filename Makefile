# specverify: header-only, so there is nothing to build before you use it. `make help` lists what can be run.
# Tools can be replaced: make test CC=clang NVCC=/opt/cuda/bin/nvcc
# make itself presets these two, so "?=" would not.
ifeq ($(origin CC),default)
CC := gcc
endif
ifeq ($(origin CXX),default)
CXX := g++
endif
NVCC ?= $(shell command -v nvcc || echo /usr/local/cuda/bin/nvcc)
ARCH ?= sm_90
ARGS ?=
# Any other folder, absolute or relative to this one: make test BUILD=/tmp/kit
BUILD := build
export CC CXX NVCC

HAVE_NVCC := $(shell command -v $(NVCC) 2>/dev/null)
HAVE_GPU := $(shell nvidia-smi -L 2>/dev/null | head -n 1)

.DEFAULT_GOAL := help

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1|/' | awk -F'|' '{printf "  make %-12s %s\n", $$1, $$2}'

# ---- the main job ----------------------------------------------------------------------------

LM := examples/tiny_lm
CFLAGS ?= -O3
# No flag for this machine: the C backend asks it when it runs. No traps: loops with conditions become
# vectors; the bits are the same.
LM_FLAGS := -std=c99 $(CFLAGS) -ffp-contract=off -fno-trapping-math -Wall -Wextra -I. -MMD
LM_OBJECTS := $(patsubst $(LM)/%.c,$(BUILD)/tiny_lm.o/%.o,$(wildcard $(LM)/*.c))

ifneq ($(and $(HAVE_NVCC),$(HAVE_GPU)),)
LM_PROGRAM := $(BUILD)/tiny_lm_gpu
else
LM_PROGRAM := $(BUILD)/tiny_lm
endif

run: $(LM_PROGRAM) ## batched speculative decoding of real prompts (ARGS="--gamma 6 --batch 16")
	$(LM_PROGRAM) $(ARGS)

$(BUILD)/tiny_lm.o/%.o: $(LM)/%.c
	@mkdir -p $(@D)
	$(CC) $(LM_FLAGS) -c $< -o $@
$(BUILD)/tiny_lm: $(LM_OBJECTS)
	$(CC) $^ -o $@ -pthread -lm
$(BUILD)/tiny_lm_gpu: $(wildcard $(LM)/*.c $(LM)/*.cu $(LM)/*.h) examples/arena.h specverify.cuh specverify_ref.h
	@mkdir -p $(@D)
	bash $(LM)/build_gpu.sh $@ $(ARCH)
-include $(LM_OBJECTS:.o=.d)

# ---- tests -----------------------------------------------------------------------------------

# TESTS="verify pack": these programs of tests/ alone.
FAMILIES ?= $(if $(TESTS),units,lint units_first compile_quick examples_first+tiny_lm_first+tiny_lm_gpu_first)

test: $(if $(HAVE_NVCC),ptxrun) ## what runs without a GPU (TESTS="verify pack"); ends "N passed, N failed, N skipped"
	@bash tests/all.sh $(FAMILIES)

test-gpu: ## the same binaries on a GPU, then compute-sanitizer
	@[ -n "$(HAVE_GPU)" ] || { echo "skipped: no GPU here"; exit 2; }
	@SANITIZE=1 bash tests/run.sh

planted: ptxrun ## faults planted in kernels that use the kit: each must be caught
	@bash tests/planted/run.sh

mutate: ptxrun ## break the header in one place at a time: a test must go red (ARGS="--only barrier")
	@python3 tests/mutate/mutate.py $(ARGS)

check-nvcc: ## registers, shared memory, spills per kernel and architecture
	@python3 tests/check_nvcc.py

lint: ## format, anchors, tables, options, names
	@python3 tests/lint.py

ptxrun: ## build the PTX interpreter that tests use without a GPU
	@$(MAKE) -s -j2 -C tests/ptxrun

# ---- bench, examples -------------------------------------------------------------------------

bench: ## times on a GPU; without one, the reference's time and what can be counted
	@bash bench/run.sh $(ARGS)

examples: ## build and run all examples
	@bash examples/run.sh

clean: ## remove everything that was built
	rm -rf $(BUILD) $(addsuffix /build,tests/ptxrun tests/planted tests/compile examples)

.PHONY: help run test test-gpu planted mutate check-nvcc lint ptxrun bench examples clean
