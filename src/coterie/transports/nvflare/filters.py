"""What an operator sets as the policy of a site, which no job can change.

In ``local/privacy.json`` of the site::

    {"default_scope": "coterie",
     "scopes": [{"name": "coterie",
                 "task_data_filters": [{"path": "coterie.transports.nvflare.filters.PrivateResults",
                                        "direction": "out"}],
                 "task_result_filters": [{"path": "coterie.transports.nvflare.filters.PrivateResults"}]}],
     "components": [{"id": "coterie", "path": "coterie.transports.nvflare.filters.PrivateJobs"}]}

and in ``local/resources.json``, to the components that are there already::

    {"id": "coterie", "path": "coterie.transports.nvflare.filters.PrivateJobs"}

A job that is not all under a :class:`~.executor.PrivateExecutor` then does nothing on this site. This protects only if
jobs may not bring their own code (NVFlare's right ``byoc``), and if no class that starts scripts or commands is allowed
(``class_allow_list``), because code can send data in any form. It also needs signed jobs, and the
:class:`~.deployer.PrivateDeployer`. It closes the ways that we know, and promises nothing against a server that lies:
NVFlare was not built to withstand its server.
"""

import re

from nvflare.apis.app_validation import AppValidationKey
from nvflare.apis.event_type import EventType
from nvflare.apis.filter import ContentBlockedException, Filter
from nvflare.apis.fl_constant import FLContextKey, ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.fl_exception import UnsafeComponentError
from nvflare.apis.shareable import ReservedHeaderKey, Shareable, make_reply

from coterie.deployment.logs import LOGGER, quote
from coterie.errors import PeerProtocolError
from coterie.transports.nvflare.commands import limit_commands
from coterie.transports.nvflare.components import Guard
from coterie.transports.nvflare.messages import KEY, Answer, decode
from coterie.transports.nvflare.names import PRIVATE_EXECUTOR

CODES = frozenset(value for name, value in vars(ReturnCode).items() if name.isupper())
"""The return codes of NVFlare; any other text may quote data."""
_EXECUTOR = re.compile(r"^executors\.#[0-9]+\.executor$")
"""The place of an executor in a job's configuration, as NVFlare finds it."""


class PrivateJobs(Guard):
    """Stops jobs with a component that Coterie does not accept, or with an executor beside ``PrivateExecutor``.

    NVFlare then answers every task of the job with ``UNSAFE_JOB``. Federated events of all jobs stay on the site.

    In the process of the client it limits commands (:mod:`~.commands`); a client that it cannot limit does not start.

    As a component of the site (``resources.json``), which NVFlare asks before it builds a part of a job, it also lets
    NVFlare build only :class:`~.executor.PrivateExecutor` as an executor, and nothing of a job that brings code.
    NVFlare reads ``privacy.json`` when it has built the job, and the server can delete that file until then. It reads
    what it found about a job's code when it builds the job, and writes that before it decides whether code is allowed.
    """

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Limit commands when the client starts; judge components before they are built, and a job before it starts."""
        if event_type == EventType.SYSTEM_BOOTSTRAP:
            try:
                limit_commands(fl_ctx)
            except Exception as error:
                LOGGER.error("this client does not start: %s", error)  # the cause is in this site's own settings
                raise UnsafeComponentError("PrivateJobs could not limit the commands of this client") from error
        if event_type == EventType.BEFORE_BUILD_COMPONENT:
            if refusal := _reason_not_to_build(fl_ctx):
                LOGGER.warning("%s", refusal)
                fl_ctx.set_prop(FLContextKey.COMPONENT_BUILD_ERROR, refusal, private=True, sticky=False)
            return
        super().handle_event(event_type, fl_ctx)

    def refuse(self, _reason: str, fl_ctx: FLContext) -> None:
        """Let NVFlare run no task of this job."""
        fl_ctx.set_job_is_unsafe()


def _reason_not_to_build(ctx: FLContext) -> str:
    """Return why a part of a job is not built on this site, if it is not."""
    meta, described = ctx.get_prop(FLContextKey.JOB_META), ctx.get_prop(FLContextKey.COMPONENT_CONFIG)
    if not isinstance(meta, dict) or meta.get(AppValidationKey.BYOC):
        return "the job brings code, and the policy of this site allows none"
    node = ctx.get_prop(FLContextKey.COMPONENT_NODE)
    if _EXECUTOR.search(node.path()) and described.get("path") != PRIVATE_EXECUTOR:
        path = quote(str(described.get("path")))
        return f"the job has the executor {path}, and the policy of this site allows only PrivateExecutor around it"
    return ""


class PrivateResults(Filter):
    """Blocks every task result except answers of Coterie and errors without content.

    As a filter of task data that goes out, it blocks what clients send to each other as tasks. It does not see events,
    and other messages of NVFlare's components: :class:`PrivateJobs` does not let those components start.
    """

    def process(self, shareable: Shareable, fl_ctx: FLContext) -> Shareable:
        """Return a result without its headers, or block it."""
        content = set(shareable) - {ReservedHeaderKey.HEADERS}
        try:
            if content and content != {KEY}:
                raise PeerProtocolError("this job", "answers with more than Coterie's message")
            if content:
                decode(shareable[KEY], Answer, "this job")
        except PeerProtocolError as error:
            raise ContentBlockedException(f"{error}: the policy of this site lets only Coterie's answers out") from None
        code = shareable.get_return_code()
        result = make_reply(code if code in CODES else ReturnCode.EXECUTION_EXCEPTION)
        if content:
            result[KEY] = shareable[KEY]
        return result
