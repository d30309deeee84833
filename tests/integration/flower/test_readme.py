"""The commands in the README of the Flower examples and in the guide to Flower, run as written."""

import re
import shutil
import time
from pathlib import Path
from statistics import fmean

import pytest
from tests.support.loopback import ROOT

from coterie.bench.loopback import LocalProcess, environment, free_port

README = (ROOT / "examples" / "flower" / "README.md").read_text()
GUIDE = (ROOT / "docs" / "flower.md").read_text()
PORTS = ("8000", "9091", "9092", "9093")
LONGEST = 1800.0


def commands(document: str) -> str:
    """Return the commands of a document without those that install packages, with ports that are free."""
    text = "".join(re.findall(r"```sh\n(.*?)```", document, re.DOTALL)).replace("--port 909$n", "--port $(port 909$n)")
    text = re.sub(r"^pip install .*\n", "", text, flags=re.MULTILINE)
    free = {port: str(free_port()) for port in PORTS}
    cases = "".join(f"{port}) echo {chosen};; " for port, chosen in free.items())
    return f"port() {{ case $1 in {cases}esac; }}\n{text.replace('8000', free['8000'])}"


def test_the_targets_of_all_links_exist() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert (ROOT / "examples" / "flower" / target).exists(), target


def check_the_mean(log: str) -> None:
    """Check that the model of the second private round is the mean of the models that the plain server got."""
    lines = re.findall(r"wiretap: (to all nodes|from one node): 0\.weight, .*\[(.*)\]", log)
    models = [[float(value) for value in values.split()] for way, values in lines if way == "from one node"]
    sent = [[float(value) for value in values.split()] for way, values in lines if way == "to all nodes"]
    assert sent[2] == pytest.approx([fmean(values) for values in zip(*models, strict=True)], abs=1e-5)


def gone_after(reader: LocalProcess, seconds: float) -> list[int]:
    """Return the processes that the reader started and that still run after this time."""
    until = time.monotonic() + seconds
    while reader.left and time.monotonic() < until:
        time.sleep(0.5)
    return reader.left


def type_commands(document: str, folder: Path, start: Path) -> str:
    """Run all commands of a document in one shell, and return everything that it prints."""
    pytest.importorskip("ray", reason="needs coterie[simulation]")
    env = {name: value for name, value in environment(folder).items() if not name.startswith(("FLWR_", "COTERIE_"))}
    script = folder / "commands"
    script.write_text(commands(document))
    reader = LocalProcess(["bash", "-eux", str(script)], env, start, folder / "log")
    try:
        assert reader.wait(LONGEST) == 0, reader.log[-6000:]
        assert not gone_after(reader, 60.0), "the commands leave processes behind"
    finally:
        reader.kill()
    return reader.log


@pytest.mark.slow
def test_the_simulation_of_the_guide_is_run_and_its_audit_holds(tmp_path: Path) -> None:
    """The last command, coterie audit, finds that T holds."""
    shutil.copytree(ROOT / "examples" / "flower", tmp_path / "examples" / "flower")
    log = type_commands(GUIDE, tmp_path, tmp_path)
    assert "Coterie: round 3: one sum over 10 clients" in log
    assert log.count("It holds: T is") == 1


@pytest.mark.slow
def test_the_commands_of_the_guide_work(tmp_path: Path) -> None:
    log = type_commands(README, tmp_path, ROOT / "examples" / "flower")
    assert log.count("Coterie: round 3: one sum over 3 clients") == 1
    assert log.count("Coterie: no round is asked for") == 1
    assert "Roster version 0 of 1: 3 nodes, T = 2" in log
    assert "circle 0 (retired): node-1, node-2, node-3" in log
    assert log.count("It holds: T is 3.") == 2
    check_the_mean(log)
    seen = re.findall(r"wiretap: (to all nodes|from one node): ([\w.]+), \d+ of (\w+)", log)
    assert seen.count(("from one node", "0.weight", "float32")) == 3
    assert seen.count(("from one node", "bytes", "uint8")) == 2 * 3
    assert ("to all nodes", "0.weight", "float32") in seen
    assert "Coterie: round 3: one sum over 10 clients" in log
    assert log.count("It holds: T is") == 3
