"""The settings of the private strategy: declared once, then used by its signature and its documentation."""

import inspect
from dataclasses import fields
from pathlib import Path

from flwr.serverapp.strategy import FedAvg

from coterie.deployment.settings import PrivateSettings
from coterie.settings import Setting, declared
from coterie.transports.flower import PrivateStrategy

FLOWER = Path(__file__).parents[4] / "docs" / "flower.md"


def table_row(setting: Setting) -> str:
    default = setting.option.default
    if default is None:
        default = "none" if setting.default == () else f"`{setting.default}`"
    return f"| `{setting.name}` | {default} | {setting.option.help} |"


def test_the_strategy_takes_every_setting_with_the_default_of_its_class() -> None:
    taken = set(inspect.signature(PrivateStrategy).parameters)
    assert {field.name for field in fields(PrivateSettings)} - taken == {"weight"}  # the wrapped strategy decides it
    assert PrivateStrategy(FedAvg())._settings == PrivateSettings()


def test_the_document_has_every_setting_as_its_class_declares_it() -> None:
    shown = [line for line in FLOWER.read_text("utf-8").splitlines() if line.startswith("| `")]
    assert [row for row in map(table_row, declared(PrivateSettings)) if row not in shown] == []
