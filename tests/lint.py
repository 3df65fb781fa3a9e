#!/usr/bin/env python3
"""lint.py: what a reader relies on and no compiler checks: the header's contents, tables and
options describe the header, versions agree, every launcher has its twin in the reference, and the
text of all files is tidy. Ends with "N passed, N failed, N skipped". ROOT=another copy"""
import os
import re
import shutil
import subprocess
import sys
import tempfile

import layout

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ROOT = os.environ.get("ROOT", HERE)
CODE = (".cuh", ".cu", ".h", ".c", ".hpp", ".cpp", ".py", ".sh")
FORMATTED = (".cuh", ".cu", ".h", ".c", ".hpp", ".cpp")
checks = []


def check(function):
    checks.append(function)
    return function


class Skip(Exception):
    pass


def read(name):
    with open(os.path.join(ROOT, name), encoding="utf-8", errors="surrogateescape") as file:
        return file.read()


def tracked():
    """Files under version control that exist, without data."""
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT,
                            capture_output=True, text=True, check=False)
    if listed.returncode:
        raise Skip("not a git checkout")
    return [f for f in listed.stdout.split("\n") if f and os.path.isfile(os.path.join(ROOT, f))]


def texts():
    for name in tracked():
        base = os.path.basename(name)
        if name.endswith(CODE + (".md",)) or base in ("Makefile", "cuda-run"):
            yield name, read(name)


def differences(what, a, in_a, b, in_b):
    """Complaints about names that only one of two sets holds."""
    a, b = set(a), set(b)
    return ([f"{what} {n} is in {in_a} but not in {in_b}" for n in sorted(a - b)] +
            [f"{what} {n} is in {in_b} but not in {in_a}" for n in sorted(b - a)] +
            ([] if a else [f"no {what} found in {in_a}"]))


def section(text, name):
    """Text of a part of the header's first comment, from its bar to the next."""
    match = re.search(r"-{5,} >>" + name + r"\n(.*?)(?=-{5,} >>|\*/)", text, re.S)
    return match.group(1) if match else ""


# ---- the two headers ----

def device_functions(text):
    return re.findall(r"^SPECV_DEVFN [\w ]+?\*?(specv_(?!i_)\w+)\(", text, re.M)


def launchers(text):
    found = re.findall(r"^SPECV_LAUNCHER int (specv_\w+)\(const \w+ \*\w+,\s+struct CUstream_st",
                       text, re.M)
    return sorted(set(found))


def table_names(text):
    """Names of >>tables, with specv_a(_i64) and specv_a_b/_c written out."""
    names = []
    for word in re.findall(r"\bspecv_[\w(/)]+", section(text, "tables")):
        word = word.rstrip("/")
        if "(" in word:
            base, suffix = re.match(r"(\w+)\((\w+)\)", word).groups()
            names += [base, base + suffix]
        elif "/" in word:
            first, *others = word.split("/")
            names += [first] + [first.rsplit("_", 1)[0] + other for other in others]
        else:
            names.append(word)
    return names


@check
def contents():
    """the list of anchors and the sections"""
    problems = []
    for name in ("specverify.cuh", "specverify_ref.h"):
        text = read(name)
        listed = re.search(r"Contents.*?(?=\n\s+-{5,} >>|\*/)", text, re.S)
        listed = re.findall(r">>([\w-]+)", listed.group(0)) if listed else []
        sections = re.findall(r"^(?:/\*|\s*) *[-=]{5,} >>([\w-]+)(?: \*/)?$", text, re.M)
        problems += differences("section", sections, name, listed, "its contents")
        problems += [f"{name}: section {s} twice" for s in set(sections) if sections.count(s) > 1]
        mentioned = re.findall(r">>([a-z][\w-]+)", text)
        problems += [f"{name}: >>{m} leads nowhere" for m in set(mentioned) - set(sections)
                     if len(m) > 2]
    return problems


def family_problems(text):
    """Complaints about a header whose families are not kept."""
    parts = layout.definitions(text)
    sections = list(dict.fromkeys(p.section for p in parts))
    families = [s for s in sections if s + "-kernels" in sections]
    problems = [] if len(families) > 1 else ["no families found"]
    if [s for s in sections if s.endswith("-kernels")] != [f + "-kernels" for f in families]:
        problems.append("parts I and II have the families in different order")
    level = {s: 0 for s in sections}
    for i, family in enumerate(families):
        level[family], level[family + "-kernels"] = 2 * i + 1, 2 * i + 2
    home = {name: part.section for part in parts for name in part.names}
    for part in parts:
        if part.section in ("short-names", "implementation"):
            continue
        mine = part.section.removesuffix("-kernels")
        for name in sorted(part.uses):
            other = home.get(name, "types").removesuffix("-kernels")
            if level[other] > level[mine]:
                problems.append(f"{part.names[0]} of {mine} uses {name} of {other}")
    last = 0
    for operation, found in layout.places(text).items():
        where = [section for section, _, _ in found]
        family = where[1] if len(where) > 1 else "?"
        if where != ["tables", family, family + "-kernels"] or family not in families:
            problems.append(f"{operation} stands in {', '.join(where)}")
            continue
        if found[0][1] < last:
            problems.append(f"{operation} is not where its family is in >>tables")
        last = found[0][1]
        opening = re.search(rf">>{family}\n(.*?)\*/", text, re.S).group(1)
        if operation not in opening or "Needs:" not in opening:
            problems.append(f"the opening of {family} does not tell of {operation} or its needs")
    reference = re.findall(r"^/\* =+ >>(\w+)", read("specverify_ref.h"), re.M)
    if [s for s in reference if s in families] != families:
        problems.append("the reference has other families, or in other order")
    return problems


@check
def families():
    """an operation stands in its row of >>tables, in its family and in that one's kernels"""
    text = read("specverify.cuh")
    problems = family_problems(text)
    planted = re.sub(r"^/\* =+ >>pack$", "SPECV_HOSTFN int specv_i_planted(void) {\n    return "
                     r"specv_append_kv_validate(0);\n}\n\n\g<0>", text, flags=re.M)
    if not any("specv_i_planted" in problem for problem in family_problems(planted)):
        problems.append("a use of a lower family, planted, is not seen")
    if not problems:
        for operation, found in layout.places(text).items():
            print(f"        {operation:24}" + "  ".join(
                f"{section} {first}" + (f"-{last}" if last > first else "")
                for section, first, last in found))
    return problems


@check
def tables():
    """>>tables and the functions"""
    text, names = read("specverify.cuh"), table_names(read("specverify.cuh"))
    reference = re.findall(r"^SPECV_REF_API int (specv_ref_\w+)\(const \w+_desc ",
                           read("specverify_ref.h"), re.M)
    kernels = set(re.findall(r"^SPECV_KERNEL_BODY .*\n? *(specv_\w+_kernel)\(", text, re.M))
    scoped = [n for n in names if re.match(r"specv_(thread|warp|block)_", n)]
    rest = [n for n in names if n not in scoped]
    return (differences("device function", device_functions(text), "the code",
                        scoped, "the table") +
            differences("kernel", kernels, "the code",
                        [n for n in rest if n.endswith("_kernel")], "the table") +
            differences("reference", reference, "the code",
                        [n for n in rest if n.startswith("specv_ref_")], "the table") +
            differences("launcher", launchers(text), "the code",
                        [n for n in rest if not n.startswith("specv_ref_") and
                         not n.endswith("_kernel")], "the table"))


@check
def twins():
    """every launcher: descriptor, validation, reference, declaration and definition"""
    text, reference, problems = read("specverify.cuh"), read("specverify_ref.h"), []
    for name in launchers(text):
        descriptor = name + "_desc"
        for needed, where, source in (
                (rf"^SPECV_REF_API int {name.replace('specv_', 'specv_ref_')}\(const {descriptor} ",
                 "a reference twin", reference),
                (rf"^SPECV_HOSTFN int {name}_validate\(const {descriptor} \*", "validation", text),
                (rf"^}} {descriptor};", "a descriptor", text),
                (rf"^SPECV_LAUNCHER int {name}\([^{{;]*;", "a declaration", text),
                (rf"^SPECV_LAUNCHER_BODY int {name}\([^{{;]*{{", "a definition", text)):
            if not re.search(needed, source, re.M):
                problems.append(f"{name} lacks {where}")
    return problems


@check
def linkage():
    """symbols of launchers and the reference carry the version; functions for all are exported"""
    problems, found = [], 0
    for file in ("specverify.cuh", "specverify_ref.h"):
        text = read(file)
        for declared, name, symbol in re.findall(
                r"^SPECV_(LAUNCHER|REF_API) [\w ]+?\*?(specv_\w+)\([^;{]*?\)\s*(?:SPECV_AS\((\w+)\))?\s*;",
                text, re.M):
            found += 1
            if symbol != name:
                problems.append(f"{name} is declared without SPECV_AS({name})")
            body = "SPECV_LAUNCHER_BODY" if declared == "LAUNCHER" else "SPECV_REF_BODY"
            if not re.search(rf"^{body} [\w ]+?\*?{name}\([^;{{]*{{", text, re.M):
                problems.append(f"{name} has no {body}")
        for linkage, name in re.findall(r"^(SPECV_\w+) __launch_bounds__[^;{]*?(specv_\w+)\([^;{]*{",
                                        text, re.M):
            if linkage != "SPECV_KERNEL_BODY":
                problems.append(f"{name} is no SPECV_KERNEL_BODY")
    hosts = re.findall(r"^SPECV_HOSTFN [\w ]+?\*?(specv_(?!i_)\w*(?:_bytes|status_string))\(",
                       read("specverify.cuh"), re.M)
    problems += [f"{name} is not SPECV_HOSTAPI" for name in hosts]
    return problems or ([] if found else ["no launchers found"])


def rules(text):
    found = []
    for enum, prefix in (("specv_rule", "SPECV_RULE_"), ("specv_tree_rule", "SPECV_TREE_")):
        listed = re.search(rf"^typedef enum {enum} \{{(.*?)\}}", text, re.M | re.S)
        found += re.findall(rf"\b({prefix}\w+)", listed.group(1)) if listed else []
    return found


def oracle_problems(text):
    """Complaints about tests/oracles.txt beside a header with this text."""
    records = re.findall(r"^((?:SPECV_RULE|SPECV_TREE|specv)_\w+) +(\S+)(.*)$", read("tests/oracles.txt"), re.M)
    groups, problems = {}, []
    for operation, program, named in records:
        if program.endswith(".sh"):
            if not os.path.isfile(os.path.join(ROOT, "tests", program)):
                problems.append(f"{operation}: there is no tests/{program}")
        elif not os.path.isfile(os.path.join(ROOT, "tests", program + ".cu")):
            problems.append(f"{operation}: there is no tests/{program}.cu")
        else:
            if program not in groups:
                groups[program] = re.findall(r'\{"([\w-]+)", \w+\}', read(f"tests/{program}.cu"))
            problems += [f"{operation}: tests/{program}.cu has no group {group}"
                         for group in named.split() if group not in groups[program]]
            problems += [] if named.split() else [f"{operation}: no group of {program}"]
    named = {operation for operation, _, _ in records}
    operations = [n for n in named if n.startswith("specv_")]
    return (problems +
            differences("launcher", launchers(text), "the code", operations, "tests/oracles.txt") +
            differences("rule", rules(text), "the code", named.difference(operations),
                        "tests/oracles.txt"))


@check
def oracles():
    """every launcher and every rule has an oracle of its own; one without would be seen"""
    text = read("specverify.cuh")
    problems = oracle_problems(text)
    # The same on headers with one more of each; law.cu must not even compile with one more rule.
    rule = re.sub(r"(SPECV_RULE_\w+ = \d+)\n\} specv_rule;",
                  r"\1,\n    SPECV_RULE_PLANTED = 99\n} specv_rule;", text)
    launcher = text + ("\nSPECV_LAUNCHER int specv_planted(const specv_planted_desc *d,\n"
                       "    struct CUstream_st *stream);\n")
    for name, planted in (("SPECV_RULE_PLANTED", rule), ("specv_planted", launcher)):
        if not any(name in problem for problem in oracle_problems(planted)):
            problems.append(f"{name}, planted into the header, is not missed")
    compiler = shutil.which(os.environ.get("CC", "gcc"))
    if compiler:
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "specverify.cuh"), "w", encoding="utf-8") as file:
                file.write(rule)
            shutil.copy(os.path.join(ROOT, "specverify_ref.h"), folder)
            for include, expected in ((ROOT, True), (folder, False)):
                done = subprocess.run([compiler, "-std=c99", "-fsyntax-only", "-I", include, "-x", "c",
                                       os.path.join(ROOT, "tests/law.cu")], capture_output=True,
                                      text=True, check=False)
                if (done.returncode == 0) != expected or \
                        not expected and "SPECV_RULE_PLANTED" not in done.stderr:
                    problems.append("tests/law.cu " + ("does not compile" if expected else
                                                       "compiles with a rule without a law"))
    return problems


@check
def options():
    """>>options and the macros that the code asks for"""
    text = read("specverify.cuh")
    code = text[text.index("#ifndef SPECVERIFY_H_INCLUDED"):]
    ours = {"SPECVERIFY_H_INCLUDED", "SPECVERIFY_IMPLEMENTATION_INCLUDED",
            "SPECVERIFY_REF_IMPLEMENTATION", *re.findall(r'#error "(\w+) is gone', code)}
    asked = set(re.findall(r"defined\((SPECVERIFY_\w+)\)", code)) - ours
    problems = differences("option", re.findall(r"^   (SPECVERIFY_\w+) ", section(text, "options"),
                                                re.M), ">>options", asked, "the code")
    text = read("specverify_ref.h")
    ours = {"SPECVERIFY_REF_H_INCLUDED", "SPECVERIFY_REF_IMPLEMENTATION_INCLUDED",
            "SPECVERIFY_EXPORT"}
    asked = set(re.findall(r"defined\((SPECVERIFY_\w+)\)", text)) - ours
    head = text[:text.index("*/")]
    return problems + differences("option", set(re.findall(r"SPECVERIFY_REF_\w+", head)),
                                  "the reference's head", asked, "its code")


@check
def versions():
    """header, reference, changelog"""
    text, problems = read("specverify.cuh"), []
    parts = [re.search(rf"#define SPECVERIFY_VERSION_{p}\s+(\d+)", text) for p in
             ("MAJOR", "MINOR", "PATCH")]
    if not all(parts):
        return ["no version macros"]
    numbers = [int(p.group(1)) for p in parts]
    version = ".".join(map(str, numbers))
    number = numbers[0] * 10000 + numbers[1] * 100 + numbers[2]
    for pattern, source, where in (
            (rf'#define SPECVERIFY_VERSION_STRING "{version}"', text, "SPECVERIFY_VERSION_STRING"),
            (rf"#define SPECVERIFY_VERSION\s+{number}\b", text, "SPECVERIFY_VERSION"),
            (rf"\A/\* specverify\.cuh - {version} - ", text, "the first line"),
            (rf"^   {version}  ", section(text, "revisions"), ">>revisions"),
            (rf"\A/\* specverify_ref\.h - {version} - ", read("specverify_ref.h"),
             "the reference's first line"),
            (rf"^VERSION = {number}\b", read("examples/pytorch/specverify.py"),
             "examples/pytorch/specverify.py"),
            (rf"^## {version}\b", read("CHANGELOG.md"), "CHANGELOG.md")):
        if not re.search(pattern, source, re.M):
            problems.append(f"{where} does not say {version}")
    newest = re.search(r"^## (\d+\.\d+\.\d+)$", read("CHANGELOG.md"), re.M)  # a released one
    if not newest or newest.group(1) != version:
        problems.append(f"the newest entry of CHANGELOG.md is not {version}")
    return problems


@check
def status_codes():
    """numbered without gaps, each one in use; each row bit explained"""
    text = read("specverify.cuh")
    table = re.findall(r"X\((\w+), (-?\d+),", text)
    problems = []
    if [int(v) for _, v in table] != list(range(0, -len(table), -1)) or len(table) < 2:
        problems.append("the values of SPECV_STATUS_TABLE are not 0, -1, -2, ...")
    for name, _ in table[1:]:
        short = name.removeprefix("ERR_")
        if not re.search(rf"SPECV_CHECK\([^;]*\b{short}\);|SPECV_{name}\b", text, re.S):
            problems.append(f"SPECV_{name} is never returned")
    for bit in re.findall(r"(SPECV_ROW_\w+) = 1u <<", text):
        if bit not in section(text, "rules"):
            problems.append(f"{bit} is not explained in >>rules")
        if len(re.findall(rf"\b{bit}\b", text)) < 3:
            problems.append(f"{bit} is never set")
        shared = "".join(re.findall(r"^SPECV_NUMFN.*?^}", text, re.M | re.S))  # it calls these
        device_only = bit == "SPECV_ROW_BAD_TICKET"  # the reference has no tickets
        if not device_only and bit not in read("specverify_ref.h") and bit not in shared:
            problems.append(f"the reference never sets {bit}")
    return problems


@check
def contracts():
    """every public device function says who calls it; short names forward to their namesakes"""
    text, problems, documented = read("specverify.cuh"), [], set()
    for match in re.finditer(r"^SPECV_DEVFN [\w ]+?\*?(specv_(?!i_)\w+)\(", text, re.M):
        name, before = match.group(1), text[:match.start()].rstrip()
        base = re.sub(r"_(i64|min|max)$", "", name)
        comment = before[before.rfind("/*"):] if before.endswith("*/") else ""
        # A function that returns a struct may have its contract above the struct.
        returns = re.match(r"SPECV_DEVFN (specv_\w+) ", match.group(0))
        if returns and "Call:" not in comment:
            start = text.find("} " + returns.group(1) + ";")
            start = text.rfind("/*", 0, text.rfind("typedef struct", 0, start))
            comment = text[start:text.index("*/", start)]
        if "Call:" in comment:
            documented |= {name, base, base.replace("_add", "")}
        elif base not in documented:
            problems.append(f"{name} has no contract (\"Call:\")")
    short = r"^SPECV_DEVFN [\w ]+?[ *]((?:thread|warp|block)_\w+)\(.*?\{(.*?)\}"
    for name, body in re.findall(short, text, re.M | re.S):
        if not re.search(rf"\bspecv_{name}\(", body):
            problems.append(f"{name} does not call specv_{name}")
    if not documented:
        problems.append("no contracts found")
    return problems


@check
def includes():
    """the kit includes next to nothing"""
    found = set(re.findall(r"#\s*include\s*[<\"]([^>\"]+)", read("specverify.cuh")))
    allowed = {"stddef.h", "stdint.h", "cuda_runtime_api.h"}
    found |= set(re.findall(r"#\s*include\s*[<\"]([^>\"]+)", read("specverify_ref.h")))
    return [f"includes {name}" for name in sorted(found - allowed - {"specverify.cuh"})]


def code_of(text):
    """Without comments and strings."""
    return re.sub(r"/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\])*\"",
                  lambda m: re.sub(r"[^\n]", " ", m.group(0)), text, flags=re.S)


@check
def broken_cases():
    """every case that tests/compile/broken.sh breaks the headers for is one of tests/compile/run.sh"""
    paragraphs = read("tests/compile/broken.sh").split("<<'LIST'\n")[1].split("\nLIST")[0]
    named = {p.strip().split("\n")[-1] for p in paragraphs.split("\n\n") if p.strip()}
    with tempfile.TemporaryDirectory() as folder:
        run = subprocess.run(["bash", "tests/compile/run.sh", "--list"], cwd=ROOT, text=True,
                             capture_output=True, env={**os.environ, "OUT": folder + "/build"})
    cases = set(run.stdout.split("\n"))
    if not shutil.which("nvcc") and not os.path.exists(os.environ.get("NVCC", "")):
        named = {n for n in named if re.search("gcc|_reference|^old_|^fuzz|^every_", n)}
    return [f"no case: {n}" for n in sorted(named - cases)] + ([] if named else ["no cases found"])


@check
def foreign_macros():
    """no variable called like a macro of tests/compile/hostile.h: long before a compiler says so"""
    words = re.findall(r"^#define ([a-z]\w*) ", read("tests/compile/hostile.h"), re.M)
    pattern = re.compile(r"\b(" + "|".join(words) + r")\b")
    problems = [] if words else ["no macros found in tests/compile/hostile.h"]
    for name in ("specverify.cuh", "specverify_ref.h"):
        for number, line in enumerate(code_of(read(name)).split("\n"), 1):
            match = pattern.search(line)
            if match:
                problems.append(f"{name}:{number}: {match.group(0)} is a macro somewhere")
    return problems


# ---- all files ----

@check
def expected_output():
    """what an example promises in its first comment is what the test expects"""
    problems, found = [], 0
    for name in tracked():
        if not name.startswith("examples/") or not name.endswith(".expected"):
            continue
        found += 1
        stem = name.removesuffix(".expected")
        folder = stem.rsplit("/", 1)[0]
        candidates = [stem + ".cu", stem + ".c", stem + "/main.c", f"{folder}/03_plain_c/ref_only.c"]
        source = next((c for c in candidates if os.path.isfile(os.path.join(ROOT, c))), None)
        if source is None:
            problems.append(f"{name} belongs to no example")
            continue
        head = [line.strip() for line in read(source).split("*/")[0].split("\n")]
        for line in read(name).split("\n"):
            if line.strip() and line.strip() not in head:
                problems.append(f"{source}: the first comment lacks \"{line.strip()}\"")
    return problems or ([] if found else ["no examples with expected output"])


@check
def tidy_text():
    """line length, tabs, trailing blanks, ASCII, last line"""
    problems = []
    for name, text in texts():
        code = name.endswith(CODE)
        limit = 120 if name.endswith((".sh", ".py")) else 100
        if name.startswith("tests/ptxrun/"):
            limit = max(limit, 110)
        if text and not text.endswith("\n"):
            problems.append(f"{name}: no newline at the end")
        if "\r" in text:
            problems.append(f"{name}: carriage returns")
        for number, line in enumerate(text.split("\n"), 1):
            where = f"{name}:{number}"
            if code and len(line) > limit:
                problems.append(f"{where}: {len(line)} columns")
            if code and "\t" in line and not re.search(r"\\t|'\t'", line):
                problems.append(f"{where}: a tab")
            if line != line.rstrip():
                problems.append(f"{where}: blanks at the end")
            if code and not line.isascii():
                problems.append(f"{where}: not ASCII")
    return problems


@check
def own_words():
    """no paths of one machine, no notes to oneself"""
    # Written in halves, so that this file does not accuse itself.
    words = ["TO" + "DO", "FIX" + "ME", "X" + "XX", "HA" + "CK", "sess" + "ion", "age" + "nt",
             "sub" + "task", "Cla" + "ude", "Chat" + "GPT", "lan" + "guage model wrote"]
    paths = ["/wo" + "rk/", "/ro" + "ot/", "/ho" + "me/", "/us" + "r/local/cuda-1"]
    pattern = re.compile(r"\b(" + "|".join(words) + r")s?\b|(?<![\w.])(" + "|".join(paths) + ")")
    problems = []
    for name, text in texts():
        for number, line in enumerate(text.split("\n"), 1):
            match = pattern.search(line)
            if match:
                problems.append(f"{name}:{number}: \"{match.group(0)}\"")
    return problems


@check
def scripts():
    """shell and Python scripts parse"""
    problems = []
    for name, text in texts():
        path = os.path.join(ROOT, name)
        if text.startswith("#!/bin/bash") or name.endswith(".sh"):
            done = subprocess.run(["bash", "-n", path], capture_output=True, text=True, check=False)
            problems += [f"{name}: {done.stderr.strip()}"] if done.returncode else []
        if name.endswith(".py"):
            try:
                compile(text, path, "exec")
            except SyntaxError as error:
                problems.append(f"{name}: {error}")
    return problems


@check
def format_of_code():
    """clang-format 14 changes nothing"""
    tool = shutil.which("clang-format-14") or shutil.which("clang-format")
    if not tool:
        raise Skip("no clang-format")
    version = subprocess.run([tool, "--version"], capture_output=True, text=True, check=False)
    if " 14." not in version.stdout:
        raise Skip("clang-format is not version 14, and others format otherwise")
    files = [f for f in tracked() if f.endswith(FORMATTED)]
    done = subprocess.run([tool, "--dry-run"] + files, cwd=ROOT, capture_output=True, text=True,
                          check=False)
    where = re.findall(r"^(\S+?:\d+):\d+: warning: code should be clang-f", done.stderr, re.M)
    return [f"{place}: not as clang-format writes it" for place in where]


def main():
    passed = failed = skipped = 0
    for function in checks:
        name = function.__name__.replace("_", " ")
        try:
            problems = function()
        except Skip as reason:
            skipped += 1
            print(f"skipped {name}: {reason}")
            continue
        if problems:
            failed += 1
            print(f"FAILED  {name}: {function.__doc__}")
            for problem in problems[:25]:
                print("        " + problem)
            if len(problems) > 25:
                print(f"        and {len(problems) - 25} more")
        else:
            passed += 1
            print(f"passed  {name}: {function.__doc__}")
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
