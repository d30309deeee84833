"""``coterie plan --clients``: the plan of a session as text and as JSON, its old options and its refusals."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.commands import refusal_of
from tests.support.plans import as_json as plan
from typer.testing import CliRunner

from coterie import __version__
from coterie.cli import app
from coterie.cli.plan_session import probability_text
from coterie.errors import ConfigError
from coterie.graphs import TOPOLOGIES
from coterie.graphs.failures import part_of
from coterie.planning.session import COMPLETE_CLIENTS
from coterie.runs.settings.config import RunConfig
from coterie.runs.settings.toml import load_config

RUNNER = CliRunner()
KEYS = {
    "topology",
    "connection_probability",
    "degree",
    "threshold",
    "privacy_failure_log2",
    "reliability_failure_log2",
    "client_upload_bytes",
    "client_download_bytes",
    "key_agreements",
    "signature_checks",
    "sessions",
    "roster",
    "lost",
    "colluders_reason",
    "complete_up_to",
    "multi_round_privacy_holds",
    "promise",
}


def test_json_has_what_machines_need() -> None:
    found = plan("--clients", "300", "--lost", "0.1", "--collusion", "0.05")
    assert found.keys() >= KEYS
    assert found["topology"] == "harary"
    assert found["privacy_failure_log2"] <= -40
    assert found["reliability_failure_log2"] <= -20
    assert found["key_agreements"] < found["complete"]["key_agreements"]


def test_a_malicious_server_needs_a_quorum() -> None:
    found = plan("--clients", "12", "--dropout", "0.05", "--active")
    assert (found["colluders"], found["quorum"]) == (3, 8)
    assert [price["colluders"] for price in found["prices"]] == [0, 1, 3]
    assert found["prices"][-1]["failed_rounds"]["0.1"] == pytest.approx(0.456, abs=0.001)
    chosen = plan("--clients", "100", "--dropout", "0.05", "--active", "--collusion", "0.1")
    assert (chosen["colluders"], chosen["quorum"]) == (10, 56)
    curious = plan("--clients", "12", "--dropout", "0.05")  # honest, but curious
    assert (curious["colluders"], curious["quorum"], curious["prices"]) == (0, None, [])


def test_more_clients_than_a_session_holds() -> None:
    found = plan("--clients", "100000", "--lost", "0.1", "--topology", "harary")
    assert (found["sessions"], found["clients"], found["roster"]) == (2, 50_000, 100_000)
    shown = RUNNER.invoke(app, ["plan", "--clients", "100000", "--lost", "0.1", "--topology", "harary"])
    words = " ".join(shown.output.split())
    assert "2 sessions of 50,000 clients" in words
    assert "2 sums instead of one" in words


def test_a_malicious_server_gets_the_complete_graph_unless_another_is_requested() -> None:
    found = plan("--clients", "500", "--lost", "0.1", "--collusion", "0.05", "--active")
    assert (found["topology"], found["multi_round_privacy_holds"]) == ("complete", False)
    found = plan("--clients", "500", "--lost", "0.1", "--collusion", "0.05", "--active", "--privacy", "2")
    assert (found["topology"], found["multi_round_privacy_holds"]) == ("complete", True)
    assert found["complete_up_to"] == COMPLETE_CLIENTS
    for asked in (("--topology", "cheapest"), ("--topology", "harary")):
        arguments = ("--clients", "500", "--lost", "0.1", "--collusion", "0.05", "--active", *asked)
        assert plan(*arguments)["multi_round_privacy_holds"] is False
        words = " ".join(RUNNER.invoke(app, ["plan", *arguments]).output.split())
        assert "Weaker promise: T does not hold on this graph" in words
    helped = RUNNER.invoke(app, ["plan", "--help"], env={"COLUMNS": "200"}).output
    assert f"up to {COMPLETE_CLIENTS:,} clients" in " ".join(helped.split())


def test_a_roster_larger_than_the_session() -> None:
    arguments = ("--clients", "12", "--lost", "0", "--roster", "120", "--collusion", "0.05")
    assert plan(*arguments, "--active")["colluders"] == 6
    assert "all colluders of the roster" in plan(*arguments, "--active")["colluders_reason"]
    assert "hypergeometric" in plan(*arguments)["colluders_reason"]


@given(st.floats(-2000, -1e-9))
def test_a_printed_bound_is_never_below_the_bound(log2: float) -> None:
    match = re.search(r"2\^(-?[0-9.]+)", probability_text(log2))
    assert match
    assert log2 <= float(match[1]) <= log2 + 0.1


def test_old_names_still_work() -> None:
    given = ("--clients", "60", "--no-calibrate")
    assert plan(*given, "--dropout", "0.1") == plan(*given, "--lost", "0.1")
    result = RUNNER.invoke(app, ["plan", "--clients", "60", "--dropout", "0.1", "--lost", "0.1"])
    assert "--dropout is an old name of --lost" in str(result.exception)


def test_every_topology_in_the_table_can_be_asked_for() -> None:
    for name in ("auto", *TOPOLOGIES):
        assert plan("--clients", "60", "--dropout", "0.1", "--topology", name)["topology"] in TOPOLOGIES
    with pytest.raises(ConfigError, match=", ".join(TOPOLOGIES)):
        RUNNER.invoke(
            app, ["plan", "--clients", "60", "--dropout", "0.1", "--topology", "ring"], catch_exceptions=False
        )


def test_the_papers_rule_can_be_requested() -> None:
    found = plan("--clients", "1000", "--dropout", "0.1", "--topology", "erdos-renyi")
    assert found["topology"] == "erdos-renyi"
    assert found["connection_probability"] == pytest.approx(0.31056, abs=5e-6)
    assert found["threshold"] == 198


def test_where_the_papers_rule_gives_no_sparse_graph() -> None:
    found = plan("--clients", "12", "--dropout", "0.1", "--topology", "erdos-renyi")
    assert found["topology"] == "complete"
    assert "p*" in found["notes"][0]
    assert found["privacy_failure_log2"] <= -40  # impossible, but still a number
    shown = RUNNER.invoke(app, ["plan", "--clients", "12", "--dropout", "0.1", "--topology", "erdos-renyi"])
    assert "no sparse graph" in " ".join(shown.output.split())


@pytest.mark.parametrize("topology", ["auto", "complete", "erdos-renyi", "harary"])
@pytest.mark.parametrize("active", [[], ["--active"]])
def test_the_command_prints_a_table(topology: str, active: list[str]) -> None:
    arguments = ["plan", "--clients", "100", "--dropout", "0.05", "--topology", topology, *active]
    result = RUNNER.invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert "threshold" in result.output
    assert "client uploads" in result.output


def test_bad_requests_are_one_clear_line() -> None:
    arguments = ["plan", "--clients", "100", "--dropout", "1.5"]
    assert isinstance(RUNNER.invoke(app, arguments).exception, ConfigError)
    said = refusal_of(*arguments)
    assert said.startswith("coterie: --lost is the probability that a client is lost in a round")
    assert said.count("\n") == 1


def test_version_and_help() -> None:
    assert RUNNER.invoke(app, ["--version"]).output.strip() == f"coterie {__version__}"
    assert "plan" in RUNNER.invoke(app, ["--help"]).output


def pasted(output: str, tmp_path: Path) -> RunConfig:
    """Read the settings that a plan ends with, as a user would who pastes them into a file."""
    file = tmp_path / "pasted.toml"
    file.write_text(output.split("Settings for coterie run:")[1])
    return load_config(file)


@pytest.mark.parametrize("active", [(), ("--active",)])
def test_a_session_ends_with_the_settings_to_paste(tmp_path: Path, active: tuple[str, ...]) -> None:
    arguments = ["plan", "--clients", "36", "--lost", "0.1", "--collusion", "0.1", "--topology", "harary", *active]
    config = pasted(RUNNER.invoke(app, arguments).stdout, tmp_path)
    assert (config.cohort.size, config.aggregation.topology) == (36, "harary")
    assert (config.clients.count, part_of(config.aggregation.collusion, 36)) == (36, 3)
    assert config.aggregation.threat == ("active-server" if active else "honest-but-curious")


def test_many_rounds_end_with_the_settings_to_paste(tmp_path: Path) -> None:
    arguments = ["plan", "--population", "120", "--cohort", "12", "--dropout", "0.2"]
    config = pasted(RUNNER.invoke(app, arguments).stdout, tmp_path)
    assert (config.clients.count, config.cohort.size, config.cohort.policy) == (120, 12, "multi-round")
    assert config.cohort.privacy > 1


def test_the_cost_of_colluders_is_separate_from_that_of_lost_clients() -> None:
    result = RUNNER.invoke(app, ["plan", "--clients", "100", "--lost", "0.1", "--active"], env={"COLUMNS": "120"})
    assert "lost in each of the 5 steps, unlike --lost" in " ".join(result.output.split())
    assert "10% a step, 41% in all" in result.output


def test_both_protocols_are_priced_in_seconds_unless_nothing_is_measured() -> None:
    given = ("--clients", "30", "--lost", "0.1", "--active", "--circles", "2")
    priced = plan(*given)["protocols"]
    for price in priced.values():
        assert price["seconds"]["client"] > 0
        assert price["seconds"]["server"] > 0
    unmeasured = plan(*given, "--no-calibrate")["protocols"]
    assert {name: price["seconds"] for name, price in unmeasured.items()} == {"papers": None, "two-trips": None}
    for more, shown in (((), True), (("--no-calibrate",), False)):
        result = RUNNER.invoke(app, ["plan", *given, *more], env={"COLUMNS": "120"})
        assert ("a client's cryptography" in result.output) is shown
        assert ("coterie bench flower" in " ".join(result.output.split())) is shown


def test_the_table_of_all_t_has_no_seconds() -> None:
    result = RUNNER.invoke(app, ["plan", "--population=120", "--cohort=12", "--absent=0.2", "--no-calibrate"])
    assert isinstance(result.exception, ConfigError)
    assert "--calibrate with --population needs --rounds" in str(result.exception)
