"""mdBook's preprocessor for `docs`: a book as JSON on standard input, and on standard output again.

Links to files that are not in the book become links to the repository, and `<!-- reference: MODULE -->` the reference of a module of the Python package: its
names in the order of its stub, signatures from there, and docstrings from the sources, which are not imported.
"""

import ast
import json
import os
import pathlib
import re
import sys
import textwrap
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PACKAGE = ROOT / "bindings/python/python"
RUST = [ROOT / "bindings/python/src" / name for name in ("lib.rs", "tensor.rs")]
LINK = re.compile(r"(\]\()([^)\s#:]+)((?:#[^)\s]*)?\))")
BOOK = {DOCS / path for path in re.findall(r"\]\((\S+?\.md)\)", (DOCS / "SUMMARY.md").read_text())}
REFERENCE = re.compile(r"^<!-- reference: (\S+) -->$", re.MULTILINE)
DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
WIDTH = 110


def docstrings(folder):
    """The docstrings of a package's own files, by qualified name."""
    found = {}
    if folder == PACKAGE / "rushlight":
        for path in RUST:
            found |= rust_docstrings(path.read_text())
    for path in sorted(folder.glob("*.py")) if folder.is_dir() else [folder.with_suffix(".py")]:
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, DEFINITIONS):
                found[node.name] = ast.get_docstring(node)
                for member in node.body if isinstance(node, ast.ClassDef) else []:
                    if isinstance(member, DEFINITIONS):
                        found[f"{node.name}.{member.name}"] = ast.get_docstring(member)
    return found


def rust_docstrings(source):
    """Those of the classes and functions that are written in Rust."""
    found, owner = {}, None
    for text, kind, name in re.findall(r"((?:^ *///.*\n)+)(?: *#\[.*\n)* *(?:pub(?:\(\w+\))? )?(struct|fn) (\w+)", source, re.MULTILINE):
        text = "\n".join(line.strip().removeprefix("///").strip() for line in text.splitlines())
        owner = name if kind == "struct" else owner
        found[name if kind == "struct" or not owner else f"{owner}.{name}"] = text
    return found


def signature(node, owner=None):
    """What a call of a function looks like; arguments one a line where they are many."""
    arguments = ast.unparse(node.args)
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    prefix = "await " if isinstance(node, ast.AsyncFunctionDef) else ""
    name = f"{owner}.{node.name}" if owner else node.name
    if owner:
        arguments = re.sub(r"^self(?:, )?(?:/, )?", "", arguments)
    line = f"{prefix}{name}({arguments}){returns}"
    if len(line) <= WIDTH:
        return line
    parts = textwrap.indent("\n".join(part + "," for part in split_arguments(arguments)), "    ")
    return f"{prefix}{name}(\n{parts}\n){returns}"


def split_arguments(text):
    """Arguments of a signature, at the commas that are in no brackets."""
    parts, depth = [""], 0
    for character in text:
        depth += (character in "([{") - (character in ")]}")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts]


def code(text):
    return f"```python\n{text}\n```\n"


def is_public(name):
    return not name.startswith("_")


def is_property(node):
    return any(ast.unparse(decorator).endswith("property") for decorator in node.decorator_list)


def class_page(node, docs):
    bases = [ast.unparse(base) for base in node.bases]
    fields = [member for member in node.body if isinstance(member, ast.AnnAssign) and is_public(member.target.id)]
    parts = [f"### {node.name}\n", f"{docs.get(node.name) or ast.get_docstring(node) or ''}\n"]
    if "Exception" in bases or any(base.endswith(("Error", "Warning")) for base in bases):
        parts.append(f"An exception: a `{bases[0]}`.\n")
    if fields:
        parts.append(code("\n".join(ast.unparse(field) for field in fields)))
    for member in node.body:
        if not isinstance(member, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        if not is_public(member.name) and member.name not in ("__call__", "__init__"):
            continue
        text = docs.get(f"{node.name}.{member.name}") or ast.get_docstring(member) or ""
        if is_property(member):
            returns = f": {ast.unparse(member.returns)}" if member.returns else ""
            shown = f"{node.name}.{member.name}{returns}"
        elif member.name == "__init__":
            shown = signature(member).replace("__init__(self, ", node.name + "(").replace("__init__(self", node.name + "(")
        else:
            shown = signature(member, node.name)
        parts.append(f"{code(shown)}\n{text}\n")
    return "\n".join(parts)


def reference(module):
    """The reference of a module, as Markdown."""
    path = PACKAGE / module.replace(".", "/")
    stub = path / "__init__.pyi" if path.is_dir() else path.with_suffix(".py")
    docs = docstrings(path)
    functions, classes = [], []
    for node in ast.parse(stub.read_text()).body:
        if not isinstance(node, DEFINITIONS) or not is_public(node.name):
            continue
        if isinstance(node, ast.ClassDef):
            classes.append(class_page(node, docs))
        else:
            functions.append(f"### {node.name}\n\n{code(signature(node))}\n{docs.get(node.name) or ''}\n")
    return "\n".join([*functions, *classes])


def repository():
    return tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["repository"]


def rewrite(item, base):
    """Rewrites a chapter and those below it."""
    chapter = item.get("Chapter") if isinstance(item, dict) else None
    if not chapter:
        return
    if chapter["path"]:
        folder = (DOCS / chapter["path"]).parent

        def absolute(match):
            path = pathlib.Path(os.path.normpath(folder / match.group(2)))
            in_book = path.is_relative_to(DOCS) and path.suffix != ".md" and not path.is_dir() or path in BOOK
            outside = path.is_relative_to(ROOT) and not in_book
            return match.group(1) + (base + str(path.relative_to(ROOT)) if outside else match.group(2)) + match.group(3)

        content = LINK.sub(absolute, chapter["content"])
        chapter["content"] = REFERENCE.sub(lambda match: reference(match.group(1)), content)
    for child in chapter["sub_items"]:
        rewrite(child, base)


def main():
    # mdBook asks `supports RENDERER`: every one is.
    if "supports" in sys.argv:
        return
    _, book = json.load(sys.stdin)
    for item in book["items"]:
        rewrite(item, repository() + "/blob/main/")
    json.dump(book, sys.stdout)


if __name__ == "__main__":
    main()
