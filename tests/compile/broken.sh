#!/bin/bash
# broken.sh: can the tests of this folder fail?  Each paragraph of the list breaks a copy of the
# headers with the sed commands behind its first line, which says how; the case at its end must fail
# on the copy, and pass on the headers as they are.  Ends with "N passed, N failed, N skipped".
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
out=${OUT:-$here/build}/broken
[ -x "${NVCC:-}" ] && PATH=$(dirname "$NVCC"):$PATH
rm -rf "$out" && mkdir -p "$out/kit" || exit 2
cp "$root/specverify.cuh" "$root/specverify_ref.h" "$out/kit/" || exit 2
jobs=${JOBS:-$(nproc 2>/dev/null || echo 2)}

count() { # passed | failed | skipped, text
  case $1 in
  passed) echo "passed  $2" ;;
  skipped) echo "skipped $2" ;;
  failed) echo "FAILED  $2" ;;
  esac
}

break_one() { # why, edits, case
  local why=$1 edits=$2 case=$3
  if ! command -v nvcc >/dev/null && [[ ! $case =~ gcc|_reference|^old_|^fuzz|^every_ ]]; then
    count skipped "$why: no nvcc"; return
  fi
  rm -rf "$mine/headers" && mkdir -p "$mine/headers"
  cp "$out"/kit/* "$mine/headers/"
  sed -i "$edits" "$mine"/headers/*
  if diff -rq "$out/kit" "$mine/headers" >/dev/null; then
    count failed "$why: the edit changes nothing"; return
  fi
  HEADERS=$mine/headers OUT=$mine/run "$here/run.sh" --exact "$case" >"$mine/text" 2>&1
  if grep -q ' 1 failed,' "$mine/text"; then
    if [ -z "${sound[$case]:-}" ]; then
      HEADERS=$out/kit OUT=$mine/run "$here/run.sh" --exact "$case" >"$mine/text" 2>&1
      sound[$case]=$?
    fi
    if [ "${sound[$case]}" = 0 ]; then count passed "$why"
    else count failed "$why: $case fails anyway"; fi
  elif grep -q ' 1 skipped' "$mine/text"; then count skipped "$why: $(head -1 "$mine/text")"
  elif grep -q '^0 passed, 0 failed' "$mine/text"; then count failed "$why: no case '$case'"
  else count failed "$why: nothing noticed"; fi
}

# Paragraphs of one case go to one worker, which asks once whether the kit as it is passes it.
whys=() all_edits=() cases=()
why='' edits='' last=''
while IFS= read -r line; do
  if [ -n "$line" ]; then
    if [ -z "$why" ]; then why=$line
    else edits+=${last:+$last$'\n'} last=$line; fi
  elif [ -n "$why" ]; then
    whys+=("$why") all_edits+=("${edits%$'\n'}") cases+=("$last")
    why='' edits='' last=''
  fi
done <<'LIST'
C++ in a declaration
s/int32_t batch; .*/int32_t batch = 0;/
declarations gcc c c99

a sign conversion
s/size_t token_bytes;/int token_bytes;/
declarations gcc c c99

no declaration of the stream
s/^struct CUstream_st;/struct cuda_stream;/
declarations gcc c c11

a wrong reference
s/accepted += 1;/accepted += 2;/
reference gcc c c99

a static mode that is not
s/#define SPECV_REF_API  *static SPECV_UNUSED/#define SPECV_REF_API/
reference_static gcc c c99

no word about C
s/^#error "SPECVERIFY_IMPLEMENTATION.*//
implementation_in_c gcc c

a variable called N
s/int64_t drafts = /int64_t N = 0, drafts = N + /
hostile_c gcc c c99

a macro without prefix
s/^#define SPECV_STATUS_TABLE/#define CEIL_DIV(a, b) (a)\n&/
macros_c gcc c

a global without prefix
s/^static int specv_ref_i_is_live/int is_live(void);\nint is_live(void) { return 1; }\n&/
symbols_reference

reference functions are exported
s/define SPECV_HIDDEN .*/define SPECV_HIDDEN/
symbols_reference

old toolkits are not refused
s/__CUDACC_VER_MAJOR__ < 12/0/
old_toolkit

old architectures are not refused
s/__CUDA_ARCH__ < 750/0/
old_architecture

offsets unchecked
s/specv_i_aligned(kv->offsets, 4)/1/
fuzz_random 4

an overflow in the check for overflow
s/specv_i_fits(kv->capacity_rows, dst_stride, 0)/kv->capacity_rows * dst_stride >= 0/
fuzz_random 4

32-bit arithmetic
s/(int64_t)r->batch \* ((int64_t)r->max_draft + 1)/r->batch * (r->max_draft + 1)/
fuzz_random 4

scratch memory one byte short
s/d->scratch_bytes >= bytes, SCRATCH/d->scratch_bytes >= bytes - 1, SCRATCH/
fuzz_random 4

an area of scratch memory too small
s/sizeof(specv_tile);/sizeof(specv_i_residual);/
fuzz_random 4

an output of the sampler unchecked
s/v.lse = d->lse;//
fuzz_random 4

one EOS too many
s/i < d->num_eos; ++i) {/i <= d->num_eos; ++i) {/
fuzz_random 4

one guard around everything
s/^#endif \/\* SPECVERIFY_H_INCLUDED \*\/$//
$s/$/\n#endif/
nvcc -DDECLARED_FIRST -std=c++17

device functions do not parse
s/static __device__ __forceinline__ SPECV_UNUSED/static __device__ nope/
nvcc -DSPECVERIFY_STATIC -std=c++17

more shared memory than a block may have
s/__shared__ int32_t bins\[/&99 * /
architecture sm_90a -DSPECVERIFY_NO_SAMPLE -DSPECVERIFY_NO_SHARDS -DSPECVERIFY_NO_TREES

a macro in the device layer
s/^#define SPECV_FULL_WARP.*/&\n#define WARP_SIZE 32/
macros_cuda

launchers are exported
s/define SPECV_HIDDEN .*/define SPECV_HIDDEN/
symbols_cuda

a static mode that is not
s/SPECV_LAUNCHER  *static SPECV_UNUSED/SPECV_LAUNCHER SPECV_EXTERN_C/
symbols_static

short names that stay
s/ && !defined(SPECVERIFY_NO_SHORT_NAMES)//
own_scan

short names that never come
s/if defined(__CUDACC__) && !defined(SPECVERIFY_NO_SHORT_NAMES)/if 0/
own_scan

a function that no case compiles
s/^SPECV_DEVFN int specv_warp_first_reject/SPECV_DEVFN int specv_warp_more(void);\n&/
every_function_used

floating point in a decision
s/int rejected = (token < 0)/int rejected = ((float)token * 0.3f + 0.1f < 0)/
same_ptx sm_90

an include under NVRTC
s/^typedef unsigned long long uint64_t;/#include <stdint.h>/
nvrtc compute_90

types declared twice under NVRTC
s/if !defined(SPECVERIFY_NO_STDINT).*/if 1/
nvrtc compute_90 -DSPECVERIFY_NO_STDINT -DOWN_STDINT

kernels of one file only
s/SPECV_I_GLOBAL SPECV_HIDDEN .*/SPECV_I_GLOBAL static __global__ void/
two_files

the first library's launcher runs for both
s/define SPECV_HIDDEN .*/define SPECV_HIDDEN/
s/SPECV_AS(name) __asm__.*/SPECV_AS(name)/
two_libraries first,second

the first archive's launcher runs for both
s/SPECV_AS(name) __asm__.*/SPECV_AS(name)/
archives c

the first archive's kernel runs for both
s/__attribute__((abi_tag([A-Z_]*)))//
archives c

equal launchers do not link
s/SPECV_API_BODY SPECV_API SPECV_WEAK/SPECV_API_BODY SPECV_API/
archives c

equal kernels do not link on the device
s/SPECV_I_INLINE inline/SPECV_I_INLINE SPECV_WEAK/
archives c++ -rdc=true

a launcher without version
s/ SPECV_AS(specv_shift_kv)//
symbols_cuda

a launcher that other languages do not find
s/^SPECV_HOSTAPI \(const char\)/SPECV_HOSTFN \1/
exports_kit

the first archive's reference runs for both
s/SPECV_AS(name) __asm__.*/SPECV_AS(name)/
reference_archives gcc c c99

equal references do not link
s/SPECV_API_BODY SPECV_API SPECV_WEAK/SPECV_API_BODY SPECV_API/
reference_archives gcc c c99

a missing reference is null
s/define SPECV_API      SPECV_EXTERN_C/& SPECV_WEAK/
reference_archives gcc c c99

a reference without version
s/ SPECV_AS(specv_ref_diff)//
symbols_reference

exported names with a version
s/^#if defined(SPECVERIFY_EXPORT) ||/#if/
exports_reference

LIST

work() { # number of this worker
  declare -A sound # does the case pass on the kit as it is?
  local mine=$out/$1
  mkdir -p "$mine"
  for i in "${!whys[@]}"; do
    [ "${worker[${cases[$i]}]}" = "$1" ] || continue
    break_one "${whys[$i]}" "${all_edits[$i]}" "${cases[$i]}" </dev/null
  done >"$out/log$1"
}
declare -A worker
next=0
for case in "${cases[@]}"; do
  [ -n "${worker[$case]:-}" ] && continue
  worker[$case]=$next next=$(((next + 1) % jobs))
done
for ((w = 0; w < jobs; ++w)); do work $w & done
wait
cat "$out"/log*
passed=$(cat "$out"/log* | grep -c '^passed ')
skipped=$(cat "$out"/log* | grep -c '^skipped ')
failed=$((${#whys[@]} - passed - skipped)) # one without a word failed
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
