#!/bin/bash
# SPDX-License-Identifier: MIT-0
#
# build_gpu.sh OUTPUT ARCH [nvcc flags]: tiny_lm with both backends. tests/tiny_lm.sh adds the flags
# that tests/ptxrun needs. NVCC and CXX choose the compilers.
here=$(cd "$(dirname "$0")" && pwd)
output=${1:?output} arch=${2:?architecture, such as sm_90}
shift 2
exec "${NVCC:-nvcc}" -O3 -arch="$arch" -ccbin "${CXX:-g++}" -DTINY_LM_CUDA -I "$here/../.." \
    -Xcompiler -ffp-contract=off,-Wall,-Wextra,-Wconversion,-Wshadow -Werror all-warnings "$@" \
    -o "$output" "$here"/{tiny_lm.c,model.c,cpu.c,engine.c,tree.c,smc.c,judge.c,gpu.cu} -lpthread
