"""Wrong shares in sessions with prekeys: they are corrected if possible, and only guilty clients are blamed."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import cache
from itertools import combinations

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.cast import make_terms, ring_sum
from tests.support.prekey_cast import PrekeyCast

from coterie.crypto import shamir
from coterie.crypto.shamir import Symbols
from coterie.errors import Blame, ThresholdError, WrongShares
from coterie.secagg import Terms, messages
from coterie.secagg.prekeys.messages import SHARE_BYTES, MaskedContribution, OpenedShares
from coterie.secagg.prekeys.recovery import Dispute, prove, recover_secrets
from coterie.secagg.prekeys.unmasking import PrekeyView, remove_masks

PAIRS = tuple(number // 2 for number in range(12))
Lies = dict[int, set[int]]
"""For each liar, the holders that it deals wrong shares to, or the dealers whose shares it replaces."""
Lie = Callable[[int, bytes], bytes | None]
"""What a holder's share of a secret is replaced with; None leaves it out."""


def answers(cast: PrekeyCast, outgoing: dict[str, bytes], silent: Collection[int] = ()) -> dict[str, bytes]:
    return {
        name: cast.answer(name, message) for name, message in outgoing.items() if cast.terms.index[name] not in silent
    }


def with_shares(reply: bytes, change: Callable[[int, bytes], bytes | None]) -> bytes:
    """Return an answer whose shares of each dealer are replaced, or left out."""
    opened = messages.decode(reply, OpenedShares, "test", None)
    entries = ((entry, change(entry.dealer, entry.shares)) for entry in opened.dealers)
    kept = tuple(msgspec.structs.replace(entry, shares=shares) for entry, shares in entries if shares is not None)
    return messages.encode(msgspec.structs.replace(opened, dealers=kept))


def made_up(size: int) -> bytes:
    """Return bytes that could be so many shares."""
    return b"".join(np.random.default_rng().bytes(16) + b"\0" for _ in range(size // SHARE_BYTES))


def left_out(_size: int) -> None:
    """Send no shares."""


def malformed(size: int) -> bytes:
    """Return bytes that are no shares."""
    return b"\xff" * size


LIES: tuple[Callable[[int], bytes | None], ...] = (made_up, left_out, malformed)


def dealing(cast: PrekeyCast, dealer: int, holders: Collection[int]) -> bytes:
    """Return the contribution of a client that deals wrong shares to these holders."""
    honest = shamir.split

    def split(*arguments: object) -> list[tuple[bytes, ...]]:
        dealt = honest(*arguments)  # type: ignore[arg-type]
        return [tuple(map(made_up, map(len, row))) if at in holders else row for at, row in enumerate(dealt)]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shamir, "split", split)
        return cast.contribute(cast.terms.clients[dealer])


def contributed(
    terms: Terms, dealers: Lies | None = None, lost: Collection[int] = ()
) -> tuple[PrekeyCast, dict[str, bytes]]:
    cast = PrekeyCast(terms)
    for client, name in enumerate(terms.clients):
        if client not in lost:
            assert cast.server.receive(name, dealing(cast, client, (dealers or {}).get(client, ()))) is None
    return cast, cast.server.close()


def finish(
    cast: PrekeyCast,
    outgoing: dict[str, bytes],
    holders: Lies | None = None,
    *,
    lie: Callable[[int], bytes | None] = made_up,
    silent: Collection[int] = (),
) -> Blame:
    """Play the last trip with lying holders, check the sum if there is one, and return who is blamed."""
    for name, reply in answers(cast, outgoing, silent).items():
        dealers = (holders or {}).get(cast.terms.index[name], set())
        lying = with_shares(reply, lambda dealer, shares: lie(len(shares)) if dealer in dealers else shares)  # noqa: B023
        assert cast.server.receive(name, lying) is None
    assert cast.server.close() == {}
    aggregate = cast.server.aggregate
    assert np.array_equal(aggregate.total, ring_sum(cast.terms, cast.inputs, aggregate.clients))
    return cast.server.blame


def named(*clients: int) -> tuple[str, ...]:
    return tuple(f"client-{client:02}" for client in clients)


# What can be proven.

DISPUTES = st.sets(st.tuples(st.integers(0, 7), st.integers(0, 7)), max_size=14)


def explanations(disputes: Collection[Dispute], dealers: Collection[int], most: int) -> list[set[int]]:
    """All sets of at most so many clients that explain every dispute."""
    return [
        set(chosen)
        for size in range(most + 1)
        for chosen in combinations(range(8), size)
        if set(dealers) <= set(chosen) and all(set(dispute) & set(chosen) for dispute in disputes)
    ]


@settings(max_examples=100)
@given(DISPUTES, st.sets(st.integers(0, 7), max_size=1), st.integers(1, 4))
def test_only_clients_that_every_explanation_names_are_blamed(
    disputes: set[Dispute], dealers: set[int], most: int
) -> None:
    possible = explanations(disputes, dealers, most)
    proven = prove(disputes, dealers, most)
    assert all(proven <= explanation for explanation in possible)
    if not possible and len(dealers) <= most:
        assert len(proven) <= most  # more clients broke the protocol than it tolerates: nothing can be proven


@pytest.mark.parametrize(
    ("disputes", "most", "proven"),
    [
        ([(0, 1)], 1, set()),  # one of two
        ([(0, 1), (2, 1)], 1, {1}),
        ([(0, 1), (1, 0)], 1, set()),  # still one of two
        ([(3, 3)], 1, {3}),  # a share of its own
        ([(0, 1), (2, 3)], 1, set()),  # more than one must be at fault
        ([(0, 1), (2, 1), (3, 1), (4, 5)], 2, {1}),
        ([(0, 1), (2, 1), (3, 1), (4, 5), (6, 5)], 2, {1, 5}),  # with 1 out of the way, 5 disputes with two
    ],
)
def test_disputes_are_counted(disputes: list[Dispute], most: int, proven: set[int]) -> None:
    assert prove(disputes, (), most) == proven


# Whole sessions.


@settings(max_examples=100)
@given(st.data())
def test_honest_clients_are_not_blamed(data: st.DataObject) -> None:
    terms = make_terms(9, active=True, colluders=2, circles=(0, 0, 0, 1, 1, 1, 2, 2, 2))
    liars = data.draw(st.sets(st.integers(0, 8), max_size=2))
    some = st.sets(st.integers(0, 8))
    dealers = {liar: data.draw(some) for liar in liars}
    holders = {liar: data.draw(some) for liar in liars}
    lie = data.draw(st.sampled_from(LIES))
    silent = data.draw(st.sets(st.integers(0, 8), max_size=2))
    cast, outgoing = contributed(terms, dealers)
    try:
        blame = finish(cast, outgoing, holders, lie=lie, silent=silent)
    except WrongShares as error:
        blame = error.blame
    assert set(blame.proven) <= set(named(*liars))
    assert all(set(pair) & set(named(*liars)) for pair in blame.disputes)


# Liars that choose their errors: the errors of some shares of a secret can cancel, so that the secret fits its mark.

Shares = dict[int, dict[int, dict[int, bytes]]]
"""By dealer, the place of the secret and holder, as in a server's view."""


@cache
def revealed(colluders: int, lost: int | None) -> tuple[PrekeyCast, PrekeyView]:
    """Return what a server holds of a session of 12 honest clients in which all but one lost client answered."""
    cast, outgoing = contributed(
        make_terms(12, active=True, colluders=colluders, circles=PAIRS), lost=() if lost is None else (lost,)
    )
    for name, reply in answers(cast, outgoing).items():
        assert cast.server.receive(name, reply) is None
    return cast, cast.server.view()


def shifted(share: bytes, error: Symbols) -> bytes:
    """Return a share with an error added to each symbol."""
    ((moved,),) = shamir._encode((shamir._decode([share]) + error) % shamir.PRIME, [8])
    return moved


def error_at(holder: int, zeros: Collection[int], factors: Symbols) -> Symbols:
    """Return the value, for a holder, of polynomials that are zero at zero and for the holders ``zeros``."""
    point, value = holder + 1, holder + 1
    for zero in zeros:
        value = value * (point - zero - 1) % shamir.PRIME
    powers = np.array([pow(point, power, shamir.PRIME) for power in range(len(factors))])
    errors: Symbols = powers @ factors % shamir.PRIME * value % shamir.PRIME
    return errors


def draw_errors(data: st.DataObject, liars: Collection[int], answered: Sequence[int], threshold: int) -> Lie:
    """Draw errors that cancel over a set of holders, as every set of errors does that cancels there."""
    holders = answered[:threshold] if data.draw(st.booleans()) else data.draw(st.permutations(answered))[:threshold]
    zeros = set(holders) - set(liars)
    rng = np.random.default_rng(data.draw(st.integers(0, 9)))
    ranks = rng.integers(0, shamir.PRIME, (max(1, threshold - 1 - len(zeros)), data.draw(st.sampled_from([1, 8]))))
    factors = ranks @ rng.integers(0, shamir.PRIME, (ranks.shape[1], 8)) % shamir.PRIME
    return lambda holder, share: shifted(share, error_at(holder, zeros, factors))


def draw_lie(data: st.DataObject, liars: Collection[int], answered: Sequence[int], threshold: int) -> Lie:
    if data.draw(st.booleans()):
        return draw_errors(data, liars, answered, threshold)
    lie = data.draw(st.sampled_from(LIES))
    return lambda _holder, share: lie(len(share))


def draw_shares(data: st.DataObject, view: PrekeyView, liars: Collection[int], answered: Sequence[int]) -> Shares:
    """Return what is revealed if liars replace or leave out shares that they dealt or hold, of a few dealers."""
    shares: Shares = {}
    dealers = data.draw(st.sets(st.sampled_from(sorted(view.shares)), min_size=1, max_size=4))
    for dealer, places in view.shares.items():
        changed = set(answered) & (set(answered) if dealer in liars else set(liars)) if dealer in dealers else set()
        if changed:
            changed = data.draw(st.just(changed) | st.sets(st.sampled_from(sorted(changed))))
        lie = draw_lie(data, liars, answered, view.book.threshold) if changed else None
        for place, held in places.items():
            sent = {
                holder: lie(holder, held[holder]) if lie and holder in changed else held[holder] for holder in answered
            }
            kept = {holder: share for holder, share in sent.items() if share is not None}
            shares.setdefault(dealer, {})[place] = kept
    return shares


@settings(max_examples=100)
@given(st.data())
def test_liars_that_choose_their_errors_cannot_frame_honest_clients(data: st.DataObject) -> None:
    """The liars are as many as the terms withstand, and know which shares the server tries first."""
    colluders = data.draw(st.integers(1, 4))
    cast, view = revealed(colluders, data.draw(st.sampled_from([None, 3])))
    everybody = sorted(view.revealers)
    liars = data.draw(st.permutations(everybody))[: data.draw(st.just(colluders) | st.integers(1, colluders))]
    missing = data.draw(st.just(0) | st.integers(0, len(everybody) - view.book.threshold))
    silent = data.draw(st.permutations(everybody))[:missing]
    answered = sorted(view.revealers.difference(silent))
    lying = replace(view, shares=draw_shares(data, view, liars, answered), revealers=frozenset(answered))
    try:
        secrets, blame = recover_secrets(lying)
    except WrongShares as error:
        blame = error.blame
    else:
        aggregated = [cast.terms.clients[client] for client in sorted(view.aggregated)]
        assert np.array_equal(remove_masks(lying, secrets), ring_sum(cast.terms, cast.inputs, aggregated))
    assert set(blame.proven) <= set(named(*liars))
    assert all(set(pair) & set(named(*liars)) for pair in blame.disputes)


def without_proof(points: Sequence[int], shares: Sequence[bytes], trusted: Sequence[int], _most: int) -> frozenset[int]:
    """Take any shares that open a secret for the right ones."""
    return PROVE_WRONG_POINTS(points, shares, trusted, -len(points))


PROVE_WRONG_POINTS = shamir.prove_wrong_points


@pytest.mark.parametrize("defended", [True, False])
def test_two_liars_whose_errors_cancel_do_not_frame_a_dealer(
    defended: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Clients 0 and 7 are among the first 8, whose shares are tried first; 0 leaves out a share, so that they count."""
    if not defended:
        monkeypatch.setattr(shamir, "prove_wrong_points", without_proof)
    first, liars, victim = range(8), (0, 7), 5
    cast, outgoing = contributed(make_terms(12, active=True, colluders=2))
    assert cast.book.threshold == len(first)
    for name, reply in answers(cast, outgoing).items():
        me = cast.terms.index[name]

        def change(dealer: int, shares: bytes, me: int = me) -> bytes | None:
            if dealer == victim and me in liars:
                return shifted(shares, error_at(me, set(first) - set(liars), np.arange(1, 9)[None, :]))
            return None if (dealer, me) == (7, 0) else shares

        assert cast.server.receive(name, with_shares(reply, change)) is None
    cast.server.close()
    assert np.array_equal(cast.server.aggregate.total, ring_sum(cast.terms, cast.inputs, cast.terms.clients))
    if defended:
        assert cast.server.blame == Blame(
            (), (("client-05", "client-00"), ("client-05", "client-07"), ("client-07", "client-00"))
        )
    else:
        assert cast.server.blame.proven == named(victim)


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("liars", [(4,), (0, 11), (2, 3, 7)])
def test_holders_that_lie_about_everybody_are_named_and_the_sum_is_right(
    lie: Callable[[int], bytes | None], liars: Sequence[int]
) -> None:
    """12 answer and 8 shares open a secret, so three may be wrong, which is all that c = 3 allows for."""
    cast, outgoing = contributed(make_terms(12, active=True, colluders=3, circles=PAIRS))
    blame = finish(cast, outgoing, {liar: set(range(12)) for liar in liars}, lie=lie)
    assert blame == Blame(named(*liars))


def test_a_large_session_finds_its_liars_although_every_random_set_of_holders_has_some() -> None:
    """Of 40 answers 27 open a secret; a random set has none of six liars with a chance of 1 in 2,200."""
    cast, outgoing = contributed(make_terms(40, active=True, colluders=13))
    liars = (1, 4, 9, 16, 25, 36)
    assert finish(cast, outgoing, {liar: set(range(40)) for liar in liars}) == Blame(named(*liars))


def test_one_wrong_share_is_a_dispute_between_two() -> None:
    terms = make_terms(6, active=True, colluders=1)
    pair = (("client-02", "client-00"),)
    cast, outgoing = contributed(terms)
    assert finish(cast, outgoing, {0: {2}}) == Blame((), pair)
    cast, outgoing = contributed(terms, {2: {0}})
    assert finish(cast, outgoing) == Blame((), pair)


def test_a_dealer_whose_secret_no_shares_open_is_named() -> None:
    terms = make_terms(6, circles=(0, 0, 1, 1, 2, 2))
    cast = PrekeyCast(terms)
    for name in terms.clients[:5]:
        reply = cast.contribute(name)
        if name == "client-02":
            made = messages.decode(reply, MaskedContribution, "test", None)
            reply = messages.encode(msgspec.structs.replace(made, key_marks=(bytes(16), bytes(16))))
        cast.server.receive(name, reply)
    with pytest.raises(WrongShares, match="client-02 dealt or sent wrong shares") as caught:
        finish(cast, cast.server.close())
    assert caught.value.blame == Blame(("client-02",))
    assert caught.value.clients == ("client-02",)


def test_a_dealer_of_unreadable_envelopes_is_named() -> None:
    cast = PrekeyCast(make_terms(4))
    for name in cast.terms.clients:
        reply = cast.contribute(name)
        if name == "client-02":
            made = messages.decode(reply, MaskedContribution, "test", None)
            reply = messages.encode(msgspec.structs.replace(made, seed_mark=bytes(16)))
        cast.server.receive(name, reply)
    with pytest.raises(WrongShares) as caught:
        finish(cast, cast.server.close(), silent={2})
    assert caught.value.blame == Blame(("client-02",))


def test_a_wrong_share_among_the_fewest_answers_ends_the_session_without_blame() -> None:
    """With as many answers as the threshold, the dealer or the holder may be at fault, and no share shows which."""
    cast, outgoing = contributed(make_terms(4, active=True, colluders=0))
    with pytest.raises(WrongShares, match="too few shares are left to prove") as caught:
        finish(cast, outgoing, {1: {0, 1, 2, 3}}, silent={3})
    assert caught.value.blame == Blame()
    assert caught.value.clients == named(0, 1, 2, 3)


def test_too_few_answers_blame_no_client() -> None:
    cast, outgoing = contributed(make_terms(4, active=True, colluders=0))
    with pytest.raises(ThresholdError, match="masks of 4 clients") as caught:
        finish(cast, outgoing, silent={2, 3})
    assert caught.value.shortfall == dict.fromkeys(named(0, 1, 2, 3), (2, 3))


def test_honest_sessions_have_no_blame() -> None:
    cast, outgoing = contributed(make_terms(12, active=True, colluders=1, circles=PAIRS), lost=(3,))
    assert finish(cast, outgoing, silent={5, 8}) == Blame()
