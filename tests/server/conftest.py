import pytest
from rushlight_server import compiled, serving


@pytest.fixture(scope="session")
def program(tmp_path_factory):
    return compiled(tmp_path_factory.mktemp("server"))


@pytest.fixture(scope="session")
def root(program):
    with serving(program) as (_, address):
        yield address


@pytest.fixture(scope="session")
def address(root):
    return root + "/v1"
