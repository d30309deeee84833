"""Flower's grid as a carrier of trips: each becomes one exchange of messages with some nodes."""

from collections.abc import Collection, Iterator, Mapping

from flwr.app import ConfigRecordValues, RecordDict
from flwr.serverapp import Grid

from coterie.deployment.engine import HELLO, SHOW, STEP, Trip, TripReply
from coterie.errors import PeerProtocolError
from coterie.reports.words import one_line
from coterie.transports.flower.exchange import Exchange, Reply
from coterie.transports.flower.link import call_with_retries
from coterie.transports.flower.records import ALTERED, header_of, pack, payload_of


class FlowerCarrier:
    """Sends trips over a grid."""

    def __init__(self, grid: Grid, *, patience: float, grace: float) -> None:
        """Send over a grid.

        Args:
            grid: Flower's own grid.
            patience: how many seconds a call is retried while the SuperLink fails.
            grace: how many seconds to wait for a node that went away.

        """
        self._grid, self._patience, self._grace = grid, patience, grace

    @property
    def run(self) -> int:
        """The number of Flower's run."""
        return self._grid.run.run_id

    def connected(self) -> Collection[int]:
        """Return the nodes that are connected now."""
        return set(call_with_retries(self._grid.get_node_ids, self._patience))

    def authentication_keys(self) -> Mapping[int, bytes]:
        """Return the public keys of the SuperNodes; empty keys if they are not authenticated."""
        return {
            info.node_id: bytes(info.public_key) for info in call_with_retries(self._grid.get_nodes, self._patience)
        }

    def send(self, trip: Trip) -> Iterator[TripReply]:
        """Send a trip's messages, and yield the replies as they arrive."""
        exchange = Exchange(self._grid, trip.function, trip.group, self._grace, asked=trip.asked)
        requests = {node: _request(trip, node, payload) for node, payload in trip.payloads.items()}
        for reply in exchange.ask(requests, trip.seconds):
            yield _read(reply)


def _request(trip: Trip, node: int, payload: bytes) -> RecordDict:
    header: dict[str, ConfigRecordValues] = {
        "kind": HELLO if trip.hello else SHOW if trip.shows else STEP,
        "prekeys": trip.prekeys,
        "renew": trip.renew,
        "about": trip.about,
        "notice": trip.notice,
        "rosters": list(trip.rosters.get(node, ())),
        "vouchers": trip.vouchers,
    }
    sent = {name: value for name, value in header.items() if value}
    return pack(payload, sent, trip.records if isinstance(trip.records, RecordDict) else None)


def _read(reply: Reply) -> TripReply:
    if reply.records is None:
        return TripReply(reply.node, reason=reply.reason)
    try:
        payload = payload_of(reply.records, f"node {reply.node}")
    except PeerProtocolError as error:
        return TripReply(reply.node, reason=one_line(error.reason))
    header = header_of(reply.records)
    return TripReply(reply.node, payload, altered=header is not None and header.get(ALTERED) is True)
