"""Writes tests/llm/jinja.json: expressions of chat templates, with the text that transformers' environment renders, or its error.

All of Jinja's filters and tests, all methods of `str`, `list`, `tuple`, `dict`, `int`, `float` and `range`, the codes of `%`,
`str.format` and `strftime`, operators and statements are enumerated here, so that none can be forgotten.
"""

import datetime
import itertools
import json
import os
import pathlib
import time

import jinja2
from jinja2.filters import FILTERS
from jinja2.tests import TESTS
from transformers.utils import chat_template_utils

OUT = pathlib.Path(__file__).resolve().parent.parent / "tests/llm/jinja.json"

# What chat templates do not get: these make bytes, take bits of floats apart, or are random.
LEFT_OUT = {"encode", "hex", "fromhex", "to_bytes", "from_bytes", "lipsum"}

STRINGS = [
    "", "a", "foo_bar 12ab", "  Hello, World!\t", "one\ntwo\r\nthree\x0bfour\x85\n", "naïve ǆ ß ŉ ﬁ ΑΣ ΑΣΑ ᾳ", "İstanbul ſ K", "ab" * 20,
    "-42", "+3.50", "١٢٣", "½²", "你好 二", "<b>'x' & \"y\"</b>", "a.b.c,,d", "Title Case Words", "UPPER", "x\ty\t\tz", "%s {0} {{}}",
    "the quick-brown fox -- jumps over well-known-words and/or antidisestablishmentarianism", "\x1c a \u3000b\u2028c", "it's", "\\ \x00 \u00ad 😀",
]  # fmt: skip
VALUES = [
    "none", "true", "false", "0", "1", "-7", "42", "1000000", "3.0", "-2.5", "0.1", "1e22", "1e-7", "''", "'foo_bar 12ab'", "'  x '", "'12'", "'-3.7'",
    "'0x1F'", "[]", "[3, 1, 2]", "['b', 'A', 'c', 'a']", "[[1, 2], [3]]", "[none, true, 1.5, 'x']", "()", "(1,)", "(1, 'a')", "{}",
    "{'b': 1, 'a': [1, {'c': none}]}", "{'B': 2, 'a': 3, 'C': 1}", "range(5)", "range(10, 0, -3)", "missing", "[{'n': 'x', 'v': 2}, {'n': 'Y', 'v': 1}, {'n': 'x', 'v': 3}]",
    "'<a href=\"x\">T &amp; t</a>'", "'see https://example.com/a?b=c, (www.x.org) me@host.com.'", "'<x>'|safe", "{1: 'a', 1.0: 'b', true: 'c'}",
]  # fmt: skip
# Arguments that filters are tried with, besides none.
FILTER_ARGUMENTS = {
    "attr": ["'upper'", "'n'"], "batch": ["2", "3, 'x'", "0"], "slice": ["2", "3, 'x'"], "center": ["", "10"],
    "d": ["'z'", "'z', true"], "default": ["1", "'z', boolean=true"], "dictsort": ["true", "false, 'value'", "reverse=true", "by='x'"],
    "filesizeformat": ["true"], "float": ["1.5"], "int": ["5", "base=16", "7, 0"], "format": ["1", "'a', 2", "a=1"],
    "groupby": ["'n'", "'n', case_sensitive=true", "'v'", "'q', default='z'"], "indent": ["2", "2, true", "'> ', blank=true"],
    "join": ["'-'", "', ', attribute='n'", "d=1"], "map": ["'upper'", "attribute='n'", "'string'", "attribute='q', default=0", "'int', 3", "attribute=0"],
    "max": ["attribute='v'", "true"], "min": ["attribute='v'", "case_sensitive=true"], "reject": ["'odd'", "", "'eq', 1", "'string'"],
    "select": ["'odd'", "'none'", "'>', 1", "'mapping'"], "selectattr": ["'n'", "'v', 'odd'", "'n', 'equalto', 'x'", "'q', 'defined'"],
    "rejectattr": ["'n'", "'v', 'gt', 1", "'n', 'in', ['Y']"], "replace": ["'a', 'bb'", "'', '-'", "'b', 1, 1"], "round": ["1", "0, 'floor'", "1, 'ceil'", "-1"],
    "sort": ["true", "case_sensitive=true", "attribute='v'", "attribute='n,v'"], "sum": ["'v'", "start=[]", "attribute='v', start=1"],
    "tojson": ["indent=2", "ensure_ascii=true", "separators=(',', ':')", "sort_keys=true", "indent='-'", "indent=0"], "trim": ["'x '", "'f'"],
    "truncate": ["5", "5, true", "3, true, '', 0", "9, false, '…', 2"], "unique": ["true", "attribute='n'", "case_sensitive=true"],
    "urlize": ["10", "nofollow=true", "target='_blank'", "rel='a b'"], "wordwrap": ["10", "5, false", "7, true, '|'", "12, break_on_hyphens=false", "0"],
    "xmlattr": ["false"],
}  # fmt: skip
TEST_ARGUMENTS = {"divisibleby": ["2", "0"], "in": ["[1, 'a']", "'foo'", "{'a': 1}"], "sameas": ["none", "true"], "filter": [""], "test": [""]}
METHOD_ARGUMENTS = {
    "center": ["7", "30, '*'"], "ljust": ["6, '.'", "30"], "rjust": ["6, '.'", "31"], "zfill": ["8", "1"], "count": ["'a'", "'', 1", "'o', 2, -3", "3"],
    "endswith": ["'b'", "('x', 'ab')", "'!', 0, -1"], "startswith": ["'foo'", "('x', 'f')", "'o', 1", "1"], "expandtabs": ["", "4", "0"],
    "find": ["'o'", "'b', 3", "'', 99", "'o', -4"], "rfind": ["'o'", "'b', 0, 5", "''"], "index": ["'a'", "2", "1, 1"], "rindex": ["'a'", "' '"],
    "format": ["1, 2", "a=1"], "format_map": ["{'a': 1}"], "join": ["['x', 'y']", "'abc'", "[1]"], "strip": ["", "' Hfob!'", "none"],
    "lstrip": ["", "'fo '"], "rstrip": ["", "'b!\\t'"], "partition": ["' '", "'zz'", "''"], "rpartition": ["' '", "'zz'"],
    "removeprefix": ["'foo'", "''"], "removesuffix": ["'ab'", "''"], "replace": ["'a', 'XY'", "'', '-'", "'o', '0', 1"],
    "split": ["", "' '", "none, 1", "',', 2", "'o', maxsplit=1", "''"], "rsplit": ["", "' ', 1", "none, 1", "',', 2", "maxsplit=2"],
    "splitlines": ["", "true", "keepends=true"], "translate": ["{97: 'A', 111: none, 98: 66}"], "maketrans": ["'ab', 'xy'", "{'a': 1}", "'a', 'b', 'c'"],
    "get": ["'a'", "'q'", "'q', 5"], "fromkeys": ["['a', 'b']", "'ab', 0"], "insert": ["0, 1"], "append": ["1"], "extend": ["[1]"], "remove": ["1"], "pop": ["", "0"],
    "setdefault": ["'a', 1"], "update": ["{'a': 2}"],
}  # fmt: skip
STATEMENTS = [
    "{% for a in [1, 2, 3] %}{{ loop.index }}{{ loop.first }}{{ loop.last }}{{ loop.revindex0 }}{{ loop.previtem }}{{ loop.nextitem }}{{ loop.cycle('x', 'y') }}{{ loop.changed(a > 1) }}|{% endfor %}",
    "{% for k, v in {'a': 1, 'b': 2}.items() if v > 1 %}{{ k }}{{ v }}{{ loop.length }}{% else %}none{% endfor %}",
    "{% for a in [] %}x{% else %}none{% endfor %}{% for a in missing %}x{% endfor %}",
    "{% for a in [1, [2, [3]]] recursive %}{{ loop(a) if a is not number else a }}{{ loop.depth }}{% endfor %}",
    "{% for a in range(9) %}{% if a == 2 %}{% continue %}{% endif %}{% if a > 4 %}{% break %}{% endif %}{{ a }}{% endfor %}",
    "{% set x = 1 %}{% for a in [1] %}{{ x }}{% set x = 2 %}{{ x }}{% endfor %}{{ x }}",
    "{% set ns = namespace(n=0) %}{% for a in [1, 2] %}{% set ns.n = ns.n + a %}{% endfor %}{{ ns.n }}{{ ns }}",
    "{% set a, b = 1, [2] %}{{ a }}{{ b }}{% set (c, d) = 'xy' %}{{ c }}{{ d }}{% set a, b = [1] %}",
    "{% set x %} a{{ 1 }} {% endset %}[{{ x }}]{% set y | upper | trim %} b {% endset %}[{{ y }}]",
    "{% macro f(a, b=2, c=a) %}{{ a }}{{ b }}{{ c }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ f(1) }}{{ f(1, 2, 3, 4, z=5) }}{{ f.name }}{{ f.arguments }}{{ f.catch_kwargs }}{{ f.caller }}",
    "{% macro f(a) %}{{ a }}{% endmacro %}{{ f() }}{{ f(1, 2) }}",
    "{% macro f(a) %}{{ a }}{% endmacro %}{{ f(b=1) }}",
    "{% macro f(a) %}<{{ caller(a) }}>{% endmacro %}{% call(x) f(3) %}{{ x }}!{% endcall %}",
    "{% macro f(n) %}{{ n }}{% if n > 0 %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(3) }}",
    "{% with a = 1, b = 2 %}{{ a }}{{ b }}{% endwith %}{{ a }}",
    "{% filter upper | replace('A', 'x') %}abc{% endfilter %}{% raw %}{{ x }}{% endraw %}{# c #}",
    "{% if false %}a{% elif 0 %}b{% elif [] %}c{% else %}d{% endif %}{% block b %}{{ 1 }}{% endblock b %}",
    "  {% if true %}\n  a\n  {%- if true -%}  b  {%+ endif +%}\n  {% endif %}\n x {{- 1 -}} \n",
    "a\r\n{% set x = 1 %}\r\nb{# c #}\nd {#- e -#} f\n\n",
    "{% raw -%}  a {% b %} {%- endraw %} c", "{%+ if true %} a{% endif %}\n", "{% print 1, 2 %}", "{{ 1 if false }}|{{ (1 if false) is undefined }}",
    "{{ [1, 2,] }}{{ {'a': 1,} }}{{ (1,) }}{{ 1, 2 }}{{ () }}", "{{ 'a' 'b' }}{{ \"x'y\" }}{{ '\\x41\\u00e9\\101\\n\\q' }}", "{{ 1_000 + 0x1F + 0o17 + 0b11 }}{{ 1e3 }}{{ 1.5E-2 }}",
    "{{ {'a': {}} }}{{ '}}' }}{{ \"%}\" }}", "{{ x }}{{ x.y }}", "{{ x[0] }}", "{{ none.a }}{{ 'a'.b }}{{ [1].a }}{{ {}.a }}{{ [1][9] }}{{ {'items': 1}.items }}{{ {'a b': 2}['a b'] }}",
    "{{ [].append(1) }}", "{{ {}.update({}) }}", "{{ ''.__class__ }}|{{ [].append }}|", "{{ 'a'.__class__() }}", "{{ missing() }}", "{{ raise_exception('no') }}", "{{ nothing.a.b }}",
    "{{ cycler('a', 'b').next() }}{% set c = cycler(1, 2) %}{{ c.next() }}{{ c.current }}{{ c.next() }}{{ c.next() }}{{ c.reset() }}{{ c.next() }}",
    "{% set j = joiner('; ') %}{{ j() }}a{{ j() }}b{{ joiner()() }}", "{{ dict(a=1, b=2) }}{{ dict([('x', 1)]) }}{{ dict({'a': 1}, b=3) }}{{ dict.fromkeys('ab', 0) }}",
    "{% include 'x' %}", "{% import 'x' as y %}", "{% extends 'x' %}", "{% unknown %}", "{% for %}", "{{ 1 + }}", "{{ 'a }}", "{{ (1 }}", "{% if 1 %}", "{{ 1 | nothing }}", "{{ 1 is nothing }}",
    "{{ '<' | e ~ '<' }}{{ ('<' | e) + '<' }}{{ '<' | safe | upper }}{{ '%s' | e % '<' }}",
    "{% autoescape true %}{{ '<' }}{{ '<' | safe }}{{ '<' ~ '>' }}{% endautoescape %}{{ '<' }}",
    "{% generation %}a{{ 1 }}{% endgeneration %}", "{{ [3, 1] | sort | first }}{{ 1 | string + '2' }}{{ -1 | abs }}{{ 2 ** 3 ** 2 }}{{ -2 ** 2 }}{{ 7 // -2 }}{{ -7 % 3 }}{{ 7.5 // 2 }}{{ 2 ** -1 }}",
    "{% set ns = namespace() %}{% set ns._x = 1 %}", "{% set x = 1 %}{% set x.y = 1 %}", "{% break %}",
    "{% for a in 'añ' %}{{ a }}.{% endfor %}{% for a in {'x': 1} %}{{ a }}{% endfor %}{% for a, b in [[1, 2], (3, 4)] %}{{ a + b }}{% endfor %}",
    "{% for a in [{'g': 1, 'x': 2}, {'g': 1, 'x': 3}, {'g': 0, 'x': 4}] | groupby('g') %}{{ a.grouper }}:{{ a.list | map(attribute='x') | join(',') }};{% endfor %}",
]  # fmt: skip
OPERANDS = ["1", "-7", "2.5", "0", "true", "'ab'", "'%s'", "[1, 2]", "(1,)", "{'a': 1}", "none", "missing", "2"]
OPERATORS = ["+", "-", "*", "/", "//", "%", "**", "~", "==", "!=", "<", "<=", ">", ">=", "in", "not in", "and", "or"]
SLICES = ["[0]", "[-1]", "[9]", "[1:]", "[:-1]", "[::2]", "[::-1]", "[5:1:-2]", "[-2:]", "['a']", "[1:3:1]", "[none:2]", "[0:99]", "[::0]"]
PERCENT_VALUES = ["42", "-7", "3.14159", "-0.0", "1e20", "'text'", "none", "[1, 'a']", "true", "0"]
PERCENT_FLAGS = ["", "-", "0", "+", " ", "#", "-+", "#0"]
PERCENT_SIZES = ["", "8", ".2", "9.3", ".0"]
SPECS = [
    "", "5", "<8", ">8", "^9", "*^9", "=8", "08", "+", " ", "-8", ",", "_", "010,", ".2", ".0", "8.3", "x", "#x", "#o", "#b", "X", "c", "d", "n", "e", ".2e", "E", "f", ".1f", "F",
    "g", ".3g", "G", "%", ".1%", "s", ".3s", "q", "08.2f", "+.1e", "_x", "#_b", "z.0f", "<05", ",.2f", "#.3g", "+010,d", "{1}",
]  # fmt: skip
FORMATS = [
    "'{} {}'.format(1, 'a')", "'{1}{0}'.format(1, 2)", "'{a.b}{c[0]}{c[x]}'.format(a={'b': 1}, c={'x': 2})", "'{!r}{!s:>4}{!a}'.format('é', 'b', 'ü')", "'{{}}{0}'.format(1)",
    "'{:{}}'.format('a', 5)", "'{0:{w}.{p}f}'.format(3.14159, w=8, p=2)", "'{}{0}'.format(1)", "'{'.format(1)", "'}'.format(1)", "'{x}'.format(1)", "'{2}'.format(1)", "'{a.upper}'.format(a=1)",
    "'{0[1]}'.format([1, 2])", "'%(a)s-%(b)05d' % {'a': 1, 'b': 2}", "'%s %s' % (1,)", "'%s' % (1, 2)", "'%%|%5s|%-5s|%c%c' % ('a', 'b', 'c', 65)", "'%*d|%.*f' % (5, 3, 2, 1.5)", "'%d' % '3'", "'%q' % 1", "'%' % 1",
    "'abc' % []", "'abc' % 1", "'%s' % missing", "'%(a)s' % 1", "'%r %a' % ('é', 'é')",
]  # fmt: skip
TIMES = [0, 1_709_210_096, 978_220_800, 1_735_689_599, 1_735_603_200, 1_104_537_600, 1_483_228_800, 4_102_444_799, 951_782_400, 1_230_768_000, 1_609_459_200, 68_255_999]
CODES = [*"aAbBcCdDeFgGhHIjklmMnpPrRsStTuUVwWxXyYzZ%fqE", "-d", "_d", "0e", "-H", "-I", "-j", "_H", "^a", "^B", "#b", "#p", "5d", "10A", "-10d", "-10A", "-6p", "Ey", "Od", "EY", "_m", "05k", "#Z", "-y", "6Y"]


def rows():
    for name in sorted(FILTERS):
        for value in VALUES:
            if name == "random" and value not in ("[]", "''", "missing", "42"):
                continue
            if name == "urlize" and "'" not in value:
                continue
            yield f"{value} | {name}" if not value.startswith("-") else f"({value}) | {name}"
            for arguments in FILTER_ARGUMENTS.get(name, []):
                yield f"({value}) | {name}({arguments})"
    for string, name in itertools.product(STRINGS, ["capitalize", "title", "wordcount", "wordwrap(11)", "indent", "truncate(8)", "pprint", "tojson", "urlencode", "striptags", "escape", "trim", "string", "reverse", "int", "float", "tojson(ensure_ascii=true)", "wordwrap(6, true, '/')"]):
        yield f"{string!r} | {name}"
    for name in sorted(TESTS):
        if not name.isidentifier():
            continue
        for value in VALUES:
            yield f"({value}) is {name}"
            for arguments in TEST_ARGUMENTS.get(name, ["1", "'a'"]):
                yield f"({value}) is {name}({arguments})"
    methods = [(str, STRINGS), (list, [[], [1, 2, 1], ["a", ["b"]]]), (tuple, [(), (1, 2, 1)]), (dict, [{}, {"a": 1, "b": [2]}]), (int, [0, 5, -300]), (float, [0.5, 2.0, -0.1]), (range, [range(3)])]
    for kind, values in methods:
        for name, value in itertools.product([name for name in dir(kind) if not name.startswith("_")], values):
            for arguments in METHOD_ARGUMENTS.get(name, [""]):
                yield f"({value!r}).{name}({arguments})"
            if kind in (int, float, range):
                yield f"({value!r}).{name} is callable"
    for operator, left, right in itertools.product(OPERATORS, OPERANDS, OPERANDS):
        yield f"({left}) {operator} ({right})"
    for sign, value in itertools.product(["-", "+", "not "], VALUES):
        yield f"{sign}({value})"
    for slice, value in itertools.product(SLICES, ["'abcdé'", "[1, 2, 3, 4]", "(1, 2, 3)", "range(6)", "{'a': 1, 0: 2}", "5"]):
        yield f"({value}){slice}"
    for kind, flags, size, value in itertools.product("diouxXeEfFgGcrsa", PERCENT_FLAGS, PERCENT_SIZES, PERCENT_VALUES):
        if flags in ("", "0", "#", "-+") or size in ("", "9.3"):
            yield f"'%{flags}{size}{kind}' % ({value},)"
    for spec, value in itertools.product(SPECS, ["42", "-1234567", "3.14159", "-0.001", "1e20", "'text'", "true", "none", "[1]", "0.0", "1234567.891"]):
        yield f"'{{0:{spec}}}'.format({value}, 6)"
    yield from FORMATS
    # Large values, whose text `pprint` breaks.
    long = {"name": "a" * 30, "list": list(range(40)), "text": "word " * 30, "nested": {"b": ["x" * 50, {"z": "y z " * 20}], "a": ("t",) * 20}}
    yield f"{long!r} | pprint"
    lines = ["line one\nline two " * 8, [], {}]
    yield f"{lines!r} | pprint"
    yield f"{long!r} | tojson(indent=1)"


def render(template):
    try:
        return {"text": chat_template_utils._compile_jinja_template(template).render()}
    except Exception as error:
        return {"error": type(error).__name__}


def sample(expression):
    row = {"template": f"{{{{ {expression} }}}}", **render(f"{{{{ {expression} }}}}")}
    if " at 0x" in row.get("text", ""):
        template = f"{{{{ ({expression}) | list }}}}"
        row = {"template": template, **render(template)}
    if any(f".{name}(" in expression for name in LEFT_OUT):
        row = {"template": row["template"], "left_out": next(name for name in LEFT_OUT if f".{name}(" in expression)}
    if row.get("text", "").endswith("j)"):
        row = {"template": row["template"], "left_out": "complex"}
    return row


def main():
    os.environ["TZ"] = "UTC"
    time.tzset()
    found = {}
    for expression in rows():
        row = sample(expression)
        found[row["template"]] = row
    for template in STATEMENTS:
        found[template] = {"template": template, **render(template)}
    found["lipsum"] = {"template": "{{ lipsum() }}", "left_out": "lipsum"}
    kept = [row for row in found.values() if not any(part in row.get("text", "") for part in (" at 0x", "bound method"))]
    times = []
    for seconds, code in itertools.product(TIMES, CODES):
        moment = datetime.datetime.fromtimestamp(seconds).replace(microsecond=4567)
        times.append({"format": f"[%{code}]", "seconds": seconds, "text": moment.strftime(f"[%{code}]")})
    # One line a template: with its text, with `null` for an error, or with the name of what is left out.
    lines = [json.dumps([row["template"], row.get("text"), *([row["left_out"]] if "left_out" in row else [])], ensure_ascii=False) for row in kept]
    times = [json.dumps([row["format"], row["seconds"], row["text"]], ensure_ascii=False) for row in times]
    folded = "".join(chr(code) for code in range(0x250, 0x2100) if chr(code).isalpha() and code != 0x264)
    cases = {"text": folded, **{name: getattr(folded, name)() for name in ("title", "capitalize", "casefold", "swapcase", "upper", "lower")}}
    version = jinja2.__version__
    OUT.write_text(
        f'{{"jinja2": "{version}",\n"templates": [\n' + ",\n".join(lines) + '\n],\n"times": [\n' + ",\n".join(times) + '\n],\n"cases": ' + json.dumps(cases, ensure_ascii=False) + "}\n"
    )
    print(len(lines), "templates,", len(times), "times")


if __name__ == "__main__":
    main()
