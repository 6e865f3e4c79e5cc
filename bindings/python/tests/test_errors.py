"""Exceptions of the package, which are also those of Python for files, and pickled modules."""

import errno
import os
import pathlib
import pickle
import shutil
import subprocess
import sys

import pytest
import rushlight
from rushlight._errors import make

torch = pytest.importorskip("torch")
SMALL = pathlib.Path(__file__).resolve().parents[3] / "examples" / "cortex-m" / "digits.pt2"
# Python's classes of file errors. The package has a subclass of each.
CLASSES = (FileNotFoundError, FileExistsError, PermissionError, IsADirectoryError, NotADirectoryError, BrokenPipeError)


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    file = tmp_path_factory.mktemp("errors") / "model.pte"
    rushlight.export(torch.nn.Linear(4, 2), (torch.randn(1, 4),)).save(file)
    return file


def test_a_file_that_is_not_there(tmp_path):
    missing = tmp_path / "missing.pte"
    for call in (rushlight.load, rushlight.compile):
        with pytest.raises(FileNotFoundError) as caught:
            call(missing)
        assert isinstance(caught.value, rushlight.Error)
        assert caught.value.errno == errno.ENOENT and caught.value.filename == str(missing)
        assert str(caught.value).startswith("[NotFound 0x20] cannot open")
        copy = pickle.loads(pickle.dumps(caught.value))
        assert str(copy) == str(caught.value) and copy.filename == str(missing) and copy.code == caught.value.code


def test_a_folder_that_is_not_there(file, tmp_path):
    program = rushlight.export(torch.nn.Linear(4, 2), (torch.randn(1, 4),))
    with pytest.raises(FileNotFoundError, match="make the folder first"):
        program.save(tmp_path / "none" / "model.pte")


@pytest.mark.skipif(getattr(os, "geteuid", lambda: 0)() == 0, reason="root may read and write everything")
def test_a_file_that_may_not_be_read(file, tmp_path):
    secret = tmp_path / "secret.pte"
    secret.write_bytes(file.read_bytes())
    secret.chmod(0)
    with pytest.raises(PermissionError) as caught:
        rushlight.load(secret)
    assert isinstance(caught.value, rushlight.Error) and caught.value.filename == str(secret)


@pytest.mark.skipif(sys.platform == "win32", reason="the error numbers of the system differ from those of C")
@pytest.mark.parametrize("number", sorted(errno.errorcode))
def test_error_numbers_of_the_system_select_the_class(number):
    error = make("cannot open `x`", (number, "x"), code=3)
    python = OSError(number, os.strerror(number), "x")
    assert isinstance(error, rushlight.Error) and isinstance(error, OSError)
    if type(python) in CLASSES:
        assert isinstance(error, type(python))
    for error in (error, pickle.loads(pickle.dumps(error))):
        assert (error.errno, error.strerror, error.filename) == (python.errno, python.strerror, python.filename)
        assert (error.code, str(error)) == (3, "cannot open `x`")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="the system has no device that is full")
def test_a_device_that_is_full(tmp_path):
    program = rushlight.export(torch.nn.Linear(4, 2), (torch.randn(1, 4),))
    with pytest.raises(OSError) as caught:
        program.save("/dev/full")
    assert isinstance(caught.value, rushlight.Error)
    assert (caught.value.errno, caught.value.strerror) == (errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_folder_is_not_a_file(tmp_path):
    program = rushlight.compile(SMALL)
    for call in (rushlight.load, rushlight.compile, lambda folder: rushlight.compile({"a": SMALL, "b": folder}), program.save):
        with pytest.raises(IsADirectoryError) as caught:
            call(tmp_path)
        assert isinstance(caught.value, rushlight.Error) and caught.value.filename == str(tmp_path)
        assert caught.value.errno == errno.EISDIR and "a folder" in str(caught.value)


def test_other_errors_are_not_file_errors(file):
    with pytest.raises(rushlight.Error) as caught:
        rushlight.load(b"not a program")
    assert not isinstance(caught.value, OSError)


def test_modules_are_pickled_by_path(file):
    module = rushlight.load(file, threads=1, lower="cpu")
    copy = pickle.loads(pickle.dumps(module))
    x = torch.randn(1, 4)
    assert torch.equal(module(x), copy(x))
    assert copy.report.lowered
    with pytest.raises(TypeError, match="loaded from bytes cannot be pickled"):
        pickle.dumps(rushlight.load(file.read_bytes()))
    pickled = pickle.dumps(rushlight.load(file))
    os.remove(file)
    with pytest.raises(FileNotFoundError):
        pickle.loads(pickled)


def saved(file, seed):
    torch.manual_seed(seed)
    rushlight.export(torch.nn.Linear(4, 2), (torch.randn(1, 4),), external_weights=True).save(file)
    return file


def test_pickles_have_absolute_paths(tmp_path, monkeypatch):
    for seed, folder in enumerate(("one", "two")):
        (tmp_path / folder).mkdir()
        saved(tmp_path / folder / "model.pte", seed)
    monkeypatch.chdir(tmp_path / "one")
    module = rushlight.load("model.pte", data="model.ptd", cache="cache")
    x = torch.randn(1, 4)
    pickled, expected = pickle.dumps(module), module(x)
    monkeypatch.chdir(tmp_path / "two")
    copy = pickle.loads(pickled)
    assert torch.equal(copy(x), expected)
    assert pickle.dumps(copy) == pickled
    assert not (tmp_path / "two" / "cache").exists()


@pytest.mark.parametrize("replaced", ["model.pte", "model.ptd"])
def test_a_pickle_is_not_of_another_file(tmp_path, replaced):
    file, data = saved(tmp_path / "model.pte", 0), tmp_path / "model.ptd"
    module = rushlight.load(file, data=[data])
    pickled = pickle.dumps(module)
    # The same bytes in another place, as on another machine.
    shutil.copy(tmp_path / replaced, tmp_path / "copy")
    os.replace(tmp_path / "copy", tmp_path / replaced)
    x = torch.randn(1, 4)
    assert torch.equal(pickle.loads(pickled)(x), module(x))
    # Another model, whose files have the same sizes and times.
    found = (tmp_path / replaced).stat()
    other = rushlight.export(torch.nn.Linear(4, 2), (torch.randn(1, 4),), external_weights=True)
    if replaced == "model.ptd":
        ((_, other),) = other.external_data.items()
        assert len(other) == found.st_size
    else:
        other = other.buffer + b"another"
    (tmp_path / "copy").write_bytes(other)
    os.utime(tmp_path / "copy", ns=(found.st_atime_ns, found.st_mtime_ns))
    os.replace(tmp_path / "copy", tmp_path / replaced)
    with pytest.raises(rushlight.Error, match=rf"(?s){replaced}` is another file.*expected.*got.*help"):
        pickle.loads(pickled)


def test_a_module_whose_file_has_changed_is_not_pickled(tmp_path):
    file = saved(tmp_path / "model.pte", 0)
    module = rushlight.load(file, data=tmp_path / "model.ptd")
    saved(file, 1)
    with pytest.raises(rushlight.Error, match="has changed since the module was loaded") as caught:
        pickle.dumps(module)
    assert caught.value.code_name == "InvalidState"


@pytest.mark.parametrize(
    ("call", "kind", "text"),
    [
        (lambda file: rushlight.compile({5: file}), TypeError, "the name of a method must be a str, got 5"),
        (lambda file: rushlight.compile({"\ud800": file}), ValueError, "name of a method must be .* without lone surrogates"),
        (lambda file: rushlight.compile(file, constant_methods={5: 1}), TypeError, "constant method must be a str, got 5"),
        (lambda file: rushlight.compile(file, kv_cache=8), TypeError, "kv_cache must be a str, got 8"),
        (lambda file: rushlight.compile(file, share_state=1), TypeError, "share_state must be a bool, got 1"),
        (lambda file: rushlight.compile(file, constant_methods=5), TypeError, "constant_methods must be a dict"),
        (lambda file: rushlight.compile(file, external_weights={5: True}), TypeError, "external_weights must be a str, got 5"),
        (
            lambda file: rushlight.compile(file, external_weights=True, external_weights_max_bytes="5"),
            ValueError,
            "external_weights_max_bytes must be an int from 0 to .*, got '5'",
        ),
        (
            lambda file: rushlight.compile(file, quantize=rushlight.Quantization("int8-weight", keep=(5,))),
            TypeError,
            "a name that a Quantization keeps must be a str, got 5",
        ),
        (
            lambda file: rushlight.compile(file, quantize=rushlight.Quantization("int8-weight", min_snr="x")),
            TypeError,
            "min_snr of a Quantization must be a float or None, got 'x'",
        ),
        (lambda file: rushlight.compile(file, tokenizer=5), TypeError, "tokenizer: expected a path.*got int"),
        (lambda file: rushlight.compile(file, quantize="int8", calibration=5), TypeError, "calibration: expected an iterable"),
        (lambda file: rushlight.load(file, data=5), TypeError, "data: expected the path or the bytes of a .ptd file.*got int"),
        (lambda file: rushlight.load(file, cache=5), TypeError, "cache: expected a path, as a str, bytes.*got int"),
        (lambda file: rushlight.load(file, lower=[]), ValueError, r"lower must be 'auto', 'off' or a backend, got \[\]"),
        (lambda file: rushlight.load(file, lower=""), ValueError, "lower must be 'auto', 'off' or a backend, got ''"),
    ],
)
def test_arguments_of_other_types(tmp_path, call, kind, text):
    file = shutil.copy(SMALL, tmp_path / "model.pt2")
    with pytest.raises(kind, match=text):
        call(file)


def test_paths_are_str_bytes_and_path(tmp_path):
    program = rushlight.export(torch.nn.Linear(4, 2), (torch.randn(1, 4),))
    for path in (tmp_path / "a.pte", str(tmp_path / "b.pte"), os.fsencode(tmp_path / "c.pte")):
        program.save(path)
        assert rushlight.load(os.fsdecode(path), cache=os.fsencode(tmp_path)).method_names == ["forward"]
    with pytest.raises(TypeError, match="path: expected a path, as a str, bytes or os.PathLike, got NoneType"):
        program.save(None)


IN_ANOTHER = """
try:
    import rushlight
except ImportError as error:
    # Python 3.12 and later refuse the import in an interpreter with its own GIL.
    assert "one interpreter of a process" in str(error) or "subinterpreters" in str(error), error
    print("refused", flush=True)
"""
INTERPRETERS = """
import sys
import rushlight

try:
    import _xxsubinterpreters as interpreters
except ImportError:
    import _interpreters as interpreters

for _ in range(2):
    interpreter = interpreters.create()
    # Until Python 3.12, an exception of the code is raised here.
    failed = interpreters.run_string(interpreter, sys.argv[1])
    interpreters.destroy(interpreter)
    assert failed is None, failed
    try:
        rushlight.load(b"not a program")
    except rushlight.Error:
        print("caught", flush=True)
"""


def test_a_second_interpreter_is_refused():
    command = [sys.executable, "-c", INTERPRETERS, IN_ANOTHER]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["refused", "caught"] * 2


def test_an_error_of_a_dtype_names_the_cast(file):
    module = rushlight.load(rushlight.export(torch.nn.Linear(4, 2), (torch.randn(1, 4),)).buffer)
    with pytest.raises(rushlight.Error, match=r'x\.astype\("float32"\).*x\.to\(torch\.float32\)'):
        module(torch.randn(1, 4).double())
