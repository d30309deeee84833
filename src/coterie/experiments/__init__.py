"""Whole runs put together from the layers below: what is run, watched, checked and written down."""

from coterie.experiments.demo import Demo
from coterie.experiments.demo_plot import draw
from coterie.experiments.demo_report import Cost, DemoReport, Plan, Settings, Sight, StepView, Vectors

__all__ = ["Cost", "Demo", "DemoReport", "Plan", "Settings", "Sight", "StepView", "Vectors", "draw"]
