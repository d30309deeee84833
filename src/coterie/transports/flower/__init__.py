"""Flower as a carrier of rounds: an app on its Message API becomes private by two lines.

    strategy = PrivateStrategy(FedAvg(...))                # server_app.py: around the strategy of the app
    app = ClientApp(mods=[private_mod])                    # client_app.py: around the functions of the app

The server gets one weighted mean a round, over whole circles of clients; the strategy takes it for the reply of a
single client. :mod:`coterie.deployment` plays the rounds. This package translates: :mod:`~.strategy` and :mod:`~.grid`
stand in front of Flower's grid, :mod:`~.carrier` and :mod:`~.exchange` send messages over it, :mod:`~.mod` and
:mod:`~.request` receive them on a node, :mod:`~.recorder` and :mod:`~.checkpoint` resume runs. Start with
:mod:`~.strategy` for the server and :mod:`~.mod` for a node. A client's process imports its own half only.
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
