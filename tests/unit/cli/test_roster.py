"""``coterie roster``: the roster as text and as JSON, retiring circles, and the folder that keeps all versions."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from coterie.cli import app
from coterie.cohorts import Client, Roster
from coterie.deployment.recipe import Metric, RosterRecipe
from coterie.deployment.roster_folder import RosterFolder
from coterie.errors import ConfigError


@pytest.fixture
def home(tmp_path: Path) -> Path:
    roster = Roster(privacy=2, clients=()).join(Client(f"node-{number}") for number in range(5))
    founded = Roster(privacy=2, clients=roster.clients, circles=roster.circles, queue=roster.queue)
    RosterFolder(tmp_path / "server" / "rosters").add(founded)
    return tmp_path


def run(*words: str) -> str:
    result = CliRunner().invoke(app, ["roster", *words], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_the_roster_is_shown_as_text_and_as_json(home: Path) -> None:
    shown = run("show", "--home", str(home))
    assert "circle 0: node-0, node-1" in shown
    assert "waiting until they are 2: node-4" in shown
    record = json.loads(run("show", "--home", str(home), "--json"))
    assert record["digest"] in shown.replace("\n", "")
    assert record["waiting"] == ["node-4"]


def test_names_are_shown_as_they_are(tmp_path: Path) -> None:
    clients = (Client(":smile:"), Client("[red]x[/red]"))
    RosterFolder(tmp_path / "server" / "rosters").add(Roster(privacy=2, clients=clients, circles=((0, 1),)))
    assert "circle 0: ':smile:', '[red]x[/red]'" in run("show", "--home", str(tmp_path))


def test_how_contributions_are_made_is_shown_in_words(home: Path, tmp_path: Path) -> None:
    assert "older version founded it" in run("show", "--home", str(home))
    clients = tuple(Client(f"node-{number}") for number in range(2))
    recipe = RosterRecipe(most_weight=500, evaluate_metrics=(Metric("accuracy", 0, 1),), clips=(("odd\n*", 2.0),))
    founded = Roster(privacy=2, clients=clients, circles=((0, 1),), recipe=recipe.to_bytes())
    RosterFolder(tmp_path / "other" / "server" / "rosters").add(founded)
    lines = run("show", "--home", str(tmp_path / "other")).splitlines()
    assert "  most_examples    500" in lines
    assert "  evaluate_metrics accuracy from 0.0 to 1.0" in lines
    assert "  varying          num-server-rounds, server-round" in lines
    assert "  clips            'odd\\n*' 2.0, integers 1000000.0" in lines
    record = json.loads(run("show", "--home", str(tmp_path / "other"), "--json"))
    assert record["recipe"] == recipe.settings()


def test_retiring_a_node_takes_its_circle_out_of_use_permanently(home: Path) -> None:
    record = json.loads(run("retire", "node-1", "--home", str(home), "--json"))
    assert [circle["retired"] for circle in record["circles"]] == [True, False]
    assert record["version"] == 1
    versions = RosterFolder(home / "server" / "rosters").versions
    versions[0].check_successor(versions[1])
    assert "(retired)" in run("show", "--home", str(home))


def test_retiring_an_unknown_client_is_refused(home: Path) -> None:
    with pytest.raises(ConfigError, match="nobody"):
        run("retire", "nobody", "--home", str(home))


def test_a_home_without_a_roster_says_how_to_found_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="first run"):
        run("show", "--home", str(tmp_path))


def test_clients_are_shown_the_versions_they_missed_and_newcomers_all(home: Path) -> None:
    run("retire", "node-1", "--home", str(home))
    folder = RosterFolder(home / "server" / "rosters")
    first, second = folder.versions
    assert folder.since(first.digest) == [second]
    assert folder.since(second.digest) == []
    assert folder.since(b"") == [first, second], "prekeys are signed for the first"


def test_pinned_clients_are_shown_all_versions_from_the_pin(home: Path) -> None:
    for name in ("node-1", "node-2"):
        run("retire", name, "--home", str(home))
    folder = RosterFolder(home / "server" / "rosters")
    first, second, third = folder.versions
    assert folder.since(b"", first.digest) == [first, second, third]
    assert folder.since(third.digest, second.digest) == [second, third]
    assert folder.since(first.digest, third.digest) == [second, third]
    assert folder.since(b"", b"another") == [first, second, third]


def test_a_retired_circle_can_be_retired_again_without_effect(home: Path) -> None:
    run("retire", "node-1", "--home", str(home))
    assert run("retire", "node-0", "--home", str(home)).startswith("Nothing to retire: node-0")
    assert json.loads(run("retire", "node-0", "--home", str(home), "--json"))["version"] == 1
    assert len(RosterFolder(home / "server" / "rosters").versions) == 2


def test_a_roster_that_could_not_be_read_again_is_not_written(tmp_path: Path) -> None:
    folder = RosterFolder(tmp_path / "rosters")
    clients = tuple(Client(f"node-{number}") for number in range(3))
    with pytest.raises(ConfigError, match="not a roster"):
        folder.add(Roster(privacy=3, clients=clients, circles=((0, 1, 2.0),)))  # type: ignore[arg-type]
    assert not (tmp_path / "rosters").exists()
    assert folder.latest is None


def test_a_failed_write_leaves_no_part_of_a_version(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_descriptor: int) -> None:
        raise OSError("no space left on device")

    folder = RosterFolder(home / "server" / "rosters")
    assert folder.latest is not None
    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(ConfigError, match="no space"):
        folder.add(folder.latest.leave(["node-0"]))
    monkeypatch.undo()
    assert len(RosterFolder(home / "server" / "rosters").versions) == 1
    assert len(folder.versions) == 1


def test_two_runs_cannot_both_write_the_next_version(home: Path) -> None:
    one, other = (RosterFolder(home / "server" / "rosters") for _ in range(2))
    assert one.latest is not None
    one.add(one.latest.leave(["node-0"]))
    assert other.latest is not None
    with pytest.raises(ConfigError, match="another run"):
        other.add(other.latest.leave(["node-2"]))
