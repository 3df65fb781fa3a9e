#!/usr/bin/env python3
"""Changes specverify.cuh in one place at a time and sees whether a test notices.

    python3 tests/mutate/mutate.py                  every mutant: hours on two cores
    python3 tests/mutate/mutate.py --sample 20      some of them, chosen at random
    python3 tests/mutate/mutate.py --only barrier   barriers, fences and lane masks alone
    python3 tests/mutate/mutate.py --list           what would be tried
    python3 tests/mutate/mutate.py --line-range 700:800 --verbose

A mutant is killed when a group of tests of a program of tests/*.cu (run with --quick on
tests/ptxrun) fails, hangs or makes the interpreter report something.  Groups that are quick and
killed much come first.  Mutants that do not compile, or that leave the machine code as it is, do not
count.  Survivors that explained.txt explains are listed with their reason; any other survivor fails
the run.  Kinds of mutants: see mutants.py, or --help.

Most mutants touch device code only.  For these, nvcc makes the PTX of the header's kernels alone, and
the test binaries built from the unchanged header run it (PTXRUN_PTX) instead of their own: a third of
the time of a whole build, once for all programs.

Every phase says how far it is and how long the rest will take.  --tests verify,pack builds and runs
these programs alone, and is what to use while writing one of them.
"""
import argparse
import csv
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import mutants as generator

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
HEADER, REFERENCE = 'specverify.cuh', 'specverify_ref.h'
ADVERSARIAL_KINDS = ('barrier', 'atomic')
ADVERSARIAL = tuple('seed=%d weak=1 split=20 order=random' % seed for seed in (1, 2, 3))
KILLED, SURVIVED, SAME_CODE, NOT_VIABLE = 'killed', 'survived', 'same code', 'does not compile'


def run(command, timeout, environment=None, until=None):
    """(exit status, output).  Stops the program when a line begins with `until`, with status 1, or
    when the time is up, with status None."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                               errors='replace', env=environment, start_new_session=True)
    timed_out = threading.Event()

    def stop():
        timed_out.set()
        kill(process)

    timer = threading.Timer(timeout, stop)
    timer.start()
    lines, enough = [], False
    for line in process.stdout:
        lines.append(line)
        if until and line.startswith(until):
            enough = True
            kill(process)
            break
    process.stdout.close()
    process.wait()
    timer.cancel()
    return None if timed_out.is_set() else 1 if enough else process.returncode, ''.join(lines)


def kill(process):
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass  # it has just ended by itself


class Progress:
    """How far a phase is, with the seconds that it took and those that are left if the rest is like
    it: on a terminal one line that is written anew, in a log a line now and then."""

    EVERY = 30  # seconds between two lines of a log

    def __init__(self, what, total):
        self.what, self.total, self.done = what, total, 0
        self.begin = self.said = time.monotonic()
        self.rewrites = sys.stderr.isatty()
        self.say('')

    def say(self, note):
        now = time.monotonic()
        spent = now - self.begin
        left = ', about %s to go' % duration(spent / self.done * (self.total - self.done)) \
            if 0 < self.done < self.total else ''
        line = '%s: %d of %d, %s%s%s' % (self.what, self.done, self.total, duration(spent), left,
                                         note and '; ' + note)
        if self.rewrites:
            print('\r\033[K' + line, end='\n' if self.done == self.total else '', file=sys.stderr,
                  flush=True)
        elif self.done in (0, self.total) or now - self.said >= self.EVERY:
            self.said = now
            print(line, flush=True)

    def step(self, note=''):
        self.done += 1
        self.say(note)

    def print(self, text):
        """A line of output, not through the one that is written anew."""
        if self.rewrites:
            print('\r\033[K', end='', file=sys.stderr, flush=True)
        print(text, flush=True)


def duration(seconds):
    return '%d s' % seconds if seconds < 120 else '%d min' % (seconds / 60 + 0.5)


class Toolchain:
    def __init__(self, arch, interpreter):
        self.compute = arch.replace('sm_', 'compute_')
        self.interpreter = interpreter
        self.compiler = os.environ.get('NVCC', 'nvcc')

    def nvcc(self, source, folder, output, *flags):
        status, text = run([self.compiler, *flags, '-std=c++17', '-I', str(folder), '-I', str(ROOT),
                            '-o', str(output), str(source)], timeout=300)
        return status == 0, text

    def ptx(self, source, folder, output, *flags):
        return self.nvcc(source, folder, output, '-ptx', '-arch=' + self.compute, *flags)

    def every_function(self, header, folder):
        """The PTX of all device functions, whether a test uses them or not."""
        kept, count = re.subn(r'(#define SPECV_DEVFN) .*', r'\1 __device__ __noinline__', header)
        assert count == 1, 'SPECV_DEVFN has changed'
        source, output = folder / 'every_function.cu', folder / 'every_function.ptx'
        source.write_text('#define SPECVERIFY_IMPLEMENTATION\n' + kept)
        built, text = self.ptx(source, folder, output, '-rdc=true')
        return output.read_text() if built else text

    def binary(self, source, folder, output):
        code = 'arch=%s,code=%s' % (self.compute, self.compute)
        return self.nvcc(source, folder, output, '-gencode', code, '-cudart', 'shared',
                         '-no-compress')

    def execute(self, binary, group, options, timeout, ptx=None):
        environment = dict(os.environ, PTXRUN_EXIT='first', PTXRUN_OPTS=options,
                           LD_LIBRARY_PATH=str(self.interpreter))
        if ptx:
            environment['PTXRUN_PTX'] = str(ptx)
        by_lines = ['stdbuf', '-oL'] if shutil.which('stdbuf') else []
        return run([*by_lines, str(binary), '--quick', group], timeout, environment, until='FAIL')


class Program:
    """One test program, built from the unchanged header."""

    def __init__(self, source, folder):
        self.source, self.name = source, source.stem
        self.binary, self.ptx = folder / self.name, folder / (self.name + '.ptx')
        self.kernels = {}  # name: its PTX; None: everything outside kernels

    def prepare(self, tools, folder):
        """The groups of tests in the program; exits when it does not build."""
        for build, output in ((tools.binary, self.binary), (tools.ptx, self.ptx)):
            built, text = build(self.source, folder, output)
            if not built:
                sys.exit('%s: %s' % (self.name, text))
        self.kernels = kernels_of(self.ptx.read_text())
        status, text = run([str(self.binary), '--list'], 60,
                           dict(os.environ, LD_LIBRARY_PATH=str(tools.interpreter), PTXRUN_QUIET='1'))
        return [Group(self, name) for name in text.split()]


class Group:
    """A group of tests of a program, and what it needs when nothing is wrong."""

    def __init__(self, program, name):
        self.program, self.name = program, name
        self.kills, self.seconds, self.instructions = 0, 0.0, 0
        self.launched = set()  # names of kernels
        self.spliced = False  # runs kernels of the header alone, not those of its program
        self.passes = {'': True}  # by schedule: tests that count may not pass under all of them

    def __str__(self):
        return '%s %s' % (self.program.name, self.name)

    def measure(self, tools, folder):
        """Empty, or why the group cannot be used."""
        counts = folder / ('%s-%s.csv' % (self.program.name, self.name))
        begin = time.monotonic()
        status, text = tools.execute(self.program.binary, self.name, 'prof=%s' % counts, timeout=600)
        self.seconds = time.monotonic() - begin
        if status != 0:
            return '%s fails without a mutant:\n%s' % (self, text[-2000:])
        with open(counts, newline='') as file:
            header, *rows = csv.reader(file)
        kernels = [row for row in rows if row[0] == 'kernel' and len(row) == len(header)]
        self.instructions = sum(int(row[header.index('thread_instructions')]) for row in kernels)
        self.launched = {row[header.index('kernel')] for row in kernels}
        return ''

    def complaint(self, tools, schedule, binary, ptx=None):
        """Why the group fails, or nothing."""
        limits = 'maxinsn=%d spin=300000 ' % (3 * self.instructions + 1000000)
        status, text = tools.execute(binary, self.name, limits + schedule, 10 + 10 * self.seconds, ptx)
        return '' if status == 0 else 'hangs' if status is None else first_complaint(text)

    def notices(self, tools, schedule, binary, ptx):
        """As complaint, but nothing when the unchanged header fails under this schedule, too."""
        why = self.complaint(tools, schedule, binary, ptx) if self.passes.get(schedule, True) else ''
        if why and schedule not in self.passes:
            self.passes[schedule] = not self.complaint(tools, schedule, self.program.binary)
        return why if self.passes.get(schedule, True) else ''


def source_name(symbol):
    """What the counts of ptxrun call a kernel: as the source does, without tags and parameters."""
    mangled = re.match(r'_ZL?(\d+)', symbol)
    if not mangled:
        return symbol
    begin = mangled.end()
    end = begin + int(mangled.group(1))
    return symbol if symbol[end:end + 1] == 'I' else symbol[begin:end]  # I: of a template


def kernels_of(ptx):
    """{kernel: its text}, and under None what is not part of a kernel."""
    parts = {None: ''}
    for part in re.split(r'^(?=(?:\.visible |\.weak |\.extern )*\.(?:entry|func)\b)', ptx, flags=re.M):
        entry = re.match(r'(?:\.visible |\.weak )*\.entry\s+(\w+)', part)
        if entry:  # overloads are one
            name = source_name(entry.group(1))
            parts[name] = parts.get(name, '') + part
        else:
            parts[None] += part
    return parts


def first_complaint(text):
    report = re.search(r'REPORT ([\w-]+)', text)
    failure = re.search(r'^.*(?:FAIL|fail|error|SIG).*$', text, re.M)
    return report.group(1) if report else failure.group().strip()[:80] if failure else 'exit status'


class Judge:
    def __init__(self, tools, groups, header, folder):
        self.tools, self.groups, self.header, self.folder = tools, groups, header, folder
        self.every_function = tools.every_function(header, folder)
        self.kernel_source = folder / 'kernels.cu'
        self.kernel_source.write_text('#define SPECVERIFY_IMPLEMENTATION\n#include "%s"\n' % HEADER)
        self.kernels = self.kernels_in(folder / 'original')
        for group in groups:
            group.spliced = group.launched <= self.kernels.keys() and self.fits(group.program)

    def judge(self, number, mutant):
        """(verdict, what noticed it, or a remark)"""
        folder = self.folder / ('m%d' % number)
        folder.mkdir()
        try:
            place_header(folder, mutant.apply(self.header))
            return self.judge_in(folder, mutant)
        finally:
            shutil.rmtree(folder)

    def judge_in(self, folder, mutant):
        schedules = ('', *ADVERSARIAL) if mutant.kind in ADVERSARIAL_KINDS else ('',)
        variant = Variant(self, folder, mutant)
        ran = False
        for schedule in schedules:  # the plain one finds nearly everything, so it goes first
            for group in sorted(self.groups, key=lambda g: (g.seconds + 0.1) / (g.kills + 1)):
                if not variant.compiles or not variant.concerns(group):
                    continue
                ran = True
                binary, ptx = variant.files(group)
                why = group.notices(self.tools, schedule, binary, ptx)
                if why:
                    group.kills += 1
                    return KILLED, '%s: %s' % (group, why)
        if not variant.compiles:
            return NOT_VIABLE, ''
        if ran:
            return SURVIVED, ''
        same = self.tools.every_function(mutant.apply(self.header), folder) == self.every_function
        return (SAME_CODE, '') if same else (SURVIVED, 'no test contains code that differs')

    def kernels_in(self, folder):
        """The kernels of the header in this folder, or None when it does not compile."""
        output = folder / 'kernels.ptx'
        built, _ = self.tools.ptx(self.kernel_source, folder, output)
        return kernels_of(output.read_text()) if built else None

    def fits(self, program):
        """Are the header's kernels the same in the program, but for the numbers of labels?"""
        plain = lambda text: re.sub(r'\$L__BB\d+_', '$L__BB_', text or '').strip()
        return all(plain(program.kernels.get(name)) == plain(text)
                   for name, text in self.kernels.items() if name)


class Variant:
    """What one mutant makes of the test programs; built when needed."""

    def __init__(self, judge, folder, mutant):
        self.judge, self.folder, self.on_host = judge, folder, mutant.on_host
        self.built = {}  # program: (binary, PTX for it, kernels that differ)
        self.splices = {}  # program: its PTX with the mutant's kernels
        self.compiles, self.changed, self.kernels = True, set(), None
        if not self.on_host:
            self.kernels = judge.kernels_in(folder)
            self.compiles = self.kernels is not None
            self.changed = differences(self.kernels or {}, judge.kernels)

    def is_spliced(self, group):
        return group.spliced and not self.on_host and None not in self.changed

    def concerns(self, group):
        """Does the group run anything that the mutant changes?"""
        if self.is_spliced(group):
            return bool(self.changed & group.launched)
        if group.program not in self.built:
            self.build(group.program)
        changed = self.built[group.program][2]
        return self.compiles and (changed is None or None in changed or changed & group.launched)

    def build(self, program):
        if self.on_host:
            binary = self.folder / program.name
            built, _ = self.judge.tools.binary(program.source, self.folder, binary)
            self.built[program] = binary, None, None
        else:
            ptx, changed = self.folder / (program.name + '.ptx'), set()
            built, _ = self.judge.tools.ptx(program.source, self.folder, ptx)
            if built:
                changed = differences(kernels_of(ptx.read_text()), program.kernels)
            self.built[program] = program.binary, ptx, changed
        self.compiles &= built

    def files(self, group):
        """(binary, PTX that it should run or None)"""
        program = group.program
        if not self.is_spliced(group):
            return self.built[program][:2]
        if program not in self.splices:
            path = self.folder / (program.name + '-spliced.ptx')
            path.write_text(''.join({**program.kernels, **self.kernels,
                                     None: program.kernels[None]}.values()))
            self.splices[program] = path
        return program.binary, self.splices[program]


def differences(some, others):
    """Names of kernels that are not the same in both."""
    return {name for name in some.keys() | others.keys() if some.get(name) != others.get(name)}


def place_header(folder, text):
    """The reference includes the header from its own folder first, so it comes along."""
    (folder / HEADER).write_text(text)
    if (ROOT / REFERENCE).exists():
        shutil.copy(ROOT / REFERENCE, folder / REFERENCE)


def identity(mutant):
    return mutant.function, mutant.before, mutant.after


def read_explanations(path):
    """{identity: reason} from '@ function', '- line', '+ mutated line', '# reason' in this order."""
    explained, record = {}, {}
    for line in path.read_text().splitlines() if path.exists() else ():
        mark, rest = line[:2].strip(), line[2:].strip()
        if mark == '#' and '+' in record:
            key = record['@'], record['-'], record['+']
            explained[key] = (explained.get(key, '') + ' ' + rest).strip()
        elif mark in ('@', '-', '+'):
            record = {'@': {}, '-': {'@': record.get('@')}, '+': record}[mark]
            record[mark] = rest
    return explained


def choose(found, options):
    first, last = options.line_range
    kinds = set(options.only.split(',')) if options.only else set(generator.KINDS)
    chosen = [m for m in found if m.kind in kinds and first <= m.line <= last]
    if options.sample and options.sample < len(chosen):
        picked = set(random.Random(options.seed).sample(range(len(chosen)), options.sample))
        chosen = [m for k, m in enumerate(chosen) if k in picked]
    return chosen


def describe(mutant):
    return '%s:%d %s\n    @ %s\n    - %s\n    + %s' % (
        HEADER, mutant.line, mutant.kind, *identity(mutant))


def line_range(text):
    first, last = text.split(':')
    return int(first or 1), int(last or 10 ** 9)


def parse_options():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog='kinds:\n' + '\n'.join('  %-9s %s' % kind for kind in generator.KINDS.items()))
    parser.add_argument('--only', help='kinds, separated by commas')
    parser.add_argument('--line-range', type=line_range, default=(1, 10 ** 9), metavar='FIRST:LAST')
    parser.add_argument('--sample', type=int, help='try this many, chosen at random')
    parser.add_argument('--seed', type=int, default=1, help='of the choice')
    parser.add_argument('--jobs', type=int, default=2)
    parser.add_argument('--list', action='store_true', help='print the mutants and stop')
    parser.add_argument('--recheck', action='store_true',
                        help='try explained survivors, too: does each still survive?')
    parser.add_argument('--verbose', action='store_true', help='print every verdict')
    parser.add_argument('--tests', help='names of test programs, separated by commas; default: all')
    parser.add_argument('--arch', default=os.environ.get('ARCH', 'sm_90'))
    parser.add_argument('--ptxrun', type=Path, help='folder of the built interpreter',
                        default=os.environ.get('PTXRUN_OUT', ROOT / 'tests/ptxrun/build'))
    options = parser.parse_args()
    if options.only and set(options.only.split(',')) - set(generator.KINDS):
        parser.error('--only: the kinds are ' + ', '.join(generator.KINDS))
    return options


def prepare_groups(tools, options, header, folder):
    """All groups of tests; exits when one does not work or a program ignores the given header."""
    wanted = options.tests.split(',') if options.tests else None
    sources = [s for s in sorted((ROOT / 'tests').glob('*.cu')) if not wanted or s.stem in wanted]
    original, broken = folder / 'original', folder / 'broken'
    for place, text in ((original, header), (broken, '#error this header is the one in use\n')):
        place.mkdir()
        place_header(place, text)
    if not sources:
        sys.exit('no test program in tests/*.cu')

    def prepare(program):
        found = program.prepare(tools, original)
        if tools.ptx(program.source, broken, broken / (program.name + '.ptx'))[0]:
            raise SystemExit('%s does not take %s from the include path' % (program.name, HEADER))
        return found

    groups = []
    with ThreadPoolExecutor(options.jobs) as pool:
        progress = Progress('programs built', len(sources))
        for found in pool.map(prepare, [Program(source, original) for source in sources]):
            groups += found
            progress.step()
        progress = Progress('groups run without a mutant', len(groups))
        for trouble in pool.map(lambda g: g.measure(tools, original), groups):
            if trouble:
                sys.exit(trouble)
            progress.step()
    for group in groups:  # else no mutant would concern it, and all would survive
        unknown = group.launched - group.program.kernels.keys()
        if unknown:
            sys.exit('%s launches what its PTX has under another name: %s' % (
                group, ', '.join(sorted(unknown))))
    return groups


def try_all(judge, chosen, options):
    verdicts, counts = [], Counter()
    progress = Progress('mutants', len(chosen))
    with ThreadPoolExecutor(options.jobs) as pool:
        results = pool.map(judge.judge, range(len(chosen)), chosen)
        for mutant, (verdict, why) in zip(chosen, results):
            verdicts.append((mutant, verdict, why))
            counts[verdict] += 1
            if options.verbose:
                progress.print('%-9s %s%s' % (verdict, describe(mutant),
                                              '\n    ' + why if why else ''))
            progress.step('%d killed, %d survived' % (counts[KILLED], counts[SURVIVED]))
    return verdicts


def summarise(verdicts, explained, all_tried):
    """Prints the survivors and the totals; True when every mutant is accounted for."""
    counts = Counter(verdict for _, verdict, _ in verdicts)
    survivors = [(m, why) for m, verdict, why in verdicts if verdict == SURVIVED]
    excused = [m for m, _ in survivors if identity(m) in explained]
    for mutant, why in survivors:
        reason = explained.get(identity(mutant))
        note = reason or why
        print('%s %s%s' % ('explained' if reason else 'SURVIVED', describe(mutant),
                           '\n    # ' + note if note else ''))
    needed = {identity(m) for m in excused}
    stale = [e for e in explained if e not in needed] if all_tried else []
    for entry in stale:
        print('STALE explanation: no such survivor\n    @ %s\n    - %s\n    + %s' % entry)
    print('%d mutants: %d do not compile, %d leave the machine code as it is, %d explained' %
          (len(verdicts), counts[NOT_VIABLE], counts[SAME_CODE], len(excused)))
    total = counts[KILLED] + counts[SURVIVED] - len(excused)
    print('killed %d of %d' % (counts[KILLED], total))
    return counts[KILLED] == total and total > 0 and not stale


def main():
    options = parse_options()
    header = (ROOT / HEADER).read_text()
    found = generator.find_mutants(header)
    chosen = choose(found, options)
    explained = read_explanations(HERE / 'explained.txt')
    gone = set(explained) - {identity(m) for m in found}
    for entry in gone:
        print('STALE explanation: no such mutant\n    @ %s\n    - %s\n    + %s' % entry)
    if not options.recheck and not options.list:  # they survive everything, and that takes long
        count = len(chosen)
        chosen = [m for m in chosen if identity(m) not in explained]
        print('%d explained survivors are not tried again' % (count - len(chosen)))
    if options.list:
        for mutant in chosen:
            print(describe(mutant))
        print('%d mutants' % len(chosen))
        return 0
    with tempfile.TemporaryDirectory(prefix='mutate-') as name:
        folder = Path(name)
        tools = Toolchain(options.arch, Path(options.ptxrun).resolve())
        groups = prepare_groups(tools, options, header, folder)
        print('%d mutants, %d groups of tests, %.1f s in all' %
              (len(chosen), len(groups), sum(g.seconds for g in groups)), flush=True)
        verdicts = try_all(Judge(tools, groups, header, folder), chosen, options)
    complete = summarise(verdicts, explained, options.recheck and len(chosen) == len(found))
    return 0 if complete and not gone else 1


if __name__ == '__main__':
    sys.exit(main())
