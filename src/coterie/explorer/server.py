"""The HTTP server of the page, on the loopback address only.

A page on the internet can make a browser send requests to this server. So every request is checked before anything is
computed:

* **Host** must be this server's own name and port. A foreign name that resolves to the loopback address (DNS rebinding)
  is refused.
* **Origin**, where a browser sends it, must be this page. Requests with a body must have it, and also our own header,
  which a foreign page can add only after a CORS preflight request, which this server never grants.
* **Sec-Fetch-Site** must not be another site, except to open the page itself by a link.
* Paths are looked up in a table, and never become the name of a file. Bodies need a length within the limit of their
  path. A request has to arrive in :data:`ARRIVAL_SECONDS`, and only some are handled at once.

Answers carry a content security policy without inline scripts, and may be neither framed nor cached.
"""

import errno
import json
import socket
import sys
import threading
import traceback
from collections.abc import Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from typing import Any, ClassVar
from urllib.parse import urlsplit

from coterie.errors import ConfigError, CoterieError, LogTooLarge
from coterie.explorer.requests import REQUESTS, Request, explain

ADDRESS = "127.0.0.1"
ARRIVAL_SECONDS = 30.0
"""A request that takes longer to arrive is cut off."""
MARK = "X-Coterie"
"""The header of requests with a body."""
_MOST_CONNECTIONS, _MOST_COMPUTING, _WAIT_SECONDS = 32, 2, 60.0
_STATIC = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/explorer.js": ("explorer.js", "text/javascript; charset=utf-8"),
    "/explorer.css": ("explorer.css", "text/css; charset=utf-8"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
}
"""The files of the page. No other file is served."""
HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
}
"""The headers of every answer."""


def read_static(name: str) -> bytes:
    """Return a file of the page."""
    return files("coterie.explorer").joinpath("static", name).read_bytes()


class _RefusedError(Exception):
    """A request that is not answered, with the status and a line that says why."""

    def __init__(self, status: HTTPStatus, reason: str) -> None:
        super().__init__(reason)
        self.status, self.reason = status, reason


class ExplorerServer(ThreadingHTTPServer):
    """The server. :meth:`serve_forever` runs until :meth:`shutdown` or an interrupt."""

    def __init__(self, port: int = 0) -> None:
        """Listen on the loopback address, on any free port if it is 0."""
        self._connections = threading.BoundedSemaphore(_MOST_CONNECTIONS)
        self.computing = threading.BoundedSemaphore(_MOST_COMPUTING)
        self.static = {path: (read_static(name), kind) for path, (name, kind) in _STATIC.items()}
        try:
            super().__init__((ADDRESS, port), _Handler)
        except OSError as error:
            taken = error.errno == errno.EADDRINUSE
            reason = "is in use; choose another, or 0 for a free one" if taken else f"cannot be used: {error.strerror}"
            raise ConfigError(f"port {port} {reason}") from None
        except OverflowError:
            raise ConfigError(f"a port is a number from 0 to 65535, not {port}") from None

    @property
    def url(self) -> str:
        """The address of the page."""
        return f"http://{ADDRESS}:{self.server_port}/"

    @property
    def hosts(self) -> frozenset[str]:
        """The values of Host that are this server."""
        return frozenset(f"{name}:{self.server_port}" for name in (ADDRESS, "localhost"))

    def process_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - as in the base class
        """Handle a connection in a thread, or close it if there are too many."""
        if not self._connections.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - as in the base class
        """Handle a connection."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._connections.release()

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - as in the base class
        """Print a traceback, except for connections that the other side ended or that took too long."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    """One connection with one request."""

    server: ExplorerServer
    server_version = "coterie"
    sys_version = ""
    timeout: ClassVar[float] = ARRIVAL_SECONDS  # of a single read

    def setup(self) -> None:
        """Close the connection if the request does not arrive in time, even if it arrives byte by byte."""
        super().setup()
        self._limit = threading.Timer(ARRIVAL_SECONDS, self._cut_off)
        self._limit.daemon = True
        self._limit.start()

    def finish(self) -> None:
        """End the connection."""
        self._limit.cancel()
        super().finish()

    def do_GET(self) -> None:
        """Answer a request without a body."""
        self._respond()

    do_HEAD = do_POST = do_GET  # noqa: N815 - the names that the base class calls

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002, ANN401 - as in the base class
        """Write no log, because a page sends many requests and none is of interest."""

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer requests that the standard library refuses itself, such as unknown methods, in the same form."""
        self.close_connection = True
        self._send_json(HTTPStatus(code), {"error": message or HTTPStatus(code).phrase})

    def _respond(self) -> None:
        try:
            self._check_sender()
            path, query = self._split_target()
            if path in self.server.static:
                self._check_method("GET", "HEAD")
                self._read_body(0)
                self._send(HTTPStatus.OK, *self.server.static[path])
            elif path in REQUESTS:
                self._compute(REQUESTS[path], query)
            else:
                raise _RefusedError(
                    HTTPStatus.NOT_FOUND, f"there is no such page; the explorer is at {self.server.url}"
                )
        except _RefusedError as refused:
            self._send_json(refused.status, {"error": refused.reason})

    def _compute(self, request: Request, query: str) -> None:
        self._check_method(request.method)
        body = self._read_body(request.most_bytes)
        self._limit.cancel()  # it has arrived
        if not self.server.computing.acquire(timeout=_WAIT_SECONDS):
            raise _RefusedError(HTTPStatus.SERVICE_UNAVAILABLE, "too many requests at once; try again in a moment")
        try:
            answer = request.answer(query, body)
        except LogTooLarge as error:
            raise _RefusedError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, explain(error)) from None
        except CoterieError as error:
            raise _RefusedError(HTTPStatus.UNPROCESSABLE_ENTITY, explain(error)) from None
        except (MemoryError, OverflowError):
            raise _RefusedError(
                HTTPStatus.UNPROCESSABLE_ENTITY, "these numbers are too large for this machine"
            ) from None
        except Exception:
            traceback.print_exc()
            fault = "a fault in Coterie; the terminal has the details"
            raise _RefusedError(HTTPStatus.INTERNAL_SERVER_ERROR, fault) from None
        finally:
            self.server.computing.release()
        self._send_json(HTTPStatus.OK, answer)

    def _check_sender(self) -> None:
        """Refuse requests that another page may have caused, or that were meant for another server."""
        hosts = self.headers.get_all("Host", [])
        if len(hosts) != 1 or hosts[0].lower() not in self.server.hosts:
            raise _RefusedError(HTTPStatus.MISDIRECTED_REQUEST, f"this server is {self.server.url}, and no other")
        origins = self.headers.get_all("Origin", [])
        if origins not in ([], [f"http://{hosts[0].lower()}"]):
            raise _RefusedError(HTTPStatus.FORBIDDEN, "another page sent this request")
        if self.command == "POST" and not (origins and self.headers.get(MARK) == "explore"):
            raise _RefusedError(HTTPStatus.FORBIDDEN, "requests with a body come from this page only")
        opened = self.headers.get("Sec-Fetch-Mode") == "navigate" and self.path.partition("?")[0] == "/"
        if self.headers.get("Sec-Fetch-Site", "none") not in ("same-origin", "none") and not opened:
            raise _RefusedError(HTTPStatus.FORBIDDEN, "another page sent this request")

    def _split_target(self) -> tuple[str, str]:
        if not self.path.startswith("/") or self.path.startswith("//"):
            raise _RefusedError(HTTPStatus.BAD_REQUEST, "the address must be a path")
        parts = urlsplit(self.path)
        return parts.path, parts.query

    def _check_method(self, *methods: str) -> None:
        if self.command not in methods:
            raise _RefusedError(HTTPStatus.METHOD_NOT_ALLOWED, f"this address takes {' and '.join(methods)}")

    def _read_body(self, most: int) -> bytes:
        lengths = self.headers.get_all("Content-Length", [])
        if self.headers.get("Transfer-Encoding") is not None or len(lengths) > 1 or (most and not lengths):
            raise _RefusedError(HTTPStatus.LENGTH_REQUIRED, "a body must have one length")
        text = lengths[0] if lengths else "0"
        if not (text.isascii() and text.isdecimal() and len(text) < 20):
            raise _RefusedError(HTTPStatus.BAD_REQUEST, "the length of the body is not a number")
        length = int(text)
        if length > most:
            raise _RefusedError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a body of at most {most:,} bytes is read here")
        body = self.rfile.read(length) if length else b""
        if len(body) < length:
            raise _RefusedError(HTTPStatus.BAD_REQUEST, "the body ended early")
        return body

    def _send_json(self, status: HTTPStatus, value: Mapping[str, Any]) -> None:
        self._send(status, json.dumps(value, allow_nan=False).encode(), "application/json; charset=utf-8")

    def _send(self, status: HTTPStatus, content: bytes, kind: str) -> None:
        self._limit.cancel()
        self.send_response(status)
        for name, value in HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def _cut_off(self) -> None:
        try:
            self.connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            return  # it is closed already
