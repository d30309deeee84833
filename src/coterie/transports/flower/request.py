"""A message that Flower delivered to a node, as a delivery that Coterie answers."""

from collections.abc import Collection, Iterator
from contextvars import ContextVar
from functools import cached_property

from flwr.app import Array, ArrayRecord, ConfigRecord, ConfigRecordValues, Context, Error, Message, RecordDict
from flwr.clientapp.typing import ClientAppCallable

from coterie.deployment.displacement import Displacement
from coterie.deployment.engine import HELLO, TRAIN, AppReply, Arrays, Delivery, Hello, NodeRequest, Task, kind_of
from coterie.deployment.logs import LOGGER, format_traceback
from coterie.deployment.node import run_config_digest
from coterie.deployment.reasons import Reason
from coterie.deployment.replies import reply_error
from coterie.errors import ConfigError, PeerProtocolError, TrainingError
from coterie.secagg.messages import SERVER
from coterie.transports.flower.confined import displacement_in
from coterie.transports.flower.records import (
    ALTERED,
    REFUSED,
    RecordArrays,
    app_records,
    configuration_of,
    header_of,
    model_of,
    name_of,
    pack,
    payload_of,
    without_ours,
)

_answering = ContextVar("answering", default=False)
"""Whether another instance of this mod is already answering the message."""


class FlowerRequest(NodeRequest):
    """A step of a session in a Flower message, with the ClientApp's function behind it."""

    def __init__(self, message: Message, header: ConfigRecord, context: Context, call_next: ClientAppCallable) -> None:
        about = message.metadata
        self._message, self._context, self._call_next = message, context, call_next
        self._received = without_ours(message.content)
        self._app = app_records(self._received)
        self.task = Task(about.run_id, about.message_type, about.group_id)
        self.created_at, self.ttl = about.created_at, about.ttl
        self.run_config = run_config_digest(context.run_config)
        self.rosters, self.vouchers = header.get("rosters", []), header.get("vouchers", b"")
        self.notice = header.get("notice", "")

    def identifier(self) -> bytes:
        """Return Flower's name of the message's records."""
        return bytes.fromhex(self._message.content.object_id)

    def payload(self) -> bytes:
        """Return the protocol's message."""
        return payload_of(self._message.content, SERVER)

    def content(self) -> bytes:
        """Return Flower's name of the app's records and of the models of a descent."""
        return name_of(self._received)

    def arrays(self) -> Arrays:
        """Return the model in the app's records."""
        return model_of(self._app)

    def configuration(self, varying: Collection[str]) -> Iterator[tuple[str, bytes]]:
        """Yield the configuration of the app's function."""
        return configuration_of(self._context.run_config, self._app, varying)

    def run_configuration(self, varying: Collection[str]) -> Iterator[tuple[str, bytes]]:
        """Yield the run's configuration."""
        return configuration_of(self._context.run_config, RecordDict(), varying)

    def displacement(self) -> Displacement | None:
        """Return the models of a confined descent."""
        return displacement_in(self._received)

    def run_app(self, model: Arrays | None = None) -> AppReply:
        """Call the app's function, and the mods between it and this one."""
        reply = self._reply(model)
        trains = kind_of(self.task.function) == TRAIN
        if len(reply.metric_records) != 1 or (trains and len(reply.array_records) != 1):
            raise reply_error(Reason.RECORDS, "the reply needs exactly one ArrayRecord and one MetricRecord")
        arrays = RecordArrays(next(iter(reply.array_records.values()))) if trains else {}
        return AppReply(arrays, next(iter(reply.metric_records.values())))

    def _reply(self, model: Arrays | None) -> RecordDict:
        message = self._message
        ours = message.content
        message.content = _copy_records(self._app, model)  # an app may change its input, and reply with it
        token = _answering.set(True)
        try:
            reply = self._call_next(message, self._context)
        except Exception as error:  # Flower would send the text of the error to the server, and it may quote data
            LOGGER.warning("the app's function failed:\n%s", format_traceback(error))
            raise TrainingError("the app's function failed") from None
        finally:
            _answering.reset(token)
            message.content = ours
        if not reply.has_content():
            raise TrainingError("the app's function answered with an error")
        content: RecordDict = reply.content
        return content


class FlowerDelivery(Delivery[Message]):
    """A Flower message on a node, and the ClientApp's function behind it."""

    def __init__(self, message: Message, context: Context, call_next: ClientAppCallable) -> None:
        self._message, self._context, self._call_next = message, context, call_next
        self.function = message.metadata.message_type

    def kind(self) -> str | None:
        """Return the kind of request by its header; None if there is no header."""
        if _answering.get():
            raise ConfigError("private_mod is listed twice: once in ClientApp(mods=[...]) or at a function is enough")
        return None if self._found is None else str(self._found.get("kind"))

    def about(self) -> str:
        """Return the server's words for the round and the step."""
        return str(self._header.get("about", ""))

    def hello(self) -> Hello:
        """Return the request to introduce itself."""
        about, header = self._message.metadata, self._header
        return Hello(
            about.run_id,
            about.dst_node_id,
            run_config_digest(self._context.run_config),
            prekeys=header.get("prekeys") is True,
            renew=header.get("renew") is True,
            rosters=header.get("rosters", []),
            vouchers=header.get("vouchers", b""),
        )

    def request(self) -> FlowerRequest:
        """Return the step of a session."""
        return FlowerRequest(self._message, self._header, self._context, self._call_next)

    def pass_on(self) -> Message:
        """Let the app answer."""
        return self._call_next(self._message, self._context)

    def reply(self, payload: bytes) -> Message:
        """Return a message with an answer; in the answer to a hello, also whether something changed the request."""
        altered = self._header.get("kind") == HELLO and bool(without_ours(self._message.content))
        said: dict[str, ConfigRecordValues] = {ALTERED: True} if altered else {}
        return Message(pack(payload, said), reply_to=self._message)

    def refuse(self, word: str) -> Message:
        """Return an error with a word."""
        return Message(Error(REFUSED, word), reply_to=self._message)

    @cached_property
    def _found(self) -> ConfigRecord | None:
        return header_of(self._message.content) if self._message.has_content() else None

    @property
    def _header(self) -> ConfigRecord:
        return self._found or ConfigRecord()


def _copy_records(received: RecordDict, model: Arrays | None) -> RecordDict:
    """Return a copy of records that can be changed without changing the received ones; the arrays' bytes are shared.

    A model takes the place of the one that was received.
    """
    records = RecordDict({key: record.copy() for key, record in received.items()})
    if model is not None:
        if len(received.array_records) != 1:  # otherwise the app might work on another model
            raise PeerProtocolError(SERVER, f"sent {len(received.array_records)} models in one request, not 1")
        (key,) = received.array_records
        records[key] = ArrayRecord({name: Array(array) for name, array in model.items()})
    return records
