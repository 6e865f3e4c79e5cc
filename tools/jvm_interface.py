"""Lists the public interface of ExecuTorch's Android library as Java sees it, and compares the jar with it.

    python tools/jvm_interface.py --record CLONE     writes bindings/jvm/tests/executorch.txt; CLONE is a clone of ExecuTorch
    python tools/jvm_interface.py JAR                compares a jar with this file, and the counts with the page; UPDATE_DOCS=1 writes them

`--record` compiles the library's Kotlin with `kotlinc`, against stand-ins for the libraries that it needs. It lists the public members that
`javap` shows, one a line, after the name of their class: a field, or a constructor or function with the types of its arguments. Types have
no package names. Classes that the page calls unsupported are omitted.
"""

import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
RECORDED = ROOT / "bindings/jvm/tests/executorch.txt"
PAGE = ROOT / "docs/how-to/from-executorch.md"
SENTENCE = re.compile(r"The jar has \d+ of the \d+ public constructors, functions and fields of these classes\.")
# Members that the jar lacks. The page names them.
MISSING = ("BackendOption.", "EValue.mData", "EValue.mTypeCode")
# Members that Kotlin hides, although their bytecode is public.
HIDDEN = re.compile(r"\w+\$(Companion|DefaultImpls|ErrorHelper|Tensor_\w+)\..*|(MethodMetadata|Tensor)\.<init>\(.*")

FOLDER = "extension/android/executorch_android/src/main/java/org/pytorch/executorch"
LEFT_OUT = ("extension/asr/", "training/")
# Stand-ins for the libraries that it imports, by package.
STANDINS = {
    "com.facebook.jni": "class HybridData { val isValid = true\n fun resetNative() {} }",
    "com.facebook.jni.annotations": "annotation class DoNotStrip",
    "com.facebook.soloader.nativeloader": "object NativeLoader { @JvmStatic fun isInitialized() = true\n"
    "  @JvmStatic fun init(delegate: SystemDelegate) {}\n  @JvmStatic fun loadLibrary(name: String) = true }\nclass SystemDelegate",
    "android.util": "object Log { @JvmStatic fun e(tag: String, message: String) = 0 }",
}


def older(source):
    """The source for Kotlin 1.3, which has neither trailing commas nor `entries` of enumerations."""
    return re.sub(r",(\s*[)\]>])", r"\1", source).replace("entries.find", "values().find").replace("Float.SIZE_BYTES", "4")


def types(text):
    """The names of types in a list, without packages and type arguments."""
    while "<" in text:
        text = re.sub(r"<[^<>]*>", "", text)
    return [re.sub(r"^.*[.$]", "", name.strip().replace("...", "[]")) for name in text.split(",") if name.strip()]


def members(printed):
    """Lines for the public members in the output of `javap -public`."""
    owner = ""
    for line in printed.splitlines():
        line = line.strip().rstrip(";")
        if line.endswith("{"):
            owner = re.search(r"\b(?:class|interface) (?:[\w.]*\.)?([\w$]+)", line)[1]
            continue
        function = re.fullmatch(r"(?:.* )?([\w.$]+)\((.*)\)(?: throws .*)?", line)
        name = function[1] if function else line.rpartition(" ")[2]
        # Members that Kotlin's compiler adds.
        if not name or "Companion" in line or "$" in name.rpartition(".")[2] or "DefaultConstructorMarker" in line:
            continue
        if not function:
            if line.startswith("public"):
                yield f"{owner}.{name}"
            continue
        name = "<init>" if "." in name or name == owner else name
        yield f"{owner}.{name}({','.join(types(function[2]))})"


def printed(*arguments):
    return subprocess.run([*arguments], check=True, capture_output=True, text=True).stdout


def record(clone):
    commit = printed("git", "-C", clone, "rev-parse", "HEAD").split()[-1]
    paths = printed("git", "-C", clone, "ls-tree", "-r", "--name-only", commit, FOLDER).split()
    names = [path.removeprefix(FOLDER + "/") for path in paths if path.endswith(".kt")]
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for name in names:
            if not name.startswith(LEFT_OUT):
                source = printed("git", "-C", clone, "show", f"{commit}:{FOLDER}/{name}")
                (folder / name.rpartition("/")[2]).write_text(older(source))
        for package, source in STANDINS.items():
            (folder / f"{package}.kt").write_text(f"package {package}\n\n{source}\n")
        subprocess.run(["kotlinc", "-nowarn", "-d", folder / "classes", *sorted(folder.glob("*.kt"))], check=True)
        classes = sorted((folder / "classes/org/pytorch").rglob("*.class"))
        listed = sorted(member for member in set(members(printed("javap", "-public", *classes))) if not HIDDEN.fullmatch(member))
    RECORDED.write_text("\n".join([f"# ExecuTorch {commit[:12]}; tools/jvm_interface.py wrote this file.", *listed, ""]))


def count(jar):
    theirs = {line for line in RECORDED.read_text().splitlines() if not line.startswith("#")}
    names = [name for name in zipfile.ZipFile(jar).namelist() if name.endswith(".class") and name.startswith("org/pytorch/")]
    classes = [name.removesuffix(".class").replace("/", ".") for name in names]
    missing = theirs - set(members(printed("javap", "-public", "-cp", jar, *classes)))
    unnamed = sorted(member for member in missing if not member.startswith(MISSING))
    if unnamed:
        sys.exit("the jar lacks members of ExecuTorch's classes:\n" + "\n".join(unnamed))
    kinds = "public constructors, functions and fields of these classes"
    sentence = f"The jar has {len(theirs - missing)} of the {len(theirs)} {kinds}."
    if "UPDATE_DOCS" in os.environ:
        PAGE.write_text(SENTENCE.sub(sentence, PAGE.read_text()))
    if sentence not in PAGE.read_text():
        sys.exit(f"{PAGE} is out of date: {sentence} Run this with UPDATE_DOCS=1")
    print(sentence)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("jar", nargs="?", type=pathlib.Path)
    parser.add_argument("--record", metavar="CLONE", type=pathlib.Path)
    options = parser.parse_args()
    if options.record:
        record(options.record)
    if options.jar:
        count(options.jar)


if __name__ == "__main__":
    main()
