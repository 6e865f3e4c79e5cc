"""Runs what the pages of the book show, and checks the output that they show.

    python tools/book.py [PAGE...]     README.md and all pages of docs/SUMMARY.md by default, each in an empty folder

Blocks of a page run in their order. `console` blocks are commands of bash behind `$ `, with what they print below; `python` blocks are
one session, and a `text` block right behind one is what it prints. `rust` blocks are doctests of the crate `rushlight`, which includes
the page. A comment before a block says more:

    <!-- not run: why -->         the block cannot run here
    <!-- needs: PROGRAM -->       the block is not run where there is no such program
    <!-- file: NAME -->           the block is the content of a file
    <!-- raises -->               the Python block ends with an exception, whose text belongs to what it prints
    <!-- exit code 6 -->          the last command of the block ends with this code, 0 by default
    <!-- run: COMMANDS -->        commands for bash that readers do not need, such as one that fetches a file; $ROOT is the repository

Measured numbers, which stand before a unit of time, a rate, bytes, ` %` or ` dB`, are not compared, and neither is how many spaces there
are.
`…` is any text within a line, and any number of lines by itself.
"""

import argparse
import collections
import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
DOCTESTS = ROOT / "crates/rushlight/src/book.rs"
PATIENCE = 300
LANGUAGES = {
    "c", "cmake", "console", "cpp", "html", "java", "js", "json", "kotlin", "python", "rust", "sh", "swift", "text", "toml",
}
TOKEN = re.compile(r"<!--(.*?)-->|^(```+)([^\n]*)\n(.*?)^\2[ ]*$", re.DOTALL | re.MULTILINE)
NUMBER = re.compile(r"[-+]?\d[\d.,]*(?:e[-+]?\d+)?\s?(?:ns|µs|ms|s|dB|k?B|MB|GB|tokens/s|G[BFO]\w*/s)(?!\w)|\d[\d.]*\s%")


class Failure(Exception):
    pass


Block = collections.namedtuple("Block", "line language text directives shown")


def blocks(page):
    """The fenced blocks of a page with the comments before each; `shown` is the `text` block right behind one."""
    source = page.read_text()
    found, directives, end = [], [], 0
    for match in TOKEN.finditer(source):
        comment, _, info, text = match.groups()
        between = source[end : match.start()]
        end = match.end()
        line = source.count("\n", 0, match.start()) + 1
        if comment is not None:
            directives.append((line, comment.strip()))
            continue
        language = re.split(r"[,\s]", info)[0]
        if language not in LANGUAGES:
            raise Failure(f"{name_of(page)}:{line}: a block of the language {language!r}, of {', '.join(sorted(LANGUAGES))}")
        follows = language == "text" and not directives and not between.strip() and found and found[-1].language == "python"
        if follows:
            found[-1] = found[-1]._replace(shown=text)
        else:
            found.append(Block(line, language, text, directives, None))
        directives = []
    return found


def directive(block, name):
    """The text behind `name` of a comment before the block, or None."""
    texts = [text[len(name) :].strip() for _, text in block.directives if text.startswith(name)]
    return texts[0] if texts else None


def without_numbers(line):
    return " ".join(NUMBER.sub("#", line).split())


def expects(shown, printed):
    """True if what was printed is what the page shows."""
    pattern = ""
    for line in shown.strip().splitlines():
        if line.strip() == "…":
            pattern += r"(?:.*\n)*?"
        else:
            pattern += ".*?".join(re.escape(part) for part in without_numbers(line).split("…")) + "\n"
    text = "".join(without_numbers(line) + "\n" for line in printed.strip().splitlines())
    return re.fullmatch(pattern, text) is not None


def check_output(place, shown, printed):
    if not expects(shown, printed):
        raise Failure(f"{place}: the page shows\n{indented(shown)}\nand it prints\n{indented(printed)}")


def indented(text):
    return "\n".join("    " + line for line in text.rstrip().splitlines())


SESSION = r"""
import contextlib, io, json, sys, traceback
out, names = sys.stdout, {"__name__": "__main__"}
for line in sys.stdin:
    text, raised = io.StringIO(), None
    with contextlib.redirect_stdout(text):
        try:
            exec(compile(json.loads(line), "page", "exec"), names)
        except BaseException as error:
            raised = "".join(traceback.format_exception_only(error))
    print(json.dumps([text.getvalue(), raised]), file=out, flush=True)
"""


class Session:
    """A Python in the folder of a page, which runs blocks one after the other."""

    def __init__(self, folder, environment):
        self.process = subprocess.Popen(
            [sys.executable, "-c", SESSION], cwd=folder, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def run(self, source):
        print(json.dumps(source), file=self.process.stdin, flush=True)
        answer = self.process.stdout.readline()
        if not answer:
            raise Failure("Python has ended")
        return json.loads(answer)

    def close(self):
        self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()


class Page:
    """The run of one page."""

    def __init__(self, path, folder):
        self.path, self.folder = path, folder
        self.session = None
        self.counts = collections.Counter()
        self.not_run = []
        tools = folder.parent / (folder.name + ".bin")
        tools.mkdir()
        rushlight = pathlib.Path(os.environ.get("RUSHLIGHT", ROOT / "target/checked/rushlight")).resolve()
        (tools / "rushlight").symlink_to(rushlight)
        self.environment = os.environ | {
            "PATH": f"{tools}:{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}",
            "ROOT": str(ROOT),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONWARNINGS": "ignore",
            "COLUMNS": "160",
            "XDG_CACHE_HOME": str(tools / "cache"),
        }

    def place(self, line):
        return f"{name_of(self.path)}:{line}"

    def run(self):
        try:
            for block in blocks(self.path):
                self.block(block)
        finally:
            if self.session:
                self.session.close()

    def block(self, block):
        for line, text in block.directives:
            if text.startswith("run:"):
                self.command(line, text[4:].strip())
        reason, file = directive(block, "not run:"), directive(block, "file:")
        needed = directive(block, "needs:")
        if needed and not shutil.which(needed):
            reason = f"there is no {needed}"
        if reason is not None:
            if not reason:
                raise Failure(f"{self.place(block.line)}: `not run:` without a reason")
            self.not_run.append(f"{self.place(block.line)}: {reason}")
        elif file:
            path = self.folder / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text)
        elif block.language == "console":
            self.console(block)
        elif block.language == "python":
            self.python(block)
        elif block.language == "rust":
            page = os.path.relpath(self.path, DOCTESTS.parent)
            if f'include_str!("{page}")' not in DOCTESTS.read_text():
                raise Failure(f"{self.place(block.line)}: {DOCTESTS.relative_to(ROOT)} does not include the page")
            self.counts["rust"] += 1

    def command(self, line, text, code=0):
        done = subprocess.run(
            ["bash", "-c", text],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE,
        )
        if done.returncode != code:
            expected = f" in place of {code}" if code else ""
            raise Failure(f"{self.place(line)}: exit code {done.returncode}{expected} of\n    {text}\n{indented(done.stdout)}")
        return done.stdout

    def console(self, block):
        code = int(directive(block, "exit code") or 0)
        commands = commands_of(block)
        for index, (line, text, shown) in enumerate(commands):
            printed = self.command(line, text, code if index == len(commands) - 1 else 0)
            if shown:
                check_output(self.place(line), shown, printed)
            self.counts["console"] += 1

    def python(self, block):
        self.session = self.session or Session(self.folder, self.environment)
        printed, raised = self.session.run(block.text)
        if (raised is None) == (directive(block, "raises") is not None):
            raise Failure(f"{self.place(block.line)}: {raised or 'no exception'}\n{indented(printed)}")
        if block.shown is not None:
            check_output(self.place(block.line), block.shown, printed + (raised or ""))
        self.counts["python"] += 1


def commands_of(block):
    """(line, command, what the page shows that it prints) of a `console` block."""
    commands, continued = [], False
    for number, line in enumerate(block.text.splitlines(), block.line + 1):
        if continued:
            commands[-1][1] += "\n" + line
        elif line.startswith("$ "):
            commands.append([number, line[2:], ""])
        elif not commands:
            raise Failure(f"line {number}: a `console` block begins with `$ `")
        else:
            commands[-1][2] += line + "\n"
            continue
        continued = line.endswith("\\")
    return commands


def name_of(page):
    return str(page.relative_to(ROOT))


LINK = re.compile(r"\]\(([^)\s#:]*)(?:#([^)\s]*))?\)")
HEADING = re.compile(r"^#+ +(.+?) *$", re.MULTILINE)


def pages():
    """README, and the pages of the book in its order."""
    return [ROOT / "README.md", *(DOCS / path for path in re.findall(r"\]\((\S+?\.md)\)", (DOCS / "SUMMARY.md").read_text()))]


def anchors(page):
    """The anchors of a page's headings, as code hosts and mdBook name them."""
    found, counts = set(), collections.Counter()
    for heading in HEADING.findall(TOKEN.sub("", page.read_text())):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        slug = re.sub(r"[^\w -]", "", text).replace(" ", "-")
        found.add(f"{slug}-{counts[slug]}" if counts[slug] else slug)
        counts[slug] += 1
    return found


def dead_links(page):
    """Links of a page to files, and to headings of pages, that are not there."""
    dead = []
    for link, anchor in LINK.findall(TOKEN.sub("", page.read_text())):
        target = page.parent / link if link else page
        is_heading = not anchor or target.suffix != ".md" or anchor in anchors(target)
        if not target.exists() or not is_heading:
            dead.append(f"{link}#{anchor}" if anchor else link)
    return dead


def run_page(path, folder):
    """Runs a page. Returns the page, its failure or None, and its time in seconds."""
    folder.mkdir()
    page = Page(path, folder)
    failure = None
    start = time.monotonic()
    try:
        page.run()
        if dead := dead_links(path):
            raise Failure(f"{name_of(path)}: links to nothing: {', '.join(dead)}")
    except (Failure, subprocess.TimeoutExpired) as error:
        failure = str(error)
    return page, failure, time.monotonic() - start


def run(paths):
    counts, not_run, failures = collections.Counter(), [], []
    with tempfile.TemporaryDirectory(prefix="book-") as scratch:
        names = [re.sub(r"\W", "-", path.stem) for path in paths]
        folders = [pathlib.Path(scratch) / f"{index}-{name}" for index, name in enumerate(names)]
        with concurrent.futures.ThreadPoolExecutor(2) as threads:
            for page, failure, seconds in threads.map(run_page, paths, folders):
                counts += page.counts
                not_run += page.not_run
                shown = ", ".join(f"{count} {language}" for language, count in sorted(page.counts.items()))
                outcome = "FAILED" if failure else shown or "nothing to run"
                print(f"{name_of(page.path)}: {outcome}, {seconds:.0f} s", flush=True)
                failures += [failure] if failure else []
    for line in not_run:
        print("NOT RUN:", line)
    ran = f"{counts['console']} commands, {counts['python']} blocks of Python; {counts['rust']} blocks of Rust are doctests"
    print(f"{len(paths)} pages: {ran}; {len(not_run)} blocks not run")
    if failures:
        sys.exit("\n".join(failures))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", nargs="*", type=pathlib.Path)
    arguments = parser.parse_args()
    run([page.resolve() for page in arguments.pages] or pages())


if __name__ == "__main__":
    main()
