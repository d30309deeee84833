"""Which commands of NVFlare's administrators a site takes, and from whom.

NVFlare's client answers commands in its own process, not in that of a job. It looks neither at who sent one, nor at its
policy (``local/authorization.json``) unless the message asks for that. An honest server forwards what another site
sends. So a server or another site could have any file of the site read (``cat``, ``grep``), or folders of jobs deleted.

A site can tell commands of its server from those of another site only if its server refuses the latter, because the
sender writes who sent a message. So the operator of the server adds :class:`PrivateServer` to its
``local/resources.json``, and the operator of a site :class:`~.filters.PrivateJobs`.
"""

from typing import Any

from nvflare.apis.event_type import EventType
from nvflare.apis.fl_component import FLComponent
from nvflare.apis.fl_constant import FLContextKey, WorkspaceConstants
from nvflare.apis.fl_context import FLContext
from nvflare.apis.fl_exception import UnsafeComponentError
from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey, MessageType, ReturnCode
from nvflare.fuel.f3.cellnet.fqcn import FQCN
from nvflare.fuel.f3.cellnet.utils import make_reply
from nvflare.private.defs import CellChannel
from nvflare.private.fed.client.client_req_processors import ClientRequestProcessors
from nvflare.private.fed.client.shell_cmd import ShellCommandProcessor
from nvflare.private.fed.utils.fed_utils import require_signed_jobs

from coterie.deployment.logs import LOGGER, quote
from coterie.errors import ConfigError

_BULK = "bulk"
"""NVFlare's topic for a message that contains others. Their channels are not seen on the way."""


class PrivateServer(FLComponent):
    """A component of NVFlare's server. It lets the server forward no commands of administrators between sites.

    In ``local/resources.json`` of the server, among its components::

        {"id": "coterie", "path": "coterie.transports.nvflare.commands.PrivateServer"}
    """

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Refuse commands that others send, when the server starts; a server that cannot do that does not start."""
        if event_type == EventType.SYSTEM_BOOTSTRAP:
            cell = getattr(getattr(fl_ctx.get_prop(FLContextKey.SITE_OBJ), "cell", None), "core_cell", None)
            if cell is None or cell.get_fqcn() != FQCN.ROOT_SERVER:
                raise UnsafeComponentError("PrivateServer is a component of NVFlare's server: leave it out elsewhere")
            # NVFlare asks only the most specific filters, and its check of tokens has these names
            cell.add_incoming_filter("*", "*", _refuse_received_commands)
        super().handle_event(event_type, fl_ctx)


def limit_commands(ctx: FLContext) -> None:
    """Let the process of a client read no files for others, and take commands only from its server and its own jobs.

    At ``SYSTEM_BOOTSTRAP`` the process is connected and answers no commands yet.
    """
    workspace = ctx.get_prop(FLContextKey.WORKSPACE_OBJECT)
    if not require_signed_jobs(workspace, WorkspaceConstants.CLIENT_STARTUP_CONFIG):
        raise ConfigError(
            "this site deploys jobs that nobody has signed, so the server could submit any: set require_signed_jobs to "
            f"true in startup/{WorkspaceConstants.CLIENT_STARTUP_CONFIG}, or leave PrivateJobs out"
        )
    processors = ClientRequestProcessors.request_processors  # the list itself: NVFlare has given it to the client
    processors[:] = [one for one in processors if not isinstance(one, ShellCommandProcessor)]
    cell = ctx.get_prop(FLContextKey.SITE_OBJ).cell.core_cell
    cell.add_incoming_request_filter(CellChannel.CLIENT_MAIN, "*", _refuse_others, cell.get_fqcn())
    cell.add_incoming_request_filter(CellChannel.CELLNET, _BULK, _refuse)
    refuse_invitations(cell)


def refuse_invitations(cell: Any) -> None:  # noqa: ANN401 - NVFlare has no types
    """Let a process connect to no address that a message names, and pass none on: there it would meet no server."""
    cell.add_incoming_filter("*", "*", _remove_address)


def _remove_address(message: Any) -> None:  # noqa: ANN401 - NVFlare has no types
    message.remove_header(MessageHeaderKey.CONN_URL)


def _refuse_others(message: Any, own: str) -> Any:  # noqa: ANN401 - NVFlare has no types
    """Return a refusal of a request, or None.

    The sender chooses the origin. NVFlare's server compares it only with another choice of the sender, the origin of
    its registration, and not at all if a token is not in use any more. So this needs :class:`PrivateServer`.
    """
    origin = str(message.get_header(MessageHeaderKey.ORIGIN))
    if origin == FQCN.ROOT_SERVER or FQCN.is_ancestor(own, origin):
        return None
    return _refuse(message)


def _refuse_received_commands(message: Any) -> Any:  # noqa: ANN401 - NVFlare has no types
    """Return a refusal of a command that a server received, or None. It forwards none: it sends its own itself."""
    is_request = message.get_header(MessageHeaderKey.MSG_TYPE) == MessageType.REQ
    is_command = message.get_header(MessageHeaderKey.CHANNEL) == CellChannel.CLIENT_MAIN
    return _refuse(message) if is_request and is_command else None


def _refuse(message: Any) -> Any:  # noqa: ANN401 - NVFlare has no types
    origin = quote(str(message.get_header(MessageHeaderKey.ORIGIN)))
    LOGGER.warning("a command of an administrator came in the name of %s: it is refused", origin)
    return make_reply(ReturnCode.UNAUTHENTICATED, "a site takes commands only from its server")
