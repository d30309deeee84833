"""Another site sends a hardened site commands of an administrator, past its honest server and in the server's name.

A site connects to any address that a message names as its sender's (``CONN_URL``), also where ad-hoc connections are
forbidden: NVFlare asks for that only before it *listens*. Its server takes that header out of a message only if the
sender says that the message has to cross the server (``SERVER_TRANSIT_REQUIRED``), so the sender does not say it. What
comes over the direct connection was checked by nobody, and its ``ORIGIN`` is what the sender writes.
"""

import logging
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("nvflare", reason="needs coterie[nvflare]")

from nvflare.apis.fl_context import FLContext
from nvflare.client.cell.defs import CHANNEL, Topic
from nvflare.fuel.f3.cellnet.cell import Cell
from nvflare.fuel.f3.cellnet.core_cell import CoreCell
from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey
from nvflare.fuel.f3.stats_pool import StatsPoolManager
from nvflare.fuel.sec.authn import set_add_auth_headers_filters
from nvflare.private.admin_defs import Message
from nvflare.private.defs import CellChannel, RequestHeader, TrainingTopic, new_cell_message
from nvflare.private.fed.client.client_engine import ClientEngine
from nvflare.private.fed.server.fed_server import FederatedServer
from tests.adversaries import test_nvflare_commands as commands
from tests.adversaries.test_nvflare_commands import cells as cells
from tests.adversaries.test_nvflare_commands import policy as policy
from tests.support.nvflare_jobs import deploy, job, started
from tests.support.nvflare_jobs import site_environment as site_environment

VICTIM = commands.SITES[True]
"""The site with PrivateJobs."""


@pytest.fixture(scope="module", autouse=True)
def pools() -> Iterator[None]:
    """Let several cells of one name be in one process: NVFlare names its statistics after cells."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StatsPoolManager, "pools", {})
        patch.setattr(StatsPoolManager, "_check_name", lambda name, _scope: name)
        yield


@pytest.fixture
def direct(request: pytest.FixtureRequest) -> Iterator[tuple[Any, str]]:
    """Yield a cell that writes the server as origin, and its address; it says this name when others connect to it."""
    known = CoreCell.ALL_CELLS
    CoreCell.ALL_CELLS = commands._Forgetful()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        url = f"tcp://127.0.0.1:{probe.getsockname()[1]}"
    cell = Cell(fqcn="server", root_url=url, secure=False, credentials={}, create_internal_listener=False)
    cell.core_cell.communicator.local_endpoint.name = getattr(request, "param", "site-2")
    cell.start()
    yield cell, url
    cell.stop()
    CoreCell.ALL_CELLS = known


def invite(sender: Any, url: str) -> None:  # noqa: ANN401 - NVFlare has no types
    """Let a site ask others to connect to an address, in all its messages, past its honest server."""

    def change(message: Any) -> None:  # noqa: ANN401 - NVFlare has no types
        message.set_header(MessageHeaderKey.CONN_URL, url)
        message.remove_header(MessageHeaderKey.SERVER_TRANSIT_REQUIRED)

    sender.core_cell.add_outgoing_request_filter("*", "*", change)


def wait_for(site: str, pretender: Any) -> bool:  # noqa: ANN401 - NVFlare has no types
    """Wait until a site has connected."""
    deadline = time.monotonic() + 5
    while site not in pretender.core_cell.agents and time.monotonic() < deadline:
        time.sleep(0.02)
    return site in pretender.core_cell.agents


def be_honest(server: Any) -> None:  # noqa: ANN401 - NVFlare has no types
    """Let a server take invitations out of messages that have to cross it, as NVFlare's does."""
    stand_in = SimpleNamespace(logger=logging.getLogger(__name__))
    server.core_cell.add_incoming_filter(
        "*", "*", lambda message: FederatedServer._strip_peer_transit_headers(stand_in, message)
    )


def delete(sender: Any) -> Any:  # noqa: ANN401 - NVFlare has no types
    asked = Message(TrainingTopic.DELETE_RUN, "")
    asked.set_header(RequestHeader.JOB_ID, "job")
    request = new_cell_message({}, asked)
    return sender.send_request(CellChannel.CLIENT_MAIN, TrainingTopic.DELETE_RUN, VICTIM, request, timeout=5.0)


def test_another_site_sends_commands_in_the_name_of_the_server(
    tmp_path: Path, cells: dict[str, Any], direct: tuple[Any, str]
) -> None:
    for name in ("local", "startup", "job"):
        (tmp_path / name).mkdir()
    engine = ClientEngine.__new__(ClientEngine)
    engine.args, engine.fire_event = SimpleNamespace(workspace=str(tmp_path)), lambda *_event: None
    engine.new_context = FLContext
    commands.CLIENT[0] = engine
    be_honest(cells["server"])
    try:
        assert not cells[VICTIM].core_cell.connector_manager.adhoc_allowed
        delete(cells["site-2"])
        assert (tmp_path / "job").exists()  # by the way that the hardening closes
        pretender, url = direct

        invite(cells["site-2"], url)
        commands.CHECKED.clear()
        delete(cells["site-2"])  # it is refused, and has the address
        assert "site-2" in commands.CHECKED  # an honest server checked it, and forwarded it
        if wait_for(VICTIM, pretender):  # the site has connected to the other one
            delete(pretender)
        assert (tmp_path / "job").exists()
    finally:
        commands.CLIENT[:] = [None]


JOB = "site-4.job"
SCRIPT = f"{JOB}.client_api_trainer_1"
"""The process of a job, and that of its script (``execution_mode="external_process"``). Other sites know both names."""


@pytest.mark.usefixtures("site_environment")
@pytest.mark.parametrize("direct", [JOB], indirect=True)
def test_another_site_gets_the_model_that_a_script_returns_to_its_job(
    cells: dict[str, Any], direct: tuple[Any, str], tmp_path: Path
) -> None:
    """NVFlare keeps one connection to a name, the newest. So the model leaves before it is masked."""
    filters = started(deploy(tmp_path / "site-4", job("x"))).received_filters  # before a script starts
    be_honest(cells["server"])
    known = CoreCell.ALL_CELLS
    CoreCell.ALL_CELLS = commands._Forgetful()
    made: list[Any] = []
    try:
        root = cells["server"].core_cell.root_url
        made.append(process := Cell(JOB, root_url=root, secure=False, credentials={}, create_internal_listener=False))
        set_add_auth_headers_filters(process, "site-4", "token of site-4", "signature", "ssid")
        (change,) = filters
        process.core_cell.add_incoming_filter(*change)
        process.start()
        process.make_internal_listener()
        where = process.get_internal_listener_url()
        made.append(script := Cell(SCRIPT, root_url=None, secure=False, credentials={}, parent_url=where))
        script.start()
        while not process.core_cell.is_cell_connected(SCRIPT) or not script.core_cell.is_cell_connected(JOB):
            time.sleep(0.02)
        received: list[bytes] = []
        pretender, url = direct
        pretender.core_cell.add_incoming_filter(CHANNEL, "*", lambda message: received.append(bytes(message.payload)))
        invite(cells["site-2"], url)
        cells["site-2"].send_request(CHANNEL, Topic.ABORT, SCRIPT, new_cell_message({}, {}), timeout=2.0)
        wait_for(SCRIPT, pretender)
        deadline = time.monotonic() + 5  # both connections of this name replace each other about once a second
        while not received and time.monotonic() < deadline:
            script.fire_and_forget(CHANNEL, Topic.RESULT_READY, JOB, new_cell_message({}, {"result": "the model"}))
            time.sleep(0.1)
        assert not any(b"the model" in message for message in received)
    finally:
        for cell in reversed(made):
            cell.stop()
        CoreCell.ALL_CELLS = known
