#!/usr/bin/env python3
"""exports.py kit|reference HEADERS README [PTXRUN]: builds the shared library as README says, compares
what it exports with the header's tables, and calls it as Python does, the kit on ptxrun."""
import ctypes
import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
import lint  # noqa: E402  (it reads the tables)

# sizeof, then the offsets of the fields that A1 needs below.
LAYOUT = """#include <stdio.h>
#include "specverify.cuh"
#define F(field) (int)offsetof(specv_verify_greedy_desc, field)
int main(void) {
    printf("%d %d %d %d %d %d %d %d %d %d\\n", (int)sizeof(specv_verify_greedy_desc),
           SPECV_ERR_CANARY, SPECVERIFY_VERSION, F(rows.batch), F(rows.max_draft),
           F(draft_tokens), F(target_tokens), F(accepted_len), F(next_token), F(row_status));
    return 0;
}"""


def run(command, **more):
    return subprocess.run(command, capture_output=True, text=True, check=True, **more).stdout


def build(which, headers, readme):
    """README's command, word for word, in a folder that holds the headers."""
    start = {"kit": "nvcc -shared ", "reference": "gcc -shared "}[which]
    with open(readme, encoding="utf-8") as file:
        commands = [line.strip() for line in file if line.startswith(start)]
    if len(commands) != 1:
        sys.exit(f"README has {len(commands)} lines that start with \"{start}\"")
    for name in ("specverify.cuh", "specverify_ref.h"):
        subprocess.run(["cp", os.path.join(headers, name), "."], check=True)
    subprocess.run(commands[0], shell=True, check=True)
    return "./" + re.search(r"-o (\S+)", commands[0]).group(1)


def promised(which):
    """Names of the header's table, and of the functions beside it that are for all languages."""
    text, twin = lint.read("specverify.cuh"), which == "reference"
    names = {n for n in lint.table_names(text)
             if n.startswith("specv_ref_") == twin and not n.endswith("_kernel") and
             not re.match(r"specv_(thread|warp|block)_", n)}
    beside = re.findall(r"^SPECV_HOSTAPI [\w ]+?\*?(specv_\w+)\(", text, re.M)
    return names.union(beside, ["specv_ref_version", "specv_ref_diff"] if twin else ["specv_version"])


def exported(library):
    lines = run(["nm", "-D", "--defined-only", library]).split("\n")
    names = {line.split()[2] for line in lines if line}
    return {n for n in names if not n.startswith("_Z")}  # CUDA's own inline constructors


def call(which, library, layout):
    """Version, a message, and one row of three drafts, the last of which is rejected."""
    size, canary, version, *offsets = layout
    kit = ctypes.CDLL(library)
    kit.specv_status_string.restype = ctypes.c_char_p
    prefix = "specv_" if which == "kit" else "specv_ref_"
    assert getattr(kit, prefix + "version")() == version
    assert b"zero-initialised" in kit.specv_status_string(canary)
    tokens = (ctypes.c_int32 * 10)(5, 6, 7, 5, 6, 9, 9)  # drafts, targets, outputs
    place = ctypes.addressof(tokens)
    if which == "kit":
        cuda, device = ctypes.CDLL("libcudart.so.13"), ctypes.c_void_p()
        assert cuda.cudaMalloc(ctypes.byref(device), ctypes.c_size_t(40)) == 0
        assert cuda.cudaMemcpy(device, tokens, ctypes.c_size_t(40), 1) == 0
        place = device.value
    descriptor = (ctypes.c_char * size)()
    values = [1, 3] + [place + 4 * index for index in (0, 3, 7, 8, 9)]
    for offset, value, kind in zip(offsets, values, [ctypes.c_int32] * 2 + [ctypes.c_void_p] * 5):
        kind.from_buffer(descriptor, offset).value = value
    launch = getattr(kit, prefix + "verify_greedy")
    assert (launch(descriptor, None) if which == "kit" else launch(descriptor)) == 0
    if which == "kit":
        assert cuda.cudaMemcpy(tokens, device, ctypes.c_size_t(40), 2) == 0
    assert tokens[7:] == [2, 9, 0], tokens[7:]  # accepted, next token, status


def main():
    which, headers, readme, *rest = sys.argv[1:]
    if rest[1:]:  # the second process of the kit's test, on ptxrun
        return call(which, rest[0], list(map(int, rest[1:])))
    lint.ROOT = headers
    on_ptxrun = bool(rest) and os.path.isfile(os.path.join(rest[0], "libcudart.so.13"))
    if on_ptxrun:  # the command stays README's; ptxrun takes PTX and the shared runtime alone
        os.environ["NVCC_APPEND_FLAGS"] = "-cudart shared -no-compress"
    library = build(which, headers, readme)
    problems = lint.differences("function", promised(which), "the header", exported(library), library)
    with open("layout.c", "w", encoding="utf-8") as file:
        file.write(LAYOUT)
    run(["gcc", "-I", headers, "-o", "layout", "layout.c"])
    layout = run(["./layout"]).split()
    if which == "reference":
        call(which, library, list(map(int, layout)))
    elif on_ptxrun:
        subprocess.run([sys.executable, __file__, which, headers, readme, library] + layout, check=True,
                       env=dict(os.environ, LD_LIBRARY_PATH=rest[0], PTXRUN_EXIT="1", PTXRUN_QUIET="1"))
    else:
        print("nothing was launched: ptxrun is not built")
    print("\n".join(problems))
    return len(problems) > 0


if __name__ == "__main__":
    sys.exit(main())
