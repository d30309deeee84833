"""What an operator sets as the policy of a site, which no job can change.

In ``local/privacy.json`` of the site::

    {"default_scope": "coterie",
     "scopes": [{"name": "coterie",
                 "task_data_filters": [{"path": "coterie.transports.nvflare.filters.PrivateResults",
                                        "direction": "out"}],
                 "task_result_filters": [{"path": "coterie.transports.nvflare.filters.PrivateResults"}]}],
     "components": [{"id": "coterie", "path": "coterie.transports.nvflare.filters.PrivateJobs"}]}

A job that is not all under a :class:`~.executor.PrivateExecutor` then does nothing on this site. This protects only if
jobs may not bring their own code (NVFlare's right ``byoc``), and if no class that starts scripts or commands is allowed
(``class_allow_list``), because code can send data in any form.
"""

from nvflare.apis.filter import ContentBlockedException, Filter
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import ReservedHeaderKey, Shareable, make_reply

from coterie.errors import PeerProtocolError
from coterie.transports.nvflare.components import Guard
from coterie.transports.nvflare.messages import KEY, Answer, decode

CODES = frozenset(value for name, value in vars(ReturnCode).items() if name.isupper())
"""The return codes of NVFlare; any other text may quote data."""


class PrivateJobs(Guard):
    """Stops jobs with a component that Coterie does not accept, or with an executor beside ``PrivateExecutor``.

    NVFlare then answers every task of the job with ``UNSAFE_JOB``. Federated events of all jobs stay on the site.
    """

    def refuse(self, _reason: str, fl_ctx: FLContext) -> None:
        """Let NVFlare run no task of this job."""
        fl_ctx.set_job_is_unsafe()


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
