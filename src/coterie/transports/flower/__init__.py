"""Flower as a carrier of rounds: two lines make an app on its Message API private.

    strategy = PrivateStrategy(FedAvg(...))                # server_app.py: around the strategy of the app
    app = ClientApp(mods=[private_mod])                    # client_app.py: around the functions of the app

The server gets one weighted mean a round, over whole circles of clients; to the strategy it looks like the reply of a
single client. :mod:`coterie.deployment` plays the rounds. This package adapts Flower: :mod:`~.strategy` and
:mod:`~.grid` wrap Flower's grid, :mod:`~.carrier` and :mod:`~.exchange` send messages over it, :mod:`~.mod` and
:mod:`~.request` receive them on a node, :mod:`~.recorder` and :mod:`~.checkpoint` resume runs. Start with
:mod:`~.strategy` for the server and :mod:`~.mod` for a node. A client's process imports only the client's side.
"""

from typing import TYPE_CHECKING

from coterie.lazy_names import lazy_getattr

__all__ = ["Confinement", "PrivateStrategy", "private_mod"]

if TYPE_CHECKING:
    from coterie.deployment.confinement import Confinement
    from coterie.transports.flower.mod import private_mod
    from coterie.transports.flower.strategy import PrivateStrategy
else:
    __getattr__ = lazy_getattr(
        __name__,
        {
            "Confinement": "coterie.deployment.confinement",
            "PrivateStrategy": f"{__name__}.strategy",
            "private_mod": f"{__name__}.mod",
        },
    )
