"""A task that NVFlare delivered to a node, as a delivery that Coterie answers."""

import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from coterie.deployment.engine import AppReply, Arrays, Delivery, Hello, NodeRequest, Task
from coterie.deployment.logs import quote
from coterie.deployment.node import run_config_digest
from coterie.deployment.reasons import Reason
from coterie.errors import PeerProtocolError, regarding
from coterie.secagg.messages import SERVER
from coterie.transports.nvflare.messages import (
    TASK,
    Answer,
    NodeMessage,
    Work,
    decode,
    encode,
    flatten,
    name_of,
    node_number,
)
from coterie.transports.nvflare.names import FUNCTIONS, TASKS

App: TypeAlias = Callable[[str, Arrays, Work], AppReply]
"""Runs a function of the app on a model; the work contains its further inputs."""


@dataclass(frozen=True)
class SiteApp:
    """The app of a job as this site received it. Members of a session check that all have the same."""

    config: Mapping[str, Any]
    """Its configuration, which is permanent after a node's first contribution."""
    files: Mapping[str, str]
    """Digests of its other files, code among them, by their paths. They may change from job to job."""

    @property
    def digest(self) -> bytes:
        """A digest of the whole app."""
        return run_config_digest({"config": sorted(flatten(dict(self.config))), "files": sorted(self.files.items())})


class NvflareRequest(NodeRequest):
    """A step of a session in a task, with the app's executor behind it."""

    def __init__(self, message: NodeMessage, site_app: SiteApp, app: App) -> None:
        """Prepare the answer to a step of a session.

        A function must be one that Coterie has a task for. First use fixes the configuration of each function
        separately, so a server that could give one task many names would get sums of contributions made in many ways.
        """
        if message.function not in TASKS:
            with regarding(Reason.FORM):
                asked = quote(message.function)
                raise PeerProtocolError(SERVER, f"asked for the function {asked}; there are {', '.join(TASKS)}")
        self._message, self._site_app, self._app = message, site_app, app
        self.task = Task(message.run, message.function, message.group)
        self.created_at, self.ttl = message.created_at, message.seconds
        self.run_config = site_app.digest
        self.rosters, self.vouchers, self.notice = message.rosters, message.vouchers, message.notice

    def identifier(self) -> bytes:
        """Return a digest of the message."""
        return hashlib.sha256(encode(self._message)).digest()

    def payload(self) -> bytes:
        """Return the protocol's message."""
        return self._message.payload

    def content(self) -> bytes:
        """Return the name of the work as it arrived."""
        return name_of(self._message.work)

    def arrays(self) -> Arrays:
        """Return the model."""
        return self._arrays

    def configuration(self, varying: Collection[str]) -> Iterator[tuple[str, bytes]]:
        """Yield the configuration of the app's function.

        It consists of the app's configuration; the entries of ``FLModel.meta`` with their order, except keys that may
        vary; the first round's number, unless it is 0; and names, order, shapes and types of the arrays. The number of
        rounds and that of the current one are not part of it, because they change with every job and round.
        """
        yield from flatten(dict(self._site_app.config), "app")
        if self._work.start:
            yield "start_round of the model", repr(self._work.start).encode()
        fixed = ((key, value) for key, value in self._work.entries().items() if key not in varying)
        for place, (key, value) in enumerate(fixed):
            yield f"{key!r} of the model's meta", repr((place, value)).encode()
        for place, (name, array) in enumerate(self._arrays.items()):
            yield f"array {name!r}", repr((place, array.shape, array.dtype.str)).encode()

    def run_app(self, model: Arrays | None = None) -> AppReply:
        """Run the app's executor on copies, because an app may change its input."""
        given = self._arrays if model is None else model
        return self._app(self.task.function, {name: np.array(array) for name, array in given.items()}, self._work)

    @cached_property
    def _work(self) -> Work:
        return decode(self._message.work, Work, SERVER)

    @cached_property
    def _arrays(self) -> Arrays:
        return self._work.arrays()


class TaskDelivery(Delivery[bytes]):
    """A task on a site, and the app's executor behind it; replies are encoded messages of :class:`Answer`."""

    def __init__(self, task: str, data: object, site: str, site_app: Callable[[], SiteApp], app: App) -> None:
        """Take in a task.

        Args:
            task: its name.
            data: the value under Coterie's key in its data.
            site: the name of this site.
            site_app: reads the app of the job.
            app: runs the app's executor.

        """
        self._task, self._data, self._site, self._site_app, self._app = task, data, site, site_app, app
        self.function = FUNCTIONS.get(task, task)
        self.passed = False
        """Whether the app should answer the task itself, unprotected."""

    def kind(self) -> str | None:
        """Return the kind that the message states; None if the task is one of the app's own."""
        return self._message.kind if self._task == TASK else None

    def about(self) -> str:
        """Return the server's words for the round and the step."""
        return self._message.about

    def hello(self) -> Hello:
        """Return the request to introduce itself."""
        message = self._message
        return Hello(
            message.run,
            node_number(self._site),
            self._site_app().digest,
            prekeys=message.prekeys,
            renew=message.renew,
            rosters=message.rosters,
            vouchers=message.vouchers,
        )

    def request(self) -> NvflareRequest:
        """Return the step of a session."""
        return NvflareRequest(self._message, self._site_app(), self._app)

    def pass_on(self) -> bytes:
        """Record that the app should answer."""
        self.passed = True
        return b""

    def reply(self, payload: bytes) -> bytes:
        """Encode an answer."""
        return encode(Answer(payload))

    def refuse(self, word: str) -> bytes:
        """Encode a refusal."""
        return encode(Answer(refusal=word))

    @cached_property
    def _message(self) -> NodeMessage:
        return decode(self._data, NodeMessage, SERVER)
