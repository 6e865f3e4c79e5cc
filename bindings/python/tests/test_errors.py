"""Failures as Python knows them, and modules that are pickled."""

import errno
import os
import pickle

import pytest
import rushlight
from rushlight._errors import make

torch = pytest.importorskip("torch")


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


def test_numbers_of_the_system_choose_the_class():
    for number, kind in ((errno.ENOENT, FileNotFoundError), (errno.EACCES, PermissionError), (errno.EPERM, PermissionError)):
        error = make("cannot open `x`", (number, "x"), code=3)
        assert isinstance(error, kind) and isinstance(error, rushlight.Error)
        assert (error.errno, error.filename, error.code, str(error)) == (number, "x", 3, "cannot open `x`")
    assert not isinstance(make("cannot write `x`", (errno.ENOSPC, "x")), OSError)


def test_other_errors_are_of_no_file(file):
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
    os.remove(file)
    with pytest.raises(FileNotFoundError):
        pickle.loads(pickle.dumps(module))


def test_an_error_of_a_dtype_names_the_cast(file):
    module = rushlight.load(rushlight.export(torch.nn.Linear(4, 2), (torch.randn(1, 4),)).buffer)
    with pytest.raises(rushlight.Error, match=r'x\.astype\("float32"\).*x\.to\(torch\.float32\)'):
        module(torch.randn(1, 4).double())
