"""Enrolment: the clients behind the connected nodes, and the roster of these clients.

A node's number does not identify it: without authentication it changes whenever the node starts, and in a simulation
with every run. So each node is asked once in a run to introduce itself. The first run founds the roster with the
connected nodes. Later nodes wait in its queue until there are enough for a circle.

For rounds in two trips the server needs prekeys of each node. Nodes that know their population send them with their
introduction. A node that has not seen the roster yet, or has no prekeys left, is asked again.
"""

import secrets
import time
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from coterie.cohorts.circles import random_circles
from coterie.cohorts.roster import Client, Roster
from coterie.deployment.credentials import Introduction, Voucher, read_introduction
from coterie.deployment.engine import HELLO, TRAIN, Carrier, Trip, TripReply
from coterie.deployment.logs import LOGGER, group_by_reason, list_names
from coterie.deployment.reasons import NOTHING, Asked
from coterie.deployment.recipe import RosterRecipe
from coterie.deployment.roster_folder import RosterFolder
from coterie.deployment.settings import MOST_ANNOUNCED, MOST_EXAMPLES, PrivateSettings
from coterie.errors import ConfigError, PeerProtocolError
from coterie.files import write_secret
from coterie.reports.words import count, one_line
from coterie.secagg.protocols import SessionProtocol

_NO_PREKEYS = "gave no prekeys: it needs the same version of Coterie as the server"
_LOOK = 0.5  # seconds between two checks of the connected nodes


class Enrolment:
    """The clients behind a carrier."""

    def __init__(self, carrier: Carrier, folder: Path, settings: PrivateSettings, asked: Asked = NOTHING) -> None:
        """Open a population.

        Args:
            carrier: the connection to the nodes.
            folder: the server's folder, where the rosters are stored.
            settings: a new roster gets their T and their recipe; an existing one must have the same.
            asked: says where Coterie must be in an app, in the words of its engine.

        """
        self._carrier, self._folder, self._settings, self._asked = carrier, folder, settings, asked
        self._patience = settings.deadline
        self._offers: dict[str, bytes] = {}
        self._rosters = RosterFolder(folder / "rosters")
        self._vouchers = VoucherFile(folder / "vouchers")
        self._known: dict[int, Introduction | None] = {}
        self._node_of: dict[str, int] = {}
        self.unknown: dict[str, str] = {}
        """Nodes that were asked to introduce themselves and do not take part in this run, with the reason."""

    @property
    def roster(self) -> Roster:
        """The current roster."""
        if (roster := self._rosters.latest) is None:
            raise ConfigError("no node has been enrolled")
        if roster.privacy != self._settings.privacy:
            raise ConfigError(
                f"the roster promises T = {roster.privacy}, but privacy is set to {self._settings.privacy}. Circles "
                f"never change: set privacy to {roster.privacy}, or found another population in a folder of its own"
            )
        self._settings.check_kept(RosterRecipe.of(roster))
        return roster

    @property
    def folder(self) -> Path:
        """The server's folder."""
        return self._folder

    @property
    def population(self) -> bytes:
        """The digest of the first roster, which prekeys are signed for."""
        return self._rosters.population

    @property
    def run_config(self) -> bytes:
        """The digest of the run's configuration that most nodes have; the other nodes will not take part."""
        counts = Counter(said.run_config for said in self._known.values() if said is not None)
        return max(counts, key=lambda digest: (counts[digest], digest)) if counts else b""

    def gather(self, function: str, wanted: int) -> None:
        """Wait until enough nodes are connected, let new ones introduce themselves, and update the roster."""
        self._rosters = RosterFolder(self._folder / "rosters")  # a circle may have been retired meanwhile
        founding = self._rosters.latest is None
        until = time.monotonic() + self._patience
        while len(self._carrier.connected()) < wanted and time.monotonic() < until:
            time.sleep(_LOOK)
        self._meet(function)
        if founding:
            self._found()
        else:
            self._enrol()

    def available(self) -> NDArray[np.bool_]:
        """Return for each client of the roster whether its node is connected."""
        connected = self._carrier.connected()
        return np.array([self._node_of.get(name) in connected for name in self.roster.names], dtype=np.bool_)

    def take_offers(self) -> dict[str, bytes]:
        """Return the prekeys that clients offered since the last call, by their names."""
        offers, self._offers = self._offers, {}
        return offers

    def ask_prekeys(self, function: str, clients: Collection[str], *, renew: bool = False) -> dict[str, str]:
        """Send clients all rosters and ask for their prekeys; return the reasons of those that gave none.

        With ``renew`` they are asked to erase earlier ones first. A node that joined late may have seen only the latest
        roster, which does not identify its population.
        """
        nodes = {self._node_of[client]: client for client in clients}
        rosters = tuple(roster.to_bytes() for roster in self._rosters.versions)
        question = replace(
            self._question(function, nodes, prekeys=True),
            renew=renew,
            rosters=dict.fromkeys(nodes, rosters),
            vouchers=self.vouchers,
        )
        keys, reasons = self._carrier.authentication_keys(), dict[str, str]()
        for reply in self._carrier.send(question):
            client, reason = nodes[reply.node], reply.reason
            if not reason:
                try:
                    said = self._read(reply, keys)
                    if said.name != client:
                        raise PeerProtocolError(f"node {reply.node}", f"said before that it is {client}")
                    self._admit(reply.node, said)
                    reason = "" if said.prekeys else _NO_PREKEYS
                except PeerProtocolError as error:
                    reason = one_line(error.reason)
            if reason:
                reasons[client] = reason
        return reasons

    def node(self, client: str) -> int:
        """Return the number of this client's node."""
        return self._node_of[client]

    def missing_rosters(self, client: str) -> tuple[bytes, ...]:
        """Return the rosters that a client needs with an invitation."""
        said = self._known.get(self._node_of[client])
        missing = self._rosters.since(said.roster, said.pin) if said else self._rosters.since(b"")
        return tuple(roster.to_bytes() for roster in missing)

    @property
    def vouchers(self) -> bytes:
        """All vouchers, for every invitation: a node whose operator named the members checks them each time."""
        return self._vouchers.to_bytes()

    def mark_answered(self, client: str) -> None:
        """Record that a client takes part in a session, and thus trusts the current roster."""
        node, latest = self._node_of[client], self._rosters.latest
        if (said := self._known.get(node)) is not None and latest is not None:
            self._known[node] = msgspec.structs.replace(said, roster=latest.digest, pin=b"")

    def _meet(self, function: str) -> None:
        """Ask every new node to introduce itself; a node that does not answer takes no part in this run."""
        new = sorted(set(self._carrier.connected()) - self._known.keys())
        if not new:
            return
        keys = self._carrier.authentication_keys()
        silent: dict[str, str] = {}
        altered: dict[str, str] = {}
        prekeys = self._settings.protocol != SessionProtocol.PAPERS
        for reply in self._carrier.send(self._question(function, new, prekeys=prekeys)):
            self._known[reply.node] = None
            name = f"node {reply.node}"
            if reply.reason:
                silent[name] = reply.reason
                continue
            try:
                said = self._read(reply, keys)
                self._admit(reply.node, said)
            except PeerProtocolError as error:
                self.unknown[name] = one_line(error.reason)
                LOGGER.warning("%s", one_line(error))
                continue
            if reply.altered:
                altered[said.name] = f"something around Coterie changes the requests to this node: {self._asked.place}"
        for line in group_by_reason(silent):
            LOGGER.warning("did not introduce themselves, and take no part: %s", line)
        for line in group_by_reason(altered):
            LOGGER.warning("%s", line)
        self.unknown |= silent

    def _question(self, function: str, nodes: Collection[int], *, prekeys: bool) -> Trip:
        """Return the request to these nodes to introduce themselves."""
        return Trip(
            function,
            HELLO,
            dict.fromkeys(nodes, b""),
            self._patience,
            hello=True,
            prekeys=prekeys,
            asked=self._asked,
        )

    def _read(self, reply: TripReply, keys: Mapping[int, bytes]) -> Introduction:
        key = keys.get(reply.node, b"")
        return read_introduction(reply.payload, run=self._carrier.run, node=reply.node, authenticated=key)

    def _admit(self, node: int, said: Introduction) -> None:
        roster = self._rosters.latest
        for known in [*self._clients(), *(roster.clients if roster else ())]:
            if known != said.client and known.name == said.name:
                raise PeerProtocolError(f"node {node}", f"says it is {said.name}, but has another identity key")
            if known != said.client and known.identity == said.identity:
                raise PeerProtocolError(f"node {node}", f"says it is {said.name}, but has the key of {known.name}")
        self._known[node] = msgspec.structs.replace(said, prekeys=b"")
        self._node_of[said.name] = node
        if said.prekeys:
            self._offers[said.name] = said.prekeys
        if said.voucher is not None:
            self._vouchers.add(said.name, said.voucher)

    def _found(self) -> None:
        clients, privacy = self._clients(), self._settings.privacy
        if len(clients) < max(2, privacy):
            raise ConfigError(
                f"{count(len(clients), 'node')} enrolled within {self._patience:g} s; a roster needs at least "
                f"{max(2, privacy)}, for circles of T = {privacy}"
                + "".join(f"; {line}" for line in group_by_reason(self.unknown))
            )
        # The circles must not be predictable, so their seed is secret; the circles themselves are public.
        circles = random_circles(len(clients), privacy, np.random.default_rng(secrets.randbits(128)))
        self._rosters.add(Roster.found(clients, circles, privacy, self._recipe().to_bytes()))
        self._log_roster("founded")

    def _recipe(self) -> RosterRecipe:
        """Return the recipe of the new roster, and log where its largest weight comes from."""
        announced = {said.name: said.weight_bits for said in self._known.values() if said is not None}
        recipe = self._settings.recipe_for(list(announced.values()))
        if self._settings.most_examples is None:
            known = {name: bits for name, bits in announced.items() if bits is not None}
            believed = {name: bits for name, bits in known.items() if bits <= MOST_ANNOUNCED}
            for name in sorted(known.keys() - believed.keys()):
                LOGGER.warning(
                    "%s announces 2^%s examples or more, which is ignored: more than %s need most_examples",
                    name,
                    known[name] - 1,
                    f"{(1 << MOST_ANNOUNCED) - 1:,}",
                )
            largest = sorted(name for name, bits in believed.items() if bits == max(believed.values()))
            reason = "from the weights that nodes announce, the largest by " + list_names(largest)
            if lacking := len(announced) - len(believed):
                reason = f"{lacking} of {len(announced)} nodes announce no weight (coterie-announce-weight)"
                if recipe.most_weight > MOST_EXAMPLES:
                    reason += f", and the largest is announced by {list_names(largest)}"
            LOGGER.info("most_examples is %s: %s", f"{recipe.most_weight:,}", reason)
        return recipe

    def _enrol(self) -> None:
        roster = self.roster
        placed = {number for circle in roster.circles for number in circle} | set(roster.queue)
        names = {roster.names[number] for number in placed}
        new = [client for client in self._clients() if client.name not in names]
        if new:
            self._rosters.add(roster.join(new))
            self._log_roster(f"joined by {', '.join(client.name for client in new)}")

    def _clients(self) -> list[Client]:
        met = {said.name: said.client for said in self._known.values() if said is not None}
        return [met[name] for name in sorted(met)]

    def _log_roster(self, what: str) -> None:
        roster = self.roster
        LOGGER.info("roster version %s, %s: digest %s", roster.version, what, roster.digest.hex())
        for line in roster.lines():
            LOGGER.info("  %s", line)


def enrol(carrier: Carrier, folder: Path, settings: PrivateSettings, asked: Asked, wanted: int) -> Enrolment:
    """Wait until enough nodes are connected, enrol them for training, and log the roster."""
    enrolment = Enrolment(carrier, folder, settings, asked)
    enrolment.gather(TRAIN, wanted)
    roster = enrolment.roster
    LOGGER.info(
        "T = %s, %s circles of %s clients in use, %s mode",
        roster.privacy,
        len(roster.active),
        sum(len(circle) for circle in roster.active),
        settings.mode,
    )
    return enrolment


class VoucherFile:
    """The vouchers of all nodes that gave one, by name."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._vouchers: dict[str, Voucher] = {}
        if path.exists():
            try:
                self._vouchers = msgspec.msgpack.decode(path.read_bytes(), type=dict[str, Voucher])
            except ValueError:
                raise ConfigError(f"{path} is damaged; delete it, and nodes send their vouchers again") from None

    def add(self, name: str, voucher: Voucher) -> None:
        """Store a voucher in place of an earlier one, which may come from a node that was never enrolled."""
        self._vouchers[name] = voucher
        write_secret(self._path, self.to_bytes())

    def to_bytes(self) -> bytes:
        """Return the vouchers encoded for an invitation; empty if there are none."""
        return msgspec.msgpack.encode(self._vouchers) if self._vouchers else b""
