"""Counts the functions of ExecuTorch's C++ interface that Rushlight's headers have, in both sets of headers."""

import importlib.metadata
import os
import pathlib
import re

import pytest

executorch = pytest.importorskip("executorch.extension.pybindings")

ROOT = pathlib.Path(__file__).parents[3]
OURS = ROOT / "bindings/cpp/include/executorch"
PAGE = ROOT / "docs/how-to/from-executorch.md"
SENTENCE = re.compile(r"Rushlight has \d+ of the \d+ public functions of these classes and headers in executorch \S+\.")
# Headers with their classes. An empty list stands for the functions of the namespace.
HEADERS = {
    "extension/module/module.h": ["Module"],
    "extension/tensor/tensor_ptr.h": [],
    "extension/tensor/tensor_ptr_maker.h": [],
    "extension/data_loader/file_data_loader.h": ["FileDataLoader"],
    "extension/data_loader/mmap_data_loader.h": ["MmapDataLoader"],
    "extension/data_loader/buffer_data_loader.h": ["BufferDataLoader"],
    "runtime/executor/method_meta.h": ["TensorInfo", "MethodMeta"],
    "runtime/core/evalue.h": ["EValue"],
    "runtime/core/result.h": ["Result"],
    "runtime/core/span.h": ["Span"],
    "runtime/core/array_ref.h": ["ArrayRef"],
}
# Patterns of the missing functions, by the words that the page has for them.
LEFT_OUT = {
    "lists, optionals, layouts, memory formats and devices in an `EValue`": r"EValue::(is|to|tryTo)\w*(List|Optional|Layout|MemoryFormat|Device)\w*",
    "`EValue::tryTo<T>` and `EValue::tryToScalarType`": r"EValue::tryTo(ScalarType)?",
    "the `load`, `load_into` and `size` of data loaders": r"\w+DataLoader::(load|load_into|size)",
    "the deprecated `From`": r"\w+DataLoader::From",
    "`Module::program`, `Module::method`, `Module::debug_buffer`": r"Module::(program|method|debug_buffer)",
    "`MethodMeta::memory_planned_buffer_device`": r"MethodMeta::memory_planned_buffer_device",
    "`clone_tensor_ptr_to`": r"clone_tensor_ptr_to",
}
NAMED = re.compile(r"(operator\s*(?:\(\)|\[\]|[^\s(]+)|~?\w+)\s*\($")


def without_comments(text):
    text = re.sub(r"/\*.*?\*/|//[^\n]*", "", text, flags=re.DOTALL)
    return re.sub(r"^\s*#(?:[^\n]*\\\n)*[^\n]*$", "", text, flags=re.MULTILINE)


def block(text, start):
    """The text between the braces that open at or after `start`."""
    start = text.index("{", start)
    depth = 0
    for at in range(start, len(text)):
        depth += (text[at] == "{") - (text[at] == "}")
        if depth == 0:
            return text[start + 1 : at]
    raise ValueError("a brace is not closed")


def declarations(text):
    """(head, body) of each declaration at the top level."""
    head, depth, body = "", 0, ""
    for character in text:
        if character == "}":
            depth -= 1
            if depth == 0:
                yield head, body
                head, body = "", ""
                continue
        if depth > 0:
            body += character
        elif character == ";":
            yield head, ""
            head = ""
        elif character != "{":
            head += character
        if character == "{":
            depth += 1


def function_of(head):
    """The name of the function that a declaration declares; None if it declares none."""
    depth, angles = 0, 0
    for at, character in enumerate(head):
        # Arguments of templates may have parentheses.
        angles += (character == "<") - (character == ">" and head[at - 1] != "-")
        if character == "(" and angles <= 0 and (named := NAMED.search(head[: at + 1])):
            name = re.sub(r"\s", "", named[1])
            return None if name in {"ET_CHECK_MSG", "decltype", "alignas", "__attribute__"} else name
        depth += (character == "(") - (character == ")")
    return None


def members(text, name):
    """The public functions of a class, and those that only name a replacement."""
    kind = re.search(rf"\b(class|struct)\s+{name}\b[^;{{]*{{", text)
    access, found, refused = ("public" if kind[1] == "struct" else "private"), set(), set()
    for head, body in declarations(block(text, kind.start())):
        for label in re.findall(r"\b(public|private|protected)\s*:", head):
            access = label
        head = re.sub(r"\b(public|private|protected)\s*:(?!:)", "", head)
        function = function_of(head)
        if access != "public" or function is None or function.lstrip("~") == name or function == "operator=" or "friend" in head:
            continue
        (refused if "is_served<" in body else found).add(f"{name}::{function}")
    return found, refused - found


def functions(text):
    """The functions of the innermost namespaces of a header."""
    found, refused = set(), set()

    def visit(text):
        for head, body in declarations(text):
            if re.search(r"\bnamespace\b", head) and not re.search(r"\b(internal|detail)\b", head):
                visit(body)
            elif not re.search(r"\b(class|struct|enum|using|typedef|namespace)\b(?!.*\()", head) and (name := function_of(head)):
                (refused if "is_served<" in body else found).add(name)

    visit(text)
    return found, refused - found


def interface(include):
    found, refused = set(), set()
    for header, classes in HEADERS.items():
        text = without_comments((include / header).read_text())
        for part in [members(text, name) for name in classes] or [functions(text)]:
            found |= part[0]
            refused |= part[1]
    return found, refused


def test_functions_are_counted():
    (theirs, _), (ours, refused) = interface(pathlib.Path(executorch.__path__[0]).parents[1] / "include/executorch"), interface(OURS)
    assert {"Module::forward", "EValue::toTensor", "make_tensor_ptr", "Result::ok", "Span::size"} <= theirs & ours
    missing, text = theirs - ours, " ".join(PAGE.read_text().split())
    assert refused <= missing
    for words, pattern in LEFT_OUT.items():
        assert words in text and any(re.fullmatch(pattern, name) for name in missing), words
    unnamed = [name for name in missing if not any(re.fullmatch(pattern, name) for pattern in LEFT_OUT.values())]
    assert not unnamed, unnamed
    version = importlib.metadata.version("executorch")
    counts = f"{len(theirs & ours)} of the {len(theirs)}"
    sentence = f"Rushlight has {counts} public functions of these classes and headers in executorch {version}."
    if "UPDATE_DOCS" in os.environ:
        PAGE.write_text(SENTENCE.sub(sentence, PAGE.read_text()))
    assert sentence in PAGE.read_text(), f"{PAGE} is out of date: run this test with UPDATE_DOCS=1"
