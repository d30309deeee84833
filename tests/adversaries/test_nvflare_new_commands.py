"""A server, or another site through an honest server, sends a site commands of an administrator.

The site asks its policy (``local/authorization.json``) only if the message asks for it, so its sender decides. NVFlare
also checks no sender of such a message: the server forwards what one site sends to another.
"""

import logging
import socket
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("nvflare", reason="needs coterie[nvflare]")

from nvflare.apis.fl_context import FLContext
from nvflare.fuel.f3.cellnet.cell import Cell
from nvflare.fuel.f3.cellnet.core_cell import CoreCell
from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey
from nvflare.fuel.sec.audit import AuditService
from nvflare.fuel.sec.authn import set_add_auth_headers_filters
from nvflare.fuel.sec.authz import AuthorizationService
from nvflare.private.admin_defs import Message
from nvflare.private.defs import CellChannel, RequestHeader, SysCommandTopic, TrainingTopic, new_cell_message
from nvflare.private.event import fire_event
from nvflare.private.fed.authenticator import validate_auth_headers
from nvflare.private.fed.client.admin import FedAdminAgent
from nvflare.private.fed.client.client_engine import ClientEngine
from nvflare.private.fed.client.client_req_processors import ClientRequestProcessors
from nvflare.private.fed.utils.fed_utils import nvflare_fobs_initialize
from nvflare.security.security import FLAuthorizer
from tests.support.homes import home as home
from tests.support.nvflare_jobs import deploy, introduced, job, started
from tests.support.nvflare_jobs import site_environment as site_environment

from coterie.transports.nvflare.filters import PrivateJobs

SITE, LOG = "site-1", logging.getLogger(__name__)
POLICY = {"format_version": "1.0", "permissions": {"project_admin": {"submit_job": "any"}}}


@pytest.fixture(autouse=True)
def policy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the policy of the site allow nobody to read files."""
    monkeypatch.setattr(AuthorizationService, "the_authorizer", FLAuthorizer("org", POLICY))


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """Yield the cells of a server and of two sites; the first site answers commands."""
    nvflare_fobs_initialize()
    known = CoreCell.ALL_CELLS
    CoreCell.ALL_CELLS = _Forgetful()  # so that cells of one process send everything through the server
    AuditService.initialize(str(tmp_path_factory.mktemp("audit") / "audit.log"))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        url = f"tcp://127.0.0.1:{probe.getsockname()[1]}"
    names = ("server", SITE, "site-2")
    made = {
        name: Cell(fqcn=name, root_url=url, secure=False, credentials={}, create_internal_listener=False)
        for name in names
    }
    tokens = SimpleNamespace(verify=lambda name, token, _signature: token == f"token of {name}")
    for name, cell in made.items():
        cell.start()
        if name == "server":  # an honest one checks who sent a message, as NVFlare's server does
            cell.core_cell.add_incoming_filter("*", "*", check, tokens)
        else:
            set_add_auth_headers_filters(cell, name, f"token of {name}", "signature", "ssid")
    hardening = [PrivateJobs()]  # gets all events that NVFlare fires in the client's process
    stand_in = SimpleNamespace(new_context=FLContext, fire_event=lambda event, ctx: fire_event(event, hardening, ctx))
    agent = FedAdminAgent("admin_agent", made[SITE], stand_in)
    for processor in ClientRequestProcessors.request_processors:
        agent.register_processor(processor)
    dispatch = agent.processors.get

    def find(topic: str) -> Any:  # noqa: ANN401 - NVFlare has no types
        agent.app_ctx = CLIENT[0] or stand_in
        return dispatch(topic)

    agent.processors = SimpleNamespace(get=find)
    yield made
    for cell in reversed(made.values()):
        cell.stop()
    CoreCell.ALL_CELLS = known


class _Forgetful(dict[str, Any]):
    def __setitem__(self, _name: str, _cell: object) -> None:
        """Keep nothing."""


def check(message: Any, tokens: Any) -> Any:  # noqa: ANN401 - NVFlare has no types
    """Check who sent a message, as NVFlare's server does with every message that it gets or forwards."""
    CHECKED.append(message.get_header(MessageHeaderKey.ORIGIN))
    return validate_auth_headers(message, tokens, LOG, lambda name, _token: name)


CHECKED: list[str] = []
CLIENT: list[Any] = [None]
"""NVFlare's engine of the first site, in tests that need it."""


def command(sender: Any, line: str, **headers: str) -> str:  # noqa: ANN401 - NVFlare has no types
    """Send a command to the first site, and return its answer."""
    asked = Message(SysCommandTopic.SHELL, line)
    for name, value in headers.items():
        asked.set_header(name, value)
    reply = sender.send_request(
        CellChannel.CLIENT_MAIN, SysCommandTopic.SHELL, SITE, new_cell_message({}, asked), timeout=10.0
    )
    return str(getattr(reply.payload, "body", reply.payload))


@pytest.mark.usefixtures("site_environment")
@pytest.mark.parametrize("asks", [True, False], ids=["asks for authorization", "does not ask"])
@pytest.mark.parametrize("sender", ["server", "site-2"])
def test_a_command_that_the_policy_of_the_site_does_not_allow(
    sender: str, asks: bool, tmp_path: Path, home: Path, cells: dict[str, Any]
) -> None:
    """``cat`` reads any file of the site, for example the folder of its node with identity key and parked states."""
    introduced(started(deploy(tmp_path / SITE, job("x"))))
    (key,) = home.rglob("identity*")
    (log := tmp_path / SITE / "job" / "log.txt").write_text("loss of patient 17: 0.25\n")
    headers = {RequestHeader.ADMIN_COMMAND: "cat", RequestHeader.REQUIRE_AUTHZ: "true"} if asks else {}
    CHECKED.clear()
    read = command(cells[sender], f"cat {log}", **headers)
    assert (sender in CHECKED) == (sender != "server")  # it went through the server
    # the text of an exception has bytes that are no text
    told = [command(cells[sender], f"tail -c {left} {key}", **headers) for left in range(1, 33)]
    found = [answer for answer in told if "can't decode byte" in answer]
    assert ("patient 17" in read, bool(found)) == (False, False)


def test_another_site_deletes_a_folder_of_the_workspace(tmp_path: Path, cells: dict[str, Any]) -> None:
    """Its server is honest, and forwards the message."""
    for name in ("local", "startup", "job"):
        (tmp_path / name).mkdir()
    engine = ClientEngine.__new__(ClientEngine)
    engine.args, engine.fire_event = SimpleNamespace(workspace=str(tmp_path)), lambda *_event: None
    engine.new_context = FLContext
    CLIENT[0] = engine
    try:
        asked = Message(TrainingTopic.DELETE_RUN, "")
        asked.set_header(RequestHeader.JOB_ID, "job")
        request = new_cell_message({}, asked)
        cells["site-2"].send_request(CellChannel.CLIENT_MAIN, TrainingTopic.DELETE_RUN, SITE, request, timeout=10.0)
    finally:
        CLIENT.clear()
        CLIENT.append(None)
    assert (tmp_path / "job").exists()
