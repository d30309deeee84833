"""Every lie of a malicious server: it obtains the victim's input without the rule against it, and not with the rule."""

from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from tests.support.records import record_of, words_of

pytest.importorskip("torch", reason="training needs coterie[train]")

from coterie.arithmetic.ring import Ring
from coterie.attacks.attack import make_record, run_attack
from coterie.attacks.federation import Federation
from coterie.attacks.malicious_server import inconsistency, invitations, sessions
from coterie.attacks.malicious_server.ablation import RULES, without
from coterie.attacks.malicious_server.knowledge import leaks
from coterie.attacks.malicious_server.measure import LIES, MaliciousServer
from coterie.attacks.malicious_server.scenario import SIGNIFICANT, Attempt, Lie, LieResult, Scenario, chance_of
from coterie.attacks.malicious_server.server import announce, deliver, show_book
from coterie.attacks.malicious_server.variants import VaryingServer
from coterie.crypto.signing import each_signature_once
from coterie.errors import ConfigError, PeerProtocolError, RoundAborted
from coterie.graphs.topology import Complete, Harary
from coterie.reports.findings import Effect
from coterie.reports.words import Level
from coterie.runs.engine.secrets import digest_of
from coterie.secagg import Server, ThreatMode

REFUSED = {
    "equivocation": "clients confirmed the survivors",
    "stranding": "has no word of client client-00",
    "key-substitution": "did not sign",
    "copied-keys": "a key is advertised twice",
    "lonely-sum": "may collude",
    "rewinding": "this step of it answered before",
    "regrouping": "circle 0 is not that of the roster",
    "puppets": "identity key is not the one on the roster",
    "model-inconsistency": "other work than the session",
}
"""The refusals of clients under active terms. They answer the other lies, but the server does not get an input."""
WORK_ON_TRUST = {"equivocation", "stranding", "key-substitution", "joining-twice", "lonely-sum", "puppets"}
"""Lies that obtain an input from clients who trust the server to follow the protocol."""
ANY = bytes(32)
"""A key that belongs to no client."""


def make_scenario(
    seed: int = 0, *, active: bool = True, privacy: int = 3, clients: int = 12, colluders: int = 3
) -> Scenario:
    rng = np.random.default_rng(seed)
    ring = Ring(12)
    inputs = [rng.integers(0, ring.modulus, 64, ring.dtype) for _ in range(clients)]
    return Scenario(active, privacy, clients, colluders, ring, inputs, seed)


@pytest.mark.parametrize("name", LIES)
def test_a_lie_obtains_the_input_without_the_rule_but_not_with_it(name: str) -> None:
    scenario, lie = make_scenario(), LIES[name]
    without_rule, with_rule = lie.play(scenario, False), lie.play(scenario, True)
    assert without_rule.exact
    assert not with_rule.exact
    assert any(REFUSED.get(name, "") in reason for reason in with_rule.refusals or [""])
    assert not any(map(leaks, with_rule.servers))
    if name != "splitting":
        assert chance_of([with_rule], np.random.default_rng(1)) > SIGNIFICANT


@pytest.mark.parametrize("name", LIES)
def test_some_lies_work_if_clients_trust_the_server(name: str) -> None:
    scenario, lie = make_scenario(active=False), LIES[name]
    assert lie.play(scenario, False).exact
    assert lie.play(scenario, True).exact is (name in WORK_ON_TRUST)


@pytest.mark.parametrize("lie", sessions.LIES, ids=lambda lie: lie.name)
def test_refusals_are_typed(lie: Lie) -> None:
    errors = [error for server in lie.play(make_scenario(), True).servers for error in server.refusals]
    assert all(isinstance(error, PeerProtocolError | RoundAborted) for error in errors)
    assert bool(errors) is (lie.name in REFUSED)


@pytest.mark.parametrize("active", [False, True])
def test_splitting_a_circle_reveals_only_the_sum_of_its_members(active: bool) -> None:
    scenario = make_scenario(active=active)
    attempt = LIES["splitting"].play(scenario, True)
    assert attempt.among == 3
    assert attempt.recovered is not None
    total = scenario.inputs[0] + scenario.inputs[1] + scenario.inputs[2]
    scenario.ring.reduce(total)
    assert attempt.recovered.tolist() == total.tolist()


@pytest.mark.parametrize("active", [False, True])
def test_an_honest_server_learns_only_the_sum(active: bool) -> None:
    scenario = make_scenario(active=active, colluders=0)
    server = scenario.open("no lie")
    persons = [server.enter(number) for number in server.honest]
    show_book(server, persons)
    deliver(server, persons)
    announce(server, persons, range(12), range(12))
    unmasked = [vector for vector in map(server.unmask, persons) if vector is not None]
    assert not any((vector == value).all() for vector, value in zip(unmasked, scenario.inputs, strict=True))
    total, expected = np.sum(unmasked, axis=0, dtype=np.uint64), np.sum(scenario.inputs, axis=0, dtype=np.uint64)
    assert (total % scenario.ring.modulus).tolist() == (expected % scenario.ring.modulus).tolist()
    assert not leaks(server)
    assert server.refusals == []


def test_the_server_recovers_an_input_without_reading_secrets_of_clients() -> None:
    """They are recorded only to check its results."""
    attempt = LIES["stranding"].play(make_scenario(), False)
    (server,) = attempt.servers
    for person in server.persons:
        if person.shared is not None:
            person.shared = msgspec.structs.replace(person.shared, self_seed=bytes(32), peers=())
        person.state = person.shared or person.state
    recovered = server.unmask(server.persons[0])
    assert recovered is not None
    assert recovered.tolist() == attempt.planted.tolist()


@given(seed=st.integers(0, 2**32), clients=st.integers(6, 12), privacy=st.integers(1, 3), data=st.data())
@settings(deadline=None, max_examples=25)
def test_varied_lies_obtain_nothing_in_any_configuration(
    seed: int, clients: int, privacy: int, data: st.DataObject
) -> None:
    lie = data.draw(st.sampled_from(sessions.LIES))
    scenario = make_scenario(
        seed, privacy=privacy, clients=clients, colluders=data.draw(st.integers(0, (clients - 1) // 2))
    )
    with each_signature_once():
        attempt = lie.play(replace(scenario, variation=np.random.default_rng(seed)), True)
    assert not attempt.exact
    assert not any(map(leaks, attempt.servers))
    assert not any(server.answered_again for server in attempt.servers if isinstance(server, VaryingServer))


def test_varied_lies_still_obtain_something_without_the_rule() -> None:
    """If no varied lie worked, the test above would show nothing."""
    exact = {lie.name: 0 for lie in sessions.LIES}
    repeated = 0
    for seed in range(4):
        for lie in sessions.LIES:
            attempt = lie.play(replace(make_scenario(seed), variation=np.random.default_rng(seed)), False)
            exact[lie.name] += attempt.exact
            repeated += sum(server.asked for server in attempt.servers if isinstance(server, VaryingServer))
    assert all(exact.values()), exact
    assert repeated > 100


# --- Rules are restored.


def protocol_functions() -> list[object]:
    return [vars(owner)[name] for rule in RULES.values() for owner, name, _ in rule]


@pytest.mark.parametrize("rule", RULES)
def test_a_removed_rule_is_always_restored(rule: str) -> None:
    before = protocol_functions()

    def fail() -> None:
        with without(rule):
            assert protocol_functions() != before
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert protocol_functions() == before


def test_removals_of_rules_can_be_nested() -> None:
    before = protocol_functions()
    with without("company"), without("statements"), without("company"):
        pass
    assert protocol_functions() == before


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_is_restored_even_if_removals_overlap(rule: str) -> None:
    before = protocol_functions()
    first, second = without(rule), without(rule)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    second.__exit__(None, None, None)
    assert protocol_functions() == before


def test_an_unknown_rule_is_refused() -> None:
    with pytest.raises(ConfigError, match="no rule 'all of them'"), without("all of them"):
        pass


# --- Members, and the models that they receive.


def test_a_member_enters_a_session_once() -> None:
    """The other defence against joining twice: a client is never in two key books of a session."""
    scenario = make_scenario()
    terms = invitations.offer(scenario, "twice")
    invitation = Server(terms).invite()["client-00"]
    with invitations.members(scenario, True) as members:
        members["client-00"].answer(invitation)
        members["client-00"].leave()
        with pytest.raises(PeerProtocolError, match="was entered before"):
            members["client-00"].answer(invitation)
    with invitations.members(scenario, False) as members:
        members["client-00"].answer(invitation)
        members["client-00"].leave()
        members["client-00"].answer(invitation)


@given(data=st.data())
@settings(deadline=None, max_examples=80)
def test_varied_terms_are_refused_or_harmless(data: st.DataObject) -> None:
    """Terms that a member accepts have whole circles of its roster, with their keys, and fulfil its floor."""
    scenario = make_scenario()
    roster = invitations.roster_of(scenario)

    def perhaps(honest: object, other: st.SearchStrategy[object]) -> object:
        return data.draw(st.one_of(*[st.just(honest)] * 4, other))

    circles = data.draw(st.sets(st.sampled_from(range(4)), min_size=2))
    whole = [number for number in range(12) if number // 3 in circles]
    chosen = perhaps(whole, st.sets(st.sampled_from(range(12)), min_size=6).map(sorted))
    assert isinstance(chosen, list)
    size, own = len(chosen), tuple(roster.clients[number].identity for number in chosen)
    changes = {
        "clients": tuple(roster.clients[number].name for number in chosen),
        "identities": perhaps(own, st.integers(0, size - 1).map(lambda place: (*own[:place], ANY, *own[place + 1 :]))),
        "circles": perhaps(
            tuple(number // 3 for number in chosen),
            st.one_of(st.none(), st.lists(st.integers(0, 4), min_size=size, max_size=size).map(tuple)),
        ),
        "mode": perhaps(ThreatMode.ACTIVE_SERVER, st.just(ThreatMode.HONEST_BUT_CURIOUS)),
        "threshold": perhaps(None, st.integers(1, size)),
        "colluders": perhaps(3, st.integers(0, size - 2)),
        "topology": perhaps(Complete(), st.just(Harary(2))),
        "roster": perhaps(roster.digest, st.binary(min_size=32, max_size=32)),
    }
    try:
        terms = invitations.offer(scenario, "varied")
        terms = msgspec.structs.replace(terms, **changes)
    except ConfigError:
        return
    name = data.draw(st.sampled_from(terms.clients))
    with invitations.members(scenario, True) as members:
        try:
            members[name].answer(Server(terms).invite()[name])
        except PeerProtocolError:
            return
    event("accepted")
    assert terms.active
    assert chosen == [number for number in range(12) if number // 3 in {one // 3 for one in chosen}]
    assert terms.circles == tuple(number // 3 for number in chosen)
    assert terms.identities == own
    assert terms.tolerated >= 3
    assert terms.threshold_for(size) > 3
    assert terms.topology == Complete()


def test_with_dead_units_only_the_last_biases_change() -> None:
    federation = Federation.deal("digits", inconsistency.MODEL, 3, 0, examples=1)
    (update,) = federation.updates(inconsistency.deaden(federation.start), 1, inconsistency.WORK, [1])
    biases = federation.start[-1].size
    assert not update[:-biases].any()
    assert update[-biases:].any()


def test_the_example_is_recovered_from_the_update() -> None:
    attempt = LIES["model-inconsistency"].play(make_scenario(), False)
    assert attempt.pictures is not None
    planted, seen = attempt.pictures
    assert seen is not None
    assert np.abs(planted - seen).max() < 0.01


def test_naming_the_model_of_the_others_excludes_the_victim() -> None:
    """A client that received another model than the one that the session names is not in its sum."""
    scenario = make_scenario()
    federation = Federation.deal("digits", inconsistency.MODEL, 12, 0, examples=1)
    dead = inconsistency.deaden(federation.start)
    terms = invitations.offer(scenario, "the others' model", content=digest_of(dead))
    with invitations.members(scenario, True) as members:
        for number, member in enumerate(members.values()):
            member.content = digest_of(federation.start if number == 0 else dead)
        total, refusals = invitations.play(terms, members)
    assert len(refusals) == 1
    assert "gave client-00 other work" in refusals[0]
    assert total is not None
    aggregated = range(3, 12)  # the victim's circle is broken
    expected = np.sum([scenario.inputs[number] for number in aggregated], axis=0, dtype=np.uint64)
    assert total.tolist() == (expected % scenario.ring.modulus).tolist()


@pytest.mark.parametrize("active", [False, True])
def test_two_sets_of_terms_share_no_masks(active: bool) -> None:
    """A server that names one model to the victim and another to the others has two sessions, not one."""
    scenario = make_scenario(active=active, colluders=0)
    server, others = scenario.open("one model"), scenario.open("another model")
    persons = [(server if number == 0 else others).enter(number) for number in range(12)]
    book = [msgspec.structs.replace(person.advertisement, terms=server.terms.digest) for person in persons]
    accepted = server.share(persons[0], book)
    assert accepted is not active
    if accepted:  # nothing is signed; but the others cannot open what the victim sealed under its own terms
        relabelled = [msgspec.structs.replace(entry, terms=others.terms.digest) for entry in book]
        for person in persons[1:]:
            others.share(person, relabelled)
        dealers = {dealer.client: dealer for dealer in persons}
        for person in persons[1:]:
            peers = [number for number in range(12) if number != person.client]
            others.mask(person, [others.envelope(peer, person, dealers[peer]) for peer in peers])
            assert getattr(person.state, "distrusted", None) == (0,)


# --- The findings.


def small(**changes: object) -> MaliciousServer:
    return replace(MaliciousServer(lies=("both-shares", "splitting"), trials=1, tries=1), **changes)  # type: ignore[arg-type]


def unwatched(_doing: str, share: float) -> None:
    assert 0 <= share <= 1


def test_the_finding_reports_the_result_of_each_lie() -> None:
    attack = small()
    finding = run_attack(attack, unwatched)
    assert finding.level is Level.SAFE
    assert "2 of 2 lies obtained a client's input exactly; with all rules, none did" in finding.headline
    assert [line.outcome for line in finding.card] == [Effect.ELIMINATED, Effect.REDUCED]
    lies = make_record("malicious-server", attack, finding)["lies"]
    assert lies["both-shares"]["without_rule"] == {"exact": 1, "resemblance": pytest.approx(1)}
    assert lies["splitting"]["clients_in_what_is_left"] == 3
    (both, split) = finding.pictures
    (_, victim), (_, without_rule), (_, with_rule) = both.rows
    assert (victim == without_rule).all()
    assert not (victim == with_rule).all()
    assert "sum of 3 clients" in split.caption


def test_the_result_depends_on_the_settings_alone() -> None:
    attack = small(lies=("stranding",))
    one, other = (make_record("malicious-server", attack, run_attack(attack, unwatched)) for _ in range(2))
    assert one == other
    again = small(lies=("stranding",), seed=1)
    assert make_record("malicious-server", again, run_attack(again, unwatched))["lies"] != one["lies"]


def test_sessions_that_trust_the_server_are_not_called_safe() -> None:
    finding = run_attack(small(lies=("key-substitution", "both-shares"), active=False), unwatched)
    assert finding.level is Level.DANGER
    assert finding.headline.startswith("1 of 2 lies obtained a client's input with all rules in place: substituted")
    assert [line.outcome for line in finding.card] == [Effect.NOT_ELIMINATED, Effect.ELIMINATED]


def test_an_impossible_lie_is_not_reported_as_shown() -> None:
    finding = run_attack(small(lies=("splitting", "copied-keys"), privacy=1, colluders=0), unwatched)
    assert finding.headline.startswith("Nothing is shown")
    assert finding.pictures == []
    assert ["Not possible here" in line.why for line in finding.card] == [True, True]


def test_a_variation_that_succeeds_changes_the_outcome() -> None:
    attempt = Attempt(Ring(8), np.zeros(4, np.uint16))
    told = LieResult(LIES["stranding"], [attempt], [attempt], [], 1.0)
    assert told.outcome is Effect.ELIMINATED
    broken = replace(told, varied=[type("V", (), {"broken": True})()])
    assert broken.outcome is Effect.NOT_ELIMINATED


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"lies": ("white",)}, "no lie 'white'; known are both-shares"),
        ({"trials": 0}, "trials must be a whole number from 1"),
        ({"privacy": 7}, "T = 7"),
        ({"clients": 3}, "clients must be a whole number from 4 to 100, not 3"),
        ({"colluders": 6}, "between 0 and 5 may collude"),
    ],
)
def test_impossible_settings_are_refused(changes: dict[str, object], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        small(**changes)


def test_all_lies_are_tried_unless_some_are_named() -> None:
    assert small(lies=()).lies == tuple(LIES)


def test_the_command(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    arguments = ["attack", "malicious-server", "--lie", "equivocation", "--trials", "1", "--tries", "1"]
    found = record_of(*arguments, "--html", page)
    assert found["threat_model"]["who"].startswith("the server")
    assert found["lies"]["equivocation"]["with_rule"]["exact"] == 0
    assert found["lies"]["equivocation"]["varied"]["broken_with_rule"] == 0
    assert found["settings"]["colluders"] == 3
    text = page.read_text("utf-8")
    assert text.count('<img src="data:image/png;base64,') == 3
    assert "Privacy card" in text


def test_the_command_in_words() -> None:
    arguments = ["attack", "malicious-server", "--lie", "key-substitution", "--mode", "honest", "--trials", "1"]
    shown = words_of(*arguments, "--tries", "0")
    assert shown.index("who") < shown.index("✗ 1 of 1 lie obtained")
    assert "Privacy card" in shown
