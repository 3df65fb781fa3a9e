#!/bin/bash
# flags.sh: the same bits under every compiler and flag. The last line is "N passed, N failed, N
# skipped".
#   CC=gcc NVCC=nvcc ARCH=sm_90   compilers
#   BUILD=build  OUT=$BUILD/tests  where binaries go
# Host: tests/numeric.cu holds digests of all functions and of sampled verification, tests/bits.cu
# of every operation, and knows what they must be; each build must find the same.
# Flags that break the arithmetic must be refused. Device: what nvcc makes of the same functions may
# not depend on its floating-point flags, so the PTX is compared, function by function.
cd "$(dirname "$0")/.." || exit 2
PATH="$PATH:/usr/local/cuda/bin"
CC=${CC:-gcc}
NVCC=${NVCC:-nvcc}
ARCH=${ARCH:-sm_90}
OUT=${OUT:-${BUILD:-build}/tests}/flags
rm -rf "$OUT" && mkdir -p "$OUT" || exit 2
# An edit while this runs must not look like a difference between flags.
cp specverify.cuh specverify_ref.h "$OUT" || exit 2
passed=0 failed=0 skipped=0

pass() { passed=$((passed + 1)); }
fail() { # what, a file to show the end of
  printf 'FAIL %s\n' "$1"
  [ -n "$2" ] && tail -n 12 "$2"
  failed=$((failed + 1))
}
skip() {
  printf 'skipped %s\n' "$1"
  skipped=$((skipped + 1))
}

# ---- host: every build finds the same digests ---------------------------------------------------

warnings="-Wall -Wextra -Wconversion -Wshadow -I$OUT"
c99="-x c -std=c99"
other_compiler=clang
[ "$CC" = clang ] && other_compiler=
can_build() { echo 'int main(void) { return 0; }' | "$@" - -o "$OUT/probe" 2> /dev/null; }
same_bits() { # source, compiler and flags
  local source=$1 log=$OUT/host.log first=$OUT/first-digests-$1
  shift
  if ! can_build "$@"; then
    skip "$source, $*: this machine cannot build with it"
  elif ! "$@" $warnings "tests/$source" -o "$OUT/program" -lm > "$log" 2>&1; then
    fail "$source, $*: does not build" "$log"
  elif [ -s "$log" ]; then
    fail "$source, $*: warnings" "$log"
  elif ! "$OUT/program" --quick > "$log" 2>&1; then
    fail "$source, $*: $(grep -c ^FAIL "$log") messages" "$log"
  elif ! grep '^digest: 0x' "$log" > "$OUT/digests"; then
    fail "$source, $*: no digest" "$log"
  else
    [ -f "$first" ] || cp "$OUT/digests" "$first"
    if ! grep -vxFf "$first" "$OUT/digests" > "$log"; then pass # the first has all of them
    else fail "$source, $*: other digests than the first build's" "$log"; fi
  fi
}
for flags in -O0 -O3 "-O3 -march=native" "-O2 -ffp-contract=fast -march=native" \
  "-O2 -fno-builtin -mno-fma -DSPECVERIFY_REF_PORTABLE"; do
  same_bits numeric.cu "$CC" $c99 $flags
done
for flags in -O0 -O3 "-O3 -march=native" "-O3 -march=native -ffp-contract=fast"; do
  [ -z "$other_compiler" ] || same_bits numeric.cu $other_compiler $c99 $flags
done
floats=-DBITS_OF_FLOATS # the other operations take most of the time, and no flag is about them
for cc in "$CC" $other_compiler; do
  for flags in -O0 "-O1 -march=native $floats" "-O2 $floats" "-O2 -march=native $floats" \
    "-O2 $floats -DSPECVERIFY_REF_PORTABLE" \
    "-O3 -march=native -ffp-contract=fast"; do
    same_bits bits.cu "$cc" -x c -std=gnu17 $flags
  done
  for flags in "-O3 -march=native" "-O2 -march=native -ffp-contract=fast"; do
    same_bits bits.cu "$cc" $c99 $flags $floats
  done
  for standard in c++11 c++20; do
    same_bits bits.cu "$cc" -x c++ -std=$standard -O2 -march=native $floats
  done
done

# Where this machine has no FMA, nothing above could have been contracted. But code for one that has
# must be the same to the byte, whether contraction is allowed or not.
fma=
[ "$(uname -m)" = x86_64 ] && fma="-mavx2 -mfma"
for cc in "$CC" $other_compiler; do
  build="$cc -x c -std=gnu17 -O3 $fma $floats $warnings"
  if ! can_build $build; then
    skip "$build: this machine cannot build with it"
  elif ! $build -ffp-contract=off -c tests/bits.cu -o "$OUT/off.o" ||
    ! $build -ffp-contract=fast -c tests/bits.cu -o "$OUT/fast.o"; then
    fail "$build: does not build"
  elif cmp "$OUT/off.o" "$OUT/fast.o"; then
    pass
  else
    fail "$build: -ffp-contract=fast changes the code"
  fi
done

# ---- host: what cannot keep the bits is refused -------------------------------------------------

refused() { # words of the message, compiler and flags
  local words=$1 log=$OUT/refused.log
  shift
  if ! can_build "$@" $c99; then
    skip "$*: this machine cannot build with it"
  elif "$@" $c99 $warnings -fsyntax-only tests/numeric.cu > "$log" 2>&1; then
    fail "$*: was not refused"
  elif ! grep -q "error.*$words" "$log"; then
    fail "$*: fails without the message \"$words\"" "$log"
  else
    pass
  fi
}
is_clang() { "$1" --version 2> /dev/null | grep -q clang; }
for cc in "$CC" $other_compiler; do
  for flags in -ffast-math -Ofast "-O2 -ffast-math" -ffinite-math-only; do
    refused "only without -ffast-math" "$cc" $flags
  done
  # The other parts of -ffast-math: clang does not tell the program that it has them.
  is_clang "$cc" && break
  for flags in -funsafe-math-optimizations -freciprocal-math \
    "-fassociative-math -fno-signed-zeros -fno-trapping-math"; do
    refused "only without -ffast-math" "$cc" $flags
  done
done
if [ "$(uname -m)" = x86_64 ] && ! is_clang "$CC"; then
  refused "use -mfpmath=sse, not x87" "$CC" -mfpmath=387
else
  skip "-mfpmath=387: only gcc on x86-64 has it"
fi

# ---- device: the PTX does not depend on floating-point flags ------------------------------------

# A kernel for each function, so that a difference has a name.
cat > "$OUT/exact.cu" << 'EOF'
#include "specverify.cuh"

#define SCORES const float *x, const specv_scale *s
#define KERNEL(name, parameters, body)                                                             \
    extern "C" __global__ void numeric_##name parameters {                                         \
        int i = (int)threadIdx.x;                                                                  \
        body;                                                                                      \
    }

KERNEL(fma, (const float *x, float *y), y[i] = specv_fma(x[i], x[i + 1], x[i + 2]))
KERNEL(max, (const float *x, float *y), y[i] = specv_i_max(x[i], x[i + 1]))
KERNEL(divide, (const float *x, float *y), y[i] = specv_i_div(x[i], x[i + 1]))
KERNEL(accept, (const float *x, int *y), y[i] = specv_accept(x[i], x[i + 1], x[i + 2]))
KERNEL(f16_float, (const uint32_t *x, float *y), y[i] = specv_f16_float(x[i]))
KERNEL(bf16_float, (const uint32_t *x, float *y), y[i] = specv_bf16_float(x[i]))
KERNEL(philox, (const uint32_t *x, specv_random *y),
       y[i] = specv_philox(x[i], x[i + 1], x[i + 2], x[i + 3], x[i + 4]))
KERNEL(uniform24, (const uint32_t *x, float *y), y[i] = specv_uniform24(x[i]))
KERNEL(uniform_bits, (const float *x, uint64_t *y), y[i] = specv_uniform_bits(x[i]))
KERNEL(temperature, (const float *x, int *y),
       y[i] = specv_temperature_ok(x[i]) + 2 * specv_temperature_is_0(x[i]))
KERNEL(scale, (const float *x, specv_scale *y), y[i] = specv_softmax_scale(x[i]))
KERNEL(in_range, (SCORES, int *y), y[i] = specv_in_range(x[i], s))
KERNEL(weight, (SCORES, specv_weight *y),
       y[i] = specv_softmax_weight(specv_i_max(x[i], s->floor), s))
KERNEL(weight_units, (const specv_weight *w, uint64_t *y), y[i] = specv_weight_units(&w[i], i))
KERNEL(weight_float, (const specv_weight *w, float *y), y[i] = specv_weight_float(&w[i], i))
KERNEL(fixed50, (const float *x, uint64_t *y), y[i] = specv_fixed50(x[i]))
KERNEL(exp2, (const float *x, float *y), y[i] = specv_exp2(x[i]))
KERNEL(log2, (const float *x, float *y), y[i] = specv_log2(x[i]))
KERNEL(fixed24, (const float *x, int *y), y[i] = specv_i_fixed24(x[i]))
KERNEL(gumbel24, (const uint32_t *x, int *y), y[i] = specv_gumbel24(x[i], x[i + 1]))
KERNEL(uniform, (const specv_random *x, float *y), y[i] = specv_uniform(&x[i]))
KERNEL(score, (const specv_weight *w, int64_t *y), y[i] = specv_i_score(w[i].n, w[i].f, i))
KERNEL(inverse, (specv_distribution *x), specv_i_set_inverse(&x[i]))
KERNEL(probability, (SCORES, const specv_distribution *row, float *y),
       y[i] = specv_probability(row, s, x[i], i))
KERNEL(log2_sum, (const specv_distribution *row, double *y), y[i] = specv_i_log2_sum(&row[i]))
KERNEL(ln, (const float *x, const double *z, float *y), y[i] = specv_i_ln(i, x[i], z[i]))
KERNEL(double_to_float, (const double *x, float *y), y[i] = specv_i_float(x[i]))
KERNEL(add_double, (const double *x, double *y), y[i] = specv_i_add_double(x[i], x[i + 1]))
KERNEL(mul_double, (const double *x, double *y), y[i] = specv_i_mul_double(x[i], x[i + 1]))
KERNEL(div_double, (const double *x, double *y), y[i] = specv_i_div_double(x[i], x[i + 1]))
KERNEL(weigh, (const double *w, const float *x, double *y),
       y[i] = specv_i_weigh(w[i], x[i], x[i + 1], x[i + 2]))
KERNEL(particle_units, (const double *w, uint64_t *y),
       y[i] = specv_i_particle_units(w[i], w[i + 1]))
KERNEL(effective, (const uint64_t *w, double *y),
       y[i] = specv_i_effective(w[i], w[i + 1], w[i + 2], w[i + 3]))
KERNEL(log_mean, (const uint64_t *sum, const double *max, double *y),
       y[i] = specv_i_log_mean(sum[i], i, max[i]))
EOF

# One file per function in a folder; what is outside functions goes to "outside". Comments, line
# numbers and file checksums are not code.
split_ptx() { # PTX file, folder
  mkdir -p "$2"
  awk -v folder="$2" '
    /^[ \t]*\/\// || /^[ \t]*\.(file|loc)[ \t]/ || /^[ \t]*$/ { next }
    match($0, /\.(entry|func)[ \t]+/) && !/;$/ {
      name = $0
      sub(/.*\.(entry|func)[ \t]+(\([^)]*\)[ \t]*)?/, "", name)
      sub(/[^A-Za-z0-9_$].*/, "", name)
      file = folder "/" name
    }
    { print > (file == "" ? folder "/outside" : file) }
    /^}/ { file = "" }' "$1"
}
same_ptx() { # "" or the kernels, flags...: each makes what none makes
  local kernels=$1 variant=0 flags folder file name
  shift
  rm -rf "$OUT"/ptx[0-9]
  for flags in "" "$@"; do
    folder=$OUT/ptx$variant
    if ! "$NVCC" -arch="$ARCH" -ptx $kernels $flags "$OUT/exact.cu" -o "$OUT/exact.ptx" \
      > "$OUT/nvcc.log" 2>&1; then
      fail "nvcc $flags: does not build" "$OUT/nvcc.log"
      return
    fi
    split_ptx "$OUT/exact.ptx" "$folder"
    if [ $variant = 0 ]; then
      # Each kernel above, so that an empty comparison is none.
      [ "$(find "$folder" -name 'numeric_*' | wc -l)" = "$(grep -c '^KERNEL(' "$OUT/exact.cu")" ] ||
        fail "nvcc: kernels are missing"
    else
      for file in "$OUT"/ptx0/*; do
        name=${file##*/}
        if cmp -s "$file" "$folder/$name"; then pass
        else
          diff "$file" "$folder/$name" > "$OUT/difference" 2>&1
          fail "PTX of $name differs under $flags" "$OUT/difference"
        fi
      done
      for file in "$folder"/*; do
        [ -f "$OUT/ptx0/${file##*/}" ] || fail "PTX of ${file##*/} exists only under $flags"
      done
    fi
    variant=$((variant + 1))
  done
}
if ! command -v "$NVCC" > /dev/null; then
  skip "PTX under --use_fast_math, -ftz=true, -fmad=false: no nvcc"
else
  # What --use_fast_math stands for one by one, too, of the functions alone: a build of all kernels
  # takes half a minute.
  same_ptx -DSPECVERIFY_IMPLEMENTATION --use_fast_math -fmad=false
  same_ptx "" --use_fast_math -ftz=true -prec-div=false -prec-sqrt=false
fi

printf '%d passed, %d failed, %d skipped\n' $passed $failed $skipped
[ $failed = 0 ]
