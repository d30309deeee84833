"""Energy data: the hourly load of PJM's regions. Each region is a client that forecasts its next hour."""

import errno
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np

from coterie.errors import ConfigError
from coterie.reports.words import count
from coterie.training.data.dataset import Dataset
from coterie.training.data.readers import read_hourly
from coterie.training.data.series import ForecastSeries, HourlySeries, SeriesExamples, cut

SAMPLE = Path(__file__).parent / "pjm_sample"
"""The bundled weeks of ten regions; ORIGIN.md in the same folder states their source."""
_ENDING = "_hourly.csv"
_SCALING = "load scaled to mean 0 and deviation 1 over each region's own training hours"


def read_regions(
    name: str, places: tuple[Path, ...], regions: str, window: int, test_from: str, parts_each: int = 1
) -> Dataset:
    """Read the files ``REGION_hourly.csv``, plain or compressed, from the first of ``places`` that has any.

    ``regions`` is a list of names separated by commas. An empty string means all regions, except those without hours
    before or from ``test_from`` on. Irregularities of a file are noted in the data set's ``series``.

    With ``parts_each`` above 1, the training examples of each region are divided into this many consecutive parts. Each
    part is a client, such as DAYTON-1, and is tested on the test examples of all regions.
    """
    if window < 1:
        raise ConfigError(f"window must be at least 1 hour, not {window}")
    if parts_each < 1:
        raise ConfigError(f"parts must be at least 1, not {parts_each}")
    moment = _moment(test_from)
    files = _files(places)
    wanted = [region.strip() for region in regions.split(",")] if regions else list(files)
    parts: dict[str, SeriesExamples] = {}
    notes: list[str] = []
    for region in wanted:
        if region not in files:
            raise ConfigError(f"there is no {region}{_ENDING} in {places[0]}; regions are {', '.join(files)}")
        series = HourlySeries.of(str(files[region]), *read_hourly(files[region], f"{region}_MW"))
        part = cut(series, window, moment)
        if part is None:
            before = series.before(moment)
            found = f"{before} hours before {test_from} and {series.values.size - before} from then on"
            if regions:
                raise ConfigError(f"{series.name} has {found}: too few for windows of {window}")
            notes.append(f"{region} is left out, having {found}")
            continue
        parts[region] = part
        notes.extend(_oddities(region, series))
    if not parts:
        raise ConfigError(f"no region has enough hours before and after {test_from}: {'; '.join(notes)}")
    least = min(parts, key=lambda region: len(parts[region].train_y))
    if parts_each > len(parts[least].train_y):
        raise ConfigError(
            f"{least} has {len(parts[least].train_y)} training examples, too few for {parts_each} parts; give fewer"
        )
    return _together(name, parts, tuple(notes), parts_each)


def _moment(text: str) -> np.datetime64:
    with suppress(ValueError):
        moment = np.datetime64(text, "h")
        if not np.isnat(moment):
            return moment
    raise ConfigError(f"test_from must be a date such as 2016-01-01, not {text!r}")


def _files(places: tuple[Path, ...]) -> dict[str, Path]:
    """Return the files by region, from the first place that has any."""
    for place in places:
        found = sorted(path for ending in ("", ".gz") for path in place.glob(f"*{_ENDING}{ending}"))
        if found:
            return {path.name.split(_ENDING)[0]: path for path in found}
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(places[0] / f"REGION{_ENDING}"))


def _oddities(region: str, series: HourlySeries) -> Iterator[str]:
    odd = []
    if series.repeated:
        odd.append(f"{count(series.repeated, 'hour')} with several readings, averaged")
    if series.missing:
        odd.append(f"{count(series.missing, 'hour')} without any, in no window")
    if odd:
        yield f"{region}: {'; '.join(odd)}"


def _together(name: str, parts: dict[str, SeriesExamples], notes: tuple[str, ...], parts_each: int) -> Dataset:
    ends = np.cumsum([len(part.train_y) for part in parts.values()])
    regions = dict(zip(parts, np.split(np.arange(ends[-1]), ends[:-1]), strict=True))
    divided = {
        f"{region}-{number}": held
        for region, examples in regions.items()
        for number, held in enumerate(np.array_split(examples, parts_each), start=1)
    }
    return Dataset(
        name,
        np.concatenate([part.train_x for part in parts.values()]),
        np.concatenate([part.train_y for part in parts.values()]),
        np.concatenate([part.test_x for part in parts.values()]),
        np.concatenate([part.test_y for part in parts.values()]),
        classes=None,
        clients=regions if parts_each == 1 else divided,
        series=ForecastSeries.of(parts, "MW", _SCALING, notes),
    )
