"""Which commands of NVFlare's administrators a site takes, and from whom.

NVFlare's client answers commands in its own process, not in that of a job. It looks neither at who sent one, nor at its
policy (``local/authorization.json``) unless the message asks for that. An honest server forwards what another site
sends. So a server or another site could have any file of the site read (``cat``, ``grep``), or folders of jobs deleted.
"""

from typing import Any

from nvflare.apis.fl_constant import FLContextKey, WorkspaceConstants
from nvflare.apis.fl_context import FLContext
from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey, ReturnCode
from nvflare.fuel.f3.cellnet.fqcn import FQCN
from nvflare.fuel.f3.cellnet.utils import make_reply
from nvflare.private.defs import CellChannel
from nvflare.private.fed.client.client_req_processors import ClientRequestProcessors
from nvflare.private.fed.client.shell_cmd import ShellCommandProcessor
from nvflare.private.fed.utils.fed_utils import require_signed_jobs

from coterie.deployment.logs import LOGGER, quote
from coterie.errors import ConfigError


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


def _refuse_others(message: Any, own: str) -> Any:  # noqa: ANN401 - NVFlare has no types
    """Return a refusal of a request, or None. An honest server checks that a site sends only under its own name."""
    origin = str(message.get_header(MessageHeaderKey.ORIGIN))
    if origin == FQCN.ROOT_SERVER or FQCN.is_ancestor(own, origin):
        return None
    LOGGER.warning("%s sent a command of an administrator: it is refused", quote(origin))
    return make_reply(ReturnCode.UNAUTHENTICATED, "this site takes commands only from its server")
