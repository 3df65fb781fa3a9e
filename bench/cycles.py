#!/usr/bin/env python3
"""cycles.py --show|--check|--accept|--grid FOLDER FAILED [--update]: what cycles.sh has made in
FOLDER, as tables and against bench/results/gate.csv. FAILED: witnesses that broke down. --update:
into the committed files, too. --self-test: the rules of the gate, on made-up figures.

gate.csv has a line for each figure: kind, name, figure, value, base, why.
  counted    a case of bench/cycles.cuh; its kit row's warp instructions, thread instructions, trips,
             sectors of global memory: as they stand, exactly
  sass       a kernel and architecture; registers, spills, shared bytes, blocks an SM, issue slots
             of the hot loop, bytes of code: exactly; bytes besides at most 1.1 x base, the least
             that was ever accepted, unless `why` has a word
  simulated  a case; cycles of the kit's row: within 5 %
The compiler makes counts and SASS: with another nvcc than the gate's, they are skipped."""
import collections
import csv
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "tests"))
import check_nvcc  # noqa: E402  (the disassembler's place, the limits of an SM)

RESULTS = os.path.join(ROOT, "bench", "results")
GATE = os.path.join(RESULTS, "gate.csv")
COLUMNS = ("kind", "name", "figure", "value", "base", "why")
COUNTED = ("launches", "warp_instructions", "thread_instructions", "serial_trips", "load_sectors",
           "store_sectors")
# Cycles of 0.4.0, and at most so many: a number; a multiple of another case of this file; FLOOR: of
# the larger of the copy and a chain of loads as long as the case's serial trips (counted).
FLOOR, SCHEDULERS = "floor", 320
TARGETS = {
    "A1-b32": (1248, 700), "B2-b4": (5861, 1500), "B2-b32": (7493, 2800), "B2-b128": (13385, 6500),
    "A2-rows1": (12573, 3500), "A2-rows5": (13663, 4800), "A8-rows1": (23641, 6500),
    "A8-k50-p90": (0, 12000), "A3-onehot": (26697, 10000), "A3-b1": (27703, 5500),
    "A3-b16": (31046, 12000), "A3-b1-all": (21697, 5500), "A4-b1": (0, (1.3, "A3-b1")),
    "A4-logits": (0, (1.3, "A3-logits")), "A5-b1": (0, (1.5, "A8-rows5")),
    "A5-b16": (0, (1.5, "A8-rows80")), "B3-b32": (0, (1.25, FLOOR)), "B3": (0, (1.25, FLOOR)),
    "C1": (0, (1.25, FLOOR)), "B5-resize": (0, (1.25, FLOOR)), "B5-copies": (0, (1.25, FLOOR)),
    "B5-fork": (0, (1.25, FLOOR)), "D1": (0, (1.25, FLOOR)), "D2": (0, (1.25, FLOOR)),
    "D3": (0, (1.25, FLOOR))}
NAMES = "case op variant b gamma alpha size planes dtype min_bytes".split()
SUMS = "kernels cycles warp_insn thread_insn l2_bytes".split()


# ---------------------------------------------------------------------------------- simulated

def simulated(path):
    """A dictionary for each launch: its names, and the sums over its kernels."""
    rows, row = [], None
    for line in open(path, encoding="utf-8", errors="replace"):
        if line.startswith("RESULT row,"):
            row = dict(zip(NAMES, line.strip().split(",")[1:]))
            row.update(dict.fromkeys(SUMS, 0))
        elif line.startswith("RESULT end"):
            rows.append(row)
            row = None
        elif line.startswith("KIT kernel=") and row:
            facts = dict(re.findall(r"(\w+)=(\S+)", line))
            row["kernels"] += 1
            for name in SUMS[1:]:
                row[name] += int(facts[name])
    return [r for r in rows if r["kernels"]]


def is_kit(row):
    return row["variant"].startswith("5 kit")


def table_of(rows):
    """A line for each case: the kit, its floors, the variants."""
    cases = collections.OrderedDict()
    for row in rows:
        cases.setdefault(row["case"], []).append(row)
    lines = ["| case | shape | cycles | probe 1, 2, 3 | read or copy | beside it |",
             "|---|---|---|---|---|---|"]
    for name, group in cases.items():
        floors = {r["variant"]: r["cycles"] for r in group if r["op"] == "floor"}
        others = [r for r in group if r["op"] != "floor" and not is_kit(r)]
        for kit in (r for r in group if is_kit(r)):
            shape = f"b {kit['b']}, gamma {kit['gamma']}"
            if int(kit["size"]):
                shape += f", rows of {kit['size']} bytes"
            if int(kit["planes"]) > 1:
                shape += f", {kit['planes']} planes"
            launches = f" ({kit['kernels']} kernels)" if kit["kernels"] > 1 else ""
            beside = ", ".join(f"{r['variant'][2:]} {r['cycles']:,}" for r in others)
            probes = ", ".join(f"{floors[p]:,}" for p in ("probe1", "probe2", "probe3")
                               if p in floors)
            bytes_floor = ", ".join(f"{p} {floors[p]:,}" for p in ("read", "copy") if p in floors)
            lines.append(f"| {name} | {kit['op']}, {shape} | **{kit['cycles']:,}**{launches} | "
                         f"{probes} | {bytes_floor} | {beside} |")
    return lines


def floors_of(case, rows):
    """A copy of what moves, and `serial_trips` loads that wait for each other (0: not known)."""
    floors = {r["variant"]: r["cycles"] for r in rows if r["case"] == case and r["op"] == "floor"}
    line = read_gate().get(("counted", case, "serial_trips"))
    if line is None or "probe3" not in floors:
        return floors.get("copy", 0), 0
    step = (floors["probe3"] - floors["probe1"]) / 2
    return floors.get("copy", 0), round(floors["probe1"] + step * (int(line["value"]) - 1))


def targets_of(rows):
    """What each case was to cost at most beside what it costs, and two bounds: its trips, and its
    instructions over all schedulers of the V100, one a cycle."""
    kits = {r["case"]: r for r in rows if is_kit(r)}
    lines = ["| case | 0.4.0 | at most | which is | now | now / at most | trips alone | issue alone |",
             "|---|---|---|---|---|---|---|---|"]
    for case, (before, most) in TARGETS.items():
        word, trips = "as set", floors_of(case, rows)[1]
        if isinstance(most, tuple):
            times, other = most
            word = f"{times} x {other if other != FLOOR else 'its floor'}"
            most = round(times * (max(floors_of(case, rows)) if other == FLOOR else
                                  kits[other]["cycles"] if other in kits else 0))
        line = f"| {case} | {number(before)} | {number(most)} | {word} | "
        if case not in kits or not most:
            lines.append(line + "not run | - | - | - |")
            continue
        now, ratio = kits[case]["cycles"], kits[case]["cycles"] / most
        shown = f"**{ratio:.2f}**" if ratio > 1 else f"{ratio:.2f}"
        issue = round(kits[case]["warp_insn"] / SCHEDULERS)
        of = "" if kits[case]["header"] else " (0.6.0)"
        lines.append(f"{line}{now:,}{of} | {shown} | {number(trips)} | {issue:,} |")
    return lines


def beside_variants(rows):
    """Points of B2 beside the best of the variants that were run there."""
    lines = ["| b | gamma | alpha | row | kit | best variant | kit / best |",
             "|---|---|---|---|---|---|---|"]
    kits = [r for r in rows if is_kit(r) and r["op"] == "verify_pack"]
    for kit in sorted(kits, key=lambda r: [float(r[n]) for n in ("b", "gamma", "alpha", "size")]):
        others = [(r["cycles"], r["variant"][2:]) for r in rows
                  if r["case"] == kit["case"] and r["op"] == "verify_pack" and not is_kit(r)]
        if others:
            cycles, name = min(others)
            lines.append(f"| {kit['b']} | {kit['gamma']} | {kit['alpha']} | {kit['size']} | "
                         f"{kit['cycles']:,}{' (2 kernels)' if kit['kernels'] > 1 else ''} | "
                         f"{name} {cycles:,} | {kit['cycles'] / cycles:.2f} |")
    return lines


def number(value):
    return f"{value:,}" if value else "-"


def write_csv(path, rows):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8", newline="") as file:
        out = csv.DictWriter(file, rows[0].keys(), lineterminator="\n")
        out.writeheader()
        out.writerows(rows)


def merged(path, rows, order):
    """The rows of a file, those of the same cases replaced, in the order of the cases that there
    are; others are left out."""
    cases = {}
    old = read_simulated(path) if os.path.exists(path) else []
    fresh = {row["case"] for row in rows}
    for row in [r for r in old if r["case"] not in fresh] + rows:
        cases.setdefault(row["case"], []).append(row)
    return [row for name in order for row in cases.get(name, [])]


def read_simulated(path):
    """As simulated() has them, of a file that write_csv() wrote."""
    with open(path, encoding="utf-8") as file:
        return [dict(r, header=r.get("header", ""), **{n: int(r[n]) for n in SUMS})
                for r in csv.DictReader(file)]


def header_id():
    """What git calls the contents of the header, so that --find-object finds them."""
    with open(os.path.join(ROOT, "specverify.cuh"), "rb") as file:
        text = file.read()
    return hashlib.sha1(b"blob %d\0" % len(text) + text).hexdigest()[:10]


def headers_of(rows):
    """Which cases are of which header, in words; the newest rows need not be of one run."""
    cases = {}
    for row in rows:
        names = cases.setdefault(row["header"], [])
        if row["case"] not in names:
            names.append(row["case"])
    most = max(cases, key=lambda header: len(cases[header]))
    others = [f"of {'blob `' + header + '`' if header else '0.6.0'}: {', '.join(names)}"
              for header, names in cases.items() if header != most]
    name = f"blob `{most}` (`git log --find-object={most}`)" if most else "0.6.0"
    return "Header: " + "; ".join([name + (", of all others" if others else "")] + others) + "."


def listed(folder, grid):
    """Names of the cases of a file, in their order."""
    with open(os.path.join(folder, "cases"), encoding="utf-8") as file:
        lines = [line.split() for line in file]
    return [name for name, kind, *_ in lines if kind.startswith("grid") == grid]


def put_table(path, name, lines):
    """Between the two marks of a text."""
    text = open(path, encoding="utf-8").read()
    first, last = f"<!-- {name} -->\n", f"<!-- end {name} -->"
    head, rest = text.split(first)
    with open(path, "w", encoding="utf-8") as file:
        file.write(head + first + "\n".join(lines) + "\n" + last + rest.split(last)[1])


# -------------------------------------------------------------------------------------- counted

def counted(path):
    rows = list(csv.DictReader(open(path, encoding="utf-8")))
    return [r for r in rows if r["head"] == "row"]


# ----------------------------------------------------------------------------------------- SASS

def hot_loop(code):
    """Instructions of the largest loop that has no other in it. A loop: what lies between a branch
    and an earlier instruction that it leads to."""
    place = {address: i for i, (address, _) in enumerate(code)}
    loops = []
    for i, (address, text) in enumerate(code):
        match = re.search(r"\bBRA(?:\.\w+)* .*?0x([0-9a-f]+)", text)
        if match and int(match.group(1), 16) < address:
            loops.append((place.get(int(match.group(1), 16), i), i))
    inner = [a for a in loops if not any(a != b and a[0] <= b[0] and b[1] <= a[1] for b in loops)]
    return max((last - first + 1 for first, last in inner), default=0)


def predicated_reductions(code):
    """Reductions of a warp that depend on a predicate. nvcc 13.0 has been seen to name the wrong
    one, in machine code alone: none may be left. Ask for such a reduction without a condition."""
    return sum(bool(re.match(r"@!?U?P\d\s+REDUX", text)) for _, text in code)


def sass(folder, arch):
    """{kernel: {figure: value}}, or None where the tools are missing."""
    path = check_nvcc.tool_path()
    tool = shutil.which("cuobjdump", path=path)
    cubin = os.path.join(folder, arch + ".cubin")
    if not tool or not shutil.which("nvdisasm", path=path) or not os.path.exists(cubin):
        return None
    env = dict(os.environ, PATH=path)
    usage = subprocess.run([tool, "-res-usage", cubin], capture_output=True, text=True, env=env,
                           check=True)
    listing = subprocess.run([tool, "-sass", cubin], capture_output=True, text=True, env=env,
                             check=True).stdout
    bounds = check_nvcc.launch_bounds()
    facts, code, name = {}, {}, None
    for line in listing.splitlines():
        match = re.search(r"Function : (?:_Z\d+)?(specv_\w+?_kernel)", line)
        if match:
            name = match.group(1)
            code[name] = []
        match = re.match(r"\s+/\*([0-9a-f]{4,})\*/\s+(.*?);", line)
        if match and name:
            code[name].append((int(match.group(1), 16), match.group(2).strip()))
    for line in (usage.stdout + usage.stderr).splitlines():
        match = re.search(r"Function (?:_Z\d+)?(specv_\w+?_kernel)", line)
        name = match.group(1) if match else name
        match = re.search(r"REG:(\d+) STACK:(\d+) SHARED:(\d+) LOCAL:(\d+)", line)
        if not match or name not in code:
            continue
        registers, stack, shared, local = map(int, match.groups())
        threads = bounds.get(name, (1024, 1))[0]
        facts[name] = {
            "registers": registers,
            "spilled": sum(t.split(" ", 2)[t.startswith("@")].startswith(("LDL", "STL"))
                           for _, t in code[name]) + stack + local,
            "shared_bytes": shared,
            "blocks_per_sm": blocks_per_sm(arch, registers, shared, threads),
            "hot_loop": hot_loop(code[name]),
            "predicated_reductions": predicated_reductions(code[name]),
            "code_bytes": 16 * len(code[name])}
    return facts


def blocks_per_sm(arch, registers, shared, threads):
    """What fits: 65536 registers, given out to warps by 256; threads; shared memory, of which the
    system takes 1 KiB a block; 32 blocks (16 on sm_75)."""
    number = arch.removeprefix("sm_")
    warps = threads // 32
    of_registers = check_nvcc.REGISTERS // ((registers * 32 + 255) // 256 * 256 * warps)
    of_threads = check_nvcc.THREADS.get(number, 2048) // threads
    of_shared = (64 if number == "75" else 228) * 1024 // (shared + (number != "75") * 1024 or 1)
    return min(of_registers, of_threads, of_shared, 16 if number == "75" else 32)


# ------------------------------------------------------------------------------------- the gate

def compiler():
    nvcc = os.environ.get("NVCC", "nvcc")
    shown = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=False).stdout \
        if shutil.which(nvcc) else ""
    match = re.search(r"release \S+ V(\S+)", shown)
    return match.group(1) if match else ""


def figures(folder):
    """{(kind, name, figure): value} of all that is here, and why what is not here is not."""
    found, missing = collections.OrderedDict(), []
    path = os.path.join(folder, "counted.csv")
    if os.path.exists(path):
        for row in counted(path):
            if is_kit(row):
                for figure in COUNTED:
                    if figure in row:
                        found["counted", row["case"], figure] = int(row[figure])
    for arch in ("sm_75", "sm_90"):
        facts = sass(folder, arch)
        if facts is None:
            missing.append(f"sass {arch}: no nvcc, or no cuobjdump with nvdisasm")
            continue
        for kernel in sorted(facts):
            for figure, value in facts[kernel].items():
                if arch == "sm_90" or figure == "code_bytes":
                    found["sass", f"{kernel} {arch}", figure] = value
    path = os.path.join(folder, "simulated.log")
    if os.path.exists(path):
        for row in simulated(path):
            if is_kit(row):
                found["simulated", row["case"], "cycles"] = row["cycles"]
    for name in ("counted", "simulated"):
        path = os.path.join(folder, name + ".txt")
        if os.path.exists(path):
            missing.append(open(path, encoding="utf-8").read().strip().removeprefix("skipped "))
    return found, missing


def read_gate():
    if not os.path.exists(GATE):
        return collections.OrderedDict()
    rows = csv.DictReader(open(GATE, encoding="utf-8"))
    return collections.OrderedDict(((r["kind"], r["name"], r["figure"]), r) for r in rows)


def grown(key, value, base):
    return key[2] == "code_bytes" and 10 * value > 11 * int(base)


def never(key, value):
    """Why a figure is none that a gate may have, or nothing."""
    if key[2] == "predicated_reductions" and value:
        return f"{value} reductions of a warp under a predicate, which nvcc 13.0 may get wrong"
    if key[2] == "spilled" and value:
        return f"{value} accesses to local memory: spills, or an array or a struct without registers"
    return ""


def fault_of(key, value, line):
    """Why a figure is not what the gate says, or nothing."""
    if never(key, value):
        return never(key, value)
    if line is None:
        return "is not in the gate"
    wanted = int(line["value"])
    if key[0] == "simulated":
        if 20 * abs(value - wanted) > wanted:
            return f"{value}, and the gate says {wanted} within 5 %"
    elif value != wanted:
        return f"{value}, and the gate says {wanted}"
    if grown(key, value, line["base"]) and not line["why"]:
        return f"{value} bytes, of {line['base']}: more than a tenth, and the gate has no word why"
    return ""


def check(folder, failed):
    found, missing = figures(folder)
    gate = read_gate()
    passed = skipped = 0
    made_by = gate.pop(("compiler", "nvcc", "version"), {"value": "none"})["value"]
    here = compiler()
    if here and made_by != here:
        missing.append(f"counted and sass: the gate is of nvcc {made_by}, here is {here}")
        found = {k: v for k, v in found.items() if k[0] == "simulated"}
    kinds = {k[:2] if k[0] == "simulated" else k[0] for k in found}
    for key, value in found.items():
        fault = fault_of(key, value, gate.get(key))
        passed, failed = passed + (not fault), failed + bool(fault)
        if fault:
            print(f"FAILED {' '.join(key)}: {fault}")
    for key in gate:
        if key not in found and (key[0] in kinds and key[0] != "simulated"):
            failed += 1
            print(f"FAILED {' '.join(key)}: in the gate, and not here")
    for word in missing:
        skipped += 1
        print(f"skipped {word}")
    if failed:
        print("What was meant to change is accepted by bench/cycles.sh --accept")
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed or not (passed or skipped) else 0


def accept(folder, failed):
    """Kinds of figures that are not here stay as they are; of the simulated, cases."""
    if failed:
        return 1
    found, missing = figures(folder)
    gate, why = read_gate(), os.environ.get("WHY", "")
    lines, refused = collections.OrderedDict(), 0
    found["compiler", "nvcc", "version"] = compiler()
    kinds = {key[0] for key in found} - {"simulated"}
    for key, line in gate.items():
        if key[0] not in kinds:
            lines[key] = line
    for key, value in found.items():
        old = gate.get(key, {"base": "", "why": "", "value": ""})
        line = dict(zip(COLUMNS, key + (value, "", "")))
        if key[2] == "code_bytes":
            line["base"] = min(value, int(old["base"] or value))
            line["why"] = old["why"] if grown(key, value, line["base"]) else ""
            # A word covers the growth that it was said of, not the next.
            if grown(key, value, line["base"]) and value > int(old["value"] or value):
                line["why"] = why
            if grown(key, value, line["base"]) and not line["why"]:
                refused += 1
                print(f"{' '.join(key)}: {value}, of {line['base']}: say why, WHY=\"...\"")
        lines[key] = line
        if never(key, value):
            refused += 1
            print(f"{' '.join(key)}: {never(key, value)}")
    for word in missing:
        print(f"kept as they were: {word}")
    if refused:
        return 1
    order = ["compiler", "counted", "sass", "simulated"]
    write_csv(GATE, sorted(lines.values(), key=lambda r: order.index(r["kind"])))
    print(f"{len(lines)} figures in {os.path.relpath(GATE, ROOT)}")
    return 0


def self_test():
    """The rules, on made-up figures."""
    def line(value, base="", why=""):
        return {"value": str(value), "base": str(base), "why": why}
    code, cycles = ("sass", "kernel sm_90", "code_bytes"), ("simulated", "A1", "cycles")
    count = ("counted", "A1", "serial_trips")
    wanted = [(code, 100, line(100, 100), ""), (code, 101, line(100, 100), "the gate says"),
              (code, 110, line(110, 100), ""), (code, 111, line(111, 100), "no word why"),
              (code, 111, line(111, 100, "a tile more"), ""), (count, 2, line(2), ""),
              (count, 1, line(2), "the gate says"), (count, 1, None, "not in the gate"),
              (cycles, 1050, line(1000), ""), (cycles, 950, line(1000), ""),
              (("sass", "kernel sm_90", "predicated_reductions"), 1, line(1), "under a predicate"),
              (("sass", "kernel sm_90", "spilled"), 2, line(2), "local memory"),
              (("sass", "kernel sm_90", "spilled"), 0, line(0), ""),
              (cycles, 1051, line(1000), "within 5 %"), (cycles, 949, line(1000), "within 5 %")]
    failed = [w for w in wanted if w[3] not in fault_of(*w[:3]) or
              bool(w[3]) != bool(fault_of(*w[:3]))]
    listing = [(16 * i, "IADD3 R1, R1, 1, RZ") for i in range(20)]
    for i, text in ((5, "@P0 BRA 0x20"), (15, "@P0 BRA 0x70"), (17, "@P1 BRA 0x0"),
                    (19, "BRA 0x130")):
        listing[i] = (16 * i, text)
    if hot_loop(listing) != 9:
        failed.append(("hot_loop", hot_loop(listing)))
    listing = [(0, "@P0 REDUX.MAX.S32 UR8, R18"), (16, "REDUX.SUM UR8, R18"), (32, "@!UP1 REDUX UR8, R1"),
               (48, "@P0 BRA 0x20")]
    if predicated_reductions(listing) != 2:
        failed.append(("predicated_reductions", predicated_reductions(listing)))
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "cycles.csv")
        old = dict.fromkeys(SUMS, 1)
        write_csv(path, [dict(old, case=name) for name in ("gone", "B", "A", "A")])
        rows = merged(path, [dict(old, case="C", header="new", cycles=3),
                             dict(old, case="A", header="new", cycles=2)], ["A", "B", "C"])
        shown = [(r["case"], r["cycles"], r["header"]) for r in rows]
        if shown != [("A", 2, "new"), ("B", 1, ""), ("C", 3, "new")] or \
                headers_of(rows) != "Header: blob `new` (`git log --find-object=new`), of all " \
                                    "others; of 0.6.0: B.":
            failed.append(("merged", shown, headers_of(rows)))
    for what in failed:
        print("FAILED", *what)
    print(f"{len(wanted) + 3 - len(failed)} passed, {len(failed)} failed")
    return 1 if failed else 0


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    mode, folder, failed = sys.argv[1], sys.argv[2], int(sys.argv[3])
    update = "--update" in sys.argv[4:] or mode == "--accept"
    log = os.path.join(folder, "simulated.log")
    if mode == "--check":
        return check(folder, failed)
    if os.path.exists(log):
        grid = mode == "--grid"
        rows = [dict(row, header=header_id()) for row in simulated(log)]
        print("\n".join(table_of(rows)))
        committed = os.path.join(RESULTS, "gpgpusim")
        if grid and rows:
            write_csv(os.path.join(folder, "grid.csv"), rows)
        if update and rows and not (failed and mode == "--accept"):
            path = os.path.join(committed, "grid.csv" if grid else "cycles.csv")
            rows = merged(path, rows, listed(folder, grid))
            write_csv(path, rows)
            text = os.path.join(committed, "README.md")
            if grid:
                put_table(text, "grid", beside_variants(rows))
            else:
                put_table(text, "table", table_of(rows) + ["", headers_of(rows)])
                put_table(text, "targets", targets_of(rows))
    if mode == "--accept":
        return accept(folder, failed)
    for key, value in figures(folder)[0].items():
        if mode == "--show" and key[0] != "simulated":
            print(",".join(map(str, key + (value,))))
    return failed


if __name__ == "__main__":
    sys.exit(main())
