import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from coterie.cli import app
from coterie.cohorts import Client, Roster
from coterie.cohorts.roster_folder import RosterFolder
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


def test_the_roster_is_shown_to_people_and_to_programs(home: Path) -> None:
    shown = run("show", "--home", str(home))
    assert "circle 0: node-0, node-1" in shown
    assert "waiting until they are 2: node-4" in shown
    record = json.loads(run("show", "--home", str(home), "--json"))
    assert record["digest"] in shown.replace("\n", "")
    assert record["waiting"] == ["node-4"]


def test_a_leaver_takes_its_circle_out_of_use_for_good(home: Path) -> None:
    record = json.loads(run("retire", "node-1", "--home", str(home), "--json"))
    assert [circle["retired"] for circle in record["circles"]] == [True, False]
    assert record["version"] == 1
    versions = RosterFolder(home / "server" / "rosters").versions
    versions[0].check_successor(versions[1])
    assert "(retired)" in run("show", "--home", str(home))


def test_strangers_cannot_leave(home: Path) -> None:
    with pytest.raises(ConfigError, match="nobody"):
        run("retire", "nobody", "--home", str(home))


def test_a_home_without_a_roster_says_how_there_comes_to_be_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="first run"):
        run("show", "--home", str(tmp_path))


def test_whoever_missed_versions_is_shown_them_and_newcomers_the_latest(home: Path) -> None:
    run("retire", "node-1", "--home", str(home))
    folder = RosterFolder(home / "server" / "rosters")
    first, second = folder.versions
    assert folder.since(first.digest) == [second]
    assert folder.since(second.digest) == []
    assert folder.since(b"") == [second]


def test_two_runs_cannot_both_write_the_next_version(home: Path) -> None:
    one, other = (RosterFolder(home / "server" / "rosters") for _ in range(2))
    assert one.latest is not None
    one.add(one.latest.leave(["node-0"]))
    assert other.latest is not None
    with pytest.raises(ConfigError, match="another run"):
        other.add(other.latest.leave(["node-2"]))
