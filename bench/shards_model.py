#!/usr/bin/env python3
"""What A9's exchanges take against a gather of logits, by a model: nothing here is measured.

    python3 bench/shards_model.py            the table, on the screen
    python3 bench/shards_model.py --update   into bench/results/shards/model.txt
    python3 bench/shards_model.py --check    is it what is committed?

An all-gather of s bytes from each of R ranks takes alpha + (R - 1) s beta, and NCCL takes the protocol
of its three for which that is the least. alpha and beta are those by which NCCL itself chooses:
NVIDIA/nccl 2.30 (June 2026), src/graph/tuning.cc, ring, NVLink, one node of Hopper GPUs: base
latencies 6.6, 14.0 and 8.4 us of protocols LL, LL128 and Simple, 0.6, 1.9 and 3.4 us for each of
R - 1 hops; bandwidth of 18 NVLinks of 20.6 GB/s (src/graph/topo.h), LL half of it and at most 141,
LL128 0.92 of it. "Demystifying NCCL" (Hu et al., arXiv:2507.04786, 2025) has about 1, 2 and 6 us a
hop. What a launch takes, and reading V columns instead of V / R, is not in the model.

Bytes are those of examples/shards/README.md, which tests/shards.cu counts."""

import argparse
import os
import sys

BASE_US = {"LL": 6.6, "LL128": 14.0, "Simple": 8.4}
HOP_US = {"LL": 0.6, "LL128": 1.9, "Simple": 3.4}
RING_GBS = 18 * 20.6
GBS = {"LL": min(141.0, RING_GBS / 2), "LL128": 0.92 * RING_GBS, "Simple": RING_GBS}

VOCAB, BYTES_OF_LOGIT, DRAFTS = 128256, 2, 4
POSITIONS = DRAFTS + 1
TOP_K = 50
RANKS = (2, 4, 8)
MOST_BATCH = 1024

HEAD = 16


def record(batch, bytes_of_row):
    return (HEAD + batch * bytes_of_row + 15) // 16 * 16


def rules(m, k):
    """Name, bytes of a row in each exchange, positions whose logits a gather brings."""
    return [
        ("GREEDY", [8 * m + 4], m),
        ("COUPLED", [16 * m + 4], m),
        ("COUPLED, log-probabilities", [16 * m + 4, 12 * m + 4], m),
        ("SCORE", [8 * m + 4, 12 * m + 4, 12], m),
        ("TOKEN, BLOCK", [8 * m + 4, 20 * m + 4, 12], m),
        ("TOKEN, draft scores", [16 * m + 4, 24 * m + 4, 28, 12], 2 * m - 1),
        ("BLOCK, draft scores", [16 * m + 4, 24 * m + 4, 24 * m + 4, 12], 2 * m - 1),
        (f"COUPLED, all top_k {k}", [(16 + 8 * k) * m + 4], m),
        (f"SCORE, TOKEN, BLOCK, all top_k {k}", [(8 + 8 * k) * m + 4], m),
        (f"the two, draft scores, all top_k {k}", [(16 + 16 * k) * m + 4], 2 * m - 1),
    ]


def all_gather_us(ranks, bytes_of_rank):
    moved = (ranks - 1) * bytes_of_rank
    return min(BASE_US[p] + (ranks - 1) * HOP_US[p] + moved / (1000 * GBS[p]) for p in BASE_US)


def exchanges_us(ranks, batch, rows):
    return sum(all_gather_us(ranks, record(batch, row)) for row in rows)


def gather_us(ranks, batch, positions):
    """Target's and draft's logits in one gather each, as engines have them."""
    parts = [POSITIONS, positions - POSITIONS] if positions > POSITIONS else [positions]
    return sum(all_gather_us(ranks, batch * p * VOCAB * BYTES_OF_LOGIT // ranks) for p in parts)


def first_batch(ranks, rows, positions):
    """From which batch on the exchanges take less, and stay so."""
    first = None
    for batch in range(1, MOST_BATCH + 1):
        if exchanges_us(ranks, batch, rows) >= gather_us(ranks, batch, positions):
            first = None
        elif first is None:
            first = batch
    return first


def table():
    out = [
        "Modelled, not measured: python3 bench/shards_model.py --update",
        f"V {VOCAB}, bf16, {DRAFTS} drafts; alpha and beta as NCCL 2.30 (June 2026, src/graph/tuning.cc)",
        "chooses by: ring, NVLink, one node of Hopper GPUs. sent: bytes of a rank and request, all",
        "exchanges. from: the batch from which on they take less time than a gather of logits. us: of",
        "the exchanges / of the gather, at batch 1 and at batch 32.",
        "",
        "rule                                exch.  sent | ranks  from   us, batch 1    us, batch 32",
    ]
    for name, rows, positions in rules(POSITIONS, TOP_K):
        for ranks in RANKS:
            first = first_batch(ranks, rows, positions)
            left = f"{name:<36}{len(rows):>4} {sum(rows):>6}" if ranks == RANKS[0] else " " * 47
            times = [f"{exchanges_us(ranks, b, rows):>6.1f} / {gather_us(ranks, b, positions):<6.1f}"
                     for b in (1, 32)]
            out.append(f"{left} | {ranks:>4} {first or '-':>6}  {times[0]}  {times[1]}".rstrip())
    return "\n".join(out) + "\n"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--update", action="store_true")
    parser.add_argument("--check", action="store_true")
    asked = parser.parse_args()
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "results", "shards", "model.txt")
    text = table()
    if asked.update:
        with open(path, "w", encoding="ascii") as file:
            file.write(text)
    elif asked.check:
        with open(path, encoding="ascii") as file:
            if file.read() != text:
                sys.exit(f"{path} is not what bench/shards_model.py says: --update")
    else:
        sys.stdout.write(text)


if __name__ == "__main__":
    main()
