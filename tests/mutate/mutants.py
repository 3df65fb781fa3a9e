"""Finds the places of specverify.cuh that a test must notice when they change.

A mutant is one textual change of one place.  The header is cut into tokens, comments and strings
are skipped, and every operator below looks for its own pattern among the tokens of the device
layers, the kernels and the code that configures launches.
"""
import re
from dataclasses import dataclass

HOST_FUNCTIONS = ('specv_verify_pack_kv_launches',)  # launch configuration that stands elsewhere

KINDS = {
    'barrier': 'a barrier, fence or grid dependency is removed, a lane mask loses a lane, an atomic '
               'operation orders less',
    'atomic': 'an atomic update becomes a plain one',
    'bound': 'a comparison is off by one, a minimum becomes a maximum',
    'equality': '== and != change places',
    'logic': 'one side of && or || is dropped',
    'term': 'one side of + or - is dropped',
    'factor': 'one side of *, / or % or a shift is dropped',
    'bits': 'one side of & or | is dropped',
    'choice': 'a conditional expression always takes the same side',
    'guard': 'an early return, break or continue is removed, a condition is always true',
}

PRECEDENCE = {'*': 10, '/': 10, '%': 10, '+': 9, '-': 9, '<<': 8, '>>': 8,
              '<': 7, '>': 7, '<=': 7, '>=': 7, '==': 6, '!=': 6, '&': 5, '^': 4, '|': 3,
              '&&': 2, '||': 1}
OPENING, CLOSING = '([{', ')]}'
PARTNER = dict(zip(CLOSING, OPENING))
ENDS = {';', ',', '?', ':', '=', '+=', '-=', '*=', '/=', '|=', '&=', '^=', '<<=', '>>=', 'return'}
TOKEN = re.compile(r'[A-Za-z_]\w*|0[xX]\w+|\d[\w.]*|->|\+\+|--|<<=|>>=|<<|>>|[-+*/%&|^<>=!]=|&&|\|\||\S')

BARRIERS = ('__syncthreads', '__syncwarp', '__threadfence', '__threadfence_block',
            '__threadfence_system', 'specv_i_begin')
ORDER, WEAKER_ORDERS = re.compile(r'(?<=\.)acq_rel(?=\.)'), ('relaxed', 'acquire', 'release')
FULL_MASK, LACKING_MASK = 'SPECV_FULL_WARP', '0x7fffffffu'
ATOMICS = {'atomicAdd': '+=', 'atomicMin': '=', 'atomicMax': '=', 'atomicOr': '|='}
RELATIONS = {'<': '<=', '<=': '<', '>': '>=', '>=': '>'}
DIRECTIONS = {'<': '>', '>': '<', '<=': '>=', '>=': '<='}


@dataclass(frozen=True)
class Token:
    text: str
    start: int
    end: int


@dataclass(frozen=True)
class Mutant:
    kind: str
    start: int  # the replaced characters of the header
    end: int
    replacement: str
    line: int
    on_host: bool  # may change host code
    function: str  # the function around it
    before: str    # the lines it touches, with single blanks, and what becomes of them
    after: str

    def apply(self, text):
        return text[:self.start] + self.replacement + text[self.end:]


def without_comments(text):
    """The same text, character by character, with comments, strings and directives blanked."""
    pattern = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|'
                         r'^[ \t]*#(?:[^\n\\]|\\.|\\\n)*', re.S | re.M)
    return pattern.sub(lambda m: re.sub(r'[^\n]', ' ', m.group()), text)


def stretches(text):
    """(begin, end, on_host) of what is mutated: device code of part I; kernels and launchers."""
    anchors = {m.group(1): m.start() for m in re.finditer(r'^/\* =+ >>([\w-]+)', text, re.M)}
    second, end = anchors['implementation'], anchors['license']
    first = text.rindex('#if defined(__CUDACC__)\n', 0, anchors['lane'])
    device = re.compile(r'^#if defined\(__CUDACC__\)\n.*?^#endif /\* __CUDACC__ \*/', re.S | re.M)
    found = [(*m.span(), False) for m in device.finditer(text, first, second)]
    host = re.compile(r'^#if !defined\(__CUDACC_RTC__\)\n.*?^#endif /\* !__CUDACC_RTC__ \*/', re.S | re.M)
    at = second
    for match in host.finditer(text, second, end):
        found += [(at, match.start(), False), (*match.span(), True)]
        at = match.end()
    return found + [(at, end, False)]


def function_extent(code, name):
    """(begin, end) of the definition of a function: from its name to its closing brace."""
    for match in re.finditer(r'\b%s\s*\(' % name, code):
        body = re.compile(r'[^;{]*\{').match(code, match.start())
        if body:
            depth, at = 1, body.end()
            while depth:
                depth += {'{': 1, '}': -1}.get(code[at], 0)
                at += 1
            return match.start(), at
    return None


def host_device_extents(code):
    names = re.findall(r'__host__ __device__[^;{(]*?\b(\w+)\s*\(', code)
    return [extent for extent in (function_extent(code, name) for name in names) if extent]


class Finder:
    """All mutants of one stretch of code."""

    def __init__(self, text, code, begin, end, on_host):
        self.text, self.on_host, self.extent = text, on_host, (begin, end)
        self.code = code
        self.tokens = [Token(m.group(), m.start(), m.end())
                       for m in TOKEN.finditer(code, begin, end)]
        self.partner = self.match_brackets()
        self.functions = self.find_functions()
        self.found = []

    def match_brackets(self):
        partner, stack = {}, []
        for k, token in enumerate(self.tokens):
            if token.text in OPENING:
                stack.append(k)
            elif token.text in CLOSING and stack:
                partner[k] = stack.pop()
                partner[partner[k]] = k
        return partner

    def find_functions(self):
        """(name, begin, end) of the bodies: a brace behind the arguments, outside all others."""
        bodies, at = [], 0
        while at < len(self.tokens):
            opens = self.tokens[at].text == '{' and at in self.partner
            if opens and self.tokens[at - 1].text == ')':
                name = self.tokens[self.partner[at - 1] - 1]
                bodies.append((name.text, name.start, self.tokens[self.partner[at]].end))
            at = self.partner[at] + 1 if opens else at + 1
        return bodies

    def add(self, kind, start, end, replacement):
        first = self.text.rfind('\n', 0, start) + 1
        last = self.text.find('\n', end)
        changed = self.code[first:start] + replacement + self.code[end:last]
        squeeze = lambda s: ' '.join(s.split())
        function = next((name for name, b, e in self.functions if b <= start < e), '')
        self.found.append(Mutant(kind, start, end, replacement, self.text.count('\n', 0, start) + 1,
                                 self.on_host, function, squeeze(self.code[first:last]),
                                 squeeze(changed)))

    # ---- operands

    def is_binary(self, k):
        """Is token k a binary operator?  The style sets blanks around these and only these."""
        token = self.tokens[k]
        return (token.text in PRECEDENCE and self.code[token.start - 1].isspace() and
                self.code[token.end].isspace() and self.tokens[k - 1].text not in ENDS)

    def right_operand(self, k):
        """The last token of the right operand of operator k."""
        own, at = PRECEDENCE[self.tokens[k].text], k + 1
        while True:
            text = self.tokens[at].text
            if text in OPENING:
                at = self.partner[at]
            elif text in CLOSING or text in ENDS:
                return at - 1
            elif self.is_binary(at) and PRECEDENCE[text] <= own:
                return at - 1
            at += 1

    def left_operand(self, k, whole_chain=True):
        """The first token of the left operand.  whole_chain: a in (a + b) + c; else b."""
        own, at = PRECEDENCE[self.tokens[k].text], k - 1
        while True:
            text = self.tokens[at].text
            if text in CLOSING:
                at = self.partner[at]
            elif text in OPENING or text in ENDS:
                return at + 1
            elif self.is_binary(at):
                if PRECEDENCE[text] < own or (PRECEDENCE[text] == own and not whole_chain):
                    return at + 1
            at -= 1

    def drop_right(self, kind, k):
        self.add(kind, self.tokens[k].start, self.tokens[self.right_operand(k)].end, '')

    def drop_left(self, kind, k):
        if self.left_operand(k) == self.left_operand(k, whole_chain=False):
            self.add(kind, self.tokens[self.left_operand(k)].start, self.tokens[k + 1].start, '')

    def source(self, first, last):
        return self.text[self.tokens[first].start:self.tokens[last].end]

    # ---- patterns

    def barriers(self, k):
        name = self.tokens[k].text
        called = name in BARRIERS and self.tokens[k + 1].text == '('
        is_statement = called and self.tokens[self.partner[k + 1] + 1].text == ';'
        if is_statement and self.tokens[k - 1].text in (';', '{', '}', ')'):
            self.add('barrier', self.tokens[k].start, self.tokens[self.partner[k + 1]].end, '')
        if name == FULL_MASK:
            self.add('barrier', self.tokens[k].start, self.tokens[k].end, LACKING_MASK)

    def orders(self):
        """In PTX, which is a string, and so in no token."""
        for order in ORDER.finditer(self.text, *self.extent):
            for weaker in WEAKER_ORDERS:
                self.add('barrier', order.start(), order.end(), weaker)

    def atomics(self, k):
        name = self.tokens[k].text
        if name not in ATOMICS:
            return
        close = self.partner[k + 1]
        comma = next(c for c in range(k + 2, close) if self.tokens[c].text == ',' and
                     self.depth_between(k + 1, c) == 1)
        target, value = self.source(k + 2, comma - 1), self.source(comma + 1, close - 1)
        self.add('atomic', self.tokens[k].start, self.tokens[close].end,
                 '(*(%s) %s %s)' % (target, ATOMICS[name], value))

    def depth_between(self, first, last):
        texts = [t.text for t in self.tokens[first:last]]
        return sum(t in OPENING for t in texts) - sum(t in CLOSING for t in texts)

    def is_extremum(self, k):
        """a < b ? a : b and its kin: there <= means the same as <."""
        left, right = self.left_operand(k), self.right_operand(k)
        if self.tokens[right + 1].text != '?':
            return False
        colon = self.colon_of(right + 1)
        sides = {self.source(left, k - 1), self.source(k + 1, right)}
        end = self.end_of_choice(colon)
        return {self.source(right + 2, colon - 1), self.source(colon + 1, end)} == sides

    def comparisons(self, k):
        token = self.tokens[k]
        if token.text in RELATIONS and self.is_binary(k):
            table = DIRECTIONS if self.is_extremum(k) else RELATIONS
            self.add('bound', token.start, token.end, table[token.text])
        if token.text in ('==', '!=') and self.is_binary(k):
            self.add('equality', token.start, token.end, '!=' if token.text == '==' else '==')

    def operands(self, k):
        if not self.is_binary(k):
            return
        text = self.tokens[k].text
        kinds = {'&&': 'logic', '||': 'logic', '+': 'term', '-': 'term', '&': 'bits', '|': 'bits',
                 '*': 'factor', '/': 'factor', '%': 'factor', '<<': 'factor', '>>': 'factor'}
        if text not in kinds:
            return
        self.drop_right(kinds[text], k)
        if text in ('&&', '||', '+', '*', '&', '|'):
            self.drop_left(kinds[text], k)

    def colon_of(self, question):
        at, open_choices = question + 1, 1
        while True:
            text = self.tokens[at].text
            if text in OPENING:
                at = self.partner[at]
            open_choices += (text == '?') - (text == ':')
            if not open_choices:
                return at
            at += 1

    def end_of_choice(self, colon):
        at = colon + 1
        while self.tokens[at].text not in (';', ',', *CLOSING):
            at = self.partner[at] + 1 if self.tokens[at].text in OPENING else at + 1
        return at - 1

    def choices(self, question):
        if self.tokens[question].text != '?':
            return
        at = question - 1  # the condition begins behind a bracket or an assignment
        while self.tokens[at].text not in (*ENDS, *OPENING):
            at = self.partner[at] - 1 if self.tokens[at].text in CLOSING else at - 1
        start, colon = self.tokens[at + 1].start, self.colon_of(question)
        end = self.tokens[self.end_of_choice(colon)].end
        self.add('choice', start, end, '(%s)' % self.source(question + 1, colon - 1))
        self.add('choice', start, end, '(%s)' % self.text[self.tokens[colon + 1].start:end])

    def guards(self, k):
        if self.tokens[k].text != 'if':
            return
        close = self.partner[k + 1]
        if self.tokens[close + 1].text in ('return', 'break', 'continue'):
            end = next(t.end for t in self.tokens[close:] if t.text == ';')
            self.add('guard', self.tokens[k].start, end, ';')
        else:
            self.add('guard', self.tokens[k + 2].start, self.tokens[close - 1].end, '1')

    def run(self):
        patterns = (self.barriers, self.atomics, self.comparisons, self.operands, self.choices,
                    self.guards)
        for k in range(len(self.tokens) - 1):
            for pattern in patterns:
                pattern(k)
        self.orders()
        return self.found


def find_mutants(text):
    """Every mutant of the header, in the order of its lines."""
    code = without_comments(text)
    extents = stretches(text)
    extents += [(*function_extent(code, name), True)
                for name in HOST_FUNCTIONS if function_extent(code, name)]
    shared = host_device_extents(code)
    mutants = []
    for begin, end, on_host in extents:
        for mutant in Finder(text, code, begin, end, on_host).run():
            if any(b <= mutant.start < e for b, e in shared):
                mutant = Mutant(**{**mutant.__dict__, 'on_host': True})
            mutants.append(mutant)
    unique = {(m.start, m.end, m.replacement): m for m in mutants}
    return sorted(unique.values(), key=lambda m: (m.start, m.end, m.replacement))
