"""NVFlare's tasks as a carrier of trips: every node of a trip gets its own task, because messages differ.

A client of NVFlare asks its server for tasks. It gets the same task again until the server has its result, for example
after a restart. This is safe, because a repeated request gets the same answer. NVFlare drops a result that comes after
the end of a step, because its task is gone.
"""

import queue
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Protocol

from coterie.deployment.engine import HELLO, SHOW, STEP, Trip, TripReply
from coterie.deployment.reasons import LOG, Asked
from coterie.errors import CarrierError, PeerProtocolError
from coterie.reports.words import one_line
from coterie.transports.nvflare.messages import Answer, NodeMessage, decode, encode, node_number

PLACE = "PrivateExecutor is around the app's executor and has all tasks, and no filter changes Coterie's task"
"""Where Coterie must be in an app."""


class Result(Protocol):
    """Receives the result of a task: Coterie's bytes in it, and NVFlare's return code, which is empty on success."""

    def __call__(self, data: object, code: str) -> None:
        """Receive a result."""
        ...


class Tasks(Protocol):
    """The methods of an NVFlare controller that a carrier needs."""

    def sites(self) -> Collection[str]:
        """Return the names of the clients that take part in the job."""
        ...

    def is_gone(self, site: str) -> bool:
        """Return whether NVFlare considers a client disconnected."""
        ...

    def is_aborted(self) -> bool:
        """Return whether the job is being aborted."""
        ...

    def assign(self, site: str, data: bytes, seconds: float, result: Result) -> Callable[[], None]:
        """Give a client a task and return a function that withdraws it."""
        ...


class NvflareCarrier:
    """Sends trips as tasks."""

    def __init__(self, tasks: Tasks, run: int, *, look: float = 0.5) -> None:
        """Send to the clients of a job.

        Args:
            tasks: assigns tasks to clients.
            run: a unique number of the run.
            look: seconds between two checks for disconnected clients.

        """
        self._tasks, self._run, self._look = tasks, run, look

    @property
    def run(self) -> int:
        """The number of this run. NVFlare's identifier is not unique: its simulator gives every job the same name."""
        return self._run

    def connected(self) -> Collection[int]:
        """Return the numbers of the connected clients."""
        return {node_number(site) for site in self._tasks.sites() if not self._tasks.is_gone(site)}

    def authentication_keys(self) -> Mapping[int, bytes]:
        """Return none: NVFlare authenticates clients by certificates, but shows them to no controller."""
        return {}

    def send(self, trip: Trip) -> Iterator[TripReply]:
        """Assign a trip's tasks, and yield the replies as they arrive."""
        sites = {node_number(site): site for site in self._tasks.sites()}
        arrived: queue.SimpleQueue[tuple[int, object, str]] = queue.SimpleQueue()  # filled by threads of NVFlare
        until, created = time.monotonic() + trip.seconds, time.time()
        assigned: dict[int, Callable[[], None]] = {}
        try:
            for node, payload in trip.payloads.items():
                if node not in sites:
                    yield TripReply(node, reason="is not in this job any more")
                    continue
                data = encode(_message(trip, self._run, node, payload, created))

                def take(data: object, code: str, node: int = node) -> None:
                    arrived.put((node, data, code))

                assigned[node] = self._tasks.assign(sites[node], data, trip.seconds, take)
            while assigned:
                left = max(0.0, until - time.monotonic())
                try:  # a result that came in time counts, even if it is read later
                    node, result, code = arrived.get(block=left > 0, timeout=min(self._look, left))
                except queue.Empty:
                    if self._tasks.is_aborted():
                        raise CarrierError("the job was aborted: NVFlare's log says why") from None
                    for node in [node for node in assigned if self._tasks.is_gone(sites[node])]:
                        assigned.pop(node)()
                        yield TripReply(node, reason="went away")
                    if not left:
                        break
                    continue
                if assigned.pop(node, None) is not None:
                    yield _read(node, result, code, trip.asked)
            for node in sorted(assigned):
                yield TripReply(node, reason=f"did not answer within {trip.seconds:g} s")
        finally:
            for withdraw in assigned.values():
                withdraw()


def _message(trip: Trip, run: int, node: int, payload: bytes, created: float) -> NodeMessage:
    return NodeMessage(
        HELLO if trip.hello else SHOW if trip.shows else STEP,
        run,
        trip.function,
        trip.group,
        created,
        trip.seconds,
        payload=payload,
        work=trip.records if isinstance(trip.records, bytes) else b"",
        about=trip.about,
        notice=trip.notice,
        prekeys=trip.prekeys,
        renew=trip.renew,
        rosters=trip.rosters.get(node, ()),
        vouchers=trip.vouchers,
    )


def _read(node: int, data: object, code: str, asked: Asked) -> TripReply:
    if code:
        return TripReply(node, reason=f"{asked.outside}. {LOG.capitalize()} (NVFlare's return code {one_line(code)})")
    try:
        answer = decode(data, Answer, f"node {node}")
    except PeerProtocolError as error:
        return TripReply(node, reason=f"{one_line(error.reason)}: {asked.place}")
    if answer.refusal is not None:
        return TripReply(node, reason=asked.refusal(answer.refusal))
    return TripReply(node, answer.payload)
