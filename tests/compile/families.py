#!/usr/bin/env python3
"""families.py check|table folder [sm_NN ...]: SPECVERIFY_NO_<FAMILY> of the header in that folder.
check: each family alone, and without the one that takes most of the time: its launchers, and no
others, are in the object; no warnings; greedy alone stays below its limits.  table: CPU seconds that nvcc takes
beyond an empty file, and bytes of the object, of each family alone (Markdown)."""
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import layout  # noqa: E402

# Seconds as a multiple of what an empty file takes: a slow machine is slow at both. It is 1.0.
GREEDY_OF_EMPTY, GREEDY_BYTES = 1.4, 100 * 1024
NEEDS = {"pack": ["greedy"]}  # what stays when the other is left out


def compile_kit(folder, header, arch, without, out, empty=False):
    """CPU seconds of nvcc, which must have nothing to say; the object is at out. The header is the
    file that is compiled, as README does it: nvcc does not tell what is unused in one that is
    included."""
    source = os.path.join(folder, "empty.cu") if empty else header
    if empty:
        open(source, "w", encoding="utf-8").close()
    command = ["nvcc", "-std=c++17", f"-arch={arch}", "-Werror", "all-warnings", "-Xcompiler",
               "-Wall,-Wextra", "-DSPECVERIFY_IMPLEMENTATION", "-x", "cu", "-c", source,
               "-o", out] + [f"-DSPECVERIFY_NO_{family.upper()}" for family in without]
    if arch.startswith("compute_"):
        command += ["-Xcicc", "-O0"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def launchers_in(path):
    listed = subprocess.run(["nm", "--defined-only", path], capture_output=True, text=True, check=True)
    return set(re.findall(r" W (specv_\w+)_v\d+$", listed.stdout, re.M)) - {"specv_version"}


def main():
    mode, folder, archs = sys.argv[1], sys.argv[2], sys.argv[3:] or ["sm_90"]
    header = os.path.join(folder, "specverify.cuh")
    with open(header, encoding="utf-8") as file:
        places = layout.places(file.read())
    home = {operation: found[1][0] for operation, found in places.items()}
    families = list(dict.fromkeys(home.values()))
    failed = 0
    with tempfile.TemporaryDirectory() as scratch:
        out = os.path.join(scratch, "kit.o")

        def cost(arch, without, times=3, empty=False):
            seconds = statistics.median(compile_kit(scratch, header, arch, without, out, empty)
                                        for _ in range(times))
            return seconds, os.path.getsize(out)

        if mode == "table":
            print("| family | " + " | ".join(f"{a}: s, KiB" for a in archs) + " |")
            print("|---|" + "---|" * len(archs))
            base = {arch: cost(arch, [], empty=True) for arch in archs}
            for name in families + ["all"]:
                without = [] if name == "all" else [f for f in families if f != name]
                cells = [cost(arch, without, 1) for arch in archs]
                print(f"| {name} | " + " | ".join(
                    f"{s - base[a][0]:.1f}, {b // 1024}" for a, (s, b) in zip(archs, cells)) + " |")
            return 0
        for arch in archs:
            empty = cost(arch, [], empty=True)[0]
            for family in families:
                others = {f for f in families if f != family}
                for kept in [{family}] + [others] * (family == "sample"):
                    kept = kept.union(*(NEEDS.get(f, []) for f in kept))
                    alone = kept == {family}.union(NEEDS.get(family, []))
                    limited = alone and family == "greedy"
                    # Which launchers there are needs neither machine code nor an optimiser.
                    seconds, size = cost(arch if limited else arch.replace("sm_", "compute_"),
                                         [f for f in families if f not in kept], 3 if limited else 1)
                    expected = {o for o in home if home[o] in kept}
                    found = launchers_in(out)
                    what = f"{arch} {'only' if alone else 'without'} {family}"
                    if limited:
                        print(f"{what}: {seconds - empty:.2f} s beyond the {empty:.2f} s of an empty file, "
                              f"{size} bytes")
                    if found != expected:
                        failed = 1
                        print(f"{what}: has {sorted(found - expected)}, lacks {sorted(expected - found)}")
                    if limited and (seconds - empty > GREEDY_OF_EMPTY * empty or size > GREEDY_BYTES):
                        failed = 1
                        print(f"{what}: above {GREEDY_OF_EMPTY} times that, or {GREEDY_BYTES} bytes")
    return failed


if __name__ == "__main__":
    sys.exit(main())
