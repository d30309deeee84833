import logging
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.flower_faults import PASSING, Clock, http_error

from coterie.errors import CarrierError
from coterie.transports.flower.link import call_with_retries, is_temporary


def failing(errors: list[Exception]) -> Callable[[], str]:
    left = iter(errors)

    def call() -> str:
        for error in left:
            raise error
        return "answer"

    return call


@pytest.mark.parametrize("kind", sorted(PASSING))
def test_temporary_errors_are_recognised(kind: str) -> None:
    assert is_temporary(PASSING[kind]())


@pytest.mark.parametrize(
    "error", [ValueError("a bug"), http_error(400), http_error(403), http_error(501), KeyError("x"), RuntimeError()]
)
def test_permanent_errors_are_raised_at_once_in_one_line(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    with pytest.raises(type(error)) as caught:
        call_with_retries(failing([error]), 60, clock, clock.sleep)
    assert caught.value is error
    assert clock.slept == []
    (line,) = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert type(error).__name__ in line
    assert "\n" not in line


@given(kinds=st.lists(st.sampled_from(sorted(PASSING)), max_size=12))
def test_a_call_is_tried_until_it_is_answered_with_pauses_that_grow(kinds: list[str]) -> None:
    clock = Clock()
    assert call_with_retries(failing([PASSING[kind]() for kind in kinds]), 3600, clock, clock.sleep) == "answer"
    assert len(clock.slept) == len(kinds)
    for number, pause in enumerate(clock.slept):
        longest = min(0.25 * 2**number, 10)
        assert longest / 2 <= pause <= longest


@given(seconds=st.floats(0.01, 500))
def test_a_link_that_stays_down_is_given_up_when_time_is_up(seconds: float) -> None:
    clock = Clock()
    with pytest.raises(CarrierError, match="start the run again") as caught:
        call_with_retries(failing([http_error(500)] * 10_000), seconds, clock, clock.sleep)
    assert "HTTPStatusError: 500" in str(caught.value)
    assert seconds <= clock.now <= seconds + 0.1


@given(seconds=st.floats(1, 500), back=st.floats(0.0, 0.9))
def test_a_link_that_is_back_before_the_end_is_noticed(seconds: float, back: float) -> None:
    clock = Clock()

    def call() -> str:
        if clock.now < back * seconds:
            raise http_error(500)
        return "answer"

    assert call_with_retries(call, seconds, clock, clock.sleep) == "answer"
