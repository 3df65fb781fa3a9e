#!/usr/bin/env python3
"""From result files to tables and plots; nothing here measures.

    plot.py summary FOLDER     short Markdown summary of a results folder, on stdout
    plot.py plots FOLDER       PNG files beside the CSV files (matplotlib; skipped without it)
    plot.py readme [--check]   rewrite the tables of README.md between the comments
                               <!-- bench:NAME --> and <!-- /bench:NAME -->, for the names below;
                               --check: only say whether they are up to date

README gets figures from committed files alone: a results folder with uncommitted changes is left
out, and without any the text between the comments says that nothing was measured."""

import csv
import os
import subprocess
import sys

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


def ratio(row):
    return "-" if row is None or row.get("ratio") is None else f"{row['ratio']:.2f}"


def first(rows):
    return rows[0] if rows else None


# ---------------------------------------------------------------------------------------- tables


def table_verify(rows):
    """A1 at b = 32: the seed's table 1, with ours, and the floor."""
    lines = []
    for gamma in (8, 64, 128):
        for alpha in (0.3, 0.6, 0.9):
            at = dict(op="verify", b=32, gamma=gamma, alpha=alpha, dtype="int64",
                      generator="binomial", cache="warm")
            found = [first(select(rows, variant=name, **at))
                     for name in ("0 naive", "1 ballot", "5 kit")]
            if any(found):
                lines.append([gamma, alpha] + [us(row) for row in found] + [ratio(found[2])])
    if not lines:
        return None
    return markdown(["gamma", "alpha", "naive us", "ballot us", "kit us", "kit / probe"], lines)


def table_verify_pack(rows):
    """B2 at the points of the seed's table 3."""
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
            lines.append([b, gamma, kv_bytes, alpha] + [us(row) for row in found]
                         + [f"{ratio(kit)} x {kit.get('floor', '')}"])
    if not lines:
        return None
    return markdown(["b", "gamma", "row bytes", "alpha", "pack", "single", "single16", "two", "one",
                     "kit us", "kit / floor"], lines)


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
    print(f"{len(rows)} rows, {len(timed)} of them timed; every row equal to the reference.\n")
    if not timed:
        print("No times: this run was interpreted, or no sweep finished.\n")
    for title, table in (("Promises", targets(rows)), ("A1, b = 32, int64", table_verify(rows)),
                         ("B2, the seed's points", table_verify_pack(rows)),
                         ("One launch or two", table_rule(rows)),
                         ("A2 to A5 and A8", table_scores(rows)),
                         ("B3, B5, C1 to C5, D1 to D3", table_moves(rows)),
                         ("Peers, b = 32, alpha = 0.9",
                          table_peers(os.path.join(folder, "peers.csv"))),
                         ("Hardware counters", table_ncu(os.path.join(folder, "ncu.csv")))):
        if table:
            print(f"## {title}\n\n{table}\n")


# ----------------------------------------------------------------------------------------- plots


def plot_verify(plt, rows, folder):
    gammas = (4, 8, 16, 32, 64, 128)
    figure, panels = plt.subplots(1, 3, figsize=(12, 3.6), sharey=True)
    drawn = False
    for panel, alpha in zip(panels, (0.3, 0.6, 0.9)):
        for name in ("0 naive", "1 ballot", "5 kit"):
            found = {row["gamma"]: time_of(row) for row in
                     select(rows, op="verify", variant=name, b=32, alpha=alpha, dtype="int64",
                            generator="binomial", cache="warm")}
            points = [(g, found[g]) for g in gammas if g in found]
            if points:
                drawn = True
                panel.plot(*zip(*points), marker="o", label=name)
        panel.set_xscale("log", base=2)
        panel.set_title(f"alpha = {alpha}")
        panel.set_xlabel("drafts per sequence")
    panels[0].set_ylabel("us per launch, graph replay")
    save(plt, figure, panels[0], drawn, os.path.join(folder, "verify.png"))


def plot_verify_pack(plt, rows, folder):
    figure, panels = plt.subplots(1, 2, figsize=(10, 3.8))
    drawn = False
    for panel, gamma in zip(panels, (8, 128)):
        for name in ("2 pack", "3 single", "3 single16", "4 two", "5 one", "5 kit"):
            found = sorted((row["min_bytes"], time_of(row)) for row in
                           select(rows, op="verify_pack", variant=name, b=32, gamma=gamma,
                                  generator="binomial", planes=1, num_sms=0)
                           if row["cache"] in ("warm", "rotate"))
            if found:
                drawn = True
                panel.plot(*zip(*found), marker="o", label=name)
        panel.set_xscale("log")
        panel.set_yscale("log")
        panel.set_title(f"b = 32, gamma = {gamma}")
        panel.set_xlabel("bytes that must move")
    panels[0].set_ylabel("us per launch, graph replay")
    save(plt, figure, panels[0], drawn, os.path.join(folder, "verify_pack.png"))


def one_launch_limit():
    """SPECV_ONE_LAUNCH_DRAFTS of the header beside us."""
    with open(os.path.join(ROOT, "specverify.cuh")) as file:
        for line in file:
            if line.startswith("#define SPECV_ONE_LAUNCH_DRAFTS"):
                return int(line.split()[2])
    return None


def plot_rule(plt, rows, folder):
    figure, panel = plt.subplots(figsize=(6, 3.8))
    drawn = False
    for name in ("4 two", "4 plain2", "5 one"):
        for dtype in ("int32", "int64"):
            found = sorted((row["b"] * row["gamma"], time_of(row)) for row in
                           select(rows, op="verify_pack", variant=name, dtype=dtype, kv_bytes=256,
                                  alpha=0.6, planes=1, cache="warm") if row["b"] >= 64)
            if found:
                drawn = True
                panel.plot(*zip(*found), "o-", label=f"{name}, {dtype}")
    limit = one_launch_limit()
    if limit:
        panel.axvline(limit, color="grey", linestyle=":")
    panel.set_xscale("log", base=2)
    panel.set_xlabel("drafts that every block compares again")
    panel.set_ylabel("us per launch, graph replay")
    save(plt, figure, panel, drawn, os.path.join(folder, "one_or_two.png"))


def save(plt, figure, panel, drawn, path):
    if drawn:
        panel.legend(fontsize="small")
        figure.tight_layout()
        figure.savefig(path, dpi=150)
        print(path)
    plt.close(figure)


def plots(folder):
    try:
        import matplotlib
        matplotlib.use("Agg")
        import matplotlib.pyplot as plt
    except ImportError:
        print("plot.py: skipped, matplotlib is not installed")
        return
    rows, _ = read_csv(os.path.join(folder, "bench.csv"))
    if not any(time_of(row) is not None for row in rows):
        print(f"plot.py: skipped, {folder} has no times")
        return
    plot_verify(plt, rows, folder)
    plot_verify_pack(plt, rows, folder)
    plot_rule(plt, rows, folder)


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


def readme_block(name):
    """The text for one pair of comments, or None if the name is not one of ours."""
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
            raise SystemExit(f"plot.py: README.md has no {closing}")
        if block is not None:
            end = lines.index(closing, index)
            out.append(block)
            index = end
    return "\n".join(out)


def readme(check):
    path = os.path.join(ROOT, "README.md")
    with open(path) as file:
        old = file.read()
    new = rewrite(old)
    if check:
        print("README.md is up to date" if new == old else "README.md differs: plot.py readme")
        return new == old
    if new != old:
        with open(path, "w") as file:
            file.write(new)
    print("README.md rewritten" if new != old else "README.md was up to date")
    return True


def main(words):
    if len(words) == 2 and words[0] == "summary":
        summary(words[1])
    elif len(words) == 2 and words[0] == "plots":
        plots(words[1])
    elif words in (["readme"], ["readme", "--check"]):
        return 0 if readme(len(words) == 2) else 1
    else:
        print(__doc__)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
