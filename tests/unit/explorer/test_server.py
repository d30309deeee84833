"""The server of the page: what it answers, and what it refuses from pages and programs that are not its own."""

import http.client
import json
import socket
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.explorer import running_explorer

from coterie.errors import ConfigError
from coterie.explorer import server as module
from coterie.explorer.audits import MOST_BYTES, AuditSettings, audit_content
from coterie.explorer.leaks import STORIES, LeakSettings, play_story
from coterie.explorer.plans import PlanSettings, make_plan
from coterie.explorer.requests import REQUESTS, Request
from coterie.explorer.server import HEADERS, MARK, ExplorerServer, read_static

LOG = b"round,client\n1,ada\n1,ben\n2,ada\n"
FILES = [("/", "index.html"), *((f"/{name}", name) for name in ("explorer.js", "explorer.css", "icon.svg"))]

Answer = tuple[int, dict[str, str], bytes]


def ask(
    explorer: ExplorerServer,
    path: str,
    method: str = "GET",
    body: bytes | None = None,
    host: str | None = None,
    **headers: str,
) -> Answer:
    """Send one request; ``Sec_Fetch_Site`` becomes Sec-Fetch-Site."""
    connection = http.client.HTTPConnection("127.0.0.1", explorer.server_port, timeout=60)
    try:
        connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        connection.putheader("Host", host or f"127.0.0.1:{explorer.server_port}")
        if body is not None:
            headers.setdefault("Content_Length", str(len(body)))
        for name, value in headers.items():
            connection.putheader(name.replace("_", "-"), value)
        connection.endheaders()
        if body:
            connection.send(body)
        response = connection.getresponse()
        return response.status, dict(response.getheaders()), response.read()
    finally:
        connection.close()


def post(explorer: ExplorerServer, body: bytes, query: str = "", **headers: str) -> Answer:
    """Send a log as the page does."""
    own = {"Origin": f"http://127.0.0.1:{explorer.server_port}", "X_Coterie": "explore"} | headers
    return ask(explorer, f"/api/audit{query}", "POST", body, None, **{k: v for k, v in own.items() if v})


def raw(explorer: ExplorerServer, data: bytes) -> bytes:
    """Send bytes, and return what comes back until the connection is closed."""
    with socket.create_connection(("127.0.0.1", explorer.server_port), timeout=60) as connection:
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        received = b""
        while piece := connection.recv(65536):
            received += piece
        return received


def reason(answer: Answer) -> str:
    text: str = json.loads(answer[2])["error"]
    return text


# What it answers.


@pytest.mark.parametrize(("path", "name"), FILES)
def test_the_page_is_served(explorer: ExplorerServer, path: str, name: str) -> None:
    status, _, content = ask(explorer, path)
    assert (status, content) == (200, read_static(name))
    status, headers, content = ask(explorer, path, "HEAD")
    assert (status, content, headers["Content-Length"]) == (200, b"", str(len(read_static(name))))


@pytest.mark.parametrize("path", ["/", "/explorer.js", "/api/about", "/api/plan?lost=2", "/nowhere", "//", "/../x"])
def test_every_answer_has_the_headers_that_keep_other_pages_out(explorer: ExplorerServer, path: str) -> None:
    _, headers, _ = ask(explorer, path)
    assert HEADERS.items() <= headers.items()
    assert "Access-Control-Allow-Origin" not in headers
    assert "unsafe" not in headers["Content-Security-Policy"]
    assert "Python" not in headers.get("Server", "")


@pytest.mark.parametrize("story", STORIES)
def test_rounds_are_those_of_the_library(explorer: ExplorerServer, story: str) -> None:
    status, _, content = ask(explorer, f"/api/leak?story={story}&seed=3&rounds=9&lost=0.2")
    assert status == 200
    assert json.loads(content) == play_story(LeakSettings(story, seed=3, rounds=9, lost=0.2))


def test_plans_are_those_of_the_library(explorer: ExplorerServer) -> None:
    status, _, content = ask(explorer, "/api/plan?clients=200&cohort=20&privacy=5&active=true")
    assert status == 200
    assert json.loads(content) == make_plan(PlanSettings(clients=200, cohort=20, privacy=5, active=True))


def test_audits_are_those_of_the_library(explorer: ExplorerServer) -> None:
    status, _, content = post(explorer, LOG, "?name=a%20log.csv")
    assert status == 200
    assert json.loads(content) == audit_content(AuditSettings("a log.csv"), LOG)


def test_a_session_runs_behind_the_page(explorer: ExplorerServer) -> None:
    status, _, content = ask(explorer, "/api/session?leaving=2")
    assert status == 200
    assert len(json.loads(content)["summed"]) == 10


def test_the_server_listens_on_the_loopback_address_only(explorer: ExplorerServer) -> None:
    assert explorer.socket.getsockname()[0] == "127.0.0.1"
    assert explorer.url == f"http://127.0.0.1:{explorer.server_port}/"


# Who asks.


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1", "127.0.0.1:1", "localhost.evil.example:{}", "0.0.0.0:{}"]
)
def test_another_host_is_refused(explorer: ExplorerServer, host: str) -> None:
    """A foreign name that resolves to this machine (DNS rebinding) gets neither the page nor an answer."""
    for path in ("/", "/api/about"):
        answer = ask(explorer, path, host=host.format(explorer.server_port))
        assert answer[0] == 421
        assert b"Ada" not in answer[2]


def test_localhost_is_accepted_and_a_missing_or_double_host_refused(explorer: ExplorerServer) -> None:
    port = explorer.server_port
    assert ask(explorer, "/", host=f"LocalHost:{port}")[0] == 200
    assert b" 421 " in raw(explorer, b"GET / HTTP/1.1\r\n\r\n")
    twice = f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nHost: evil.example\r\n\r\n"
    assert b" 421 " in raw(explorer, twice.encode())


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:1", "https://127.0.0.1:{}", ""])
def test_another_origin_is_refused(explorer: ExplorerServer, origin: str) -> None:
    foreign = origin.format(explorer.server_port)
    assert post(explorer, LOG, Origin=foreign)[0] == 403
    if foreign:
        assert ask(explorer, "/api/about", Origin=foreign)[0] == 403


def test_requests_that_other_sites_cause_are_refused(explorer: ExplorerServer) -> None:
    for site in ("cross-site", "same-site"):
        assert ask(explorer, "/api/plan", Sec_Fetch_Site=site, Sec_Fetch_Mode="no-cors")[0] == 403
        assert ask(explorer, "/explorer.js", Sec_Fetch_Site=site, Sec_Fetch_Mode="no-cors")[0] == 403
        assert ask(explorer, "/api/plan", Sec_Fetch_Site=site, Sec_Fetch_Mode="navigate")[0] == 403
        assert ask(explorer, "/?x=1", Sec_Fetch_Site=site, Sec_Fetch_Mode="navigate")[0] == 200, "a link may open it"
    assert ask(explorer, "/api/about", Sec_Fetch_Site="same-origin", Sec_Fetch_Mode="cors")[0] == 200


def test_a_form_of_another_page_cannot_send_a_log(explorer: ExplorerServer) -> None:
    """A form cannot add our header, and a script of another page is stopped by the browser's question beforehand."""
    assert post(explorer, LOG, X_Coterie="")[0] == 403
    assert post(explorer, LOG, X_Coterie="other")[0] == 403
    question = ask(explorer, "/api/audit", "OPTIONS", Origin="http://evil.example")
    assert question[0] == 501
    assert "Access-Control-Allow-Origin" not in question[1]
    assert MARK == "X-Coterie"


# What is asked.


@pytest.mark.parametrize("path", ["/api/audit", "/explorer.js/", "/static/index.html", "/API/plan", "/favicon.ico"])
def test_only_paths_in_the_table_exist(explorer: ExplorerServer, path: str) -> None:
    assert ask(explorer, path)[0] == (405 if path in REQUESTS else 404)


@pytest.mark.parametrize("method", ["PUT", "DELETE", "TRACE", "CONNECT", "PATCH", "EVIL"])
def test_other_methods_are_refused(explorer: ExplorerServer, method: str) -> None:
    assert ask(explorer, "/", method)[0] == 501
    assert ask(explorer, "/api/plan", "HEAD")[0] == 405


SEGMENTS = st.lists(
    st.sampled_from(["..", ".", "%2e%2e", "%2f", "etc", "static", "index.html", "explorer.js", "\\", "%00", ""])
)


@settings(max_examples=60)
@given(SEGMENTS, st.booleans())
def test_no_path_leads_to_a_file(explorer: ExplorerServer, segments: list[str], absolute: bool) -> None:
    path = "/" + "/".join(segments)
    status, _, content = ask(explorer, f"http://127.0.0.1{path}" if absolute else path)
    meant = "/" + path.lstrip("/")  # the standard library takes several slashes at the beginning for one
    if meant in ("/", "/explorer.js") and not absolute:
        assert (status, content) == (200, read_static("index.html" if meant == "/" else "explorer.js"))
    else:
        assert status in (400, 404)
        assert set(json.loads(content)) == {"error"}


@settings(max_examples=60)
@given(st.binary(max_size=300))
def test_hostile_bytes_get_an_error_or_nothing(explorer: ExplorerServer, data: bytes) -> None:
    received = raw(explorer, data + b"\r\n\r\n")
    assert b" 200 " not in received.split(b"\r\n", 1)[0]
    assert ask(explorer, "/icon.svg")[0] == 200, "it goes on"


@settings(max_examples=40)
@given(st.binary(max_size=300))
def test_hostile_logs_get_a_verdict_or_a_reason(explorer: ExplorerServer, body: bytes) -> None:
    answer = post(explorer, body)
    assert answer[0] in (200, 422)
    assert answer[0] == 200 or reason(answer)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Content_Length": str(MOST_BYTES + 1)}, 413),
        ({"Content_Length": "9" * 30}, 400),
        ({"Content_Length": "-1"}, 400),
        ({"Content_Length": "٣"}, 400),
        ({"Content_Length": "0x10"}, 400),
        ({"Transfer_Encoding": "chunked"}, 411),
    ],
)
def test_bodies_with_a_wrong_length_are_not_read(
    explorer: ExplorerServer, headers: dict[str, str], status: int
) -> None:
    own = f"Origin: http://127.0.0.1:{explorer.server_port}\r\nX-Coterie: explore\r\n"
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    head = f"POST /api/audit HTTP/1.1\r\nHost: 127.0.0.1:{explorer.server_port}\r\n{own}{lines}\r\n"
    assert f" {status} ".encode() in raw(explorer, head.encode()).split(b"\r\n", 1)[0]


def test_other_addresses_take_no_body_and_a_body_must_be_complete(explorer: ExplorerServer) -> None:
    assert ask(explorer, "/api/plan", "GET", b"x")[0] == 413
    assert ask(explorer, "/", "GET", b"x")[0] == 413
    assert reason(post(explorer, b"", Content_Length="0"))  # an empty log
    own = f"Origin: http://127.0.0.1:{explorer.server_port}\r\nX-Coterie: explore\r\nContent-Length: 9\r\n"
    head = f"POST /api/audit HTTP/1.1\r\nHost: 127.0.0.1:{explorer.server_port}\r\n{own}\r\nabc"
    assert b"ended early" in raw(explorer, head.encode())
    no_length = f"POST /api/audit HTTP/1.1\r\nHost: 127.0.0.1:{explorer.server_port}\r\n{own[:-19]}\r\n"
    assert b" 411 " in raw(explorer, no_length.encode())


def test_wrong_settings_have_a_reason_and_no_traceback(
    explorer: ExplorerServer, capfd: pytest.CaptureFixture[str]
) -> None:
    answer = ask(explorer, "/api/plan?clients=12&cohort=13")
    assert answer[0] == 422
    assert reason(answer) == "a cohort of 13 cannot be drawn from 12 clients"
    assert reason(ask(explorer, "/api/leak?seed=99999999999999999999")).startswith("seed must be a whole number")
    assert capfd.readouterr().err == ""


# When things go wrong.


def test_an_internal_error_is_printed_by_the_server_and_not_sent(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def fail(query: str, body: bytes) -> dict[str, Any]:
        raise RuntimeError(f"secret {query}{body!r}")

    requests = dict(REQUESTS) | {"/api/plan": Request(fail)}
    monkeypatch.setattr(module, "REQUESTS", requests)
    with running_explorer() as server:
        answer = ask(server, "/api/plan")
        assert (answer[0], "secret" in reason(answer)) == (500, False)
        assert ask(server, "/icon.svg")[0] == 200
    assert "RuntimeError: secret" in capfd.readouterr().err


def test_numbers_too_large_for_the_machine_get_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_query: str, _body: bytes) -> dict[str, Any]:
        raise MemoryError

    monkeypatch.setattr(module, "REQUESTS", {"/api/plan": Request(fail)})
    with running_explorer() as server:
        assert "too large for this machine" in reason(ask(server, "/api/plan"))


def test_a_request_that_arrives_too_slowly_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ARRIVAL_SECONDS", 0.3)
    with (
        running_explorer() as server,
        socket.create_connection(("127.0.0.1", server.server_port), timeout=60) as connection,
    ):
        connection.sendall(b"GET / HTTP/1.1\r\nX: ")
        assert connection.recv(100) == b"", "the server closed it, although the request never ended"


def test_the_number_of_open_connections_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_CONNECTIONS", 2)
    with running_explorer() as server:
        address = "127.0.0.1", server.server_port
        held = [socket.create_connection(address, timeout=60) for _ in range(2)]
        try:
            for connection in held:
                connection.sendall(b"GET / HTTP/1.1\r\n")
            with socket.create_connection(address, timeout=60) as third:
                assert third.recv(100) == b""
        finally:
            for connection in held:
                connection.close()


def test_a_request_that_waits_too_long_for_others_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_WAIT_SECONDS", 0.05)
    with running_explorer() as server:
        for _ in range(module._MOST_COMPUTING):
            server.computing.acquire()
        assert ask(server, "/api/plan")[0] == 503
        assert ask(server, "/")[0] == 200
        server.computing.release()
        assert ask(server, "/api/leak?rounds=1")[0] == 200


def test_a_port_in_use_and_no_port_are_refused(explorer: ExplorerServer) -> None:
    with pytest.raises(ConfigError, match=f"port {explorer.server_port} is in use"):
        ExplorerServer(explorer.server_port)
    with pytest.raises(ConfigError, match="a port is a number from 0 to 65535"):
        ExplorerServer(70_000)
