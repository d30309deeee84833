"""Flower as a carrier of rounds: an app on its Message API becomes one that keeps its clients private for good.

    strategy = PrivateStrategy(FedAvg(...))                # server_app.py: around the strategy that is there
    app = ClientApp(mods=[private_mod])                    # client_app.py: around the functions that are there

The server gets one weighted mean a round, over whole circles of clients; the strategy takes it for the reply of a
single client. What keeps that private is :mod:`coterie.rounds`, as in process: nothing here is a second protocol.
A client's process imports its own half only.
"""

from typing import TYPE_CHECKING

__all__ = ["PrivateStrategy", "private_mod"]

if TYPE_CHECKING:
    from coterie.transports.flower.mod import private_mod
    from coterie.transports.flower.strategy import PrivateStrategy
else:
    _HOMES = {"PrivateStrategy": "strategy", "private_mod": "mod"}

    def __getattr__(name: str) -> object:
        """Import one half or the other, when it is first used."""
        from importlib import import_module

        if name in _HOMES:
            return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
