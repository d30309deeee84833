"""Programs that are run in a new interpreter."""

import subprocess
import sys
from pathlib import Path


def printed_by(program: str, folder: Path | None = None) -> str:
    """Run a program in a new interpreter, in this folder if one is given; return what it prints."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=folder)
    return done.stdout
