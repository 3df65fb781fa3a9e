#!/usr/bin/env python3
"""Changes specverify.cuh in one place at a time and sees whether a test notices.

    python3 tests/mutate/mutate.py                  every mutant: some minutes
    python3 tests/mutate/mutate.py --only barrier   barriers, fences and lane masks alone
    python3 tests/mutate/mutate.py --list           what would be tried
    python3 tests/mutate/mutate.py --line-range 700:800 --verbose

A mutant is killed when a test program of tests/*.cu (run with --quick on tests/ptxrun) fails, hangs
or makes the interpreter report something.  Mutants that do not compile, or that leave the machine
code as it is, do not count.  Survivors that explained.txt explains are listed with their reason;
any other survivor fails the run.  Kinds of mutants: see mutants.py, or --help.

Most mutants touch device code only.  For these, nvcc makes the PTX alone and the test binary built
from the unchanged header runs it (PTXRUN_PTX): less than half the time of a whole build.
"""
import argparse
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

    def execute(self, binary, options, timeout, ptx=None):
        environment = dict(os.environ, PTXRUN_EXIT='first', PTXRUN_OPTS=options,
                           LD_LIBRARY_PATH=str(self.interpreter))
        if ptx:
            environment['PTXRUN_PTX'] = str(ptx)
        by_lines = ['stdbuf', '-oL'] if shutil.which('stdbuf') else []
        return run([*by_lines, str(binary), '--quick'], timeout, environment, until='FAIL')


class Test:
    """One test program, built from the unchanged header, and what it needs when nothing is wrong."""

    def __init__(self, source, folder):
        self.source = source
        self.name = source.stem
        self.binary, self.ptx = folder / self.name, folder / (self.name + '.ptx')
        self.kills = 0
        self.seconds = 0.0
        self.instructions = 0

    def prepare(self, tools, folder):
        """Empty, or why the test cannot be used."""
        for build, output in ((tools.binary, self.binary), (tools.ptx, self.ptx)):
            built, text = build(self.source, folder, output)
            if not built:
                return text
        for schedule in ('', *ADVERSARIAL):
            begin = time.monotonic()
            status, text = tools.execute(self.binary, schedule, timeout=600)
            self.seconds = max(self.seconds, time.monotonic() - begin)
            if status != 0:
                return 'fails without a mutant [%s]:\n%s' % (schedule, text[-2000:])
            count = re.search(r'thread_instructions=(\d+)', text)
            self.instructions = max(self.instructions, int(count.group(1)) if count else 0)
        return ''

    def limits(self):
        return 'maxinsn=%d spin=300000' % (3 * self.instructions + 1000000)

    def notices(self, tools, schedules, binary, ptx):
        """Why the test fails, or nothing."""
        for schedule in schedules:
            options = self.limits() + ' ' + schedule
            status, text = tools.execute(binary, options, 10 + 10 * self.seconds, ptx)
            if status != 0:
                return 'hangs' if status is None else first_complaint(text)
        return ''


def first_complaint(text):
    report = re.search(r'REPORT ([\w-]+)', text)
    failure = re.search(r'^.*(?:FAIL|fail|error|SIG).*$', text, re.M)
    return report.group(1) if report else failure.group().strip()[:80] if failure else 'exit status'


class Judge:
    def __init__(self, tools, tests, header, folder):
        self.tools, self.tests, self.header, self.folder = tools, tests, header, folder
        self.every_function = tools.every_function(header, folder)

    def judge(self, number, mutant):
        """(verdict, what noticed it)"""
        folder = self.folder / ('m%d' % number)
        folder.mkdir()
        try:
            place_header(folder, mutant.apply(self.header))
            return self.judge_in(folder, mutant)
        finally:
            shutil.rmtree(folder)

    def judge_in(self, folder, mutant):
        schedules = ('', *ADVERSARIAL) if mutant.kind in ADVERSARIAL_KINDS else ('',)
        same_code = True
        for test in sorted(self.tests, key=lambda t: -t.kills / (t.seconds + 1)):
            if mutant.on_host:
                binary, ptx = folder / test.name, None
                built, _ = self.tools.binary(test.source, folder, binary)
            else:
                binary, ptx = test.binary, folder / (test.name + '.ptx')
                built, _ = self.tools.ptx(test.source, folder, ptx)
            if not built:
                return NOT_VIABLE, ''
            if ptx and ptx.read_bytes() == test.ptx.read_bytes():
                continue
            same_code = False
            why = test.notices(self.tools, schedules, binary, ptx)
            if why:
                test.kills += 1
                return KILLED, '%s: %s' % (test.name, why)
        if not same_code:
            return SURVIVED, ''
        same_code = self.tools.every_function(mutant.apply(self.header), folder) == self.every_function
        return (SAME_CODE, '') if same_code else (SURVIVED, 'no test program contains this code')


def place_header(folder, text):
    """The reference includes the header from its own folder first, so it comes along."""
    (folder / HEADER).write_text(text)
    if (ROOT / REFERENCE).exists():
        shutil.copy(ROOT / REFERENCE, folder / REFERENCE)


def read_explanations(path):
    """{(line, mutated line): reason} from records of '- line', '+ mutated line', '# reason'."""
    explained, before, after = {}, None, None
    for line in path.read_text().splitlines() if path.exists() else ():
        mark, rest = line[:2], line[2:].strip()
        if mark == '- ':
            before, after = rest, None
        elif mark == '+ ':
            after = rest
        elif mark == '# ' and before is not None and after is not None:
            reason = explained.get((before, after), '')
            explained[before, after] = (reason + ' ' + rest).strip()
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
    return '%s:%d %s\n    - %s\n    + %s' % (HEADER, mutant.line, mutant.kind, mutant.before,
                                            mutant.after)


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
    parser.add_argument('--verbose', action='store_true', help='print every verdict')
    parser.add_argument('--tests', help='names of test programs, separated by commas; default: all')
    parser.add_argument('--arch', default=os.environ.get('ARCH', 'sm_90'))
    parser.add_argument('--ptxrun', type=Path, help='folder of the built interpreter',
                        default=os.environ.get('PTXRUN_OUT', ROOT / 'tests/ptxrun/build'))
    options = parser.parse_args()
    if options.only and set(options.only.split(',')) - set(generator.KINDS):
        parser.error('--only: the kinds are ' + ', '.join(generator.KINDS))
    return options


def prepare_tests(tools, options, header, folder):
    """The test programs, in working order; exits when one does not work or ignores the header."""
    wanted = options.tests.split(',') if options.tests else None
    sources = [s for s in sorted((ROOT / 'tests').glob('*.cu')) if not wanted or s.stem in wanted]
    original = folder / 'original'
    original.mkdir()
    place_header(original, header)
    tests = [Test(source, original) for source in sources]
    if not tests:
        sys.exit('no test program in tests/*.cu')
    with ThreadPoolExecutor(options.jobs) as pool:
        for test, trouble in zip(tests, pool.map(lambda t: t.prepare(tools, original), tests)):
            if trouble:
                sys.exit('%s: %s' % (test.name, trouble))
    broken = folder / 'broken'
    broken.mkdir()
    place_header(broken, '#error the mutated header is the one in use\n')
    for test in tests:
        if tools.ptx(test.source, broken, broken / 'none.ptx')[0]:
            sys.exit('%s does not take %s from the include path' % (test.name, HEADER))
    return sorted(tests, key=lambda t: t.seconds)


def try_all(judge, chosen, options):
    verdicts = []
    with ThreadPoolExecutor(options.jobs) as pool:
        results = pool.map(judge.judge, range(len(chosen)), chosen)
        for number, (mutant, (verdict, why)) in enumerate(zip(chosen, results), 1):
            verdicts.append((mutant, verdict, why))
            if options.verbose:
                print('%-9s %s%s' % (verdict, describe(mutant), '\n    ' + why if why else ''))
            elif number % 100 == 0:
                print('%d of %d tried' % (number, len(chosen)))
            sys.stdout.flush()
    return verdicts


def summarise(verdicts, whole_run):
    """Prints the survivors and the totals; True when every mutant is accounted for."""
    explained = read_explanations(HERE / 'explained.txt')
    counts = Counter(verdict for _, verdict, _ in verdicts)
    survivors = [(m, why) for m, verdict, why in verdicts if verdict == SURVIVED]
    excused = [m for m, _ in survivors if (m.before, m.after) in explained]
    for mutant, why in survivors:
        reason = explained.get((mutant.before, mutant.after))
        note = reason or why
        print('%s %s%s' % ('explained' if reason else 'SURVIVED', describe(mutant),
                           '\n    # ' + note if note else ''))
    needed = {(m.before, m.after) for m in excused}
    stale = [e for e in explained if e not in needed] if whole_run else []
    for before, after in stale:
        print('STALE explanation: no such survivor\n    - %s\n    + %s' % (before, after))
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
    if options.list:
        for mutant in chosen:
            print(describe(mutant))
        print('%d mutants' % len(chosen))
        return 0
    with tempfile.TemporaryDirectory(prefix='mutate-') as name:
        folder = Path(name)
        tools = Toolchain(options.arch, Path(options.ptxrun).resolve())
        tests = prepare_tests(tools, options, header, folder)
        print('%d mutants; tests: %s' % (len(chosen), ', '.join(
            '%s (%.1f s)' % (t.name, t.seconds) for t in tests)), flush=True)
        verdicts = try_all(Judge(tools, tests, header, folder), chosen, options)
    return 0 if summarise(verdicts, whole_run=len(chosen) == len(found)) else 1


if __name__ == '__main__':
    sys.exit(main())
