#!/usr/bin/env python3
"""Compiles vLLM's Triton kernels for peers_vllm.cu, without a GPU.

    peers_vllm.py VLLM HEADER FATBINARY

VLLM is a checkout, HEADER what is written: each kernel as a fat binary, and how it wants to be
launched. The binary holds PTX, for an interpreter, and machine code, for a driver that may be older
than Triton's PTX. Needs triton and no torch: the modules that hold the kernels are imported
with everything else that they import replaced by nothing. Types and constants are those with which
vLLM launches them, for fp32 scores; pointers are multiples of 16 bytes, as Triton finds out of them
at each launch, and so are strides of rows of scores.
"""
import importlib
import importlib.util
import subprocess
import sys
import types

import triton
import triton.language
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

GUMBEL = "vllm/v1/worker/gpu/sample/gumbel.py"
V1 = "vllm/v1/sample/rejection_sampler.py"
V2 = "vllm/v1/worker/gpu/spec_decode/probabilistic_rejection_sampler_utils.py"

POINTERS = {
    "*i1": "is_greedy",
    "*i32": "cu_num_draft_tokens cu_num_logits draft_sampled draft_token_ids bonus_token_ids "
            "expanded_idx_mapping expanded_local_pos idx_mapping output_token_ids "
            "recovered_token_ids",
    "*i64": "local_argmax num_sampled pos rejected_step rejected_steps resampled_local_argmax "
            "sampled seed seeds target_local_argmax",
    "*fp64": "local_max resampled_local_max uniform_probs",
    "*fp32": "draft_local_max draft_local_sumexp draft_logits draft_probs "
             "draft_rejected_logsumexp inv_q logits target_local_max target_local_sumexp "
             "target_logits target_probs target_rejected_logsumexp temp",
}
TYPES = {f"{name}_ptr": kind for kind, names in POINTERS.items() for name in names.split()}

# What is a multiple of 16 in every case beside the pointers: strides of whole rows of scores.
WIDE = ("vocab_size logits_stride target_logits_stride draft_logits_stride_0 "
        "draft_logits_stride_1").split()

# File, kernel, constants, warps. In the order of the names in peers_vllm.cu.
KERNELS = [
    (GUMBEL, "_gumbel_sample_kernel",
     dict(processed_logits_ptr=None, BLOCK_SIZE=1024, APPLY_TEMPERATURE=False), 4),
    (V1, "sample_recovered_tokens_kernel", dict(BLOCK_SIZE=8192, NO_DRAFT_PROBS=False), 4),
    (V1, "rejection_random_sample_kernel", dict(NO_DRAFT_PROBS=False), 4),
    (V2, "_compute_block_max_and_sumexp_kernel", dict(BLOCK_SIZE=8192), 4),
    (V2, "_resample_kernel", dict(BLOCK_SIZE=1024), 4),
    # Of the next two one for 32000 ids, one for 128256.
    (V2, "_probabilistic_rejection_kernel", dict(PADDED_VOCAB_NUM_BLOCKS=4), 1),
    (V2, "_probabilistic_rejection_kernel", dict(PADDED_VOCAB_NUM_BLOCKS=16), 1),
    (V2, "_insert_resampled_kernel", dict(PADDED_RESAMPLE_NUM_BLOCKS=32), 4),
    (V2, "_insert_resampled_kernel", dict(PADDED_RESAMPLE_NUM_BLOCKS=128), 4),
]


class Nothing(types.ModuleType):
    """Has every name: a class, or for names in small letters a function that gives None."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {}) if name[0].isupper() else lambda *a, **k: None


class Finder:
    """Imports of torch and of the rest of vLLM find nothing; of a file with kernels that file."""

    def __init__(self, folder):
        self.folder = folder

    def find_spec(self, name, path=None, target=None):
        if name.replace(".", "/") + ".py" in (GUMBEL, V1, V2):
            return importlib.util.spec_from_file_location(
                name, f"{self.folder}/{name.replace('.', '/')}.py")
        if name.split(".")[0] in ("torch", "vllm"):
            return importlib.util.spec_from_loader(name, self, is_package=True)
        return None

    def create_module(self, spec):
        module = Nothing(spec.name)
        if spec.name == "torch":
            module.Tensor, module.device, module.dtype = (type(n, (), {}) for n in "TDd")
        if spec.name == "vllm.triton_utils":
            module.tl, module.triton = triton.language, triton
        return module

    def exec_module(self, module):
        pass


def compile_kernel(path, name, constants, warps):
    kernel = getattr(importlib.import_module(path[:-3].replace("/", ".")), name)
    names = kernel.arg_names
    kinds = {n: "constexpr" if n in constants else TYPES.get(n, "i32") for n in names}
    wide = [i for i, n in enumerate(names) if kinds[n].startswith("*") or n in WIDE]
    source = ASTSource(fn=kernel, signature=kinds, constexprs=constants,
                       attrs={(i,): [["tt.divisibility", 16]] for i in wide})
    return triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": warps})


def main(folder, header, fatbinary):
    sys.meta_path.insert(0, Finder(folder))
    table = []
    with open(header, "w", encoding="ascii") as out:
        out.write("/* made by peers_vllm.py */\n")
        for i, (path, name, constants, warps) in enumerate(KERNELS):
            made = compile_kernel(path, name, constants, warps)
            with open(f"{header}.{i}.ptx", "w", encoding="ascii") as ptx:
                ptx.write(made.asm["ptx"])
            with open(f"{header}.{i}.cubin", "wb") as cubin:
                cubin.write(made.asm["cubin"])
            subprocess.run([fatbinary, f"--create={header}.fatbin", "-64", "--compress=false",
                            f"--image3=kind=elf,sm=90,file={header}.{i}.cubin",
                            f"--image3=kind=ptx,sm=90,file={header}.{i}.ptx"], check=True)
            with open(header + ".fatbin", "rb") as file:
                data = file.read()
            data += bytes(-len(data) % 8)
            words = [int.from_bytes(data[j:j + 8], "little") for j in range(0, len(data), 8)]
            out.write(f"static const unsigned long long data_{i}[] = {{\n")
            out.write(",\n".join(f"{word:#x}ull" for word in words) + "};\n")
            table.append(f'{{"{name}", data_{i}, {made.metadata.shared}, {32 * warps}}}')
        out.write("static const peer_kernel peer_kernels[] = {\n" + ",\n".join(table) + "};\n")
    print(triton.__version__)


if __name__ == "__main__":
    main(*sys.argv[1:])
