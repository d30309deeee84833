"""Attacks on grids of confined descent: what members of a group, and the carrier of their messages, can compute.

Each attack succeeds if its defence is off, or if there is none; then threat-model.md says so.
"""

from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pytest
from torch import nn

from coterie.arithmetic import FloatArray
from coterie.arithmetic.ring import Ring
from coterie.confined import ConfinedDescent, ConstantStep, NoCheck, Offsets, Parameters, iterate, sharing
from coterie.confined.vertical import VerticalSum
from coterie.errors import TooFewHonest
from coterie.secagg.messages import ClientMessage, encode
from coterie.training.columns import ColumnGroup

ROWS, HIDDEN = 40, 8
WIDTHS = {"bank": 6, "shop": 5, "rail": 3}
COLUMNS = sum(WIDTHS.values())


class Watched(VerticalSum):
    """A vertical sum, and what the members of the group see of it."""

    def add(self, parts, entropy=None):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
        found = super().add(parts, entropy)
        seen = self.__dict__.setdefault("seen", [])
        # In the clear every member sees every part; in a secure sum it sees the total and its own part.
        seen.append((found, list(parts) if not self.secure else [parts[0]]))
        return found

    @property
    def sums(self) -> list[FloatArray]:
        return [total for total, _ in self.__dict__["seen"]]

    @property
    def parts(self) -> list[list[FloatArray]]:
        return [parts for _, parts in self.__dict__["seen"]]


def play(
    iterations: int, *, secure: bool, widths: dict[str, int] = WIDTHS
) -> tuple[Watched, list[Parameters], FloatArray]:
    """Train two groups; return the sums that members of one saw, the displacements, and the data of that group."""
    rng = np.random.default_rng(0)
    columns = sum(widths.values())
    model = nn.Sequential(nn.Linear(columns, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, 2))
    watched = Watched(len(widths), secure)
    groups = {}
    for name in ("north", "south"):
        held = {member: rng.normal(size=(ROWS, width)) for member, width in widths.items()}
        addition = watched if name == "north" else VerticalSum(len(widths), secure)
        groups[name] = ColumnGroup(model, held, rng.integers(2, size=ROWS), addition=addition)
        if name == "north":
            data = np.concatenate(list(held.values()), axis=1)
    offsets = Offsets(groups["north"].zeros(), lambda name: np.random.default_rng([*name.encode()]))
    descent = ConfinedDescent(offsets, tuple(groups), ConstantStep(1.0), NoCheck())
    displacements = [descent.displacement]
    for _ in range(iterations):
        iterate(
            descent,
            tuple(groups),
            lambda name, model: groups[name].gradient(model),
            lambda name, model: groups[name].loss(model),
            lambda given: [np.mean(arrays, axis=0) for arrays in zip(*given.values(), strict=True)],
            rng,
        )
        displacements.append(descent.displacement)
    return watched, displacements, data


def solve(sums: list[FloatArray], displacements: list[Parameters]) -> FloatArray:
    """Solve for all columns of a group: differences of its sums are its data times differences of public weights."""
    steps = [after[0] - before[0] for before, after in pairwise(displacements)]
    differences = [after - before for before, after in pairwise(sums)]
    known = np.concatenate(steps[: len(differences)])  # (iterations x hidden) x columns
    found: FloatArray = np.linalg.lstsq(known, np.concatenate(differences, axis=1).T, rcond=None)[0].T
    return found


def test_sums_of_several_iterations_reveal_a_group_to_its_members() -> None:
    """There is no defence inside a group: its members trust each other, as threat-model.md says."""
    watched, displacements, data = play(12, secure=True)
    found = solve(watched.sums, displacements)
    assert np.corrcoef(found.ravel(), data.ravel())[0, 1] > 0.99  # the columns of all members, of every example


def test_one_iteration_does_not_reveal_a_group_to_its_members() -> None:
    """From fewer sums than there are columns for each hidden unit, the equations have many solutions."""
    watched, displacements, data = play(1, secure=True)
    found = solve(watched.sums[:2], displacements)
    assert np.corrcoef(found.ravel(), data.ravel())[0, 1] < 0.9
    assert HIDDEN < COLUMNS


def test_a_part_is_visible_in_plain_addition_and_hidden_by_the_secure_sum() -> None:
    clear, _, _ = play(1, secure=False)
    assert len(clear.parts[0]) == 3
    secure, _, _ = play(1, secure=True)
    assert len(secure.parts[0]) == 1
    # The sum without a curious member's own part depends on both others.
    rest = secure.sums[0] - secure.parts[0][0]
    shop, rail = clear.parts[0][1:]
    assert np.abs(rest - shop - rail).max() < 1e-5
    assert np.abs(rest - shop).max() > 0.1
    assert np.abs(rest - rail).max() > 0.1


def test_in_a_group_of_two_each_member_finds_the_part_of_the_other() -> None:
    widths = {"bank": 6, "shop": 5}
    clear, _, _ = play(1, secure=False, widths=widths)
    secure, _, _ = play(1, secure=True, widths=widths)
    assert np.abs(secure.sums[0] - secure.parts[0][0] - clear.parts[0][1]).max() < 1e-5
    with pytest.raises(TooFewHonest):  # the sum is refused if a colluder is expected
        VerticalSum(2, colluders=1)


def test_a_relay_needs_the_published_sums_of_all_members(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shares are sealed, and published sums are not: anyone who reads all of them can compute the sum of the group.

    So channels between members must be encrypted, as threat-model.md says. If one of the sums is missing, the others
    reveal nothing.
    """
    published: list[npt.NDArray[np.uint32]] = []

    def record(message: ClientMessage) -> bytes:
        if isinstance(message, sharing.SumOfShares):
            published.append(Ring(32).unpack(message.payload, 4000).astype(np.uint32))
        return encode(message)

    monkeypatch.setattr(sharing, "encode", record)
    parts = [np.full(4000, value, np.float32) for value in (1.0, 2.0, 3.0)]
    addition = VerticalSum(3)
    addition.add(parts)
    assert np.array_equal(np.sum(published, axis=0, dtype=np.uint32) / addition.scale, np.full(4000, 6.0))
    for missing in range(3):
        rest = np.sum([found for number, found in enumerate(published) if number != missing], axis=0, dtype=np.uint32)
        for seen in (rest, published[missing]):
            counts, _ = np.histogram(seen, bins=16, range=(0, 2**32))
            assert np.abs(counts - 250).max() < 6 * np.sqrt(250)
