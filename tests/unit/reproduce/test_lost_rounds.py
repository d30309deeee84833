"""Lost rounds on sparse graphs: one model for all schemes that lost the same rounds, and claims about the losses."""

from collections.abc import Iterable
from pathlib import Path

import msgspec
import numpy as np
import pytest
from tests.support.jobs import context, experiment_of
from tests.support.reports import checked_report

from coterie.attacks.federation import Federation, Matrix
from coterie.errors import ConfigError
from coterie.reports.findings import Judgement
from coterie.reproduce import checkpoints
from coterie.reproduce.declarations import FULL, declared, read_declaration
from coterie.reproduce.experiment import Job, Record
from coterie.reproduce.lost_rounds import Deal, GraphScheme, LostRounds
from coterie.reproduce.runner import Run
from coterie.training.flatten import ModelArrays
from coterie.training.local import LocalSGD

EXPERIMENT = LostRounds(
    data="digits",
    model="mlp",
    clients=20,
    rounds=8,
    every=2,
    epochs=1,
    batch_size=10,
    learning_rate=0.1,
    momentum=0.5,
    dropout=0.1,
    tables=(Deal(name="IID"), Deal(name="non-IID", shards=2, learnt=30.0)),
    schemes=(
        GraphScheme(name="SA", connection=1.0, threshold=11),
        GraphScheme(name="dense", connection=0.95, threshold=9),
        GraphScheme(name="sparse", connection=0.7, threshold=11),
        GraphScheme(name="bare", connection=0.1, threshold=11),
    ),
)
IID, NON_IID = EXPERIMENT.jobs(1)


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> dict[Job, Record]:
    """What both jobs measure without an interruption."""
    found = {job: EXPERIMENT.measure(job, 0, context(tmp_path_factory.mktemp("whole"))) for job in (IID, NON_IID)}
    return {job: record for job, record in found.items() if record is not None}


def test_a_scheme_that_loses_no_round_has_the_model_of_the_complete_graph(records: dict[Job, Record]) -> None:
    record = records[IID]
    assert record["SA"]["lost"] == record["dense"]["lost"] == []
    assert record["dense"]["accuracy"] == record["SA"]["accuracy"]
    assert 0 < len(record["sparse"]["lost"]) < 8
    assert record["sparse"]["accuracy"] != record["SA"]["accuracy"]
    assert record["bare"]["lost"] == [1, 2, 3, 4, 5, 6, 7, 8]
    federation = EXPERIMENT.deal(IID, 0, None)
    start = federation.score(federation.start).accuracy
    assert record["bare"]["accuracy"] == [[number, start] for number in (2, 4, 6, 8)]


def test_models_are_trained_once_and_are_those_of_each_scheme_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone: Record = {}
    for scheme in EXPERIMENT.schemes:
        single = msgspec.structs.replace(EXPERIMENT, schemes=(scheme,))
        found = single.measure(IID, 0, context(tmp_path / scheme.name))
        assert found is not None
        alone |= found
    trained: list[int] = []
    updates = Federation.updates

    def counted(
        self: Federation, state: ModelArrays, number: int, work: LocalSGD, clients: Iterable[int] | None = None
    ) -> Matrix:
        trained.append(number)
        return updates(self, state, number, work, clients)

    monkeypatch.setattr(Federation, "updates", counted)
    together = EXPERIMENT.measure(IID, 0, context(tmp_path / "together"))
    assert together == alone
    successes = 8 - len(alone["sparse"]["lost"])
    first = alone["sparse"]["lost"][0]
    assert len(trained) == 8 + successes - (first - 1)  # until it loses a round, it shares the model of SA


def test_an_interrupted_job_continues_and_gives_the_same_result(tmp_path: Path, records: dict[Job, Record]) -> None:
    assert EXPERIMENT.measure(NON_IID, 0, context(tmp_path, 3)) is None
    assert checkpoints.rounds_played(checkpoints.path_of(tmp_path, NON_IID)) == 4
    assert EXPERIMENT.progress(NON_IID, tmp_path) == 0.5
    assert EXPERIMENT.measure(NON_IID, 0, context(tmp_path)) == records[NON_IID]


def test_clients_whose_models_overflow_do_not_spoil_the_sum(tmp_path: Path) -> None:
    wild = msgspec.structs.replace(EXPERIMENT, learning_rate=1e30, rounds=2, schemes=EXPERIMENT.schemes[:1])
    federation = wild.deal(IID, 0, None)
    assert not np.isfinite(federation.updates(federation.start, 1, LocalSGD(1e30), [0])).all()
    models = wild.play("IID", federation, 1, {"all": federation.start}, {"SA": {"accuracy": [], "lost": []}})
    assert all(np.isfinite(array).all() for array in models["all"])


def test_tables_have_graphs_of_their_own(records: dict[Job, Record]) -> None:
    assert records[IID]["sparse"]["lost"] != records[NON_IID]["sparse"]["lost"]


def line(accuracy: float, lost: int = 0) -> Record:
    return {"accuracy": [[8, accuracy]], "lost": list(range(1, lost + 1))}


def judged(*trials: Record, rounds: int = 200) -> dict[str, str]:
    two = msgspec.structs.replace(EXPERIMENT, schemes=EXPERIMENT.schemes[:2], rounds=rounds)
    findings = two.findings({Job("training", "non-IID", number): trial for number, trial in enumerate(trials)})
    return {claim["claim"]: claim["judgement"] for claim in findings.numbers["claims"]}


def test_claims_are_judged_by_the_numbers() -> None:
    few, learns, same = (
        "dense: at most 1% of the rounds are lost",
        "non-IID, SA: something is learnt, an accuracy above 30%",
        "non-IID, dense: the accuracy is that of SA, within 2 points",
    )
    good = judged(*({"SA": line(0.5 + place), "dense": line(0.5 + place)} for place in (0.0, 0.01, 0.02)))
    assert good == {few: Judgement.HOLDS, learns: Judgement.HOLDS, same: Judgement.BY_CONSTRUCTION}
    lossy = judged(*({"SA": line(0.2 + place), "dense": line(0.1 - place, 90)} for place in (0.0, 0.01, 0.02)))
    assert lossy == {few: Judgement.FAILS, learns: Judgement.FAILS, same: Judgement.FAILS}
    short = judged(*({"SA": line(0.5), "dense": line(0.5)} for _ in range(2)), rounds=20)
    assert short[few] == short[learns] == Judgement.OPEN


def test_different_models_without_a_lost_round_fail_the_check() -> None:
    found = judged(*({"SA": line(0.5), "dense": line(0.5 + place)} for place in (0.0, 0.01, 0.02)))
    assert found["non-IID, dense: the accuracy is that of SA, within 2 points"] == Judgement.FAILS


def test_a_report_can_be_rewritten(tmp_path: Path) -> None:
    shipped = read_declaration(declared()["ccesa-lenet"])
    settings = msgspec.json.decode(msgspec.json.encode(msgspec.structs.replace(EXPERIMENT, rounds=2)))
    settings = {key: value for key, value in settings.items() if key not in ("notes", "efforts", "elsewhere")}
    size = msgspec.structs.replace(shipped.sizes[FULL], settings={})
    declaration = msgspec.structs.replace(shipped, settings=settings, sizes={FULL: size})
    run = Run("small", declaration, tmp_path, trials=2)
    checked_report(run)
    assert (tmp_path / "accuracy.png").stat().st_size > 0


def test_the_declaration_has_the_papers_clients_and_graphs() -> None:
    full = experiment_of(LostRounds, "ccesa-lenet")
    assert (full.clients, full.dropout, full.epochs, full.momentum) == (1000, 0.1, 3, 0.5)
    assert {(one.connection, one.threshold) for one in full.schemes} >= {(0.3106, 198), (0.25, 167)}
    with pytest.raises(ConfigError, match="at most 20"):
        msgspec.structs.replace(EXPERIMENT, schemes=(GraphScheme(name="high", connection=1.0, threshold=21),)).check()
