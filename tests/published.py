#!/usr/bin/env python3
"""published.py: the published rules in NumPy, in double precision, against the reference. Logits of
real vocabularies, given uniforms; every decision has to be the same, but where the compared numbers
are so close that rounding may turn them. Such rows are counted and listed.
   CC=gcc          compiler of the reference
   QUICK=1         fewer rows
Ends with "N passed, N failed, N skipped"."""
import os
import subprocess
import sys
import tempfile

try:
    import numpy as np
except ImportError:
    print("skipped published: no NumPy")
    print("0 passed, 0 failed, 1 skipped")
    sys.exit(0)

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
QUICK = bool(os.environ.get("QUICK")) or "--quick" in sys.argv
TOKEN, BLOCK = 0, 1
F32, F16, BF16 = 0, 1, 2
RULES, DTYPES = ("token", "block"), ("f32", "f16", "bf16")

# How close is close. p and q of the reference are floats, good to about 1e-7 of themselves; the
# block rule's sums are of masses up to 1, and so are a CDF's.
RELATIVE, MASS = 1e-5, 1e-6


def encode(logits, dtype):
    """Logits as the reference reads them, and the doubles that these codes mean."""
    if dtype == F16:
        codes = logits.astype(np.float16)
        return codes, codes.astype(np.float64)
    codes = logits.astype(np.float32)
    if dtype == BF16:
        words = codes.view(np.uint32) >> 16
        return words.astype(np.uint16), (words << 16).view(np.float32).astype(np.float64)
    return codes, codes.astype(np.float64)


def softmax(logits, temperature):
    scaled = logits / temperature[:, None, None]
    largest = scaled.max(axis=2, keepdims=True)
    weights = np.exp(scaled - largest)
    total = weights.sum(axis=2, keepdims=True)
    return weights / total, (largest + np.log(total))[:, :, 0]


class Row:
    """One request: p [n + 1][vocab], q [n][vocab] or None (1 at the draft), drafts, uniforms."""

    def __init__(self, rule, p, q, drafts, accept, sample):
        self.rule, self.p, self.q, self.drafts = rule, p, q, drafts
        self.accept, self.sample, self.n = accept, sample, len(drafts)
        self.prefix = [1.0]
        for i, d in enumerate(drafts):
            above, below = self.prefix[i] * p[i][d], 1.0 if q is None else q[i][d]
            ratio = above / below if below > 0 else float(above > 0)
            self.prefix.append(min(1.0, ratio))
        self.tests = [self.test(i) for i in range(self.n)]

    def q_row(self, i):
        if self.q is not None:
            return self.q[i]
        row = np.zeros(self.p.shape[1])
        row[self.drafts[i]] = 1
        return row

    def test(self, i):
        """Both sides of the comparison that draft i (and, by the block rule, all before it) must
        pass: it does if the left one is smaller."""
        u, d = self.accept[i], self.drafts[i]
        if self.rule == TOKEN:
            return u * (1.0 if self.q is None else self.q[i][d]), self.p[i][d]
        if i + 1 == self.n:
            return u, self.prefix[self.n]
        gap = self.prefix[i + 1] * self.p[i + 1] - self.q_row(i + 1)
        gain, loss = gap[gap > 0].sum(), -gap[gap < 0].sum()
        return (u * loss, gain) if loss > 0 else (0.0, 1.0)

    def tau(self):
        passed = [left < right for left, right in self.tests]
        if self.rule == TOKEN:
            return passed.index(False) if False in passed else self.n
        return max((i + 1 for i in range(self.n) if passed[i]), default=0)

    def is_close(self, i):
        left, right = self.tests[i]
        gap = abs(left - right)
        return (0 < gap <= RELATIVE * max(left, right) or
                (self.rule == BLOCK and self.prefix[i + 1] > 0 and gap <= MASS))

    def running_sums(self, tau):
        weights = self.p[tau]
        if tau < self.n:
            if self.q is None:
                weights = weights.copy()
                weights[self.drafts[tau]] = 0
            else:
                scale = self.prefix[tau] if self.rule == BLOCK else 1.0
                weights = np.maximum(scale * self.p[tau] - self.q[tau], 0)
            if not weights.any():
                weights = self.p[tau]
        return np.cumsum(weights)

    def compare(self, tau, token):
        """"same", "rounding" or what is wrong with the reference's answer."""
        want = self.tau()
        if tau != want:
            test = min(tau, want) if self.rule == TOKEN else max(tau, want) - 1
            if self.is_close(test):
                return "rounding"
            return f"accepted {tau}, not {want}: {self.tests[test]}"
        sums = self.running_sums(tau)
        at = self.sample * sums[-1]
        chosen = int(np.searchsorted(sums, at, side="right"))
        if token == chosen:
            return "same"
        begin, end = sums[token - 1] if token > 0 else 0.0, sums[token]
        if 0 <= token and begin - MASS <= at <= end + MASS and end > begin:
            return "rounding"
        return f"token {token}, not {chosen}: {at} in {begin} to {end}"


def make_batch(rng, rule, dtype, vocab, with_q, rows, n):
    """Logits with a few likely tokens and a long tail, some of them masked; a draft model that is
    like the target; drafts drawn from it."""
    shape = (rows, n + 1, vocab)
    target = rng.standard_normal(shape) * rng.uniform(0.5, 4, (rows, n + 1, 1))
    draft = target[:, :n] + rng.standard_normal((rows, n, vocab)) * rng.uniform(0, 1.5, (rows, n, 1))
    for row in range(0, rows, 3):  # top-k and the like leave few tokens
        masked = rng.random((n + 1, vocab)) > 50 / vocab
        masked[:, rng.integers(vocab)] = False
        target[row][masked] = -np.inf
        if row % 2:
            draft[row][masked[:n]] = -np.inf
    target_codes, target = encode(target, dtype)
    draft_codes, draft = encode(draft, dtype)
    temperature = rng.uniform(0.5, 1.5, rows).astype(np.float32)
    draft_temperature = rng.uniform(0.5, 1.5, rows).astype(np.float32)
    p, lse = softmax(target, temperature.astype(np.float64))
    q = softmax(draft, draft_temperature.astype(np.float64))[0]
    sums = np.cumsum(q, axis=2)
    at = rng.random((rows, n, 1)) * sums[:, :, -1:]
    drafts = (sums <= at).sum(axis=2).astype(np.int32)
    uniforms = rng.integers(0, 1 << 24, (rows, n + 1)).astype(np.float32) / (1 << 24)
    ends = np.array([0, 1 - 2.0**-24, 2.0**-24, 0.5], dtype=np.float32)
    special = rng.random((rows, n + 1)) < 0.05
    uniforms[special] = rng.choice(ends, special.sum())
    head = np.array([rule, rows, n, vocab, dtype, with_q], dtype=np.int32)
    accept = np.ascontiguousarray(uniforms[:, :n])
    sample = np.ascontiguousarray(uniforms[:, n])
    parts = [head, drafts, target_codes] + ([draft_codes] if with_q else [])
    parts += [temperature, draft_temperature, accept, sample]
    requests = [Row(rule, p[b], q[b] if with_q else None, drafts[b],
                    accept[b].astype(np.float64), float(sample[b])) for b in range(rows)]
    return b"".join(np.ascontiguousarray(part).tobytes() for part in parts), requests, p, lse


def run_case(driver, rng, counts, *args):
    """One batch through both. Complaints, as lines."""
    data, requests, p, lse = make_batch(rng, *args)
    done = subprocess.run([driver], input=data, capture_output=True, check=False)
    rows = len(requests)
    if done.returncode or len(done.stdout) != 20 * rows:
        return [f"the reference failed: {done.stderr.decode().strip()}"]
    accepted, tokens, status = np.frombuffer(done.stdout, np.int32, 3 * rows).reshape(3, rows)
    logprobs, sums = np.frombuffer(done.stdout, np.float32, 2 * rows, 12 * rows).reshape(2, rows)
    problems = []
    for b, request in enumerate(requests):
        tau, token = int(accepted[b]), int(tokens[b])
        answer = request.compare(tau, token)
        counts["rows"] += 1
        if answer == "rounding":
            counts["rounding"] += 1
            print(f"        row {b}: decided otherwise by rounding: {tau} accepted, then {token}")
        elif answer != "same":
            problems.append(f"row {b}: {answer}")
        exact = np.log(p[b, tau, token])
        if abs(logprobs[b] - exact) > 1e-5 * max(1, abs(exact)):
            problems.append(f"row {b}: logprob {logprobs[b]}, not {exact}")
        if abs(sums[b] - lse[b, tau]) > 1e-5 * max(1, abs(lse[b, tau])):
            problems.append(f"row {b}: lse {sums[b]}, not {lse[b, tau]}")
        if status[b]:
            problems.append(f"row {b}: status {status[b]:#x}")
    return problems


def main():
    passed = failed = 0
    counts = {"rows": 0, "rounding": 0}
    rng = np.random.default_rng(20260)
    with tempfile.TemporaryDirectory() as folder:
        driver = os.path.join(folder, "published")
        compiler = os.environ.get("CC", "gcc")
        command = [compiler, "-O2", "-std=c99", "-I" + ROOT, "-o", driver,
                   os.path.join(ROOT, "tests", "published.c")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            print("FAIL published: " + done.stderr.strip())
            print("0 passed, 1 failed, 0 skipped")
            return 1
        for vocab, rows, n in ((1000, 96, 5), (32000, 16, 4), (151936, 4, 3)):
            for dtype in (F32, F16, BF16):
                for rule in (TOKEN, BLOCK):
                    for with_q in (1, 0):
                        rows_here = max(rows // 4, 2) if QUICK else rows
                        name = (f"published: V {vocab}, {DTYPES[dtype]}, {RULES[rule]}, "
                                f"{'with q' if with_q else 'one-hot'}")
                        problems = run_case(driver, rng, counts, rule, dtype, vocab, with_q,
                                            rows_here, n)
                        for problem in problems[:5]:
                            print(f"FAIL {name}: {problem}")
                        passed += not problems
                        failed += bool(problems)
    print(f"published: {counts['rows']} rows, {counts['rounding']} decided otherwise by rounding")
    print(f"{passed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
