# SPDX-License-Identifier: MIT-0
#
# What tiny_lm.sh and tiny_lm_gpu.sh have in common: how a run is looked at, and the program itself,
# $out/tiny_lm, with the C backend. Sourced in the root of the repository, with $out set.

mkdir -p "$out" || exit 2
out=$(cd "$out" && pwd)
here=examples/tiny_lm
sources="$here/tiny_lm.c $here/engine.c $here/tree.c $here/model.c $here/cpu.c $here/smc.c $here/judge.c"
flags="-std=c99 -ffp-contract=off -Wall -Wextra -Wconversion -Wshadow -Wpedantic -Werror -I."
passed=0 failed=0 skipped=0
rm -f "$out"/tiny_lm*
# Other tests run beside these: two threads would wait for each other.
export TINY_LM_THREADS=${TINY_LM_THREADS:-1}

pass() { passed=$((passed + 1)); }
fail() { failed=$((failed + 1)) && echo "FAILED $1"; }
skip() { skipped=$((skipped + 1)) && echo "skipped $1: $2"; }

# what must be the same in every setting: the texts, what --logprobs tells of their tokens, and the
# fingerprint of the committed KV rows
token_line='^ +[^ ]{1,4} +-?([0-9]+[.][0-9]{4}|inf) +[0-9]+(  |$)'
same_part() { grep -E "^ *[0-9]+  .* >> |^target.s KV|$token_line" "$1"; }

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

if ${CC:-gcc} -O3 $flags $sources -pthread -lm -o "$out/tiny_lm"; then pass; else
    fail "the C version does not compile"
    echo "$passed passed, $failed failed, $skipped skipped"
    exit 1
fi
all32="identical to plain decoding: 32 of 32"
all4="identical to plain decoding: 4 of 4"
grep -E '^.{1,12}$' $here/prompts.txt | head -n 4 >"$out/prompts-4" # little to prefill
counts="[0-9]+ tokens, [0-9.]+ a step, acceptance rate [01][.][0-9]+"
free="pages: all free"

# No e, no t, no capitals; each way to write a byte, and line ends that mean nothing.
printf 'abcdfghijklmnopqrsuvwxyz\n ,;.:\\n\n\\x27!?\\\\\n\n' >"$out/mask"
mask="--mask $out/mask"
cuts="--top-k 8 --top-p 0.8 --min-p 0.2" # at temperature 2 each of these leaves something out

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

# same_drafts NAME OTHER: as many proposed and accepted, so the draft model's cache is right too
same_drafts() {
    if [ "$(grep '^drafts ' "$out/$1")" = "$(grep '^drafts ' "$out/$2")" ]; then pass; else
        fail "$1 and $2 differ in their drafts"
    fi
}
