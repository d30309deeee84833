import pytest
from tests.support.cast import identity_for, make_inputs, make_terms, names, ring_sum

from coterie.arithmetic import RingVector
from coterie.errors import ConfigError, InputError, PeerProtocolError
from coterie.graphs.topology import Harary
from coterie.rounds import one_off
from coterie.runs.engine.presence import late_clients
from coterie.secagg import Step
from coterie.transports.faults import Direction, Fault, FaultKind, Faults, dropouts, packet_drops
from coterie.transports.memory import AnswerCount, Carrier, Session


@pytest.mark.parametrize("workers", [1, 2, None])
@pytest.mark.parametrize("active", [False, True])
def test_a_session_in_one_process_gives_the_sum_and_its_cost(workers: int | None, active: bool) -> None:
    terms = make_terms(10, topology=Harary(6), active=active, length=70_000, colluders=2)
    inputs = make_inputs(terms)
    identities = {name: identity_for(name) for name in terms.clients}
    session = Session(terms, one_off(terms, inputs, identities=identities), Carrier(workers=workers))
    result = session.run()
    assert (result.total == ring_sum(terms, inputs, terms.clients)).all()
    report = session.report
    left_out = {Step.DONE, Step.CONTRIBUTE} if active else {Step.DONE, Step.CONTRIBUTE, Step.CONFIRM}
    assert list(report.steps) == [step for step in Step if step not in left_out]
    server = session.server
    assert server.aggregated == server.survivors == server.sharers == server.advertisers == names(10)
    assert server.revealers == names(10)
    assert report.seconds >= report.server_seconds > 0
    mask = report.steps[Step.MASK]
    assert len(mask.client_seconds) == len(mask.upload_bytes) == 10
    assert mask.median_client_seconds > 0
    assert min(mask.upload_bytes) >= terms.ring.packed_size(terms.length)
    assert report.upload_bytes > terms.ring.packed_size(terms.length)
    assert report.download_bytes > 0


def test_inputs_can_be_made_when_they_are_needed() -> None:
    terms = make_terms(5)
    inputs, asked = make_inputs(terms), []

    def make(name: str) -> RingVector:
        asked.append(name)
        return inputs[name]

    faults = Faults(0, (Fault(FaultKind.DROP, Step.SHARE, ("client-04",)),))
    session = Session(terms, one_off(terms, make), Carrier(faults, workers=1))
    assert session.run().clients == names(5)[:4]
    assert asked == list(names(5)[:4])


def test_masked_inputs_upload_no_more_than_their_bits() -> None:
    terms = make_terms(5, bits=23, length=10_000)
    session = Session(terms, one_off(terms, make_inputs(terms)))
    session.run()
    ideal = terms.length * terms.bits / 8
    assert max(session.report.steps[Step.MASK].upload_bytes) <= 1.01 * ideal


@pytest.mark.parametrize("step", [Step.ADVERTISE, Step.SHARE, Step.MASK, Step.REVEAL])
@pytest.mark.parametrize("direction", list(Direction))
def test_a_client_may_drop_out_in_any_step(step: Step, direction: Direction) -> None:
    terms = make_terms(7)
    inputs = make_inputs(terms)
    faults = Faults(0, (Fault(FaultKind.DROP, step, ("client-03",), direction=direction),))
    session = Session(terms, one_off(terms, inputs), Carrier(faults=faults))
    result = session.run()
    gone = step is not Step.REVEAL
    assert ("client-03" not in result.clients) == gone
    assert (result.total == ring_sum(terms, inputs, result.clients)).all()


def test_late_messages_arrive_in_the_next_step_and_are_rejected() -> None:
    terms = make_terms(6)
    late = Faults(0, (Fault(FaultKind.DELAY, Step.MASK, ("client-03",)),))
    session = Session(terms, one_off(terms, make_inputs(terms)), Carrier(late))
    assert "client-03" not in session.run().clients
    (rejected,) = session.server.rejected
    assert (rejected.sender, rejected.step) == ("client-03", Step.REVEAL)


def test_tampering_is_noticed_on_both_sides() -> None:
    terms = make_terms(7)
    for direction in Direction:
        faults = Faults(3, (Fault(FaultKind.TAMPER, Step.SHARE, ("client-03",), direction=direction),))
        session = Session(terms, one_off(terms, make_inputs(terms)), Carrier(faults=faults))
        assert "client-03" not in session.run().clients
        noticed = session.server.rejected if direction is Direction.UP else session.report.refusals
        assert len(noticed) == 1


def test_reordering_changes_the_order_only() -> None:
    faults = Faults(1, tuple(Fault(FaultKind.REORDER, step) for step in Step))
    assert faults.order(Step.MASK, names(9)) != list(names(9))
    assert sorted(faults.order(Step.MASK, names(9))) == list(names(9))
    assert faults.order(Step.MASK, names(9)) != faults.order(Step.SHARE, names(9))
    assert Faults().order(Step.MASK, names(9)) == list(names(9))


def test_dropouts_occur_at_the_given_rate() -> None:
    faults = dropouts(0.25, seed=5)
    clients = names(2000)
    for step in (Step.ADVERTISE, Step.SHARE, Step.MASK, Step.REVEAL):
        struck = sum(faults.strikes(FaultKind.DROP, step, client) for client in clients)
        assert 400 < struck < 600
    assert not any(faults.strikes(FaultKind.DROP, Step.CONFIRM, client) for client in clients)
    assert not any(faults.strikes(FaultKind.DELAY, Step.MASK, client) for client in clients)


def test_a_victim_of_packet_drops_neither_sends_nor_receives() -> None:
    """It is cut off in every step and direction. Other clients are not affected, and without the adversary none is."""
    faults = Faults(0, (Fault(FaultKind.DROP, Step.MASK, probability=0.3), packet_drops(["client-03"])))
    for step in Step:
        for direction in Direction:
            assert faults.strikes(FaultKind.DROP, step, "client-03", direction)
    assert faults.cut_off(names(9)) == ("client-03",)
    without = Faults(0, faults.rules[:1])
    assert without.cut_off(names(9)) == ()
    for client in set(names(9)) - {"client-03"}:
        assert faults.strikes(FaultKind.DROP, Step.MASK, client) == without.strikes(FaultKind.DROP, Step.MASK, client)


def test_packet_drops_occur_at_the_given_rate() -> None:
    struck = [Faults(seed, (packet_drops(["a", "b"], 0.25),)).cut_off(["a", "b", "c"]) for seed in range(2000)]
    assert {name for some in struck for name in some} == {"a", "b"}
    assert sum("a" in some for some in struck) / 2000 == pytest.approx(0.25, abs=0.04)
    assert sum(len(some) == 2 for some in struck) / 2000 == pytest.approx(0.0625, abs=0.03)


def test_a_client_without_work_is_never_late() -> None:
    late = Faults(0, (Fault(FaultKind.DELAY, Step.MASK),), prompt=frozenset({"client-03"}))
    assert late_clients(late, ["client-03", "client-04"]) == ("client-04",)
    dropped = Faults(0, (*late.rules, Fault(FaultKind.DROP, Step.SHARE, ("client-04",))))
    assert late_clients(dropped, ["client-03", "client-04"]) == ("client-03",)


@pytest.mark.parametrize("fault", [{"probability": 1.5}, {"direction": Direction.DOWN, "kind": FaultKind.DELAY}])
def test_impossible_faults_are_refused(fault: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        Fault(**({"kind": FaultKind.DROP, "step": Step.MASK} | fault))  # type: ignore[arg-type]


@pytest.mark.parametrize("step", [Step.ADVERTISE, Step.MASK, Step.REVEAL])
def test_a_client_may_refuse_to_continue(step: Step) -> None:
    class Reluctant:
        def answer(self, message: bytes) -> bytes:
            if session.server.step is step:
                raise PeerProtocolError("server", "I would rather not")
            return members["client-02"].answer(message)

    terms = make_terms(6)
    members = one_off(terms, make_inputs(terms))
    session = Session(terms, {**members, "client-02": Reluctant()})
    assert ("client-02" in session.run().clients) is (step is Step.REVEAL)
    assert "client-02" not in session.server.revealers
    assert [(refusal.client, refusal.step) for refusal in session.report.refusals] == [("client-02", step)]


def test_progress_is_observed() -> None:
    terms = make_terms(4)
    seen: list[tuple[Step, int, int]] = []
    carrier = Carrier(watch=AnswerCount(lambda *event: seen.append(event)))
    Session(terms, one_off(terms, make_inputs(terms)), carrier).run()
    assert seen == [(step, n, 4) for step in (Step.ADVERTISE, Step.SHARE, Step.MASK, Step.REVEAL) for n in range(1, 5)]


def test_a_bad_input_is_the_callers_error() -> None:
    terms = make_terms(4)
    inputs = make_inputs(terms) | {"client-02": make_inputs(make_terms(4, length=9))["client-02"]}
    with pytest.raises(InputError):
        Session(terms, one_off(terms, inputs)).run()
