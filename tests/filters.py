#!/usr/bin/env python3
"""filters.py: top-k, top-p, min-p and masks as others define them, against the reference: which ids
are kept, and what is drawn from them. The definitions are those of Hugging Face's warpers, of vLLM
(min-p, top-k, then top-p of what is left) and of FlashInfer (each limit of the whole distribution),
in NumPy. Rows have no two equal logits: ties are where the others differ from one another.
   CC=gcc          compiler of the reference
   ROOT=folder     another copy of the two headers
   QUICK=1         fewer requests
   --mutants       break the reference in one place at a time: each has to be seen
The exact set is found in doubles, or with 40 digits where doubles cannot tell. The kit may differ
from it only where the border is as near as its weights are rounded (see KIT); the others compute in
floats and may differ where that rounds (see FLOATS). Both are counted. Where torch and transformers
can be imported, the warpers themselves run as well.
Ends with "N passed, N failed, N skipped"."""
import ctypes
import decimal
import os
import subprocess
import sys
import tempfile

try:
    import numpy as np
except ImportError:
    print("skipped filters: no NumPy")
    print("0 passed, 0 failed, 1 skipped")
    sys.exit(0)

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ROOT = os.environ.get("ROOT", HERE)
QUICK = bool(os.environ.get("QUICK")) or "--quick" in sys.argv
ORDERS = ("top_k, top_p, min_p", "min_p, top_k, top_p", "top_p of all")
TOP_K_FIRST, MIN_P_FIRST, TOP_P_OF_ALL = range(3)  # as in specv_filter_order
# Vocabularies, from a few ids to many tiles, and how many requests each gets.
SIZES = ((5, 150), (17, 150), (64, 100), (300, 100), (1024, 60), (1500, 60), (4099, 50),
         (32000, 18))
NONE = -np.inf

# A weight of the kit is off by a factor within 1.74e-7 of 1 (">>numeric" has the proof), then by
# what rounding down to 2^-40 of the largest one's power of two takes from it. Where a part p of a
# mass is asked for, that moves the border by p (1 - p) times twice the factor, and a unit an id.
KIT, UNIT = 2 * 1.8e-7, 2.0 ** -39.4
# Running sums of up to 32,000 floats, exponentials of rounded quotients: 1e-6 was enough for all
# that was seen. A definition that is not theirs would be off by more.
FLOATS = 4e-6
DOUBLES = 1e-11  # what is nearer to a border than this is decided with 40 digits


# ---- what is asked

class Request:
    """A row of logits and its parameters: top_k, top_p, min_p; mask is null or says who may."""

    def __init__(self, logits, temperature, mask, top_k, top_p, min_p):
        self.logits, self.temperature, self.mask = logits, np.float32(temperature), mask
        self.top_k, self.top_p, self.min_p = int(top_k), np.float32(top_p), np.float32(min_p)
        allowed = np.arange(len(logits)) if mask is None else np.flatnonzero(mask)
        self.ranked = allowed[np.argsort(-logits[allowed], kind="stable")]
        self.weights = self.sums = None
        self.is_beside = False  # was a limit put beside a border?

    def measure(self):
        """Weights, likeliest first, relative to the first."""
        sorted_logits = self.logits[self.ranked].astype(np.float64)
        self.weights = np.exp((sorted_logits - sorted_logits[0]) / np.float64(self.temperature))
        self.sums = np.cumsum(self.weights)
        return self

    def __str__(self):
        return (f"T {self.temperature:.9g}, {len(self.ranked)} allowed, k {self.top_k}, "
                f"p {self.top_p:.9g}, min {self.min_p:.9g}")


# ---- the published definitions, in a type of one's choice

def scaled(request, real):
    x = request.logits.astype(real) / real(request.temperature)
    if request.mask is not None:
        x[~request.mask] = NONE
    return x


def softmax(x):
    weights = np.exp(x - x.max())
    return weights / weights.sum(dtype=x.dtype)


def leave_top_k(x, k):
    if k <= 0:
        return x
    least = np.sort(x)[-min(k, len(x))]
    return np.where(x < least, NONE, x).astype(x.dtype)


def leave_top_p(x, p):
    if p >= 1:
        return x
    upwards = np.argsort(x, kind="stable")
    leave_out = np.cumsum(softmax(x[upwards])) <= x.dtype.type(1 - float(p))
    leave_out[-1] = False
    x = x.copy()
    x[upwards[leave_out]] = NONE
    return x


def leave_min_p(x, p):
    if p <= 0:
        return x
    probs = softmax(x)
    return np.where(probs < x.dtype.type(p) * probs.max(), NONE, x).astype(x.dtype)


def hugging_face(request, real):
    x = leave_top_k(scaled(request, real), request.top_k)
    return leave_min_p(leave_top_p(x, request.top_p), request.min_p) > NONE


def vllm(request, real):
    x = leave_min_p(scaled(request, real), request.min_p)
    return leave_top_p(leave_top_k(x, request.top_k), request.top_p) > NONE


def flashinfer(request, real):
    """Fewer than k ids are likelier, and these have less than p together."""
    probs = softmax(scaled(request, real))
    downwards = np.argsort(-probs, kind="stable")
    likelier = np.zeros(len(probs), real)
    likelier[downwards[1:]] = np.cumsum(probs[downwards])[:-1]
    rank = np.empty(len(probs), int)
    rank[downwards] = np.arange(len(probs))
    kept = scaled(request, real) > NONE
    if request.top_k > 0:
        kept &= rank < request.top_k
    if request.top_p < 1:
        kept &= likelier < real(request.top_p)
    kept &= probs >= real(request.min_p) * probs.max()
    kept[downwards[0]] = True  # top_p 0 is not theirs; here it means what it means to the others
    return kept


DEFINITIONS = (hugging_face, vllm, flashinfer)


# ---- the same once more, as how many ids from the likeliest on

def count_kept(weights, sums, order, top_k, top_p, min_p):
    """weights and sums: floats or decimals, and so are top_p and min_p."""
    allowed = len(weights)
    by_k = min(top_k, allowed) if top_k > 0 else allowed
    by_min = allowed
    if min_p > 0:
        by_min = max(1, int(np.searchsorted(-weights, -(min_p * weights[0]), side="right")))
    of = {TOP_K_FIRST: by_k, MIN_P_FIRST: min(by_k, by_min), TOP_P_OF_ALL: allowed}[order]
    by_p = of
    if top_p < 1:  # ids that less than p of the mass is likelier than
        by_p = max(1, min(of, 1 + int(np.searchsorted(sums, top_p * sums[of - 1], side="left"))))
    return min(by_k, by_min, by_p)


def counts_within(request, order, of_p, of_min, ties=0.0):
    """The least and the most ids that are kept if top_p and min_p may be off by so much."""
    top_ks = [request.top_k]
    x = request.logits[request.ranked].astype(np.float64) / np.float64(request.temperature)
    if ties:  # quotients that are alike as floats: where they take one, they take the other
        k = request.top_k
        while 0 < k < len(x) and x[k - 1] - x[k] <= ties * abs(x[k]):
            k += 1
        top_ks.append(k)
    counts = [count_kept(request.weights, request.sums, order, k,
                         min(max(float(request.top_p) + a, 0.0), 1.0),
                         min(max(float(request.min_p) + b, 0.0), 1.0))
              for k in top_ks for a in (-of_p, 0, of_p) for b in (-of_min, 0, of_min)]
    low, high = min(counts), max(counts)
    while ties and high < len(x) and x[high - 1] - x[high] <= ties * abs(x[high]):
        high += 1
    while ties and low > 1 and x[low - 1] - x[low] <= ties * abs(x[low]):
        low -= 1
    return low, high


def count_with_40_digits(request, order):
    with decimal.localcontext() as context:
        context.prec = 40
        logits = [decimal.Decimal(float(x)) for x in request.logits[request.ranked]]
        temperature = decimal.Decimal(float(request.temperature))
        weights = np.array([((x - logits[0]) / temperature).exp() for x in logits], dtype=object)
        return count_kept(weights, np.cumsum(weights), order, request.top_k,
                          decimal.Decimal(float(request.top_p)),
                          decimal.Decimal(float(request.min_p)))


def exact_count(request, order, tally):
    low, high = counts_within(request, order, DOUBLES, DOUBLES * float(request.min_p))
    if low < high:
        tally["digits"] += 1
        low = count_with_40_digits(request, order)
    return low


def is_between(kept, request, low, high):
    """Are the first `low` ids kept, and none behind `high`?"""
    of_rank = kept[request.ranked]
    return bool(of_rank[:low].all() and not of_rank[high:].any() and
                kept.sum() == of_rank.sum())


def near_kit(request, order):
    p, count = float(request.top_p), len(request.logits)
    return counts_within(request, order, KIT * p * (1 - p) + (count + count // 1024 + 1) * UNIT,
                         KIT * float(request.min_p) + UNIT)


def near_floats(request, order):
    return counts_within(request, order, FLOATS, FLOATS * float(request.min_p), ties=2.0 ** -22)


# ---- the reference

class Row(ctypes.Structure):
    _fields_ = [("scores", ctypes.c_void_p), ("mask", ctypes.c_void_p), ("vocab", ctypes.c_int64),
                ("mask_row", ctypes.c_int32), ("num_mask_rows", ctypes.c_int32),
                ("given", ctypes.c_int32), ("top_k", ctypes.c_int32), ("order", ctypes.c_int32),
                ("top_p", ctypes.c_float), ("min_p", ctypes.c_float),
                ("temperature", ctypes.c_float)]


class Failure(Exception):
    pass


def at(array):
    return array.ctypes.data_as(ctypes.c_void_p)


class Reference:
    """filters.c, with arrays."""

    def __init__(self, library):
        self.library = ctypes.CDLL(library)

    def row(self, request, order, positions=1, table=None):
        """table: masks of others, in which the request's is row 1."""
        scores = np.ascontiguousarray(np.tile(request.logits, positions))
        # Whatever is off is not given half of the time, and given as off else.
        off = (request.top_k <= 0, request.top_p >= 1, request.min_p <= 0)
        given = sum(1 << i for i in range(3) if not off[i] or request.logits[0] > 0)
        row = Row(at(scores), None, len(request.logits), -2, 0, given, request.top_k, order,
                  request.top_p, request.min_p, request.temperature)
        hold = [scores]
        if request.mask is not None:
            vocab = len(request.mask)
            bits = np.zeros((vocab + 31) // 32 * 32, bool)
            bits[:vocab] = request.mask
            words = np.tile(np.packbits(bits, bitorder="little").view("<u4"), (positions, 1))
            if table is not None:
                words = np.vstack([table[:, :words.shape[1]], words, table[:, :words.shape[1]]])
                row.mask_row, row.num_mask_rows = 1, len(words)
            hold.append(np.ascontiguousarray(words.astype(np.uint32)))
            row.mask = at(hold[1])
        return row, hold

    def call(self, function, *args):
        status = ctypes.c_uint32()
        result = getattr(self.library, function)(*args, ctypes.byref(status))
        if result or status.value:
            raise Failure(f"{function} returns {result}, status {status.value:#x}")

    def open(self, request, order, of_draft):
        row, hold = self.row(request, order)
        kept = np.zeros(row.vocab, np.uint8)
        logprob = np.zeros(row.vocab, np.float32)
        self.call("filters_open", ctypes.byref(row), of_draft, at(kept), at(logprob))
        del hold
        return kept.astype(bool), logprob

    def sample(self, request, order, uniform, seed, table):
        row, hold = self.row(request, order, 1, table)
        token, numbers = ctypes.c_int32(), np.zeros(3, np.float32)
        self.call("filters_sample", ctypes.byref(row), ctypes.c_float(uniform),
                  ctypes.c_uint64(seed), ctypes.byref(token), at(numbers))
        del hold
        return token.value, numbers

    def score(self, request, order, drafts):
        """Position 0 has a mask of its own, so that one must not be taken for another."""
        decoy = request.mask is not None
        drafts = np.array([request.ranked[0]] * decoy + list(drafts), np.int32)
        row, hold = self.row(request, order, len(drafts) + 1)
        if decoy:
            hold[1][0] = 0
            hold[1][0, drafts[0] // 32] = 1 << int(drafts[0] % 32)
        logprob = np.zeros(len(drafts), np.float32)
        self.call("filters_score", ctypes.byref(row), len(drafts), at(drafts), at(logprob))
        return logprob[int(decoy):]


# ---- requests

def distinct(rng, vocab, spread):
    """Normal logits, no two alike."""
    logits = (rng.standard_normal(vocab) * spread).astype(np.float32)
    while True:
        order = np.argsort(logits, kind="stable")
        same = order[1:][np.diff(logits[order]) == 0]
        if not len(same):
            return logits
        logits[same] = (rng.standard_normal(len(same)) * spread).astype(np.float32)


def choose_mask(rng, vocab, turn):
    kind = turn % 9
    if kind > 4:
        return None
    mask = rng.random(vocab) < (0.5, 0.05, 0.97, 0, 0)[kind]
    if kind == 3:
        mask[rng.integers(2)::2] = True
    if kind == 4 and turn % 2:
        mask[:] = True
    mask[rng.integers(vocab)] = True  # an empty one is no row to compare
    return mask


def choose_request(rng, vocab, turn):
    logits = distinct(rng, vocab, (0.3, 1, 2.5, 6)[turn % 4])
    temperature = 1 if turn % 5 == 0 else rng.uniform(0.5, 2)
    some = rng.random(3) < 0.6
    top_k = rng.choice([1, 2, 3, 7, 50, vocab // 2, vocab - 1, vocab, vocab + 5, -1,
                        rng.integers(1, vocab + 1)]) if some[0] else 0
    top_p = rng.choice([0, 0.1, 0.5, 0.8, 0.9, 0.95, 0.99, 0.999, 1 - 2.0 ** -24, 1e-6,
                        rng.random(), rng.random()]) if some[1] else 1
    min_p = rng.choice([1e-5, 0.001, 0.02, 0.05, 0.1, 0.3, 1, rng.random() ** 3,
                        rng.random() ** 2]) if some[2] else 0
    request = Request(logits, temperature, choose_mask(rng, vocab, turn // 4), top_k, top_p,
                      min_p).measure()
    allowed, ranks = len(request.ranked), int(np.searchsorted(request.sums,
                                                              0.98 * request.sums[-1])) + 1
    if turn % 3 == 0:  # all three, each somewhere in the bulk: what their order is then matters
        request.top_k = int(rng.integers(1, ranks + 1))
        request.top_p = np.float32(rng.uniform(0.3, 0.98))
        request.min_p = np.float32(request.weights[rng.integers(ranks)] * 0.99)
    # Half of them have a limit beside a border: 2e-6 of it away, which the kit must tell from it
    # and floats may not, or as near as a float comes.
    if turn // 3 % 2 == 0:
        return request
    request.is_beside = True
    rank = int(rng.integers(min(allowed, 200)))
    nearness = rng.choice([1 - 2e-6, 1, 1 + 2e-6, 1 - 6e-6, 1 + 6e-6])
    what = rng.integers(3)
    if what == 0:
        request.min_p = np.float32(min(request.weights[rank] * nearness, 1))
        return request
    of = min(allowed, request.top_k) if what == 1 and request.top_k > 0 else allowed
    border = request.sums[min(rank, of - 1)] / request.sums[of - 1]
    request.top_p = np.float32(min(border * nearness, 1))
    return request


# ---- comparison

def logprob_is(got, want):
    """As close as tests/sample.cu asks."""
    return abs(got - want) <= abs(want) * 1e-6 + 2e-6 if np.isfinite(want) else got == want


class Rows:
    """Everything about one request in one order that the reference is compared with."""

    def __init__(self, request, kept):
        x = request.logits.astype(np.float64) / np.float64(request.temperature)
        x[~kept] = NONE
        self.kept, self.largest = kept, x.max()
        self.weights = np.exp(x - self.largest)
        self.total = self.weights.sum()
        self.lse = self.largest + np.log(self.total)
        self.logprob = x - self.lse

    def check_logprobs(self, got):
        with np.errstate(invalid="ignore"):
            good = np.abs(got - self.logprob) <= np.abs(self.logprob) * 1e-6 + 2e-6
        good |= (got == NONE) & (self.logprob == NONE)
        bad = np.flatnonzero(~good)
        return [f"ln p of id {x} is {got[x]}, not {self.logprob[x]}" for x in bad[:1]]

    def check_sample(self, uniform, token, numbers, tally):
        if not 0 <= token < len(self.kept) or not self.kept[token]:
            return [f"token {token} is not one of those kept"]
        problems = []
        if uniform >= 0:
            sums = np.cumsum(self.weights)
            where = float(uniform) * sums[-1]
            begin = sums[token] - self.weights[token]
            tally["drawn"] += 1
            if not begin <= where < sums[token]:
                tally["drawn otherwise"] += 1
                # Sums of p are as good as p: see published.py.
                if not begin - 1e-6 * sums[-1] <= where <= sums[token] + 1e-6 * sums[-1]:
                    problems.append(f"u {uniform} draws {token}")
        for name, got, want in zip(("logprob", "lse"), numbers, (self.logprob[token], self.lse)):
            if not logprob_is(got, want):
                problems.append(f"{name} {got}, not {want}")
        if abs(numbers[2] * self.total - 1) > 2e-6:
            problems.append(f"max_prob {numbers[2]}, not {1 / self.total}")
        return problems


def pick_drafts(rng, request, count):
    """The ids at the border, one that the mask leaves out; of small rows all."""
    if len(request.logits) <= 17:
        return list(range(len(request.logits)))
    drafts = list(request.ranked[max(count - 1, 0):count + 1])
    if request.mask is not None and not request.mask.all() and len(request.logits) < 5000:
        drafts.append(int(rng.choice(np.flatnonzero(~request.mask))))
    return drafts


def compare(reference, rng, request, order, turn, tally):
    """Complaints of the kept set, of log-probabilities, of the operations; the exact count."""
    count = exact_count(request, order, tally)
    of_sets, of_logprobs, of_calls = [], [], []
    exact = np.zeros(len(request.logits), bool)
    exact[request.ranked[:count]] = True
    sure = counts_within(request, order, DOUBLES, DOUBLES * float(request.min_p))
    if not is_between(DEFINITIONS[order](request, np.float64), request, *sure):
        of_sets.append("the definition in doubles is not the same as by counting")
    in_floats = DEFINITIONS[order](request, np.float32)
    tally["rows"] += 1
    kept, logprob = reference.open(request, order, turn % 2)
    if not (kept == exact).all():
        low, high = near_kit(request, order)
        if is_between(kept, request, low, high) and kept[request.ranked[:kept.sum()]].all():
            tally["kit rounded"] += 1
            tally["kit rounded by chance"] += not request.is_beside
            tally["widest"] = max(tally["widest"], high - low)
        else:
            of_sets.append(f"{kept.sum()} kept, not {count}; {low} to {high} would be rounding")
    if not (in_floats == exact).all():
        low, high = near_floats(request, order)
        if is_between(in_floats, request, low, high):
            tally["floats rounded"] += 1
            tally["floats rounded, kit exact"] += bool((kept == exact).all())
        else:
            of_sets.append(f"in floats {in_floats.sum()}, not {count}: more than rounding")
    if not kept.any():
        return ["none is kept"], [], [], count, kept
    rows = Rows(request, kept)
    of_logprobs += rows.check_logprobs(logprob)
    large = len(kept) > 2000  # each call looks through a row dozens of times: one in each order
    if not large or turn % 3 == order:
        drafts = pick_drafts(rng, request, int(kept.sum()))
        for x, got in zip(drafts, reference.score(request, order, drafts)):
            if not logprob_is(got, rows.logprob[x]):
                of_calls.append(f"SCORE has ln p {got} of id {x}, not {rows.logprob[x]}")
    if large and turn % 3 == order:
        return of_sets, of_logprobs, of_calls, count, kept
    uniform = (0, 1 - 2.0 ** -24, rng.random(), -1)[turn % 4]
    table = rng.integers(0, 2 ** 32, (1, (len(request.logits) + 31) // 32), dtype=np.uint32)
    token, numbers = reference.sample(request, order, np.float32(uniform),
                                      int(rng.integers(2 ** 62)), table if turn % 3 else None)
    of_calls += rows.check_sample(np.float32(uniform), token, numbers, tally)
    return of_sets, of_logprobs, of_calls, count, kept


def warpers():
    """A function from a request to what the warpers of transformers keep, or why there is none."""
    try:
        import torch
        import transformers
        from transformers.generation import logits_process as theirs
    except Exception as error:  # an import of theirs may fail in many ways
        return None, f"{type(error).__name__}: {error}".split("\n", maxsplit=1)[0]
    torch.set_num_threads(1)

    def kept_by(request):
        """In generate's order, and without those that it leaves away."""
        scores = torch.from_numpy(request.logits.copy())[None]
        if request.mask is not None:
            scores[0, torch.from_numpy(~request.mask)] = NONE
        use = []
        if request.temperature != 1:
            use.append(theirs.TemperatureLogitsWarper(float(request.temperature)))
        if request.top_k > 0:
            use.append(theirs.TopKLogitsWarper(request.top_k))
        if request.top_p < 1:
            use.append(theirs.TopPLogitsWarper(float(request.top_p)))
        if request.min_p > 0:
            use.append(theirs.MinPLogitsWarper(float(request.min_p)))
        for warper in use:
            scores = warper(None, scores)
        return scores[0].numpy() > NONE

    return kept_by, f"transformers {transformers.__version__}, torch {torch.__version__}"


class Result:
    """Groups that passed and failed. quiet: one failure is enough, and says nothing."""

    def __init__(self, quiet=False):
        self.passed = self.failed = 0
        self.quiet = quiet

    def add(self, name, problems):
        if problems and self.quiet:
            raise Failure(f"{name}: {problems[0]}")
        self.passed += not problems
        self.failed += bool(problems)
        for problem in problems[:5]:
            print(f"FAIL filters: {name}: {problem}")


def run_size(reference, kept_by, vocab, requests, tally, result):
    rng = np.random.default_rng(20261 + vocab)
    names = [f"{what}, V {vocab}, {order}" for order in ORDERS
             for what in ("kept", "log-probabilities", "calls")]
    problems = [[] for _ in names]
    of_warpers, told_apart = [], 0
    for turn in range(requests):
        request = choose_request(rng, vocab, turn)
        counts = []
        for order in range(3):
            where = f"request {turn}, {request}: "
            try:
                *found, count, kept = compare(reference, rng, request, order, turn, tally)
            except Failure as failure:
                problems[3 * order + 2].append(where + str(failure))
                continue
            counts.append(count)
            for i in range(3):
                problems[3 * order + i] += [where + text for text in found[i]]
            if order == TOP_K_FIRST and kept_by:
                by_theirs = kept_by(request)
                exact = np.zeros(vocab, bool)
                exact[request.ranked[:count]] = True
                tally["warpers"] += 1
                if not (by_theirs == exact).all():
                    tally["warpers rounded"] += 1
                    tally["warpers rounded, kit exact"] += bool((kept == exact).all())
                    if not is_between(by_theirs, request, *near_floats(request, order)):
                        of_warpers.append(f"{where}they keep {by_theirs.sum()}, not {count}")
                elif not (kept == exact).all():
                    tally["warpers exact, kit rounded"] += 1
        told_apart += len(set(counts)) > 1
    for name, found in zip(names, problems):
        result.add(name, found)
    tally["requests"] += requests
    tally["told apart"] += told_apart
    if kept_by:
        result.add(f"transformers, V {vocab}", of_warpers)


def new_tally():
    return dict.fromkeys(
        ("requests", "told apart", "rows", "digits", "kit rounded", "kit rounded by chance",
         "widest", "floats rounded", "floats rounded, kit exact", "drawn", "drawn otherwise",
         "warpers", "warpers rounded", "warpers rounded, kit exact", "warpers exact, kit rounded"),
        0)


def build(root, folder):
    """The reference of the headers in root as a library, or None."""
    library = os.path.join(folder, "filters.so")
    command = [os.environ.get("CC", "gcc"), "-O2", "-std=c99", "-shared", "-fPIC", "-I" + root,
               "-o", library, os.path.join(HERE, "tests", "filters.c")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        print("FAIL filters: " + done.stderr.strip())
        return None
    return library


# ---- faults that must be seen

MUTANTS = (
    ("top_p leaves out the id that reaches it", "return kept > by_p ? kept : by_p;",
     "return kept > by_p ? kept : by_p + 1;"),
    ("top_p of a mass 2e-6 too large", "specv_i_part_of(l->top_p, mass)",
     "specv_i_part_of(l->top_p, mass + (mass >> 19))"),
    ("top_p of a mass 2e-6 too small", "specv_i_part_of(l->top_p, mass)",
     "specv_i_part_of(l->top_p, mass - (mass >> 19))"),
    ("min_p of a weight 2e-6 too large", "specv_i_least_weight(l->min_p, specv_weight_units(",
     "specv_i_least_weight(l->min_p, (l->min_p < 1 ? 1.000002 : 1) * "
     "specv_weight_units("),
    ("min_p of a weight 2e-6 too small", "specv_i_least_weight(l->min_p, specv_weight_units(",
     "specv_i_least_weight(l->min_p, 0.999998 * specv_weight_units("),
    ("min_p of the sum", "specv_weight_units(&largest, r->row.n)", "r->row.sum"),
    ("weights above min_p only", "specv_weight_units(&w, r->row.n) >= limit && key < last",
     "specv_weight_units(&w, r->row.n) > limit && key < last"),
    ("top_k one too many", "(uint64_t)l->top_k, 0)", "(uint64_t)l->top_k + 1, 0)"),
    ("down to an id, without it", "if (its_key < key ||", "if (its_key <= key ||"),
    ("the first two orders swapped", "== SPECV_TOP_K_TOP_P_MIN_P ? by_k : kept",
     "!= SPECV_TOP_K_TOP_P_MIN_P ? by_k : kept"),
    ("min_p before top_p, always", "? by_k : kept, 1);", "? kept : kept, 1);"),
    ("top_k before top_p, never", "if (specv_i_is_of_kept(l, r->vocab))\n", "if (by_min && kept)\n"),
    ("min_p after top_p, always", "? by_k : kept, 1);", "? by_k : by_k, 1);"),
    ("no filters of the draft", "return of_draft ? &d->draft_filters : &d->filters;",
     "return of_draft ? &d->filters : &d->filters;"),
    ("mask_row is not looked at", "if (f->mask_row) first", "if (0) first"),
    ("bits of the mask from the other end", ">> x % 32 & 1", ">> (31 - x % 32) & 1"),
    ("the mask of the first position", "(first + j) * stride", "first * stride"),
    ("the sum of all ids", "if (r.least) r.row.sum =", "if (0) r.row.sum ="),
    ("top_p of a mass that lacks its last id", "? by_k : kept, 1);",
     "? by_k + (by_k != 0) : kept + (kept != 0), 1);"),
)


def try_mutants(folder):
    """Lines of the result; survivors."""
    with open(os.path.join(ROOT, "specverify_ref.h"), encoding="utf-8") as file:
        text = file.read()
    with open(os.path.join(ROOT, "specverify.cuh"), encoding="utf-8") as file:
        header = file.read()
    result = Result()
    for number, (name, old, new) in enumerate(MUTANTS):
        place = os.path.join(folder, str(number))
        os.mkdir(place)
        with open(os.path.join(place, "specverify.cuh"), "w", encoding="utf-8") as file:
            file.write(header)
        with open(os.path.join(place, "specverify_ref.h"), "w", encoding="utf-8") as file:
            file.write(text.replace(old, new))
        library = build(place, place)
        if text.count(old) != 1 or not library:
            result.add(name, [f"stands {text.count(old)} times in the reference" if library else
                              "does not compile"])
            continue
        try:
            for vocab, requests in SIZES[:-1]:
                run_size(Reference(library), None, vocab, requests, new_tally(), Result(True))
            result.add(name, ["survives"])
        except Failure as failure:
            print(f"killed  {name}\n        by {failure}")
            result.add(name, [])
    return result


def main():
    result, tally, skipped = Result(), new_tally(), 0
    with tempfile.TemporaryDirectory() as folder:
        if "--mutants" in sys.argv:
            result = try_mutants(folder)
            print(f"{result.passed} passed, {result.failed} failed, 0 skipped")
            return 1 if result.failed else 0
        library = build(ROOT, folder)
        if not library:
            print("0 passed, 1 failed, 0 skipped")
            return 1
        kept_by, says = warpers()
        if not kept_by:
            print(f"skipped transformers: {says}")
            skipped = 1
        for vocab, requests in SIZES:
            run_size(Reference(library), kept_by, vocab, max(requests // 5, 8) if QUICK else
                     requests, tally, result)
    t = tally
    result.add("orders", [] if t["told apart"] * 10 > t["requests"] else
               [f"{t['told apart']} of {t['requests']} requests tell the orders apart"])
    print(f"filters: {t['requests']} requests, {t['told apart']} of which tell the orders apart; "
          f"{t['rows']} kept sets, {t['digits']} decided with 40 digits; the kit rounded "
          f"{t['kit rounded']}, all within its bound ({t['widest']} id at most), "
          f"{t['kit rounded by chance']} of them not put beside a border on purpose")
    print(f"filters: the definitions in floats rounded {t['floats rounded']}, of which the kit has "
          f"{t['floats rounded, kit exact']} exact; {t['drawn']} tokens drawn, "
          f"{t['drawn otherwise']} otherwise by rounding")
    if kept_by:
        print(f"filters: {says}: {t['warpers']} requests, {t['warpers rounded']} decided otherwise "
              f"by its floats, of which the kit has {t['warpers rounded, kit exact']} exact; of "
              f"the rest the kit rounded {t['warpers exact, kit rounded']}")
    print(f"{result.passed} passed, {result.failed} failed, {skipped} skipped")
    return 1 if result.failed else 0


if __name__ == "__main__":
    sys.exit(main())
