"""Sites of NVFlare without NVFlare: tasks are handed to nodes at once, and a test decides which results get lost."""

import importlib.util
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from coterie.cohorts.ledger import Ledger
from coterie.deployment.aggregator import Aggregator
from coterie.deployment.engine import AppReply, Arrays, Assignment
from coterie.deployment.enrolment import Enrolment
from coterie.deployment.home import server_home
from coterie.deployment.reasons import Asked
from coterie.deployment.reception import Reception
from coterie.deployment.settings import PrivateSettings
from coterie.transports.nvflare.carrier import PLACE, NvflareCarrier, Result
from coterie.transports.nvflare.messages import TASK, Answer, NodeMessage, Rounds, Work, decode, encode, name_of
from coterie.transports.nvflare.names import WEIGHT
from coterie.transports.nvflare.request import SiteApp, TaskDelivery

MODEL: Arrays = {"w": np.zeros(3, np.float32), "count": np.array(5)}
APP = SiteApp({"executors": [{"args": {"task_script_args": "--rate 0.1"}}]}, {"client.py": "a1"})


class Sites:
    """The clients of a job; ``fault`` may take the place of what a site does."""

    def __init__(self, count: int, apps: Mapping[str, SiteApp] | None = None) -> None:
        self.names = [f"site-{number + 1}" for number in range(count)]
        self.apps = apps or {}
        self.trained: list[str] = []
        self.asked: list[tuple[str, NodeMessage]] = []
        self.results: dict[str, Result] = {}
        self.standing: set[tuple[str, int]] = set()
        self.gone: set[str] = set()
        self.aborted = False
        self.fault: Callable[[str, NodeMessage], bool] = lambda _site, _message: False
        """Tells whether a site does not answer a message."""
        self.code: dict[str, str] = {}
        """NVFlare's return codes of sites that do not answer through Coterie."""

    def sites(self) -> Collection[str]:
        return self.names

    def is_gone(self, site: str) -> bool:
        return site in self.gone

    def is_aborted(self) -> bool:
        return self.aborted

    def assign(self, site: str, data: bytes, seconds: float, result: Result) -> Callable[[], None]:
        message = decode(data, NodeMessage, "server")
        task = site, len(self.asked)
        self.asked.append((site, message))
        self.results[site] = result
        self.standing.add(task)
        if site in self.code and message.kind != "hello":
            result(None, self.code[site])
        elif not self.fault(site, message):
            result(self.answer(site, data), "")
        return lambda: self.standing.discard(task)

    def answer(self, site: str, data: object, task: str = TASK) -> bytes:
        """Answer as a process that was just started does."""
        delivery = TaskDelivery(task, data, site, lambda: self.app_of(site), self._train(site))
        answer = Reception().receive({"coterie-name": site}, delivery)
        assert not delivery.passed or not answer
        return answer if not delivery.passed else encode(Answer(b"the app's own reply"))

    def app_of(self, site: str) -> SiteApp:
        """Return the app of a job as it came to a site."""
        return self.apps.get(site, APP)

    def _train(self, site: str) -> Callable[[str, Arrays, Work], AppReply]:
        def train(_function: str, arrays: Arrays, work: Work) -> AppReply:
            self.trained.append(site)
            number = int(site.removeprefix("site-"))
            moved = {name: np.asarray(array + np.asarray(move(number), array.dtype)) for name, array in arrays.items()}
            return AppReply(moved, {WEIGHT: number, "train_loss": 1.0})

        return train


def move(number: int) -> float:
    """Return how far the site of this number moves the model."""
    return number / 8


def mean_of(sites: Collection[str]) -> float:
    """Return the weighted mean of the moves of these sites."""
    numbers = [int(site.removeprefix("site-")) for site in sites]
    return sum(number * move(number) for number in numbers) / sum(numbers)


def assignment(model: Arrays = MODEL, current: int = 0, meta: dict[str, Any] | None = None) -> Assignment:
    work = Work.of(model, meta or {}, Rounds(0, current, 3)).to_bytes()
    return Assignment("train", name_of(work), model, round=current, records=work)


def aggregator(sites: Sites, ledger: Ledger, run: int = 7, **settings: Any) -> Aggregator:  # noqa: ANN401 - of any type
    chosen = PrivateSettings(**{"deadline": 0.3, "weight": WEIGHT, **settings})
    carrier, home = NvflareCarrier(sites, run, look=0.01), server_home()
    enrolment = Enrolment(carrier, home, chosen, Asked(place=PLACE))
    return Aggregator(carrier, enrolment, ledger, chosen, PLACE)


class Learning(Sites):
    """Two sites, of which the second has an app that does not move the model."""

    def _train(self, site: str) -> Callable[[str, Arrays, Work], AppReply]:
        train = super()._train(site)

        def trains(function: str, arrays: Arrays, work: Work) -> AppReply:
            reply = train(function, arrays, work)
            return reply if self.rate(site) else AppReply(dict(arrays), reply.metrics)

        return trains

    def rate(self, site: str) -> float:
        """Return the learning rate of a site."""
        return 0.0 if site == "site-2" else 0.1


def check_update_of_one(sites: Learning, *, is_seen: bool) -> None:
    """Run a round, and check whether the server sees the update of the first site."""
    with Ledger.open(server_home() / "ledger.sqlite") as ledger:
        mean = aggregator(sites, ledger, most_examples=2).mean(assignment(), 1)
        revealed = set(ledger.revealed(1))
    if not is_seen:
        assert mean is None
        assert revealed == set()
        return
    assert mean is not None
    update = mean.arrays["w"] * mean.metrics[WEIGHT]  # site-1 has a weight of 1
    assert np.allclose(update, move(1), atol=1e-5)


def circles(folder: Path) -> list[set[str]]:
    """Return the circles of a population by the names of their clients."""
    from coterie.deployment.roster_folder import RosterFolder

    roster = RosterFolder(folder / "rosters").latest
    assert roster is not None
    return [{roster.names[number] for number in circle} for circle in roster.circles]


def script_at(path: Path) -> Any:  # noqa: ANN401 - the names of a script
    """Import a script as Python does, from its bytecode where there is any."""
    spec = importlib.util.spec_from_file_location("client", path)
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return script
