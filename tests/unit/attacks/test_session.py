"""The real session that attacks play: it reveals the mean, and uploads are independent of the updates."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import kstest

from coterie.attacks.federation import Federation, make_selections
from coterie.attacks.session import play_session, session_error
from coterie.errors import ConfigError, RoundAborted, VerificationError
from coterie.graphs.topology import Complete, ErdosRenyi
from coterie.training.local import LocalSGD
from coterie.transports.memory import Session


def test_a_session_reveals_the_mean_of_a_round() -> None:
    federation = Federation.deal("digits", "softmax-regression", 8, 0)
    (selection,) = make_selections(["multi-round"], [2], 8, 4, 0, naive=False)
    (played,) = federation.play(federation.fedavg(LocalSGD(0.1)), range(1, 2), selection)
    assert session_error(list(played.updates), played.number) < 1e-9
    assert np.allclose(play_session(list(played.updates), 1).mean, played.mean, atol=1e-6)


@settings(max_examples=10)
@given(st.integers(0, 2**32), st.integers(3, 6), st.floats(1e-6, 1e6))
def test_the_error_is_one_of_rounding_whatever_the_scale(seed: int, clients: int, scale: float) -> None:
    updates = [scale * row for row in np.random.default_rng(seed).normal(size=(clients, 5))]
    assert session_error(updates, seed) < 1e-9
    assert session_error(updates, np.random.default_rng(seed)) < 1e-9


def test_updates_of_zeros_have_a_mean_too() -> None:
    assert not play_session([np.zeros(4)] * 3, 0).mean.any()
    assert session_error([np.zeros(4)] * 3, 0) == 0


def test_a_wrong_mean_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = Session.run

    def tampered(session: Session) -> object:
        opened = honest(session)
        opened.total[1] -= 1 << 20  # the mean is the largest possible, so it can only become smaller
        return opened

    monkeypatch.setattr(Session, "run", tampered)
    with pytest.raises(VerificationError, match="rounding explains"):
        play_session([np.ones(3)] * 3, 0)


@pytest.mark.parametrize("topology", [None, ErdosRenyi(0.9)])
def test_uploads_are_uncorrelated_with_updates(topology: ErdosRenyi | None) -> None:
    rng = np.random.default_rng(0)
    updates = [rng.normal(size=2000) for _ in range(8)]
    seen = play_session(updates, 3, topology=topology)
    assert seen.mean == pytest.approx(np.mean(updates, axis=0), abs=1e-5)
    for client, heard in seen.uploads.items():
        assert abs(np.corrcoef(heard, updates[client])[0, 1]) < 5 / np.sqrt(2000)


@pytest.mark.parametrize("topology", [Complete(), ErdosRenyi(0.9)])
def test_an_upload_is_uniform_whatever_is_under_the_mask(topology: Complete | ErdosRenyi) -> None:
    """The upload covers the whole ring. Equal streams give equal uploads, and different ones uncorrelated uploads."""
    updates = [np.full(4000, value) for value in (0.5, -0.25, 0.125, 0.5, 0.25, 0.0)]

    def overhear(seed: int) -> np.ndarray:
        rng = np.random.default_rng(seed)
        return play_session(updates, rng, topology=topology, threshold=4, precision=16, everybody=True).uploads[0]

    upload = overhear(1)
    ring = 2 * np.abs(upload).max()
    assert ring > 10 * 0.5
    assert kstest(upload / ring + 0.5, "uniform").pvalue > 1e-4
    assert np.array_equal(upload, overhear(1))
    assert abs(np.corrcoef(upload, overhear(2))[0, 1]) < 0.08


def test_a_graph_on_which_no_session_can_finish_is_refused() -> None:
    sparse = {"topology": ErdosRenyi(0.05), "threshold": 4}
    with pytest.raises(ConfigError, match="too sparse"):
        play_session([np.ones(3)] * 5, np.random.default_rng(0), everybody=True, **sparse)  # type: ignore[arg-type]
    with pytest.raises(RoundAborted):
        play_session([np.ones(3)] * 5, 0, **sparse)  # type: ignore[arg-type]
