"""Output that is not read to its end: no traceback, and an exit status that cannot be taken for a verdict."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from coterie.cli.output import CLOSED_PIPE, NOT_WRITTEN

EXPOSED = "round,client\n1,a\n1,b\n2,a\n"


def run(
    *arguments: str, read: int | None, errors: bool = False, unbuffered: bool = False, stdin: str = ""
) -> tuple[int, str]:
    """Run a command whose output is read up to ``read`` bytes (None: to its end); return its status and its errors."""
    environment = {**os.environ, "COLUMNS": "120", "PYTHONUNBUFFERED": "1" if unbuffered else ""}
    reader, writer = os.pipe()
    with subprocess.Popen(
        [sys.executable, "-m", "coterie", *arguments],
        stdin=subprocess.PIPE,
        stdout=writer,
        stderr=writer if errors else subprocess.PIPE,
        env=environment,
        text=True,
    ) as process:
        os.close(writer)
        if read == 0:
            os.close(reader)  # long before the first byte: the command waits for its input
        _, said = process.communicate(stdin) if read == 0 else (None, "")
        if read != 0:
            assert process.stdin is not None
            process.stdin.write(stdin)
            process.stdin.close()
            with os.fdopen(reader, "rb", buffering=0) as file:
                while piece := file.read(read or 65_536):
                    if read and piece:
                        break
            said = process.stderr.read() if process.stderr else ""
    return process.returncode, said or ""


@pytest.mark.parametrize("as_json", [[], ["--json"]])
def test_output_that_is_read_to_its_end_has_the_exposure_status(as_json: list[str]) -> None:
    assert run("audit", "-", *as_json, read=None, stdin=EXPOSED) == (1, "")


@pytest.mark.parametrize("unbuffered", [False, True])
@pytest.mark.parametrize("as_json", [[], ["--json"]])
def test_a_closed_pipe_does_not_have_the_exposure_status(as_json: list[str], unbuffered: bool) -> None:
    assert run("audit", "-", *as_json, read=0, unbuffered=unbuffered, stdin=EXPOSED) == (CLOSED_PIPE, "")


def test_a_partly_read_pipe_does_not_have_the_exposure_status(tmp_path: Path) -> None:
    """The matrix has 600 exposed clients, and its JSON is larger than what a pipe holds."""
    log = tmp_path / "log.csv"
    log.write_text("round,client\n" + "".join(f"{number},{number}\n" for number in range(600)))
    assert run("audit", str(log), "--json", "--witnesses", "600", read=10) == (CLOSED_PIPE, "")


def test_errors_that_nobody_reads_have_the_status_of_a_closed_pipe() -> None:
    assert run("audit", "-", read=0, errors=True, stdin="garbage\n") == (CLOSED_PIPE, "")
    assert run("audit", "-", read=None, errors=True, stdin="garbage\n") == (2, "")


@pytest.mark.parametrize(
    "arguments",
    [
        ["reproduce", "--list"],
        ["plan", "--help"],
        ["--version"],
        ["plan", "--clients", "10", "--dropout", "0.1"],
        ["attack", "--help"],
    ],
)
def test_a_closed_pipe_ends_other_commands_in_order(arguments: list[str]) -> None:
    command = "import sys; sys.stdin.read(); from coterie.cli import main; main()"
    reader, writer = os.pipe()
    os.close(reader)
    try:
        ended = subprocess.run(
            [sys.executable, "-c", command, *arguments],
            input="",
            stdout=writer,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    finally:
        os.close(writer)
    assert (ended.returncode, ended.stderr) == (CLOSED_PIPE, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("arguments", [["audit", "-"], ["audit", "-", "--json"], ["plan", "--help"], ["--version"]])
def test_a_full_disk_is_reported_in_one_line(arguments: list[str], unbuffered: str) -> None:
    """It used to be a traceback."""
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "coterie", *arguments],
            input="round,client\n1,a\n1,b\n",
            stdout=full,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
            text=True,
            check=False,
        )
    said = "coterie: cannot write the output: No space left on device\n"
    assert (ended.returncode, ended.stderr) == (NOT_WRITTEN, said)


def test_a_closed_standard_output_is_no_error(tmp_path: Path) -> None:
    log = tmp_path / "log.csv"
    log.write_text(EXPOSED)
    command = f'exec "{sys.executable}" -m coterie audit "{log}" >&-'
    ended = subprocess.run(["/bin/sh", "-c", command], stderr=subprocess.PIPE, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (1, "")
