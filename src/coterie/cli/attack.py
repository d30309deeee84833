"""``coterie attack``: run an attack without its defence and with it.

An attack is a package with settings (:mod:`coterie.settings`). The command line needs only its row in
:mod:`coterie.attacks.table`: the options are derived from the settings, and the help is their docstring.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from coterie.attacks.demo.settings import DemoSettings
from coterie.attacks.differencing.settings import DifferencingSettings, SavedSumsSettings
from coterie.attacks.table import ATTACKS, AttackRow
from coterie.cli.attack_show import Html, show
from coterie.cli.audit_input import LogInput
from coterie.cli.common import AsJson, train_extra
from coterie.cli.derive import ListingCommand, PlainGroup, with_options
from coterie.errors import ConfigError
from coterie.files import explain
from coterie.settings import Settings

FOLDER, PAGE = Path("coterie-attack-demo"), "attack.html"


def make_app(attacks: dict[str, AttackRow]) -> typer.Typer:
    """Return the commands of a table of attacks."""
    app = typer.Typer(
        cls=PlainGroup,
        help="Run attacks without their defence and with it. Each one states its threat model, shows what the attack "
        "achieves, and ends with a privacy card.",
        epilog="Example: coterie attack demo",
        no_args_is_help=True,
    )
    for name, row in attacks.items():
        example = f"Example: coterie attack {name} --html {name}.html"
        app.command(name, cls=ListingCommand, epilog=example)(with_options(_SPECIAL.get(name) or _plain(name, row)))
    return app


def _plain(name: str, row: AttackRow) -> Callable[..., None]:
    """Return the function that runs an attack whose only options are its settings."""

    def run(settings: Settings, html: Html = None, as_json: AsJson = False) -> None:
        _show(name, row, settings, html, as_json)

    run.__annotations__["settings"] = row.load_settings()
    return run


def _show(name: str, row: AttackRow, settings: Settings, html: Path | None, as_json: bool) -> None:
    with train_extra():
        attack = row.make(settings)
    show(name, attack, html, as_json)


def _demo(
    settings: DemoSettings,
    html: Html = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Folder for the page, instead of --html.",
            show_default=f"{FOLDER}, none with --json",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    if html is not None and out is not None:
        raise typer.BadParameter("the page goes either to --html or into --out")
    if html is None and (out is not None or not as_json):
        folder = out or FOLDER
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"cannot write to {folder}: {explain(error)}") from None
        html = folder / PAGE
    _show("demo", ATTACKS["demo"], settings, html, as_json)


def _differencing(
    settings: DifferencingSettings, saved: SavedSumsSettings, html: Html = None, as_json: AsJson = False
) -> None:
    if not saved.given:
        _show("differencing", ATTACKS["differencing"], settings, html, as_json)
        return
    with train_extra():
        from coterie.attacks.saved_sums.measure import MOST_BYTES, RecordedDifferencing, kept_by
        from coterie.cohorts.log_size import DEFAULT_LIMIT, MEGABYTE

        log, sums = kept_by(Path(saved.run)) if saved.run is not None else (str(saved.log), str(saved.sums))
    limit = DEFAULT_LIMIT / MEGABYTE if saved.limit is None else saved.limit
    reading = LogInput(log, saved, limit)
    most = MOST_BYTES if saved.limit is None else int(saved.limit * MEGABYTE)
    show("differencing", RecordedDifferencing(log, sums, saved.out, most, reading.options), html, as_json)


_SPECIAL: dict[str, Callable[..., None]] = {"demo": _demo, "differencing": _differencing}
"""Commands that have more options than the settings of their attack."""

app = make_app(ATTACKS)
