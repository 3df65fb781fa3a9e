#!/usr/bin/env python3
"""PyTorch beside the kit, on the seed's grid, by the seed's method; CSV on stdout.

    python3 bench/compare.py LIBRARY [--quick] [--iters N]      LIBRARY: built from kit_abi.cu

eager      the seed's baseline: eq, not, any, to int64, argmax, two where, arange; then, for
           packing, draft_kv[mask] (which waits for the host to learn how many rows there are)
compiled   the same verification through torch.compile; packing stays eager: its size is data
kit        the kit's launchers through ctypes: the pair of events includes ctypes' own time, the
           graph figure does not

Every result is compared with the kit's before anything is timed. Without torch, a GPU or the
library this says so and ends with status 0."""

import argparse
import ctypes
import sys

VOCAB = 4096
BATCHES, GAMMAS = (1, 4, 16, 32), (8, 64, 128)
ALPHAS, KV_DIMS = (0.3, 0.6, 0.9), (128, 512, 1024, 2048)
GRAPH_LAUNCHES = 64


def skip(why):
    print(f"# compare.py skipped: {why}")
    sys.exit(0)


def accepted_lengths(torch, batch, gamma, alpha, generator, rng):
    yes = torch.rand(batch, gamma, generator=rng) < alpha
    if generator == "truncated-geometric":
        yes = yes.cumprod(dim=1)
    return yes.sum(dim=1)


def make_inputs(torch, batch, gamma, alpha, generator, kv_dim):
    """Row i agrees up to its length and differs there."""
    rng = torch.Generator().manual_seed(7)
    lengths = accepted_lengths(torch, batch, gamma, alpha, generator, rng)
    target = torch.randint(VOCAB, (batch, gamma + 1), generator=rng)
    draft = target[:, :gamma].clone()
    rows = torch.arange(batch)[lengths < gamma]
    stops = lengths[lengths < gamma]
    draft[rows, stops] = (draft[rows, stops] + 1) % VOCAB
    kv = torch.randn(batch, gamma, kv_dim, generator=rng).half()
    return draft.cuda(), target.cuda(), kv.cuda(), lengths.cuda()


def eager_verify(torch, draft, target):
    gamma = draft.shape[1]
    mismatch = torch.eq(draft, target[:, :gamma]).logical_not()
    has_mismatch = mismatch.any(dim=1)
    first = mismatch.to(torch.int64).argmax(dim=1)
    accepted = torch.where(has_mismatch, first, gamma)
    rows = torch.arange(draft.shape[0], device=draft.device)
    next_token = torch.where(has_mismatch, target[rows, accepted], target[:, gamma])
    return accepted, has_mismatch, next_token


def eager_pack(torch, kv, accepted):
    mask = torch.arange(kv.shape[1], device=kv.device)[None, :] < accepted[:, None]
    return kv[mask]


class Kit:
    """The kit's launchers on tensors that stay where they are."""

    def __init__(self, path):
        self.lib = ctypes.CDLL(path)
        self.lib.kit_abi_message.restype = ctypes.c_char_p
        pointer, i32, i64 = ctypes.c_void_p, ctypes.c_int, ctypes.c_int64
        self.lib.kit_abi_run.argtypes = [pointer, pointer, i32, i32, i32, pointer, pointer, pointer,
                                         pointer, pointer, i64, pointer, pointer]
        self.lib.kit_abi_pack.argtypes = [pointer, i32, i32, pointer, pointer, i64, pointer,
                                          pointer]

    def check(self, status):
        if status:
            raise RuntimeError(self.lib.kit_abi_message(status).decode())

    def prepare(self, torch, draft, target, kv):
        self.torch, self.draft, self.target, self.kv = torch, draft, target, kv
        batch = draft.shape[0]
        device = draft.device
        self.accepted = torch.full((batch,), -7, dtype=torch.int32, device=device)
        self.mismatch = torch.full((batch,), 7, dtype=torch.uint8, device=device)
        self.next_token = torch.full((batch,), -7, dtype=draft.dtype, device=device)
        self.packed = torch.full((batch * draft.shape[1], kv.shape[2]), float("nan"),
                                 dtype=kv.dtype, device=device)
        self.offsets = torch.full((batch + 1,), -7, dtype=torch.int32, device=device)

    def verify(self, with_kv=False):
        batch, gamma = self.draft.shape
        src = self.kv.data_ptr() if with_kv else None
        self.check(self.lib.kit_abi_run(
            self.draft.data_ptr(), self.target.data_ptr(), 1, batch, gamma,
            self.accepted.data_ptr(), self.mismatch.data_ptr(), self.next_token.data_ptr(), src,
            self.packed.data_ptr(), 2 * self.kv.shape[2], self.offsets.data_ptr(),
            self.torch.cuda.current_stream().cuda_stream))

    def pack(self):
        batch, gamma = self.draft.shape
        self.check(self.lib.kit_abi_pack(
            self.accepted.data_ptr(), batch, gamma, self.kv.data_ptr(), self.packed.data_ptr(),
            2 * self.kv.shape[2], self.offsets.data_ptr(),
            self.torch.cuda.current_stream().cuda_stream))


def percentile(sorted_us, p):
    return sorted_us[(len(sorted_us) - 1) * p // 100]


def time_events(torch, run, iters):
    for _ in range(20):
        run()
    torch.cuda.synchronize()
    pairs = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True))
             for _ in range(iters)]
    for begin, end in pairs:
        begin.record()
        run()
        end.record()
    torch.cuda.synchronize()
    us = sorted(1e3 * begin.elapsed_time(end) for begin, end in pairs)
    return percentile(us, 50), percentile(us, 95)


def time_graph(torch, run):
    """Per launch; None where the work cannot be captured (boolean masks ask the host)."""
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            for _ in range(GRAPH_LAUNCHES):
                run()
    except Exception:
        torch.cuda.synchronize()
        return None
    graph.replay()
    return time_events(torch, graph.replay, 20)[0] / GRAPH_LAUNCHES


def report(torch, op, name, case, run, iters, can_capture):
    batch, gamma, alpha, generator, kv_dim = case
    p50, p95 = time_events(torch, run, iters)
    graph = time_graph(torch, run) if can_capture else None
    print(f"{op},{name},{batch},{gamma},{alpha},{2 * kv_dim},1,{generator},int64,warm,"
          f"{p50:.3f},{p95:.3f},{'' if graph is None else f'{graph:.3f}'}", flush=True)


def check_equal(torch, name, expected, got):
    if not torch.equal(expected, got.to(expected.dtype)):
        raise SystemExit(f"compare.py: {name} differ between PyTorch and the kit")


def compare_case(torch, kit, compiled, case, iters):
    batch, gamma, alpha, generator, kv_dim = case
    draft, target, kv, lengths = make_inputs(torch, batch, gamma, alpha, generator, kv_dim)
    kit.prepare(torch, draft, target, kv)
    kit.verify(with_kv=True)
    accepted, has_mismatch, next_token = eager_verify(torch, draft, target)
    packed = eager_pack(torch, kv, accepted)
    check_equal(torch, "accepted lengths and the generator's", lengths, accepted)
    check_equal(torch, "accepted lengths", accepted, kit.accepted)
    check_equal(torch, "mismatch flags", has_mismatch, kit.mismatch)
    check_equal(torch, "next tokens", next_token, kit.next_token)
    check_equal(torch, "packed KV rows", packed.view(torch.int16),
                kit.packed[: packed.shape[0]].view(torch.int16))

    def eager_both():
        return eager_pack(torch, kv, eager_verify(torch, draft, target)[0])

    def eager_only_pack():
        return eager_pack(torch, kv, accepted)

    if kv_dim == KV_DIMS[0]:  # verification does not see the KV
        report(torch, "verify", "eager", case, lambda: eager_verify(torch, draft, target), iters,
               True)
        if compiled:
            for want, got in zip((accepted, has_mismatch, next_token), compiled(draft, target)):
                check_equal(torch, "torch.compile's results", want, got)
            report(torch, "verify", "compiled", case, lambda: compiled(draft, target), iters, True)
        report(torch, "verify", "5 kit", case, kit.verify, iters, True)
    report(torch, "pack", "eager", case, eager_only_pack, iters, False)
    report(torch, "pack", "5 kit", case, kit.pack, iters, True)
    report(torch, "verify_pack", "eager", case, eager_both, iters, False)
    report(torch, "verify_pack", "5 kit", case, lambda: kit.verify(with_kv=True), iters, True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("library")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--iters", type=int, default=200)
    args = parser.parse_args()
    try:
        import torch
    except ImportError:
        skip("PyTorch is not installed")
    if not torch.cuda.is_available():
        skip("PyTorch sees no GPU")
    try:
        kit = Kit(args.library)
    except OSError as error:
        skip(f"the kit's library cannot be loaded: {error}")
    print(f"# gpu: {torch.cuda.get_device_name()}, torch {torch.__version__}, "
          f"CUDA {torch.version.cuda}")
    compiled = None
    try:
        compiled = torch.compile(lambda draft, target: eager_verify(torch, draft, target),
                                 dynamic=True)
        probe = make_inputs(torch, 2, 3, 0.5, "binomial", 8)
        compiled(probe[0], probe[1])
    except Exception as error:
        compiled = None
        print(f"# torch.compile skipped: {type(error).__name__}")
    print("op,variant,b,gamma,alpha,kv_bytes,planes,generator,dtype,cache,us_p50,us_p95,"
          "graph_us_p50")
    for generator in ("binomial", "truncated-geometric"):
        for batch in BATCHES:
            for gamma in GAMMAS:
                for alpha in ALPHAS:
                    for kv_dim in KV_DIMS:
                        if args.quick and (batch not in (4, 32) or gamma == 64 or alpha == 0.6
                                           or kv_dim in (512, 1024)
                                           or generator != "binomial"):
                            continue
                        compare_case(torch, kit, compiled, (batch, gamma, alpha, generator, kv_dim),
                                     args.iters)


if __name__ == "__main__":
    main()
