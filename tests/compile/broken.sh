#!/bin/bash
# broken.sh: can the tests of this folder fail?  Each line of the list breaks a copy of the headers
# with one sed command; the named case must fail on it.  Ends with "N passed, N failed, N skipped".
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
out=${OUT:-$here/build}/broken
mkdir -p "$out" || exit 2
passed=0 failed=0 skipped=0

while IFS='|' read -r case edit why; do
  case=${case%"${case##*[! ]}"} why=${why# }
  if ! command -v nvcc >/dev/null && [[ $case != *"gcc"* && $case != *_reference* && $case != fuzz* ]]
  then
    skipped=$((skipped + 1)); echo "skipped $why: no nvcc"; continue
  fi
  rm -rf "$out/headers" && mkdir -p "$out/headers"
  cp "$root/specverify.cuh" "$root/specverify_ref.h" "$out/headers/"
  sed -i "$edit" "$out"/headers/*
  if cmp -s "$root/specverify.cuh" "$out/headers/specverify.cuh" &&
    cmp -s "$root/specverify_ref.h" "$out/headers/specverify_ref.h"; then
    failed=$((failed + 1)); echo "FAILED  $why: the edit changes nothing"; continue
  fi
  HEADERS=$out/headers OUT=$out/run "$here/run.sh" --exact "$case" >"$out/text" 2>&1
  if grep -q ' 1 failed,' "$out/text"; then
    passed=$((passed + 1)); echo "passed  $why"
  elif grep -q ' 1 skipped' "$out/text"; then
    skipped=$((skipped + 1)); echo "skipped $why: $(head -1 "$out/text")"
  else
    failed=$((failed + 1)); echo "FAILED  $why: nothing noticed"; tail -3 "$out/text"
  fi
done <<'LIST'
declarations gcc c c99|s/int32_t batch; .*/int32_t batch = 0;/| C++ in a declaration
declarations gcc c c99|s/size_t token_bytes;/int token_bytes;/| a sign conversion
declarations gcc c c11|s/^struct CUstream_st;/struct cuda_stream;/| no declaration of the stream
reference gcc c c99|s/accepted += 1;/accepted += 2;/| a wrong reference
reference_static gcc c c99|s/#define SPECV_REF_API static SPECV_UNUSED/#define SPECV_REF_API/| a static mode that is not
implementation_in_c gcc c|s/^#error "SPECVERIFY_IMPLEMENTATION.*//| no word about C
hostile_c gcc c c99|s/int64_t drafts = /int64_t N = 0, drafts = N + /| a variable called N
macros_c gcc c|s/^#define SPECV_STATUS_TABLE/#define CEIL_DIV(a, b) (a)\n&/| a macro without prefix
symbols_reference|s/^static int specv_ref_i_is_live/int is_live(void);int is_live(void){return 1;}\n&/| a global without prefix
symbols_reference|s/define SPECV_HIDDEN .*/define SPECV_HIDDEN/| reference functions are exported
old_toolkit|s/__CUDACC_VER_MAJOR__ < 12/0/| old toolkits are not refused
old_architecture|s/__CUDA_ARCH__ < 750/0/| old architectures are not refused
fuzz_random 8|s/specv_i_aligned(kv->offsets, 4)/1/| offsets unchecked
fuzz_random 8|s/specv_i_fits(kv->capacity_rows, dst_stride, 0)/kv->capacity_rows * dst_stride >= 0/| an overflow in the check for overflow
fuzz_random 8|s/(int64_t)r->batch \* ((int64_t)r->max_draft + 1)/(int64_t)(r->batch * (r->max_draft + 1))/| 32-bit arithmetic
fuzz_random 8|s/i < d->num_eos; ++i) {/i <= d->num_eos; ++i) {/| one EOS too many
nvcc -DDECLARED_FIRST -std=c++17|s/^#endif \/\* SPECVERIFY_H_INCLUDED \*\/$//;$s/$/\n#endif/| one guard around everything
nvcc -DSPECVERIFY_STATIC -std=c++17|s/static __device__ __forceinline__ SPECV_UNUSED/static __device__ SPECV_UNUSED inline nope/| device functions do not parse
architecture sm_90|s/__shared__ int32_t bins\[SPECV_TILE_ROWS\]/__shared__ int32_t bins[9 * SPECV_TILE_ROWS]/| more shared memory than a block may have
macros_cuda|s/^#define SPECV_FULL_WARP.*/&\n#define WARP_SIZE 32/| a macro in the device layer
symbols_cuda|s/define SPECV_HIDDEN .*/define SPECV_HIDDEN/| launchers are exported
symbols_static|s/SPECV_LAUNCHER static SPECV_UNUSED/SPECV_LAUNCHER SPECV_EXTERN_C/| a static mode that is not
own_scan|s/if !defined(SPECVERIFY_NO_SHORT_NAMES)/if 1/| short names that stay
own_scan|s/if !defined(SPECVERIFY_NO_SHORT_NAMES)/if 0/| short names that never come
every_function_used|s/^SPECV_DEVFN int specv_warp_first_reject/SPECV_DEVFN int specv_warp_more(int a) { return a; }\n&/| a function that no case compiles
same_ptx sm_90|s/int rejected = (token < 0)/int rejected = ((float)token * 0.3f + 0.1f < 0)/| floating point in a decision
nvrtc compute_90|s/^typedef unsigned long long uint64_t;/#include <stdint.h>/| an include under NVRTC
nvrtc compute_90 -DSPECVERIFY_NO_STDINT -DOWN_STDINT|s/if !defined(SPECVERIFY_NO_STDINT).*/if 1/| types declared twice under NVRTC
two_files|s/SPECV_KERNEL   extern "C" SPECV_HIDDEN/SPECV_KERNEL   static/| kernels of one file only
implementation_twice|s/^#define SPECV_LAUNCHER SPECV_EXTERN_C SPECVERIFY_API/#define SPECV_LAUNCHER SPECV_EXTERN_C __attribute__((weak))/;s/SPECV_KERNEL   extern "C" SPECV_HIDDEN __global__/SPECV_KERNEL   static __global__/| implementations that merge silently
two_libraries first,second|s/define SPECV_HIDDEN .*/define SPECV_HIDDEN/| the first library's launcher runs for both
LIST
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
