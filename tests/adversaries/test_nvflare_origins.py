"""Another site writes another sender into a command, and an honest server of NVFlare forwards it.

The server does not check that a site sends under its own name. It compares a message's ``ORIGIN`` with the one of the
message by which the site registered, which was the site's choice: only its certificate was compared with its name. And
it compares nothing if the token is not that of a client that is registered now, although the token is signed: for
example the one that a site had before it registered again. So ``PrivateServer`` refuses commands that others send.
"""

import logging
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
from nvflare.apis.shareable import Shareable
from nvflare.fuel.f3.cellnet.core_cell import Message as CellMessage
from nvflare.fuel.f3.cellnet.core_cell import TargetMessage
from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey
from nvflare.fuel.f3.stats_pool import StatsPoolManager
from nvflare.private.admin_defs import Message
from nvflare.private.defs import (
    CellChannel,
    CellMessageHeaderKeys,
    ClientType,
    RequestHeader,
    TrainingTopic,
    new_cell_message,
)
from nvflare.private.fed.authenticator import validate_auth_headers
from nvflare.private.fed.client.client_engine import ClientEngine
from nvflare.private.fed.server.client_manager import ClientManager
from nvflare.private.fed.server.fed_server import FederatedServer
from tests.adversaries import test_nvflare_commands as commands
from tests.adversaries.test_nvflare_commands import cells as cells
from tests.adversaries.test_nvflare_commands import policy as policy

from coterie.transports.nvflare.commands import PrivateServer

VICTIM = commands.SITES[True]
LOG = logging.getLogger(__name__)


@pytest.fixture(scope="module", autouse=True)
def pools() -> Iterator[None]:
    """Let several cells of one name be in one process: NVFlare names its statistics after cells."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StatsPoolManager, "pools", {})
        patch.setattr(StatsPoolManager, "_check_name", lambda name, _scope: name)
        yield


class Server:
    """The part of an honest server that registers sites, and looks at what it forwards."""

    def __init__(self) -> None:
        self.client_manager = ClientManager("project", 1, 10)
        self.signed: set[tuple[str, str]] = set()
        self.logger = LOG

    def register(self, origin: str, kind: str = ClientType.REGULAR) -> str:
        """Register site-2, whose certificate has this name, by a message with an origin of its choice."""
        headers = {
            MessageHeaderKey.ORIGIN: origin,
            CellMessageHeaderKeys.CLIENT_NAME: "site-2",
            CellMessageHeaderKeys.CLIENT_TYPE: kind,
            CellMessageHeaderKeys.CLIENT_IP: "127.0.0.1",
            CellMessageHeaderKeys.PROJECT_NAME: "project",
        }
        client = self.client_manager.authenticate(CellMessage(headers, Shareable()), FLContext())
        assert client is not None
        self.signed.add((client.name, client.token))
        return str(client.token)

    def verify(self, name: str, token: str, _signature: str) -> bool:
        """Return whether the server signed a token for this name, as ``TokenVerifier`` does by the signature."""
        return (name, token) in self.signed

    def check(self, message: Any) -> Any:  # noqa: ANN401 - NVFlare has no types
        """Do what ``FederatedServer._validate_auth_headers`` does."""

        def resolve(name: str, token: str) -> str | None:
            found: str | None = FederatedServer._resolve_client_fqcn_for_auth(self, name, token)
            return found

        refusal = validate_auth_headers(message, self, LOG, resolve, "server")
        if not refusal:
            FederatedServer._strip_peer_transit_headers(self, message)
        return refusal


def bootstrap(cell: object) -> None:
    """Let NVFlare's server begin with Coterie's component."""
    ctx = FLContext()
    ctx.set_prop(FLContextKey.SITE_OBJ, SimpleNamespace(cell=cell), private=True)
    PrivateServer().handle_event(EventType.SYSTEM_BOOTSTRAP, ctx)


@pytest.fixture
def server(cells: dict[str, Any]) -> Iterator[Server]:
    """Yield NVFlare's own check of senders."""
    filters = cells["server"].core_cell.in_filter_reg
    before, made = filters.reg["*:*"], Server()
    filters.set("*", "*", [])
    cells["server"].core_cell.add_incoming_filter("*", "*", made.check)
    yield made
    filters.set("*", "*", before)


def token_of(server: Server, way: str, origin: str) -> str:
    """Let site-2 get a token by which the server takes messages of this origin."""
    if way == "registered under that name":
        return server.register(origin)
    if way == "registered as a relay":
        return server.register("site-2", ClientType.RELAY)
    token = server.register("site-2")
    if way == "registered twice":
        server.register("site-2")
    return token


@pytest.mark.parametrize(
    ("way", "origin", "defended", "in_bulk"),
    [
        ("honest", "server", False, False),
        ("registered under that name", f"{VICTIM}.job", False, False),
        *(
            (way, origin, True, False)
            for way in ("honest", "registered under that name", "registered as a relay", "registered twice")
            for origin in ("server", f"{VICTIM}.job")
        ),
        ("registered under that name", "server", True, True),
    ],
)
def test_another_site_sends_commands_through_an_honest_server(
    way: str, origin: str, defended: bool, in_bulk: bool, tmp_path: Path, server: Server, cells: dict[str, Any]
) -> None:
    """A message in bulk contains others, and goes through the server on another channel."""
    if defended:
        bootstrap(cells["server"])
    for name in ("local", "startup", "job"):
        (tmp_path / name).mkdir()
    engine = ClientEngine.__new__(ClientEngine)
    engine.args, engine.fire_event = SimpleNamespace(workspace=str(tmp_path)), lambda *_event: None
    engine.new_context = FLContext
    token, filters = token_of(server, way, origin), cells["site-2"].core_cell.out_req_filter_reg
    asked = Message(TrainingTopic.DELETE_RUN, "")
    asked.set_header(RequestHeader.JOB_ID, "job")

    def forge(message: Any) -> None:  # noqa: ANN401 - NVFlare has no types
        message.set_header(CellMessageHeaderKeys.TOKEN, token)
        message.set_header(MessageHeaderKey.ORIGIN, origin)

    before = [*filters.reg["*:*"]]
    cells["site-2"].core_cell.add_outgoing_request_filter("*", "*", forge)
    commands.CLIENT[0] = engine
    try:
        request = new_cell_message({}, asked)
        if in_bulk:
            item = TargetMessage(VICTIM, CellChannel.CLIENT_MAIN, TrainingTopic.DELETE_RUN, request)
            bulk = CellMessage(None, [item.to_dict()])
            cells["site-2"].send_request(CellChannel.CELLNET, "bulk", VICTIM, bulk, timeout=1.0)
            time.sleep(0.6)  # NVFlare's site looks for such messages at this interval
        else:
            cells["site-2"].send_request(
                CellChannel.CLIENT_MAIN, TrainingTopic.DELETE_RUN, VICTIM, request, timeout=1.0
            )
    finally:
        commands.CLIENT[:] = [None]
        filters.set("*", "*", before)
    assert (tmp_path / "job").exists() is (defended or way == "honest")


def test_the_component_of_the_server_on_a_site(cells: dict[str, Any]) -> None:
    """The site would take no commands of its server either."""
    for cell in (cells[VICTIM], None):
        with pytest.raises(UnsafeComponentError, match="leave it out"):
            bootstrap(cell)
