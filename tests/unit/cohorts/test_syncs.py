"""How often a client's memory waits for the disk, as docs/flower.md says."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from docs.extension.pages import DOCS

_SCRIPT = """
import os, sys
from pathlib import Path
from coterie.cohorts.memory import MemoryFile
from coterie.files import write_secret

folder = Path(sys.argv[1])
MemoryFile(folder / "memory.sqlite").close()
with MemoryFile(folder / "memory.sqlite") as file:  # a node opens it for every message
    for _ in range(3):
        os.write(2, b"transaction")
        with file.writing() as connection:
            connection.execute("INSERT INTO fixed VALUES (?, ?, ?)", ("a", os.urandom(8).hex(), b"value"))
        os.write(2, b"file")
        write_secret(folder / "reply", os.urandom(100_000), until=0.0)
        os.write(2, b"end")
"""
_WORDS = {"five": 5, "seven": 7}


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace counts the syncs, and is not installed")
def test_an_answer_takes_as_many_syncs_as_the_page_says(tmp_path: Path) -> None:
    calls = tmp_path / "calls.txt"
    options = ["-f", "-qq", "-e", "trace=fsync,fdatasync,write", "-o", str(calls)]
    traced = subprocess.run(
        ["strace", *options, sys.executable, "-c", _SCRIPT, str(tmp_path)],
        env=dict(os.environ),
        capture_output=True,
        text=True,
        check=False,
    )
    if "PTRACE" in traced.stderr:
        pytest.skip("this machine lets no process trace another")
    assert traced.returncode == 0, traced.stderr
    lines = calls.read_text(encoding="utf-8")
    transactions = [part.count("sync(") for part in re.findall(r'"transaction"(.*?)"file"', lines, re.DOTALL)]
    files = [part.count("sync(") for part in re.findall(r'"file"(.*?)"end"', lines, re.DOTALL)]
    (transaction,), (file,) = set(transactions), set(files)
    page = (DOCS / "flower.md").read_text(encoding="utf-8")
    ((few, many),) = re.findall(r"before it leaves, with (\w+) syncs,\s+or (\w+)\s", page)
    assert (transaction, transaction + file) == (_WORDS[few], _WORDS[many])
