"""Time series as examples: training and test windows share no hour, and scaling uses training hours only."""

import os
import shutil
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.data_files import HOURS, SMALL, write_data

from coterie.errors import InputError
from coterie.training.data.datasets import DATA_VARIABLE, Dataset, load
from coterie.training.data.energy import SAMPLE, read_regions
from coterie.training.data.readers import read_hourly
from coterie.training.data.series import RULES, HourlySeries, cut

START = np.datetime64("2016-01-01T00", "h")
WEEK = max(RULES.values())


def counting(size: int, missing: set[int]) -> HourlySeries:
    """Let every hour have its own number as its value, so that examples tell which hours they were made of."""
    hours = np.array([hour for hour in range(size) if hour not in missing])
    return HourlySeries.of("counting", START + hours, hours.astype(float))


@st.composite
def cuts(draw: st.DrawFn) -> tuple[int, set[int], int, int]:
    size = draw(st.integers(WEEK + 20, WEEK + 120))
    missing = draw(st.sets(st.integers(1, size - 2), max_size=6))
    return size, missing, draw(st.integers(1, 12)), draw(st.integers(0, size + 5))


@given(cuts())
def test_the_parts_share_no_hour_and_have_all_complete_windows(case: tuple[int, set[int], int, int]) -> None:
    size, missing, window, split = case
    found = cut(counting(size, missing), window, START + split)
    whole = [hour for hour in range(window, size) if not missing & set(range(hour - window, hour + 1))]
    train = [hour for hour in whole if hour < split]
    test = [hour for hour in whole if hour - window >= split]
    test = [hour for hour in test if all(hour >= lag and hour - lag not in missing for lag in RULES.values())]
    if not train or not test:
        assert found is None
        return
    assert found is not None

    mean, deviation = found.mean, found.deviation

    def hours(scaled: npt.NDArray[np.float32]) -> npt.NDArray[np.int64]:
        return np.asarray(np.rint(scaled * deviation + mean), np.int64)

    assert hours(found.train_y)[:, 0].tolist() == train
    assert hours(found.test_y)[:, 0].tolist() == test
    for x, targets in (found.train_x, train), (found.test_x, test):
        assert hours(x)[..., 0].tolist() == [list(range(hour - window, hour)) for hour in targets]
    assert found.test_times.tolist() == (START + np.array(test)).tolist()
    for rule, lag in RULES.items():
        assert hours(found.rules[rule])[:, 0].tolist() == [hour - lag for hour in test]
    known = np.array([hour for hour in range(split) if hour not in missing and hour < size])
    assert (mean, deviation) == pytest.approx((known.mean(), known.std()))


@given(cuts(), st.floats(1, 1e6))
def test_test_hours_do_not_change_the_training_part(case: tuple[int, set[int], int, int], other: float) -> None:
    size, missing, window, split = case
    series = counting(size, missing)
    changed = HourlySeries("other", START, np.where(np.arange(size) >= split, other, series.values), 0)
    before, after = (cut(one, window, START + split) for one in (series, changed))
    if before is None or after is None:
        return
    assert np.array_equal(before.train_x, after.train_x)
    assert np.array_equal(before.train_y, after.train_y)
    assert (before.mean, before.deviation) == (after.mean, after.deviation)


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 9)), min_size=1, max_size=80), st.randoms())
def test_hours_are_found_in_any_order_and_repeated_ones_averaged(readings: list[tuple[int, int]], rng: object) -> None:
    rng.shuffle(readings)  # type: ignore[attr-defined]
    series = HourlySeries.of(
        "any", np.array([START + hour for hour, _ in readings]), np.array([float(load) for _, load in readings])
    )
    by_hour: dict[int, list[int]] = {}
    for hour, value in readings:
        by_hour.setdefault(hour - min(hour for hour, _ in readings), []).append(value)
    assert {hour: value for hour, value in enumerate(series.values) if not np.isnan(value)} == pytest.approx(
        {hour: np.mean(loads) for hour, loads in by_hour.items()}
    )
    assert series.missing == max(by_hour) + 1 - len(by_hour)
    assert series.repeated == sum(len(loads) > 1 for loads in by_hour.values())


def test_a_series_that_never_changes_cannot_be_scaled() -> None:
    values = np.concatenate([np.ones(50), np.arange(200.0)])
    with pytest.raises(InputError, match="flat has the same value in every hour before 2016-01-03"):
        cut(HourlySeries("flat", START, values, 0), 3, START + 48)


# ------------------------------------------------------------------------------------------- files


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_data(tmp_path)
    return tmp_path


def test_repeated_and_missing_hours_of_a_file_are_reported(folder: Path) -> None:
    data = load("pjm", folder, **SMALL["pjm"])
    assert data.series is not None
    (note,) = data.series.notes
    assert note == "DAYTON: 1 hour with several readings, averaged; 1 hour without any, in no window"
    loads = {**dict(HOURS), 2: 20.0}
    past = np.array([loads[hour] for hour in sorted(loads) if hour < 192])
    series = {hour: (load - past.mean()) / past.std() for hour, load in loads.items()}
    assert (data.input_shape, data.outputs, data.classes) == ((2, 1), 1, None)
    assert np.allclose(data.train_x[:3, :, 0], [[series[h], series[h + 1]] for h in range(3)])
    around = [10 + 2 - 7, *np.flatnonzero(np.isclose(data.train_y[:, 0], series[10]))]  # none of 7, 8 and 9 is a target
    assert around[0] == around[1]
    assert np.allclose(data.test_y[:, 0], [series[hour] for hour in range(194, 240)])
    assert data.series.in_unit(data.test_y, np.arange(46)).tolist() == pytest.approx(
        [loads[h] for h in range(194, 240)]
    )


def test_regions_are_clients_each_scaled_by_itself(folder: Path) -> None:
    hec = folder / "hec"
    text = (hec / "DAYTON_hourly.csv").read_text()
    lines = text.replace("DAYTON", "AEP").splitlines()
    ten = [lines[0], *(f"{line.split(',')[0]},{10 * float(line.split(',')[1])}" for line in lines[1:])]
    (hec / "AEP_hourly.csv").write_text("\n".join(ten))
    (hec / "OLD_hourly.csv").write_text(text.replace("DAYTON", "OLD").replace("2016-", "2001-"))
    data = load("pjm", folder, **SMALL["pjm"])
    assert data.clients is not None
    assert data.series is not None
    assert list(data.clients) == list(data.series.members) == ["AEP", "DAYTON"]
    large, small = (data.train_x[held] for held in data.clients.values())
    assert np.allclose(large, small, atol=1e-5)
    assert data.series.scale[data.series.members["AEP"]] == pytest.approx(
        10 * data.series.scale[data.series.members["DAYTON"]]
    )
    assert "OLD is left out, having 240 hours before 2016-01-09 and 0 from then on" in data.series.notes
    assert np.concatenate(list(data.clients.values())).tolist() == list(range(len(data.train_y)))
    only = load("pjm", folder, regions="DAYTON", **SMALL["pjm"])
    assert list(only.clients or ()) == ["DAYTON"]
    (folder / "flat").mkdir()
    shutil.copy(hec / "DAYTON_hourly.csv", folder / "flat")
    assert np.array_equal(load("pjm", folder / "flat", **SMALL["pjm"]).test_x, only.test_x)


def test_series_belong_to_the_test_examples() -> None:
    data = load("energy", regions="AEP, DUQ")
    with pytest.raises(InputError, match="do not match its time series"):
        Dataset("fewer", data.train_x, data.train_y, data.test_x[1:], data.test_y[1:], None, series=data.series)


# ------------------------------------------------------------------------------------------- the bundled weeks


def test_eight_weeks_of_ten_regions_are_bundled() -> None:
    data = load("energy")
    assert data.clients is not None
    assert data.series is not None
    assert {len(held) for held in data.clients.values()} == {6 * 168 - 24}
    assert {len(held) for held in data.series.members.values()} == {2 * 168 - 24}
    assert len(data.clients) == 10
    assert data.series.notes == ()
    assert data.series.times.min() == np.datetime64("2018-07-17T00", "h")
    assert sum(path.stat().st_size for path in SAMPLE.iterdir()) < 100_000
    for held in data.clients.values():  # a region's training hours, but for the first windows, are its scale
        assert data.train_y[held].mean() == pytest.approx(0, abs=0.05)
        assert data.train_y[held].std() == pytest.approx(1, abs=0.05)
    assert "PJM" in (SAMPLE / "ORIGIN.md").read_text()


@pytest.fixture(scope="session")
def real() -> Path:
    place = os.environ.get(DATA_VARIABLE)
    if not place or not (Path(place) / "hec").is_dir():
        pytest.skip(f"set {DATA_VARIABLE} to a folder with hec/DAYTON_hourly.csv to read it in this test")
    return Path(place)


def test_real_dayton(real: Path) -> None:
    times, loads = read_hourly(real / "hec" / "DAYTON_hourly.csv", "DAYTON_MW")
    assert (len(loads), loads.mean(), loads.std(ddof=1)) == (
        121_275,
        pytest.approx(2037.851),
        pytest.approx(393.403, abs=1e-3),
    )
    series = HourlySeries.of("DAYTON", times, loads)
    assert (series.repeated, series.missing) == (4, 25)
    data = load("pjm", real, regions="DAYTON", window=100)
    assert data.series is not None
    assert (len(data.train_y), len(data.test_y)) == (96_293, 22_275)
    assert np.mean(data.test_y**2) == pytest.approx(0.93, abs=0.01)  # what the constant mean scores
    errors = {rule: np.mean((said - data.test_y) ** 2) for rule, said in data.series.rules.items()}
    assert errors == pytest.approx({"previous hour": 0.043, "previous day": 0.308, "previous week": 0.516}, abs=1e-3)


@pytest.mark.parametrize("region", ["AEP", "DAYTON"])
def test_the_bundled_weeks_are_real(real: Path, region: str) -> None:
    path = real / "hec" / f"{region}_hourly.csv"
    if not path.exists():
        pytest.skip(f"there is no {path} to compare with")
    (times, loads), (bundled_times, bundled) = (
        read_hourly(file, f"{region}_MW") for file in (path, SAMPLE / f"{region}_hourly.csv.gz")
    )
    order = np.argsort(times)
    chosen = order[np.isin(times[order], bundled_times)]
    assert np.array_equal(times[chosen], bundled_times)
    assert np.array_equal(loads[chosen], bundled)


@pytest.mark.parametrize("parts", [1, 2, 5])
def test_parts_of_a_region_are_consecutive_and_hold_every_example_once(parts: int) -> None:
    whole, divided = (read_regions("energy", (SAMPLE,), "AEP,DAYTON", 24, "2018-07-16", each) for each in (1, parts))
    assert divided.clients is not None
    assert np.array_equal(np.concatenate(list(divided.clients.values())), np.arange(len(whole.train_y)))
    assert np.array_equal(divided.train_x, whole.train_x)
    assert np.array_equal(divided.test_y, whole.test_y)
    sizes = [len(held) for held in divided.clients.values()]
    assert max(sizes) - min(sizes) <= 1
    names = [f"{region}-{number}" for region in ("AEP", "DAYTON") for number in range(1, parts + 1)]
    assert list(divided.clients) == (names if parts > 1 else ["AEP", "DAYTON"])
