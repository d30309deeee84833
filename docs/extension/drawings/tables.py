"""Drawings of the code's own tables: layers, steps of the protocols, and states of a client."""

import ast
import inspect
import re
import tomllib
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from docs.extension.drawings.canvas import Canvas, text_width

from coterie.secagg import client as papers_client
from coterie.secagg import steps as papers_steps
from coterie.secagg.prekeys import client as two_trips_client
from coterie.secagg.prekeys import steps as two_trips_steps
from coterie.secagg.steps import StepRow

PROJECT = Path(__file__).resolve().parents[3]


def read_layers() -> list[list[str]]:
    """Read the layers of the packages from the contract that import-linter checks."""
    contracts = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    rows = next(one["layers"] for one in contracts if one.get("containers") == ["coterie"])
    return [re.split(r" \| ", row) for row in rows]


def layers() -> Canvas:
    """Draw the layers."""
    rows = read_layers()
    canvas = Canvas(
        720, 20 + 44 * len(rows), "Layers of the packages of Coterie: each imports only from the layers below it."
    )
    for number, names in enumerate(rows):
        tone = ("one", "two", "three")[min(2, 3 * number // len(rows))]
        needed = [text_width(name) + 24 for name in names]
        spare = (640 - sum(needed)) / len(names)
        left = 14.0
        for name, width in zip(names, needed, strict=True):
            canvas.label(left, 10 + 44 * number, width + spare - 8, name, tone)
            left += width + spare
    bottom = 10 + 44 * len(rows) - 14
    canvas.arrow(680, 16, 680, bottom, "plain")
    canvas.add(
        f'<text transform="translate(703 {bottom / 2:g}) rotate(90)" class="mid small">imports point downwards</text>'
    )
    return canvas


def papers_protocol() -> Canvas:
    """Draw the steps of the papers' protocol."""
    return _draw_steps(papers_steps.TABLE, "the papers' protocol")


def two_trips() -> Canvas:
    """Draw the steps of the protocol with prekeys."""
    return _draw_steps(two_trips_steps.TABLE, "the protocol in two trips")


def _draw_steps(rows: Sequence[StepRow], name: str) -> Canvas:
    """Draw steps as messages between two lines, one for the clients and one for the server."""
    canvas = Canvas(720, 96 + 92 * len(rows), f"Steps of {name}: " + ", ".join(row.step for row in rows) + ".")
    left, right, bottom = 190, 560, 96 + 92 * len(rows) - 16
    canvas.person(left, 26, "one", "clients")
    canvas.server(right, 30, "server")
    for x in (left, right):
        canvas.add(f'<path d="M{x} 82V{bottom}" class="plain stroke"/>')
    for number, row in enumerate(rows):
        top = 112 + 92 * number
        tone = "three" if row.active_only else "one"
        canvas.text(14, top + 4, row.step, "strong")
        if row.active_only:
            canvas.text(14, top + 24, "only if the server", "small")
            canvas.text(14, top + 40, "may lie", "small")
        canvas.arrow(left, top, right - 4, top, tone, dash=row.active_only)
        canvas.text((left + right) / 2, top - 8, _words(row.upload.__name__), "mid")
        if row.download:
            canvas.arrow(right, top + 40, left + 4, top + 40, "plain", dash=row.active_only)
            canvas.text((left + right) / 2, top + 32, _words(row.download.__name__), "mid small")
        else:
            canvas.text(right - 12, top + 30, "the server has the sum", "end strong one")
    return canvas


def read_transitions(module: ModuleType, begin: str) -> list[tuple[str, str, str]]:
    """Read from a client's module which states follow each other: state, method, next state.

    The function ``begin`` returns the first state. A state is a class with methods that return the next one beside a
    message.
    """
    tree = ast.parse(inspect.getsource(module))
    states = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}

    def follow(owner: str, body: list[ast.stmt]) -> list[tuple[str, str, str]]:
        functions = [node for node in body if isinstance(node, ast.FunctionDef) and node.returns]
        returns = [(node.name, ast.unparse(node.returns)) for node in functions if node.returns]
        if owner:  # a step returns the next state and a message; other methods return something else
            returns = [(name, kind) for name, kind in returns if "bytes" in kind]
        else:
            returns = [(name, kind) for name, kind in returns if name == begin]
        return [(owner, name, word) for name, kind in returns for word in re.findall(r"\w+", kind) if word in states]

    found = follow("", tree.body)
    for _, _, state in found:  # grows while it is read: a state is followed once it is reached
        found += [step for step in follow(state, states[state].body) if step not in found]
    return found


def papers_states() -> Canvas:
    """Draw the states of a client in the papers' protocol."""
    return _draw_states(read_transitions(papers_client, "join"), "the papers' protocol")


def two_trips_states() -> Canvas:
    """Draw the states of a client in two trips."""
    return _draw_states(read_transitions(two_trips_client, "accept"), "the protocol in two trips")


def _draw_states(transitions: list[tuple[str, str, str]], name: str) -> Canvas:
    """Draw states in a row, in the order in which they can be reached; a step over others bends around them."""
    order: list[str] = []
    for begin, _, end in transitions:
        order += [state for state in (begin, end) if state not in order]
    width, gap = 104, (700 - 104) / max(1, len(order) - 1)
    places = {state: 10 + gap * number for number, state in enumerate(order)}
    canvas = Canvas(720, 150, f"States of a client in {name}: {', '.join(filter(None, order))}.")
    for state, x in places.items():
        if state:
            last = state == order[-1]
            canvas.label(x, 66, width, state, "two" if last else "one")
        else:
            canvas.add(f'<circle cx="{x + width / 2:g}" cy="82" r="8" class="one solid"/>')
    for begin, method, end in transitions:
        x1, x2 = places[begin], places[end]
        middle = (x1 + x2 + width) / 2
        if order.index(end) == order.index(begin) + 1:
            canvas.arrow(x1 + (width if begin else width / 2 + 10), 82, x2 - 2, 82, "plain")
            canvas.text(middle, 56, method, "mid small")
        else:
            path = f"M{x1 + width / 2:g} 66C{x1 + width / 2:g} 10 {x2 + width / 2:g} 10 {x2 + width / 2:g} 58"
            canvas.add(f'<path d="{path}" class="plain stroke dash"/>')
            canvas.arrow(x2 + width / 2, 56, x2 + width / 2, 65, "plain")
            canvas.text(middle, 20, method, "mid small")
    return canvas


def _words(name: str) -> str:
    """Return the name of a class as words."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).lower()
