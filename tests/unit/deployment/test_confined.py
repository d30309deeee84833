"""A node's own model depends on the public models and the node's own loss, not on how the models arrive."""

import contextlib
import shutil
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from numpy.typing import NDArray

from coterie.deployment.array_bytes import pack_arrays, unpack_arrays
from coterie.deployment.checkpoint import CheckpointFile
from coterie.deployment.confined import ConfinedNode, _normals, own_model
from coterie.deployment.confinement import Confinement
from coterie.deployment.descent import Descent
from coterie.deployment.displacement import Displacement, next_link
from coterie.deployment.engine import AppReply, Arrays
from coterie.deployment.recipe import ConfinedRecipe, RosterRecipe
from coterie.errors import ConfigError, InputError, PeerProtocolError

DESCENT = bytes(range(32))
SECRET = bytes(reversed(range(32)))
JUDGING = b"ann, configured"
CENTRE = np.array([0.5, -0.5])
NUMBERS = st.floats(-4, 4, width=32)
MODELS = st.lists(arrays(np.float32, 2, elements=NUMBERS), min_size=1, max_size=7)


class Killed(BaseException):
    """The end of a process by the operating system."""


class App:
    """An app that moves towards its centre, and may be killed in one of its calls."""

    def __init__(self, killed_in: int = -1) -> None:
        self.calls, self._killed_in = 0, killed_in

    def __call__(self, model: Arrays) -> AppReply:
        self.calls += 1
        if self.calls == self._killed_in:
            raise Killed
        error = model["w"] - CENTRE
        return AppReply({"w": model["w"] - 0.5 * error}, {"train_loss": float(error @ error)})


def shown(models: Sequence[NDArray[Any]], first: int, descent: bytes = DESCENT) -> Displacement:
    before = descent
    for model in models[:first]:
        before = next_link(before, {"w": model})
    return Displacement(descent, first, before, tuple({"w": model} for model in models[first:]))


def accept() -> None:
    """Accept the configuration of every request."""


def judged(node: ConfinedNode, models: Sequence[NDArray[Any]], first: int = 0, app: App | None = None) -> AppReply:
    return node.reply(shown(models, first), "train", app or App())


def node_in(folder: Path, confinement: Confinement | None = None) -> ConfinedNode:
    return ConfinedNode(folder, confinement or Confinement(), "ann", SECRET, JUDGING, dict, accept)


@pytest.mark.parametrize("stored", [False, True])
def test_no_model_is_kept_that_another_configuration_judged(tmp_path: Path, stored: bool) -> None:
    """Two concurrent runs may configure a node's first task differently. The later is refused after it was judged."""

    def refuse() -> None:
        raise PeerProtocolError("server", "configured this task differently than the first time")

    node = ConfinedNode(tmp_path, Confinement(), "ann", SECRET, JUDGING, dict, refuse if stored else accept)
    with pytest.raises(PeerProtocolError) if stored else contextlib.nullcontext():
        judged(node, [np.zeros(2, np.float32)])
    assert len(list(tmp_path.glob("confined/*.model"))) == (0 if stored else 1)


def test_a_model_in_the_folder_of_another_node_or_configuration_is_ignored(tmp_path: Path) -> None:
    """A folder may be used by a node with another name and another memory; its models belong to the old node."""
    models = [np.zeros(2, np.float32), np.ones(2, np.float32)]
    judged(node_in(tmp_path), models[:1])
    other = ConfinedNode(tmp_path, Confinement(), "bea", SECRET, b"bea, configured", dict, accept)
    with pytest.raises(PeerProtocolError, match="this node has judged 0"):
        judged(other, models, first=1)
    with pytest.raises(PeerProtocolError, match="this node has judged 0"):
        other.reply(
            Displacement(DESCENT, 1, shown(models[:1], 0).links()[1], task="task train.default"), "evaluate", App()
        )
    app = App()
    judged(other, models, app=app)
    assert app.calls > 2, "all models were judged again"


@pytest.mark.parametrize(("name", "size"), [("w", 2), ("v", 2), ("w", 3)])
def test_all_descents_of_a_node_begin_with_the_same_arrays(tmp_path: Path, name: str, size: int) -> None:
    """A start depends on names and shapes of arrays. With other arrays, the server could choose another start."""
    memory: dict[str, bytes] = {}

    def fix(values: Mapping[str, bytes]) -> Mapping[str, bytes]:
        return {key: memory.setdefault(key, value) for key, value in values.items()}

    def app(model: Arrays) -> AppReply:
        return AppReply(model, {"train_loss": 1.0})

    node = ConfinedNode(tmp_path, Confinement(), "ann", SECRET, JUDGING, fix, accept)
    node.reply(shown([np.zeros(2, np.float32)], 0), "train", app)
    other = Displacement(bytes(32), 0, bytes(32), ({name: np.zeros(size, np.float32)},))
    with contextlib.nullcontext() if (name, size) == ("w", 2) else pytest.raises(ConfigError, match="never changes"):
        node.reply(other, "train.other", app)


@given(MODELS, st.data())
@settings(max_examples=60)
def test_the_own_model_does_not_depend_on_how_models_arrive(
    tmp_path_factory: pytest.TempPathFactory, models: list[NDArray[Any]], data: st.DataObject
) -> None:
    """They arrive one by one, several after an absence, or repeated, and the node may be killed while it judges."""
    folder = tmp_path_factory.mktemp("nodes")
    one, other = folder / "one", folder / "other"
    replies = [judged(node_in(one), models[: end + 1], first=end) for end in range(len(models))]
    other.mkdir()
    shutil.copytree(one / "confined", other / "confined", ignore=shutil.ignore_patterns("*.model"))
    done = 0
    while done < len(models):
        end = data.draw(st.integers(done + 1, len(models)))
        first = data.draw(st.integers(0, done))
        try:
            judged(node_in(other), models[:end], first, App(killed_in=data.draw(st.integers(0, 3))))
        except Killed:
            continue
        done = end
        assert own_model(other)["w"].shape == (2,)
    assert np.array_equal(own_model(one)["w"], own_model(other)["w"])
    again = judged(node_in(other), models, first=len(models) - 1)
    assert np.array_equal(again.arrays["w"], replies[-1].arrays["w"])


@given(MODELS)
def test_the_own_loss_never_increases_by_more_than_the_threshold(
    tmp_path_factory: pytest.TempPathFactory, models: list[NDArray[Any]]
) -> None:
    node, losses = node_in(folder := tmp_path_factory.mktemp("node"), Confinement(threshold=0.25)), []
    for end in range(1, len(models) + 1):
        judged(node, models[:end])
        error = own_model(folder)["w"].astype(np.float32) - CENTRE
        losses.append(float(error @ error))
    assert all(after - before <= 0.25 for before, after in pairwise(losses))


@given(MODELS, st.integers(0, 6), arrays(np.float32, 2, elements=NUMBERS))
def test_a_changed_past_is_refused_and_changes_nothing(
    tmp_path_factory: pytest.TempPathFactory, models: list[NDArray[Any]], place: int, other: NDArray[Any]
) -> None:
    node = node_in(folder := tmp_path_factory.mktemp("node"))
    judged(node, models)
    before = own_model(folder)["w"]
    place %= len(models)
    changed = [*models]
    changed[place] = other
    if pack_arrays({"w": other}) == pack_arrays({"w": models[place]}):
        return
    for past in (changed, models[:place] or changed, [*changed, other]):
        with pytest.raises(PeerProtocolError) as error:
            judged(node, past)
        assert error.value.about == "chain"
    assert np.array_equal(own_model(folder)["w"], before)


def test_a_chain_with_a_gap_is_refused(tmp_path: Path) -> None:
    models = [np.full(2, 0.1 * number, np.float32) for number in range(4)]
    node = node_in(tmp_path)
    for judges, first in ((0, 1), (2, 3)):
        if judges:
            judged(node, models[:judges])
        with pytest.raises(PeerProtocolError) as error:
            judged(node, models, first)
        assert error.value.about == "behind"


def test_evaluation_needs_the_right_place_in_the_chain_and_changes_no_model(tmp_path: Path) -> None:
    models = [np.zeros(2, np.float32), np.full(2, 0.1, np.float32)]
    node = node_in(tmp_path)
    with pytest.raises(PeerProtocolError, match="has judged 0"):
        node.reply(Displacement(DESCENT, 0, DESCENT), "evaluate", App())
    judged(node, models)
    before, app = own_model(tmp_path)["w"], App()
    links = shown(models, 0).links()
    reply = node.reply(Displacement(DESCENT, 2, links[2], task="task train.default"), "evaluate", app)
    assert app.calls == 1
    error = before.astype(np.float32) - CENTRE
    assert reply.metrics["train_loss"] == pytest.approx(float(error @ error))
    for place in (Displacement(DESCENT, 1, links[1]), Displacement(DESCENT, 2, links[1])):
        with pytest.raises(PeerProtocolError) as refused:
            node.reply(place, "evaluate", app)
        assert refused.value.about == "chain"
    with pytest.raises(PeerProtocolError, match="in an evaluation"):
        node.reply(shown(models, 0), "evaluate", app)
    with pytest.raises(PeerProtocolError, match="or none in training"):
        node.reply(Displacement(DESCENT, 2, links[2]), "train", app)


def test_only_one_function_may_judge_a_descent(tmp_path: Path) -> None:
    node = node_in(tmp_path)
    models = [np.zeros(2, np.float32)]
    judged(node, models)
    node.reply(shown(models, 0), "train.default", App())
    with pytest.raises(PeerProtocolError, match="judges"):
        node.reply(shown(models, 0), "train.other", App())
    with pytest.raises(PeerProtocolError, match="judges"):
        node.reply(Displacement(DESCENT, 1, shown(models, 0).links()[1], task="task train.other"), "evaluate", App())


@pytest.mark.parametrize(
    ("model", "why"),
    [
        ({"w": np.array([1.0, np.nan], np.float32)}, "NaN or infinite"),
        ({"w": np.array([1, 2])}, "cannot be confined"),
        ({"running_mean": np.zeros(2, np.float32)}, "cannot be confined"),
        ({"v": np.zeros(2, np.float32)}, "different arrays"),
        ({"w": np.zeros(3, np.float32)}, "different arrays"),
    ],
    ids=["nan", "integers", "statistic", "name", "shape"],
)
def test_models_with_unusable_entries_are_refused(tmp_path: Path, model: Arrays, why: str) -> None:
    node = node_in(tmp_path)
    first = {"w": np.zeros(2, np.float32)}
    node.reply(Displacement(DESCENT, 0, DESCENT, (first,)), "train", App())
    link = next_link(DESCENT, first)
    for later in (Displacement(DESCENT, 1, link, (model,)), Displacement(DESCENT, 0, DESCENT, (first, model))):
        with pytest.raises(PeerProtocolError, match=why) as error:
            node.reply(later, "train", App())
        assert error.value.about == "form"
    with pytest.raises(PeerProtocolError, match="no displacement"):
        node.reply(None, "train", App())


@given(st.lists(st.sampled_from([0.0, 1.0, np.nan, np.inf, -np.inf, 1e300, -1e300]), min_size=2, max_size=2))
def test_no_value_in_a_reply_causes_a_refusal(tmp_path_factory: pytest.TempPathFactory, values: list[float]) -> None:
    def app(model: Arrays) -> AppReply:
        return AppReply({"w": np.array(values)}, {"train_loss": values[0]})

    node = node_in(tmp_path_factory.mktemp("node"), Confinement(norm=2.0))
    models = [np.zeros(2, np.float32), np.ones(2, np.float32)]
    for end in (1, 2):
        reply = node.reply(shown(models[:end], 0), "train", app)
        moved = reply.arrays["w"] - models[end - 1]
        assert np.isfinite(moved).all()
        assert np.linalg.norm(moved) <= 2.0 + 1e-9


@pytest.mark.parametrize(
    "wrong",
    [
        (b"short", 0, b"short", ()),
        (DESCENT, -1, DESCENT, ()),
        (DESCENT, 1 << 20, DESCENT, ({},)),
        (DESCENT, 0, bytes(32), ()),
        (DESCENT, 1, b"", ()),
    ],
)
def test_impossible_displacements_are_refused(wrong: tuple[bytes, int, bytes, tuple[Arrays, ...]]) -> None:
    with pytest.raises(PeerProtocolError):
        Displacement(*wrong)


def test_drawn_starts_are_normal_and_depend_on_the_secret_and_the_array() -> None:
    found = [_normals(bytes([n]) * 32, name, (40, 50)) for n in (1, 2) for name in ("a", "b")]
    for one in found:
        assert abs(one.mean()) < 0.1
        assert abs(one.std() - 1) < 0.1
        assert 2.5 < np.abs(one).max() < 6
    assert len({one.tobytes() for one in found}) == 4
    assert np.array_equal(found[0], _normals(bytes([1]) * 32, "a", (40, 50)))
    assert _normals(bytes(32), "a", ()).shape == ()


NAMED = st.dictionaries(
    st.text(max_size=8),
    st.sampled_from([np.float32, np.float64, np.int64, np.uint8]).flatmap(
        lambda kind: arrays(kind, array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3))
    ),
    max_size=3,
)


@given(NAMED)
def test_models_are_read_as_they_were_written(model: dict[str, NDArray[Any]]) -> None:
    found = unpack_arrays(pack_arrays(model))
    assert list(found) == list(model)
    for name, array in model.items():
        assert found[name].dtype == array.dtype
        assert found[name].shape == array.shape
        assert found[name].tobytes() == array.tobytes()


@given(st.binary(max_size=60))
def test_bytes_that_are_no_model_are_refused(content: bytes) -> None:
    with contextlib.suppress(InputError):
        assert isinstance(unpack_arrays(content), dict)


def test_a_model_with_entries_that_are_no_numbers_is_refused() -> None:
    with pytest.raises(InputError):
        pack_arrays({"w": np.array([None])})
    for stored in (["w", "<U1", [1], b"1234"], ["w", "|O", [1], bytes(8)], ["w", "<f8", [2], bytes(8)]):
        with pytest.raises(InputError):
            unpack_arrays(msgspec.msgpack.encode([stored]))


@given(MODELS, st.data())
@settings(max_examples=30)
def test_a_server_shows_every_present_node_the_models_it_missed(
    tmp_path_factory: pytest.TempPathFactory, models: list[NDArray[Any]], data: st.DataObject
) -> None:
    """With restarts, absences and clients that say they are behind, a node is never left without a model it needs."""
    folder = tmp_path_factory.mktemp("world")
    descent = Descent(folder / "chain", resume=False)
    names = ["ann", "bob", "cy"]
    for model in models:
        if data.draw(st.booleans()):
            descent = Descent(folder / "chain", resume=True)
        present = data.draw(st.lists(st.sampled_from(names), unique=True))
        piece = descent.show({"w": model}, present)
        assert piece.links() == descent.show({"w": model}, present).links(), "one model is shown once"
        for name in present:
            node_in(folder / name).reply(piece, "train", App())
        descent.note_judged(present)
        if data.draw(st.booleans()):
            descent.note_behind([data.draw(st.sampled_from(names))])
    descent.remove()
    assert not (folder / "chain").exists()


def test_a_new_descent_has_a_new_name(tmp_path: Path) -> None:
    first = Descent(tmp_path / "chain", resume=False)
    first.show({"w": np.zeros(2)}, [])
    assert Descent(tmp_path / "chain", resume=True).name == first.name
    assert Descent(tmp_path / "chain", resume=False).name != first.name


def test_the_error_names_a_damaged_chain(tmp_path: Path) -> None:
    descent = Descent(tmp_path / "chain", resume=False)
    for number in range(2):
        descent.show({"w": np.full(2, float(number))}, [])
    with pytest.raises(InputError, match="NaN"):
        descent.show({"w": np.full(2, np.nan)}, [])
    (tmp_path / "chain" / "model-0").unlink()
    with pytest.raises(ConfigError, match="model-0 is missing"):
        descent.show({"w": np.full(2, 1.0)}, ["ann"])
    file = tmp_path / "chain" / "chain"
    for damaged in (lambda: file.write_bytes(b"nothing"), lambda: CheckpointFile(file).write(b"nothing")):
        damaged()
        with pytest.raises(ConfigError, match="chain"):
            Descent(tmp_path / "chain", resume=True)


def test_the_error_says_that_a_model_cannot_be_read(tmp_path: Path) -> None:
    judged(node_in(tmp_path), [np.zeros(2, np.float32)])
    (file,) = (tmp_path / "confined").glob("*.model")
    CheckpointFile(file).write(b"nothing")
    with pytest.raises(ConfigError, match="not a model of this node"):
        own_model(tmp_path)


def test_the_error_says_that_a_folder_has_no_model(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no model of its own"):
        own_model(tmp_path)
    judged(node_in(tmp_path), [np.zeros(2, np.float32)])
    assert own_model(tmp_path, DESCENT)["w"].shape == (2,)
    with pytest.raises(ConfigError):
        own_model(tmp_path, bytes(32))


@pytest.mark.parametrize("noisy", ["", "loss", "change"])
def test_an_app_with_two_results_for_one_model_causes_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, noisy: str
) -> None:
    app = App()

    def answer(model: Arrays) -> AppReply:
        reply = app(model)
        loss = float(app.calls) if noisy == "loss" else reply.metrics["train_loss"]
        return AppReply({"w": reply.arrays["w"] + (app.calls if noisy == "change" else 0)}, {"train_loss": loss})

    with caplog.at_level("WARNING"):
        node_in(tmp_path).reply(shown([np.zeros(2, np.float32)], 0), "train", answer)
    assert ("different results for the same model" in caplog.text) == bool(noisy)
    assert app.calls == 2


CONFINED = bytes.fromhex(
    "9b02ac6e756d2d6578616d706c6573cd271018cb3ff0000000000000cb412e8480000000009392ad2a72756e6e696e675f6d65616ecb412e84"
    "800000000092ac2a72756e6e696e675f766172cb412e84800000000092b42a6e756d5f626174636865735f747261636b6564cb412e84800000"
    "0000909092b16e756d2d7365727665722d726f756e6473ac7365727665722d726f756e6495aa747261696e5f6c6f7373cb3fb999999999999a"
    "cb3ff0000000000000cb00000000000000001e"
)


def test_the_recipe_of_a_confined_roster_has_its_own_format() -> None:
    recipe = ConfinedRecipe(confinement=Confinement(norm=1, threshold=0))
    assert recipe.to_bytes() == CONFINED
    found = RosterRecipe.from_bytes(CONFINED)
    assert found == recipe
    assert isinstance(found, ConfinedRecipe)
    assert found.settings()["confined"] == "spread 0.1, norm 1.0, threshold 0.0 of 'train_loss', tau 30"
    assert "confined" not in RosterRecipe().settings()
    assert str(Confinement(threshold=None, tau=None)) == "spread 0.1, norm 1.0, no loss check, tau none"
