"""The unavoidable work of a round on Flower: its operations are those that a real round does."""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp.strategy import FedAvg
from tests.support.flower import initial_arrays, make_app, make_grid

from coterie.arithmetic.ring import Ring
from coterie.bench.flower_limit import Operations
from coterie.crypto import agreement, keystream, signing
from coterie.secagg.protocols import SessionProtocol
from coterie.transports.flower import PrivateStrategy, private_mod


@pytest.mark.parametrize("active", [True, False])
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("nodes", [4, 7])
@pytest.mark.parametrize("protocol", list(SessionProtocol))
def test_operations_are_those_of_a_round(
    protocol: SessionProtocol,
    nodes: int,
    shared: bool,
    active: bool,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    counted: Counter[str] = Counter()
    exchange, stream, sign = agreement._exchange, keystream._stream, signing.Identity.sign
    make = agreement.PrivateKey.__init__

    def reads(public: bytes) -> Ed25519PublicKey:
        counted["verifications"] += 1
        return Ed25519PublicKey.from_public_bytes(public)

    def exchanges(*key: object) -> bytes:
        counted["agreements"] += 1
        return exchange(*key)  # type: ignore[arg-type]

    def streams(*seed: object) -> object:
        counted["masks"] += 1
        return stream(*seed)  # type: ignore[arg-type]

    def signs(self: signing.Identity, context: bytes) -> bytes:
        counted["signatures"] += 1
        return sign(self, context)

    def makes(self: agreement.PrivateKey, secret: bytes) -> None:
        counted["keys"] += 1
        make(self, secret)

    monkeypatch.setenv("COTERIE_HOME", str(tmp_path))
    mode = "active-server" if active else "honest-but-curious"
    grid = make_grid(make_app([private_mod]), nodes, config={"coterie-mode": mode})
    inner = FedAvg(fraction_evaluate=0.0, min_available_nodes=nodes)
    kept = PrivateStrategy(inner, mode=mode, protocol=protocol, resume=False)
    kept.start(grid, initial_arrays(), 1)  # enrols everybody, which is no part of a round
    monkeypatch.setattr(signing, "Ed25519PublicKey", SimpleNamespace(from_public_bytes=reads))
    if not shared:
        monkeypatch.setattr(signing, "_verify_once", signing._verify)
    monkeypatch.setattr(agreement, "_exchange", exchanges)
    monkeypatch.setattr(keystream, "_stream", streams)
    monkeypatch.setattr(agreement.PrivateKey, "__init__", makes)
    monkeypatch.setattr(signing.Identity, "sign", signs)
    grid.sent.clear()
    assert kept.grid is not None
    kept.grid.send_and_receive(_requests(grid.nodes))

    expected = Operations.of_round(nodes, 1 if shared else None, protocol, active=active)
    assert len(kept.grid.results[-1].revealed) == nodes
    assert len(grid.sent) == expected.answers
    for kind in ("keys", "agreements", "signatures", "verifications", "masks"):
        assert counted[kind] == getattr(expected, kind), kind


def test_limits_grow_with_the_work(tmp_path: Path) -> None:
    few, many = (Operations.of_round(nodes, None, active=True) for nodes in (4, 40))
    assert 0 < few.cryptography(Ring(32), 10) < many.cryptography(Ring(32), 10)
    assert few.storage(tmp_path / "few", 10) > 0


def _requests(nodes: Iterable[int]) -> list[Message]:
    content = RecordDict({"arrays": initial_arrays(), "config": ConfigRecord()})
    return [Message(content, node, "train") for node in nodes]
