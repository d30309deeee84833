"""Credentials: how a node proves its identity, and how nodes check the identity keys on a roster.

When a node introduces itself, it proves that it has its identity key. But only the server claims that this key belongs
to this node, unless the node also signs it with the key that it authenticates with. This signature is a voucher. The
server sends the vouchers with the roster. A node whose operator gave it the public keys of all members checks them
before it trusts a roster.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from coterie.cohorts.memory import ClientMemory
from coterie.cohorts.roster import Client, Roster
from coterie.crypto.context import bind
from coterie.crypto.signing import Identity, verify
from coterie.crypto.vouchers import check_voucher, read_public_keys, vouch
from coterie.deployment.node import NAME, NodeSettings
from coterie.deployment.recipe import RosterRecipe
from coterie.errors import ConfigError, PeerProtocolError, VerificationError

_SERVER = "server"
_DIGEST = re.compile(r"[0-9A-Fa-f]{64}")


class Voucher(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A signature of a node's identity: the node's authentication key, in DER, and the signature."""

    public: bytes
    signature: bytes


class Introduction(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A node's answer to a request to introduce itself."""

    name: str
    identity: bytes
    proof: bytes
    """A signature with the identity key, for this run and this node."""
    run_config: bytes
    """The digest of the configuration that the node has."""
    roster: bytes = b""
    """The digest of the roster that it trusts; empty before the first."""
    voucher: Voucher | None = None
    pin: bytes = b""
    """The digest of a roster that it needs, with all later ones; empty if it needs only the usual ones."""
    prekeys: bytes = b""
    """All its unused prekeys, if they were requested and the node knows its population."""
    weight_bits: int | None = None
    """The number of binary digits of its weight, if its operator announces it and the node trusts no roster yet."""

    @property
    def client(self) -> Client:
        """The node as a client of a roster."""
        return Client(self.name, self.identity)

    def to_bytes(self) -> bytes:
        """Encode the introduction; servers of earlier versions do not know the last two fields."""
        fields = msgspec.structs.astuple(self)
        if self.weight_bits is None:
            fields = fields[:-1] if self.prekeys else fields[:-2]
        return msgspec.msgpack.encode(fields)


def introduce(
    settings: NodeSettings,
    identity: Identity,
    *,
    run: int,
    node: int,
    run_config: bytes,
    memory: ClientMemory,
    prekeys: bytes = b"",
) -> Introduction:
    """Return a node's introduction."""
    client = Client(settings.name, identity.public)
    voucher = Voucher(*vouch(Path(settings.auth_key), _enrolment(client))) if settings.auth_key else None
    proof = identity.sign(_hello(client, run, node))
    known = memory.roster.digest if memory.roster else b""
    pin = _pin(settings)
    missing = pin if pin and not memory.follows(pin) else b""
    announced = settings.weight if settings.announce_weight and not known else None
    bits = None if announced is None else announced.bit_length()
    return Introduction(client.name, client.identity, proof, run_config, known, voucher, missing, prekeys, bits)


def read_introduction(data: bytes, *, run: int, node: int, authenticated: bytes) -> Introduction:
    """Read and check a node's introduction; :class:`PeerProtocolError` if it is invalid.

    ``authenticated`` is the public key that the node is connected with; empty if nodes are not authenticated.
    """
    sender = f"node {node}"
    try:
        said = msgspec.msgpack.decode(data, type=Introduction)
        if not NAME.fullmatch(said.name):
            raise PeerProtocolError(sender, "says it has a name that is not allowed")
        if said.weight_bits is not None and said.weight_bits < 0:
            raise PeerProtocolError(sender, "announces a weight below 0")
        verify(said.identity, said.proof, _hello(said.client, run, node))
        if said.voucher is not None:
            if authenticated and read_public_keys(authenticated) != [said.voucher.public]:
                raise PeerProtocolError(sender, "vouches with another key than it is connected with")
            check_voucher(said.voucher.public, said.voucher.signature, _enrolment(said.client))
    except (ValueError, VerificationError):
        raise PeerProtocolError(
            sender, "answered the enrolment request with something that cannot be read or verified"
        ) from None
    return said


def check_roster(
    settings: NodeSettings, memory: ClientMemory, shown: Sequence[Roster], vouchers: Mapping[str, Voucher]
) -> None:
    """Refuse a roster that this node's operator does not accept: T too small, not from the pinned one, unknown members.

    The roster is the last one shown, or the one already trusted, because settings may have changed since.
    :meth:`ClientMemory.trust` checks that the rosters shown follow each other and the trusted one.
    """
    roster = shown[-1] if shown else memory.roster
    if roster is None:
        return  # a node that trusts no roster takes part in no session
    RosterRecipe.of(roster)  # refuses a roster whose recipe this version cannot read
    if roster.privacy < settings.floor.privacy:
        least = settings.floor.privacy
        raise PeerProtocolError(
            _SERVER, f"has a roster that promises T = {roster.privacy}; this node requires at least {least}"
        )
    pin = _pin(settings)
    if pin and pin not in {version.digest for version in shown} and not memory.follows(pin):
        raise PeerProtocolError(
            _SERVER, f"has a roster that does not come from the one this node is pinned to, {pin.hex()[:8]}..."
        )
    if settings.members:
        _check_members(Path(settings.members), roster, vouchers)


def _check_members(file: Path, roster: Roster, vouchers: Mapping[str, Voucher]) -> None:
    """Refuse a roster with a client that no member in this file vouches for. A member vouches for one client only."""
    try:
        members = set(read_public_keys(file.read_bytes()))
    except OSError as error:
        raise ConfigError(f"coterie-members: {error}") from None
    by: set[bytes] = set()
    for client in roster.clients:
        voucher = vouchers.get(client.name)
        if voucher is None or voucher.public not in members - by:
            raise PeerProtocolError(_SERVER, f"{client.name} is on the roster, and no member vouches for it")
        try:
            check_voucher(voucher.public, voucher.signature, _enrolment(client))
        except VerificationError:
            raise PeerProtocolError(_SERVER, f"the voucher for {client.name} is not for its identity key") from None
        by.add(voucher.public)


def _pin(settings: NodeSettings) -> bytes:
    """Return the digest of the roster that a node is pinned to; empty if it has no pin."""
    if not settings.roster:
        return b""
    if not _DIGEST.fullmatch(settings.roster):
        raise ConfigError("coterie-roster: a roster's digest has 64 hexadecimal digits, in quotes")
    return bytes.fromhex(settings.roster)


# The labels below are signed too. They name the first engine, and are the same for all engines.


def _hello(client: Client, run: int, node: int) -> bytes:
    return bind("flower hello", client.name.encode(), client.identity, run, node)


def _enrolment(client: Client) -> bytes:
    return bind("flower enrolment", client.name.encode(), client.identity)
