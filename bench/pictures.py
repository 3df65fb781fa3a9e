#!/usr/bin/env python3
"""Pictures of the result files; plot.py calls it. Nothing here measures.

    pictures.py --update       all pictures of committed files, SVG and PNG, in bench/results/plots
    pictures.py --check        the committed ones show what the committed files hold (needs no
                               matplotlib); with matplotlib all are drawn into a scratch folder,
                               too, and no text may lie on another or outside
    pictures.py FOLDER [OUT]   pictures of a GPU's bench.csv, into that folder or OUT
    pictures.py --self-test    the same of made-up figures, for their text; nothing is kept

Whatever a picture shows is one of three: counted (tests/ptxrun, tiny_lm), simulated (GPGPU-Sim's
V100), measured (a GPU, named in the title). Files carry the hash of what they were made from."""

import csv
import hashlib
import math
import os
import re
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
RESULTS = os.path.join(ROOT, "bench", "results")
PLOTS = os.path.join(RESULTS, "plots")
GRID, CYCLES, PEER_CYCLES = ("gpgpusim/grid.csv", "gpgpusim/cycles.csv", "gpgpusim/peers.csv")
PEERS, STUDY, RULES = "ptxrun/peers.csv", "study/study.csv", "tiny_lm/rules.csv"

SIMULATED = "simulated: GPGPU-Sim's V100, kernels alone"
STUDIED = "measured by the study: L40S, launch included"
COLORS = {"PyTorch": "#888888", "0 naive": "#d55e00", "1 ballot": "#e69f00", "2 pack": "#56b4e9",
          "3 single": "#cc79a7", "3 single16": "#999933", "4 two": "#44aa99", "5 one": "#882255",
          "5 kit": "#0072b2", "floor": "#000000"}
NAMES = {"PyTorch": "PyTorch", "0 naive": "naive", "1 ballot": "ballot",
         "2 pack": "pack (the study's)", "3 single": "single block",
         "3 single16": "single block, 16-byte copies",
         "4 two": "kit, two launches", "5 one": "kit, one launch", "5 kit": "kit"}


# ------------------------------------------------------------------------------------- the files


def read(name, folder=RESULTS):
    """Rows of a file as dictionaries; what looks like a number is one."""
    with open(os.path.join(folder, name), newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
    for row in rows:
        for key, value in row.items():
            try:
                row[key] = float(value)
            except (TypeError, ValueError):
                pass
    return rows


def hash_of(names):
    """Of the rows alone: a comment changes no picture."""
    digest = hashlib.sha256()
    for name in names:
        with open(os.path.join(RESULTS, name), encoding="utf-8") as file:
            for line in file:
                if not line.startswith("#"):
                    digest.update(line.encode())
    return digest.hexdigest()[:16]


def source_of(names):
    return ", ".join("bench/results/" + name for name in names) + "; rows " + hash_of(names)


def where(rows, **wanted):
    return [row for row in rows if all(row.get(key) == value for key, value in wanted.items())]


def series(rows, x, y, **wanted):
    """Two lists, sorted by x."""
    points = sorted({row[x]: row[y] for row in where(rows, **wanted)}.items())
    return [p[0] for p in points], [p[1] for p in points]


# -------------------------------------------------------------------------------------- drawing


def plain_log(axis, ticks, base=2):
    """A logarithmic axis with its ticks as numbers."""
    from matplotlib.ticker import FixedFormatter, FixedLocator, NullFormatter
    axis.axes.set_xscale("log", base=base) if axis.axis_name == "x" else \
        axis.axes.set_yscale("log", base=base)
    axis.set_major_locator(FixedLocator(list(ticks)))
    axis.set_major_formatter(FixedFormatter([f"{t:,g}" for t in ticks]))
    axis.set_minor_formatter(NullFormatter())
    axis.set_minor_locator(FixedLocator([]))


def commas(axis, count=5):
    """Few ticks, as numbers that can be read."""
    from matplotlib.ticker import MaxNLocator
    axis.set_major_locator(MaxNLocator(count))
    axis.set_major_formatter(lambda value, _: f"{value:,.10g}")


def from_zero(panel):
    if panel.has_data():  # a sweep can have been stopped before its first row
        panel.set_ylim(0, 1.06 * panel.dataLim.y1)


def line(panel, rows, variant, x, y, **wanted):
    xs, ys = series(rows, x, y, variant=variant, **wanted)
    if xs:
        panel.plot(xs, ys, "o-", color=COLORS[variant], label=NAMES[variant], markersize=4,
                   zorder=3 if variant == "5 kit" else 2)


def floor(panel, rows, variant, x, label, **wanted):
    xs, ys = series(rows, x, "cycles", op="floor", variant=variant, **wanted)
    if xs:
        panel.plot(xs, ys, ":", color=COLORS["floor"], label=label, linewidth=1.5)


def legend(figure, panels, columns=4):
    """One for all panels, below them."""
    found = {}
    for panel in panels:
        for handle, label in zip(*panel.get_legend_handles_labels()):
            found.setdefault(label, handle)
    figure.legend(found.values(), found.keys(), loc="outside lower center", ncol=columns,
                  frameon=False)


def finish(panel, title=None, x=None, y=None):
    panel.grid(True, color="#dddddd", linewidth=0.6)
    panel.set_axisbelow(True)
    for side in ("top", "right"):
        panel.spines[side].set_visible(False)
    if title:
        panel.set_title(title)
    if x:
        panel.set_xlabel(x)
    if y:
        panel.set_ylabel(y)


def heat(panel, table, xs, ys, title, limits):
    """Cells with their numbers."""
    picture = panel.imshow(table, cmap="cividis", vmin=limits[0], vmax=limits[1], aspect="auto",
                           origin="lower")
    middle = (limits[0] + limits[1]) / 2
    for i, values in enumerate(table):
        for j, value in enumerate(values):
            if not math.isnan(value):
                panel.text(j, i, f"{value:.2f}", ha="center", va="center",
                           color="white" if value < middle else "black")
    panel.set_xticks(range(len(xs)), [f"{x:g}" for x in xs])
    panel.set_yticks(range(len(ys)), [f"{y:g}" for y in ys])
    panel.set_title(title)
    return picture


# ------------------------------------------------------------- pictures of the committed files


def verify_gamma(plt):
    """The study's figure 1, and ours."""
    study, grid = where(read(STUDY), op="verify"), read(GRID)
    figure, panels = plt.subplots(2, 3, figsize=(10, 6.4), sharex=True, sharey="row")
    gammas = (4, 8, 16, 32, 64, 128)
    for i, alpha in enumerate((0.3, 0.6, 0.9)):
        for variant in ("PyTorch", "0 naive", "1 ballot"):
            line(panels[0][i], study, variant, "gamma", "us", alpha=alpha)
        for variant in ("0 naive", "1 ballot", "5 kit"):
            line(panels[1][i], grid, variant, "gamma", "cycles", op="verify", b=32.0, alpha=alpha)
        floor(panels[1][i], grid, "probe1", "gamma", "floor: one load, one store", b=32.0,
              alpha=alpha, size=0.0)
        finish(panels[0][i], f"acceptance alpha = {alpha}", None, "us (median)" if i == 0 else None)
        finish(panels[1][i], None, "drafts of a row, gamma", "cycles" if i == 0 else None)
        plain_log(panels[1][i].xaxis, gammas)
        plain_log(panels[0][i].yaxis, (10, 20, 40, 80), 10)
        panels[0][i].set_ylim(9, 110)
        plain_log(panels[1][i].yaxis, (500, 1000, 2000, 5000, 10000, 20000), 10)
    figure.suptitle(f"A1, verify, batch 32.  Above {STUDIED};\nbelow {SIMULATED}")
    legend(figure, panels.flat, 5)
    return figure


def verify_alpha(plt):
    """The study's figure 2, and ours."""
    study, grid = where(read(STUDY), op="verify"), read(GRID)
    figure, panels = plt.subplots(1, 4, figsize=(11, 3.9))
    for i, gamma in enumerate((64.0, 128.0)):
        for variant in ("0 naive", "1 ballot"):
            line(panels[i], study, variant, "alpha", "us", gamma=gamma)
        finish(panels[i], f"study, gamma {gamma:.0f}", "acceptance, alpha", "us (median)")
        panels[i].set_ylim(0, 26)
        for variant in ("0 naive", "1 ballot", "5 kit"):
            line(panels[2 + i], grid, variant, "alpha", "cycles", op="verify", b=32.0, gamma=gamma)
        floor(panels[2 + i], grid, "probe1", "alpha", "floor: one load, one store", b=32.0,
              gamma=gamma, size=0.0)
        finish(panels[2 + i], f"ours, gamma {gamma:.0f}", "acceptance, alpha", "cycles")
        from_zero(panels[2 + i])
        commas(panels[2 + i].yaxis)
    for panel in panels:
        panel.set_xticks((0.3, 0.6, 0.9))
    figure.suptitle("A1, verify, batch 32.  Study: L40S, launch included (measured).  "
                    f"Ours {SIMULATED}")
    legend(figure, panels, 4)
    return figure


def verify_point(plt):
    """The study's figure 3, and ours: where its kernel for divergence gains most."""
    at = {"gamma": 128.0, "alpha": 0.9}
    study = {r["variant"]: r["us"] for r in where(read(STUDY), op="verify", **at)}
    ours = where(read(GRID), b=32.0, size=0.0, **at)
    ours = {r["variant"]: r["cycles"] for r in ours if r["op"] in ("verify", "floor")}
    figure, panels = plt.subplots(1, 2, figsize=(9, 3.4))
    for panel, values, names, unit in (
            (panels[0], study, ("PyTorch", "0 naive", "1 ballot"), "{:.2f} us"),
            (panels[1], ours, ("0 naive", "1 ballot", "5 kit", "probe1"), "{:,.0f}")):
        labels = [NAMES.get(n, "floor: one load,\none store") for n in names]
        bars = panel.barh(labels, [values[n] for n in names],
                          color=[COLORS.get(n, "#000000") for n in names], height=0.6)
        panel.bar_label(bars, [unit.format(values[n]) for n in names], padding=3)
        panel.invert_yaxis()
        panel.set_xlim(0, 1.25 * max(values[n] for n in names))
    finish(panels[0], STUDIED, "us (median)")
    finish(panels[1], SIMULATED, "cycles")
    commas(panels[1].xaxis)
    figure.suptitle("A1, verify, batch 32, gamma 128, alpha 0.9")
    return figure


def verify_speedup(plt):
    """The study's figure 4, and ours."""
    gammas, alphas, batches = (8.0, 64.0, 128.0), (0.3, 0.6, 0.9), (1.0, 4.0, 16.0, 32.0)

    def table(rows, value, other, **at):
        found = {(r["alpha"], r["gamma"], r["variant"]): r[value]
                 for r in where(rows, op="verify", **at)}
        return [[found.get((a, g, "0 naive"), math.nan) / found.get((a, g, other), math.nan)
                 for g in gammas] for a in alphas]

    study, grid = read(STUDY), read(GRID)
    figure, panels = plt.subplots(2, 5, figsize=(12.5, 5.2), sharex=True, sharey=True)
    heat(panels[0][0], table(study, "us", "1 ballot"), gammas, alphas,
         "study, batch 32\nnaive / ballot", (0.8, 2))
    panels[1][0].axis("off")
    tables = [[table(grid, "cycles", other, b=b) for b in batches]
              for other in ("1 ballot", "5 kit")]
    top = max(v for row in tables for t in row for r in t for v in r if not math.isnan(v))
    for i, other in enumerate(("ballot", "kit")):
        for j, b in enumerate(batches):
            picture = heat(panels[i][j + 1], tables[i][j], gammas, alphas,
                           f"ours, batch {b:.0f}\nnaive / {other}", (0, top))
            if i:
                panels[i][j + 1].set_xlabel("drafts, gamma")
    panels[0][0].set_ylabel("acceptance, alpha")
    panels[0][0].set_xlabel("drafts, gamma")
    panels[0][0].tick_params(labelbottom=True)
    panels[1][1].set_ylabel("acceptance, alpha")
    panels[1][1].tick_params(labelleft=True)
    figure.colorbar(picture, ax=list(panels[:, 4]), label="times as fast as naive (ours)")
    figure.suptitle(f"A1, verify: speed-up over the naive kernel.  Study: L40S, launch included "
                    f"(measured).  Ours {SIMULATED}")
    return figure


def pack_rows(plt):
    """The study's figure 5, and ours."""
    study, grid = where(read(STUDY), op="pack"), read(GRID)
    figure, panels = plt.subplots(1, 2, figsize=(9, 4))
    for variant in ("PyTorch", "2 pack"):
        line(panels[0], study, variant, "kv_bytes", "us")
    for variant in ("2 pack", "5 kit"):
        line(panels[1], grid, variant, "size", "cycles", op="pack", b=32.0)
    cases = {r["case"] for r in where(grid, op="pack")}
    copies = sorted((r["size"], r["cycles"]) for r in grid
                    if r["case"] in cases and r["op"] == "floor" and r["variant"] == "copy")
    if copies:
        panels[1].plot(*zip(*copies), ":", color="#000000", label="floor: a copy of what moves")
    kv = "bytes of a KV row"
    finish(panels[0], STUDIED + "\nbatch 32, gamma 128, alpha 0.9", kv, "us (median)")
    finish(panels[1], SIMULATED + "\nbatch 32, gamma 8, alpha 0.9", kv, "cycles")
    plain_log(panels[0].xaxis, (256, 1024, 2048, 4096))
    plain_log(panels[1].xaxis, (256, 1024, 2048))
    panels[1].set_xlim(200, 2600)
    for panel in panels:
        from_zero(panel)
        commas(panel.yaxis)
    figure.suptitle("B1, pack")
    legend(figure, panels, 4)
    return figure


def fused_rows(plt):
    """The study's figure 6, and ours."""
    study, grid = where(read(STUDY), op="verify_pack"), read(GRID)
    figure, panels = plt.subplots(1, 4, figsize=(12.5, 4.3))
    stress = [r for r in study if r["gamma"] == 128 and r["alpha"] == 0.9]
    for variant in ("PyTorch", "3 single"):
        line(panels[0], stress, variant, "kv_bytes", "us")
    finish(panels[0], "study: L40S (measured)\ngamma 128, alpha 0.9", "bytes of a KV row",
           "us (median), launches included")
    from_zero(panels[0])
    plain_log(panels[0].xaxis, (1024, 2048, 4096))
    ours = where(grid, op="verify_pack", b=32.0, gamma=8.0)
    for panel, alpha in zip(panels[1:], (0.3, 0.6, 0.9)):
        for variant in ("2 pack", "3 single", "4 two", "5 kit"):
            line(panel, ours, variant, "size", "cycles", alpha=alpha)
        cases = {r["case"] for r in where(ours, alpha=alpha)}
        for name, label in (("probe2", "floor: two loads, one store"),
                            ("copy", "floor: a copy of what moves")):
            points = sorted((r["size"], r["cycles"]) for r in grid
                            if r["case"] in cases and r["op"] == "floor" and r["variant"] == name)
            if points:
                panel.plot(*zip(*points), ":" if name == "copy" else "--", color="#000000",
                           label=label, linewidth=1.2)
        finish(panel, f"ours, simulated V100\ngamma 8, alpha {alpha}", "bytes of a KV row",
               "cycles, kernels alone" if alpha == 0.3 else None)
        plain_log(panel.xaxis, (256, 1024, 2048))
        panel.set_xlim(200, 2600)
        plain_log(panel.yaxis, (500, 1000, 2000, 5000, 10000, 20000, 50000), 10)
        panel.set_ylim(500, 70000)
    figure.suptitle("B2, verify and pack, batch 32")
    legend(figure, panels, 4)
    return figure


def verify_batch(plt):
    grid = where(read(GRID), gamma=8.0, alpha=0.6, size=0.0)
    figure, panel = plt.subplots(figsize=(6.4, 4.2))
    for variant in ("0 naive", "1 ballot", "5 kit"):
        line(panel, grid, variant, "b", "cycles", op="verify")
    floor(panel, grid, "probe1", "b", "floor: one load, one store")
    finish(panel, f"A1, verify, gamma 8, alpha 0.6\n{SIMULATED}", "batch", "cycles")
    plain_log(panel.xaxis, (1, 4, 16, 32, 64, 128, 256))
    from_zero(panel)
    commas(panel.yaxis)
    legend(figure, [panel], 2)
    return figure


def vocabulary(plt):
    grid = [r for r in read(GRID) if "-v" in r["case"]]
    figure, panel = plt.subplots(figsize=(6.8, 4.6))
    grid = [dict(r, ids=r["size"] / 2) for r in grid]
    for name, label, color in (("A2", "A2: argmax", "#009e73"),
                               ("A8", "A8: a token drawn", "#0072b2"),
                               ("A10", "A8 with top-k 50, top-p 0.9 (A10)", "#cc79a7")):
        rows = [r for r in grid if r["case"].startswith(name + "-")]
        xs, ys = series([r for r in rows if r["op"] != "floor"], "ids", "cycles")
        if xs:
            panel.plot(xs, ys, "o-", color=color, label=label, markersize=4)
        if name == "A2":
            xs, ys = series(rows, "ids", "cycles", variant="read")
            panel.plot(xs, ys, ":", color="#000000", label="floor: the scores read once")
    finish(panel, f"One row of bf16 logits\n{SIMULATED}", "ids of the vocabulary", "cycles")
    panel.set_xticks((8192, 32000, 65536, 128256), ("8,192", "32,000", "65,536", "128,256"))
    from_zero(panel)
    commas(panel.yaxis, 8)
    legend(figure, [panel], 2)
    return figure


def cases(plt):
    """The kit and its floors, every case that is simulated."""
    by_case = {}
    for row in read(CYCLES):
        by_case.setdefault(row["case"], []).append(row)
    names = list(by_case)
    figure, panel = plt.subplots(figsize=(8, 0.24 * len(names) + 1.6))
    ops = {n: [r["op"] for r in by_case[n] if r["op"] != "floor"][0] for n in names}
    for place, name in enumerate(names):
        rows = by_case[name]
        kit = [r for r in rows if r["variant"].startswith("5 kit")][-1]["cycles"]
        floors = {r["variant"]: r["cycles"] for r in rows if r["op"] == "floor"}
        least = max([v for k, v in floors.items() if k in ("read", "copy")] + [floors["probe1"]])
        panel.plot((least, kit), (place, place), color="#bbbbbb", linewidth=1, zorder=1)
        panel.plot(kit, place, "o", color=COLORS["5 kit"], markersize=5)
        panel.plot(least, place, "|", color="#000000", markersize=9, markeredgewidth=2)
    panel.plot([], [], "o", color=COLORS["5 kit"], label="kit")
    panel.plot([], [], "|", color="#000000", markersize=9, markeredgewidth=2,
               label="floor: read or copy of the bytes, or one load and one store")
    panel.set_yticks(range(len(names)), [f"{n}  {ops[n]}" for n in names])
    panel.set_ylim(len(names) - 0.4, -0.6)
    finish(panel, f"Cases of bench/cycles.cuh\n{SIMULATED}", "cycles")
    plain_log(panel.xaxis, (500, 1000, 2000, 5000, 10000, 20000), 10)
    legend(figure, [panel], 2)
    return figure


def acceptance(plt):
    rows = read(RULES)
    figure, panels = plt.subplots(1, 2, figsize=(9.5, 4.3), sharey=True)
    rules = (("greedy", "#888888"), ("token", "#0072b2"), ("block", "#d55e00"),
             ("coupled", "#009e73"))
    temperatures = (0.0, 0.5, 0.8, 1.0)
    for panel, gamma in zip(panels, (4.0, 8.0)):
        for r, (rule, color) in enumerate(rules):
            xs, means, spreads = [], [], []
            for place, temperature in enumerate(temperatures):
                found = [row["efficiency"] for row in
                         where(rows, rule=rule, temperature=temperature, gamma=gamma)]
                if not found:
                    continue
                mean = len(found) / sum(1 / e for e in found)
                plain = sum(found) / len(found)
                xs.append(place + (0 if rule == "greedy" else 0.26 * (r - 2)))
                means.append(mean)
                square = sum((e - plain) ** 2 for e in found) / max(len(found) - 1, 1)
                spreads.append(math.sqrt(square))
            panel.bar(xs, means, 0.24, color=color, label=rule, capsize=3, ecolor="#333333",
                      yerr=None if rule == "greedy" else spreads)
        panel.set_xticks(range(len(temperatures)), ["greedy", "0.5", "0.8", "1.0"])
        finish(panel, f"{gamma:.0f} drafts a step", "temperature",
               "tokens per target pass" if gamma == 4 else None)
    panels[0].set_ylim(1)
    figure.suptitle("Block efficiency on tiny_lm's model pair, 32 prompts, batch 8 (counted).\n"
                    "Bars: mean over 8 seeds; whiskers: standard deviation of one run")
    legend(figure, panels, 4)
    return figure


def peers_cycles(plt):
    rows = where(read(PEER_CYCLES), case="sampler")
    figure, panel = plt.subplots(figsize=(9, 3))
    shades = {"ours": ("#0072b2", "#56b4e9"), "FlashInfer": ("#d55e00", "#e69f00", "#f0e442")}
    sides = list(dict.fromkeys(r["side"] for r in rows))
    for place, side in enumerate(sides):
        left = 0
        for kernel, color in zip(where(rows, side=side), shades[side]):
            panel.barh(place, kernel["cycles"], 0.5, left=left, color=color,
                       label=f"{kernel['kernel']}: {kernel['cycles']:,.0f}")
            left += kernel["cycles"]
        panel.text(left, place, f"  {left:,.0f}", va="center")
    panel.set_yticks(range(len(sides)), sides)
    panel.invert_yaxis()
    panel.set_xlim(0, 1.15 * max(sum(k["cycles"] for k in where(rows, side=s)) for s in sides))
    commas(panel.xaxis)
    finish(panel, "A token with top-k 50 and top-p 0.9, one row of 128,256 f32 logits\n"
           + SIMULATED, "cycles")
    legend(figure, [panel], 2)
    return figure


def peers_counts(plt):
    rows = read(PEERS)
    labels = [f"{r['pair']}, {r['shape']}" for r in rows]
    figure, panel = plt.subplots(figsize=(10, 0.26 * len(rows) + 1.8))
    for ratio, label, marker, color in (
            ("thread_ratio", "PTX instructions of threads", "o", "#0072b2"),
            ("bytes_ratio", "bytes asked for", "s", "#e69f00"),
            ("trips", "loads that wait for one another", "^", "#009e73")):
        values = [r["ours_serial_trips"] / r["peer_serial_trips"] if ratio == "trips" else r[ratio]
                  for r in rows]
        panel.plot(values, range(len(rows)), marker, color=color, label=label, markersize=5,
                   linestyle="none")
    panel.axvline(1, color="#000000", linewidth=1)
    panel.set_yticks(range(len(rows)), labels)
    panel.set_ylim(len(rows) - 0.4, -0.6)
    finish(panel, "Ours over theirs, left of 1 is less (counted on ptxrun, not time)",
           "ours / peer")
    plain_log(panel.xaxis, (0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3), 10)
    legend(figure, [panel], 3)
    return figure


PICTURES = {
    "verify_gamma": (verify_gamma, (STUDY, GRID)),
    "verify_alpha": (verify_alpha, (STUDY, GRID)),
    "verify_point": (verify_point, (STUDY, GRID)),
    "verify_speedup": (verify_speedup, (STUDY, GRID)),
    "pack_rows": (pack_rows, (STUDY, GRID)),
    "fused_rows": (fused_rows, (STUDY, GRID)),
    "verify_batch": (verify_batch, (GRID,)),
    "vocabulary": (vocabulary, (GRID,)),
    "cases": (cases, (CYCLES,)),
    "acceptance": (acceptance, (RULES,)),
    "peers_cycles": (peers_cycles, (PEER_CYCLES,)),
    "peers_counts": (peers_counts, (PEERS,)),
}


# -------------------------------------------------------------------------------------- a GPU's


def time_columns(row):
    """Median, and how far p10 and p90 are, of graph replays or else of event pairs."""
    prefix = "graph_us_" if row.get("graph_us_p50") not in ("", None) else "us_"
    middle = row.get(prefix + "p50")
    if middle in ("", None):
        return None
    return middle, middle - row[prefix + "p10"], row[prefix + "p90"] - middle


def timed_line(panel, rows, variant, x, label=None, color=None, **wanted):
    """With whiskers from p10 to p90; and the floor of the same rows, once a panel."""
    points = sorted((row[x],) + time_columns(row) + (row["floor_us"],)
                    for row in where(rows, variant=variant, **wanted) if time_columns(row))
    if not points:
        return False
    xs, ys, below, above, floors = zip(*points)
    panel.errorbar(xs, ys, yerr=(below, above), fmt="o-", color=color or COLORS.get(variant),
                   label=label or NAMES.get(variant, variant), markersize=4, capsize=3)
    if variant.startswith("5 kit") and all(f not in ("", None) for f in floors):
        panel.plot(xs, floors, ":", color=COLORS["floor"], label="floor")
    return True


def gpu_verify(plt, rows, gpu):
    at = dict(op="verify", dtype="int64", generator="binomial", cache="warm")
    figure, panels = plt.subplots(1, 4, figsize=(13, 4.2), sharey=True)
    drawn = False
    for panel, alpha in zip(panels, (0.3, 0.6, 0.9)):
        for variant in ("0 naive", "1 ballot", "5 kit"):
            drawn |= timed_line(panel, rows, variant, "gamma", b=32.0, alpha=alpha, **at)
        finish(panel, f"batch 32, alpha {alpha}", "drafts of a row, gamma",
               "us per launch, graph replay" if alpha == 0.3 else None)
        plain_log(panel.xaxis, (4, 8, 16, 32, 64, 128))
        from_zero(panel)
    for variant in ("0 naive", "1 ballot", "5 kit"):
        drawn |= timed_line(panels[3], rows, variant, "b", gamma=8.0, alpha=0.6, **at)
    finish(panels[3], "gamma 8, alpha 0.6", "batch")
    plain_log(panels[3].xaxis, (1, 4, 16, 32, 64, 128, 256))
    figure.suptitle(f"A1, verify, measured on {gpu}; whiskers p10 to p90")
    legend(figure, panels, 4)
    return figure if drawn else None


def gpu_speedup(plt, rows, gpu):
    gammas, alphas, batches = (8.0, 64.0, 128.0), (0.3, 0.6, 0.9), (1.0, 4.0, 16.0, 32.0)
    at = dict(op="verify", dtype="int64", generator="binomial", cache="warm")
    figure, panels = plt.subplots(1, 4, figsize=(11, 3.2), sharey=True)
    tables = []
    for b in batches:
        found = {(r["alpha"], r["gamma"], r["variant"]): time_columns(r)[0]
                 for r in where(rows, b=b, **at) if time_columns(r)}
        tables.append([[found.get((a, g, "0 naive"), math.nan)
                        / found.get((a, g, "5 kit"), math.nan) for g in gammas] for a in alphas])
    values = [v for t in tables for r in t for v in r if not math.isnan(v)]
    for panel, table, b in zip(panels, tables, batches):
        heat(panel, table, gammas, alphas, f"batch {b:.0f}", (0, max(values, default=1)))
        panel.set_xlabel("drafts, gamma")
    panels[0].set_ylabel("acceptance, alpha")
    figure.suptitle(f"A1, naive / kit, measured on {gpu}")
    return figure if values else None


def gpu_fused(plt, rows, gpu):
    figure, panels = plt.subplots(1, 4, figsize=(13, 4.4))
    drawn = False
    for panel, (gamma, alpha) in zip(panels, ((8.0, 0.3), (8.0, 0.9), (128.0, 0.3), (128.0, 0.9))):
        at = dict(op="verify_pack", b=32.0, gamma=gamma, alpha=alpha, generator="binomial",
                  dtype="int64", planes=1.0, num_sms=0.0)
        found = [r for r in rows if r.get("cache") in ("warm", "rotate")]
        for variant in ("2 pack", "3 single", "4 two", "5 kit"):
            drawn |= timed_line(panel, found, variant, "kv_bytes", **at)
        finish(panel, f"batch 32, gamma {gamma:.0f}, alpha {alpha}", "bytes of a KV row",
               "us per launch, graph replay" if panel is panels[0] else None)
        plain_log(panel.xaxis, (256, 1024, 2048, 4096))
        from_zero(panel)
    figure.suptitle(f"B2, verify and pack, measured on {gpu}; whiskers p10 to p90")
    legend(figure, panels, 5)
    return figure if drawn else None


def gpu_rule(plt, rows, gpu):
    """One launch or two, by the drafts that every block would compare again."""
    figure, panels = plt.subplots(1, 2, figsize=(10, 4.2), sharey=True)
    drawn = False
    limit = None
    with open(os.path.join(ROOT, "specverify.cuh"), encoding="utf-8") as file:
        found = re.search(r"^#define SPECV_ONE_LAUNCH_DRAFTS\s+(\d+)", file.read(), re.M)
        limit = int(found.group(1)) if found else None
    rows = [dict(r, drafts=r["b"] * r["gamma"]) for r in rows
            if r["op"] == "verify_pack" and r["b"] >= 64]
    for panel, dtype in zip(panels, ("int32", "int64")):
        for variant, label in (("4 two", None), ("5 one", None)):
            drawn |= timed_line(panel, rows, variant, "drafts", label, dtype=dtype, kv_bytes=256.0,
                                alpha=0.6, planes=1.0, cache="warm")
        if limit:
            panel.axvline(limit, color="#888888", linestyle="--", label="the kit's limit")
        finish(panel, dtype, "drafts of the batch",
               "us per launch, graph replay" if dtype == "int32" else None)
        plain_log(panel.xaxis, (256, 1024, 4096, 16384, 32768))
    figure.suptitle(f"B2, one launch or two, measured on {gpu}; whiskers p10 to p90")
    legend(figure, panels, 4)
    return figure if drawn else None


def gpu_vocabulary(plt, rows, gpu):
    colors = {"5 kit cdf": "#0072b2", "5 kit gumbel": "#009e73", "5 kit k50 p90": "#cc79a7",
              "5 kit top 20": "#d55e00"}
    figure, panels = plt.subplots(1, 2, figsize=(10, 4.2))
    drawn = False
    for panel, batch in zip(panels, (1.0, 64.0)):
        found = [dict(r, vocab=r["kv_bytes"] / 2) for r in rows
                 if r["op"] == "sample" and r["dtype"] == "bf16" and r["b"] == batch
                 and r["cache"] in ("warm", "rotate")]
        for variant, color in colors.items():
            drawn |= timed_line(panel, found, variant, "vocab", variant[6:], color)
        finish(panel, f"batch {batch:.0f}", "ids of the vocabulary", "us per launch, graph replay")
        panel.set_xticks((32000, 128256), ("32,000", "128,256"))
        from_zero(panel)
    figure.suptitle(f"A8 from bf16 logits, measured on {gpu}; whiskers p10 to p90")
    legend(figure, panels, 5)
    return figure if drawn else None


GPU_PICTURES = {"verify": gpu_verify, "speedup": gpu_speedup, "verify_pack": gpu_fused,
                "one_or_two": gpu_rule, "vocabulary": gpu_vocabulary}


def gpu_of(path):
    with open(path, encoding="utf-8") as file:
        found = re.search(r"^# gpu: ([^,\n]*)", file.read(), re.M)
    return found.group(1) if found else "a GPU without a name"


# ------------------------------------------------------------------------------------- in and out


def matplotlib_here():
    try:
        import matplotlib
    except ImportError:
        return None
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    plt.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "specverify", "font.size": 9,
                         "axes.titlesize": 9, "figure.titlesize": 10, "legend.fontsize": 8.5,
                         "figure.constrained_layout.use": True, "savefig.dpi": 110})
    return plt


def faults_of(figure):
    """Text that lies on other text or leaves the picture."""
    from matplotlib.text import Text
    figure.canvas.draw()
    width, height = figure.canvas.get_width_height()
    found, boxes, hidden = [], [], not_drawn(figure)
    for text in figure.findobj(Text):
        words = text.get_text().strip()
        if not words or not text.get_visible() or id(text) in hidden:
            continue
        box = text.get_window_extent()
        if box.x0 < -1 or box.y0 < -1 or box.x1 > width + 1 or box.y1 > height + 1:
            found.append(f"outside: {words!r}")
        for other, name in boxes:
            # Words beside each other need a gap; lines above each other may touch.
            if min(box.x1, other.x1) - max(box.x0, other.x0) > -3 and \
                    min(box.y1, other.y1) - max(box.y0, other.y0) > 2:
                found.append(f"{words!r} on {name!r}")
        boxes.append((box, words))
    return found


def not_drawn(figure):
    """Labels of ticks beyond the ends of their axis, or of the side that has none."""
    hidden = set()
    for panel in figure.axes:
        for axis in (panel.xaxis, panel.yaxis):
            low, high = sorted(axis.get_view_interval())
            in_use = axis.get_major_ticks() + axis.get_minor_ticks()
            for tick in axis.majorTicks + axis.minorTicks:
                used = any(tick is t for t in in_use) and low <= tick.get_loc() <= high
                for label in (tick.label1, tick.label2):
                    if not (used and panel.axison and panel.get_visible()):
                        hidden.add(id(label))
    return hidden


def save(plt, figure, path, source):
    """SVG and PNG; 0, or how many faults were found."""
    faults = faults_of(figure)
    for fault in faults:
        print(f"FAILED {os.path.basename(path)}: {fault}")
    figure.savefig(path + ".svg", metadata={"Date": None, "Creator": None, "Source": source})
    figure.savefig(path + ".png", metadata={"Software": None, "Source": source})
    plt.close(figure)
    return len(faults)


def draw_all(folder):
    plt = matplotlib_here()
    if not plt:
        return None
    os.makedirs(folder, exist_ok=True)
    failed = 0
    for name, (draw, sources) in PICTURES.items():
        failed += save(plt, draw(plt), os.path.join(folder, name), source_of(sources))
    return failed


def of_a_gpu(folder, out=None):
    """Pictures of what was timed; None without matplotlib, else how many faults."""
    plt = matplotlib_here()
    if not plt:
        print("pictures.py: skipped, matplotlib is not installed")
        return None
    path = os.path.join(folder, "bench.csv")
    rows = []
    if os.path.exists(path):
        rows = [r for r in read("bench.csv", folder) if r.get("op") != "op"]
    if not any(time_columns(row) for row in rows):
        print(f"pictures.py: skipped, {folder} has no times")
        return None
    out, failed = out or folder, 0
    os.makedirs(out, exist_ok=True)
    for name, draw in GPU_PICTURES.items():
        figure = draw(plt, rows, gpu_of(path))
        if figure:
            failed += save(plt, figure, os.path.join(out, name), "bench.csv")
            print(os.path.join(out, name + ".svg"))
        else:
            plt.close("all")
    return failed


def check():
    """Committed pictures against committed files, then all of them drawn again."""
    passed = failed = skipped = 0
    for name, (_, sources) in PICTURES.items():
        wanted = source_of(sources).encode()
        for end in (".svg", ".png"):
            path = os.path.join(PLOTS, name + end)
            if os.path.exists(path) and wanted in open(path, "rb").read():
                passed += 1
            else:
                failed += 1
                print(f"FAILED {os.path.relpath(path, ROOT)} shows other rows than "
                      f"{', '.join(sources)} has: bench/plot.py --update")
    for file in sorted(os.listdir(PLOTS)) if os.path.isdir(PLOTS) else ():
        if os.path.splitext(file)[0] not in PICTURES:
            failed += 1
            print(f"FAILED bench/results/plots/{file} is made by nothing")
    with tempfile.TemporaryDirectory() as folder:
        faults = draw_all(folder)
        if faults is None:
            skipped += 1
            print("skipped drawing: matplotlib is not installed")
        else:
            failed += faults
            passed += len(PICTURES)
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


def made_up():
    """Rows with every column that bench.csv has, of times that nobody measured."""
    columns = ("op,variant,b,gamma,alpha,kv_bytes,planes,generator,dtype,cache,num_sms,us_p10,"
               "us_p50,us_p90,us_p95,graph_us_p10,graph_us_p50,graph_us_p90,bytes,min_bytes,gb_s,"
               "launches,floor,floor_us,ratio")
    shapes = [("verify", v, b, g, a, 0, "int64", "warm") for v in ("0 naive", "1 ballot", "5 kit")
              for b in (1, 4, 16, 32, 64, 128, 256) for g in (4, 8, 16, 32, 64, 128)
              for a in (0.3, 0.6, 0.9)]
    shapes += [("verify_pack", v, b, g, a, kv, d, "warm")
               for v in ("2 pack", "3 single", "4 two", "5 one", "5 kit")
               for b in (32, 64, 512) for g in (8, 128) for a in (0.3, 0.6, 0.9)
               for kv in (256, 1024, 2048, 4096) for d in ("int32", "int64")]
    shapes += [("sample", v, b, 0, 0, 2 * n, "bf16", "warm")
               for v in ("5 kit cdf", "5 kit gumbel", "5 kit k50 p90", "5 kit top 20")
               for b in (1, 64) for n in (32000, 128256)]
    lines = ["# gpu: made up, 1 SMs", columns]
    for i, (op, variant, b, gamma, alpha, kv, dtype, cache) in enumerate(shapes):
        us = 2 + (b * gamma / 512 + kv / 2048) * (6 - int(variant[0])) + i % 3
        times = [f"{us * f:.3f}" for f in (0.9, 1, 1.2, 1.3, 0.95, 1, 1.1)]
        lines.append(",".join(map(str, [op, variant, b, gamma, alpha, kv, 1, "binomial", dtype,
                                        cache, 0] + times
                                  + [1, 1, 1, 1, "probe1", 1.5, us / 1.5])))
    return "\n".join(lines) + "\n"


def self_test():
    """The pictures of a GPU, and whether the eye for text that overlaps sees it."""
    plt = matplotlib_here()
    if not plt:
        print("skipped drawing: matplotlib is not installed")
        return 0
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "bench.csv"), "w", encoding="utf-8") as file:
            file.write(made_up())
        failed = of_a_gpu(folder)
        missing = [name for name in GPU_PICTURES
                   if not os.path.exists(os.path.join(folder, name + ".png"))]
    for name in missing:
        print(f"FAILED {name} was not drawn")
    figure, panel = plt.subplots()
    panel.text(0.5, 0.5, "one")
    panel.text(0.5, 0.5, "on another")
    panel.text(1.5, 0.5, "outside")
    if len(faults_of(figure)) != 2:
        print("FAILED text that overlaps, text that is outside: not seen")
        failed += 1
    failed += len(missing)
    print(f"{len(GPU_PICTURES) + 1 - failed} passed, {failed} failed")
    return 1 if failed else 0


def update():
    faults = draw_all(PLOTS)
    if faults is None:
        print("pictures.py: nothing drawn, matplotlib is not installed (pip install matplotlib)")
        return 1
    print(f"{len(PICTURES)} pictures, SVG and PNG, in {os.path.relpath(PLOTS, ROOT)}")
    return 1 if faults else 0


if __name__ == "__main__":
    if sys.argv[1:] == ["--update"]:
        sys.exit(update())
    if sys.argv[1:] == ["--check"]:
        sys.exit(check())
    if sys.argv[1:] == ["--self-test"]:
        sys.exit(self_test())
    if len(sys.argv) in (2, 3) and not sys.argv[1].startswith("-"):
        sys.exit(1 if of_a_gpu(*sys.argv[1:]) else 0)
    print(__doc__)
    sys.exit(2)
