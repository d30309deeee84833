"""A server that makes the sites of a circle train in different ways sees the update of one of them.

It gives one site an app that learns nothing, or makes all sites contribute in two ways and solves for each site.
"""

import json
import py_compile
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.homes import home as home
from tests.support.nvflare_sites import APP, Learning, Sites, aggregator, assignment, check_update_of_one, script_at

from coterie.cohorts import Ledger
from coterie.deployment.engine import AppReply, Arrays
from coterie.deployment.home import node_home, server_home
from coterie.deployment.recipe import VARYING
from coterie.errors import ConfigError
from coterie.transports.nvflare import request
from coterie.transports.nvflare.files import digest_files
from coterie.transports.nvflare.messages import Work, flatten
from coterie.transports.nvflare.names import TASKS, WEIGHT
from coterie.transports.nvflare.request import SiteApp

STILL = SiteApp({"executors": [{"args": {"task_script_args": "--rate 0"}}]}, APP.files)


@pytest.mark.parametrize("defended", [False, True])
def test_other_arguments_for_one_site_of_a_circle(defended: bool, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not defended:
        monkeypatch.setattr(SiteApp, "digest", b"whatever it is")
    check_update_of_one(Learning(2, {"site-2": STILL}), is_seen=not defended)


def join_keys(value: object, path: str = "") -> Iterator[tuple[str, bytes]]:
    """Yield the leaves of a configuration by keys joined with dots, as if no key contained a dot."""
    if not isinstance(value, dict):
        yield path, repr(value).encode()
        return
    for key, child in value.items():
        yield from join_keys(child, f"{path}.{key}")


@pytest.mark.parametrize("defended", [False, True])
def test_arguments_swapped_with_a_key_that_nvflare_ignores(
    defended: bool, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Configured(Learning):
        def rate(self, site: str) -> float:
            return float(self.apps[site].config["executor"]["args"]["lr"])

    if not defended:
        monkeypatch.setattr(request, "flatten", join_keys)
    described = [{"executor": {"args": {"lr": rate}, "args.lr": other}} for rate, other in ((0.1, 0), (0, 0.1))]
    apps = {f"site-{number}": SiteApp(config, APP.files) for number, config in enumerate(described, 1)}
    check_update_of_one(Configured(2, apps), is_seen=not defended)


def digest_sources(folder: Path, _config: Path) -> dict[str, str]:
    """Return the digests of the app's source code only."""
    code = folder / "custom"
    return {str(path.relative_to(folder)): path.read_bytes().hex() for path in code.glob("*.py")}


def place_bytecode(folder: Path) -> None:
    """Place bytecode of another program beside the source; Python does not compare this kind with the source."""
    other = folder.parent / "other.py"
    other.write_text("RATE = 0\n")
    place = folder / "custom" / "__pycache__" / f"client.{sys.implementation.cache_tag}.pyc"
    py_compile.compile(str(other), str(place), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)


def place_settings(folder: Path) -> None:
    """Change a file of the app that is neither code nor NVFlare's configuration."""
    (folder / "config" / "train.json").write_text(json.dumps({"factor": 0}))


@pytest.mark.parametrize("defended", [False, True])
@pytest.mark.parametrize("attack", [place_bytecode, place_settings])
def test_other_files_for_one_site_of_a_circle(
    attack: Callable[[Path], None], defended: bool, home: Path, tmp_path: Path
) -> None:
    class Deployed(Learning):
        """Sites with folders of files, and scripts that Python imports from there."""

        def app_of(self, site: str) -> SiteApp:
            read = digest_files if defended else digest_sources
            folder = tmp_path / site
            return SiteApp(APP.config, read(folder, folder / "config" / "config_fed_client.json"))

        def rate(self, site: str) -> float:
            script = script_at(tmp_path / site / "custom" / "client.py")
            settings = json.loads((tmp_path / site / "config" / "train.json").read_text())
            return float(script.RATE * settings["factor"])

    for site in ("site-1", "site-2"):
        for name, text in (("custom/client.py", "RATE = 0.1\n"), ("config/train.json", '{"factor": 1}')):
            (tmp_path / site / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / site / name).write_text(text)
    attack(tmp_path / "site-2")
    sites = Deployed(2)
    if defended and attack is place_bytecode:  # a site with bytecode is in no session
        with pytest.raises(ConfigError, match="1 node enrolled within"):
            check_update_of_one(sites, is_seen=False)
        assert sites.trained == []
        return
    check_update_of_one(sites, is_seen=not defended)


EXAMPLES = {"site-1": 16, "site-2": 48}
GRADIENTS = {"site-1": np.array([0.5, -0.25, 0.125]), "site-2": np.array([-0.125, 0.25, 0.0625])}


def count_steps(site: str, batch: int) -> int:
    return -(-EXAMPLES[site] // batch)


class Batches(Sites):
    """Sites that take a step of gradient descent for each batch."""

    def _train(self, site: str) -> Callable[[str, Arrays, Work], AppReply]:
        def train(_function: str, arrays: Arrays, work: Work) -> AppReply:
            steps = count_steps(site, self.batch(site, work))
            moved = (arrays["w"] + 0.1 * steps * GRADIENTS[site]).astype(np.float32)
            return AppReply({"w": moved}, {WEIGHT: steps})

        return train

    def batch(self, _site: str, work: Work) -> int:
        """Return the size of a batch, which the server sends with the model."""
        return int(work.entries()["batch-size"])


def solve(sums: Mapping[int, Any]) -> None:
    """Check that sums of two sizes of batches give the update of each site."""
    factors = np.array([[0.1 * count_steps(site, batch) for site in EXAMPLES] for batch in sums])
    found = np.linalg.solve(factors, np.array(list(sums.values())))
    # Errors by rounding are about 0.005; the gradients of the sites differ by at least 0.06.
    assert np.allclose(found, list(GRADIENTS.values()), atol=3e-2)


def set_weights() -> None:
    """Let the operators of both sites set their weights."""
    for site in EXAMPLES:
        (node_home(site) / "node.toml").write_text("weight = 10\n")


@pytest.mark.parametrize("defended", [False, True])
def test_functions_that_the_server_invents_to_use_two_batch_sizes(
    defended: bool, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not defended:
        monkeypatch.setattr(request, "TASKS", {**TASKS, "train.1": TASKS["train"]})
    set_weights()
    sums: dict[int, Any] = {}
    reasons: Mapping[str, str] = {}
    with Ledger.open(server_home() / "ledger.sqlite") as ledger:
        rounds = aggregator(Batches(2), ledger, colluders=0)
        for number, (function, batch) in enumerate([("train", 16), ("train", 48), ("train.1", 48)]):
            asked = assignment({"w": np.zeros(3, np.float32)}, number, {"batch-size": batch})
            mean = rounds.mean(replace(asked, function=function), 1)
            reasons = rounds.reasons
            if mean is not None:
                sums[batch] = 2 * mean.arrays["w"].astype(float)
    if defended:
        assert list(sums) == [16]
        assert all("does not fit the recipe" in reason for reason in reasons.values())
        return
    solve(sums)


def leave_out_varying(value: object, path: str = "") -> Iterator[tuple[str, bytes]]:
    """Yield the leaves of a configuration without those below a key that varies, at any depth."""
    for leaf, content in flatten(value, path):
        if not any(repr(key) in leaf for key in VARYING):
            yield leaf, content


@pytest.mark.parametrize("defended", [False, True])
def test_jobs_with_another_value_below_a_key_that_varies_in_a_models_meta(
    defended: bool, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Configured(Batches):
        def batch(self, site: str, _work: Work) -> int:
            return int(self.apps[site].config["args"]["server-round"])

    if not defended:
        monkeypatch.setattr(request, "flatten", leave_out_varying)
    set_weights()
    sums: dict[int, Any] = {}
    with Ledger.open(server_home() / "ledger.sqlite") as ledger:
        for run, batch in ((7, 16), (8, 48)):
            app = SiteApp({"args": {"server-round": batch}}, APP.files)
            rounds = aggregator(Configured(2, dict.fromkeys(EXAMPLES, app)), ledger, run, colluders=0)
            mean = rounds.mean(assignment({"w": np.zeros(3, np.float32)}), 1)
            if mean is not None:
                sums[batch] = 2 * mean.arrays["w"].astype(float)
    if defended:
        assert list(sums) == [16]
        return
    solve(sums)
