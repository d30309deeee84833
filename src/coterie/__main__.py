"""The command line: ``python -m coterie``, and the command ``coterie``."""

import os
import signal
import sys
from types import FrameType

_INTERRUPTED = 130


def main() -> None:
    """Run the command line. Ctrl-C while its modules are imported ends it without a traceback."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave)
    from coterie.cli import main as run

    if before is signal.default_int_handler:
        signal.signal(signal.SIGINT, before)
    run()


def _leave(_number: int, _frame: FrameType | None) -> None:
    """End the process at once: nothing has begun yet, and an exception may be lost inside an import."""
    print("coterie: interrupted", file=sys.stderr, flush=True)
    os._exit(_INTERRUPTED)


if __name__ == "__main__":
    main()
