"""A wiretap on the server: it prints a part of every large array that passes Flower's grid, to a node or from one.

It sees everything that the server sees, so the server cannot see what the wiretap cannot see.
"""

from collections.abc import Iterable
from typing import Any

from flwr.app import Message
from flwr.serverapp import Grid

LARGE = 2000
SHOWN = 5


class Wiretap:
    """Flower's grid, whose messages are printed."""

    def __init__(self, grid: Grid) -> None:
        self._grid = grid
        self._last = ""

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever a grid has
        return getattr(self._grid, name)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Send messages, and print them."""
        return self._grid.push_messages([self._show("to all nodes", message) for message in messages])

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Receive replies, and print them."""
        return [self._show("from one node", message) for message in self._grid.pull_messages(message_ids)]

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """Do both at once, as plain strategies do."""
        sent = [self._show("to all nodes", message) for message in messages]
        return [self._show("from one node", reply) for reply in self._grid.send_and_receive(sent, timeout=timeout)]

    def _show(self, way: str, message: Message) -> Message:
        records = message.content.array_records if message.has_content() else {}
        for record in records.values():
            for name, array in record.items():
                values = array.numpy().ravel()
                if values.size >= LARGE:
                    middle = values[values.size // 2 :][:SHOWN]
                    line = f"wiretap: {way}: {name}, {values.size} of {values.dtype}, in the middle {middle}"
                    if line != self._last:  # all nodes are sent the same message
                        print(line, flush=True)
                    self._last = line
        return message
