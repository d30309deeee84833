"""Additive sharing: the sum is right, fewer than all shares reveal nothing, and no member may be missing."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import combinations, product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from tests.support.rounds import BITS, LENGTH, Population, make_roster

from coterie.arithmetic.quantize import Layout, Quantizer
from coterie.arithmetic.ring import RingVector
from coterie.cohorts.ledger import Ledger
from coterie.confined import sharing
from coterie.confined.sharing import (
    Dealt,
    Disclosed,
    Introduced,
    MemberKey,
    SealedShare,
    SharingTerms,
    SumOfShares,
    add_in_process,
    deal,
    from_others,
    introduce,
    kept_share,
    publish,
    total,
)
from coterie.confined.subset import check_honest
from coterie.crypto.context import bind
from coterie.crypto.entropy import DeterministicEntropy
from coterie.crypto.keystream import SEED_BYTES
from coterie.crypto.sealing import seal
from coterie.errors import ConfigError, InputError, LocalProtocolError, PeerProtocolError, RoundAborted, TooFewHonest
from coterie.secagg.messages import encode

SESSION = b"a session for tests"


def make_terms(size: int = 3, bits: int = 20, length: int = 5, colluders: int = 0) -> SharingTerms:
    return SharingTerms(SESSION, tuple(f"m{number}" for number in range(size)), bits, length, colluders)


def make_vectors(terms: SharingTerms, seed: int = 0) -> dict[str, RingVector]:
    rng = np.random.default_rng(seed)
    return {
        name: rng.integers(0, terms.ring.modulus, terms.length, np.uint64).astype(terms.ring.dtype)
        for name in terms.members
    }


def entropy(name: str) -> DeterministicEntropy:
    return DeterministicEntropy(name.encode())


class Peers:
    """The members of a sum, played step by step, so that a test can interfere."""

    def __init__(self, terms: SharingTerms, seed: int = 0) -> None:
        self.terms, self.vectors = terms, make_vectors(terms, seed)
        self.source = {name: entropy(name) for name in terms.members}
        entered = {name: introduce(terms, name, self.source[name]) for name in terms.members}
        self.introduced: dict[str, Introduced] = {name: state for name, (state, _) in entered.items()}
        self.keys = {name: message for name, (_, message) in entered.items()}

    def deal(self) -> dict[str, dict[str, bytes]]:
        """Return what arrived at each member, by sender."""
        dealt = {
            name: deal(state, from_others(self.keys, name), self.vectors[name], self.source[name])
            for name, state in self.introduced.items()
        }
        self.dealt: dict[str, Dealt] = {name: state for name, (state, _) in dealt.items()}
        return {name: {peer: sent[name] for peer, (_, sent) in dealt.items() if peer != name} for name in dealt}

    def publish(self) -> dict[str, bytes]:
        arrived = self.deal()
        published = {name: publish(state, arrived[name]) for name, state in self.dealt.items()}
        self.published: dict[str, Disclosed] = {name: state for name, (state, _) in published.items()}
        return {name: message for name, (_, message) in published.items()}


# The sum.


@given(st.integers(2, 6), st.integers(1, 64), st.integers(1, 40), st.integers(0, 2**32))
def test_every_member_finds_the_sum(size: int, bits: int, length: int, seed: int) -> None:
    peers = Peers(make_terms(size, bits, length), seed)
    sums = peers.publish()
    expected = sum(vector.astype(object) for vector in peers.vectors.values()) % 2**bits
    for name in peers.terms.members:
        assert (total(peers.published[name], from_others(sums, name)) == expected).all()


def test_floats_come_back_as_their_mean() -> None:
    rng, names = np.random.default_rng(0), ("a", "b", "c", "d")
    arrays = {name: [rng.normal(size=(4, 3)), rng.normal(size=2)] for name in names}
    quantizer, layout = Quantizer(clip=5.0, precision=24, clients=4), Layout.of(arrays["a"])
    terms = SharingTerms(SESSION, names, quantizer.ring.bits, quantizer.length(layout))
    summed = add_in_process(terms, {name: quantizer.encode(arrays[name], rng).vector for name in names}).total
    found = quantizer.decode(summed, layout, 4).mean
    for position, array in enumerate(found):
        plain = np.mean([arrays[name][position] for name in names], axis=0)
        assert np.abs(array - plain).max() <= quantizer.error_bound(4, 4)


def test_sharing_and_secure_aggregation_find_the_same_sum(tmp_path: Path) -> None:
    """One round of real secure aggregation over whole circles, and additive sharing between the same clients."""
    roster = make_roster()
    with Ledger.open(tmp_path / "ledger.sqlite") as ledger:
        population = Population(roster, ledger)
        rng = np.random.default_rng(0)
        population.vectors = {name: rng.integers(0, 2**BITS, LENGTH).astype(np.uint16) for name in roster.names}
        value = population.play(1).value
    assert value is not None
    circles = [{roster.names[client] for client in circle} for circle in roster.circles]
    assert all(circle <= set(value.clients) or circle.isdisjoint(value.clients) for circle in circles)
    terms = SharingTerms(SESSION, value.clients, BITS, LENGTH)
    assert (add_in_process(terms, population.vectors).total == value.total).all()


# What fewer than all shares reveal.


def _small_keystream(words: RingVector, added: Iterable[bytes], subtracted: Iterable[bytes] = ()) -> None:
    """Apply masks of one word, which is the seed, so that a test can try all possible shares."""
    for seed in added:
        words += words.dtype.type(int.from_bytes(seed, "big"))
    for seed in subtracted:
        words -= words.dtype.type(int.from_bytes(seed, "big"))


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing, "apply_masks", _small_keystream)


def _shares_of(secret: int, drawn: tuple[int, ...], modulus: int) -> tuple[int, ...]:
    vector = np.array([secret], np.uint16)
    kept = kept_share(vector, [share.to_bytes(SEED_BYTES, "big") for share in drawn])
    return (*drawn, int(kept[0]) % modulus)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(("modulus", "size"), [(4, 3), (2, 4), (8, 2)])
def test_all_shares_but_one_are_uniform_for_every_secret(modulus: int, size: int) -> None:
    """Over all random choices, every view of size - 1 shares occurs exactly once, for every secret."""
    for secret in range(modulus):
        dealings = [_shares_of(secret, drawn, modulus) for drawn in product(range(modulus), repeat=size - 1)]
        assert all(sum(shares) % modulus == secret for shares in dealings)
        for seen in combinations(range(size), size - 1):
            views = Counter(tuple(shares[holder] for holder in seen) for shares in dealings)
            assert views == Counter(product(range(modulus), repeat=size - 1))


@pytest.mark.usefixtures("small")
def test_a_colluder_learns_the_honest_sum_and_nothing_else() -> None:
    """CGD, Theorem 3, for two honest members and a colluder: the colluder's whole view over all random choices."""
    modulus = 4

    def view(secrets: tuple[int, ...], drawn: tuple[int, ...]) -> tuple[int, ...]:
        """Return what the colluder sees: its share of each honest member's vector, and the sums that these publish."""
        first, second = (_shares_of(secret, drawn[2 * at : 2 * at + 2], modulus) for at, secret in enumerate(secrets))
        return first[1], second[1], (first[2] + second[0]) % modulus, (second[2] + first[0]) % modulus

    by_sum: dict[int, Counter[tuple[int, ...]]] = {}
    for secrets in product(range(modulus), repeat=2):
        views = Counter(view(secrets, drawn) for drawn in product(range(modulus), repeat=4))
        assert by_sum.setdefault(sum(secrets) % modulus, views) == views
    assert len({frozenset(views.items()) for views in by_sum.values()}) == modulus  # it does learn the sum


def test_the_share_that_a_dealer_keeps_looks_uniform_for_every_vector() -> None:
    """The keystream is the real one, and the vectors are constant."""
    rng = np.random.default_rng(0)
    for value in (0, 255):
        vector = np.full(100_000, value, np.uint16)
        kept = kept_share(vector, [rng.bytes(SEED_BYTES) for _ in range(3)]) & 255
        assert stats.chisquare(np.bincount(kept, minlength=256)).pvalue > 1e-3
        assert abs(np.corrcoef(kept[:-1], kept[1:])[0, 1]) < 0.02


def test_two_iterations_use_independent_shares() -> None:
    """The kept share hides the vector only if seeds are fresh. Each session draws its own."""
    terms = make_terms()
    both = [Peers(terms), Peers(SharingTerms(b"another session!", terms.members, terms.bits, terms.length))]
    for number, peers in enumerate(both):
        peers.source = {name: DeterministicEntropy(f"{name}{number}".encode()) for name in terms.members}
        peers.deal()
    first, second = (peers.dealt["m0"].kept % terms.ring.modulus for peers in both)
    assert (both[0].vectors["m0"] == both[1].vectors["m0"]).all()
    assert (first != second).all()


# The number of honest members.


@given(st.integers(1, 20), st.integers(0, 20), st.none() | st.integers(1, 20))
def test_a_circle_needs_two_honest_members(size: int, colluders: int, circle: int | None) -> None:
    if circle is not None and circle > size:
        with pytest.raises(ConfigError):
            check_honest(size, colluders, circle)
        return
    honest = (size if circle is None else circle) - colluders
    if honest >= 2:
        assert check_honest(size, colluders, circle) == honest
    else:
        with pytest.raises(TooFewHonest):
            check_honest(size, colluders, circle)


def test_a_sum_with_one_honest_member_is_refused_before_anything_is_sent() -> None:
    assert make_terms(4, colluders=2).colluders == 2
    with pytest.raises(TooFewHonest, match="1 honest"):
        make_terms(4, colluders=3)
    with pytest.raises(TooFewHonest):
        make_terms(1)


# Errors.


def _steps(peers: Peers) -> Iterator[tuple[Callable[[dict[str, bytes]], object], dict[str, bytes]]]:
    """Yield each step of m0, and the messages that it should receive."""
    introduced = peers.introduced["m0"]

    def deal_again(inbox: dict[str, bytes]) -> object:
        return deal(introduced, inbox, peers.vectors["m0"], entropy("again"))

    keys = from_others(peers.keys, "m0")
    shares = peers.deal()["m0"]
    yield deal_again, keys
    yield lambda inbox: publish(peers.dealt["m0"], inbox), shares
    peers = Peers(peers.terms)
    sums = from_others(peers.publish(), "m0")
    yield lambda inbox: total(peers.published["m0"], inbox), sums


def test_a_missing_peer_ends_the_iteration() -> None:
    for step, inbox in _steps(Peers(make_terms())):
        with pytest.raises(RoundAborted, match="m2"):
            step({"m1": inbox["m1"]})


def test_bad_messages_are_blamed_on_their_sender() -> None:
    stranger = Peers(make_terms(4))
    foreign = Peers(SharingTerms(b"another session!", make_terms().members, 20, 5))
    for position, (step, inbox) in enumerate(_steps(Peers(make_terms()))):
        others = [foreign.keys["m1"], foreign.deal()["m0"]["m1"] if position == 1 else stranger.keys["m3"]]
        for bad in (b"", b"nonsense", inbox["m1"][:-1], inbox["m1"] + b"\0", inbox["m2"], *others):
            with pytest.raises(PeerProtocolError) as caught:
                step({**inbox, "m1": bad})
            assert caught.value.peer == "m1"
        with pytest.raises(PeerProtocolError, match="without being another member"):
            step({**inbox, "m9": inbox["m1"]})
        step(inbox)  # the state did not change


def test_a_share_for_another_member_does_not_open() -> None:
    peers = Peers(make_terms())
    arrived = peers.deal()
    with pytest.raises(PeerProtocolError, match="does not open"):
        publish(peers.dealt["m0"], {**arrived["m0"], "m1": arrived["m2"]["m1"]})


def test_well_formed_messages_with_bad_content_are_blamed_on_their_sender() -> None:
    peers = Peers(make_terms())
    digest = peers.terms.digest
    keys = from_others(peers.keys, "m0")
    bad = encode(MemberKey(digest, 1, bytes(32)))
    with pytest.raises(PeerProtocolError, match="low order"):
        deal(peers.introduced["m0"], {**keys, "m1": bad}, peers.vectors["m0"], entropy("x"))
    shares = peers.deal()["m0"]
    context = bind("sharing-share", digest, 1, 0)
    short = seal(peers.dealt["m1"].keys["m0"], b"short", context, entropy("x"), "seal")
    with pytest.raises(PeerProtocolError, match="wrong length"):
        publish(peers.dealt["m0"], {**shares, "m1": encode(SealedShare(digest, 1, short))})
    peers = Peers(make_terms())
    sums = from_others(peers.publish(), "m0")
    for payload in (b"", bytes(peers.terms.ring.packed_size(6)), b"\xff" * peers.terms.ring.packed_size(5)):
        with pytest.raises(PeerProtocolError, match="m1"):
            total(peers.published["m0"], {**sums, "m1": encode(SumOfShares(digest, 1, payload))})


def test_vectors_and_members_are_checked() -> None:
    peers = Peers(make_terms())
    for vector in (np.zeros(4, np.uint32), np.zeros(5, np.uint64), np.full(5, 2**20, np.uint32)):
        with pytest.raises(InputError):
            deal(peers.introduced["m0"], from_others(peers.keys, "m0"), vector, entropy("x"))
    with pytest.raises(LocalProtocolError, match="not a member"):
        introduce(peers.terms, "m9", entropy("x"))
    for broken in (("a", "a"), ("a",)):
        with pytest.raises((ConfigError, TooFewHonest)):
            SharingTerms(SESSION, broken, 20, 5)
    for session, bits, length in ((b"short", 20, 5), (SESSION, 0, 5), (SESSION, 20, 0)):
        with pytest.raises(ConfigError):
            SharingTerms(session, ("a", "b"), bits, length)


def test_states_show_no_secret() -> None:
    peers = Peers(make_terms())
    peers.publish()
    for states in (peers.introduced, peers.dealt, peers.published):
        assert repr(states["m1"]) == f"<{type(states['m1']).__name__} 'm1' in session {SESSION.hex()[:8]}>"
