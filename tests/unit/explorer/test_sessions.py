"""One session on the page: real bytes, and a sum that is right."""

import base64
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.errors import VerificationError
from coterie.explorer.people import LENGTH, NAMES, pictures
from coterie.explorer.sessions import SessionSettings, play_session
from coterie.transports.memory import Session


def pixels(encoded: str) -> Any:  # noqa: ANN401 - an array
    return np.frombuffer(base64.b64decode(encoded), np.uint8).astype(int)


@settings(max_examples=12)
@given(st.integers(0, 4), st.booleans(), st.booleans(), st.integers(0, 1000))
def test_the_sum_is_that_of_whole_circles_of_those_who_stayed(
    leaving: int, circles: bool, active: bool, seed: int
) -> None:
    found = play_session(SessionSettings(leaving, circles, active, seed))
    assert len(found["gone"]) == leaving
    broken = {person // 3 for person in found["gone"]} if circles else set()
    stay = [p for p in range(12) if p not in found["gone"] and p // 3 not in broken]
    assert [upload is None for upload in found["received"]] == [person in found["gone"] for person in range(12)]
    if len(stay) < 4:
        assert found["aborted"]
        assert (found["summed"], found["mean"]) == ([], None)
        return
    assert found["aborted"] is None
    assert found["summed"] == stay
    mean = pictures()[stay].reshape(-1, LENGTH).mean(axis=0)
    assert np.abs(pixels(found["mean"]) - mean).max() <= 1
    assert found["steps"][0]["messages"] == 12 - leaving


def test_received_vectors_look_random_and_differ_in_every_session() -> None:
    first, second = (play_session(SessionSettings(leaving=0)) for _ in range(2))
    assert first["mean"] == second["mean"]
    for name, one, other in zip(NAMES, first["received"], second["received"], strict=True):
        assert one["sha256"] != other["sha256"], name
        assert one["hex"] != other["hex"]
        assert abs(one["correlation"]) < 6 / LENGTH**0.5
        values = np.bincount(pixels(one["picture"]), minlength=256)
        assert values.max() < 4 * LENGTH / 256, "every byte about equally often"
        assert len(bytes.fromhex(one["hex"])) == 160


def test_a_wrong_sum_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Session.run

    def run(session: Session) -> Any:  # noqa: ANN401 - an aggregate
        aggregate = real(session)
        aggregate.total[5] ^= 1
        return aggregate

    monkeypatch.setattr(Session, "run", run)
    with pytest.raises(VerificationError, match="bug in Coterie"):
        play_session(SessionSettings())
