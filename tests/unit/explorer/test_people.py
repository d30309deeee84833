"""Pictures of people: all different, and converted to vectors and back."""

import numpy as np

from coterie.explorer.people import EXTRAS, HAIR, LENGTH, NAMES, PEOPLE, SIDE, as_picture, pictures, vectors


def test_twelve_people_have_twelve_pictures() -> None:
    assert len(set(NAMES)) == 12
    assert pictures().shape == (12, SIDE, SIDE, 3)
    different = np.abs(pictures()[:, None].astype(int) - pictures()[None]).mean(axis=(2, 3, 4))
    assert (different[~np.eye(12, dtype=bool)] > 10).all(), "two people can be told apart at a glance"


def test_every_style_is_used_by_a_person() -> None:
    assert {person.hair for person in PEOPLE} == set(HAIR)
    assert {extra for person in PEOPLE for extra in person.extras} == set(EXTRAS)


def test_pictures_and_vectors_are_converted_exactly() -> None:
    assert vectors().shape == (12, LENGTH)
    assert np.abs(vectors()).max() <= 1
    for picture, vector in zip(pictures(), vectors(), strict=True):
        assert np.array_equal(as_picture(vector), picture)
    assert as_picture(np.full(LENGTH, 9.0)).min() == 255
