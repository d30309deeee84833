"""The settings of a node's operator about rosters are checked at every invitation, whenever they were set."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from cryptography.hazmat.primitives import serialization as s
from cryptography.hazmat.primitives.asymmetric import ec
from flwr.serverapp.strategy import FedAvg
from tests.support.flower import FakeGrid, initial_arrays, make_app, make_grid
from tests.support.flower_strategies import QUIET, sums_of

from coterie.cohorts.circles import Circles
from coterie.cohorts.memory import ClientMemory, MemoryFile
from coterie.cohorts.roster import Client, Roster
from coterie.deployment.credentials import check_roster
from coterie.deployment.node import Node, NodeSettings
from coterie.deployment.recipe import RosterRecipe
from coterie.deployment.responder import trust_rosters
from coterie.deployment.roster_folder import RosterFolder
from coterie.errors import PeerProtocolError
from coterie.rounds.floor import Floor
from coterie.transports.flower import PrivateStrategy, private_mod

OTHER = "00" * 32
"""A digest of no roster."""


def play(grid: FakeGrid, rounds: int = 1) -> list[int]:
    """Return the number of clients in the sum of each round; 0 for a round without a result."""
    kept = PrivateStrategy(FedAvg(**QUIET), deadline=1, empty_rounds=0)
    kept.start(grid, initial_arrays(), rounds, timeout=2)
    return sums_of(kept) if rounds else []


def grid_of(size: int, **config: str) -> FakeGrid:
    return make_grid(make_app([private_mod]), size, config={f"coterie-{key}": value for key, value in config.items()})


def versions(home: Path) -> list[Roster]:
    return RosterFolder(home / "server" / "rosters").versions


def trusted(number: int) -> Roster | None:
    node = Node(NodeSettings.read({"partition-id": number}))
    with node.memory() as file:
        return file.of(node.client).roster


def test_a_run_of_no_rounds_enrols_and_trains_nothing(home: Path, log: pytest.LogCaptureFixture) -> None:
    assert play(grid_of(4), rounds=0) == []
    (roster,) = versions(home)
    assert f"roster version 0: digest {roster.digest.hex()}" in log.text
    assert [trusted(number) for number in range(4)] == [None] * 4
    assert not (home / "server" / "ledger.sqlite").exists()
    assert play(grid_of(4, roster=roster.digest.hex())) == [4]
    assert trusted(0) == roster


def test_a_second_run_of_no_rounds_logs_the_digest_and_keeps_the_checkpoint(
    home: Path, log: pytest.LogCaptureFixture
) -> None:
    play(grid_of(4), rounds=0)
    checkpoint = home / "server" / f"app-{hashlib.sha256().hexdigest()[:16]}.checkpoint"
    checkpoint.write_bytes(b"of a run that was interrupted")
    play(grid_of(4), rounds=0)
    assert versions(home)[-1].digest.hex() in log.text
    assert len(versions(home)) == 1
    assert checkpoint.exists()


def test_another_roster_than_the_pinned_one_is_never_trusted() -> None:
    assert play(grid_of(4, roster=OTHER)) == [0]
    assert [trusted(number) for number in range(4)] == [None] * 4


def test_a_pin_that_is_set_later_is_checked(home: Path, log: pytest.LogCaptureFixture) -> None:
    assert play(grid_of(4)) == [4]
    assert play(grid_of(4, roster=OTHER)) == [0]
    assert "does not come from the one this node is pinned to, 00000000..." in log.text
    assert play(grid_of(4, roster=versions(home)[0].digest.hex())) == [4]


def test_a_pin_keeps_working_when_the_population_grows(home: Path) -> None:
    play(grid_of(4), rounds=0)
    pin = versions(home)[0].digest.hex()
    assert play(grid_of(4, roster=pin)) == [4]
    assert play(grid_of(6, roster=pin), rounds=2) == [6, 6]  # the newcomers are not on the version they are pinned to
    assert len(versions(home)) == 2


def test_a_pin_to_an_older_version_serves_nodes_without_a_roster(home: Path) -> None:
    play(grid_of(4), rounds=0)
    play(grid_of(5), rounds=0)
    play(grid_of(6), rounds=0)
    first, _, third = versions(home)
    assert play(grid_of(6, roster=first.digest.hex())) == [6]
    assert trusted(0) == trusted(5) == third


def test_a_pin_to_a_version_from_before_the_first_trusted_one_can_be_set_later(home: Path) -> None:
    play(grid_of(4), rounds=0)
    play(grid_of(6), rounds=0)
    assert play(grid_of(6)) == [6]  # only the second version was shown
    assert play(grid_of(6, roster=versions(home)[0].digest.hex()), rounds=2) == [6, 6]


def test_a_pin_that_is_no_digest_is_refused(log: pytest.LogCaptureFixture) -> None:
    assert play(grid_of(4)) == [4]
    assert play(grid_of(4, roster="abc")) == [0]
    assert "coterie-roster: a roster's digest has 64 hexadecimal digits" in log.text


@pytest.fixture
def members(tmp_path: Path) -> list[bytes]:
    publics = []
    for number in range(6):
        key = ec.generate_private_key(ec.SECP384R1())
        secret = key.private_bytes(s.Encoding.PEM, s.PrivateFormat.OpenSSH, s.NoEncryption())
        (tmp_path / f"key-{number}").write_bytes(secret)
        publics.append(key.public_key().public_bytes(s.Encoding.OpenSSH, s.PublicFormat.OpenSSH))
    return publics


def vouching(size: int, folder: Path, listed: Sequence[bytes] | None) -> FakeGrid:
    file = folder / "members.pub"
    if listed is None:
        file.unlink(missing_ok=True)
    else:
        file.write_bytes(b"\n".join(listed))
    grid = grid_of(size, members=str(file))
    for number, node in enumerate(grid.nodes.values()):
        node.node_config["coterie-auth-key"] = str(folder / f"key-{number}")
    return grid


def test_members_are_checked_at_every_invitation(tmp_path: Path, members: list[bytes]) -> None:
    assert play(vouching(4, tmp_path, members[:4]), rounds=2) == [4, 4]
    assert play(vouching(4, tmp_path, None)) == [0]
    assert play(vouching(4, tmp_path, members[:3])) == [0]
    assert play(vouching(4, tmp_path, members[:4])) == [4]
    assert play(vouching(6, tmp_path, members[:4])) == [0]
    assert play(vouching(6, tmp_path, members)) == [6]


def test_a_members_file_that_is_set_later_is_checked(tmp_path: Path, members: list[bytes]) -> None:
    assert play(grid_of(4)) == [4]  # nobody vouches
    quiet = grid_of(4, members=str(tmp_path / "members.pub"))
    (tmp_path / "members.pub").write_bytes(b"\n".join(members))
    assert play(quiet) == [0]
    assert play(vouching(4, tmp_path, members)) == [4]


def found(*names: str) -> Roster:
    clients = [Client(name, name.encode()) for name in names]
    return Roster.found(clients, Circles.of([tuple(range(len(names)))]), 2, RosterRecipe().to_bytes())


def trust(settings: NodeSettings, memory: ClientMemory, rosters: list[Roster]) -> None:
    trust_rosters(settings, memory, [roster.to_bytes() for roster in rosters], b"")


def test_the_pinned_roster_shown_beside_another_one_does_not_help_a_lying_server(tmp_path: Path) -> None:
    ann = Client("ann", b"ann")
    honest, forged = found("ann", "bob", "cid"), found("ann", "eve", "mallory")
    later = forged.join([Client("oscar", b"oscar")])
    disguised = msgspec.structs.replace(later, predecessor=honest.digest)
    settings = NodeSettings("ann", tmp_path, Floor(privacy=2), roster=honest.digest.hex())
    for number, shown in enumerate(
        ([honest, forged], [honest, later], [honest, disguised], [forged], [forged, honest])
    ):
        with MemoryFile(tmp_path / f"{number}") as file, pytest.raises(PeerProtocolError):
            trust(settings, file.of(ann), shown)
    with MemoryFile(tmp_path / "pinned too late") as file:
        memory = file.of(ann)
        memory.trust(forged)
        for shown in ([], [honest, forged], [honest, later], [honest, disguised], [honest], [later]):
            with pytest.raises(PeerProtocolError):
                trust(settings, memory, shown)
        assert memory.roster == forged
        assert not memory.follows(honest.digest)


def test_a_floor_that_is_raised_later_is_checked(tmp_path: Path) -> None:
    with MemoryFile(tmp_path / "memory") as file:
        memory = file.of(Client("ann", b"ann"))
        memory.trust(found("ann", "bob", "cid"))
        check_roster(NodeSettings("ann", tmp_path, Floor(privacy=2)), memory, [], {})
        with pytest.raises(PeerProtocolError, match="T = 2; this node requires at least 3"):
            check_roster(NodeSettings("ann", tmp_path, Floor(privacy=3)), memory, [], {})
