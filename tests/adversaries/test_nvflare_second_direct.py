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
from nvflare.fuel.f3.cellnet.cell import Cell
from nvflare.fuel.f3.cellnet.core_cell import CoreCell
from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey
from nvflare.private.admin_defs import Message
from nvflare.private.defs import CellChannel, RequestHeader, TrainingTopic, new_cell_message
from nvflare.private.fed.client.client_engine import ClientEngine
from nvflare.private.fed.server.fed_server import FederatedServer
from tests.adversaries import test_nvflare_commands as commands
from tests.adversaries.test_nvflare_commands import cells as cells
from tests.adversaries.test_nvflare_commands import policy as policy

VICTIM = commands.SITES[True]
"""The site with PrivateJobs."""


@pytest.fixture
def direct() -> Iterator[tuple[Any, str]]:
    """Yield a cell of the other site that calls itself the server, and where it listens."""
    known = CoreCell.ALL_CELLS
    CoreCell.ALL_CELLS = commands._Forgetful()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        url = f"tcp://127.0.0.1:{probe.getsockname()[1]}"
    cell = Cell(fqcn="server", root_url=url, secure=False, credentials={}, create_internal_listener=False)
    cell.start()
    yield cell, url
    cell.stop()
    CoreCell.ALL_CELLS = known


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
    # NVFlare's honest server takes the invitation out of messages that have to cross it
    strip = SimpleNamespace(logger=logging.getLogger(__name__))
    cells["server"].core_cell.add_incoming_filter(
        "*", "*", lambda message: FederatedServer._strip_peer_transit_headers(strip, message)
    )
    try:
        assert not cells[VICTIM].core_cell.connector_manager.adhoc_allowed
        delete(cells["site-2"])
        assert (tmp_path / "job").exists()  # by the way that the hardening closes
        pretender, url = direct

        def invite(message: Any) -> None:  # noqa: ANN401 - NVFlare has no types
            message.set_header(MessageHeaderKey.CONN_URL, url)
            message.remove_header(MessageHeaderKey.SERVER_TRANSIT_REQUIRED)

        cells["site-2"].core_cell.add_outgoing_request_filter("*", "*", invite)
        commands.CHECKED.clear()
        delete(cells["site-2"])  # it is refused, and has the address
        assert "site-2" in commands.CHECKED  # an honest server checked it, and forwarded it
        deadline = time.monotonic() + 5
        while VICTIM not in pretender.core_cell.agents and time.monotonic() < deadline:
            time.sleep(0.02)
        if VICTIM in pretender.core_cell.agents:  # the site has connected to the other one
            delete(pretender)
        assert (tmp_path / "job").exists()
    finally:
        commands.CLIENT[:] = [None]
