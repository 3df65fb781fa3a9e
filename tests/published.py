#!/usr/bin/env python3
"""published.py: the published rules in NumPy, in double precision, against the reference. Logits of
real vocabularies, given uniforms; every decision has to be the same, but where the compared numbers
are so close that rounding may turn them. Such rows are counted and listed. Of a rule that draws by
noise: what may be drawn, and how often drafts are accepted.
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
TYPICAL, TYPICAL_DRAW, THRESHOLD, RELAXED, BOUNDED = 5, 6, 7, 8, 9
F32, F16, BF16 = 0, 1, 2
DTYPES = ("f32", "f16", "bf16")
RULES = {TOKEN: "token", BLOCK: "block", TYPICAL: "typical", TYPICAL_DRAW: "typical draw",
         THRESHOLD: "threshold", RELAXED: "relaxed", BOUNDED: "bounded"}

# How close is close. p and q of the reference are floats, good to about 1e-7 of themselves; the
# block rule's sums are of masses up to 1, and so are a CDF's. An entropy is good to 2^-18 of a bit
# and a little for each id, see specv_lossy.
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


class LossyRow:
    """One request of a lossy rule: as Row, and what the rule is told, in this order: epsilon or
    threshold_single or delta, alpha or threshold_acc or ratio, top_n. scores: the logits."""

    def __init__(self, rule, p, q, drafts, accept, sample, scores, told):
        self.rule, self.p, self.q, self.drafts, self.scores = rule, p, q, drafts, scores
        self.accept, self.sample, self.n = accept, sample, len(drafts)
        self.low, self.scale, self.top = told
        self.first = [int(np.argmax(row)) for row in scores]

    def least(self, i):
        """min(epsilon, alpha e^-H): Medusa, section 2.3.1; TensorRT-LLM's, of the same form."""
        p = self.p[i][self.p[i] > 0]
        return min(self.low, self.scale * np.exp((p * np.log(p)).sum()))

    def kept(self, i):
        """TYPICAL_DRAW: ids that remain, and those so near to the limit that they may not."""
        least = self.least(i)
        remain, near = self.p[i] >= least, np.abs(self.p[i] - least) <= RELATIVE * least
        remain[self.first[i]], near[self.first[i]] = True, False
        return remain, near & (self.p[i] > 0)

    def passes(self, i):
        """Is draft i accepted: True, False, or None where rounding may turn it."""
        d, p = self.drafts[i], self.p[i]
        if p[d] <= 0:
            return False
        if self.rule in (TYPICAL, RELAXED) and d == self.first[i]:
            return True
        if self.rule == TYPICAL:  # posterior_prob > threshold
            return above(p[d], self.least(i), self.least(i))
        if self.rule == RELAXED:  # one of the first N, and not further than delta from the first
            row = self.scores[i]
            before = (row > row[d]).sum() + (row[:d] == row[d]).sum()
            return before < self.top and above(p[d], p[self.first[i]] - self.low, 1)
        if self.rule == THRESHOLD:  # coin * threshold_acc < prob, or prob >= threshold_single
            by_coin = above(p[d], self.accept[i] * self.scale, p[d])
            single = above(p[d], self.low, p[d])
            return True if by_coin or single else None if None in (by_coin, single) else False
        q = 1.0 if self.q is None else self.q[i][d]
        return above(self.scale * p[d], self.accept[i] * q, self.accept[i] * q)

    def weights(self, tau):
        """What the token behind `tau` drafts is drawn from, by its uniform."""
        weights = self.p[tau].copy()
        if tau == self.n:
            return weights
        if self.rule == THRESHOLD or self.q is None:
            weights[self.drafts[tau]] = 0
        else:
            weights = np.maximum(self.lower(tau) * self.p[tau] - self.q[tau], 0)
        return weights if weights.any() else self.p[tau]

    def lower(self, i):
        """c with which clamp(q, c p, ratio p) sums to 1: by halving."""
        low, high = 0.0, 1.0
        for _ in range(60):
            c = (low + high) / 2
            total = np.clip(self.q[i], c * self.p[i], self.scale * self.p[i]).sum()
            low, high = (low, c) if total > 1 else (c, high)
        return low

    def compare(self, tau, token):
        """"same", "rounding" or what is wrong with the reference's answer."""
        rounded = False
        for i in range(min(tau + 1, self.n)):
            if self.rule == TYPICAL_DRAW:
                remain, near = self.kept(i)
                said = self.drafts[i] if i < tau else token
                if near[said]:
                    rounded = True
                elif not remain[said]:
                    return f"token {said} at {i} is not typical"
                elif i < tau and said != self.first[i] and remain.sum() + near.sum() == 1:
                    return f"token {said} at {i}, where one alone is left"
                continue
            passed = self.passes(i)
            if passed is None:
                rounded = True
            elif passed != (i < tau):
                return f"draft {i} was {'accepted' if i < tau else 'rejected'}"
        if self.rule == TYPICAL_DRAW:
            remain, near = self.kept(tau)
            if not remain[token] and not near[token]:
                return f"token {token} is not typical"
            if tau < self.n and token == self.drafts[tau]:
                return f"draft {tau} was rejected, and came all the same"
        elif self.rule in (TYPICAL, RELAXED):
            if token != self.first[tau]:
                return f"token {token}, not the first, {self.first[tau]}"
        else:
            sums = np.cumsum(self.weights(tau))
            at = self.sample * sums[-1]
            chosen = int(np.searchsorted(sums, at, side="right"))
            begin, end = sums[token - 1] if token > 0 else 0.0, sums[token]
            near = MASS * max(1, 1 / sums[-1]) * sums[-1]
            if token != chosen and not (begin - near <= at <= end + near and end > begin):
                return f"token {token}, not {chosen}: {at} in {begin} to {end}"
            rounded = rounded or token != chosen
        return "rounding" if rounded else "same"

    def chances(self):
        """TYPICAL_DRAW: how likely the first position is the draft's and how likely it is the first
        id's; None where rounding matters."""
        remain, near = self.kept(0)
        if near.any():
            return None
        mass, d, first = self.p[0][remain].sum(), self.drafts[0], self.first[0]
        return self.p[0][d] * remain[d] / mass, self.p[0][first] / mass


def above(left, right, about):
    """left > right? None: too near to say."""
    if abs(left - right) <= RELATIVE * about + 1e-30:
        return None
    return left > right


def what_is_told(rng, rule, rows):
    """Numbers that decide, and some that decide nothing."""
    low, scale = np.ones(rows), np.ones(rows)
    top = np.ones(rows)
    if rule in (TYPICAL, TYPICAL_DRAW):
        low, scale = rng.uniform(0, 0.3, rows), rng.uniform(0.05, 2, rows)
        low[::5], scale[1::5] = 1, np.inf
    elif rule == THRESHOLD:
        low, scale = rng.uniform(0, 0.5, rows), rng.uniform(0, 1, rows)
        low[::5], scale[1::5] = 1, 1
    elif rule == RELAXED:
        low, top = rng.uniform(0, 0.3, rows), rng.integers(0, 20, rows)
        low[::5] = 1
    elif rule == BOUNDED:
        scale = rng.choice([1, 1.1, 1.5, 2, 10], rows)
    return low.astype(np.float32), scale.astype(np.float32), top.astype(np.int32)


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
    if rule > BLOCK:  # likely ones of the target, so that limits are felt
        order = np.argsort(-target[:, :n], axis=2, kind="stable")[:, :, :8]
        places = rng.integers(0, 8, (rows, n, 1)) // rng.integers(1, 4, (rows, n, 1))
        likely = np.take_along_axis(order, places, axis=2)[:, :, 0]
        drafts = np.where(rng.random((rows, n)) < 0.8, likely, drafts).astype(np.int32)
    uniforms = rng.integers(0, 1 << 24, (rows, n + 1)).astype(np.float32) / (1 << 24)
    ends = np.array([0, 1 - 2.0**-24, 2.0**-24, 0.5], dtype=np.float32)
    special = rng.random((rows, n + 1)) < 0.05
    uniforms[special] = rng.choice(ends, special.sum())
    head = np.array([rule, rows, n, vocab, dtype, with_q], dtype=np.int32)
    accept = np.ascontiguousarray(uniforms[:, :n])
    sample = np.ascontiguousarray(uniforms[:, n])
    parts = [head, drafts, target_codes] + ([draft_codes] if with_q else [])
    parts += [temperature, draft_temperature, accept, sample]
    if rule <= BLOCK:
        requests = [Row(rule, p[b], q[b] if with_q else None, drafts[b],
                        accept[b].astype(np.float64), float(sample[b])) for b in range(rows)]
    else:
        told = what_is_told(rng, rule, rows)
        parts += [*told, rng.integers(0, 1 << 62, rows).astype(np.uint64)]
        requests = [LossyRow(rule, p[b], q[b] if with_q else None, drafts[b],
                             accept[b].astype(np.float64), float(sample[b]), target[b],
                             [float(numbers[b]) for numbers in told]) for b in range(rows)]
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
        chances = request.chances() if request.rule == TYPICAL_DRAW else None
        if chances:
            drawn = request.drafts[0] if tau else token
            for what, chance, came in (("drafts", chances[0], tau > 0),
                                       ("likeliest ids", chances[1], drawn == request.first[0])):
                expected, variance, count = counts.get(what, (0.0, 0.0, 0))
                counts[what] = (expected + chance, variance + chance * (1 - chance), count + came)
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
                for rule in RULES:
                    for with_q in (1, 0):
                        if with_q and rule not in (TOKEN, BLOCK, BOUNDED):
                            continue
                        rows_here = max(rows // 4, 2) if QUICK else rows
                        if rule == TYPICAL_DRAW and vocab == 1000:  # what is counted is of chance
                            rows_here = 200
                        name = (f"published: V {vocab}, {DTYPES[dtype]}, {RULES[rule]}, "
                                f"{'with q' if with_q else 'one-hot'}")
                        problems = run_case(driver, rng, counts, rule, dtype, vocab, with_q,
                                            rows_here, n)
                        for problem in problems[:5]:
                            print(f"FAIL {name}: {problem}")
                        passed += not problems
                        failed += bool(problems)
    for what in ("drafts", "likeliest ids"):  # of the first positions of TYPICAL_DRAW
        expected, variance, count = counts[what]
        if abs(count - expected) <= 5 * variance ** 0.5 and variance > 5:
            passed += 1
            continue
        print(f"FAIL published: typical draw emits {count} {what}, {expected:.1f} expected")
        failed += 1
    print(f"published: {counts['rows']} rows, {counts['rounding']} decided otherwise by rounding")
    print(f"{passed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
