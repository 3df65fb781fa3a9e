#!/usr/bin/env python3
"""Compiles vLLM's Triton kernels for peers_vllm.cu, without a GPU: peers_vllm.py VLLM HEADER FATBINARY

VLLM is a checkout, HEADER what is written: each kernel as a fat binary that holds its PTX, and how it
wants to be launched. Needs triton and no torch: the two modules that hold the kernels are imported
with everything else that they import replaced by nothing. Types and constants are those with which
vLLM launches them: fp32 scores, tile sizes, no processed logits; pointers are multiples of 16 bytes,
as Triton finds out of them at each launch, and so is the vocabulary in elements.
"""
import importlib.util
import subprocess
import sys
import types

import triton
import triton.language
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

GUMBEL = "vllm/v1/worker/gpu/sample/gumbel.py"
REJECTION = "vllm/v1/sample/rejection_sampler.py"

KERNELS = [
    (GUMBEL, "_gumbel_sample_kernel",
     dict(local_argmax_ptr="*i64", local_argmax_stride="i32", local_max_ptr="*fp64",
          local_max_stride="i32", processed_logits_stride="i32", logits_ptr="*fp32",
          logits_stride="i32", expanded_idx_mapping_ptr="*i32", seeds_ptr="*i64", pos_ptr="*i64",
          temp_ptr="*fp32", vocab_size="i32"),
     dict(processed_logits_ptr=None, BLOCK_SIZE=1024, APPLY_TEMPERATURE=False)),
    (REJECTION, "sample_recovered_tokens_kernel",
     dict(output_token_ids_ptr="*i32", cu_num_draft_tokens_ptr="*i32", draft_token_ids_ptr="*i32",
          draft_probs_ptr="*fp32", target_probs_ptr="*fp32", inv_q_ptr="*fp32", vocab_size="i32"),
     dict(BLOCK_SIZE=8192, NO_DRAFT_PROBS=False)),
    (REJECTION, "rejection_random_sample_kernel",
     dict(output_token_ids_ptr="*i32", cu_num_draft_tokens_ptr="*i32", draft_token_ids_ptr="*i32",
          draft_probs_ptr="*fp32", target_probs_ptr="*fp32", bonus_token_ids_ptr="*i32",
          recovered_token_ids_ptr="*i32", uniform_probs_ptr="*fp64", is_greedy_ptr="*i1",
          max_spec_len="i32", vocab_size="i32"),
     dict(NO_DRAFT_PROBS=False)),
]


class Nothing(types.ModuleType):
    """Has every name: a class, or for names in small letters a function that gives None."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {}) if name[0].isupper() else lambda *a, **k: None


class Finder:
    """Imports of torch and of the rest of vLLM find nothing."""

    def find_spec(self, name, path=None, target=None):
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


def load(folder, path):
    spec = importlib.util.spec_from_file_location(path.replace("/", "_")[:-3], f"{folder}/{path}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def compile_kernel(kernel, signature, constants):
    names = kernel.arg_names
    types_of = {n: signature.get(n, "constexpr") for n in names}
    wide = [i for i, n in enumerate(names)
            if types_of[n].startswith("*") or n in ("vocab_size", "logits_stride")]
    source = ASTSource(fn=kernel, signature=types_of, constexprs=constants,
                       attrs={(i,): [["tt.divisibility", 16]] for i in wide})
    return triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 4})


def main(folder, header, fatbinary):
    sys.meta_path.insert(0, Finder())
    table = []
    with open(header, "w", encoding="ascii") as out:
        out.write("/* made by peers_vllm.py */\n")
        for path, name, signature, constants in KERNELS:
            made = compile_kernel(getattr(load(folder, path), name), signature, constants)
            with open(header + ".ptx", "w", encoding="ascii") as ptx:
                ptx.write(made.asm["ptx"])
            subprocess.run([fatbinary, f"--create={header}.fatbin", "-64", "--compress=false",
                            f"--image3=kind=ptx,sm=90,file={header}.ptx"], check=True)
            with open(header + ".fatbin", "rb") as file:
                data = file.read()
            data += bytes(-len(data) % 8)
            words = [int.from_bytes(data[i:i + 8], "little") for i in range(0, len(data), 8)]
            out.write(f"static const unsigned long long data_{name}[] = {{\n")
            out.write(",\n".join(f"{word:#x}ull" for word in words) + "};\n")
            table.append(f'{{"{name}", data_{name}, {made.metadata.shared}, '
                         f"{32 * made.metadata.num_warps}}}")
        out.write("static const peer_kernel peer_kernels[] = {\n" + ",\n".join(table) + "};\n")
    print(triton.__version__)


if __name__ == "__main__":
    main(*sys.argv[1:])
