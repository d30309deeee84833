"""Twelve people, each with a small picture that is drawn here. The picture is the private vector of that person.

A picture has :data:`SIDE` by :data:`SIDE` pixels in three colours, so it is a vector of :data:`LENGTH` numbers. Sums
and differences of pictures are pictures again, which shows at a glance what a combination of sums reveals.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

SIDE = 48
LENGTH = SIDE * SIDE * 3

Pixels = NDArray[np.uint8]
"""A picture: rows, columns, and red, green and blue from 0 to 255."""
Field = NDArray[np.float64]
Shape = NDArray[np.bool_]
Color = str
"""Six hexadecimal digits."""

_FINE = 4  # points in a pixel, in each direction
_DARK, _WHITE, _BLUSH = "2b2320", "fdfbf7", "e2725b"


@dataclass(frozen=True)
class Person:
    """The name and the look of a person. ``hair`` is a style in :data:`HAIR`; ``extras`` are drawn last, in order."""

    name: str
    paper: Color
    skin: Color
    hair: str
    hair_color: Color
    clothes: Color
    extras: tuple[str, ...] = ()


PEOPLE: tuple[Person, ...] = (
    Person("Ada", "f6d7a7", "f2c9a5", "long", "4a2c20", "2f6f8f"),
    Person("Ben", "bcd9e8", "c98d62", "short", "1f1a19", "e0a43a", ("beard",)),
    Person("Cleo", "f3c4bd", "8d5a3c", "afro", "221815", "f4efe4", ("earrings",)),
    Person("Dev", "cfe3c1", "a86f45", "short", "17130f", "7a4b8c", ("glasses",)),
    Person("Eli", "d9d2ec", "f5d3b8", "curls", "b5562c", "3d7d5c", ("freckles",)),
    Person("Fay", "f7e3a1", "f0c3a0", "bob", "d9b25c", "c4513f"),
    Person("Gus", "c3dfdb", "eec0a0", "bald", "c9c4bc", "35507a", ("glasses", "moustache")),
    Person("Hana", "f4cfe0", "f1cfae", "fringe", "1c1a22", "4f9d8f"),
    Person("Ivo", "dcdcd2", "e3b48c", "cap", "b23a48", "2d3142"),
    Person("Juno", "bfd0f0", "6f4630", "bun", "120d0b", "e58b3c", ("earrings",)),
    Person("Kai", "e9d6c1", "d7a176", "crest", "2c6e8a", "25252b"),
    Person("Lena", "cde8d2", "ecbf9b", "scarf", "3f5f9e", "d2694f"),
)
"""Everybody on the page, in the order of the participation matrix."""

NAMES = tuple(person.name for person in PEOPLE)


@cache
def pictures() -> Pixels:
    """Return all pictures, one for each of :data:`PEOPLE`."""
    drawn = np.stack([_draw(person) for person in PEOPLE])
    drawn.setflags(write=False)
    return drawn


def vectors() -> Field:
    """Return all pictures as rows of numbers from -1 to 1."""
    return pictures().reshape(len(PEOPLE), LENGTH) / 127.5 - 1


def as_picture(vector: NDArray[np.floating[Any]]) -> Pixels:
    """Return the picture of a vector; values darker than black or lighter than white are clipped."""
    picture: Pixels = np.rint((vector.reshape(SIDE, SIDE, 3) + 1) * 127.5).clip(0, 255).astype(np.uint8)
    return picture


class _Canvas:
    """A square of fine points, from -1 to 1 in both directions, y downwards; shapes are painted over each other."""

    def __init__(self, paper: Color) -> None:
        points = (np.arange(SIDE * _FINE) + 0.5) / (SIDE * _FINE) * 2 - 1
        self.x, self.y = np.meshgrid(points, points)
        self._paint: Field = np.empty((*self.x.shape, 3))
        self._paint[:] = _rgb(paper)

    def oval(self, x: float, y: float, width: float, height: float) -> Shape:
        """Return the points inside an ellipse around (x, y); width and height are half axes."""
        inside: Shape = ((self.x - x) / width) ** 2 + ((self.y - y) / height) ** 2 <= 1
        return inside

    def fill(self, shape: Shape, color: Color, opacity: float = 1.0) -> None:
        """Paint a shape."""
        self._paint[shape] = (1 - opacity) * self._paint[shape] + opacity * _rgb(color)

    def pixels(self) -> Pixels:
        """Return the picture: each pixel is the mean of its points."""
        fine = self._paint.reshape(SIDE, _FINE, SIDE, _FINE, 3).mean(axis=(1, 3))
        picture: Pixels = np.rint(fine).astype(np.uint8)
        return picture


def _rgb(color: Color) -> Field:
    return np.array(list(bytes.fromhex(color)), dtype=np.float64)


def _draw(person: Person) -> Pixels:
    canvas = _Canvas(person.paper)
    behind, before = HAIR[person.hair]
    behind(canvas, person.hair_color)
    canvas.fill(canvas.oval(0, 1.14, 0.86, 0.52), person.clothes)
    canvas.fill((abs(canvas.x) < 0.17) & (canvas.y > 0.3) & (canvas.y < 0.72), person.skin)
    canvas.fill(canvas.oval(0, 0.7, 0.17, 0.09), person.skin)
    canvas.fill(canvas.oval(0, 0.5, 0.2, 0.08), _DARK, 0.12)  # the shadow of the chin
    for side in (-1, 1):
        canvas.fill(canvas.oval(0.47 * side, 0.02, 0.09, 0.13), person.skin)
    canvas.fill(canvas.oval(0, -0.02, 0.46, 0.56), person.skin)
    _draw_face(canvas)
    before(canvas, person.hair_color)
    for extra in person.extras:
        EXTRAS[extra](canvas, person.hair_color)
    return canvas.pixels()


def _draw_face(canvas: _Canvas) -> None:
    for side in (-1, 1):
        canvas.fill(canvas.oval(0.27 * side, 0.18, 0.11, 0.07), _BLUSH, 0.28)
        canvas.fill(canvas.oval(0.18 * side, -0.02, 0.1, 0.085), _WHITE)
        canvas.fill(canvas.oval(0.18 * side, -0.015, 0.055, 0.07), _DARK)
        canvas.fill(canvas.oval(0.18 * side, -0.17, 0.11, 0.028), _DARK, 0.75)
    canvas.fill(canvas.oval(0, 0.13, 0.05, 0.035), _DARK, 0.18)
    smile = canvas.oval(0, 0.23, 0.17, 0.12) & ~canvas.oval(0, 0.18, 0.2, 0.11)
    canvas.fill(smile, "8f3b33")


def _nothing(canvas: _Canvas, color: Color) -> None:
    """Draw nothing."""


def _crown(canvas: _Canvas, color: Color) -> None:
    """Hair on top of the head, above a line across the forehead."""
    canvas.fill(canvas.oval(0, -0.1, 0.5, 0.56) & (canvas.y < -0.3 - 0.12 * canvas.x), color)


def _long(canvas: _Canvas, color: Color) -> None:
    canvas.fill(canvas.oval(0, -0.08, 0.64, 0.62), color)
    canvas.fill((abs(canvas.x) < 0.64) & (canvas.y > -0.1) & (canvas.y < 0.78), color)


def _parting(canvas: _Canvas, color: Color) -> None:
    """Hair that falls to both sides of the forehead."""
    cap = canvas.oval(0, -0.1, 0.52, 0.56) & (canvas.y < 0.1)
    canvas.fill(cap & ~canvas.oval(0.06, 0.22, 0.42, 0.52), color)


def _bob(canvas: _Canvas, color: Color) -> None:
    canvas.fill(canvas.oval(0, -0.04, 0.62, 0.6) & (canvas.y < 0.42), color)


def _straight_fringe(canvas: _Canvas, color: Color) -> None:
    canvas.fill(canvas.oval(0, -0.1, 0.52, 0.56) & (canvas.y < -0.24), color)
    for side in (-1, 1):
        canvas.fill(canvas.oval(0.5 * side, 0.1, 0.1, 0.42), color)


def _ring(canvas: _Canvas, color: Color, size: float, reach: float) -> None:
    """Locks around the head, from ear to ear."""
    for angle in np.linspace(np.pi * 1.02, np.pi * 1.98, 9):
        canvas.fill(canvas.oval(reach * np.cos(angle), -0.12 + reach * np.sin(angle), size, size), color)


def _afro(canvas: _Canvas, color: Color) -> None:
    canvas.fill(canvas.oval(0, -0.24, 0.74, 0.66), color)


def _curls(canvas: _Canvas, color: Color) -> None:
    _ring(canvas, color, 0.2, 0.5)


def _bun(canvas: _Canvas, color: Color) -> None:
    canvas.fill(canvas.oval(0, -0.72, 0.24, 0.22), color)
    canvas.fill(canvas.oval(0, -0.14, 0.53, 0.54) & (canvas.y < 0.05), color)


def _cap(canvas: _Canvas, color: Color) -> None:
    canvas.fill(canvas.oval(0, -0.22, 0.54, 0.5) & (canvas.y < -0.26), color)
    canvas.fill(canvas.oval(0.3, -0.28, 0.52, 0.075), color)
    canvas.fill(canvas.oval(0.3, -0.25, 0.5, 0.03), _DARK, 0.25)


def _crest(canvas: _Canvas, color: Color) -> None:
    canvas.fill(canvas.oval(0, -0.6, 0.17, 0.34) & (canvas.y < -0.34), color)


def _scarf_behind(canvas: _Canvas, color: Color) -> None:
    canvas.fill(canvas.oval(0, 0.02, 0.66, 0.76), color)


def _scarf(canvas: _Canvas, color: Color) -> None:
    around = canvas.oval(0, 0, 0.62, 0.72) & ~canvas.oval(0, 0.05, 0.41, 0.5)
    canvas.fill(around, color)
    canvas.fill(canvas.oval(0, 0.74, 0.44, 0.2), color)


def _glasses(canvas: _Canvas, _color: Color) -> None:
    for side in (-1, 1):
        rim = canvas.oval(0.19 * side, -0.01, 0.165, 0.15) & ~canvas.oval(0.19 * side, -0.01, 0.125, 0.11)
        canvas.fill(rim, _DARK)
    canvas.fill((abs(canvas.x) < 0.05) & (abs(canvas.y + 0.03) < 0.02), _DARK)


def _beard(canvas: _Canvas, color: Color) -> None:
    jaw = canvas.oval(0, -0.0, 0.47, 0.6) & (canvas.y > 0.12 + 0.3 * (0.4 - abs(canvas.x)))
    canvas.fill(jaw & ~canvas.oval(0, 0.28, 0.15, 0.075), color)


def _moustache(canvas: _Canvas, color: Color) -> None:
    for side in (-1, 1):
        canvas.fill(canvas.oval(0.09 * side, 0.22, 0.12, 0.05), color)


def _freckles(canvas: _Canvas, _color: Color) -> None:
    for x, y in ((0.2, 0.14), (0.27, 0.19), (0.33, 0.13), (0.25, 0.1)):
        for side in (-1, 1):
            canvas.fill(canvas.oval(x * side, y, 0.022, 0.022), "9c5a33", 0.8)


def _earrings(canvas: _Canvas, _color: Color) -> None:
    for side in (-1, 1):
        canvas.fill(canvas.oval(0.5 * side, 0.2, 0.06, 0.075), "f2c14e")


Stroke = Callable[[_Canvas, Color], None]

HAIR: dict[str, tuple[Stroke, Stroke]] = {
    "afro": (_afro, _nothing),
    "bald": (_nothing, _nothing),
    "bob": (_bob, _parting),
    "bun": (_bun, _crown),
    "cap": (_nothing, _cap),
    "crest": (_nothing, _crest),
    "curls": (_nothing, _curls),
    "fringe": (_bob, _straight_fringe),
    "long": (_long, _parting),
    "scarf": (_scarf_behind, _scarf),
    "short": (_nothing, _crown),
}
"""How each style is drawn: behind the head, and before it."""

EXTRAS: dict[str, Stroke] = {
    "beard": _beard,
    "earrings": _earrings,
    "freckles": _freckles,
    "glasses": _glasses,
    "moustache": _moustache,
}
