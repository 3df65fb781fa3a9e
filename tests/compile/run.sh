#!/bin/bash
# run.sh [--quick | --rest | --list] [pattern | --exact case]: does the kit compile, link and stay out of the way
# wherever it is promised to?  Needs gcc and g++; does more with clang, nvcc, NVRTC and ptxrun, and
# says what it left out.  --quick: one compiler of each kind, one GPU architecture; --rest: what
# --quick leaves out; --list: only says what the cases are.
# Ends with "N passed, N failed, N skipped".
#   HEADERS=folder of the kit  OUT=build folder  JOBS=2  NVCC=path  PTXRUN_OUT=folder of ptxrun
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
headers=${HEADERS:-$root}
out=${OUT:-$here/build}
ptxrun=${PTXRUN_OUT:-$root/tests/ptxrun/build}
mode=all
case ${1:-} in --quick | --rest | --list) mode=${1#--}; shift ;; esac
pattern=${1:-.} exact=
[ "$pattern" = --exact ] && exact=$2
[ -x "${NVCC:-}" ] && PATH=$(dirname "$NVCC"):$PATH
rm -rf "$out" && mkdir -p "$out/headers" && out=$(cd "$out" && pwd) || exit 2
cp "$headers/specverify.cuh" "$headers/specverify_ref.h" "$out/headers/" || exit 2
headers=$out/headers # what is edited meanwhile does not matter

version=$(sed -n 's/^#define SPECVERIFY_VERSION  *\([0-9]*\).*/\1/p' "$headers/specverify.cuh")
strict="-Wall -Wextra -Wpedantic -Wconversion -Wsign-conversion -Wshadow -Werror"
# Not -Wpedantic: NVIDIA's own headers and stubs answer it with thousands of warnings.
nvcc_strict="-Werror all-warnings -Xcompiler -Wall,-Wextra,-Wconversion,-Wshadow,-Wsign-conversion"
# What machine code says nothing about stops at PTX, and at PTX that nobody has optimised: minutes.
front="-arch=compute_90 -Xcicc -O0"
# What is about names and linking leaves out the families that take most of the compiler's time.
fewer="-DSPECVERIFY_NO_SAMPLE -DSPECVERIFY_NO_SHARDS -DSPECVERIFY_NO_TREES"
have() { command -v "$1" >/dev/null; }
skip() { echo "$*"; exit 77; }
cuda() { nvcc -I "$headers" "$@"; }
nvrtc_folder() {
  local bin folder
  bin=$(dirname "$(readlink -f "$(command -v nvcc)")")
  for folder in "$bin/../lib64" "$bin/../lib" "$bin/../targets/x86_64-linux/lib"; do
    ls "$folder"/libnvrtc.so* >/dev/null 2>&1 && { (cd "$folder" && pwd); return; }
  done
}

# ---- copies of the kit in one program ----

entry_of() { # the copies "first" and "third" are equal: they take the same place in a program
  case $1 in first) echo first_library ;; *) echo second_library ;; esac
}
copy_kit() { # name; "second" is the next version, with another bit for a bad draft
  mkdir -p "$1" && cp "$headers/specverify.cuh" "$headers/specverify_ref.h" "$1/"
  if [ "$1" = second ]; then
    sed -i -e 's/\(define SPECVERIFY_VERSION \+\)[0-9]*/\199999/' \
      -e 's/\(SPECV_ROW_BAD_DRAFT = 1u << \)1/\15/' "$1/specverify.cuh"
  fi
}
expected_of() { # the second of the two copies: what two_libraries.c is to find
  local other="$version 2"
  [ "$1" = second ] && other="99999 32"
  echo "-DFIRST=$version -DFIRST_BITS=2 -DSECOND=${other% *} -DSECOND_BITS=${other#* }"
}
link_copies() { # command that links, prefix of the one that runs a program
  # kit.o and caller.o of each copy as static archives, in both orders, merged into an object for
  # each copy, and into one object for both: each caller finds its own kit, or one that is equal.
  local name other shape
  for name in first second third; do
    rm -f $name/lib.a && ar rcs $name/lib.a $name/kit.o $name/caller.o &&
      ld -r -o $name/merged.o $name/kit.o $name/caller.o || return 1
  done
  for other in second third; do
    gcc -std=c99 $(expected_of $other) -c -o main.o "$here/two_libraries.c" &&
      ld -r -o both.o first/merged.o $other/merged.o || return 1
    for shape in "first/lib.a $other/lib.a" "$other/lib.a first/lib.a" \
      "first/merged.o $other/merged.o" both.o; do
      echo "$shape"
      $1 -o program main.o $shape && ${2}program || { echo "failed: $shape"; return 1; }
    done
  done
  # A kit that nobody implements is missed by the linker, not by the program.
  $1 -o program main.o first/caller.o third/caller.o 2>text && return 1
  grep -q 'undefined.*specv_' text
}

# ---- without CUDA: plain C and C++ ----

case_declarations() { # compiler, standard
  "$1" -x "$2" -std="$3" $strict -O1 -I "$headers" -c -o declarations.o "$here/declarations.c"
}
case_reference() {
  "$1" -x "$2" -std="$3" $strict -O1 -I "$headers" -o reference "$here/reference.c" && ./reference
}
case_reference_static() {
  "$1" -x "$2" -std="$3" $strict -O1 -I "$headers" -DSPECVERIFY_REF_STATIC -o reference \
    "$here/reference.c" && ./reference && ! nm reference | grep ' [A-Z] specv'
}
case_implementation_in_c() { # refused, and the message says what to do
  "$1" -x "$2" -I "$headers" -c -o x.o "$here/implementation_in_c.c" 2>text
  [ $? -ne 0 ] &&
    grep -m 1 error text | grep -q 'SPECVERIFY_IMPLEMENTATION belongs into one .cu file'
}
case_hostile_c() {
  "$1" -x "$2" -std="$3" $strict -I "$headers" -include "$here/hostile.h" -c -o hostile.o \
    -DSPECVERIFY_REF_IMPLEMENTATION -x "$2" "$headers/specverify_ref.h" 2>text ||
    { cat text; return 1; }
}
case_macros_c() { # every macro that the headers add starts with SPECV
  printf '#include <stddef.h>\n#include <stdint.h>\n' >before.c
  printf '#define SPECVERIFY_REF_IMPLEMENTATION\n#include "specverify_ref.h"\n' >after.c
  "$1" -x "$2" -I "$headers" -dM -E before.c | sort >before.txt
  "$1" -x "$2" -I "$headers" -dM -E after.c | sort >after.txt
  macros_between before.txt after.txt
}
macros_between() {
  comm -13 "$1" "$2" | sed 's/#define \([A-Za-z0-9_]*\).*/\1/' >new.txt
  [ "$(grep -c '^SPECV' new.txt)" -gt 9 ] || { echo "only these macros: $(cat new.txt)"; return 1; }
  ! grep -v '^SPECV' new.txt
}
case_symbols_reference() { # all of them ours (or unnamed constants), with the version; none exported
  gcc -std=c99 -fPIC -O1 -I "$headers" -DSPECVERIFY_REF_IMPLEMENTATION -c -o r.o -x c \
    "$headers/specverify_ref.h" && gcc -shared -o libr.so r.o || return 1
  nm r.o | grep -q " W specv_ref_verify_pack_kv_v$version" || return 1
  ! nm --defined-only r.o | grep -vE ' specv| r \.LC[0-9]+$' && ! nm -D --defined-only libr.so | grep . &&
    ! nm --defined-only --extern-only r.o | grep -v "_v$version\$"
}
case_reference_archives() { # compiler, language, standard: as case_archives below, without CUDA
  local name
  for name in first second third; do
    copy_kit $name
    "$1" -x "$2" -std="$3" -O1 -I $name -DSPECVERIFY_REF_IMPLEMENTATION -c -o $name/kit.o \
      $name/specverify_ref.h || return 1
    "$1" -x "$2" -std="$3" $strict -O1 -I $name -DREFERENCE -DLIBRARY_ENTRY="$(entry_of $name)" -c \
      -o $name/caller.o "$here/library.cu" || return 1
  done
  link_copies "$1" ./
}
case_readme() {
  have python3 || skip "no python3"
  python3 "$here/readme.py" "$headers" "$root/README.md"
}
case_exports_reference() {
  have python3 || skip "no python3"
  python3 "$here/exports.py" reference "$headers" "$root/README.md"
}

# ---- with nvcc ----

case_architecture() { # sm_NN, options
  cuda $nvcc_strict -std=c++17 -arch="$1" "${@:2}" -DWITH_DEVICE_USER -cubin -o x "$here/implementation.cu"
}
case_nvcc() { # any options
  cuda $nvcc_strict $front -DWITH_DEVICE_USER "$@" -c -o x.o "$here/implementation.cu"
}
case_debug() { # all of it to PTX; machine code with -G takes ptxas minutes
  cuda $nvcc_strict -arch=compute_90 -G -DWITH_DEVICE_USER -c -o x.o "$here/implementation.cu" &&
    cuda $nvcc_strict -arch=sm_90 -G $fewer -c -o x.o "$here/implementation.cu"
}
case_clang_host() {
  have clang++ || skip "no clang++"
  case_nvcc -ccbin clang++ "$@"
}
case_old_architecture() { # the preprocessor alone: today's nvcc knows nothing below sm_75
  printf '#include "specverify.cuh"\n' >old.c
  gcc -D__CUDA_ARCH__=700 -I "$headers" -E old.c 2>&1 >/dev/null | grep -q 'needs sm_75 or later'
}
case_old_toolkit() {
  printf '#include "specverify.cuh"\n' >old.c
  gcc -D__CUDACC__ -D__CUDACC_VER_MAJOR__=11 -I "$headers" -E old.c 2>&1 >/dev/null |
    grep -q 'needs CUDA 12 or later'
}
case_hostile_cuda() {
  cuda $front -include "$here/hostile.h" -DWITH_DEVICE_USER -c -o x.o "$here/implementation.cu"
}
case_macros_cuda() {
  printf '#include <cuda_runtime_api.h>\n#include <stdint.h>\n#include <stddef.h>\n' >before.cu
  printf '#define SPECVERIFY_IMPLEMENTATION\n#include "specverify.cuh"\n' >after.cu
  cuda -arch=sm_90 -E -Xcompiler -dM before.cu 2>/dev/null | sort -u >before.txt
  cuda -arch=sm_90 -E -Xcompiler -dM after.cu 2>/dev/null | sort -u >after.txt
  macros_between before.txt after.txt
}
case_symbols_cuda() {
  # The symbols of the file are ours, with the version, or CUDA's inline constructors; none is
  # strong; and a library exports only its own entry.
  cuda $front -Xcompiler -fPIC -c -o x.o "$here/implementation.cu" || return 1
  nm x.o | grep -q " W specv_verify_pack_kv_v$version\$" || return 1
  ! nm --defined-only --extern-only x.o | grep -vE \
    " W specv_[a-z_0-9]+_v$version\$| [Wu] _Z.*specv_[a-z_0-9]+_kernelB[0-9]+v$version|W _ZN4dim3|V DW\.ref" ||
    return 1
  build_library first && nm -D --defined-only libfirst.so >exported &&
    grep -q ' T first_library' exported || return 1
  ! grep -v ' T first_library$\| W _ZN4dim3' exported # CUDA's own inline constructors
}
case_symbols_static() { # nothing but the file's own function
  cuda $nvcc_strict $front -DSPECVERIFY_STATIC -c -o x.o "$here/implementation.cu" || return 1
  nm --defined-only --extern-only x.o | grep ' [TBDR] ' >symbols
  [ "$(wc -l <symbols)" -eq 1 ] && grep -q library_version symbols || { cat symbols; return 1; }
}
case_own_scan() { # without the short names the user may have such a function
  cuda $nvcc_strict -arch=sm_90 -DSPECVERIFY_NO_SHORT_NAMES -ptx -o x.ptx "$here/device_user.cu" &&
    grep -q 'entry own_scan' x.ptx || return 1
  # With them the same program is refused, loudly: a function, not a macro.
  sed 's/defined(SPECVERIFY_NO_SHORT_NAMES)/1/' "$here/device_user.cu" >clash.cu
  cuda -arch=sm_90 -ptx -o y.ptx clash.cu 2>text && return 1
  grep -q 'warp_exclusive_scan' text
}
case_every_function_used() { # what device_user.cu leaves out, no case above compiles
  local name missing=0
  for name in $(grep -oE '^SPECV_DEVFN [a-z_0-9]+( [a-z_0-9]+)? \*?[a-z_0-9]+\(' \
    "$headers/specverify.cuh" | sed 's/.*[ *]\([a-z_0-9]*\)($/\1/' | grep -v '^specv_i_'); do
    grep -qE "[^a-z_]$name\(" "$here/device_user.cu" || { echo "not called: $name"; missing=1; }
  done
  [ -n "$name" ] && [ "$missing" = 0 ]
}
case_same_ptx() { # the vendor's floating-point flags change nothing in kernels of users
  local flags number=0
  for flags in "" --use_fast_math -ftz=true -fmad=false "-prec-div=false -prec-sqrt=false"; do
    cuda -arch="$1" $flags -ptx -o "$number.ptx" "$here/device_user.cu" || return 1
    grep -v '^//' "$number.ptx" >"$number.body"
    cmp 0.body "$number.body" || { echo "differs: $flags"; return 1; }
    number=$((number + 1))
  done
  grep -q 'entry long_names' 0.body
}
case_nvrtc() { # architecture, options
  local folder
  folder=$(nvrtc_folder)
  [ -n "$folder" ] || skip "no libnvrtc beside nvcc"
  nvcc -x c -o nvrtc "$here/nvrtc.c" -L "$folder" -lnvrtc || return 1
  LD_LIBRARY_PATH="$folder:${LD_LIBRARY_PATH:-}" \
    ./nvrtc "$here/device_user.cu" "$headers/specverify.cuh" "$@"
}

# ---- programs that run, on ptxrun ----

need_ptxrun() {
  [ -f "$ptxrun/libcudart.so.13" ] || skip "ptxrun is not built: make -C tests/ptxrun"
}
run_program() {
  LD_LIBRARY_PATH="$ptxrun:${LD_LIBRARY_PATH:-}" PTXRUN_EXIT=1 PTXRUN_QUIET=1 "$@"
}
case_two_files() { # options of nvcc: one file implements, another uses kernels and launchers
  cuda $nvcc_strict -arch=sm_90 $fewer -cudart shared -no-compress "$@" -o two_files \
    "$here/implementation.cu" "$here/user.cu" || return 1
  [[ " $* " == *" -rdc=true "* ]] && return 0 # the linker leaves no PTX to interpret
  need_ptxrun
  run_program ./two_files
}
build_library() { # name
  copy_kit "$1"
  nvcc -I "$1" -arch=compute_90 $fewer -cudart shared -no-compress -Xcompiler -fPIC -shared \
    -DSPECVERIFY_IMPLEMENTATION -DLIBRARY_ENTRY="$(entry_of "$1")" -o "lib$1.so" "$here/library.cu"
}
run_linked() { # unless there is no PTX to interpret
  [ -n "${linked_only:-}" ] || run_program "$@"
}
case_archives() { # language of the callers, options of nvcc
  local language=$1 linked_only='' name
  shift
  if [[ " $* " == *" -rdc=true "* ]]; then linked_only=1; set -- -arch=sm_90 $fewer "$@"
  else need_ptxrun; set -- -arch=compute_90 $fewer -no-compress "$@"; fi
  for name in first second third; do
    copy_kit $name
    nvcc "$@" -DSPECVERIFY_IMPLEMENTATION -x cu -c -o $name/kit.o \
      $name/specverify.cuh || return 1
    nvcc "$@" -I $name -DLIBRARY_ENTRY="$(entry_of $name)" \
      -x "$language" -c -o $name/caller.o "$here/library.cu" || return 1
  done
  link_copies "nvcc -cudart shared $*" "run_linked ./"
}
case_families() { # each alone; CPU seconds and bytes of >>greedy alone
  have python3 || skip "no python3"
  python3 "$here/families.py" check "$headers" "$@"
}
case_exports_kit() {
  have python3 || skip "no python3"
  python3 "$here/exports.py" kit "$headers" "$root/README.md" "$ptxrun"
}
case_two_libraries() { # each runs its own launcher and its own kernel
  local order=$1
  build_library first && build_library second || return 1
  gcc -std=c99 $(expected_of second) -o two_libraries \
    "$here/two_libraries.c" -L . -l"${order%,*}" -l"${order#*,}" -L "$ptxrun" \
    -Wl,-rpath,"$PWD",--allow-shlib-undefined || return 1
  need_ptxrun
  run_program ./two_libraries
}

# ---- validation, fuzzed ----

case_fuzz_random() { # no fuzzer needed: random and nearly valid descriptors, sanitizers on
  gcc -std=gnu99 -O1 -g -Wall -Wextra -Werror -fsanitize=address,undefined \
    -fno-sanitize-recover=all -I "$headers" -DPLAIN_RANDOM -o fuzz "$here/fuzz_validate.c" &&
    ./fuzz "$1"
}
case_fuzz_guided() { # runs; fuzz_validate.c says how to search for longer, from another seed
  have clang || skip "no clang"
  clang -std=gnu99 -O1 -g -Wall -Wextra -Werror -fsanitize=fuzzer,address,undefined \
    -fno-sanitize-recover=all -I "$headers" -o fuzz "$here/fuzz_validate.c" 2>text || {
    grep -q 'cannot find.*clang_rt\|libclang_rt.*No such file' text &&
      skip "clang without its fuzzer runtime (Debian: libclang-rt-14-dev)"
    cat text; return 1
  }
  mkdir -p corpus && ./fuzz -seed=1 -runs="$1" -max_len=600 -print_final_stats=1 -verbosity=1 \
    corpus >text 2>&1 || { tail -40 text; return 1; }
  grep -q 'stat::number_of_executed_units: [0-9]\{4,\}' text || { tail -20 text; return 1; }
}

# ---- the list ----

declare -A is_quick

add() { cases+=("$*"); }
list_cases() { # 1: the quick ones only
  local quick=$1 languages language family compiler standard
  cases=()
  languages="c:c99 c:c11 c:c17 c++:c++11 c++:c++14 c++:c++17 c++:c++20"
  [ $quick = 1 ] && languages="c:c99 c++:c++11"
  for language in $languages; do
    for family in gcc clang; do
      compiler=$family
      [ "${language%%:*}" = c++ ] && { [ $family = gcc ] && compiler=g++ || compiler=clang++; }
      [ $quick = 1 ] && [ $family = clang ] && continue
      add declarations $compiler ${language/:/ }
      add reference $compiler ${language/:/ }
    done
  done
  for compiler in gcc clang; do
    [ $quick = 1 ] && [ $compiler = clang ] && continue
    add reference_static $compiler c c99
    add reference_static $compiler c++ c++17
    add implementation_in_c $compiler c
    add implementation_in_c $compiler c++
    add hostile_c $compiler c c99
    add hostile_c $compiler c++ c++17
    add macros_c $compiler c
    add macros_c $compiler c++
  done
  add readme
  add symbols_reference
  add exports_reference
  add reference_archives gcc c c99
  [ $quick = 1 ] || add reference_archives clang++ c++ c++17
  add old_toolkit
  add old_architecture
  add every_function_used
  add fuzz_random 4
  [ $quick = 1 ] || add fuzz_guided 500000

  if have nvcc; then
    add architecture sm_90 # check_nvcc.py compiles the same for every other
    add nvcc -DSPECVERIFY_STATIC -DDECLARED_FIRST -rdc=true
    add nvcc -DSPECVERIFY_NO_VALIDATE -std=c++17
    add hostile_cuda
    add macros_cuda
    add symbols_cuda
    add own_scan
    add same_ptx sm_90
    add nvrtc compute_90
    add two_files
    add two_libraries first,second
    add archives c
    add exports_kit
    if [ $quick = 0 ]; then
      for standard in 11 14 17 20; do
        add nvcc -std=c++$standard
        add clang_host -std=c++$standard
      done
      add nvcc -rdc=true -std=c++17
      add nvcc -DDECLARED_FIRST -std=c++17
      add nvcc -DSPECVERIFY_STATIC -std=c++17
      add symbols_static
      add families sm_90
      add architecture sm_90a $fewer
      add debug
      add nvcc -DSPECVERIFY_NO_SHORT_NAMES
      add clang_host -DSPECVERIFY_STATIC
      add clang_host -rdc=true
      add clang_host -DSPECVERIFY_NO_VALIDATE
      add nvrtc compute_75
      add nvrtc compute_90 --std=c++11
      add nvrtc compute_90 --use_fast_math
      add nvrtc compute_90 -DSPECVERIFY_NO_STDINT -DOWN_STDINT
      add nvrtc compute_90 -DSPECVERIFY_NO_SHORT_NAMES
      add two_files -rdc=true
      add two_files -std=c++11 -ccbin clang++
      add two_libraries second,first
      add archives c++ -ccbin clang++
      add archives cu
      add archives c++ -rdc=true
      add archives cu -rdc=true -ccbin clang++
    fi
  fi
}
list_cases 1
if [ $mode != quick ]; then
  for words in "${cases[@]}"; do is_quick[$words]=1; done
  list_cases 0
fi

[ $mode = list ] && { printf '%s\n' "${cases[@]}"; exit; }

# ---- run them, two at a time ----

run_case() { # number: its words were added above
  local words number=$1 status start=$EPOCHSECONDS
  read -r -a words <<<"${cases[$number]}"
  mkdir -p "$out/$number" && cd "$out/$number" || return
  case ${words[1]:-} in
  clang | clang++) have "${words[1]}" || { echo "no ${words[1]}"; echo 77 >status; return; } ;;
  esac
  ( "case_${words[0]}" "${words[@]:1}" ) >log 2>&1
  status=$?
  [ $status -eq 0 ] && [ -z "${KEEP:-}" ] && find . -type f ! -name log -delete
  echo $status >status
  echo $((EPOCHSECONDS - start)) >seconds
}

passed=0 failed=0 skipped=0 running=0 chosen=() failures=()
for number in "${!cases[@]}"; do
  [ $mode = rest ] && [ -n "${is_quick[${cases[$number]}]:-}" ] && continue
  if [ -n "$exact" ]; then
    [ "${cases[$number]}" = "$exact" ] || continue
  else
    [[ ${cases[$number]} =~ $pattern ]] || continue
  fi
  chosen+=("$number")
  [ $running -ge "${JOBS:-2}" ] && { wait -n; running=$((running - 1)); }
  run_case "$number" &
  running=$((running + 1))
done
wait
for number in "${chosen[@]}"; do
  status=$(cat "$out/$number/status" 2>/dev/null || echo none)
  case $status in
  0) passed=$((passed + 1)); echo "passed  ${cases[$number]} ($(cat "$out/$number/seconds") s)" ;;
  77) skipped=$((skipped + 1)); echo "skipped ${cases[$number]}: $(tail -1 "$out/$number/log")" ;;
  *) failures+=("$number") ;;
  esac
done
for number in "${failures[@]}"; do # last, where they are seen
  failed=$((failed + 1))
  echo "FAILED  ${cases[$number]}"
  tail -15 "$out/$number/log"
done
if ! have nvcc; then
  skipped=$((skipped + 1))
  echo "skipped everything in CUDA: no nvcc"
fi
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
