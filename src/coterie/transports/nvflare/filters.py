"""A filter for the policy of a site. Its operator sets it, and no job can change it.

In ``local/privacy.json`` of the site::

    {"default_scope": "coterie",
     "scopes": [{"name": "coterie",
                 "task_result_filters": [{"path": "coterie.transports.nvflare.filters.PrivateResults"}]}]}

A job whose executor is not a :class:`~.executor.PrivateExecutor` then sends nothing. This protects only if jobs may not
bring their own code (NVFlare's right ``byoc``), and if no class that starts scripts or commands is allowed
(``class_allow_list``), because code can send data in any form.
"""

from nvflare.apis.filter import ContentBlockedException, Filter
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import ReservedHeaderKey, Shareable, make_reply

from coterie.errors import PeerProtocolError
from coterie.transports.nvflare.messages import KEY, Answer, decode

CODES = frozenset(value for name, value in vars(ReturnCode).items() if name.isupper())
"""The return codes of NVFlare; any other text may quote data."""


class PrivateResults(Filter):
    """Blocks every task result except answers of Coterie and errors without content.

    It sees only results of tasks. It does not see events, by which NVFlare sends metrics too.
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
