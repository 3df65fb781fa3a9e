#!/bin/sh
# SPDX-License-Identifier: MIT-0
#
# tiny_lm.sh - the whole program examples/tiny_lm: text and KV caches must not depend on batch,
# gamma, budget, tree, kind of cache, schedule or compiler, with filters or without; sampled texts
# must have the law of plain sampling; caches of particles must be those of their texts, and their
# weights without bias; what is told of tokens must be that of plain decoding; damaged input must be
# refused; a broken commit or a random number used twice must be noticed.
#
# usage: tests/tiny_lm.sh [--first] [build folder]     ($BUILD/tiny_lm-tests; BUILD is build)
# --first: without sanitizers and without broken programs.
# CC, CLANG choose compilers. The CUDA backend is tiny_lm_gpu.sh's.

cd "$(dirname "$0")/.." || exit 2
first=
[ "${1:-}" = --first ] && first=1 && shift
out=${1:-${BUILD:-build}/tiny_lm-tests}
. tests/tiny_lm_common.sh

# ---- the C backend in many settings -------------------------------------------------------------

for gamma in 1 4 8; do
    for batch in 1 3 8 32; do
        runs "g$gamma-b$batch" "$all32" \
            "$out/tiny_lm" --backend cpu --tokens 24 --gamma $gamma --batch $batch
        equals "g$gamma-b$batch" g1-b1
    done
done
runs long-drafts "$all32" "$out/tiny_lm" --backend cpu --tokens 24 --gamma 64 && equals long-drafts g1-b1
runs one-token "$all32" "$out/tiny_lm" --backend cpu --tokens 1

# Known answer: these counts, and so every draft and every verdict, are part of the design.
runs default "$all32" "$out/tiny_lm" --backend cpu
if grep -q '^drafts  *2354 proposed, 1437 accepted$' "$out/default"; then pass; else
    fail "default: other drafts than 2354 proposed, 1437 accepted"
fi
if [ "$("$out/tiny_lm" --backend cpu --tokens 4 --quiet 2>&1)" = "$all32" ]; then pass; else
    fail "--quiet prints more than the last line"
fi

# To the last position that the models have, and with bytes that no text has.
head -c 200 /dev/zero | tr '\0' a >"$out/prompts-full"
runs full-context "identical to plain decoding: 1 of 1" \
    "$out/tiny_lm" --backend cpu --prompts "$out/prompts-full" --tokens 56
{ cat "$out/prompts-full" && printf '\nAnd'; } >"$out/prompts-full-2"
printf '\001\377\200\\\n \na' >"$out/prompts-odd"
runs odd-bytes "identical to plain decoding: 3 of 3" \
    "$out/tiny_lm" --backend cpu --prompts "$out/prompts-odd" --tokens 16

# ---- other compilers, sanitizers ----------------------------------------------------------------

if command -v "${CLANG:-clang}" >/dev/null; then
    if ${CLANG:-clang} -O2 $flags $sources -pthread -lm -o "$out/tiny_lm_clang"; then
        runs clang "$all32" "$out/tiny_lm_clang" --backend cpu --tokens 24 && equals clang g1-b1
    else
        fail "clang does not compile it"
    fi
else
    skip clang "no ${CLANG:-clang}"
fi
native=
if ${CC:-gcc} -march=native -E -x c /dev/null >/dev/null 2>&1; then
    native=-march=native
    if ${CC:-gcc} -O3 $native $flags $sources -pthread -lm -o "$out/tiny_lm_native"; then
        runs native "$all32" "$out/tiny_lm_native" --backend cpu --tokens 24 && equals native g1-b1
    else
        fail "it does not compile with -march=native"
    fi
else
    skip native "${CC:-gcc} has no -march=native"
fi
# The C backend chooses the width of its vectors when it runs; other compilers have none.
for lanes in 4 8; do
    runs "lanes-$lanes" "$all32" env TINY_LM_LANES=$lanes "$out/tiny_lm" --backend cpu --tokens 24 &&
        equals "lanes-$lanes" g1-b1
done
# Two threads share matrices by columns: no sum is another one. With eight rows a pass, too.
runs threads "$all32" env TINY_LM_THREADS=2 "$out/tiny_lm" --backend cpu --tokens 24 && equals threads g1-b1
runs threads-b8 "$all32" env TINY_LM_THREADS=2 "$out/tiny_lm" --backend cpu --tokens 24 --batch 8 &&
    equals threads-b8 g1-b1
if [ -n "$first" ]; then
    :
elif ${CC:-gcc} -O1 -g -fsanitize=thread $flags $sources -pthread -lm -o "$out/tiny_lm_tsan" 2>/dev/null; then
    runs tsan "$all32" env TINY_LM_THREADS=2 "$out/tiny_lm_tsan" --backend cpu --tokens 2 --batch 8
else
    skip tsan "${CC:-gcc} has no -fsanitize=thread"
fi
if ${CC:-gcc} -O2 $flags -DTINY_LM_PLAIN $sources -pthread -lm -o "$out/tiny_lm_plain"; then
    runs plain "$all32" "$out/tiny_lm_plain" --backend cpu --tokens 24 && equals plain g1-b1
else
    fail "it does not compile without vectors"
fi
# A fused multiply-add would be other bits: the program must see it, in the width that it runs.
if ${CC:-gcc} -mfma -E -x c /dev/null >/dev/null 2>&1 && grep -qw fma /proc/cpuinfo 2>/dev/null; then
    if ${CC:-gcc} -O2 -std=gnu99 -mfma -ffp-contract=fast -I. $sources -pthread -lm -o "$out/tiny_lm_fused"; then
        for lanes in 4 8 16; do
            refuses 2 "fused multiply-add" env TINY_LM_LANES=$lanes "$out/tiny_lm_fused" --backend cpu
        done
    else
        fail "it does not compile with -mfma"
    fi
else
    skip fused "no fused multiply-add here"
fi
# It says why where speculation does not pay: drafts that nobody accepts.
if "$out/tiny_lm" --backend cpu --tokens 24 --rule coupled --temperature 1 --drafter random --gamma 8 |
    grep -q '^it does not pay .* a step costs'; then pass; else
    fail "it does not say why speculation does not pay"
fi
passes="the law of plain sampling: pass"
tiny_lm=$out/tiny_lm
if [ -n "$first" ]; then
    :
elif ${CC:-gcc} -O2 -g -fsanitize=address,undefined -fno-sanitize-recover=all $flags $sources -pthread -lm \
    -o "$out/tiny_lm_san" 2>"$out/san.err"; then
    tiny_lm=$out/tiny_lm_san
    few="--backend cpu --prompts $out/prompts-4 --batch 3"
    runs sanitized "$all4" "$tiny_lm" $few
    few="$few --tokens 8"
    runs sanitized-coupled "$all4" "$tiny_lm" $few --rule coupled --drafter random
    runs sanitized-token "$counts" "$tiny_lm" $few --rule token --drafter ngram
    runs sanitized-block "$counts" "$tiny_lm" $few --rule block
    for how in "--cache paged --page-size 3 --continuous" "--cache padded --continuous" \
        "--cache padded --realign copy" "--cache gap" "--exspec 4"; do
        runs "sanitized-$(echo $how | tr -d ' ')" "$all4" "$tiny_lm" $few --vary-tokens $how
    done
    runs sanitized-law "$passes" "$tiny_lm" $few --rule token --check-law 20
else
    skip sanitizers "the compiler has no -fsanitize=address,undefined"
fi

# ---- sampled rules ------------------------------------------------------------------------------

# What follows is many runs: they take the program that knows this machine's vectors, if it is there.
fast=$out/tiny_lm
[ -x "$out/tiny_lm_native" ] && fast=$out/tiny_lm_native

# Temperature 0 is greedy decoding, whatever the rule.
for rule in token block coupled typical typical-draw threshold relaxed bounded; do
    runs "$rule-cold" "$all32" \
        "$fast" --backend cpu --tokens 24 --rule $rule --temperature 0 --seed 7
    equals "$rule-cold" g1-b1
done

cut -c1-8 $here/prompts.txt >"$out/prompts-short" # 32 with little to prefill
short="--backend cpu --prompts $out/prompts-short --tokens 12"

# Coupled: one text, for any number of drafts, any batch, any drafter.
for drafter in model ngram random; do
    for gamma in 1 3 8; do
        for batch in 1 5 32; do
            runs "c-$drafter-g$gamma-b$batch" "$all32" "$fast" $short \
                --rule coupled --drafter $drafter --gamma $gamma --batch $batch
            equals "c-$drafter-g$gamma-b$batch" c-model-g1-b1
        done
    done
done
runs c-seed-2 "$all32" "$fast" $short --rule coupled --seed 2
differs c-seed-2 c-model-g1-b1
runs c-lukewarm "$all32" "$fast" $short --rule coupled --temperature 0.5
differs c-lukewarm c-model-g1-b1

# Token and block: a text of its own for each number of drafts and drafter, but not for each batch.
for rule in token block; do
    for drafter in model ngram random; do
        for batch in 3 32; do
            runs "$rule-$drafter-b$batch" "384 tokens, ${counts#* tokens, }" \
                "$fast" $short --rule $rule --temperature 0.8 \
                --drafter $drafter --batch $batch
        done
        equals "$rule-$drafter-b3" "$rule-$drafter-b32"
    done
done
# Lossy rules that may relax nothing: the text of plain decoding, or what token writes; told
# something they accept more (typical-draw, whose law is another, does not have to).
for rule in typical typical-draw relaxed; do
    runs "$rule-strict" "$all32" "$fast" $short --rule $rule
done
equals typical-strict relaxed-strict
equals typical-draw-strict c-model-g3-b5
runs bounded-strict "$counts" "$fast" $short --rule bounded --temperature 0.8 --batch 3
equals bounded-strict token-model-b3
runs threshold-strict "$counts" "$fast" $short --rule threshold --temperature 0.8
for told in "typical 0.3,0.09" "relaxed 5,0.4" "bounded 2" "threshold 0.3,0.5" "typical-draw 1,0.3"; do
    rule=${told% *}
    runs "$rule-loose" "$counts" "$fast" $short --rule $rule --temperature 0.8 --relax ${told#* }
    differs "$rule-loose" "$rule-strict"
    runs "$rule-loose-paged" "$counts" "$fast" $short --rule $rule --temperature 0.8 \
        --relax ${told#* } --batch 5 --cache paged --page-size 3
    equals "$rule-loose" "$rule-loose-paged"
    [ $rule = typical-draw ] && continue
    if [ "0$(rate $rule-loose)" -gt "0$(rate $rule-strict)" ]; then pass; else
        fail "$rule: what it may relax is not accepted more often"
    fi
done
for program in tiny_lm tiny_lm_clang; do
    [ -x "$out/$program" ] || continue
    runs "block-$program" "$counts" "$out/$program" $short --rule block --temperature 0.8 --batch 3
    equals "block-$program" block-model-b3
done
for rule in token block; do
    if [ "$(rate $rule-model-b3)" -gt 500 ] &&
        [ "$(rate $rule-model-b3)" -gt "$(rate $rule-ngram-b3)" ] &&
        [ "$(rate $rule-ngram-b3)" -gt "0$(rate $rule-random-b3)" ]; then
        pass
    else
        fail "$rule: a better drafter is not accepted more often"
    fi
done
if [ "$(rate c-model-g3-b5)" -gt 500 ]; then pass; else
    fail "coupled: the draft model does not draw with the target's noise"
fi
law="--backend cpu --check-law 2000 --batch 64"
runs law-bonus "$passes" "$fast" $law --rule token --gamma 1
for rule in token block coupled; do
    runs "law-$rule" "$passes" "$fast" $law --rule $rule --gamma 3
done

# ---- caches and schedules -----------------------------------------------------------------------

# Prompts of several lengths, which finish at different times, in every kind of cache.
awk '{ print substr($0, 1, 3 + 3 * (NR % 4)) }' $here/prompts.txt >"$out/prompts-mixed"
vary="--backend cpu --prompts $out/prompts-mixed --tokens 12 --vary-tokens"
for rule in greedy coupled; do
    for gamma in 1 4; do
        for batch in 1 5 32; do
            for cache in ragged paged padded gap; do
                name=$rule-g$gamma-b$batch-$cache
                runs $name "$all32" "$fast" $vary \
                    --rule $rule --gamma $gamma --batch $batch --cache $cache
                equals $name $rule-g1-b1-ragged
                same_drafts $name $rule-g$gamma-b1-ragged
            done
        done
    done
    for batch in 1 5 32; do
        for how in "--cache ragged" "--cache paged --page-size 5" "--cache padded"; do
            name=$rule-b$batch-${how#--cache }-continuous
            runs "$name" "$all32" "$fast" $vary --rule $rule --batch $batch --continuous $how
            equals "$name" $rule-g1-b1-ragged && same_drafts "$name" $rule-g4-b1-ragged
        done
    done
    for how in "1 --batch 1" "32 --batch 2" "9 --batch 4" "32 --batch 32"; do
        runs "$rule-exspec-$how" "$all32" "$fast" $vary --rule $rule --exspec $how
        equals "$rule-exspec-$how" $rule-g1-b1-ragged
        same_drafts "$rule-exspec-$how" $rule-g4-b1-ragged
    done
done
runs copies "$all32" "$fast" $vary --cache padded --realign copy --batch 5
equals copies greedy-g1-b1-ragged && same_drafts copies greedy-g4-b1-ragged
for cache in ragged paged padded gap; do
    runs block-$cache "$counts" "$fast" $vary --rule block --batch 5 --cache $cache
    equals block-$cache block-ragged && same_drafts block-$cache block-ragged
    runs full-$cache "identical to plain decoding: 2 of 2" "$fast" --backend cpu --cache $cache \
        --prompts "$out/prompts-full-2" --tokens 56
done
runs long-paged "$all32" "$fast" $vary --gamma 64 --cache paged && equals long-paged greedy-g1-b1-ragged
for size in 1 256; do
    runs pages-$size "$all32" "$fast" $vary --cache paged --page-size $size
    equals pages-$size greedy-g1-b1-ragged
done
# A batch that is refilled is fuller; the more must be of one length, the less often they are;
# sorting changes the order, not the texts.
places() { sed -n 's/^places *\([0-9]*\)[.]\([0-9]*\) .*/\1\2/p' "$out/$1"; }
if [ "$(places greedy-b5-ragged-continuous)" -gt "$(places greedy-g4-b5-ragged)" ]; then pass; else
    fail "--continuous does not keep the batch full"
fi
groups() { sed -n 's/^grouping rate *\([0-9]\)[.]\([0-9]*\):.*/\1\2/p' "$out/greedy-exspec-$1"; }
if [ "$(groups "1 --batch 1")" = 1000 ] && [ "$(groups "32 --batch 2")" -gt 0500 ] &&
    [ "$(groups "9 --batch 4")" -lt "$(groups "32 --batch 2")" ] &&
    [ "$(groups "32 --batch 32")" = 0000 ]; then
    pass
else
    fail "EXSPEC finds other groups"
fi
runs sorted "$all32" "$fast" $short --sort
if [ "$(sed -n 's/.* >> //p' "$out/sorted" | sort)" = \
    "$("$fast" $short | sed -n 's/.* >> //p' | sort)" ]; then pass; else
    fail "--sort changes texts"
fi

# ---- a budget of drafts -------------------------------------------------------------------------

# Which drafts are verified shows in no text, and what the cache looks like not in which they are.
for rule in greedy coupled; do
    for budget in 1 9 33; do
        runs $rule-budget-$budget "$all32" "$fast" $vary --rule $rule --gamma 8 --budget $budget
        equals $rule-budget-$budget $rule-g1-b1-ragged
    done
    for how in "--cache paged --page-size 5" "--cache padded" "--cache gap" "--continuous" \
        "--cache padded --continuous" "--exspec 9"; do
        name=$rule-budget-$(echo $how | tr -d ' ')
        runs "$name" "$all32" "$fast" $vary --rule $rule --gamma 8 --budget 9 $how
        equals "$name" $rule-g1-b1-ragged
        case $how in *continuous | *exspec*) ;; *) same_drafts "$name" $rule-budget-9 ;; esac
    done
    runs $rule-budget-cold "$all32" "$fast" $short --rule $rule --temperature 0 --gamma 8 --budget 20
done
same_drafts coupled-budget-cold greedy-budget-cold # no law, no draft: what counts is the same
runs budget-32 "$all32" "$fast" --backend cpu --gamma 8 --budget 32 && equals budget-32 default
runs budget-all "$all32" "$fast" --backend cpu --budget 32 && same_drafts budget-all default
for program in tiny_lm tiny_lm_clang; do
    [ -x "$out/$program" ] || continue
    runs "budget-$program" "$all32" "$out/$program" $vary --rule coupled --gamma 8 --budget 9
    equals "budget-$program" coupled-budget-9 && same_drafts "budget-$program" coupled-budget-9
done
if [ -x "$out/tiny_lm_san" ]; then
    for rule in greedy token; do
        last=$counts
        [ $rule = greedy ] && last=$all4
        runs sanitized-budget-$rule "$last" "$out/tiny_lm_san" --backend cpu --prompts \
            "$out/prompts-4" --batch 3 --tokens 8 --rule $rule --budget 5 --cache paged --page-size 3
    done
fi
# The drafts that it keeps are the better ones: fewer are verified than with 4 for each sequence, and
# more are accepted.
drafts() { sed -n "s/^drafts .*[^0-9]\([0-9]*\) $2.*/\1/p" "$out/$1"; }
if [ "$(drafts budget-32 proposed)" -lt "$(drafts default proposed)" ] &&
    [ "$(drafts budget-32 accepted)" -gt "$(drafts default accepted)" ]; then pass; else
    fail "--budget 32 does not keep the better drafts"
fi
for rule in token block coupled; do
    runs law-budget-$rule "$passes" "$fast" $law --check-law 4000 --rule $rule --gamma 3 --budget 90
done
runs law-budget-short "$passes" "$fast" $law --rule token --gamma 1 --budget 16
runs law-budget-2 "$passes" "$fast" $law --check-law 4000 --rule block --gamma 2 --budget 80

# ---- trees --------------------------------------------------------------------------------------

# Any tree, any cache, any batch: the same text, and the same nodes on the way. One chain is a chain.
for rule in greedy coupled; do
    for tree in 1x4 2x2 3x3 4x4 32x2 1x64; do
        for cache in ragged "paged --page-size 5" padded; do
            name=$rule-tree-$tree-${cache%% *}
            runs $name "$all32" "$fast" $vary --rule $rule --tree $tree --batch 5 --cache $cache
            equals $name $rule-g1-b1-ragged && same_drafts $name $rule-tree-$tree-ragged
        done
    done
    same_drafts $rule-tree-1x4-ragged $rule-g4-b5-ragged
    for how in "--batch 1" "--batch 32" --continuous "--cache padded --continuous" \
        "--cache padded --realign copy --batch 5" "--cache paged --page-size 1 --continuous"; do
        name=$rule-tree$(echo $how | tr -d ' ')
        runs $name "$all32" "$fast" $vary --rule $rule --tree 3x3 $how
        equals $name $rule-g1-b1-ragged && same_drafts $name $rule-tree-3x3-ragged
    done
    runs $rule-tree-cold "$all32" "$fast" $short --rule $rule --temperature 0 --tree 4x4
done
same_drafts coupled-tree-cold greedy-tree-cold
runs tree-b8 "$all32" "$fast" --backend cpu --tokens 24 --tree 4x4 && equals tree-b8 g1-b1
for cache in ragged paged padded; do
    runs tree-full-$cache "identical to plain decoding: 2 of 2" "$fast" --backend cpu --cache $cache \
        --prompts "$out/prompts-full-2" --tokens 56 --tree 4x4
done
# On one chain the rules of trees are those of chains, with the same numbers; where a batch is, or
# what it is in, does not show.
runs tree-token "$counts" "$fast" $vary --rule token
runs tree-block "$counts" "$fast" $vary --rule block
for rules in "recursive token" "recursive-distinct token" "traversal block" "traversal-distinct block"; do
    rule=${rules% *}
    runs $rule-chain "$counts" "$fast" $vary --rule $rule --tree 1x4
    equals $rule-chain tree-${rules#* } && same_drafts $rule-chain tree-${rules#* }
done
for rule in one-coin recursive recursive-distinct traversal traversal-distinct; do
    runs $rule-tree "$counts" "$fast" $vary --rule $rule --tree 3x3
    for how in "--batch 3 --cache paged --page-size 3" "--batch 32 --cache padded --continuous"; do
        name=$rule-tree$(echo $how | tr -d ' ')
        runs $name "$counts" "$fast" $vary --rule $rule --tree 3x3 $how
        equals $name $rule-tree && same_drafts $name $rule-tree
    done
    runs $rule-tree-cold "$all32" "$fast" $short --rule $rule --temperature 0 --tree 2x4
    runs law-$rule "$passes" "$fast" $law --check-law 1000 --rule $rule --tree 2x2
done
# More nodes at a depth, more tokens a step; judged from the leaves, more than from the root.
tokens() { sed -n 's/^block efficiency  *\([0-9]*\)[.]\([0-9]*\) .*/\1\2/p' "$out/$1"; }
if [ "$(tokens greedy-tree-4x4-ragged)" -gt "$(tokens greedy-tree-1x4-ragged)" ] &&
    [ "$(tokens coupled-tree-4x4-ragged)" -gt "$(tokens coupled-tree-1x4-ragged)" ] &&
    [ "$(tokens traversal-tree)" -gt "$(tokens recursive-tree)" ]; then pass; else
    fail "wider trees, or judging them from the leaves, do not bring more tokens"
fi
if [ -x "$out/tiny_lm_clang" ]; then
    runs tree-clang "$all32" "$out/tiny_lm_clang" $vary --rule coupled --tree 3x3
    equals tree-clang coupled-tree-3x3-ragged && same_drafts tree-clang coupled-tree-3x3-ragged
fi
if [ -x "$out/tiny_lm_san" ]; then
    few="--backend cpu --prompts $out/prompts-4 --batch 3 --tokens 6"
    runs tree-san "$all4" "$out/tiny_lm_san" $few --tree 3x4 --cache paged --page-size 3 --continuous
    runs tree-san-coupled "$all4" "$out/tiny_lm_san" $few --tree 32x2 --cache padded --rule coupled
    for rule in one-coin traversal-distinct; do
        runs tree-san-$rule "$counts" "$out/tiny_lm_san" $few --tree 3x4 --rule $rule
    done
fi

# ---- filters ------------------------------------------------------------------------------------

# With all of them, as without: one text for any gamma, batch, cache, schedule, budget and drafter.
for rule in greedy coupled; do
    filters="$vary --rule $rule $mask $cuts"
    [ $rule = coupled ] && filters="$filters --temperature 2"
    runs $rule-filtered "$all32" "$fast" $filters --gamma 1 --batch 1
    differs $rule-filtered $rule-g1-b1-ragged
    if sed -n 's/.* >> //p' "$out/$rule-filtered" | grep -q '[etA-Z]'; then
        fail "$rule-filtered: a byte that the mask forbids"
    else
        pass
    fi
    for cache in ragged "paged --page-size 5" padded "padded --realign copy" gap; do
        name=$rule-filtered-$(echo $cache | tr -d ' ')
        runs $name "$all32" "$fast" $filters --batch 5 --cache $cache
        equals $name $rule-filtered && same_drafts $name $rule-filtered-ragged
    done
    for how in "--gamma 64 --batch 32" "--cache paged --continuous" "--cache padded --continuous" \
        "--exspec 9 --batch 4" "--budget 9" "--drafter ngram" "--drafter random" \
        "--tree 3x3 --batch 5" "--tree 32x2 --cache paged" "--tree 2x4 --cache padded"; do
        name=$rule-filtered$(echo $how | tr -d ' ')
        runs $name "$all32" "$fast" $filters $how && equals $name $rule-filtered
    done
done
if [ -x "$out/tiny_lm_clang" ]; then
    runs filtered-clang "$all32" "$out/tiny_lm_clang" $filters && equals filtered-clang coupled-filtered
fi
# What an option does. Numbers that are off change nothing, nor does a mask of all bytes.
awk 'BEGIN { for (i = 0; i < 256; i++) printf "\\x%02x%s", i, i % 16 == 15 ? "\n" : "" }' >"$out/mask-all"
off="--top-k 256 --top-p 1 --min-p 0 --mask $out/mask-all"
runs coupled-off "$all32" "$fast" $vary --rule coupled $off && equals coupled-off coupled-g1-b1-ragged
runs block-off "$counts" "$fast" $vary --rule block --batch 5 $off && equals block-off block-ragged
# One byte that is left is the greedy one; and at temperature 0 a mask is all that counts.
for how in "token --top-k 1" "block --top-p 0" "coupled --min-p 1 --top-p 0 --filter-order joint"; do
    name=one-${how%% *}
    runs $name "$all32" "$fast" $vary --rule $how && equals $name greedy-g1-b1-ragged
    runs $name-masked "$all32" "$fast" $vary --rule $how $mask && equals $name greedy-filtered
done
runs greedy-cuts "$all32" "$fast" $vary $cuts && equals greedy-cuts greedy-g1-b1-ragged
runs token-cold-filtered "$all32" "$fast" $vary --rule token --temperature 0 $mask $cuts
equals token-cold-filtered greedy-filtered
# Each filter leaves something out. What --top-p is a part of: without --min-p, min-p-first is
# top-k-first; without --top-k, joint is.
filters="$vary --rule coupled --temperature 2"
runs all-but-k "$all32" "$fast" $filters $mask --top-p 0.8 --min-p 0.2 && differs all-but-k coupled-filtered
runs all-but-p "$all32" "$fast" $filters $mask --top-k 8 --min-p 0.2 && differs all-but-p coupled-filtered
runs all-but-m "$all32" "$fast" $filters $mask --top-k 8 --top-p 0.8 && differs all-but-m coupled-filtered
runs all-but-mask "$all32" "$fast" $filters $cuts && differs all-but-mask coupled-filtered
for order in top-k-first min-p-first joint; do
    how="--filter-order $order"
    runs order-$order "$all32" "$fast" $filters $mask $cuts $how
    runs order-$order-p-k "$all32" "$fast" $filters --top-k 8 --top-p 0.8 $how
    runs order-$order-p-m "$all32" "$fast" $filters --min-p 0.2 --top-p 0.8 $how
done
equals order-top-k-first coupled-filtered
differs order-min-p-first coupled-filtered
differs order-joint coupled-filtered
differs order-joint order-min-p-first
equals order-min-p-first-p-k order-top-k-first-p-k && differs order-joint-p-k order-top-k-first-p-k
equals order-joint-p-m order-top-k-first-p-m && differs order-min-p-first-p-m order-top-k-first-p-m
# The law of what is left.
left="$law --gamma 3 $mask --top-k 40 --top-p 0.9 --min-p 0.01"
runs law-filtered-token "$passes" "$fast" $left --rule token
runs law-filtered-block "$passes" "$fast" $left --rule block --budget 90
left_of_trees="$law --check-law 1000 --tree 2x2 $mask --top-k 40 --top-p 0.9 --min-p 0.01"
for rule in one-coin recursive recursive-distinct traversal traversal-distinct; do
    runs law-filtered-tree-$rule "$passes" "$fast" $left_of_trees --rule $rule
done
# Log-likelihood is of what is left, too: of a single byte, nothing.
runs likely-one "$all4" "$fast" --backend cpu --prompts "$out/prompts-4" --likelihood --top-k 1
if grep -q '^log-likelihood  *-*0[.]0000 a token, .* with filters$' "$out/likely-one"; then pass; else
    fail "likely-one: not 0"
fi
if [ -x "$out/tiny_lm_san" ]; then
    for rule in greedy coupled block; do
        last=$all4
        [ $rule = block ] && last=$counts
        runs sanitized-filtered-$rule "$last" "$out/tiny_lm_san" --backend cpu --prompts \
            "$out/prompts-4" --batch 3 --tokens 8 --gamma 64 --rule $rule $mask $cuts --likelihood
    done
fi

# ---- particles ----------------------------------------------------------------------------------

# Every particle's caches are those of its text after each cycle, in the end all pages are free.
printf 'And he said\nLet\nB\n' >"$out/prompts-3"
smc="--backend cpu --rule smc --prompts $out/prompts-3"
for particles in 1 4 16; do
    for gamma in 1 4; do
        for alpha in 1 2; do
            way=smc-n$particles-g$gamma-a$alpha
            how="--particles $particles --gamma $gamma --alpha $alpha --tokens 11"
            runs $way "$free" "$fast" $smc $how --check
            if grep -q '^caches  *[1-9][0-9]* as after a plain prefill$' "$out/$way"; then pass; else
                fail "$way: --check compared nothing"
            fi
            runs $way-b1 "$free" "$fast" $smc $how --batch 1 --page-size 3
            equals $way-b1 $way
        done
    done
done
differs smc-n16-g4-a1 smc-n16-g4-a2
runs smc-seed-2 "$free" "$fast" $smc --particles 4 --tokens 11 --seed 2
differs smc-seed-2 smc-n4-g4-a1
for tokens in 1 2 5; do # a cycle without drafts, a short one, a full one
    runs smc-t$tokens "$free" "$fast" $smc --particles 5 --tokens $tokens --page-size 1 --check
done
runs smc-full "$free" "$fast" $smc --prompts "$out/prompts-full-2" --tokens 56 --particles 3 --check
runs smc-full-pages "$free" "$fast" $smc --prompts "$out/prompts-full-2" --tokens 56 --particles 3 \
    --page-size 256
equals smc-full smc-full-pages
runs smc-odd "$free" "$fast" $smc --prompts "$out/prompts-odd" --tokens 16 --particles 6 --check
runs smc-256 "$free" "$fast" $smc --tokens 4 --particles 256 --batch 1 --check
runs smc-default "$free" "$fast" $smc --tokens 6 --particles 40
if [ -x "$out/tiny_lm_clang" ]; then
    runs smc-clang "$free" "$out/tiny_lm_clang" $smc --particles 4 --tokens 11
    equals smc-clang smc-n4-g4-a1
fi
if [ -x "$out/tiny_lm_san" ]; then
    runs smc-sanitized "$free" "$out/tiny_lm_san" $smc --particles 4 --tokens 6 --page-size 3 --check
    runs smc-sanitized-2 "$free" "$out/tiny_lm_san" $smc --particles 3 --gamma 2 --tokens 5 --alpha 2
fi

# What is launched is a matter of lengths, not of texts: a longer prompt shows, another does not.
printf 'And he said\n' >"$out/prompts-a"
printf 'zQ\001\\x ~ 99%%\n' >"$out/prompts-b"
printf 'And he said,\n' >"$out/prompts-c"
for alpha in 1 2; do
    for prompt in a b c; do
        runs log-$prompt "$free" "$fast" $smc --prompts "$out/prompts-$prompt" --tokens 23 \
            --alpha $alpha --log-launches
        grep '^launch' "$out/log-$prompt" >"$out/log-$prompt.launches"
    done
    if [ "$(grep -c '^launch reshuffle' "$out/log-a.launches")" -eq 5 ] &&
        cmp -s "$out/log-a.launches" "$out/log-b.launches" &&
        ! cmp -s "$out/log-a.launches" "$out/log-c.launches"; then pass; else
        fail "smc, alpha $alpha: launches depend on the text"
    fi
done

# One particle is never resampled, many with threshold 0 are not, with threshold 1 often.
resampled() { sed -n 's/^resampling  *in \([0-9]*\) of .*/\1/p' "$out/$1"; }
runs smc-ess-0 "$free" "$fast" $smc --particles 16 --gamma 1 --tokens 11 --ess 0
runs smc-ess-1 "$free" "$fast" $smc --particles 16 --gamma 1 --tokens 11 --ess 1 --check
if [ "$(resampled smc-n1-g4-a1)" = 0 ] && [ "$(resampled smc-ess-0)" = 0 ] &&
    [ "$(resampled smc-ess-1)" -gt "$(resampled smc-n16-g1-a1)" ] &&
    [ "$(resampled smc-n16-g1-a1)" -gt 0 ]; then pass; else
    fail "smc: resampling does not follow --ess"
fi

# Weights without bias: their mean estimates the sum over all texts of p^alpha. That is 1 for alpha
# 1, and for alpha 2 the same with any number of drafts. An estimate is judged by its own standard
# error, from 64 replicates, and may be 5 of these away: Student's t with 63 degrees of freedom is
# farther out 5 times in a million. At temperatures this high the weights have no heavy tails, and
# the replicates' means over 8 prompts are nearly normal (of 128: skewness below 0.6, kurtosis 2.4
# to 3.5), which they are not at temperature 1. --ess 1 resamples in nearly every cycle.
head -n 8 "$out/prompts-short" >"$out/prompts-8"
# estimate PROGRAM OPTIONS...: "mean standard-error"
estimate() {
    program=$1
    shift
    "$program" --backend cpu --rule smc --prompts "$out/prompts-8" --tokens 4 --particles 8 --ess 1 \
        --replicates 64 "$@" 2>/dev/null |
        awk '/^sum of p/ { mean = $4 } /^standard error/ { print mean, $3 + 0 }'
}
# agree ESTIMATE OTHER: within 5 standard errors of the difference
agree() {
    echo "$1 $2" | awk '{ exit !(NF == 4 && ($1 - $3) ^ 2 <= 25 * ($2 ^ 2 + $4 ^ 2)) }'
}
# unbiased NAME ESTIMATE OTHER: they agree, and the errors are small enough to mean something
unbiased() {
    if agree "$2" "$3" && echo "$2 $3" | awk '{ exit !($2 > 0 && $2 + $4 < 0.015 * $1) }'; then
        pass
    else
        fail "$1: $2 and $3 do not agree, or have large errors"
    fi
}
squares_1=$(estimate "$fast" --temperature 32 --alpha 2 --gamma 1)
squares_3=$(estimate "$fast" --temperature 32 --alpha 2 --gamma 3)
unbiased "sum of p^2" "$squares_1" "$squares_3"
for gamma in 1 3; do
    unbiased "sum of p, gamma $gamma" "$(estimate "$fast" --temperature 16 --gamma $gamma)" "1 0"
done

# With filters as well, if only the mask is the drafts' too: what the target filters has weight 0.
unbiased "sum of filtered p" \
    "$(estimate "$fast" --temperature 16 --gamma 3 $mask --top-k 28 --top-p 0.95)" "1 0"
left_1=$(estimate "$fast" --temperature 48 --alpha 2 --gamma 1 $mask --top-k 32)
left_3=$(estimate "$fast" --temperature 48 --alpha 2 --gamma 3 $mask --top-k 32)
unbiased "sum of filtered p^2" "$left_1" "$left_3"
runs smc-filtered "$free" "$fast" $smc --particles 16 --tokens 11 $mask $cuts --check

# Plain passes say the same of a text whatever wrote it, and greedy texts are likelier than sampled.
likelihood() { sed -n 's/^log-likelihood  *\(-[0-9.]*\) a token.*/\1/p' "$out/$1"; }
runs likely "$all4" "$fast" --backend cpu --prompts "$out/prompts-4" --likelihood
runs likely-32 "$all4" "$fast" --backend cpu --prompts "$out/prompts-4" --likelihood --batch 1 --gamma 1
runs likely-token "$counts" "$fast" --backend cpu --prompts "$out/prompts-4" --likelihood --rule token
if [ "$(likelihood likely)" = "$(likelihood likely-32)" ] &&
    awk "BEGIN { exit !($(likelihood likely) > $(likelihood likely-token)) }"; then pass; else
    fail "the likelihood of greedy texts"
fi

# ---- what is told of tokens ----------------------------------------------------------------------

# token_lines NAME; token_lines NAME N: as with --logprobs N
token_lines() {
    grep -E "$token_line" "$out/$1" | awk -v n="${2:-32}" '{
        line = $1
        for (i = 2; i <= 3 + 2 * n && i <= NF; i++) line = line " " $i
        print line }'
}
# The program compares with plain decoding, bit by bit, `equals` the settings.
for rule in greedy coupled; do
    told="$vary --rule $rule --logprobs 3"
    runs $rule-told "$all32" "$fast" $told --gamma 1 --batch 1
    grep -Ev "$token_line" "$out/$rule-told" >"$out/$rule-told-not"
    equals $rule-told-not $rule-g1-b1-ragged
    if [ "$(token_lines $rule-told | wc -l)" -eq 280 ]; then pass; else
        fail "$rule-told: not a line for every token"
    fi
    for how in "--batch 1" "--batch 5" "--batch 32" "--gamma 1 --batch 5" "--gamma 1 --batch 32" \
        "--gamma 8 --batch 1" "--gamma 8 --batch 5" "--gamma 8 --batch 32" "--cache padded" \
        "--cache paged --page-size 5 --continuous" "--cache padded --continuous --batch 5" \
        "--cache gap --batch 5" "--exspec 9 --batch 4" "--budget 9" "--drafter random"; do
        name=$rule-told$(echo $how | tr -d ' ')
        runs $name "$all32" "$fast" $told $how && equals $name $rule-told
    done
    runs $rule-told-0 "$all32" "$fast" $told --logprobs 0
    runs $rule-told-32 "$all32" "$fast" $told --logprobs 32
    for n in 0 3; do
        name=$rule-told
        [ $n -eq 0 ] && name=$rule-told-0
        token_lines $name >"$out/$name.lines"
        if token_lines $rule-told-32 $n | cmp -s - "$out/$name.lines"; then pass; else
            fail "$name: other numbers than with --logprobs 32"
        fi
    done
done
# A greedy token is the likeliest, the others are less likely, together they are no more than all.
if token_lines greedy-told-32 | awk '$3 != 1 || $4 != $1 || $5 != $2 { exit 1 }
    { for (i = 7; i <= NF; i += 2) if ($i > $(i - 2)) exit 1 }
    { sum = 0; for (i = 5; i <= NF; i += 2) sum += exp($i); if (sum > 1.001 || sum < 0.9) exit 1 }'; then
    pass
else
    fail "greedy-told-32: greedy tokens are not the likeliest"
fi
# No temperature and no filter shows, but in what becomes of the text.
for how in "greedy $cuts" "token --top-k 1" "block --temperature 0 $cuts" \
    "coupled --min-p 1 --temperature 3"; do
    name=told-as-greedy-${how%% *}
    runs $name "$all32" "$fast" $vary --logprobs 3 --rule $how && equals $name greedy-told
done
runs told-masked "$all32" "$fast" $vary --logprobs 3 $mask --batch 5 --cache gap
if token_lines told-masked | awk '$3 > 1 && $4 ~ /[etA-Z]/ { n++ } $3 == 1 && $4 != $1 { n = -999 }
    END { exit !(n > 0) }'; then pass; else
    fail "told-masked: ranks do not tell of bytes that the mask forbids"
fi
# Plain passes over the texts say the same.
# as_likely NAME: the mean of what was told is the likelihood
as_likely() {
    token_lines "$1" | awk -v mean="$(likelihood "$1")" '{ sum += $2 }
        END { exit !(NR > 0 && (sum / NR - mean) ^ 2 < 1e-8) }'
}
for how in "greedy --gamma 8" "token --temperature 0.7 --cache paged --continuous" \
    "block --temperature 1.5 --exspec 9 --batch 4"; do
    name=told-likely-${how%% *} last=$counts
    [ $name = told-likely-greedy ] && last=$all32
    runs $name "$last" "$fast" $vary --likelihood --logprobs 1 --rule $how
    if as_likely $name; then pass; else fail "$name: not the likelihood of the texts"; fi
done
if [ -x "$out/tiny_lm_clang" ]; then
    runs told-clang "$all32" "$out/tiny_lm_clang" $told && equals told-clang coupled-told
fi
if [ -x "$out/tiny_lm_san" ]; then
    few="--backend cpu --prompts $out/prompts-4 --batch 3 --tokens 6"
    runs told-san "$all4" "$out/tiny_lm_san" $few --logprobs 32 --cache gap
    runs told-san-coupled "$all4" "$out/tiny_lm_san" $few --logprobs 0 --rule coupled $mask --exspec 3
    runs told-san-token "$counts" "$out/tiny_lm_san" $few --logprobs 1 --rule token --likelihood
fi

# ---- what must be refused (with the sanitized program, if there is one) -------------------------

export ASAN_OPTIONS=detect_leaks=0 # a refusal exits without tidying up

good=$here/target.bin
size=$(wc -c <$good)
# patched NAME OFFSET BYTES: a copy of the target model with bytes replaced
patched() {
    cp $good "$out/$1" && chmod u+w "$out/$1" &&
        printf "$3" | dd of="$out/$1" bs=1 seek="$2" conv=notrunc 2>/dev/null
}
head -c 20 $good >"$out/no-header.bin"
head -c $((size - 1)) $good >"$out/short.bin"
{ cat $good && printf x; } >"$out/long.bin"
: >"$out/empty.bin"
patched magic.bin 0 'SVLN'
patched version.bin 4 '\002'
patched vocab.bin 9 '\377'
patched negative.bin 15 '\377'
patched heads.bin 20 '\007'
patched nan.bin $((size - 2)) '\000\176'
patched infinite.bin 32 '\000\174'
for option in --target --draft; do
    refuses 2 "no-such.bin: cannot be read" "$tiny_lm" $option no-such.bin
    refuses 2 "cannot be read" "$tiny_lm" $option "$out"
    refuses 2 "truncated" "$tiny_lm" $option "$out/empty.bin"
    refuses 2 "truncated" "$tiny_lm" $option "$out/no-header.bin"
    refuses 2 "truncated" "$tiny_lm" $option "$out/short.bin"
    refuses 2 "too long" "$tiny_lm" $option "$out/long.bin"
    refuses 2 "bad magic" "$tiny_lm" $option "$out/magic.bin"
    refuses 2 "format version 2" "$tiny_lm" $option "$out/version.bin"
    for sizes in vocab negative heads; do
        refuses 2 "unusable sizes" "$tiny_lm" $option "$out/$sizes.bin"
    done
    refuses 2 "not finite" "$tiny_lm" $option "$out/nan.bin"
    refuses 2 "not finite" "$tiny_lm" $option "$out/infinite.bin"
done
for number in gamma batch tokens; do
    for value in 0 -1 9999 4x '' 99999999999999999999; do
        refuses 2 "--$number: .* is not a number" "$tiny_lm" --$number "$value"
    done
    refuses 2 "needs a value" "$tiny_lm" --$number
done
for value in greed '' Token 0; do
    refuses 2 "--rule: .* is none of token" "$tiny_lm" --rule "$value"
    refuses 2 "--drafter: .* is none of model" "$tiny_lm" --drafter "$value"
done
for value in -0.1 8193 1e9 nan inf '' 1x; do
    refuses 2 "--temperature: .* is not a number" "$tiny_lm" --rule token --temperature "$value"
done
for value in -1 1.5 '' x 18446744073709551616; do
    refuses 2 "--seed: .* is not a number" "$tiny_lm" --seed "$value"
done
for value in 0 19 1000001 many; do
    refuses 2 "--check-law: .* is not a number" "$tiny_lm" --rule token --check-law "$value"
done
for value in 0x4 4x0 4 x4 33x1 8x9 1x65 4X4 4x4x 4x-1 -4x4 ' 4x4' 99999999999999999999x1 ''; do
    refuses 2 "--tree: .* is not WIDTHxDEPTH" "$tiny_lm" --tree "$value"
done
refuses 2 "judges chains; .* recursive" "$tiny_lm" --tree 2x2 --rule token
refuses 2 "judges chains; .* traversal" "$tiny_lm" --tree 2x2 --rule block
refuses 2 "each a chain" "$tiny_lm" --tree 2x2 --rule smc
refuses 2 "not --gamma" "$tiny_lm" --tree 2x2 --gamma 2
refuses 2 "not by trees" "$tiny_lm" --tree 2x2 --budget 2
refuses 2 "grows by what a model says" "$tiny_lm" --tree 2x2 --drafter ngram
refuses 2 "grows by what a model says" "$tiny_lm" --tree 2x2 --drafter random
refuses 2 "tells nothing for --logprobs" "$tiny_lm" --tree 2x2 --logprobs 0
refuses 2 "in the order of the text: no trees" "$tiny_lm" --tree 2x2 --cache gap
refuses 2 "without a commit: no trees" "$tiny_lm" --tree 2x2 --exspec 8
for rule in one-coin recursive recursive-distinct traversal traversal-distinct; do
    refuses 2 "judges trees: give --tree" "$tiny_lm" --rule $rule
done
for value in '' raged paged,gap 0; do
    refuses 2 "--cache: .* is none of ragged" "$tiny_lm" --cache "$value"
done
for value in 0 16385 -1 x ''; do
    refuses 2 "--budget: .* is not a number" "$tiny_lm" --budget "$value"
done
for drafter in ngram random; do
    refuses 2 "the confidence of a model" "$tiny_lm" --budget 8 --drafter $drafter
done
for value in -1 33 x '' 1.5; do
    refuses 2 "--logprobs: .* is not a number from 0 to 32" "$tiny_lm" --logprobs "$value"
done
refuses 2 "copies texts" "$tiny_lm" --rule smc --logprobs 2
refuses 2 "is of texts" "$tiny_lm" --rule token --check-law 100 --logprobs 2
refuses 2 "keeps every draft" "$tiny_lm" --rule smc --budget 8
for value in 0 257 -1 x; do
    refuses 2 "--page-size: .* is not a number" "$tiny_lm" --cache paged --page-size "$value"
    refuses 2 "--exspec: .* is not a number" "$tiny_lm" --exspec "$value"
done
refuses 2 "--realign: .* is none of in-place copy" "$tiny_lm" --cache padded --realign place
refuses 2 "is of --cache paged" "$tiny_lm" --page-size 16
refuses 2 "is of --cache padded" "$tiny_lm" --cache gap --realign copy
refuses 2 "no place before the columns" "$tiny_lm" --cache gap --continuous
refuses 2 "smaller than the batch" "$tiny_lm" --exspec 7
refuses 2 "schedule of its own" "$tiny_lm" --exspec 8 --continuous
refuses 2 "schedule of its own" "$tiny_lm" --exspec 8 --cache paged
for how in "--cache gap" --continuous "--exspec 8" --vary-tokens --sort; do
    refuses 2 "one batch at a time" "$tiny_lm" --rule token --check-law 100 $how
done
for option in rule temperature seed drafter check-law cache page-size realign exspec \
    budget tree particles replicates alpha ess top-k top-p min-p mask filter-order logprobs; do
    refuses 2 "needs a value" "$tiny_lm" --$option
done
for value in 0 257 -1 x ''; do
    refuses 2 "--particles: .* is not a number" "$tiny_lm" --rule smc --particles "$value"
done
for value in 1 65537 -2 x ''; do
    refuses 2 "--replicates: .* is not a number" "$tiny_lm" --rule smc --replicates "$value"
done
refuses 2 "more than 65536 prompts" "$tiny_lm" --rule smc --replicates 2049
for value in 0 0.09 11 nan x ''; do
    refuses 2 "--alpha: .* is not a number" "$tiny_lm" --rule smc --alpha "$value"
done
for value in -0.1 1.1 nan x ''; do
    refuses 2 "--ess: .* is not a number" "$tiny_lm" --rule smc --ess "$value"
done
for how in "--particles 4" "--alpha 1" "--ess 0.5" "--replicates 2" --check --log-launches; do
    refuses 2 "is of --rule smc" "$tiny_lm" --rule token $how
done
for how in --continuous "--exspec 8" --vary-tokens; do
    refuses 2 "the same number of tokens" "$tiny_lm" --rule smc $how
done
refuses 2 "is above 256" "$tiny_lm" --rule smc --particles 64 --batch 5
refuses 2 "is above 256" "$tiny_lm" --rule smc --batch 33
refuses 2 "needs one above 0" "$tiny_lm" --rule smc --temperature 0
refuses 2 "no temperature above 0" "$tiny_lm" --rule smc --temperature 8000 --alpha 0.1
refuses 2 "no temperature above 0" "$tiny_lm" --rule smc --temperature 0.0002 --alpha 10
refuses 2 "shares pages" "$tiny_lm" --rule smc --cache ragged
refuses 2 "needs a model" "$tiny_lm" --rule smc --drafter ngram
refuses 2 "many particles only" "$tiny_lm" --rule smc --check-law 100
refuses 2 "is of texts" "$tiny_lm" --rule token --check-law 100 --likelihood
refuses 2 "the rule greedy has none" "$tiny_lm" --temperature 0.5
refuses 2 "the rule greedy has one text" "$tiny_lm" --check-law 1000
refuses 2 "all texts begin alike" "$tiny_lm" --backend cpu --rule token --temperature 0 --check-law 20
for value in 0 -1 257 4x 1.5 nan '' 99999999999999999999; do
    refuses 2 "--top-k: .* is not a number from 1 to 256" "$tiny_lm" --top-k "$value"
done
for value in -0.1 1.1 nan inf 1x ''; do
    refuses 2 "--top-p: .* is not a number from 0 to 1" "$tiny_lm" --top-p "$value"
    refuses 2 "--min-p: .* is not a number from 0 to 1" "$tiny_lm" --min-p "$value"
done
for value in '' top-p-first Joint 0; do
    refuses 2 "--filter-order: .* is none of top-k-first min-p-first joint" \
        "$tiny_lm" --top-p 0.5 --filter-order "$value"
done
refuses 2 "says what --top-p is a part of" "$tiny_lm" --top-k 4 --filter-order joint
for option in top-p min-p; do
    refuses 2 "keeps other bytes" "$tiny_lm" --rule smc --alpha 2 --$option 0.9
done
refuses 2 "no-such-mask: cannot be read" "$tiny_lm" --mask no-such-mask
refuses 2 "cannot be read" "$tiny_lm" --mask "$out"
for text in '' '\n\n'; do
    printf "$text" >"$out/mask-bad" && refuses 2 "allows no byte" "$tiny_lm" --mask "$out/mask-bad"
done
for text in '\\q' '\\' '\\x' '\\x4' '\\x4\n1' '\\xg1' '\\x4A' '\\N'; do
    printf "ab\n$text" >"$out/mask-bad"
    refuses 2 'mask-bad: line 2: a \\ is followed by' "$tiny_lm" --mask "$out/mask-bad"
done
for byte in 001 011 015 177 200 377; do
    printf "ab\n\nc\\$byte" >"$out/mask-bad"
    refuses 2 'line 3: write this byte as \\x[0-9a-f][0-9a-f]$' "$tiny_lm" --mask "$out/mask-bad"
done
refuses 2 "unknown option" "$tiny_lm" --sed 1
refuses 2 "unknown option" "$tiny_lm" gamma
refuses 2 "cpu, gpu or auto" "$tiny_lm" --backend tpu
refuses 2 "without CUDA" "$tiny_lm" --backend gpu
refuses 2 "do not fit in 256 positions" "$tiny_lm" --tokens 250
refuses 2 "do not fit in 256 positions" "$tiny_lm" --prompts "$out/prompts-full" --tokens 57
refuses 2 "no-such.txt: cannot be read" "$tiny_lm" --prompts no-such.txt
refuses 2 "cannot be read" "$tiny_lm" --prompts "$out"
refuses 2 "no prompts" "$tiny_lm" --prompts /dev/null
printf 'one\n\nthree\n' >"$out/prompts-hole"
refuses 2 "prompt 2 is empty" "$tiny_lm" --prompts "$out/prompts-hole"
if "$tiny_lm" --help | grep -q '^usage: tiny_lm'; then pass; else fail "--help"; fi

# ---- would it notice? ---------------------------------------------------------------------------

if [ -n "$first" ]; then
    echo "$passed passed, $failed failed, $skipped skipped"
    [ $failed -eq 0 ]
    exit
fi

# What a mutant does not change is compiled once, the reference in a file of its own.
compile="${CC:-gcc} -O2 $native -std=c99 -ffp-contract=off -I. -I$here"
printf '#define SPECVERIFY_REF_IMPLEMENTATION\n#include "specverify_ref.h"\n' >"$out/reference.c"
apart='/#define SPECVERIFY_REF_IMPLEMENTATION/d'
sed "$apart" $here/cpu.c >"$out/cpu.c"
for source in $sources "$out/reference.c"; do
    name=$(basename "$source")
    [ "$name" = cpu.c ] && source=$out/cpu.c
    $compile -c "$source" -o "$out/$name.o" || fail "$name does not compile alone"
done

# links NAME FILE SOURCE: the program with SOURCE in place of FILE
links() {
    objects=
    for source in $sources reference.c; do
        name=$(basename "$source")
        [ "$name" = "$2" ] || objects="$objects $out/$name.o"
    done
    $compile "$3" $objects -pthread -lm -o "$out/$1" || fail "$1"
}

# mutant NAME FILE SED_SCRIPT: the program with one line changed
mutant() {
    sed "$3" "$here/$2" >"$out/$1-$2"
    if cmp -s "$out/$1-$2" "$here/$2"; then
        fail "$1: the line to change is gone"
        return 1
    fi
    sed -i "$apart" "$out/$1-$2"
    links "$1" "$2" "$out/$1-$2"
}
# A commit that forgets rows, or puts them one position too early.
few='few[i] = s->cache.accepted_len[i] \/ 2'
few="int32_t few[256]; specv_append_kv_desc w = d; for (int i = 0; i < s->limits.batch; i++) $few;"
few="{ $few w.accepted_len = few; status = specv_ref_append_kv(\&w); }"
if mutant lost-row cpu.c "s/status = specv_ref_append_kv(&d);/$few/"; then
    refuses 1 "never committed" "$out/lost-row" --tokens 24
    refuses 1 "never committed" "$out/lost-row" --tokens 24 --rule block
    refuses 1 "never committed" "$out/lost-row" --tokens 24 --cache paged
fi
# notices MUTANT COMMAND...: exit status 1
notices() {
    name=$1
    shift
    "$@" >"$out/refused" 2>"$out/refused.err"
    if [ $? -eq 1 ]; then pass; else fail "$name went unnoticed"; fi
}
if mutant shifted-row cpu.c 's/c->cache_len\[i\] = len\[i\] - 1;/c->cache_len[i] = len[i] - 2;/'; then
    notices shifted-row "$out/shifted-row" --tokens 24
fi
# One wrong token; and one row with a last bit that differs, which no text shows.
if mutant wrong-token cpu.c 's/if (check(backend, judge(s)) != 0) return -1;/& s->cache.out_tokens[0] ^= 1;/'; then
    notices wrong-token "$out/wrong-token" --tokens 24
    if grep -q '^prompt [0-9]* differs at position' "$out/refused"; then pass; else
        fail "wrong-token: not said where"
    fi
fi
if mutant wrong-bit cpu.c 's/status = specv_ref_append_kv(/s->scratch[0] *= 1.0000002f, &/'; then
    notices wrong-bit "$out/wrong-bit" --tokens 24
    if grep -q 'same text, but different bits' "$out/refused"; then pass; else
        fail "wrong-bit: not said what"
    fi
fi
# Attention that sees padding and rejected columns; RoPE by column.
if mutant unmasked cpu.c 's/pos = lm_seen_position(s->cache, row, column);/pos = column;/'; then
    runs unmasked-ragged "$all32" "$out/unmasked" $vary
    for how in "--cache padded" "--cache gap" "--exspec 8 --batch 4"; do
        notices unmasked "$out/unmasked" $vary $how
    done
fi
column='s/pos = lm_seen_position(s->cache, row, row->column);/pos = row->column % s->limits.max_seq;/'
if mutant rope cpu.c "$column"; then
    runs rope-ragged "$all32" "$out/rope" $vary
    for how in "--cache padded" "--cache gap" "--exspec 8 --batch 4"; do
        notices rope "$out/rope" $vary $how
    done
fi
# Pages that nobody asked for are not there.
if mutant no-pages cpu.c 's/if (!lm_is_paged(&s->cache)) return 0;/return 0;/'; then
    refuses 2 "row_status of sequence" "$out/no-pages" $vary --cache paged
fi
# A draft cache that is not moved along with its text: right texts, fewer accepted drafts.
if mutant unmoved cpu.c 's/return shift_cache(s, LM_DRAFT, s->cache.shift_end);/return status;/'; then
    runs unmoved.txt "$all32" "$out/unmoved" $vary --cache padded --batch 5
    if [ "$(rate unmoved.txt)" -lt "$(rate greedy-g4-b5-padded)" ]; then pass; else
        fail "an unmoved draft cache does not show in the acceptance rate"
    fi
fi
# The hole in the draft's cache: the text stays right, only fewer drafts are accepted.
hole='s/num_seqs \&\& k == 0; i++) {/& seqs[i].draft_cached = seqs[i].len;/'
if mutant draft-hole engine.c "$hole"; then
    runs draft-hole.txt "$all32" "$out/draft-hole" --tokens 24 && equals draft-hole.txt g1-b1
    if [ "$(rate draft-hole.txt)" -lt "$(rate g4-b8)" ]; then pass; else
        fail "the hole in the draft's cache does not show in the acceptance rate"
    fi
fi

# A text at the wrong place among its random numbers, and noise that is not the rule's; all drafts of
# a step drawn with the numbers of the first; drafts judged by logits that they did not come from.
if mutant wrong-place cpu.c 's/memcpy(s->position, step->position/memcpy(s->position, step->draft_len/'; then
    notices wrong-place "$out/wrong-place" --quiet $short --rule coupled
fi
if mutant own-noise engine.c 's/pick.stream = SPECV_STREAM_COUPLED;/pick.stream = stream;/'; then
    notices own-noise "$out/own-noise" --quiet $short --rule coupled
fi
if mutant reused cpu.c 's/d.step_row = pick.step_row;/d.step_row = 0;/'; then
    notices reused "$out/reused" $law --rule token --gamma 3
fi
if mutant wrong-q engine.c 's/row->keep_at = draft;/row->keep_at = i * e->limits.gamma;/'; then
    notices wrong-q "$out/wrong-q" $law --rule block --gamma 3
fi

# A budget that goes by what the draft model says of the draft itself, not of the law that it is drawn
# from: likely drafts are offered, unlikely ones not, and the text has another law. And one that goes
# by doubt.
own='s/d.max_prob = s->cache.max_prob;/d.logprob = s->cache.max_prob;/
    s/= s->cache.max_prob\[r\];/= expf(s->cache.max_prob[r]);/'
if mutant own-confidence cpu.c "$own"; then
    notices own-confidence "$out/own-confidence" $law --rule token --gamma 1 --budget 16
    notices own-confidence "$out/own-confidence" $law --check-law 4000 --rule block --gamma 2 \
        --budget 80
fi
if mutant doubt cpu.c 's/= s->cache.max_prob\[r\];/= 1 - s->cache.max_prob[r];/'; then
    runs doubt.txt "$all32" "$out/doubt" --backend cpu --gamma 8 --budget 32
    if [ "$(drafts doubt.txt accepted)" -lt "$(drafts default accepted)" ]; then pass; else
        fail "a budget that goes by doubt does not show in the drafts accepted"
    fi
fi

# Nodes that see no tree, but all columns; a path whose rows stay where they were, of both models or
# of the draft model; drafts that are judged by the law of another node, or drawn with the numbers of
# others; noise of another position.
if mutant blind-nodes tree.c 's/row.node = node;/row.node = -1;/'; then
    notices blind-nodes "$out/blind-nodes" $vary --tree 3x3
    notices blind-nodes "$out/blind-nodes" $vary --tree 3x3 --cache padded --rule coupled
fi
still='specv_commit_path_desc w = d; w.kv.planes = NULL, w.kv.num_planes = 0; status = specv_ref_commit_path(\&w);'
if mutant unmoved-path cpu.c "s/status = specv_ref_commit_path(&d);/$still/"; then
    notices unmoved-path "$out/unmoved-path" $vary --tree 3x3
    notices unmoved-path "$out/unmoved-path" $vary --tree 3x3 --cache padded
fi
one='s/for (int i = 0; i < LM_NUM_MODELS \&\& status/for (int i = 1; i < 2 \&\& status/'
if mutant unmoved-drafts cpu.c "$one"; then
    runs unmoved-drafts.txt "$all32" "$out/unmoved-drafts" $vary --tree 3x3 --batch 5
    if [ "$(rate unmoved-drafts.txt)" -lt "$(rate greedy-tree-3x3-ragged)" ]; then pass; else
        fail "an unmoved path in the draft model's cache does not show in the acceptance rate"
    fi
fi
if mutant root-q tree.c 's/row->keep_at = i \* e->limits.nodes + node;/row->keep_at = i * e->limits.nodes;/'; then
    notices root-q "$out/root-q" $law --check-law 1000 --rule recursive --tree 2x2
fi
if mutant tree-reused tree.c 's/p.step_row = first + c - 1;/p.step_row = c;/'; then
    notices tree-reused "$out/tree-reused" $law --check-law 1000 --rule recursive --tree 2x2
fi
if mutant tree-noise tree.c 's/p.step_row = depth;/p.step_row = 0;/'; then
    runs tree-noise.txt "$all32" "$out/tree-noise" $vary --rule coupled --tree 3x3 --batch 5
    if [ "$(rate tree-noise.txt)" -lt "$(rate coupled-tree-3x3-ragged)" ]; then pass; else
        fail "drafts with the noise of another position do not show in the acceptance rate"
    fi
fi

# Drafts that are drawn without the filters that verification is told of; drawn with them, and it is
# not told; plain decoding without the mask; a verification that takes the filters in another order.
draws="specv_sample_desc d = sample_desc(s, which);"
none="const specv_filters none = SPECV_ZERO;"
if mutant unfiltered-draft cpu.c "s/$draws/$none & if (which == LM_DRAFT) d.filters = none;/"; then
    notices unfiltered-draft "$out/unfiltered-draft" $left --rule token
    notices unfiltered-draft "$out/unfiltered-draft" $left --rule block
fi
if mutant unfiltered-q cpu.c "s/d.draft_filters = lm_filters_of/if (0) &/"; then
    notices unfiltered-q "$out/unfiltered-q" $left --rule token
fi
open='d.filters.mask = NULL, d.filters.mask_row = NULL, d.filters.num_mask_rows = 0;'
if mutant unmasked-plain cpu.c "s/$draws/& if (which == LM_TARGET) $open/"; then
    notices unmasked-plain "$out/unmasked-plain" $vary $mask
    notices unmasked-plain "$out/unmasked-plain" $vary $mask --rule coupled
fi
told="d.filters = lm_filters_of(s->filters, \\&s->sampling, LM_TARGET);"
if mutant other-order cpu.c "s/$told/& d.filters.order = (d.filters.order + 1) % 3;/"; then
    notices other-order "$out/other-order" $filters $mask $cuts
fi

# Told by the law that tokens come from, in verification alone; told of the tokens beside.
law_in_steps='s/^    d.emitted = s->told;/& d.emitted.raw = 0;/'
if mutant told-law cpu.c "$law_in_steps"; then
    notices told-law "$out/told-law" $vary --logprobs 2
    if grep -q 'same text, but its byte at position [0-9]* has another ln p' "$out/refused"; then
        pass
    else
        fail "told-law: not said where"
    fi
fi
beside='s/(size_t)i \* ((size_t)e->limits.gamma + 1), (size_t)n/(size_t)(i * e->limits.gamma), (size_t)n/'
if mutant told-beside engine.c "$beside"; then
    notices told-beside "$out/told-beside" $vary --logprobs 0
fi

# Particles: the part that both backends share is a header, so a mutant has its folder.
# particles_mutant NAME FILE SED_SCRIPT
particles_mutant() {
    mkdir -p "$out/$1.d"
    cp $here/cpu.c $here/*.h "$out/$1.d"
    sed "$3" "$here/$2" >"$out/$1.d/$2"
    if cmp -s "$out/$1.d/$2" "$here/$2"; then
        fail "$1: the line to change is gone"
        return 1
    fi
    sed -i "$apart" "$out/$1.d/cpu.c"
    links "$1" cpu.c "$out/$1.d/cpu.c"
}
# caught NAME STATUS MESSAGE
caught() { refuses "$2" "$3" "$out/$1" $smc --particles 8 --tokens 14 --page-size 5 --check; }
other="cache is not that of its text"
# A shared page that is not copied before it is written to; a copy without content.
if particles_mutant copied-nothing particles.h 's/p, which, &s->models\[which\].kv)/p, which, NULL)/'; then
    caught copied-nothing 1 "never committed\|$other"
fi
if particles_mutant no-reserve particles.h 's/LM_TARGET ? 1 + cycle->num_drafts :/LM_TARGET ? 0 :/'; then
    caught no-reserve 2 "row_status of"
fi
# A particle that takes over the text and only one of the caches.
if particles_mutant one-cache lm_particles.h 's/d.num_caches = LM_NUM_MODELS;/d.num_caches = 1;/'; then
    caught one-cache 1 "$other"
fi
if particles_mutant no-text lm_particles.h 's/d.text = c->board;/d.text = NULL;/'; then
    caught no-text 1 "$other"
fi
# A draft model whose cache is said to lack what it has.
if particles_mutant smc-hole lm_particles.h 's/d.num_pending = behind;/d.num_pending = 0;/'; then
    caught smc-hole 2 "draft_lacks is not 2"
fi
# Pages that nobody gives back.
if particles_mutant leak particles.h 's/memset(in.finished, 1, sizeof in.finished)/memset(in.finished, 1, 3)/'; then
    notices leak "$out/leak" $smc --particles 4 --tokens 6
    if tail -n 1 "$out/refused" | grep -q '^pages: not all free$'; then pass; else
        fail "leak: not said"
    fi
fi
# All particles with the numbers of the first: they stay the same, and their weights are equal.
if mutant one-seed smc.c 's/particle_seed(b->seed\[g\], i)/particle_seed(b->seed[g], 0)/'; then
    runs one-seed.txt "$free" "$out/one-seed" $smc --particles 8 --tokens 14 --check
    if [ "$(resampled one-seed.txt)" = 0 ]; then pass; else fail "one-seed: particles differ"; fi
fi
# A launch that waits for the plan.
late='p->out->num_jobs[0] > 0 \&\& P_CALL(reshuffle,'
if particles_mutant waits particles.h "s/P_CALL(reshuffle,/$late/"; then
    for prompt in a b; do
        "$out/waits" $smc --prompts "$out/prompts-$prompt" --tokens 23 --log-launches |
            grep '^launch' >"$out/waits-$prompt"
    done
    if ! cmp -s "$out/waits-a" "$out/waits-b"; then pass; else
        fail "a launch that depends on the plan does not show in the log"
    fi
fi
# Told by that law everywhere: plain decoding says the same, the likelihood of the texts does not.
if particles_mutant told-not-raw lm_emitted.h 's/e.raw = 1;/;/'; then
    runs told-not-raw.txt "$all32" "$out/told-not-raw" $vary --likelihood --logprobs 1
    if as_likely told-not-raw.txt; then fail "told-not-raw went unnoticed"; else pass; fi
fi
# Masks for the first position of a step alone.
if particles_mutant one-mask lm_filters.h 's/j <= LM_MAX_GAMMA; j++) memcpy/j < 1; j++) memcpy/'; then
    refuses 1 "never committed" "$out/one-mask" $vary $mask
fi
# Weights by the log-probabilities of other drafts; by a power of p that is 1 % too large; bonus
# tokens of p^2 without their weight; drafts that the draft model filters, too, so that some of what
# the target allows is never drawn; bonus tokens without filters.
# biased NAME OTHER OPTIONS...
biased() {
    name=$1 other=$2
    shift 2
    value=$(estimate "$out/$name" "$@")
    if [ -n "$value" ] && ! agree "$value" "$other"; then pass; else
        fail "$name does not show in the weights: $value"
    fi
}
strides='s/row_stride_elems = 1;/row_stride_elems = p->limits.gamma;/
    s/pos_stride_elems = p->limits.batch;/pos_stride_elems = 1;/'
if particles_mutant smc-wrong-q lm_particles.h "$strides"; then
    biased smc-wrong-q "1 0" --temperature 16 --gamma 3
fi
if particles_mutant smc-alpha particles.h 's/alpha\[row\] = s/alpha[row] = 1.01f * s/'; then
    biased smc-alpha "1 0" --temperature 16 --gamma 1
    biased smc-alpha "$squares_1" --temperature 32 --alpha 2 --gamma 3
fi
if particles_mutant no-bonus-weight lm_particles.h 's/if (p->is_tempered) d.bonus_lse/if (0) d.bonus_lse/'; then
    biased no-bonus-weight "$squares_1" --temperature 32 --alpha 2 --gamma 3
fi

if particles_mutant smc-cut-drafts lm_filters.h 's/given \&= LM_MASK;/;/'; then
    biased smc-cut-drafts "1 0" --temperature 16 --gamma 3 $mask --top-k 28 --top-p 0.95
fi
if particles_mutant smc-open-bonus particles.h "s/d.temperature = s->particles.bonus_t/$none d.filters = none; &/"; then
    biased smc-open-bonus "$left_1" --temperature 48 --alpha 2 --gamma 3 $mask --top-k 32
fi

echo "$passed passed, $failed failed, $skipped skipped"
[ $failed -eq 0 ]
