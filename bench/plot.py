#!/usr/bin/env python3
"""From result files to tables and plots; nothing here measures.

    plot.py --update           all that is made of committed files: the pictures of
                               bench/results/plots, the tables of all READMEs
    plot.py screen FILE        counters.csv on one screen, beside the study's figures and cycles
    plot.py summary FOLDER     short Markdown summary of a results folder, on stdout
    plot.py plots FOLDER       pictures of a GPU's results beside them, SVG and PNG (matplotlib;
                               skipped without it)
    plot.py readme [--check]   rewrite the tables of all three READMEs between
                               <!-- bench:NAME --> and <!-- /bench:NAME -->, for the names below;
                               --check: only say whether they are up to date, and whether the
                               other figures of README.md are those of bench/results

README gets figures from committed files alone: a results folder with uncommitted changes is left
out, and without any the text between the comments says that nothing was measured."""

import csv
import math
import os
import re
import subprocess
import sys

import pictures

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
RESULTS = os.path.join(ROOT, "bench", "results")
NUMBERS = ("b", "gamma", "alpha", "kv_bytes", "planes", "num_sms", "us_p10", "us_p50", "us_p90",
           "us_p95", "graph_us_p10", "graph_us_p50", "graph_us_p90", "bytes", "min_bytes", "gb_s",
           "launches", "floor_us", "ratio")


def read_csv(path):
    """Rows as dictionaries, numbers as numbers, an empty field as None; comments apart."""
    rows, comments, header = [], [], None
    if not os.path.exists(path):
        return rows, comments
    with open(path, newline="") as file:
        for fields in csv.reader(file):
            if not fields:
                continue
            if fields[0].startswith("#"):
                comments.append(",".join(fields).lstrip("# "))
            elif fields[0] == "op":
                header = fields
            elif header and len(fields) == len(header):
                row = dict(zip(header, fields))
                for name in header:
                    if name in NUMBERS or name not in ("op", "variant", "generator", "dtype",
                                                       "cache", "floor"):
                        row[name] = float(row[name]) if row[name] else None
                rows.append(row)
    return rows, comments


def time_of(row):
    """What a launch costs: in a graph if that was measured, else by a pair of events."""
    return row.get("graph_us_p50") or row.get("us_p50")


def select(rows, **wanted):
    """Rows whose columns equal the given values, and that have a time."""
    return [row for row in rows if time_of(row) is not None
            and all(row.get(name) == value for name, value in wanted.items())]


def markdown(header, lines):
    table = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return "\n".join(table + ["| " + " | ".join(map(str, line)) + " |" for line in lines])


def us(row):
    return "-" if row is None or time_of(row) is None else f"{time_of(row):.2f}"


def pair_us(row):
    """Of an event before and after each launch, as the study timed."""
    return "-" if row is None or not row.get("us_p50") else f"{row['us_p50']:.2f}"


def ratio(row):
    return "-" if row is None or row.get("ratio") is None else f"{row['ratio']:.2f}"


def first(rows):
    return rows[0] if rows else None


# ---------------------------------------------------------------------------------------- tables


def study_us(study, **at):
    """What the study published, or a dash."""
    found = first(pictures.where(study, **at))
    return f"{found['us']:.2f}" if found else "-"


def table_study():
    """Every point of the study's tables: its times, and cycles that we simulated there."""
    study, grid, lines = pictures.read(pictures.STUDY), pictures.read(pictures.GRID), []
    points = dict.fromkeys((r["op"], r["b"], r["gamma"], r["alpha"], r["kv_bytes"]) for r in study)
    for op, b, gamma, alpha, kv_bytes in points:
        at = dict(b=b, gamma=gamma, alpha=alpha)
        cycles = {r["variant"]: f"{r['cycles']:,.0f}"
                  for r in pictures.where(grid, size=kv_bytes, **at) if r["op"] in (op, "floor")}
        measured = [study_us(study, op=op, variant=name, kv_bytes=kv_bytes, **at)
                    for name in ("PyTorch", "0 naive", "1 ballot", "2 pack", "3 single")]
        simulated = [cycles.get(name, "-") for name in ("0 naive", "1 ballot", "2 pack", "3 single",
                                                        "5 kit")]
        simulated.append(cycles.get("probe1" if op == "verify" else "probe2", "-"))
        lines.append([f"`{op}`", f"{b:.0f}", f"{gamma:.0f}", alpha, f"{kv_bytes:.0f}"] + measured
                     + simulated)
    return markdown(["", "b", "gamma", "alpha", "row", "PyTorch us", "naive us", "ballot us",
                     "pack us", "single us", "naive cycles", "ballot", "pack", "single", "kit",
                     "probe"], lines)


def table_verify(rows):
    """A1 at b = 32: the study's table 1, with ours, and the floor."""
    lines, study = [], pictures.read(pictures.STUDY)
    for gamma in (8, 64, 128):
        for alpha in (0.3, 0.6, 0.9):
            at = dict(op="verify", b=32, gamma=gamma, alpha=alpha, dtype="int64",
                      generator="binomial", cache="warm")
            found = [first(select(rows, variant=name, **at))
                     for name in ("0 naive", "1 ballot", "5 kit")]
            if any(found):
                published = [study_us(study, op="verify", variant=name, gamma=gamma, alpha=alpha)
                             for name in ("PyTorch", "0 naive", "1 ballot")]
                lines.append([gamma, alpha] + [us(row) for row in found] + [ratio(found[2])]
                             + [pair_us(row) for row in found] + published)
    if not lines:
        return None
    return markdown(["gamma", "alpha", "naive us", "ballot us", "kit us", "kit / probe",
                     "naive, pair us", "ballot, pair us", "kit, pair us", "study: PyTorch us",
                     "study: naive us", "study: ballot us"], lines)


def table_verify_pack(rows):
    """B2 at the points of the study's table 3."""
    study = pictures.read(pictures.STUDY)
    points = ((4, 8, 256, 0.3), (32, 8, 256, 0.3), (32, 8, 4096, 0.9), (32, 128, 256, 0.3),
              (32, 128, 1024, 0.9), (32, 128, 2048, 0.9), (32, 128, 4096, 0.9))
    names = ("2 pack", "3 single", "3 single16", "4 two", "5 one", "5 kit")
    lines = []
    for b, gamma, kv_bytes, alpha in points:
        at = dict(op="verify_pack", b=b, gamma=gamma, kv_bytes=kv_bytes, alpha=alpha, planes=1,
                  generator="binomial", dtype="int64", num_sms=0)
        found = [first([row for row in select(rows, variant=name, **at)
                        if row["cache"] in ("rotate", "warm")]) for name in names]
        if any(found):
            kit = found[-1] or {}
            at = dict(op="verify_pack", b=b, gamma=gamma, kv_bytes=kv_bytes, alpha=alpha)
            lines.append([b, gamma, kv_bytes, alpha] + [us(row) for row in found]
                         + [f"{ratio(kit)} x {kit.get('floor', '')}", pair_us(found[-1]),
                            study_us(study, variant="PyTorch", **at),
                            study_us(study, variant="3 single", **at)])
    if not lines:
        return None
    return markdown(["b", "gamma", "row bytes", "alpha", "pack us", "single us", "single16 us",
                     "two us", "one us", "kit us", "kit / floor", "kit, pair us",
                     "study: ballot + PyTorch us", "study: single us"], lines)


def table_rule(rows):
    """One launch against two by the number of drafts that every block would compare again."""
    lines = []
    kits = [row for row in select(rows, op="verify_pack", variant="5 kit", kv_bytes=256, planes=1,
                                  alpha=0.6, cache="warm", generator="binomial", num_sms=0)]
    kits.sort(key=lambda row: (row["dtype"], row["b"] * row["gamma"], row["b"]))
    for kit in kits:
        at = {name: kit[name] for name in ("op", "b", "gamma", "alpha", "kv_bytes", "planes",
                                           "generator", "dtype", "cache", "num_sms")}
        one = first(select(rows, variant="5 one", **at))
        two = first(select(rows, variant="4 two", **at))
        if not one or not two or kit["b"] < 64:
            continue
        better = "one" if time_of(one) < time_of(two) else "two"
        chosen = "one" if kit["launches"] == 1 else "two"
        lines.append([kit["dtype"], int(kit["b"]), int(kit["gamma"]),
                      int(kit["b"] * kit["gamma"]), us(one), us(two), better, chosen])
    if not lines:
        return None
    return markdown(["dtype", "b", "gamma", "drafts", "one us", "two us", "faster", "rule"],
                    lines)


def table_scores(rows):
    """A2 to A5 and A8 from scores, against the time to read the same scores once."""
    lines = []
    for row in rows:
        if row.get("generator") != "scores" or row.get("cache") not in ("warm", "rotate"):
            continue
        if time_of(row) is None:
            continue
        vocab = row["kv_bytes"] / (2 if row["dtype"] == "bf16" else 4)
        lines.append([row["op"], row["variant"], int(row["b"]), int(row["gamma"]), int(vocab),
                      row["dtype"], f"{row['alpha']:.2f}", row["cache"], us(row),
                      f"{row['gb_s']:.0f}" if row.get("gb_s") else "-", ratio(row)])
    if not lines:
        return None
    return markdown(["op", "variant", "b", "gamma", "vocab", "dtype", "accepted", "cache",
                     "us", "GB/s", "/ floor"], lines)


def table_moves(rows):
    """B3, B5, C1 to C5 and D1 to D3, against a copy of what moves or the loads that must wait."""
    lines = []
    for row in rows:
        if row.get("generator") != "moves" or time_of(row) is None:
            continue
        lines.append([row["op"], row["variant"], int(row["b"]), int(row["planes"]),
                      f"{row['min_bytes'] / 1e6:.2f}", us(row),
                      f"{row['gb_s']:.0f}" if row.get("gb_s") else "-",
                      f"{ratio(row)} x {row['floor']}"])
    if not lines:
        return None
    return markdown(["op", "variant", "b", "planes", "least MB", "us", "GB/s", "/ floor"], lines)


def table_counts(rows):
    """What the variants do, counted on ptxrun."""
    lines = []
    for row in rows:
        if "warp_instructions" not in row:
            continue
        if row["gamma"] != 128 and not (row["op"] == "verify_pack" and row["kv_bytes"] == 4096):
            continue
        sectors = row["load_sectors"] + row["store_sectors"]
        lines.append([row["op"], row["variant"], int(row["b"]), int(row["gamma"]), row["alpha"],
                      int(row["kv_bytes"]), row["dtype"], int(row["launches"]),
                      int(row["warp_instructions"]),
                      f"{row['thread_instructions'] / row['warp_instructions']:.1f}",
                      int(row["divergent_branches"]),
                      int(sectors), f"{32 * sectors / row['min_bytes']:.2f}"])
    if not lines:
        return None
    return markdown(["op", "variant", "b", "gamma", "alpha", "row bytes", "dtype", "launches",
                     "warp instructions", "lanes", "divergent branches", "sectors",
                     "moved / minimum"], lines)


def table_score_counts(rows):
    """Instructions of a thread per score of the first pass, and sectors read over the least bytes:
    batch 1, 32000 ids, 4 drafts (A8: none)."""
    bytes_of = {"bf16": 2, "f32": 4}
    found = {}
    for row in rows:
        if row["generator"] != "scores" or row["dtype"] not in bytes_of or row["b"] != 1:
            continue
        if row["kv_bytes"] != 32000 * bytes_of[row["dtype"]]:
            continue
        # All that min_bytes holds besides scores is less than a row of them.
        scores = int(row["min_bytes"] / row["kv_bytes"]) * 32000
        found.setdefault((row["op"], row["variant"].removeprefix("5 ")), {})[row["dtype"]] = (
            row["thread_instructions"] / scores, 32 * row["load_sectors"] / row["min_bytes"],
            row["serial_trips"])
    return markdown(["operation", "instructions a score, bf16", "fp32", "read / least, bf16",
                     "fp32", "trips"],
                    [[f"`{op}` {variant}", f"{c['bf16'][0]:.1f}", f"{c['f32'][0]:.1f}",
                      f"{c['bf16'][1]:.2f}", f"{c['f32'][1]:.2f}", f"{c['bf16'][2]:.0f}"]
                     for (op, variant), c in found.items()])


def table_copy_counts(rows):
    """What 16 bytes cost and what a launch costs, from two counts of planes."""
    lines, last = [], None
    for row in rows:
        if row["generator"] != "moves" or row["kv_bytes"] == 0:
            continue
        if last and (last["op"], last["variant"]) == (row["op"], row["variant"]) \
                and row["min_bytes"] > last["min_bytes"]:
            units = (row["min_bytes"] - last["min_bytes"]) / 32
            each = (row["thread_instructions"] - last["thread_instructions"]) / units
            rest = row["thread_instructions"] - each * row["min_bytes"] / 32
            sectors = row["load_sectors"] + row["store_sectors"]
            lines.append([f"`{row['op']}` {row['variant'].removeprefix('5 ')}", f"{each:.0f}",
                          f"{32 * sectors / row['min_bytes']:.2f}", f"{rest / 1e6:.1f} million"])
        last = row
    return markdown(["", "instructions for 16 bytes", "moved / least, 8 planes",
                     "instructions of the launch"], lines)


def table_small_counts(rows):
    """What moves no KV."""
    lines = []
    for row in rows:
        if row["generator"] == "moves" and row["kv_bytes"] == 0:
            sectors = row["load_sectors"] + row["store_sectors"]
            lines.append([f"`{row['op']}` {row['variant'].removeprefix('5 ')}", f"{row['b']:,.0f}",
                          f"{row['warp_instructions']:,.0f}", f"{row['serial_trips']:.0f}",
                          f"{row['asked_bytes'] / row['min_bytes']:.2f}",
                          f"{32 * sectors / row['min_bytes']:.1f}"])
    return markdown(["", "rows", "warp instructions", "trips", "asked / least", "moved / least"],
                    lines)


def table_drafts(rows):
    """What greedy verification accepts of tiny_lm's drafts, by their number."""
    lines = [[f"{r['gamma']:.0f}", f"{r['proposed']:.0f} / {r['accepted']:.0f}", f"{r['rate']:.3f}",
              f"{r['efficiency']:.2f}", f"{r['tokens_per_step']:.1f}"]
             for r in rows if r["rule"] == "greedy"]
    return markdown(["`--gamma`", "drafts proposed / accepted", "acceptance rate",
                     "block efficiency", "tokens per step"], lines) if lines else None


def table_rules(rows):
    """By rule and temperature: tokens by passes and by steps over all seeds, which are harmonic
    means, for every run has the same number of tokens."""
    lines = {}
    for row in rows:
        name = row["rule"] + (f", {row['temperature']:.1f}" if row["temperature"] else "")
        lines.setdefault(name, {}).setdefault(row["gamma"], []).append(row)

    def cell(found):
        passes = sum(1 / r["efficiency"] for r in found)
        steps = sum(1 / r["tokens_per_step"] for r in found)
        return f"{len(found) / passes:.2f} / {len(found) / steps:.1f}"

    return markdown(["`--rule`, `--temperature`", "`--gamma 4`", "`--gamma 8`"],
                    [[name, cell(runs[4]), cell(runs[8])] for name, runs in lines.items()])


# --------------------------------------------------------------------------------------- summary


def targets(rows):
    """The promises of the project's documents, each with what was measured."""
    lines = []
    a1 = [row for row in select(rows, op="verify", variant="5 kit", cache="warm")
          if row.get("ratio")]
    if a1:
        worst = max(a1, key=lambda row: row["ratio"])
        lines.append(["A1 / probe of depth 1, worst", "<= 1.15",
                      f"{worst['ratio']:.2f} (b {worst['b']:.0f}, gamma {worst['gamma']:.0f})"])
        flat = 0.0
        for row in a1:
            same = [time_of(other) for other in a1
                    if all(other[k] == row[k] for k in ("b", "gamma", "dtype", "generator"))]
            flat = max(flat, max(same) / min(same))
        lines.append(["A1 slowest alpha / fastest alpha, worst", "<= 1.05", f"{flat:.2f}"])
    grid = [row for row in select(rows, op="verify_pack", variant="5 kit", planes=1, num_sms=0)
            if row.get("ratio") and row["cache"] in ("rotate", "warm")]
    small = [row for row in grid
             if row["gamma"] == 8 and row["b"] <= 32 and row["floor"] == "probe2"]
    if small:
        worst = max(small, key=lambda row: row["ratio"])
        lines.append(["B2, gamma 8 / probe of depth 2, worst", "<= 1.25",
                      f"{worst['ratio']:.2f} (b {worst['b']:.0f}, row {worst['kv_bytes']:.0f})"])
    large = [row for row in select(rows, op="verify_pack", variant="5 kit", num_sms=0)
             if row.get("ratio") and row["floor"] == "copy" and row["min_bytes"] >= 2 * 15e6]
    if large:
        worst = max(large, key=lambda row: row["ratio"])
        lines.append(["B2 from 15 MB, fraction of copy bandwidth, worst", ">= 0.90",
                      f"{1 / worst['ratio']:.2f}"])
    for op, name in (("append_kv", "B3"), ("realign", "C1")):
        moves = [row for row in select(rows, op=op, floor="copy")
                 if row.get("ratio") and row["variant"].startswith("5 kit")
                 and row["min_bytes"] >= 2 * 15e6]
        if moves:
            worst = max(moves, key=lambda row: row["ratio"])
            lines.append([f"{name} from 15 MB, fraction of copy bandwidth, worst", ">= 0.85",
                          f"{1 / worst['ratio']:.2f} ({worst['variant']}, b {worst['b']:.0f})"])
    slower = 0.0
    for row in grid:
        at = {k: row[k] for k in ("op", "b", "gamma", "alpha", "kv_bytes", "planes", "generator",
                                  "dtype", "cache", "num_sms")}
        two = first(select(rows, variant="4 two", **at))
        if two:
            slower = max(slower, time_of(row) / time_of(two))
    if slower:
        lines.append(["B2 kit / two launches, worst", "<= 1.00", f"{slower:.2f}"])
    return markdown(["promise", "target", "measured"], lines) if lines else None


NCU_COLUMNS = (("lanes", "smsp__thread_inst_executed_per_inst_executed.ratio"),
               ("warp instructions", "smsp__inst_executed.sum"),
               ("sectors read", "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"),
               ("sectors written", "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum"),
               ("DRAM read", "dram__bytes_read.sum"), ("DRAM written", "dram__bytes_write.sum"),
               ("time", "gpu__time_duration.sum"))


def table_ncu(path):
    """ncu.csv holds, after a comment with the case, what `ncu --csv --page raw` printed: a header,
    a line of units, a line per kernel, and chatter between them."""
    lines, case, header, units = [], "", None, None
    if not os.path.exists(path):
        return None
    with open(path, newline="") as file:
        for fields in csv.reader(file):
            if not fields:
                continue
            if fields[0].startswith("# bench one"):
                case, header, units = fields[0][len("# bench one "):], None, None
            elif fields[0] == "ID":
                header = fields
            elif header and len(fields) == len(header):
                row = dict(zip(header, fields))
                if fields[0] == "":
                    units = row
                    continue
                values = [f"{row.get(name, '-')} {(units or {}).get(name, '')}".strip()
                          for _, name in NCU_COLUMNS]
                lines.append([case, row.get("Kernel Name", "").split("(")[0]] + values)
    if not lines:
        return None
    return markdown(["case", "kernel"] + [title for title, _ in NCU_COLUMNS], lines)


def table_peers(path):
    """b = 32 of peers.csv, event pairs and, where it can be captured, graph."""
    rows, _ = read_csv(path)
    lines = []
    for row in rows:
        if time_of(row) is None or row["b"] != 32 or row["gamma"] == 64 or row["alpha"] != 0.9:
            continue
        if row["generator"] != "binomial" or row["kv_bytes"] not in (256, 4096):
            continue
        graph = row.get("graph_us_p50")
        lines.append([row["op"], row["variant"], int(row["gamma"]), int(row["kv_bytes"]),
                      f"{row['us_p50']:.2f}", f"{graph:.2f}" if graph else "-"])
    if not lines:
        return None
    return markdown(["op", "who", "gamma", "row bytes", "pair us", "graph us"], lines)


def summary(folder):
    rows, comments = read_csv(os.path.join(folder, "bench.csv"))
    print(f"# Summary of {os.path.basename(os.path.abspath(folder))}\n")
    for comment in comments[:2]:
        print(f"{comment}\n")
    timed = [row for row in rows if time_of(row) is not None]
    if rows:
        print(f"{len(rows)} rows, {len(timed)} of them timed; every row equal to the reference.\n")
    else:
        print("No sweep is here (bench.csv, which bench/device.sh writes). What is counted: "
              "`make bench`.\n")
    if rows and not timed:
        print("No times: this run was interpreted.\n")
    if timed:
        print("us: measured here, p50 of a launch in a replayed graph, where there is one; pair us: "
              "between two events,\nlaunch included, as the study timed on its L40S (study: "
              "`bench/results/study/study.csv`); / floor, / probe:\ntime over the larger of loads "
              "that must wait for each other and a copy or read of the bytes.\n")
    for title, table in (("Promises", targets(rows)), ("A1, b = 32, int64", table_verify(rows)),
                         ("B2, the study's points", table_verify_pack(rows)),
                         ("One launch or two", table_rule(rows)),
                         ("A2 to A5 and A8", table_scores(rows)),
                         ("B3, B5, C1 to C5, D1 to D3", table_moves(rows)),
                         ("Peers, b = 32, alpha = 0.9",
                          table_peers(os.path.join(folder, "peers.csv"))),
                         ("Hardware counters", table_ncu(os.path.join(folder, "ncu.csv")))):
        if table:
            print(f"## {title}\n\n{table}\n")


# ---------------------------------------------------------------------------------------- screen

# The cases of the screen: op, b, gamma, alpha, bytes of a row, type; None: whatever it is.
SCREEN = ((("verify", 32, 128, 0.3, 0, "int64"), ("PyTorch", "0 naive", "1 ballot", "5 kit")),
          (("verify", 32, 128, 0.9, 0, "int64"), ("PyTorch", "0 naive", "1 ballot", "5 kit")),
          (("verify_pack", 32, 8, 0.3, 256, "int64"), ("PyTorch", "2 pack", "3 single", "5 kit")),
          (("verify_pack", 32, 8, 0.9, 4096, "int64"), ("PyTorch", "2 pack", "3 single", "5 kit")),
          (("sample", 1, 0, None, 64000, "bf16"),
           ("5 kit cdf", "5 kit k50 p90", "5 kit top 20")),
          (("verify_token", 1, 4, None, 64000, "bf16"), ("5 kit q",)))
COLUMNS = {"op, variant": 21, "b": 2, "gamma": 5, "alpha": 5, "row": 5, "launch": 6, "warp insn": 9,
           "lanes": 5, "trips": 5, "moved/min": 9, "cycles": 7, "study us": 8, "ours us": 7}
LEGEND = """\
b rows of the batch; gamma drafts a row; alpha share accepted; row bytes of a KV or score row
counted, tests/ptxrun, exact: {counts}warp insn, PTX instructions that warps issue;
  {lanes}trips, longest chain of loads and atomics that wait for each other;
  moved/min, 32 bytes for each sector that warps touch, over the bytes that nobody can avoid
simulated: cycles of GPGPU-Sim's V100, kernels alone, int32 tokens (results/gpgpusim/grid.csv)
measured: study us, L40S, launch included (results/study/study.csv); ours us, {ours}
More instructions can be less time: a launch ends when its longest chain of waiting does, so many
warps that issue more side by side are done before one that issues little and waits at each step."""


def measured_folders():
    """Names of the folders that hold times of a GPU."""
    folders = sorted(os.listdir(RESULTS)) if os.path.isdir(RESULTS) else []
    return [name for name in folders
            if any(time_of(r) for r in read_csv(os.path.join(RESULTS, name, "bench.csv"))[0])]


def screen_line(columns, cells):
    return " ".join(f"{cells.get(name, ''):<{COLUMNS[name]}}" if name == columns[0]
                    else f"{cells.get(name, ''):>{COLUMNS[name]}}" for name in columns).rstrip()


def screen(path):
    """At most 40 lines of at most 100 columns, with what bench/run.sh says around it."""
    rows, comments = read_csv(path)
    grid = pictures.read(pictures.GRID) + pictures.read(pictures.CYCLES)
    study, folders = pictures.read(pictures.STUDY), measured_folders()
    timed = read_csv(os.path.join(RESULTS, folders[0], "bench.csv"))[0] if folders else []
    # With times there is less room for counts.
    columns = [c for c in COLUMNS if c not in (("launch", "lanes") if folders else ("ours us",))]
    version = [c.rsplit("specverify: ", 1)[1] for c in comments if "specverify: " in c]
    print(f"specverify {''.join(version[:1])}, one launch of each; all: bench/run.sh --all")
    print(screen_line(columns, {name: name for name in columns}))
    for (op, b, gamma, alpha, size, dtype), variants in SCREEN:
        if op != "verify_token":
            print()
        for variant in variants:
            at = {"op": op, "variant": variant, "b": b, "gamma": gamma}
            if alpha is not None:
                at["alpha"] = alpha
            counts = first(pictures.where(rows, kv_bytes=size, dtype=dtype, **at))
            published = first(pictures.where(study, kv_bytes=size, **at))
            cycles = first(pictures.where(grid, size=size, **at))
            ours = first(select(timed, kv_bytes=size, dtype=dtype, **at))
            cells = {"op, variant": f"{op} {variant.removeprefix('5 ')}", "b": b, "gamma": gamma,
                     "row": size, "alpha": f"{counts['alpha'] if counts else alpha:.1f}"}
            if counts:
                sectors = counts["load_sectors"] + counts["store_sectors"]
                lanes = counts["thread_instructions"] / counts["warp_instructions"]
                cells.update({"launch": int(counts["launches"]), "lanes": f"{lanes:.1f}",
                              "warp insn": int(counts["warp_instructions"]),
                              "trips": int(counts["serial_trips"]),
                              "moved/min": f"{32 * sectors / counts['min_bytes']:.2f}"})
            if cycles:
                cells["cycles"] = f"{cycles['cycles']:,.0f}"
            if published:
                cells["study us"] = f"{published['us']:.2f}"
            if ours:
                cells["ours us"] = us(ours)
            print(screen_line(columns, cells))
    print()
    print(LEGEND.format(counts="" if folders else "launch, launches; ",
                        lanes="" if folders else "lanes, of 32 that take part; ",
                        ours=f"{folders[0]}, graph replay" if folders else "no GPU yet"))


def update():
    """All that is made of committed files."""
    drawn = pictures.update()
    return 0 if readme(False) and drawn == 0 else 1


# ---------------------------------------------------------------------------------------- readme


def is_committed(folder):
    """Everything in it is in git, as it is now."""
    command = ["git", "-C", ROOT, "status", "--porcelain", "--ignored", "--", folder]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode == 0 and not done.stdout.strip()


def result_folders():
    if not os.path.isdir(RESULTS):
        return []
    folders = [os.path.join(RESULTS, name) for name in sorted(os.listdir(RESULTS))]
    return [folder for folder in folders if is_committed(folder)]


def results_text(name):
    path = os.path.join(RESULTS, name)
    with open(path, encoding="utf-8") as file:
        return file.read()


def families_block():
    """The table that tests/compile/families.py printed."""
    lines = [line for line in results_text("compile/families.txt").splitlines() if line[:1] == "|"]
    names = {"pack": "PACK (with GREEDY)", "all": "all"}
    out = []
    for line in lines[2:]:
        name, figures = [cell.strip() for cell in line.strip("|").split("|")]
        out.append([names.get(name, name.upper()), figures])
    return markdown(["alone", "sm_90: s, KiB"], out)


def trees_block():
    """Tokens by rule and shape of the tree, as examples/tiny_lm/trees.sh printed them."""
    lines = [line.split() for line in results_text("tiny_lm/trees.txt").splitlines()
             if line and line[0] != "#"]
    return markdown(["`--rule`, `--tree`"] + lines[0][1:], lines[1:])


def readme_block(name):
    """The text for one pair of comments, or None if the name is not one of ours."""
    if name == "families":
        return families_block()
    if name == "trees":
        return trees_block()
    if name == "study":
        return table_study()
    of_header = {"scores": table_score_counts, "copies": table_copy_counts,
                 "small": table_small_counts}
    if name in of_header:
        return of_header[name](read_csv(os.path.join(RESULTS, "ptxrun", "counters.csv"))[0])
    counted = {"drafts": table_drafts, "rules": table_rules}
    if name in counted:
        return counted[name](pictures.read(pictures.RULES))
    tables = {"verify": ("bench.csv", table_verify),
              "verify_pack": ("bench.csv", table_verify_pack),
              "rule": ("bench.csv", table_rule), "targets": ("bench.csv", targets),
              "counts": ("counters.csv", table_counts)}
    if name not in tables:
        return None
    file_name, make = tables[name]
    parts = []
    for folder in result_folders():
        path = os.path.join(folder, file_name)
        rows, comments = read_csv(path)
        table = make(rows)
        if table:
            where = os.path.relpath(path, ROOT)
            machine = comments[0] if comments else ""
            parts.append(f"`{where}`; {machine}\n\n{table}")
    return "\n\n".join(parts) if parts else "Not measured yet: there is no result file."


def rounded_up(text, digits=2):
    """Two digits, never less than it is: 5.347e-08 is 5.4e-8."""
    value = float(text)
    exponent = math.floor(math.log10(value)) - digits + 1
    scaled = math.ceil(value / 10 ** exponent - 1e-9)
    if exponent >= -5:
        return f"{scaled * 10 ** exponent:.{max(-exponent, 0)}f}"
    return f"{scaled / 10:.1f}e{exponent + 1}"


def found_in(file, pattern, groups=lambda *g: g):
    """What a result file says, as the text of README has it."""
    match = re.search(pattern, results_text(file), re.M)
    return groups(*match.groups()) if match else (f"nothing like {pattern} in {file}",)


def slowest_rule():
    seconds = [line.split()[7] for line in results_text("reference/rules.txt").splitlines()
               if re.match(r"(token|block|coupled|greedy) ", line)]
    return (rounded_up(max(seconds, key=float)),)


def texts_of_chains():
    """As many texts of each chain, of which the file has statistics."""
    text = results_text("reference/law.txt")
    chains = set(re.findall(r" (chain: .*)$", text, re.M))
    texts = re.search(r"uniforms of 12 bits, .*: (\d+) texts,", text).group(1)
    return with_commas(len(chains) * int(texts)) + (str(len(chains)),)


def with_commas(*numbers):
    return tuple(f"{int(n):,}" for n in numbers)


FILTERS = (r"(\d+) kept sets,.* the kit rounded (\d+),(?:.|\n)*"
           r"definitions in floats rounded (\d+),")

# The other figures of README.md: where it says them, and what the results say.
CLAIMS = (
    (r"take the reference at most ([\d.]+) s of one core", slowest_rule),
    (r"The worst rows that could be made: ([\d.e-]+)", lambda: found_in(
        "reference/numeric.txt", r"every row: total variation of a draw (\S+),",
        lambda v: (rounded_up(v),))),
    (r"262,144 ids\): a draw within ([\d.e-]+)", lambda: found_in(
        "reference/numeric.txt", r"softmax: total variation of the draw (\S+),",
        lambda v: (rounded_up(v),))),
    (r"([\d,]+) texts, (\d+) chains", texts_of_chains),
    (r"in NumPy float64: ([\d,]+) rows", lambda: found_in(
        "reference/published.txt", r"^published: (\d+) rows", with_commas)),
    (r"what filters keep: ([\d,]+) sets .* but for (\d+) of the requests .* in floats miss (\d+)",
     lambda: found_in("reference/filters.txt", FILTERS, lambda *g: with_commas(g[0]) + g[1:])),
    (r"two steps: ([\d,]+) texts", lambda: found_in(
        "ptxrun/law.txt", r"^device chains: (\d+) texts in all", with_commas)),
)


def claims(text):
    """Figures of README.md that no result file says, as lines."""
    text, faults = " ".join(text.split()), []
    for pattern, results in CLAIMS:
        match = re.search(pattern, text)
        if not match:
            faults.append(f"no \"{pattern}\"")
        elif match.groups() != results():
            faults.append(f"\"{match.group(0)}\", and the results say {', '.join(results())}")
    return faults


def rewrite(text):
    lines, out, index = text.split("\n"), [], 0
    while index < len(lines):
        line = lines[index]
        out.append(line)
        index += 1
        if not (line.startswith("<!-- bench:") and line.endswith(" -->")):
            continue
        name = line[len("<!-- bench:"):-len(" -->")]
        closing, block = f"<!-- /bench:{name} -->", readme_block(name)
        if closing not in lines[index:]:
            raise SystemExit(f"plot.py: a README has no {closing}")
        if block is not None:
            end = lines.index(closing, index)
            out.append(block)
            index = end
    return "\n".join(out)


def readme(check):
    """The tables of all READMEs that have such; the figures of the first besides."""
    fine = True
    for name in ("README.md", "bench/README.md", "examples/tiny_lm/README.md"):
        path = os.path.join(ROOT, name)
        with open(path, encoding="utf-8") as file:
            old = file.read()
        new = rewrite(old)
        if check:
            print(f"{name} is up to date" if new == old else f"{name} differs: plot.py --update")
            fine = fine and new == old
        elif new != old:
            with open(path, "w", encoding="utf-8") as file:
                file.write(new)
            print(f"{name} rewritten")
        if name == "README.md":
            for fault in claims(new):
                print(f"{name}: {fault}")
                fine = False
    return fine


def main(words):
    if len(words) == 2 and words[0] == "summary":
        summary(words[1])
    elif len(words) == 2 and words[0] == "plots":
        return 1 if pictures.of_a_gpu(words[1]) else 0
    elif len(words) == 2 and words[0] == "screen":
        screen(words[1])
    elif words == ["--update"]:
        return update()
    elif words in (["readme"], ["readme", "--check"]):
        return 0 if readme(len(words) == 2) else 1
    else:
        print(__doc__)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
