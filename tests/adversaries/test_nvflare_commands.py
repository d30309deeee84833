"""A server, or another site through an honest server, sends a site commands of an administrator.

The site asks its policy (``local/authorization.json``) only if the message asks for it, so its sender decides. NVFlare
also checks no sender of such a message: the server forwards what one site sends to another.
"""

import json
import logging
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("nvflare", reason="needs coterie[nvflare]")

from nvflare.apis.event_type import EventType
from nvflare.apis.fl_constant import FLContextKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.fl_exception import UnsafeComponentError
from nvflare.fuel.f3.cellnet.cell import Cell
from nvflare.fuel.f3.cellnet.core_cell import CoreCell
from nvflare.fuel.f3.cellnet.core_cell import Message as CellMessage
from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey
from nvflare.fuel.sec.audit import AuditService
from nvflare.fuel.sec.authn import set_add_auth_headers_filters
from nvflare.fuel.sec.authz import AuthorizationService
from nvflare.private.admin_defs import Message
from nvflare.private.defs import CellChannel, RequestHeader, SysCommandTopic, TrainingTopic, new_cell_message
from nvflare.private.event import fire_event
from nvflare.private.fed.app.utils import component_security_check
from nvflare.private.fed.authenticator import validate_auth_headers
from nvflare.private.fed.client.admin import FedAdminAgent
from nvflare.private.fed.client.client_engine import ClientEngine
from nvflare.private.fed.client.client_req_processors import ClientRequestProcessors
from nvflare.private.fed.client.shell_cmd import ShellCommandProcessor
from nvflare.private.fed.utils.fed_utils import nvflare_fobs_initialize
from nvflare.security.security import FLAuthorizer
from tests.support.homes import home as home
from tests.support.nvflare_jobs import deploy, introduced, job, started
from tests.support.nvflare_jobs import site_environment as site_environment

from coterie.transports.nvflare import commands
from coterie.transports.nvflare.filters import PrivateJobs

SITES, LOG = {False: "site-1", True: "site-3"}, logging.getLogger(__name__)
POLICY = {"format_version": "1.0", "permissions": {"project_admin": {"submit_job": "any"}}}


@pytest.fixture(autouse=True)
def policy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the policy of the site allow nobody to read files."""
    monkeypatch.setattr(AuthorizationService, "the_authorizer", FLAuthorizer("org", POLICY))


def boot(cell: object, folder: Path, **startup: object) -> FLContext:
    """Let a site with the hardening begin, as NVFlare's client does before it answers commands."""
    (folder / "startup").mkdir()
    (folder / "startup" / "fed_client.json").write_text(json.dumps(startup))
    ctx, site = FLContext(), SimpleNamespace(get_startup_kit_dir=lambda: str(folder / "startup"))
    ctx.set_prop(FLContextKey.WORKSPACE_OBJECT, site, private=True)
    ctx.set_prop(FLContextKey.SITE_OBJ, SimpleNamespace(cell=cell), private=True)
    fire_event(EventType.SYSTEM_BOOTSTRAP, [PrivateJobs()], ctx)
    return ctx


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """Yield the cells of a server, of two sites that answer commands, and of a third one that sends them."""
    nvflare_fobs_initialize()
    known = CoreCell.ALL_CELLS
    CoreCell.ALL_CELLS = _Forgetful()  # so that cells of one process send everything through the server
    AuditService.initialize(str(tmp_path_factory.mktemp("audit") / "audit.log"))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        url = f"tcp://127.0.0.1:{probe.getsockname()[1]}"
    names = ("server", *SITES.values(), "site-2")
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
    for site in SITES.values():
        answer(made[site], site == SITES[True], tmp_path_factory.mktemp(site))
    for name in names[1:]:
        while not made[name].core_cell.is_backbone_ready():
            time.sleep(0.01)
    yield made
    for cell in reversed(made.values()):
        cell.stop()
    CoreCell.ALL_CELLS = known


def answer(cell: Any, defended: bool, folder: Path) -> None:  # noqa: ANN401 - NVFlare has no types
    """Let a site answer commands as NVFlare's client does."""
    stand_in = SimpleNamespace(new_context=FLContext, fire_event=lambda *_event: None)
    agent = FedAdminAgent("admin_agent", cell, stand_in)
    processors = ClientRequestProcessors.request_processors
    kept = [*processors]
    if defended:
        component_security_check(boot(cell, folder, require_signed_jobs=True))
    for processor in processors:
        agent.register_processor(processor)
    processors[:] = kept
    dispatch = agent.processors.get

    def find(topic: str) -> Any:  # noqa: ANN401 - NVFlare has no types
        agent.app_ctx = CLIENT[0] or stand_in
        return dispatch(topic)

    agent.processors = SimpleNamespace(get=find)


class _Forgetful(dict[str, Any]):
    def __setitem__(self, _name: str, _cell: object) -> None:
        """Keep nothing."""


def check(message: Any, tokens: Any) -> Any:  # noqa: ANN401 - NVFlare has no types
    """Check who sent a message, as NVFlare's server does with every message that it gets or forwards.

    It does not compare the origin if the token is not that of a client that is registered now.
    """
    CHECKED.append(message.get_header(MessageHeaderKey.ORIGIN))
    return validate_auth_headers(message, tokens, LOG, lambda _name, _token: None)


CHECKED: list[str] = []
CLIENT: list[Any] = [None]
"""NVFlare's engine of a site, in tests that need it."""


def command(sender: Any, site: str, line: str, **headers: str) -> str:  # noqa: ANN401 - NVFlare has no types
    """Send a command to a site, and return its answer."""
    asked = Message(SysCommandTopic.SHELL, line)
    for name, value in headers.items():
        asked.set_header(name, value)
    reply = sender.send_request(
        CellChannel.CLIENT_MAIN, SysCommandTopic.SHELL, site, new_cell_message({}, asked), timeout=10.0
    )
    return str(getattr(reply.payload, "body", reply.payload))


@pytest.mark.usefixtures("site_environment")
@pytest.mark.parametrize("asks", [True, False], ids=["asks for authorization", "does not ask"])
@pytest.mark.parametrize("sender", ["server", "site-2"])
@pytest.mark.parametrize("defended", [False, True])
def test_a_command_that_the_policy_of_the_site_does_not_allow(
    sender: str, asks: bool, defended: bool, tmp_path: Path, home: Path, cells: dict[str, Any]
) -> None:
    """``cat`` reads any file of the site, for example the folder of its node with identity key and parked states."""
    introduced(started(deploy(tmp_path / "site-1", job("x"))))
    (key,) = home.rglob("identity*")
    (log := tmp_path / "site-1" / "job" / "log.txt").write_text("loss of patient 17: 0.25\n")
    headers = {RequestHeader.ADMIN_COMMAND: "cat", RequestHeader.REQUIRE_AUTHZ: "true"} if asks else {}
    CHECKED.clear()
    read = command(cells[sender], SITES[defended], f"cat {log}", **headers)
    assert (sender in CHECKED) == (sender != "server")  # it went through the server
    # the text of an exception has bytes that are no text
    told = [command(cells[sender], SITES[defended], f"tail -c {left} {key}", **headers) for left in range(1, 33)]
    found = [answer for answer in told if "can't decode byte" in answer]
    is_read = not asks and not defended
    assert ("patient 17" in read, bool(found)) == (is_read, is_read)


@pytest.mark.parametrize("defended", [False, True])
def test_another_site_deletes_a_folder_of_the_workspace(defended: bool, tmp_path: Path, cells: dict[str, Any]) -> None:
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
        cells["site-2"].send_request(
            CellChannel.CLIENT_MAIN, TrainingTopic.DELETE_RUN, SITES[defended], request, timeout=10.0
        )
    finally:
        CLIENT.clear()
        CLIENT.append(None)
    assert (tmp_path / "job").exists() is defended


@pytest.mark.parametrize(
    "origin", ["server", "site-3.job", "site-3.job.sub", "site-3", "site-2", "site-30.job", "server.job", None]
)
def test_a_site_takes_commands_from_its_server_and_processes_of_its_jobs(origin: str | None) -> None:
    """The process of a job sends its client the status of the job."""
    message = CellMessage({} if origin is None else {MessageHeaderKey.ORIGIN: origin})
    is_taken = origin in ("server", "site-3.job", "site-3.job.sub")
    assert (commands._refuse_others(message, "site-3") is None) is is_taken


@pytest.mark.parametrize("startup", [{"require_signed_jobs": False}, {}])
def test_a_site_that_needs_no_signatures_does_not_start_with_private_jobs(
    startup: dict[str, object], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """NVFlare needs them by default where it has certificates."""
    before = [*ClientRequestProcessors.request_processors]
    with pytest.raises(RuntimeError, match="could not limit the commands"):
        component_security_check(boot(None, tmp_path, **startup))
    assert "set require_signed_jobs to true" in caplog.text
    assert before == ClientRequestProcessors.request_processors


def test_a_site_whose_commands_cannot_be_limited_does_not_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ClientRequestProcessors, "request_processors", [ShellCommandProcessor()])
    ctx = boot(None, tmp_path, require_signed_jobs=True)
    (raised,) = ctx.get_prop(FLContextKey.EXCEPTIONS).values()
    assert isinstance(raised, UnsafeComponentError)
    assert ClientRequestProcessors.request_processors == []
