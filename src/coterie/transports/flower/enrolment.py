"""An enrolment: which of the nodes that are connected is which client, and the roster that they are on.

A node's number says nothing: without authentication it changes whenever the node starts, and in a simulation with every
run. So each node is asked once a run who it is. The first time, the nodes that are there found the roster; later ones
wait in its queue until they are enough for a circle.
"""

import secrets
import time
from collections import Counter
from logging import INFO, WARNING
from pathlib import Path

import msgspec
import numpy as np
from flwr.app import ConfigRecordValues, RecordDict
from flwr.common.logger import log
from flwr.serverapp import Grid
from numpy.typing import NDArray

from coterie.cohorts.circles import random_circles
from coterie.cohorts.roster import Client, Roster
from coterie.errors import ConfigError, PeerProtocolError
from coterie.files import write_secret
from coterie.transports.flower.credentials import Introduction, Voucher, read_introduction
from coterie.transports.flower.exchange import Exchange
from coterie.transports.flower.link import steadily
from coterie.transports.flower.logs import grouped, shown
from coterie.transports.flower.reasons import FIRST
from coterie.transports.flower.recipe import RosterRecipe
from coterie.transports.flower.records import ALTERED, HELLO, header_of, packed, payload_of
from coterie.transports.flower.roster_folder import RosterFolder

_LOOK = 0.5  # seconds between two looks at who is connected


class Enrolment:
    """The clients behind a grid."""

    def __init__(self, grid: Grid, folder: Path, *, privacy: int, patience: float, recipe: RosterRecipe) -> None:
        """Take up a federation.

        Args:
            grid: Flower's own.
            folder: the server's, where the rosters are kept.
            privacy: T, the size of circles, if there is no roster yet.
            patience: seconds that nodes have to connect and to say who they are.
            recipe: how contributions are made, if there is no roster yet.

        """
        self._recipe = recipe
        self._grid, self._folder, self._privacy, self._patience = grid, folder, privacy, patience
        self._rosters = RosterFolder(folder / "rosters")
        self._vouchers = _VoucherFile(folder / "vouchers")
        self._known: dict[int, Introduction | None] = {}
        self._node_of: dict[str, int] = {}
        self.unknown: dict[str, str] = {}
        """Nodes that were asked who they are and take no part in this run, with the reason."""

    @property
    def roster(self) -> Roster:
        """The roster as it is now."""
        if (roster := self._rosters.latest) is None:
            raise ConfigError("no node has been enrolled")
        if roster.privacy != self._privacy:
            raise ConfigError(
                f"the roster promises T = {roster.privacy}, and privacy = {self._privacy} is asked for: circles are "
                "for good, so either ask for what it promises, or found another population in a folder of its own"
            )
        RosterRecipe.of(roster).check_kept(self._recipe)
        return roster

    @property
    def run_config(self) -> bytes:
        """The digest of the run's configuration that most nodes were given; the others will not take part."""
        counts = Counter(said.run_config for said in self._known.values() if said is not None)
        return max(counts, key=lambda digest: (counts[digest], digest)) if counts else b""

    def gather(self, message_type: str, wanted: int) -> None:
        """Wait until so many nodes are connected, ask the new ones who they are, and bring the roster up to date."""
        self._rosters = RosterFolder(self._folder / "rosters")  # somebody may have retired a circle meanwhile
        founding = self._rosters.latest is None
        until = time.monotonic() + self._patience
        while len(self._connected()) < wanted and time.monotonic() < until:
            time.sleep(_LOOK)
        self._meet(message_type)
        if founding:
            self._found()
        else:
            self._enrol()

    def there(self) -> NDArray[np.bool_]:
        """Tell for each client of the roster whether its node is connected."""
        connected = self._connected()
        return np.array([self._node_of.get(name) in connected for name in self.roster.names], dtype=np.bool_)

    def node(self, client: str) -> int:
        """Return the node that is this client."""
        return self._node_of[client]

    def shown_to(self, client: str) -> dict[str, ConfigRecordValues]:
        """Return what an invitation shows a client: the rosters that it has not seen, and every voucher there is.

        A node whose operator named the members checks them whenever it is invited, and keeps no vouchers.
        """
        said = self._known.get(self._node_of[client])
        missing = self._rosters.since(said.roster, said.pin) if said else self._rosters.since(b"")
        shown: dict[str, ConfigRecordValues] = {}
        if missing:
            shown["rosters"] = [roster.to_bytes() for roster in missing]
        if vouchers := self._vouchers.to_bytes():
            shown["vouchers"] = vouchers
        return shown

    def answered(self, client: str) -> None:
        """Note that a client takes part in a session, and so has taken over the roster as it is."""
        node = self._node_of[client]
        if (said := self._known.get(node)) is not None:
            self._known[node] = msgspec.structs.replace(said, roster=self.roster.digest, pin=b"")

    def _connected(self) -> set[int]:
        return set(steadily(self._grid.get_node_ids, self._patience))

    def _meet(self, message_type: str) -> None:
        """Ask every node that was not asked before; a node that will not say takes no part in this run."""
        new = sorted(self._connected() - self._known.keys())
        if not new:
            return
        keys = {info.node_id: bytes(info.public_key) for info in steadily(self._grid.get_nodes, self._patience)}
        hello: RecordDict = packed(b"", {"kind": HELLO})
        run = self._grid.run.run_id
        silent: dict[str, str] = {}
        altered: dict[str, str] = {}
        for reply in Exchange(self._grid, message_type, "hello").ask(dict.fromkeys(new, hello), self._patience):
            self._known[reply.node] = None
            name = f"node {reply.node}"
            if reply.records is None:
                silent[name] = reply.reason
                continue
            try:
                payload = payload_of(reply.records, name)
                said = read_introduction(payload, run=run, node=reply.node, authenticated=keys.get(reply.node, b""))
                self._admit(reply.node, said)
            except PeerProtocolError as error:
                self.unknown[name] = shown(error.reason)
                log(WARNING, "Coterie: %s", shown(error))
                continue
            header = header_of(reply.records)
            if header is not None and header.get(ALTERED) is True:
                altered[said.name] = f"something around private_mod changes what this node is asked: {FIRST}"
        for line in grouped(silent):
            log(WARNING, "Coterie: did not say who they are, and take no part: %s", line)
        for line in grouped(altered):
            log(WARNING, "Coterie: %s", line)
        self.unknown |= silent

    def _admit(self, node: int, said: Introduction) -> None:
        roster = self._rosters.latest
        for known in [*self._clients(), *(roster.clients if roster else ())]:
            if known != said.client and known.name == said.name:
                raise PeerProtocolError(f"node {node}", f"says it is {said.name}, but has another identity key")
            if known != said.client and known.identity == said.identity:
                raise PeerProtocolError(f"node {node}", f"says it is {said.name}, but has the key of {known.name}")
        self._known[node] = said
        self._node_of[said.name] = node
        if said.voucher is not None:
            self._vouchers.add(said.name, said.voucher)

    def _found(self) -> None:
        clients = self._clients()
        if len(clients) < max(2, self._privacy):
            raise ConfigError(
                f"{len(clients)} nodes are there after {self._patience:g} s; a roster is founded with at least "
                f"{max(2, self._privacy)}, for circles of T = {self._privacy}"
                + "".join(f"; {line}" for line in grouped(self.unknown))
            )
        # Nobody outside may foresee the circles, so the seed is a secret; the circles themselves are public.
        circles = random_circles(len(clients), self._privacy, np.random.default_rng(secrets.randbits(128)))
        self._rosters.add(Roster.found(clients, circles, self._privacy, self._recipe.to_bytes()))
        self._tell("founded")

    def _enrol(self) -> None:
        roster = self.roster
        placed = {number for circle in roster.circles for number in circle} | set(roster.queue)
        names = {roster.names[number] for number in placed}
        new = [client for client in self._clients() if client.name not in names]
        if new:
            self._rosters.add(roster.join(new))
            self._tell(f"joined by {', '.join(client.name for client in new)}")

    def _clients(self) -> list[Client]:
        met = {said.name: said.client for said in self._known.values() if said is not None}
        return [met[name] for name in sorted(met)]

    def _tell(self, what: str) -> None:
        roster = self.roster
        log(INFO, "Coterie: roster version %s, %s: digest %s", roster.version, what, roster.digest.hex())
        for line in roster.lines():
            log(INFO, "Coterie:   %s", line)


class _VoucherFile:
    """The vouchers of all nodes that gave one, by name."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._vouchers: dict[str, Voucher] = {}
        if path.exists():
            try:
                self._vouchers = msgspec.msgpack.decode(path.read_bytes(), type=dict[str, Voucher])
            except ValueError:
                raise ConfigError(f"{path} is damaged; delete it, and nodes vouch for themselves anew") from None

    def add(self, name: str, voucher: Voucher) -> None:
        """Keep a voucher, in place of an earlier one: that may be of somebody who was never enrolled."""
        self._vouchers[name] = voucher
        write_secret(self._path, self.to_bytes())

    def to_bytes(self) -> bytes:
        return msgspec.msgpack.encode(self._vouchers) if self._vouchers else b""
