#!/usr/bin/env python3
"""readme.py folder README.md: the snippets of README that are plain C compile as they stand, warnings
and all, with every name that they take for granted declared in front."""
import re
import subprocess
import sys

KNOWN = {"int", "if", "return", "fprintf", "stderr", "stdio", "include", "status"}
NUMBERS = {"bytes", "num_pages"}
CUDA = ("#define cudaStreamCaptureModeGlobal 0\nstruct graph;\n"
        "int cudaStreamBeginCapture(struct CUstream_st *, int);\n"
        "int cudaStreamEndCapture(struct CUstream_st *, struct graph **);\n")


def main():
    folder, readme = sys.argv[1:3]
    with open(readme, encoding="utf-8") as file:
        blocks = re.findall(r"```c\n(.*?)```", file.read(), re.S)
    tried = failed = 0
    for block in blocks:
        if "SPECV_ZERO" not in block:
            continue  # inside a kernel: examples/02_in_your_kernel.cu
        tried += 1
        code = re.sub(r"/\*.*?\*/|\"[^\"\n]*\"", " ", block, flags=re.S)
        names = set(re.findall(r"(?<![\w.>])[A-Za-z_]\w*", code)) - KNOWN
        names = {n for n in names if not n.lower().startswith(("specv", "cuda"))}
        names -= set(re.findall(r"\bspecv_\w+_desc (\w+)", code)) | {"stream", "graph"}
        text = "#include <stdio.h>\n#include \"specverify.cuh\"\n" + CUDA
        text += "".join(f"extern int32_t {n};\n" if n in NUMBERS else f"extern void *{n};\n"
                        for n in sorted(names))
        # What an earlier snippet has filled in.
        text += "extern struct CUstream_st *stream;\nextern struct graph *graph;\nvoid snippet(void);\n"
        text += "void snippet(void) {\n" + re.sub(r"^#.*$", "", block, flags=re.M) + "}\n"
        done = subprocess.run(["gcc", "-std=c99", "-Wall", "-Wextra", "-Wconversion", "-Wshadow",
                               "-Wno-unused-variable", "-Werror", "-fsyntax-only", "-I", folder,
                               "-x", "c", "-"], input=text, capture_output=True, text=True, check=False)
        if done.returncode:
            failed += 1
            print(block + done.stderr)
    print(f"{tried} snippets, {failed} do not compile")
    return failed or tried < 3


if __name__ == "__main__":
    sys.exit(main())
