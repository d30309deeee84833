"""A secure aggregation worth watching, and every claim about it checked."""

from coterie.demo.picture import draw
from coterie.demo.report import Cost, DemoPlan, DemoReport, ServerView, Settings, StepView, Vectors
from coterie.demo.session import Demo

__all__ = ["Cost", "Demo", "DemoPlan", "DemoReport", "ServerView", "Settings", "StepView", "Vectors", "draw"]
