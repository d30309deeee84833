"""Lines of a log: what a server or a node wrote is quoted in them, and never writes a line of its own."""

import traceback


def shown(text: object) -> str:
    """Return a text on one line: ends of lines, colours and whatever else does not print are spelt out."""
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in str(text))


def traced(error: BaseException) -> str:
    """Return where an error came from, on lines that cannot be taken for others of a log."""
    lines = "".join(traceback.format_exception(error)).rstrip("\n").split("\n")
    return "\n".join(f"  | {shown(line)}" for line in lines)
