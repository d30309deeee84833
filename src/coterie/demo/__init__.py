"""A demonstration of one secure aggregation, in which every result is checked.

Each client's private vector is an artificial fingerprint, because a picture shows at a glance what is protected.
Clients drop out in every step. :class:`Demo` runs the real protocol (:mod:`coterie.secagg`) in this process, compares
the sum and the mean with those computed in the clear, and returns a :class:`DemoReport` and the :class:`Vectors` to
plot; :func:`draw` plots them. Start with :mod:`coterie.demo.session`. The command ``coterie demo`` prints the report.
"""

from coterie.demo.picture import draw
from coterie.demo.report import Cost, DemoPlan, DemoReport, ServerView, Settings, StepView, Vectors
from coterie.demo.session import Demo

__all__ = ["Cost", "Demo", "DemoPlan", "DemoReport", "ServerView", "Settings", "StepView", "Vectors", "draw"]
