"""Attacks by a lying server: each succeeds with one defence switched off, and fails with it on.

An attack succeeds if the attacker obtains one client's input, or the sum over a set that no client agreed to. The
attacker uses only what the server sees.
"""

from collections.abc import Iterable, Mapping

import msgspec
import numpy as np
import pytest
from tests.support.cast import Cast, make_terms, names, ring_sum

from coterie.arithmetic.ring import RingVector
from coterie.crypto import shamir
from coterie.crypto.agreement import PrivateKey
from coterie.crypto.entropy import SystemEntropy
from coterie.crypto.keystream import apply_masks
from coterie.errors import LocalProtocolError, PartialSumRisk, PeerProtocolError, ThresholdError
from coterie.graphs.topology import Harary
from coterie.secagg import Step, Terms, View, client, envelopes, messages, rules
from coterie.secagg.envelopes import open_shares, seal_shares, sealing_keys
from coterie.secagg.masking import adds, pair_seed

VICTIM = "client-02"


def decode(kind: type[messages.M], data: bytes, terms: Terms) -> messages.M:
    return messages.decode(data, kind, "test", terms.digest)


def announcement(cast: Cast, survivors: Iterable[str]) -> bytes:
    """Return an announcement of false survivors; everything else in it is true."""
    terms, view = cast.terms, cast.server.view()
    members = messages.encode_members([terms.index[name] for name in survivors], len(terms.clients))
    if not terms.active:
        return messages.encode(messages.Announcement(terms.digest, members))
    sharers = messages.encode_members(view.sharers, len(terms.clients))
    statements = tuple(messages.Statement(client, signed) for client, signed in sorted(view.statements.items()))
    return messages.encode(messages.Announcement(terms.digest, members, sharers, statements))


class Attacker:
    """What a curious server records, and what it computes from the records."""

    def __init__(self, cast: Cast) -> None:
        self.cast, self.terms = cast, cast.terms
        self.masked: dict[str, RingVector] = {}
        self.self_shares: dict[int, dict[int, bytes]] = {}
        self.key_shares: dict[int, dict[int, bytes]] = {}

    def watch_masking(self) -> None:
        """Play the masking step and keep every masked input."""
        replies = self.cast.replies()
        for name, data in replies.items():
            self.masked[name] = self.unpack(data)
        self.cast.deliver(replies)
        self.cast.inbox = self.cast.server.close()

    def unpack(self, data: bytes) -> RingVector:
        return self.terms.ring.unpack(decode(messages.MaskedInput, data, self.terms).payload, self.terms.length)

    def collect(self, revelation: bytes) -> None:
        opened = decode(messages.Revelation, revelation, self.terms)
        for self_share in opened.self_shares:
            self.self_shares.setdefault(self_share.dealer, {})[opened.sender] = self_share.share
        for key_share in opened.key_shares:
            self.key_shares.setdefault(key_share.dealer, {})[opened.sender] = key_share.share

    def combine(self, shares: Mapping[int, bytes], threshold: int) -> bytes | None:
        if len(shares) < threshold:
            return None
        holders = sorted(shares)[:threshold]
        return shamir.combine([holder + 1 for holder in holders], [shares[holder] for holder in holders])

    def self_seed(self, name: str) -> bytes | None:
        return self.combine(self.self_shares.get(self.terms.index[name], {}), self.threshold(name))

    def masking_key(self, name: str) -> PrivateKey | None:
        secret = self.combine(self.key_shares.get(self.terms.index[name], {}), self.threshold(name))
        return PrivateKey(secret) if secret else None

    def threshold(self, name: str) -> int:
        return self.terms.threshold_for(len(self.neighbours(name)) + 1)

    def neighbours(self, name: str) -> list[str]:
        return [self.terms.clients[peer] for peer in self.view.graph.neighbours(self.terms.index[name])]

    def strip(self, names: Iterable[str], masks_with: Mapping[str, Iterable[str]]) -> RingVector | None:
        """The sum of some inputs, if self seeds and the keys for the listed pairwise masks can be recovered."""
        total = self.terms.ring.zeros(self.terms.length)
        for name in names:
            seed = self.self_seed(name)
            if seed is None:
                return None
            total += self.masked[name]
            apply_masks(total, (), [seed])
            for peer in masks_with[name]:
                key, other = self.masking_key(name), peer
                if key is None:
                    key, other = self.masking_key(peer), name
                if key is None:
                    return None
                mine = self.terms.index[peer if other is name else name]
                mask = [pair_seed(key, mine, self.advertisement(other), self.terms.digest, self.view.seed)]
                if adds(self.terms.index[name], self.terms.index[peer]):
                    apply_masks(total, (), mask)
                else:
                    apply_masks(total, mask)
        self.terms.ring.reduce(total)
        return total

    def advertisement(self, name: str) -> messages.Advertisement:
        return self.view.advertisements[self.terms.index[name]]

    @property
    def view(self) -> View:
        return self.cast.server.view()

    def input_of_victim(self) -> RingVector | None:
        return self.strip([VICTIM], {VICTIM: self.neighbours(VICTIM)})


def stole_the_input(attacker: Attacker) -> bool:
    found = attacker.input_of_victim()
    return found is not None and bool((found == attacker.cast.inputs[VICTIM]).all())


# --- Asking for both kinds of share.


@pytest.mark.parametrize("defended", [True, False])
def test_asking_one_client_twice(defended: bool) -> None:
    cast = Cast(make_terms(5)).play_until(Step.MASK)
    attacker = Attacker(cast)
    attacker.watch_masking()
    old_states = dict(cast.states)
    others = [name for name in names(5) if name != VICTIM]
    for name in others:
        attacker.collect(cast.reply(name, cast.inbox[name]))
    second = announcement(cast, others)
    for name in others:
        if defended:  # the state is a later one, which does not answer
            with pytest.raises(LocalProtocolError):
                cast.reply(name, second)
        else:  # a runtime that answers again from the state it should have replaced
            attacker.collect(cast.answer(old_states[name], name, second)[1])
    assert stole_the_input(attacker) is not defended


# --- Telling different clients different survivor sets.


def equivocate(cast: Cast) -> Attacker:
    """Tell half of the clients that the victim survived, and the other half that it did not."""
    attacker = Attacker(cast)
    attacker.watch_masking()
    everybody = names(6)
    others = [name for name in everybody if name != VICTIM]
    for name in everybody:
        told = everybody if name in (*others[:2], VICTIM) else tuple(others)
        attacker.collect(cast.reply(name, announcement(cast, told)))
    return attacker


def test_different_survivors_succeed_with_a_low_threshold_and_no_consistency_step() -> None:
    assert stole_the_input(equivocate(Cast(make_terms(6, threshold=3)).play_until(Step.MASK)))


def test_different_survivors_fail_with_a_majority_threshold() -> None:
    attacker = equivocate(Cast(make_terms(6)).play_until(Step.MASK))
    assert attacker.self_seed(VICTIM) is None or attacker.masking_key(VICTIM) is None
    assert not stole_the_input(attacker)


def watch_low_threshold() -> tuple[Cast, Attacker, tuple[str, ...], tuple[str, ...]]:
    """Play up to the masked inputs with the consistency step; return all clients, and those beside the victim."""
    cast = Cast(make_terms(6, threshold=3, active=True, colluders=0)).play_until(Step.MASK)
    attacker = Attacker(cast)
    attacker.watch_masking()
    return cast, attacker, names(6), tuple(name for name in names(6) if name != VICTIM)


def test_different_survivors_fail_with_the_consistency_step_at_any_threshold() -> None:
    cast, _, everybody, others = watch_low_threshold()
    confirmations = {
        name: cast.reply(name, announcement(cast, everybody if name in (*others[:2], VICTIM) else others))
        for name in everybody
    }
    parsed = [decode(messages.Confirmation, data, cast.terms) for data in confirmations.values()]
    mixed = messages.encode(messages.Testimony(cast.terms.digest, tuple(parsed)))
    for name in everybody:
        with pytest.raises(PeerProtocolError, match=r"other survivors|did not survive"):
            cast.reply(name, mixed)
    groups = [everybody.index(name) for name in (*others[:2], VICTIM)], [everybody.index(name) for name in others[2:]]
    for group in groups:
        agreeing = tuple(entry for entry in parsed if entry.sender in group)
        testimony = messages.encode(messages.Testimony(cast.terms.digest, agreeing))
        for number in group:
            with pytest.raises(ThresholdError, match="confirmed the survivors"):
                cast.reply(names(6)[number], testimony)


def test_different_survivors_succeed_again_without_checking_signatures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "check_testimony", lambda *_: None)
    cast, attacker, everybody, others = watch_low_threshold()
    for name in everybody:
        cast.reply(name, announcement(cast, everybody if name in (*others[:2], VICTIM) else others))
    for name in everybody:
        attacker.collect(cast.reply(name, messages.encode(messages.Testimony(cast.terms.digest, ()))))
    assert stole_the_input(attacker)


# --- Swapping public keys.


def swap_keys(cast: Cast) -> tuple[dict[int, PrivateKey], dict[int, PrivateKey], bytes]:
    """Give the victim keys of the server's own instead of its neighbours'."""
    book = decode(messages.KeyBook, cast.inbox[VICTIM], cast.terms)
    mine = cast.terms.index[VICTIM]
    system = SystemEntropy()
    sealing = {e.sender: PrivateKey.generate(system, "") for e in book.advertisements if e.sender != mine}
    masking = {e.sender: PrivateKey.generate(system, "") for e in book.advertisements if e.sender != mine}
    swapped = tuple(
        e
        if e.sender == mine
        else msgspec.structs.replace(e, sealing_key=sealing[e.sender].public, masking_key=masking[e.sender].public)
        for e in book.advertisements
    )
    return sealing, masking, messages.encode(messages.KeyBook(cast.terms.digest, swapped))


def test_swapped_keys_succeed_against_trusting_clients() -> None:
    cast = Cast(make_terms(5)).play_until(Step.SHARE)
    terms, me = cast.terms, cast.terms.index[VICTIM]
    sealing, masking, book = swap_keys(cast)
    dealt = decode(messages.SharedKeys, cast.reply(VICTIM, book), terms)
    view = cast.server.view()
    own = view.advertisements[me]
    self_shares, threshold = {}, terms.threshold_for(5)
    for envelope in dealt.envelopes:
        _, key = sealing_keys(sealing[envelope.peer], envelope.peer, own, terms.digest, view.seed)
        shares = open_shares(key, envelope, terms.digest, view.seed, me, envelope.peer)
        self_shares[envelope.peer] = shares[0]
    delivery = messages.Deliveries(terms.digest, tuple(_forged(dealt, terms, view.seed, sealing, own)))
    masked = cast.reply(VICTIM, messages.encode(delivery))
    found = Attacker(cast).unpack(masked)
    seed = Attacker(cast).combine(self_shares, threshold)
    assert seed is not None
    apply_masks(found, (), [seed])
    for peer, own_key in masking.items():
        mask = [pair_seed(own_key, peer, own, terms.digest, view.seed)]
        apply_masks(found, (), mask) if adds(me, peer) else apply_masks(found, mask)
    terms.ring.reduce(found)
    assert (found == cast.inputs[VICTIM]).all()


def _forged(
    dealt: messages.SharedKeys,
    terms: Terms,
    seed: bytes,
    sealing: Mapping[int, PrivateKey],
    victim: messages.Advertisement,
) -> Iterable[messages.Envelope]:
    """Yield envelopes in the names of the impersonated neighbours; the attacker does not need their content."""
    shares = bytes(messages.SELF_SHARE_BYTES), bytes(messages.KEY_SHARE_BYTES)
    for entry in dealt.envelopes:
        key, _ = sealing_keys(sealing[entry.peer], entry.peer, victim, terms.digest, seed)
        sent = seal_shares(key, shares, terms.digest, seed, entry.peer, victim.sender, SystemEntropy())
        yield msgspec.structs.replace(sent, peer=entry.peer)


def test_swapped_keys_fail_against_clients_that_check_signatures() -> None:
    cast = Cast(make_terms(5, active=True)).play_until(Step.SHARE)
    _, _, book = swap_keys(cast)
    with pytest.raises(PeerProtocolError, match="did not sign"):
        cast.reply(VICTIM, book)


def test_a_server_cannot_leave_the_victims_own_keys_out_of_the_graph_seed() -> None:
    cast = Cast(make_terms(5, active=True)).play_until(Step.SHARE)
    book = decode(messages.KeyBook, cast.inbox[VICTIM], cast.terms)
    without = tuple(entry for entry in book.advertisements if entry.sender != cast.terms.index[VICTIM])
    with pytest.raises(PeerProtocolError, match="own keys"):
        cast.reply(VICTIM, messages.encode(messages.KeyBook(cast.terms.digest, without)))


def test_the_graph_depends_on_every_signed_key() -> None:
    terms = make_terms(20, active=True, topology=Harary(4), colluders=1)
    first, second = Cast(terms, seed=b"one").play_until(Step.SHARE), Cast(terms, seed=b"two").play_until(Step.SHARE)
    assert first.server.view().seed != second.server.view().seed
    missing = Cast(terms, seed=b"one").play_until(Step.SHARE, {Step.ADVERTISE: [names(20)[19]]})
    assert missing.server.view().seed != first.server.view().seed
    calm = make_terms(20, topology=Harary(4))
    assert Cast(calm, seed=b"one").play_until(Step.SHARE).server.view().seed == rules.graph_seed(calm, [])


# --- Pretending that all other clients have dropped out.


@pytest.mark.parametrize("defended", [True, False])
def test_leaving_the_victim_without_pairwise_masks(defended: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not defended:
        monkeypatch.setattr(rules, "check_enough", lambda *_: None)
    cast = Cast(make_terms(5)).play_until(Step.MASK)
    attacker = Attacker(cast)
    nothing = messages.encode(messages.Deliveries(cast.terms.digest, ()))
    if defended:
        with pytest.raises(ThresholdError, match="shared their keys"):
            cast.reply(VICTIM, nothing)
        return
    attacker.masked[VICTIM] = attacker.unpack(cast.reply(VICTIM, nothing))
    others = [name for name in names(5) if name != VICTIM]
    for name in others:
        cast.reply(name, cast.inbox[name])
        attacker.collect(cast.reply(name, announcement(cast, names(5))))
    found = attacker.strip([VICTIM], {VICTIM: []})
    assert found is not None
    assert (found == cast.inputs[VICTIM]).all()


# --- A survivor set that splits a circle.


@pytest.mark.parametrize("defended", [True, False])
def test_splitting_a_circle(defended: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server pretends that the victim's circle mate dropped out, to separate the two."""
    if not defended:
        monkeypatch.setattr(Terms, "summed", lambda _, survivors: survivors)
    circles = (0, 0, 1, 1, 2, 2)  # the victim is client 2, its mate client 3
    cast = Cast(make_terms(6, circles=circles)).play_until(Step.MASK)
    attacker = Attacker(cast)
    attacker.watch_masking()
    told = [name for name in names(6) if name != "client-03"]
    for name in told:
        attacker.collect(cast.reply(name, announcement(cast, told)))
    wanted = attacker.strip(told, {name: ["client-03"] for name in told})
    if defended:
        assert wanted is None
        assert attacker.self_seed(VICTIM) is None
        assert attacker.masking_key(VICTIM) is not None  # treated as dropped, like its mate
        assert attacker.masking_key("client-03") is not None
    else:
        assert wanted is not None
        assert (wanted == ring_sum(cast.terms, cast.inputs, told)).all()


# --- A survivor set whose graph is disconnected.


@pytest.mark.parametrize("defended", [True, False])
def test_cutting_the_ring_in_two(defended: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not defended:
        monkeypatch.setattr(rules, "_connected", lambda *_: True)
    cast = Cast(make_terms(8, topology=Harary(2), threshold=1)).play_until(Step.MASK)
    attacker = Attacker(cast)
    attacker.watch_masking()
    ring = [VICTIM]
    while len(ring) < 8:
        ring.append(next(name for name in attacker.neighbours(ring[-1]) if name not in ring))
    arc, cut, rest = ring[:3], [ring[3], ring[7]], ring[4:7]
    told = [*arc, *rest]
    if defended:
        for name in told:
            with pytest.raises(PartialSumRisk):
                cast.reply(name, announcement(cast, told))
        return
    for name in told:
        attacker.collect(cast.reply(name, announcement(cast, told)))
    masks = {name: [peer for peer in attacker.neighbours(name) if peer in cut] for name in arc}
    partial = attacker.strip(arc, masks)
    assert partial is not None
    assert (partial == ring_sum(cast.terms, cast.inputs, arc)).all()


def test_an_honest_server_does_not_ask_if_the_ring_is_disconnected() -> None:
    cast = Cast(make_terms(8, topology=Harary(2), threshold=1)).play_until(Step.MASK)
    attacker = Attacker(cast)
    near = [VICTIM, *attacker.neighbours(VICTIM)]
    cut = [peer for name in near[1:] for peer in attacker.neighbours(name) if peer not in near]
    cast.deliver(cast.replies([name for name in names(8) if name not in cut]))
    with pytest.raises(PartialSumRisk, match="is disconnected"):
        cast.server.close()


# --- Other lies about the survivors.


def test_a_client_that_was_left_out_does_not_answer() -> None:
    cast = Cast(make_terms(5)).play_until(Step.REVEAL)
    with pytest.raises(PeerProtocolError, match="without this client"):
        cast.reply(VICTIM, announcement(cast, [name for name in names(5) if name != VICTIM]))


def test_a_survivor_list_with_a_client_that_never_shared_is_refused() -> None:
    cast = Cast(make_terms(5)).play_until(Step.MASK, {Step.SHARE: ["client-04"]})
    cast.play()
    with pytest.raises(PeerProtocolError, match="never shared"):
        cast.reply(VICTIM, announcement(cast, names(5)))


def test_too_few_survivors_are_refused() -> None:
    cast = Cast(make_terms(5, minimum=4)).play_until(Step.REVEAL)
    with pytest.raises(ThresholdError, match="minimum"):
        cast.reply(VICTIM, announcement(cast, names(5)[:3]))


def test_considering_an_announcement_returns_the_aggregated_clients_and_reveals_nothing() -> None:
    cast = Cast(make_terms(6, circles=(0, 0, 1, 1, 2, 2))).play_until(Step.REVEAL)
    state = cast.states[VICTIM]
    assert isinstance(state, client.Masked)
    told = announcement(cast, [name for name in names(6) if name != "client-05"])
    assert state.consider(told) == set(names(6)[:4])
    assert cast.states[VICTIM] is state


# --- Mauled ciphertexts.


def maul_envelopes(cast: Cast) -> None:
    """Flip a bit in every envelope addressed to the victim."""
    delivery = decode(messages.Deliveries, cast.inbox[VICTIM], cast.terms)
    mauled = tuple(
        msgspec.structs.replace(e, sealed=e.sealed[:-20] + bytes([e.sealed[-20] ^ 1]) + e.sealed[-19:])
        for e in delivery.envelopes
    )
    cast.inbox[VICTIM] = messages.encode(messages.Deliveries(cast.terms.digest, mauled))


def test_mauled_ciphertexts_are_detected_and_the_round_succeeds() -> None:
    cast = Cast(make_terms(6)).play_until(Step.MASK)
    maul_envelopes(cast)
    cast.play()
    state = cast.states[VICTIM]
    assert isinstance(state, client.Masked)
    assert state.distrusted == (0, 1, 3, 4, 5)
    result = cast.finish()
    assert (result.total == ring_sum(cast.terms, cast.inputs, names(6))).all()


def test_shares_that_their_dealer_did_not_commit_to_are_not_held() -> None:
    cast = Cast(make_terms(6)).play_until(Step.MASK)
    delivery = decode(messages.Deliveries, cast.inbox[VICTIM], cast.terms)
    first, second, *others = delivery.envelopes
    exchanged = (msgspec.structs.replace(first, marks=second.marks), second, *others)
    cast.inbox[VICTIM] = messages.encode(messages.Deliveries(cast.terms.digest, exchanged))
    cast.play()
    state = cast.states[VICTIM]
    assert isinstance(state, client.Masked)
    assert state.distrusted == (first.peer,)
    result = cast.finish()
    assert (result.total == ring_sum(cast.terms, cast.inputs, names(6))).all()


def test_mauled_ciphertexts_corrupt_the_sum_without_authentication(monkeypatch: pytest.MonkeyPatch) -> None:
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    def decrypt_only(key: bytes, sealed: bytes, _: bytes) -> bytes:
        """Decrypt AES-GCM without checking the tag."""
        return Cipher(algorithms.AES256(key), modes.GCM(sealed[:12])).decryptor().update(sealed[12:-16])

    monkeypatch.setattr(envelopes, "unseal", decrypt_only)
    for mark in ("self_share_mark", "key_share_mark", "self_seed_mark"):
        monkeypatch.setattr(rules, mark, lambda *_: bytes(16))
    # With a threshold of 5 of 6, the victim's shares are needed.
    cast = Cast(make_terms(6, threshold=5)).play_until(Step.MASK)
    delivery = decode(messages.Deliveries, cast.inbox[VICTIM], cast.terms)
    mauled = tuple(
        msgspec.structs.replace(e, sealed=e.sealed[:13] + bytes([e.sealed[13] ^ 1]) + e.sealed[14:])
        for e in delivery.envelopes
    )
    cast.inbox[VICTIM] = messages.encode(messages.Deliveries(cast.terms.digest, mauled))
    result = cast.finish()
    assert (result.total != ring_sum(cast.terms, cast.inputs, names(6))).any()


@pytest.mark.parametrize("field", ["sealing_key", "masking_key"])
def test_low_order_keys_from_the_server_are_refused(field: str) -> None:
    cast = Cast(make_terms(5)).play_until(Step.SHARE)
    book = decode(messages.KeyBook, cast.inbox[VICTIM], cast.terms)
    first, *others = book.advertisements
    bad = (msgspec.structs.replace(first, **{field: bytes(32)}), *others)
    with pytest.raises(PeerProtocolError, match="malformed key"):
        cast.reply(VICTIM, messages.encode(messages.KeyBook(cast.terms.digest, bad)))


def test_masked_inputs_look_uniform_and_unrelated_to_the_input() -> None:
    terms = make_terms(4, bits=16, length=20_000)
    cast = Cast(terms, {name: terms.ring.zeros(terms.length) for name in terms.clients}).play_until(Step.MASK)
    attacker = Attacker(cast)
    attacker.watch_masking()
    counts = np.histogram(attacker.masked[VICTIM], bins=64, range=(0, terms.ring.modulus))[0]
    expected = terms.length / 64
    assert ((counts - expected) ** 2 / expected).sum() < 150  # chi-square with 63 degrees of freedom, p ~ 1e-8


# --- Announcements whose statements do not hold.


def test_announcements_with_bad_statements_are_refused() -> None:
    cast = Cast(make_terms(6, active=True)).play_until(Step.CONFIRM)
    other = Cast(make_terms(6, active=True), seed=b"another book").play_until(Step.CONFIRM)
    good = decode(messages.Announcement, cast.inbox[VICTIM], cast.terms)
    foreign = decode(messages.Announcement, other.inbox[VICTIM], cast.terms)
    first, *others = good.statements
    for statements, reason in (
        ((), "has no word of client client-00"),
        (tuple(others), "has no word of client client-00"),
        ((msgspec.structs.replace(first, signature=bytes(64)), *others), "has no word of client client-00"),
        ((msgspec.structs.replace(others[0], client=0), *others), "has no word of client client-00"),
        (foreign.statements, "has no word of client client-00"),
        ((*others, first), "unsorted"),
    ):
        with pytest.raises(PeerProtocolError, match=reason):
            cast.reply(VICTIM, messages.encode(msgspec.structs.replace(good, statements=statements)))
    without = messages.encode_members([0, 1, 2, 3, 4], 6)
    with pytest.raises(PeerProtocolError, match="masks it does not carry"):
        cast.reply(VICTIM, messages.encode(msgspec.structs.replace(good, sharers=without)))
    cast.reply(VICTIM, messages.encode(good))


def test_a_key_book_with_a_repeated_key_is_refused() -> None:
    cast = Cast(make_terms(5)).play_until(Step.SHARE)
    book = decode(messages.KeyBook, cast.inbox[VICTIM], cast.terms)
    first, second, *others = book.advertisements
    copied = msgspec.structs.replace(second, masking_key=first.masking_key)
    with pytest.raises(PeerProtocolError, match="advertised twice"):
        cast.reply(VICTIM, messages.encode(messages.KeyBook(cast.terms.digest, (first, copied, *others))))


# --- Testimonies whose signatures do not count.


def test_testimonies_with_signatures_that_do_not_count_are_refused() -> None:
    cast = Cast(make_terms(7, active=True)).play_until(Step.REVEAL, {Step.MASK: ["client-06"]})
    good = decode(messages.Testimony, cast.inbox[VICTIM], cast.terms).confirmations
    stranger = msgspec.structs.replace(good[-1], sender=6)
    for confirmations, reason in (
        (good[:1] * cast.terms.quorum, "repeated or unsorted"),
        ((good[0], *good), "repeated or unsorted"),
        (good[::-1], "repeated or unsorted"),
        ((*good, stranger), "did not survive"),
    ):
        testimony = messages.encode(messages.Testimony(cast.terms.digest, tuple(confirmations)))
        with pytest.raises(PeerProtocolError, match=reason):
            cast.reply(VICTIM, testimony)
    cast.reply(VICTIM, cast.inbox[VICTIM])
