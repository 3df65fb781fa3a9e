#!/usr/bin/env python3
"""check_nvcc.py [sm_NN ...]: what the compiler makes of the kernels.

Prints registers, shared memory, stack and spills per kernel and architecture (ptxas -v), and, when
cuobjdump and nvdisasm exist, the 16-byte accesses and the bytes of the machine code. Fails on any stack frame,
spill or local-memory access, on kernels that cannot have as many resident blocks as their launch
bounds say, and on packing kernels without four 16-byte loads and stores. Ends with
"N passed, N failed, N skipped".

The two tools come with the CUDA toolkit, or from PyPI: pip install nvidia-cuda-cuobjdump
nvidia-cuda-nvdisasm. They are looked for in PATH, beside nvcc, in site-packages and in CUDA_TOOLS.
HEADERS=folder of specverify.cuh   JOBS=2"""
import concurrent.futures
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
HEADERS = os.environ.get("HEADERS", ROOT)
PACKING = ("specv_pack_kv_kernel", "specv_pack_small_kernel", "specv_verify_pack_kv_kernel",
           "specv_verify_pack_small_kernel")
# Registers of an SM, and threads that an SM holds, where it is not 2048.
REGISTERS = 65536
THREADS = {"75": 1024, "86": 1536, "87": 1536, "88": 1536, "89": 1536, "110": 1536,
           "120": 1536, "121": 1536}
# Like a neighbour in what is looked at here: with names on the command line only, for each one takes
# a minute and a half.
TWINS = ("86", "87", "88", "89", "103", "110", "121")


def run(command, **more):
    return subprocess.run(command, capture_output=True, text=True, check=False, **more)


def tool_path():
    """PATH with the folders in which the disassembler may be."""
    folders = [os.environ.get("CUDA_TOOLS", "")]
    nvcc = shutil.which("nvcc")
    if nvcc:
        folders.append(os.path.dirname(os.path.realpath(nvcc)))
    for key in ("purelib", "platlib"):
        folders += [os.path.join(sysconfig.get_paths()[key], "nvidia", name, "bin")
                    for name in ("cu13", "cuda_cuobjdump", "cuda_nvdisasm")]
    return os.pathsep.join([f for f in folders if f] + [os.environ.get("PATH", "")])


def launch_bounds():
    """{kernel: (threads, blocks)} as the source promises."""
    text = open(os.path.join(HEADERS, "specverify.cuh"), encoding="utf-8").read()
    sizes = {}
    for name, value in re.findall(r"#define (SPECV_\w+_(?:THREADS|BLOCKS))\s+(\d+)", text):
        sizes[name] = min(int(value), sizes.get(name, int(value)))  # the least, where architectures differ
    found = re.findall(r"__launch_bounds__\((\w+)(?:, (\w+)( - 1)?)?\)\s+(specv_\w+_kernel)\(", text)
    number = lambda word: int(word) if word.isdigit() else sizes[word]
    return {kernel: (sizes[threads], number(blocks or "1") - bool(fewer))
            for threads, blocks, fewer, kernel in found}


def compile_arch(arch, folder):
    cubin = os.path.join(folder, arch + ".cubin")
    done = run(["nvcc", "-arch=" + arch, "-std=c++17", "-Xptxas", "-v", "-Werror", "all-warnings",
                "-I", HEADERS, "-DWITH_DEVICE_USER", "-cubin", "-o", cubin,
                os.path.join(ROOT, "tests", "compile", "implementation.cu")])
    if done.returncode:
        return arch, {}, None, done.stderr
    kernels, name = {}, None
    for line in done.stderr.splitlines():
        match = re.search(r"Compiling entry function '(?:_Z\d+)?(specv_\w+?_kernel|\w+)", line)
        if match:
            name = match.group(1)
            kernels[name] = {"registers": 0, "shared": 0, "stack": -1, "spills": -1}
        if name is None:
            continue
        match = re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill",
                          line)
        if match:
            kernels[name]["stack"] = int(match.group(1))
            kernels[name]["spills"] = int(match.group(2)) + int(match.group(3))
        match = re.search(r"Used (\d+) registers", line)
        if match:
            kernels[name]["registers"] = int(match.group(1))
            match = re.search(r"(\d+) bytes smem", line)
            kernels[name]["shared"] = int(match.group(1)) if match else 0
    sass = None
    path = tool_path()
    if shutil.which("cuobjdump", path=path) and shutil.which("nvdisasm", path=path):
        shown = run([shutil.which("cuobjdump", path=path), "-sass", cubin],
                    env=dict(os.environ, PATH=path))
        if shown.returncode == 0:
            sass = sass_facts(shown.stdout)
    return arch, kernels, sass, ""


def sass_facts(text):
    facts, name = {}, None
    for line in text.splitlines():
        match = re.search(r"Function : (?:_Z\d+)?(specv_\w+?_kernel|\w+)", line)
        if match:
            name = match.group(1)
            facts[name] = {"load16": 0, "store16": 0, "generic16": 0, "local": 0, "size": 0}
        match = re.match(r"\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z0-9_.]+)", line)
        if not match or name is None:
            continue
        opcode, fact = match.group(1), facts[name]
        fact["size"] += 1
        fact["local"] += opcode.startswith(("LDL", "STL"))
        if ".128" in opcode and opcode.startswith(("LDG", "LD.")):
            fact["load16"] += 1
        if ".128" in opcode and opcode.startswith(("STG", "ST.")):
            fact["store16"] += 1
        fact["generic16"] += ".128" in opcode and opcode.startswith(("LD.", "ST."))
    return facts


def faults_of(arch, kernel, numbers, fact, bounds):
    faults = []
    if numbers["stack"]:
        faults.append("stack frame" if numbers["stack"] > 0 else "no report of ptxas")
    if numbers["spills"]:
        faults.append("spills")
    threads, blocks = bounds.get(kernel, (0, 0))
    warps = threads // 32
    per_warp = (numbers["registers"] * 32 + 255) // 256 * 256
    limit = THREADS.get(arch.removeprefix("sm_").rstrip("af"), 2048)
    if not threads:
        faults.append("no launch bounds")
    elif per_warp * warps * blocks > REGISTERS or threads * blocks > limit:
        faults.append(f"{blocks} blocks of {threads} threads do not fit on an SM")
    if fact:
        if fact["local"]:
            faults.append("local memory")
        if kernel in PACKING and (fact["load16"] < 4 or fact["store16"] < 4):
            faults.append("no 16-byte accesses")
    return faults


def main():
    if os.access(os.environ.get("NVCC", ""), os.X_OK):
        os.environ["PATH"] = os.path.dirname(os.environ["NVCC"]) + os.pathsep + os.environ["PATH"]
    if not shutil.which("nvcc"):
        print("skipped: no nvcc\n0 passed, 0 failed, 1 skipped")
        return 0
    listed = re.findall(r"compute_(\d+)", run(["nvcc", "--list-gpu-arch"]).stdout)
    architectures = sys.argv[1:] or ["sm_" + a for a in sorted(listed, key=int) if a not in TWINS]
    bounds = launch_bounds()
    passed = failed = skipped = 0
    print(f"{'':8} {'kernel':28} {'registers':>9} {'shared':>7} {'stack':>6} {'spills':>6} "
          f"{'16-byte loads':>13} {'stores':>6} {'generic':>7} {'instructions':>12} {'bytes':>7}")
    with tempfile.TemporaryDirectory() as folder, \
            concurrent.futures.ThreadPoolExecutor(int(os.environ.get("JOBS", "2"))) as pool:
        results = pool.map(lambda arch: compile_arch(arch, folder), architectures)
        for arch, kernels, sass, error in results:
            # A user's kernels (device_user.cu) only have to compile.
            kernels = {k: n for k, n in kernels.items() if k.startswith("specv_")}
            if len(kernels) < len(bounds) or not bounds:
                failed += 1
                print(f"FAILED  {arch}: {len(kernels)} of {len(bounds)} kernels compiled\n{error}")
            for kernel, n in sorted(kernels.items()):
                fact = (sass or {}).get(kernel)
                columns = [fact[k] for k in ("load16", "store16", "generic16", "size")] + \
                    [16 * fact["size"]] if fact else ["-"] * 5
                faults = faults_of(arch, kernel, n, fact, bounds)
                print(f"{arch:8} {kernel:28} {n['registers']:9} {n['shared']:7} {n['stack']:6} "
                      f"{n['spills']:6} {columns[0]:>13} {columns[1]:>6} {columns[2]:>7} "
                      f"{columns[3]:>12} {columns[4]:>7}" + "".join("  FAILED: " + f for f in faults))
                passed, failed = passed + (not faults), failed + bool(faults)
            if kernels and sass is None:
                skipped += 1
                print(f"skipped machine code of {arch}: no cuobjdump with nvdisasm")
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
