"""Made-up entries of tables: a run knows a new policy, topology or algorithm by its own row alone."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from tests.support.policies import fixed_circles

pytest.importorskip("torch", reason="training needs coterie[train]")
from tests.support.algorithms import pace_added

from coterie.cohorts.policies import POLICIES
from coterie.errors import ConfigError
from coterie.graphs.table import TOPOLOGIES, TopologyKind
from coterie.graphs.topology import Complete
from coterie.runs.algorithms import ALGORITHMS
from coterie.runs.engine.build import build_run
from coterie.runs.engine.federation import find_federation
from coterie.runs.engine.promise import read_promise
from coterie.runs.engine.run import TrainingRun
from coterie.runs.settings.config import RunConfig
from coterie.runs.settings.toml import commented_toml, load_config, parse_config, to_toml

SMALL = (
    *("rounds=1", "clients.count=12", "cohort.size=8", "model.name=softmax-regression", "training.epochs=1"),
    *("availability.kind=equal", "availability.dropout=0.0", "faults.dropout=0.0"),
    *("training.executor=processes", "training.workers=0", "aggregation.threads=1"),
)


@pytest.fixture
def quartets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(POLICIES, "quartets", fixed_circles(4))


@pytest.mark.usefixtures("quartets")
def test_a_new_policy_is_promised_the_t_of_its_circles(tmp_path: Path) -> None:
    config = load_config(None, [*SMALL, "cohort.policy=quartets"])
    result = TrainingRun.begin(tmp_path / "run", config).play()
    assert result.privacy == 4
    assert {len(record.aggregated) % 4 for record in result.records} == {0}
    assert "T = 4 promised for any number of rounds" in (tmp_path / "run" / "report.html").read_text()
    assert read_promise(tmp_path / "run") == result.summary.promise
    assert "quartets | own)" in commented_toml().replace("\n# ", " ")


@pytest.mark.usefixtures("quartets")
def test_contradictions_with_a_new_policy_are_found_when_it_is_built() -> None:
    with pytest.raises(ConfigError, match=r"cohort\.size: the largest circle has 4 clients, more than a cohort of 3"):
        load_config(None, [*SMALL, "cohort.policy=quartets", "cohort.size=3"])


@pytest.mark.usefixtures("quartets")
def test_confined_descent_counts_the_honest_members_of_its_circles() -> None:
    settings = (*SMALL, "training.algorithm=confined", "aggregation.threat=active-server")
    load_config(None, [*settings, "cohort.policy=quartets", "aggregation.collusion=0.17"])  # c = 2 of 12, T - c = 2
    with pytest.raises(ConfigError, match="a circle of 4 has 1 honest members if 3 collude"):
        load_config(None, [*settings, "cohort.policy=quartets", "aggregation.collusion=0.25"])


class Everybody(msgspec.Struct, frozen=True, tag="everybody"):
    def graph(self, size: int, seed: bytes) -> object:
        return Complete().graph(size, seed)


@pytest.mark.parametrize("complete", [True, False])
def test_a_new_topology_is_known_and_its_row_says_whether_it_is_complete(
    complete: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(TOPOLOGIES, "everybody", TopologyKind(Everybody, complete=complete))  # type: ignore[arg-type]
    settings = (*SMALL, "aggregation.topology=everybody", "aggregation.threat=active-server", "noise.kind=skellam")
    if complete:
        load_config(None, settings)
    else:
        with pytest.raises(ConfigError, match=r"aggregation\.topology: must be complete with noise"):
            load_config(None, settings)
    assert "everybody" in commented_toml()


@pytest.fixture
def pace() -> Iterator[None]:
    with pace_added():
        yield


@pytest.mark.usefixtures("pace")
def test_a_new_algorithm_brings_its_section_of_the_settings() -> None:
    config = load_config(None, [*SMALL, "training.algorithm=pace", "pace.factor=3.0", "training.schedule=constant"])
    assert parse_config(to_toml(config)) == config
    built = build_run(config, find_federation(config))
    assert built.algorithm.learning_rate(1) == pytest.approx(0.3)
    assert "[pace]\n# what the learning rate is multiplied by\nfactor = 2.0" in commented_toml(algorithm="pace")
    assert "[pace]" not in commented_toml(algorithm="ditto")
    with pytest.raises(ConfigError, match=r"pace\.factr: there is no such setting; did you mean factor"):
        load_config(None, ["pace.factr=3.0"])


def test_every_section_of_an_algorithm_is_in_the_settings() -> None:
    for algorithm in ALGORITHMS.values():
        if algorithm.section:
            assert RunConfig.model_fields[algorithm.section].annotation is algorithm.settings
            assert algorithm.own(RunConfig()) == algorithm.settings()
