from coterie.deployment.logs import format_frames, format_traceback
from coterie.reports.words import one_line

FORGED = "x\n\x1b[92mINFO\x1b[0m: Coterie: all is well\r\u2028\u202e\x85\ud800"


def test_text_of_others_is_logged_on_one_line() -> None:
    assert one_line("plain, \u00fc and \u4e2d") == "plain, \u00fc and \u4e2d"
    assert one_line(ValueError(FORGED)) == (
        "x\\n\\x1b[92mINFO\\x1b[0m: Coterie: all is well\\r\\u2028\\u202e\\x85\\ud800"
    )


def test_lines_of_a_traceback_cannot_be_taken_for_other_log_lines() -> None:
    try:
        raise ValueError(FORGED)
    except ValueError as error:
        lines = format_traceback(error).split("\n")
    assert all(line.startswith("  | ") and line.isprintable() for line in lines)
    assert "test_logs.py" in lines[1]
    assert "ValueError: x" in format_traceback(error_of(lambda: int("x\n")))


def test_the_origin_of_an_error_is_logged_without_its_text() -> None:
    lines = format_frames(error_of(lambda: int("patient 4817"))).split("\n")
    assert lines[-1] == "  | ValueError"
    assert "test_logs.py" in lines[0]
    assert all(line.startswith("  | ") and "4817'" not in line for line in lines)


def error_of(call: object) -> BaseException:
    try:
        call()  # type: ignore[operator]
    except ValueError as error:
        return error
    raise AssertionError
