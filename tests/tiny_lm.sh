#!/bin/sh
# SPDX-License-Identifier: MIT-0
#
# tiny_lm.sh - the whole program examples/tiny_lm: text and KV caches must not depend on batch,
# gamma, budget, kind of cache, schedule, compiler or backend; sampled texts must have the law of
# plain sampling; caches of particles must be those of their texts, and their weights without bias;
# damaged input must be refused; a broken commit or a random number used twice must be noticed.
#
# usage: tests/tiny_lm.sh [build folder]     (build/tiny_lm-tests)
# CC, CLANG, NVCC choose compilers; PTXRUN_OUT is where tests/ptxrun was built.

cd "$(dirname "$0")/.." || exit 2
out=${1:-build/tiny_lm-tests}
mkdir -p "$out" || exit 2
out=$(cd "$out" && pwd)
here=examples/tiny_lm
sources="$here/tiny_lm.c $here/engine.c $here/model.c $here/cpu.c $here/smc.c $here/judge.c"
flags="-std=c99 -ffp-contract=off -Wall -Wextra -Wconversion -Wshadow -Wpedantic -Werror -I."
passed=0 failed=0 skipped=0
rm -f "$out"/tiny_lm*

pass() { passed=$((passed + 1)); }
fail() { failed=$((failed + 1)) && echo "FAILED $1"; }
skip() { skipped=$((skipped + 1)) && echo "skipped $1: $2"; }

# what must be the same in every setting: the texts and the fingerprint of the committed KV rows
same_part() { grep -E '^ *[0-9]+  .* >> |^target.s KV' "$1"; }

# runs NAME LAST_LINE COMMAND...: exit status 0, a last line that matches; output in $out/NAME
runs() {
    name=$1 last=$2
    shift 2
    if "$@" >"$out/$name" 2>"$out/$name.err" && tail -n 1 "$out/$name" | grep -Eqx "$last"; then
        pass
    else
        fail "$name: $* (see $out/$name)"
        return 1
    fi
}

# equals NAME OTHER
equals() {
    same_part "$out/$1" >"$out/$1.same"
    same_part "$out/$2" >"$out/$2.same"
    if [ -s "$out/$1.same" ] && cmp -s "$out/$1.same" "$out/$2.same"; then
        pass
    else
        fail "$1 and $2 differ"
    fi
}

# refuses STATUS MESSAGE COMMAND...: that exit status, and the message on standard error
refuses() {
    status=$1 message=$2
    shift 2
    "$@" >"$out/refused" 2>"$out/refused.err"
    got=$?
    if [ $got -eq "$status" ] && grep -q -e "$message" "$out/refused.err"; then
        pass
    else
        fail "status $got, not $status with '$message': $*"
        head -n 3 "$out/refused.err"
    fi
}

# ---- the C backend in many settings -------------------------------------------------------------

if ${CC:-gcc} -O3 $flags $sources -lm -o "$out/tiny_lm"; then pass; else
    fail "the C version does not compile"
    echo "$passed passed, $failed failed, $skipped skipped"
    exit 1
fi
all32="identical to plain decoding: 32 of 32"
all4="identical to plain decoding: 4 of 4"
grep -E '^.{1,12}$' $here/prompts.txt | head -n 4 >"$out/prompts-4" # little to prefill
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
    if ${CLANG:-clang} -O2 $flags $sources -lm -o "$out/tiny_lm_clang"; then
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
    if ${CC:-gcc} -O3 $native $flags $sources -lm -o "$out/tiny_lm_native"; then
        runs native "$all32" "$out/tiny_lm_native" --backend cpu --tokens 24 && equals native g1-b1
    else
        fail "it does not compile with -march=native"
    fi
else
    skip native "${CC:-gcc} has no -march=native"
fi
counts="[0-9]+ tokens, [0-9.]+ a step, acceptance rate [01][.][0-9]+"
passes="the law of plain sampling: pass"
tiny_lm=$out/tiny_lm
if ${CC:-gcc} -O2 -g -fsanitize=address,undefined -fno-sanitize-recover=all $flags $sources -lm \
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

# differs NAME OTHER
differs() {
    same_part "$out/$1" >"$out/$1.same"
    same_part "$out/$2" >"$out/$2.same"
    if [ -s "$out/$1.same" ] && ! cmp -s "$out/$1.same" "$out/$2.same"; then pass; else
        fail "$1 and $2 do not differ"
    fi
}

# acceptance rate in thousandths
rate() { sed -n 's/^acceptance rate *0*\.*\([0-9.]*\) of.*/\1/p' "$out/$1" | tr -d . | sed 's/^0*//'; }

# Temperature 0 is greedy decoding, whatever the rule.
for rule in token block coupled; do
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

# same_drafts NAME OTHER: as many proposed and accepted, so the draft model's cache is right too
same_drafts() {
    if [ "$(grep '^drafts ' "$out/$1")" = "$(grep '^drafts ' "$out/$2")" ]; then pass; else
        fail "$1 and $2 differ in their drafts"
    fi
}

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

# ---- particles ----------------------------------------------------------------------------------

# Every particle's caches are those of its text after each cycle, in the end all pages are free.
free="pages: all free"
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

# Plain passes say the same of a text whatever wrote it, and greedy texts are likelier than sampled.
likelihood() { sed -n 's/^log-likelihood  *\(-[0-9.]*\) a token.*/\1/p' "$out/$1"; }
runs likely "$all4" "$fast" --backend cpu --prompts "$out/prompts-4" --likelihood
runs likely-32 "$all4" "$fast" --backend cpu --prompts "$out/prompts-4" --likelihood --batch 1 --gamma 1
runs likely-token "$counts" "$fast" --backend cpu --prompts "$out/prompts-4" --likelihood --rule token
if [ "$(likelihood likely)" = "$(likelihood likely-32)" ] &&
    awk "BEGIN { exit !($(likelihood likely) > $(likelihood likely-token)) }"; then pass; else
    fail "the likelihood of greedy texts"
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
for value in '' raged paged,gap 0; do
    refuses 2 "--cache: .* is none of ragged" "$tiny_lm" --cache "$value"
done
for value in 0 16385 -1 x ''; do
    refuses 2 "--budget: .* is not a number" "$tiny_lm" --budget "$value"
done
for drafter in ngram random; do
    refuses 2 "the confidence of a model" "$tiny_lm" --budget 8 --drafter $drafter
done
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
    budget particles replicates alpha ess; do
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

# mutant NAME FILE SED_SCRIPT: the program with one line changed
mutant() {
    sed "$3" "$here/$2" >"$out/$1-$2"
    if cmp -s "$out/$1-$2" "$here/$2"; then
        fail "$1: the line to change is gone"
        return 1
    fi
    others=$(echo "$sources" | sed "s|$here/$2|$out/$1-$2|")
    ${CC:-gcc} -O2 $native -std=c99 -ffp-contract=off -I. -I$here $others -lm -o "$out/$1" || fail "$1"
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
if mutant unmasked cpu.c 's/pos = lm_position(s->cache, row->slot, column);/pos = column;/'; then
    runs unmasked-ragged "$all32" "$out/unmasked" $vary
    for how in "--cache padded" "--cache gap" "--exspec 8 --batch 4"; do
        notices unmasked "$out/unmasked" $vary $how
    done
fi
column='s/pos = lm_position(s->cache, row->slot, row->column);/pos = row->column % s->limits.max_seq;/'
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
    others=$(echo "$sources" | sed "s|$here/cpu.c|$out/$1.d/cpu.c|")
    ${CC:-gcc} -O3 $native -std=c99 -ffp-contract=off -I. -I$here $others -lm -o "$out/$1" ||
        fail "$1"
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
# Weights by the log-probabilities of other drafts; by a power of p that is 1 % too large; bonus
# tokens of p^2 without their weight.
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

# ---- the CUDA backend, on tests/ptxrun ----------------------------------------------------------

if command -v "${NVCC:-nvcc}" >/dev/null; then
    ptxrun=${PTXRUN_OUT:-tests/ptxrun/build}
    [ -f "$ptxrun/libcudart.so.13" ] || make -s -C tests/ptxrun OUT="$(realpath -m "$ptxrun")"
    ptxrun=$(realpath "$ptxrun")
    if bash $here/build_gpu.sh "$out/tiny_lm_cuda" compute_90 -cudart shared -no-compress -lineinfo; then
        on_ptxrun() { LD_LIBRARY_PATH="$ptxrun" PTXRUN_EXIT=1 "$out/tiny_lm_cuda" "$@"; }
        few="--prompts $out/prompts-4 --tokens 8 --batch 3"
        runs few-cpu "$all4" "$out/tiny_lm" --backend cpu $few
        runs few-cuda-cpu "$all4" on_ptxrun --backend cpu $few && equals few-cuda-cpu few-cpu
        runs few-gpu "$all4" on_ptxrun --backend gpu $few && equals few-gpu few-cpu
        head -n 2 "$out/prompts-4" >"$out/prompts-2"
        few="--prompts $out/prompts-2 --tokens 5 --batch 2 --gamma 2"
        all2="identical to plain decoding: 2 of 2"
        runs hard-cpu "$all2" "$out/tiny_lm" --backend cpu $few
        PTXRUN_OPTS="seed=1 weak=1 split=20 approx=jitter"
        export PTXRUN_OPTS
        runs hard-gpu "$all2" on_ptxrun $few && equals hard-gpu hard-cpu
        printf 'And\nLet\n' >"$out/prompts-tiny"
        few="--prompts $out/prompts-tiny --tokens 5 --batch 2 --gamma 3"
        for rule in token block coupled; do
            drafter=model last=$counts
            [ $rule = coupled ] && drafter=ngram last=$all2
            how="--rule $rule --drafter $drafter"
            runs $rule-cpu "$last" "$out/tiny_lm" --backend cpu $few $how
            runs $rule-gpu "$last" on_ptxrun --backend gpu $few $how && equals $rule-gpu $rule-cpu
        done
        for rule in greedy token coupled; do
            last=$all2
            [ $rule = token ] && last=$counts
            runs budget-$rule-cpu "$last" "$out/tiny_lm" --backend cpu $few --rule $rule --budget 3
            runs budget-$rule-gpu "$last" on_ptxrun --backend gpu $few --rule $rule --budget 3
            equals budget-$rule-gpu budget-$rule-cpu
            same_drafts budget-$rule-gpu budget-$rule-cpu
        done
        printf 'And\nLet\nI\n' >"$out/prompts-tiny"
        all3="identical to plain decoding: 3 of 3"
        few="--prompts $out/prompts-tiny --tokens 4 --gamma 2 --vary-tokens"
        for how in "--cache paged --page-size 2 --continuous --batch 2" \
            "--cache padded --continuous --batch 2" "--cache padded --realign copy --batch 3" \
            "--cache gap --batch 3" "--exspec 3 --batch 2"; do
            case $how in *copy*) PTXRUN_OPTS= ;; esac # from here on without hard weather: it costs
            way=$(echo $how | tr -d ' ')
            runs "cpu$way" "$all3" "$out/tiny_lm" --backend cpu $few $how
            runs "gpu$way" "$all3" on_ptxrun --backend gpu $few $how
            equals "gpu$way" "cpu$way" && same_drafts "gpu$way" "cpu$way"
        done
        printf 'And\nLet\n' >"$out/prompts-tiny"
        for alpha in 1 2; do
            few="--rule smc --prompts $out/prompts-tiny --tokens 6 --gamma 2 --particles 3 --page-size 2"
            few="$few --alpha $alpha --check --log-launches"
            runs smc-cpu-$alpha "$free" "$out/tiny_lm" --backend cpu $few
            runs smc-gpu-$alpha "$free" on_ptxrun --backend gpu $few
            if cmp -s "$out/smc-cpu-$alpha" "$out/smc-gpu-$alpha"; then pass; else
                fail "smc, alpha $alpha: the backends differ"
            fi
        done
    else
        fail "the CUDA version does not compile"
    fi
else
    skip "the CUDA backend" "no ${NVCC:-nvcc}"
fi

echo "$passed passed, $failed failed, $skipped skipped"
[ $failed -eq 0 ]
