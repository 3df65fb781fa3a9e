#!/usr/bin/env python3
"""times.py [LIBRARY...]: how long the reference takes to verify 64 requests with 4 drafts each, at
32,000 ids, on one core: seconds of CPU time, the least of five runs, a column for each library.
Without arguments: the one in build/. Needs NumPy. Every library must give the same tokens.

Scores are normal, the draft's near the target's. "all": drafts are made to be accepted, so that
every position is looked at; "drawn": they are drawn from q."""
from __future__ import annotations

import os
import platform
import sys
import time
from typing import Any

import numpy as np

import specverify as sv

BATCH, DRAFTS, VOCAB = 64, 4, 32000


def bf16(values: Any) -> Any:
    """Codes of the nearest bf16 towards 0."""
    return (values.view("uint32") >> 16).astype("uint16")


def probs(logits: Any) -> Any:
    weights = np.exp(logits)
    return weights / weights.sum(-1, keepdims=True)


def scores_of(array: Any, kind: str) -> sv.Scores:
    dtype = {"f32": sv.LOGITS_F32, "bf16": sv.LOGITS_BF16, "probs": sv.PROBS_F32}[kind]
    return sv.Scores(data=array.ctypes.data, dtype=dtype)


def processor() -> str:
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        names = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
    return names[0] if names else platform.processor()


class Case:
    """A step: what is given to each library, and what it says."""

    def __init__(self, rule: str, kind: str, q: bool, data: dict[str, Any]):
        self.rule, self.kind, self.q, self.data = rule, kind, q, data
        self.seeds = np.arange(BATCH)
        self.zeros = np.zeros((BATCH, DRAFTS), "float32")
        target, draft = data["target f32"], data["draft f32"]
        self.drafts = np.zeros((BATCH, DRAFTS), "int64")
        for j in range(DRAFTS):
            sv.sample(np.ascontiguousarray((draft if q else target)[:, j]), seed=self.seeds,
                      token=self.drafts[:, j], step_row=j, of_draft=True, coupled=rule == "coupled",
                      temperature=0.0 if rule == "greedy" else 1.0)

    def run(self, library: sv.Library) -> tuple[float, float, bytes]:
        """CPU seconds, drafts accepted in a row, and all tokens."""
        tokens = np.zeros((BATCH, DRAFTS + 1), "int64")
        accepted, positions = np.zeros(BATCH, "int32"), np.zeros(BATCH, "int32")
        d = sv.VerifySampleDesc(rule=sv.RULES[self.rule], seed=self.seeds.ctypes.data,
                                position=positions.ctypes.data)
        d.verify.token_dtype, d.verify.vocab = sv.I64, VOCAB
        d.verify.rows.batch, d.verify.rows.max_draft = BATCH, DRAFTS
        d.verify.draft_tokens = self.drafts.ctypes.data
        d.verify.out_tokens, d.verify.accepted_len = tokens.ctypes.data, accepted.ctypes.data
        d.target = scores_of(self.data[f"target {self.kind}"], self.kind)
        if self.q:
            d.draft = scores_of(self.data[f"draft {self.kind}"], self.kind)
        elif self.rule in ("token", "block"):
            d.accept_uniform = self.zeros.ctypes.data
        d.scratch, d.scratch_bytes = library.scratch(tokens, BATCH, DRAFTS, VOCAB)
        start = time.process_time()
        library.call("verify_sample", d)
        return time.process_time() - start, float(accepted.mean()), tokens.tobytes()


def main() -> int:
    random = np.random.default_rng(1)
    target = random.normal(size=(BATCH, DRAFTS + 1, VOCAB)).astype("float32") * np.float32(2.5)
    draft = target[:, :DRAFTS] + random.normal(size=(BATCH, DRAFTS, VOCAB)).astype("float32") * \
        np.float32(0.4)
    data: dict[str, Any] = {}
    for name, logits in (("target", target), ("draft", draft)):
        data.update({f"{name} f32": logits, f"{name} bf16": bf16(logits),
                     f"{name} probs": probs(logits)})
    here = os.path.dirname(os.path.abspath(__file__))
    default = os.path.join(here, "build", "libspecverify_ref.so")
    libraries = [sv.use(path) for path in sys.argv[1:] or [default]]
    print(f"{processor()}, one core; {BATCH} x {DRAFTS} drafts, {VOCAB} ids; CPU seconds")
    print(f"{'rule':8} {'scores':6} {'q':3} {'drafts':6} accepted  " +
          " ".join(f"{chr(ord('A') + i):>7}" for i in range(len(libraries))))
    for rule in sv.RULES:
        for kind in ("f32", "bf16", "probs"):
            for q in (False, True) if rule in ("token", "block") else (False,):
                case = Case(rule, kind, q, data)
                runs = [[case.run(library) for _ in range(5)] for library in libraries]
                assert len({tokens for each in runs for *_, tokens in each}) == 1, (rule, kind)
                print(f"{rule:8} {kind:6} {'yes' if q else '-':3} {'drawn' if q else 'all':6} "
                      f"{runs[0][0][1]:8.2f}  " +
                      " ".join(f"{min(each)[0]:7.3f}" for each in runs), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
