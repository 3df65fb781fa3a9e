#!/usr/bin/env python3
"""test.py: are structures where a compiler has them, do the functions of specverify.py what they
say, and does a Hugging Face model write its own text with them? Ends with "N passed, N failed, N
skipped". What needs nvcc, NumPy or torch with transformers is skipped without.
    OUT=build  HEADERS=folder of the kit  CC=gcc  NVCC=nvcc  PTXRUN_OUT=folder of ptxrun
    test.py [NAME...]  these tests only"""
from __future__ import annotations

import ctypes
import importlib.util
import itertools
import os
import re
import shutil
import subprocess
import sys
import traceback
from typing import Any, Callable

import specverify as sv

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
HEADERS = os.path.abspath(os.environ.get("HEADERS", ROOT))
OUT = os.path.abspath(os.environ.get("OUT", os.path.join(HERE, "build")))
PTXRUN = os.path.abspath(os.environ.get("PTXRUN_OUT", os.path.join(ROOT, "tests/ptxrun/build")))
CC = os.environ.get("CC", "gcc")
NVCC = os.environ.get("NVCC", "nvcc")
tests: list[Callable[[], None]] = []


def test(function: Callable[[], None]) -> Callable[[], None]:
    tests.append(function)
    return function


class Skip(Exception):
    """Why a test cannot run here."""


def need(condition: Any, what: str) -> None:
    if not condition:
        raise Skip(f"no {what}")


def run(*command: str, **options: Any) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


def build(name: str, out: str = OUT, *arguments: str) -> str:
    run("make", "-s", "-C", HERE, f"OUT={out}", f"HEADERS={HEADERS}", f"CC={CC}", f"NVCC={NVCC}",
        *arguments, os.path.join(out, name))
    return os.path.join(out, name)


def reference() -> sv.Library:
    need(shutil.which(CC) and shutil.which("make"), f"{CC} and make")
    return sv.use(build("libspecverify_ref.so"))


# ---- structures and constants


def name_in_c(struct: type) -> str:
    return "specv" + re.sub(r"([A-Z])", lambda m: "_" + m.group(1).lower(), struct.__name__)


def structures() -> list[Any]:
    return [s for s in vars(sv).values() if isinstance(s, type) and issubclass(s, ctypes.Structure)]


def constants() -> dict[str, int]:
    return {n: v for n, v in vars(sv).items() if n.isupper() and isinstance(v, int)}


def header() -> str:
    with open(os.path.join(HEADERS, "specverify.cuh"), encoding="utf-8") as file:
        return re.sub(r"/\*.*?\*/", "", file.read(), flags=re.S)


def layout_in_python() -> list[str]:
    lines = []
    for struct in structures():
        lines.append(f"{name_in_c(struct)} {ctypes.sizeof(struct)}")
        for field, *_ in struct._fields_:
            place = getattr(struct, field)
            lines.append(f"{name_in_c(struct)}.{field} {place.offset} {place.size}")
    return lines + [f"{name} {value}" for name, value in constants().items()]


def layout_of(*compiler: str) -> list[str]:
    """The same lines, printed by a program of this compiler."""
    os.makedirs(OUT, exist_ok=True)
    body = []
    for struct in structures():
        name = name_in_c(struct)
        body.append(f'printf("{name} %d\\n", (int)sizeof({name}));')
        for field, *_ in struct._fields_:
            body.append(f'printf("{name}.{field} %d %d\\n", (int)offsetof({name}, {field}), '
                        f'(int)sizeof((({name} *)0)->{field}));')
    for name in constants():
        full = "SPECVERIFY_VERSION" if name == "VERSION" else "SPECV_" + name
        body.append(f'printf("{name} %d\\n", (int){full});')
    source, program = os.path.join(OUT, "layout.c"), os.path.join(OUT, "layout")
    with open(source, "w", encoding="utf-8") as file:
        file.write('#include "specverify.cuh"\n#include <stdio.h>\nint main(void) {\n' +
                   "\n".join(body) + "\nreturn 0;\n}\n")
    run(*compiler, "-I", HEADERS, source, "-o", program)
    return run(program).splitlines()


def same_lines(ours: list[str], theirs: list[str]) -> None:
    differ = [f"{a} is {b}" for a, b in itertools.zip_longest(ours, theirs) if a != b]
    assert ours and not differ, differ[:8]


@test
def layout_c() -> None:
    """every structure, field and constant is what a C compiler finds in the header"""
    need(shutil.which(CC), CC)
    same_lines(layout_in_python(), layout_of(CC, "-std=c99", "-x", "c"))


@test
def layout_cuda() -> None:
    """the same of nvcc, which compiles the kit"""
    need(shutil.which(NVCC), "nvcc")
    same_lines(layout_in_python(), layout_of(NVCC, "-x", "cu"))


@test
def complete() -> None:
    """no field of the header is missing, no launcher, none is there twice"""
    text = header()
    for struct in structures():
        name = name_in_c(struct)
        body = re.findall(rf"typedef struct {name} {{(.*?)}} {name};", text, re.S)
        fields = re.findall(r"(\w+)(?:\[\w+\])?\s*[,;]", body[0])
        assert fields == [f for f, *_ in struct._fields_], (name, fields)
    launchers = re.findall(r"^SPECV_LAUNCHER int specv_(\w+)\(const (\w+) \*\w+,\s+struct CUst",
                           text, re.M)
    ours = {(name, name_in_c(struct)) for name, struct in sv.OPERATIONS.items()}
    assert ours == set(launchers), ours ^ set(launchers)


# ---- libraries


@test
def library() -> None:
    """the reference exports every operation, its messages, and refuses what the kit refuses"""
    lib = reference()
    missing = [n for n in sv.OPERATIONS if not hasattr(lib.lib, "specv_ref_" + n)]
    assert lib.on_host and not missing, missing
    assert lib.status_string(0).endswith("success") and "canary1" in lib.status_string(-2)
    desc = sv.VerifyGreedyDesc(canary1=7)
    try:
        lib.call("verify_greedy", desc)
    except sv.Error as error:
        assert error.status == -2 and "canary1" in str(error)
    else:
        raise AssertionError("a bad descriptor was not refused")
    desc.canary1 = 0
    lib.call("verify_greedy", desc)  # of no rows: nothing to do


def device_of(cudart: ctypes.CDLL, array: Any) -> ctypes.c_void_p:
    """A copy of a NumPy array in device memory."""
    address = ctypes.c_void_p()
    assert cudart.cudaMalloc(ctypes.byref(address), ctypes.c_size_t(array.nbytes)) == 0
    assert cudart.cudaMemcpy(address, ctypes.c_void_p(array.ctypes.data),
                             ctypes.c_size_t(array.nbytes), 1) == 0
    return address


@test
def kit_on_ptxrun() -> None:
    """the kit's library does through ctypes what the reference does, on the interpreter"""
    need(shutil.which(NVCC) and os.path.exists(os.path.join(PTXRUN, "libcudart.so.13")),
         "nvcc and ptxrun")
    need(importlib.util.find_spec("numpy"), "numpy")
    part = os.path.join(OUT, "ptxrun")  # one family of the kit
    if "on_ptxrun" not in sys.argv:  # the interpreter must be what the library links
        reference()
        others = ("PACK", "CACHE", "COLUMNS", "SCHEDULE", "PARTICLES", "STATS", "SAMPLE")
        build("libspecverify.so", part, "ARCH=compute_90",
              "KIT=-no-compress " + " ".join(f"-DSPECVERIFY_NO_{family}" for family in others))
        run(sys.executable, os.path.abspath(__file__), "kit_on_ptxrun", "on_ptxrun",
            env={**os.environ, "LD_LIBRARY_PATH": PTXRUN, "PTXRUN_EXIT": "1", "PTXRUN_QUIET": "1"})
        return
    import numpy as np
    random = np.random.default_rng(1)
    batch, n = 9, 5
    draft = random.integers(0, 2, (batch, n)).astype("int32")
    target = random.integers(0, 2, (batch, n + 1)).astype("int32")
    cudart, answers = ctypes.CDLL("libcudart.so.13"), []
    for lib in (sv.use(os.path.join(OUT, "libspecverify_ref.so")),
                sv.use(os.path.join(part, "libspecverify.so"))):
        outputs = [np.full((batch, n + 1), 9, "int32"), np.full(batch, 9, "int32")]
        arrays = [draft, target, *outputs]
        places = [a.ctypes.data if lib.on_host else device_of(cudart, a) for a in arrays]
        desc = sv.VerifyGreedyDesc(draft_tokens=places[0], target_tokens=places[1],
                                   out_tokens=places[2], accepted_len=places[3], vocab=2)
        desc.rows.batch, desc.rows.max_draft = batch, n
        lib.call("verify_greedy", desc)
        for place, output in zip(places[2:], outputs) if not lib.on_host else ():
            assert cudart.cudaMemcpy(ctypes.c_void_p(output.ctypes.data), place,
                                     ctypes.c_size_t(output.nbytes), 2) == 0
        answers.append(outputs)
    assert cudart.cudaDeviceSynchronize() == 0
    for ours, theirs in zip(*answers):
        assert (ours == theirs).all() and (ours != 9).all()
    same = (draft == target[:, :n]).cumprod(1).sum(1)
    assert (answers[0][1] == same).all() and len(set(same)) > 2


# ---- NumPy


def some_probs(random: Any, *shape: int) -> Any:
    import numpy as np
    weights = np.exp(random.normal(size=shape) * 2)
    return (weights / weights.sum(-1, keepdims=True)).astype("float32")


def numpy() -> Any:
    need(importlib.util.find_spec("numpy"), "numpy")
    reference()
    import numpy as np
    return np


def first_above(np: Any, weights: Any, u: float) -> int:
    return int(np.searchsorted(np.cumsum(weights), u * weights.sum(), side="right"))


@test
def chain_is_the_definition() -> None:
    """verify_chain decides as speculative sampling in doubles does, and counts as FlashInfer"""
    np = numpy()
    random = np.random.default_rng(2)
    for batch, n, vocab in ((300, 4, 40), (40, 1, 5), (8, 6, 3000)):
        p, q = some_probs(random, batch, n + 1, vocab), some_probs(random, batch, n, vocab)
        q = (q + p[:, :n]).astype("float32") / 2
        q /= q.sum(-1, keepdims=True)
        ids = np.array([[random.choice(vocab, p=q[b, j].astype("float64") / q[b, j].sum(dtype="d"))
                         for j in range(n)] for b in range(batch)], "int32")
        uniform = random.random((batch, n + 1), "float32")
        counts = np.full(batch, 10, "int32"), np.full(batch, 20, "int32")
        tokens, accepted, emitted = sv.verify_chain(q, ids, p, *counts, uniform=uniform)
        assert accepted is counts[0] and emitted is counts[1]
        for b in range(batch):
            passes = [uniform[b, j] * q[b, j, ids[b, j]] < p[b, j, ids[b, j]] for j in range(n)]
            k = passes.index(False) if False in passes else n
            law = p[b, k].astype("float64")
            if k < n:
                law = np.maximum(law - q[b, k], 0)
            expected = [*ids[b, :k], first_above(np, law, float(uniform[b, n]))]
            assert tokens[b].tolist() == [*expected, *[-1] * (n - k)], (b, tokens[b], expected)
            assert accepted[b] == 10 + sum(passes) and emitted[b] == 20 + k
        assert batch < 100 or len(set(emitted.tolist())) == n + 1
        again = sv.verify_chain(q, ids, p, uniform=uniform)
        assert (again[0] == tokens).all() and (again[2] == emitted - 20).all()
        drawn = [sv.verify_chain(q, ids, p, generator=np.random.default_rng(s)) for s in (5, 5, 6)]
        assert (drawn[0][0] == drawn[1][0]).all() and (drawn[0][0] != drawn[2][0]).any()


@test
def rejection_of_ragged_batches() -> None:
    """rejection_sample: each request is what it is alone; greedy ones and bonus tokens too"""
    np = numpy()
    random = np.random.default_rng(3)
    counts, vocab, most = [3, 0, 5, 1, 2, 4, 0, 5] * 5, 30, 5
    total, batch = sum(counts), len(counts)
    p, q = some_probs(random, total, vocab), some_probs(random, total, vocab)
    ids = np.where(random.random(total) < 0.5, p.argmax(1), q.argmax(1)).astype("int64")
    bonus = random.integers(0, vocab, (batch, 1))
    seeds, place = np.arange(batch) + 100, np.arange(batch, dtype="int32") * 7
    temperature = np.where(np.arange(batch) % 3 == 0, 0, 1).astype("float32")
    ends, status = np.cumsum(counts).astype("int32"), np.full(batch, -1, "int32")
    for rule in ("token", "block"):
        tokens = sv.rejection_sample(ids, counts, most, ends, q, p, bonus, temperature=temperature,
                                     seed=seeds, position=place, rule=rule, row_status=status)
        assert tokens.shape == (batch, most + 1) and tokens.dtype == np.int64
        assert (status == 0).all()
        same = sv.rejection_sample(ids, counts, most, None, q, p, bonus, temperature=temperature,
                                   seed=seeds, position=place, rule=rule)
        assert (same == tokens).all()
        lengths = set()
        for b, (end, count) in enumerate(zip(ends.tolist(), counts)):
            rows = slice(end - count, end)
            kept = tokens[b][tokens[b] >= 0]
            lengths.add(len(kept))
            assert 1 <= len(kept) <= count + 1 and (tokens[b, len(kept):] == -1).all()
            assert (kept[:-1] == ids[rows][:len(kept) - 1]).all()
            assert len(kept) <= count or kept[-1] == bonus[b, 0]
            alone = sv.rejection_sample(
                ids[rows], [count], most, None, q[rows], p[rows], bonus[b],
                temperature=temperature[b:b + 1], seed=seeds[b:b + 1], position=place[b:b + 1],
                rule=rule)
            assert (alone[0] == tokens[b]).all()
            if temperature[b] == 0:
                choice = p[rows].argmax(1)
                k = int((ids[rows] == choice).cumprod().sum())
                expected = [*choice[:k], choice[k] if k < count else bonus[b, 0]]
                assert kept.tolist() == expected
        assert len(lengths) > 3
    spoilt = p.copy()
    spoilt[0, :] = np.nan
    sv.rejection_sample(ids, counts, most, ends, q, spoilt, bonus, seed=seeds, position=place,
                        row_status=status)
    assert status[0] & sv.ROW_NAN and not status[1:].any()


def chi_square_p(np: Any, counts: Any, law: Any) -> float:
    """P-value of counts under a law; cells that expect less than 5 are put together."""
    from math import erfc, sqrt
    expected = law / law.sum() * counts.sum()
    order = np.argsort(expected)
    few = int((np.cumsum(expected[order]) < 5).sum()) + 1
    groups = [order[:few], *[[cell] for cell in order[few:]]]
    e = np.array([expected[g].sum() for g in groups])
    o = np.array([counts[g].sum() for g in groups])
    x, k = float(((o - e) ** 2 / e).sum()), len(groups) - 1
    # Wilson and Hilferty 1931: (x / k)^(1/3) is all but normal
    z = ((x / k) ** (1 / 3) - (1 - 2 / (9 * k))) / sqrt(2 / (9 * k))
    return 0.5 * erfc(z / sqrt(2))


@test
def rejection_is_lossless() -> None:
    """two tokens behind drafts of another law have the target's law"""
    np = numpy()
    random = np.random.default_rng(4)
    batch, vocab = 40000, 6
    p, q = some_probs(random, 2, vocab), some_probs(random, 1, vocab)
    q = (q + p[:1]) / 2
    seeds = np.arange(batch)
    draft = sv.sample(np.log(np.repeat(q, batch, 0)), seed=seeds, of_draft=True)
    for rule in ("token", "block", "coupled"):
        verdict = sv.verify(draft[:, None], np.tile(np.log(p), (batch, 1, 1)),
                            np.tile(np.log(q), (batch, 1, 1)), rule=rule, seed=seeds)
        first = np.bincount(verdict.tokens[:, 0], minlength=vocab)
        assert chi_square_p(np, first, p[0]) > 1e-4, (rule, first)
        second = verdict.tokens[verdict.tokens[:, 1] >= 0, 1]
        assert 0.2 < len(second) / batch < 0.95
        assert chi_square_p(np, np.bincount(second, minlength=vocab), p[1]) > 1e-4, rule
        assert chi_square_p(np, first, q[0]) < 1e-9


@test
def scores_of_all_types() -> None:
    """logits in fp16 and fp32, strided views, int32 and int64 tokens, filters, bad arguments"""
    np = numpy()
    random = np.random.default_rng(5)
    wide = random.normal(size=(6, 4, 70)).astype("float32") * 4
    ids = wide.argmax(2)[:, :3]
    ids[1::2, 1] = 0
    expected = (ids == wide[:, :3, :64].argmax(2)).cumprod(1).sum(1)
    for dtype, token in itertools.product(("float32", "float16"), ("int32", "int64")):
        logits = wide.astype(dtype)[:, :, :64]  # ids are neighbours, positions are not packed
        verdict = sv.verify(ids.astype(token), logits, rule="greedy", seed=1)
        best = logits.argmax(2)
        expected = (ids == best[:, :3]).cumprod(1).sum(1)
        assert verdict.tokens.dtype == token and (verdict.accepted == expected).all()
        assert (verdict.tokens[np.arange(6), expected] == best[np.arange(6), expected]).all()
    first = sv.sample(wide[:, 0], seed=3, top_k=1, temperature=5.0)
    assert (first == wide[:, 0].argmax(1)).all()
    ended = sv.verify(ids, wide, rule="greedy", eos=[int(wide[0, 0].argmax())])
    assert ended.finished[0] == 1 and ended.tokens[0, 1] == -1
    for bad, arguments in ((TypeError, (ids, wide.astype("float64"))),
                           (TypeError, (ids.astype("int16"), wide)),
                           (ValueError, (ids, wide[:, :3])), (ValueError, (ids, wide, wide)),
                           (ValueError, (ids, wide[:, :, ::2]))):
        try:
            sv.verify(*arguments, seed=1)
        except bad:
            continue
        raise AssertionError(f"{bad.__name__} was not raised")


# ---- torch and transformers


def models(random_seed: int = 0, vocab: int = 40) -> tuple[Any, Any, Any]:
    """torch, a Llama and a GPT-2, small and random, with logits that are not flat."""
    need(importlib.util.find_spec("torch") and importlib.util.find_spec("transformers"),
         "torch with transformers")
    reference()
    import torch
    import transformers
    transformers.logging.set_verbosity_error()
    torch.manual_seed(random_seed)
    llama = transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=vocab, hidden_size=48, intermediate_size=96, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=256,
        initializer_range=0.25, bos_token_id=None, eos_token_id=None))
    gpt2 = transformers.GPT2LMHeadModel(transformers.GPT2Config(
        vocab_size=vocab, n_embd=32, n_layer=1, n_head=2, n_positions=256, initializer_range=0.3,
        bos_token_id=None, eos_token_id=None, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0))
    return torch, llama.eval(), gpt2.eval()


def prompts(torch: Any, vocab: int = 40) -> tuple[Any, Any]:
    """Five of different lengths, padded on the left, and their mask."""
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(0, vocab, (5, 7), generator=generator)
    mask = (torch.arange(7)[None, :] >= torch.tensor([0, 3, 6, 1, 0])[:, None]).long()
    return ids * mask, mask


@test
def greedy_is_generate() -> None:
    """greedy text with drafts is model.generate's, of either architecture, with EOS and padding"""
    torch, llama, gpt2 = models()
    ids, mask = prompts(torch)
    for target, assistant in ((llama, gpt2), (gpt2, llama), (llama, llama)):
        for eos in (None, 7, [3, 11]):
            options: dict[str, Any] = dict(attention_mask=mask, max_new_tokens=24,
                                           eos_token_id=eos, pad_token_id=0)
            plain = target.generate(ids, do_sample=False, **options)
            for n in (1, 4, 6):
                text = sv.generate(target, assistant, ids, num_draft=n, **options)
                assert torch.equal(text, plain), (text, plain)
            assert torch.equal(sv.generate(target, None, ids, **options), plain)
            behind = target.generate(ids, do_sample=False, assistant=assistant,
                                     custom_generate=sv.custom_generate, **options)
            assert torch.equal(behind, plain)


@test
def drafts_save_passes() -> None:
    """a target that drafts for itself needs a pass for each five tokens, by every rule"""
    torch, llama, _ = models()
    ids, mask = prompts(torch)
    passes: list[int] = []
    llama.register_forward_hook(lambda *_: passes.append(1))
    other = models()[1]  # the same weights, not counted
    for rule in sv.RULES:
        passes.clear()
        # THRESHOLD looks at p alone, and takes part of the drafts, unless it is told otherwise.
        told = {"threshold_single": 0.0} if rule == "threshold" else {}
        sv.generate(llama, other, ids, attention_mask=mask, max_new_tokens=20, num_draft=4,
                    rule=rule, seed=8, **told)
        assert len(passes) == 1 + 4, (rule, len(passes))


def exact_law(torch: Any, model: Any, ids: Any, count: int, vocab: int, temperature: float,
              top_k: int) -> Any:
    """Probability of every text of `count` tokens behind a prompt, from the model itself."""
    texts = torch.tensor(list(itertools.product(range(vocab), repeat=count)))
    both = torch.cat([ids.expand(len(texts), -1), texts], 1)
    with torch.no_grad():
        scores = model(both).logits.double()[:, ids.shape[1] - 1:-1] / temperature
    if top_k:
        least = scores.topk(top_k).values[:, :, -1:]
        scores = scores.masked_fill(scores < least, -torch.inf)
    p = scores.log_softmax(2).gather(2, texts[:, :, None])
    return p.sum((1, 2)).exp()


@test
def sampled_has_its_law() -> None:
    """20,480 texts of three tokens, by each rule, against the exact law of the target"""
    vocab, count, temperature = 6, 3, 0.8
    torch, llama, gpt2 = models(vocab=vocab)
    import numpy as np
    ids = torch.tensor([[1, 4, 2]])
    places = vocab ** torch.arange(count - 1, -1, -1)
    for rule, top_k in (("token", 0), ("block", 0), ("coupled", 0), ("token", 3)):
        law = exact_law(torch, llama, ids, count, vocab, temperature, top_k).numpy()
        other = exact_law(torch, gpt2, ids, count, vocab, temperature, top_k).numpy()
        assert abs(law.sum() - 1) < 1e-6
        counts = np.zeros(vocab ** count, "int64")
        for first in range(0, 20480, 4096):
            text = sv.generate(llama, gpt2, ids.expand(4096, -1), max_new_tokens=count,
                               num_draft=2, rule=rule, temperature=temperature, seed=first,
                               top_k=top_k or None)
            cells = (text[:, 3:] * places).sum(1).numpy()
            counts += np.bincount(cells, minlength=vocab ** count)
        assert counts[law == 0].sum() == 0
        at = law > 0
        p = chi_square_p(np, counts[at], law[at])
        assert p > 1e-4, (rule, top_k, p)
        far = chi_square_p(np, counts[at], other[at] + 1e-9)
        assert far < 1e-9, far  # it would be seen if drafts decided


@test
def coupled_is_the_targets_own() -> None:
    """coupled text is the same for every assistant, number of drafts and batch, and without"""
    torch, llama, gpt2 = models()
    ids, mask = prompts(torch)
    options: dict[str, Any] = dict(attention_mask=mask, max_new_tokens=24, rule="coupled",
                                   temperature=0.9, seed=11)
    plain = sv.generate(llama, None, ids, **options)
    for assistant, n in ((gpt2, 1), (gpt2, 5), (llama, 4)):
        assert torch.equal(sv.generate(llama, assistant, ids, num_draft=n, **options), plain)
    alone = sv.generate(llama, gpt2, ids[3:4], **{**options, "attention_mask": mask[3:4],
                                                  "seed": 14})
    assert torch.equal(alone, plain[3:4])
    again = sv.generate(llama, gpt2, ids, **{**options, "seed": 12})
    assert not torch.equal(again, plain)
    sampled = llama.generate(ids, custom_generate=sv.custom_generate, assistant=gpt2, seed=11,
                             rule="coupled", do_sample=True, temperature=0.9, top_k=0,
                             attention_mask=mask, max_new_tokens=24, pad_token_id=0)
    assert torch.equal(sampled, plain)


@test
def tensors_are_arrays() -> None:
    """tensors of torch, bf16 ones too, give what NumPy's arrays give"""
    torch, *_ = models()
    import numpy as np
    random = np.random.default_rng(6)
    logits = torch.tensor(random.normal(size=(7, 4, 90)) * 3).bfloat16()
    drafts = logits[:, :3].float().argmax(2)
    drafts[2:, 1] = 5
    ours = sv.verify(drafts, logits, rule="coupled", seed=4, position=9)
    theirs = sv.verify(drafts.numpy(), logits.float().numpy(), rule="coupled", seed=4, position=9)
    for a, b in zip(ours, theirs):
        assert (a.numpy() == b).all()
    p, q = (torch.tensor(some_probs(random, 7, n, 90)) for n in (4, 3))
    uniform = torch.rand((7, 4), generator=torch.Generator().manual_seed(2))
    ours_chain = sv.verify_chain(q, drafts, p, uniform=uniform)
    theirs_chain = sv.verify_chain(q.numpy(), drafts.numpy(), p.numpy(), uniform=uniform.numpy())
    for a, b in zip(ours_chain, theirs_chain):
        assert (a.numpy() == b).all()
    drawn = sv.verify_chain(q, drafts, p, generator=torch.Generator().manual_seed(2))
    assert torch.equal(drawn[0], ours_chain[0])


def main() -> int:
    chosen = [a for a in sys.argv[1:] if a != "on_ptxrun"]
    passed = failed = skipped = 0
    for function in tests:
        name = function.__name__
        if chosen and name not in chosen:
            continue
        try:
            function()
        except Skip as reason:
            skipped += 1
            print(f"skipped pytorch {name}: {reason}")
        except Exception:  # whatever it is, the others run
            failed += 1
            print(f"FAILED  pytorch {name}: {function.__doc__}\n{traceback.format_exc(limit=-3)}")
        else:
            passed += 1
            print(f"passed  pytorch {name}: {function.__doc__}")
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
