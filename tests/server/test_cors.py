"""Pages of other origins ask `rushlight llm serve`, as browsers do for them."""

import urllib.error
import urllib.request

import pytest
from rushlight_server import KEY, serving

APP = "https://app.example"


def ask(address, method, origin, **headers):
    headers = {"Origin": origin, "Sec-Fetch-Site": "cross-site", **{name.replace("_", "-"): value for name, value in headers.items()}}
    request = urllib.request.Request(f"{address}/v1/models", method=method, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return response.status, response.headers
    except urllib.error.HTTPError as error:
        return error.code, error.headers


@pytest.fixture(scope="module")
def open_root(program):
    with serving(program, "--cors-origin", APP, "--host", "localhost") as (_, address):
        yield address


def test_pages_of_an_allowed_origin_get_answers(open_root):
    question = {"Access_Control_Request_Method": "GET", "Access_Control_Request_Headers": "authorization"}
    status, headers = ask(open_root, "OPTIONS", APP, **question)
    assert (status, headers["Access-Control-Allow-Origin"]) == (204, APP)
    assert headers["Access-Control-Allow-Headers"] == "authorization"
    status, headers = ask(open_root, "GET", APP, Authorization=f"Bearer {KEY}")
    assert (status, headers["Access-Control-Allow-Origin"], headers["Vary"]) == (200, APP, "origin")
    # An error is one for the page to read, too.
    status, headers = ask(open_root, "GET", APP)
    assert (status, headers["Access-Control-Allow-Origin"]) == (401, APP)


def test_other_pages_are_refused(open_root, root):
    for address, origin in ((open_root, "https://other.example"), (open_root, "null"), (root, APP)):
        for method in ("OPTIONS", "GET"):
            status, headers = ask(address, method, origin, Authorization=f"Bearer {KEY}")
            assert (status, headers["Access-Control-Allow-Origin"], headers["Vary"]) == (403, None, "origin")


def test_caches_keep_the_answers_of_origins_apart(open_root, root):
    """The answer to a page depends on its origin; a cache must not give it to another page."""
    for address in (open_root, root):
        for path in ("/", "/health", "/v1/models", "/v1/nothing"):
            request = urllib.request.Request(address + path, headers={"Authorization": f"Bearer {KEY}"})
            try:
                with urllib.request.urlopen(request, timeout=60) as response:
                    headers = response.headers
            except urllib.error.HTTPError as error:
                headers = error.headers
            assert headers.get_all("Vary") == ["origin"], path


def test_the_page_loads_nothing_from_elsewhere(root):
    with urllib.request.urlopen(root + "/", timeout=60) as response:
        policy = dict(part.split(" ", 1) for part in response.headers["Content-Security-Policy"].split("; "))
    assert (policy["default-src"], policy["connect-src"], policy["frame-ancestors"]) == ("'none'", "'self'", "'none'")
