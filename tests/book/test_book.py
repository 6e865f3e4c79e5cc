"""The tools of the book: what `tools/book.py` finds wrong with a page, and the reference for Python."""

import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import book
import book_pages
import rushlight


@pytest.mark.parametrize(
    "shown, printed, fits",
    [
        ("a 1.5 ms b", "a  27 µs  b", True),
        ("4.9 kB of 26 kB", "5.1 kB of 26.7 kB", True),
        ("12 nodes", "13 nodes", False),
        ("f32 [1, …]", "f32 [1, 2, 3]", True),
        ("first\n…\nlast", "first\nlast", True),
        ("first\n…\nlast", "first\nsecond\nthird\nlast", True),
        ("first\nlast", "first\nsecond\nlast", False),
        ("first\n…", "second\nfirst", False),
    ],
)
def test_what_output_fits(shown, printed, fits):
    assert book.expects(shown, printed) == fits


PAGES = {
    "right": ("```console\n$ echo one \\\n    two\none two\n$ false || echo three\nthree\n```\n", None),
    "other-output": ("```console\n$ echo two\none\n```\n", "two"),
    "exit-code": ("```console\n$ exit 3\n```\n", "exit code 3"),
    "expected-exit-code": ("<!-- exit code 3 -->\n```console\n$ exit 3\n```\n", None),
    "session": ("```python\nx = 1\n```\n\n```python\nprint(x + 1)\n```\n\n```text\n2\n```\n", None),
    "exception": ("```python\n1 / 0\n```\n", "ZeroDivisionError"),
    "expected-exception": ("<!-- raises -->\n```python\n1 / 0\n```\n\n```text\nZeroDivisionError: …\n```\n", None),
    "no-exception": ("<!-- raises -->\n```python\n1\n```\n", "no exception"),
    "file": ("<!-- file: a.py -->\n```python\nprint(5)\n```\n```console\n$ python a.py\n5\n```\n", None),
    "no-reason": ("<!-- not run: -->\n```console\n$ false\n```\n", "without a reason"),
    "no-doctest": ("```rust\nfn main() {}\n```\n", "does not include the page"),
    "unknown-language": ("```perl\n1\n```\n", "perl"),
    "dead-link": ("[a page](nothing.md)\n", "nothing.md"),
    "anchor": ("## Two words\n\n[here](#two-words) and [here](page.md#two-words)\n", None),
    "dead-anchor": ("## Two words\n\n[there](page.md#three-words)\n", "page.md#three-words"),
}


def test_no_page_of_the_repository_has_a_dead_link():
    listed = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\n")
    # The README.md of a project that `rushlight new` writes.
    pages = [ROOT / path for path in listed if path and not path.startswith("crates/cli/templates/")]
    dead = {str(page): links for page in pages if page.exists() and (links := book.dead_links(page))}
    assert len(pages) > 40 and not dead


@pytest.mark.parametrize("name", PAGES)
def test_a_page(name, tmp_path, monkeypatch):
    text, reason = PAGES[name]
    monkeypatch.setattr(book, "ROOT", tmp_path)
    doctests = tmp_path / "doctests.rs"
    doctests.write_text("")
    monkeypatch.setattr(book, "DOCTESTS", doctests)
    page = tmp_path / "page.md"
    page.write_text(text)
    _, failure, _ = book.run_page(page, tmp_path / "run")
    assert (failure is None) if reason is None else (failure and reason in failure), failure


def test_the_reference_has_all_names():
    text = book_pages.reference("rushlight")
    found = set(re.findall(r"^### (\w+)$", text, re.MULTILINE))
    assert {name for name in rushlight.__all__ if not name.startswith("__")} <= found
    # Docstrings of Python and of Rust.
    for part in ("Loads a program.", "Program.save(", "Names of the built-in operators.", "The elements as nested lists"):
        assert part in text
