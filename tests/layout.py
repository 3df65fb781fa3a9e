#!/usr/bin/env python3
"""layout.py [header]: in which lines of the header each operation stands. The file is cut into its
top-level definitions. An operation's are those that bear the name of its launcher, and internal ones
that it alone uses; primitives are nobody's. lint.py asks whether the families are kept."""
import os
import re
import sys

BAR = re.compile(r"^(?:/\*|\s*) *[-=]{5,} >>([\w-]+)(?: \*/)?$")
IDENTIFIER = re.compile(r"\b(?:specv|SPECV)_\w+")
OPERATION = re.compile(r"^SPECV_LAUNCHER int (specv_\w+)\(const \w+ \*\w+,\s+struct CUstream_st",
                       re.M)
PRIMITIVES = ("numeric", "lane", "warp")


class Definition:
    """One top-level thing with the comment above it: names it defines, names it uses."""

    def __init__(self, first, last, section, text):
        self.first, self.last, self.section = first, last, section
        code = without_comments(text)
        self.names = defined_names(code)
        self.uses = set(IDENTIFIER.findall(re.sub(r'"[^"\n]*"', "", code))) - set(self.names)


def without_comments(text):
    return re.sub(r"/\*.*?\*/", lambda m: "\n" * m.group(0).count("\n"), text, flags=re.S)


def defined_names(code):
    macro = re.match(r"\s*#define (\w+)", code)
    if macro:
        return [macro.group(1)]
    code = re.sub(r"^#.*$", "", code, flags=re.M).strip()
    names = []
    if re.match(r"(typedef )?enum\b", code):
        names += re.findall(r"[{,]\s*(\w+)", code.split("{", 1)[1]) if "{" in code else []
    if code.startswith("typedef"):
        return names + re.findall(r"(\w+)\s*;\s*$", code)
    if names:
        return names
    head = re.sub(r"__\w+__\s*\([^()]*(\([^()]*\))?[^()]*\)", " ", code.split("{")[0])
    return re.findall(r"\b((?:specv|thread|warp|block)_\w+)\s*\(", head)[:1]


def definitions(text):
    """The file's top-level definitions, in order; conditionals between them are skipped."""
    lines, found, section = text.split("\n"), [], "head"
    bare = without_comments(text).split("\n")
    number, begin = 0, None
    while number < len(lines):
        line = lines[number]
        bar = BAR.match(line)
        if bar:
            section = bar.group(1)
        if line.startswith("/*"):
            begin = number
            while "*/" not in lines[number]:
                number += 1
            number += 1
            continue
        if not line.strip() or section == "head" or re.match(r"#(?!define)", line):
            begin, number = None, number + 1
            continue
        first = begin if begin is not None else number
        depth = 0
        start = number
        while True:
            code = re.sub(r"'(\\.|[^'\\])'|\"(\\.|[^\"\\])*\"", "", bare[number])
            depth += len(re.findall(r"[({\[]", code)) - len(re.findall(r"[)}\]]", code))
            ends = not lines[number].rstrip().endswith("\\") if line.startswith("#") else \
                depth == 0 and re.search(r"[;}]\s*$", code)
            number += 1
            if ends or number == len(lines):
                break
        found.append(Definition(first + 1, number, section, "\n".join(lines[start:number])))
        begin = None
    return found


def operations(text):
    return list(dict.fromkeys(OPERATION.findall(text)))


def places(text):
    """operation -> [(section, first line, last line)], its rows of >>tables first."""
    parts = definitions(text)
    names = operations(text)
    owner = {name: part for part in parts for name in part.names}
    uses = {}
    for part in parts:
        for name in part.names:
            uses.setdefault(name, set()).update(part.uses)
    reach = {}
    for operation in names:
        own = {n for n in owner if re.fullmatch(operation + r"(_kernel|_desc|_task|_validate|"
                                                r"_resolve|_scratch_bytes|_launches)?", n)}
        seen, todo = set(), list(own)
        while todo:
            name = todo.pop()
            if name not in seen and name in owner:
                seen.add(name)
                todo += uses[name]
        reach[operation] = seen
    result = {}
    table = re.search(r"-{5,} >>tables\n(.*?)(?=-{5,} >>|\*/)", text, re.S)
    for operation in names:
        others = set().union(*(reach[o] for o in names if o != operation))
        alone = {n for n in reach[operation] - others if n.startswith(("specv_i_", "SPECV_I_"))}
        alone |= {n for n in reach[operation] if n.startswith(operation)}
        found = {}
        for part in parts:
            if part.section not in PRIMITIVES and alone.intersection(part.names):
                first, last = found.get(part.section, (part.first, part.last))
                found[part.section] = min(first, part.first), max(last, part.last)
        row = table and re.search(rf"\b{operation} .*", table.group(1))
        rows = []
        if row:
            line = text.count("\n", 0, table.start(1) + row.start()) + 1
            rows = [("tables", line, line)]
        result[operation] = rows + [(s, a, b) for s, (a, b) in found.items()]
    return result


def main():
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    path = sys.argv[1] if len(sys.argv) > 1 else os.path.join(here, "specverify.cuh")
    with open(path, encoding="utf-8") as file:
        for operation, found in places(file.read()).items():
            print(f"{operation:24}" + "  ".join(f"{s} {a}" + (f"-{b}" if b != a else "")
                                                for s, a, b in found))


if __name__ == "__main__":
    main()
