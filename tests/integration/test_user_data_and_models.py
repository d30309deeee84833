"""Whole runs on data and code of the user: clients, examples in many forms, models and policies."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="training needs coterie[train]")
import torch
from safetensors import safe_open
from tests.support.interruptions import stored_model
from tests.support.user_code import FirstCircles, RoundRobin, load_clients
from tests.support.user_runs import go
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data import Dataset as TorchDataset

from coterie.api import train
from coterie.cohorts.circles import random_circles
from coterie.cohorts.ledger import Outcome
from coterie.errors import ConfigError, InputError
from coterie.runs.algorithms import algorithm_of
from coterie.runs.engine.run import TrainingRun
from coterie.runs.records.record import RoundRecord, Stop
from coterie.runs.report.observers import Observer
from coterie.runs.report.words import in_words
from coterie.runs.settings.toml import load_config
from coterie.runs.storage.folder import RunFolder
from coterie.training import Metric

MINE = "tests.support.user_code"


def test_clients_by_name_are_always_available(tmp_path: Path) -> None:
    result = go(tmp_path / "run", rounds=12)
    assert {name for record in result.records for name in record.aggregated} == {f"site-{n}" for n in range(6)}
    assert all(record.outcome is Outcome.COMPLETED and len(record.aggregated) == 4 for record in result.records)
    assert result.accuracy is not None
    assert result.accuracy > 0.9
    assert result.privacy == 2


def test_availability_and_faults_can_be_set(tmp_path: Path) -> None:
    harsh = {"availability.dropout": 0.3, "faults.dropout": 0.3}
    result = go(tmp_path / "run", rounds=12, settings=harsh)
    assert result.summary.skipped
    assert result.summary.dropped


def test_all_forms_of_examples_give_the_same_run(tmp_path: Path) -> None:
    clients, _ = load_clients()
    tensors = {
        name: TensorDataset(torch.from_numpy(x).float(), torch.from_numpy(y)) for name, (x, y) in clients.items()
    }
    loaders = {name: DataLoader(data, batch_size=10, shuffle=True) for name, data in tensors.items()}
    for number, form in enumerate((clients, tensors, loaders)):
        go(tmp_path / str(number), clients=form)
    assert stored_model(tmp_path / "0") == stored_model(tmp_path / "1") == stored_model(tmp_path / "2")


def test_one_hot_rows_are_labels_and_a_note_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    clients, (test_x, test_y) = load_clients()
    rows = np.eye(3, dtype=np.float32)
    hot = {name: (x, rows[y]) for name, (x, y) in clients.items()}
    go(tmp_path / "labels")
    result = go(tmp_path / "rows", clients=hot, test_set=(test_x, rows[test_y]), progress=True)
    assert stored_model(tmp_path / "rows") == stored_model(tmp_path / "labels")
    assert result.accuracy is not None
    before, _, _ = capsys.readouterr().out.partition("round 1/4")
    assert "Targets are one-hot rows and are taken as labels" in before


def test_with_a_loss_of_the_user_several_outputs_stay_numbers(tmp_path: Path) -> None:
    clients, (test_x, test_y) = load_clients()
    rows = np.eye(3, dtype=np.float32)
    shapes = set()

    def loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        shapes.add((outputs.shape[1:], targets.shape[1:], targets.dtype))
        return (outputs - targets).square().sum(1)

    hot = {name: (x, rows[y]) for name, (x, y) in clients.items()}
    result = go(tmp_path / "run", clients=hot, test_set=(test_x, rows[test_y]), loss=loss)
    assert shapes == {(torch.Size([3]), torch.Size([3]), torch.float32)}
    assert result.accuracy is None
    assert result.summary.test_loss is not None
    with pytest.warns(UserWarning, match="Targets are whole, but of type float64, and are taken as numbers"):
        go(
            tmp_path / "floats",
            clients={name: (x, y[:, None] * np.ones(3)) for name, (x, y) in clients.items()},
            test_set=None,
        )


def test_batch_size_and_order_come_from_the_loaders_unless_they_are_given(tmp_path: Path) -> None:
    clients, _ = load_clients()
    tensors = {
        name: TensorDataset(torch.from_numpy(x).float(), torch.from_numpy(y)) for name, (x, y) in clients.items()
    }
    loaders = {name: DataLoader(data, batch_size=4) for name, data in tensors.items()}
    result = go(tmp_path / "loaders", clients=loaders)
    assert (result.summary.config.training.batch_size, result.summary.config.training.shuffle) == (4, False)
    go(tmp_path / "arrays", settings={"training.batch_size": 4, "training.shuffle": False})
    assert stored_model(tmp_path / "loaders") == stored_model(tmp_path / "arrays")
    with pytest.warns(UserWarning, match=r"training\.batch_size is 5, as the settings have it"):
        other = go(tmp_path / "given", clients=loaders, settings={"training.batch_size": 5})
    assert other.summary.config.training.batch_size == 5
    loaders["site-1"] = DataLoader(tensors["site-1"], batch_size=7)
    with pytest.raises(
        ConfigError, match=r"training.batch_size: the data loader of 'site-0' has 4 and that of 'site-1'"
    ):
        go(tmp_path / "odd", clients=loaders)
    assert not (tmp_path / "odd").exists()


class Augmented(TorchDataset[Any]):
    """Examples, each of which is moved a little whenever it is read."""

    def __init__(self, x: Any, y: Any, kind: str) -> None:  # noqa: ANN401
        self.x, self.y, self.kind = torch.as_tensor(x).float(), torch.as_tensor(y), kind
        self.reads = 0

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> Any:  # noqa: ANN401
        self.reads += 1
        if self.kind == "torch":
            moved = torch.rand(3)
        elif self.kind == "numpy":
            moved = torch.from_numpy(np.random.rand(3)).float()  # noqa: NPY002 - as transforms do
        elif self.kind == "random":
            moved = torch.tensor([random.random() for _ in range(3)])
        elif self.kind == "rare":  # in one example of ten
            moved = torch.full((3,), float(torch.rand(()) < 0.1))
        else:
            moved = torch.zeros(3)
        return self.x[index] + moved, self.y[index]


def augmented(kind: str) -> dict[str, Augmented]:
    return {name: Augmented(x, y, kind) for name, (x, y) in load_clients()[0].items()}


@pytest.mark.parametrize("kind", ["torch", "numpy", "random", "rare"])
def test_random_transforms_act_in_every_pass_and_runs_can_be_repeated(tmp_path: Path, kind: str) -> None:
    clients = augmented(kind)
    random.seed(5)
    go(tmp_path / "one", clients=clients)
    state = random.getstate()
    trained = sum(len(one) for one in clients.values()) * 4 * 5 * 4 / 6  # rounds x epochs x those in a round
    assert sum(one.reads for one in clients.values()) > trained
    random.seed(5)
    assert state == random.getstate()  # the program's own generators do not change
    torch.manual_seed(random.randrange(1000))
    go(tmp_path / "two", clients={name: DataLoader(one, batch_size=10, shuffle=True) for name, one in clients.items()})
    assert stored_model(tmp_path / "one") == stored_model(tmp_path / "two")
    go(tmp_path / "still", clients=augmented("none"))
    assert stored_model(tmp_path / "still") != stored_model(tmp_path / "one")


def test_a_run_on_random_transforms_is_resumed_to_the_same_bits_also_in_workers(tmp_path: Path) -> None:
    class Stopper(Observer):
        def after_round(self, record: RoundRecord) -> None:
            if record.round == 2:
                raise KeyboardInterrupt

    go(tmp_path / "whole", clients=augmented("numpy"))
    with pytest.raises(KeyboardInterrupt):
        go(tmp_path / "stopped", clients=augmented("numpy"), observers=[Stopper()])
    settings = {"training.executor": "processes", "training.workers": 2}
    go(tmp_path / "stopped", clients=augmented("numpy"), resume=True, settings=settings)
    assert stored_model(tmp_path / "stopped") == stored_model(tmp_path / "whole")
    others = {name: Augmented(one.x + 1, one.y, "numpy") for name, one in augmented("numpy").items()}
    with pytest.raises(ConfigError, match="the data differs from that of the run"):
        go(tmp_path / "stopped", clients=others, resume=True, rounds=5)


def test_a_loaders_own_collation_sees_whole_batches(tmp_path: Path) -> None:
    sizes: list[int] = []

    def mixed(items: list[Any]) -> tuple[torch.Tensor, torch.Tensor]:
        sizes.append(len(items))
        x, y = torch.stack([x for x, _ in items]), torch.stack([y for _, y in items])
        rows, other = nn.functional.one_hot(y, 3).float(), torch.randperm(len(items))
        return 0.8 * x + 0.2 * x[other], 0.8 * rows + 0.2 * rows[other]

    loaders = {name: DataLoader(one, batch_size=4, collate_fn=mixed) for name, one in augmented("none").items()}
    result = go(tmp_path / "run", clients=loaders)
    assert max(sizes) == 4
    assert result.accuracy is not None  # rows of single examples are one-hot: there are labels
    with pytest.raises(ConfigError, match=r"training\.executor: must be processes"):
        go(tmp_path / "fast", clients=loaders, settings={"training.executor": "vectorised"})


def test_more_rounds_later_keep_the_learning_rate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = go(tmp_path / "run")
    longer = go(tmp_path / "run", rounds=7, resume=True, progress=True)
    rates = [record.learning_rate for record in longer.records]
    assert rates[:4] == [record.learning_rate for record in whole.records]
    assert rates[4:] == [rates[3]] * 3
    before, _, _ = capsys.readouterr().out.partition("round 5/7")
    assert "falls until round 4 and stays at 0.0146" in before
    assert "Rounds 5 to 7 on your data: 6 clients, 4 in a round" in before
    again = go(tmp_path / "run", rounds=8, resume=True)
    assert [record.learning_rate for record in again.records] == [*rates, rates[3]]
    go(tmp_path / "run", rounds=7, resume=True, progress=True)
    said = capsys.readouterr().out
    assert said.startswith("All 8 rounds on your data were played before: 6 clients, ")
    assert "Your model with " in said


def test_circles_that_fill_the_cohort_are_chosen_and_a_note_reports_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    clients, _ = load_clients(20)
    result = go(tmp_path / "run", clients=clients, cohort=9, privacy=3, progress=True)
    assert [len(record.aggregated) for record in result.records] == [8] * 4
    assert result.privacy == 4
    before, _, _ = capsys.readouterr().out.partition("round 1/4")
    assert "Circles have at least 4 clients, not 3" in before
    assert "About 8.0 clients will be aggregated in a round on average, of a cohort of 9" in before
    again = go(tmp_path / "run", clients=clients, cohort=9, privacy=3, rounds=5, resume=True)
    assert len(again.records) == 5
    kept = go(tmp_path / "kept", clients=clients, cohort=9, settings={"cohort.privacy": 3})
    assert kept.privacy == 3
    go(tmp_path / "kept", clients=clients, cohort=9, privacy=3, rounds=5, resume=True)


def test_clipping_is_reported_in_its_round(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = go(tmp_path / "run", settings={"aggregation.clip": 1e-3}, progress=True)
    said = capsys.readouterr().out
    _, _, after = said.partition("round 1/4")
    during, _, _ = after.partition("round 2/4")
    assert result.records[0].clipped > 0.5
    assert f"Round 1: {result.records[0].clipped:.1%} of the entries of updates are clipped at ±0.001" in during
    assert said.count("of the entries of updates are clipped") == 1
    with pytest.warns(UserWarning, match="Round 1: .* clipped"):
        go(tmp_path / "quiet", settings={"aggregation.clip": 1e-3})


def test_a_list_of_few_clients_without_a_test_set_is_enough(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    clients, _ = load_clients(3)
    result = go(tmp_path / "run", clients=list(clients.values()), cohort=None, test_set=None, progress=True)
    assert result.summary.config.cohort.size == 3
    assert [record.test_loss for record in result.records] == [None] * 4
    assert all(record.completed for record in result.records)
    said = capsys.readouterr().out
    assert "training loss" in said
    assert "there are no test examples" in " ".join(said.split())
    assert "client-3" in result.records[0].aggregated
    assert (tmp_path / "run" / "report.html").stat().st_size > 10_000


class FirstToken(nn.Module):
    """Scores from the embeddings of tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.readout = nn.Embedding(10, 8), nn.Linear(8, 2)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.readout(self.embedding(tokens).mean(1))
        return scores


@pytest.mark.parametrize("executor", ["processes", "vectorised"])
def test_a_model_of_tokens_learns(tmp_path: Path, executor: str) -> None:
    rng = np.random.default_rng(0)
    tokens = rng.integers(0, 10, (400, 5))
    data = tokens, (tokens >= 5).sum(1) // 3
    settings = {"training.executor": executor, "training.learning_rate": 0.5}
    result = train(
        *(FirstToken, data, data),
        clients=8,
        rounds=15,
        settings=settings,
        out=tmp_path / "run",
        progress=False,
    )
    assert result.accuracy is not None
    assert result.accuracy > 0.8


def test_a_policy_without_circles_promises_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = go(tmp_path / "run", policy=RoundRobin(4), progress=True)
    said = (
        "4 rounds on your data: 6 clients; secure aggregation, no T promised over many rounds"  # as many as it selects
    )
    assert capsys.readouterr().out.startswith(said)
    firsts = [record.aggregated for record in result.records[:2]]
    assert firsts[0] == tuple(f"site-{number}" for number in range(4))
    assert set(firsts[1]) >= {"site-4", "site-5"}
    assert result.privacy == 1
    words = dict(algorithm_of(result.summary.config).words(result.summary))["Privacy"]
    assert "no number of rounds" not in words.lower()


def test_a_policy_with_circles_is_held_to_them(tmp_path: Path) -> None:
    circles = random_circles(6, 2, np.random.default_rng(7))
    result = go(tmp_path / "run", policy=FirstCircles(circles))
    assert result.privacy == 2
    assert all(record.completed and len(record.aggregated) == 4 for record in result.records)
    again = go(tmp_path / "run", policy=FirstCircles(circles), resume=True, rounds=5)
    assert again.records[:4] == result.records
    assert again.records[4].aggregated == result.records[0].aggregated


@pytest.mark.parametrize(("policy", "promised"), [("RoundRobin", 1), ("FirstCircles", 2)])
def test_settings_name_data_model_and_policy(tmp_path: Path, policy: str, promised: int) -> None:
    overrides = [
        *(f"data={MINE}:load_clients", f"model={MINE}:make_model", f"cohort.policy={MINE}:{policy}"),
        *("clients.count=6", "cohort.size=4", "rounds=3", "training.workers=0", "availability.kind=equal"),
        *("availability.dropout=0.0", "faults.dropout=0.0"),
    ]
    result = TrainingRun.begin(tmp_path / "run", load_config(None, overrides)).play()
    assert result.privacy == promised
    assert all(record.completed for record in result.records)
    kept = load_config(tmp_path / "run" / "config.toml")
    assert (kept.data.name, kept.cohort.policy) == (f"{MINE}:load_clients", f"{MINE}:{policy}")


def test_an_epsilon_is_solved_for_and_kept_when_a_run_is_resumed(tmp_path: Path) -> None:
    whole = go(tmp_path / "whole", epsilon=8, settings={"cohort.minimum": 4})
    assert whole.summary.epsilon is not None
    assert whole.summary.epsilon == pytest.approx(8)
    assert whole.summary.epsilon <= 8
    noise = load_config(tmp_path / "whole" / "config.toml").noise
    assert (noise.kind, noise.epsilon) == ("discrete-gaussian", 8)
    assert (
        f"noise.multiplier = {noise.multiplier:.5g} was solved for noise.epsilon = 8"
        in dict(in_words(whole.summary))["Noise"]
    )

    class Interruption(Observer):
        def after_round(self, record: RoundRecord) -> Stop | None:
            return Stop("enough") if record.round == 2 else None

    go(tmp_path / "parts", epsilon=8, settings={"cohort.minimum": 4}, observers=[Interruption()])
    parts = go(tmp_path / "parts", epsilon=8, settings={"cohort.minimum": 4}, resume=True, ignore_stop=True)
    assert load_config(tmp_path / "parts" / "config.toml").noise == noise
    assert parts.summary.epsilon == whole.summary.epsilon
    with pytest.raises(ConfigError, match=r"noise.epsilon was 8.0 and is 9.0"):
        go(tmp_path / "parts", epsilon=9, settings={"cohort.minimum": 4}, resume=True)


def test_a_wrong_epsilon_or_two_of_them_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="give only one of the two"):
        go(tmp_path / "run", epsilon=8, settings={"noise.epsilon": 4})
    with pytest.raises(ConfigError, match="epsilon is a number above 0"):
        go(tmp_path / "run", epsilon=0)
    with pytest.raises(ConfigError, match=r"needs noise.kind, which is none"):
        go(tmp_path / "run", epsilon=8, settings={"noise.kind": "none"})
    assert not (tmp_path / "run").exists()


# ------------------------------------------------------------------------- metrics, losses and named inputs


def right(outputs: np.ndarray, labels: np.ndarray) -> float:
    """The number of correct answers, which is no share."""
    return float((outputs.argmax(1) == labels).sum())


def test_a_metric_of_the_users_is_recorded_drawn_and_can_end_a_run(tmp_path: Path) -> None:
    wrong = Metric(lambda outputs, labels: len(labels) - right(outputs, labels), larger=False)
    settings = {"stopping.metric": "own:wrong:smaller", "stopping.patience": 2, "training.metrics": ["top3_accuracy"]}
    result = go(tmp_path / "run", metric={"right": right, "wrong": wrong}, rounds=30, settings=settings)
    assert result.summary.config.training.metrics == ("own:right", "own:wrong:smaller", "top3_accuracy")
    last = result.records[-1]
    assert result.accuracy is not None
    assert getattr(last, "right") == 120 - getattr(last, "wrong") == pytest.approx(120 * result.accuracy)  # noqa: B009
    values = [getattr(record, "wrong") for record in result.records]  # noqa: B009
    assert min(values[-2:]) >= min(values[:-2])
    assert "The wrong has not improved" in result.summary.stopped
    page = (tmp_path / "run" / "report.html").read_text()
    assert f"right {last.right:.4g} (larger is better), wrong {last.wrong:.4g} (smaller is better)" in page  # type: ignore[attr-defined]
    assert "Metrics on the test examples. right: larger is better; wrong: smaller is better." in page
    assert RunFolder.open(tmp_path / "run").records() == list(result.records)  # without the functions
    again = go(tmp_path / "run", metric={"right": right, "wrong": wrong}, rounds=30, settings=settings, resume=True)
    assert again.records == result.records
    with pytest.raises(ConfigError, match=r"the run began under other settings: training\.metrics"):
        go(tmp_path / "run", metric=right, rounds=30, resume=True)


def failing(outputs: np.ndarray, labels: np.ndarray) -> float:
    raise KeyError("no such class")


@pytest.mark.parametrize(
    ("metric", "said"),
    [
        (failing, r"your metric 'failing' failed on outputs of shape \(120, 3\) .* KeyError: 'no such class'"),
        (lambda outputs, labels: float("nan"), "your metric 'metric' is nan on 120 test examples"),
        ({"accuracy": right}, "records have a column accuracy already"),
        ({"a metric": right}, "the name 'a metric' must be letters, digits and _"),
        ({"f1": "f1"}, "'f1' must be a function from outputs and targets to a number, not 'f1'"),
    ],
)
def test_a_metric_that_cannot_work_is_refused_before_the_first_round(tmp_path: Path, metric: Any, said: str) -> None:  # noqa: ANN401
    with pytest.raises((ConfigError, InputError), match=said):
        go(tmp_path / "run", metric=metric)
    assert not (tmp_path / "run").exists()


def test_a_metric_needs_test_examples(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="a metric of yours needs test examples"):
        go(tmp_path / "run", metric=right, test_set=None)


def test_settings_name_a_metric_of_the_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_metrics.py").write_text("def answers(outputs, labels):\n    return len(labels)\n")
    (tmp_path / "my_data.py").write_text(f"from {MINE} import load_clients, make_model\n")
    config = load_config(
        None,
        ["data=my_data:load_clients", "model=my_data:make_model", "clients.count=6", "cohort.size=4", "rounds=1",
         'training.metrics=["my_metrics:answers:smaller"]'],
    )  # fmt: skip
    result = TrainingRun.begin(tmp_path / "run", config).play()
    assert getattr(result.records[-1], "answers") == 120  # noqa: B009
    odd = config.model_copy(update={"training": config.training.model_copy(update={"metrics": ("own:answers",)})})
    with pytest.raises(ConfigError, match="the metric answers comes from a Python program"):
        TrainingRun.begin(tmp_path / "other", odd)


class Named(nn.Module):
    """A model with two named inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, point: torch.Tensor, sign: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.layer(point) * sign[:, None]
        return scores


@pytest.mark.parametrize("executor", ["processes", "vectorised"])
def test_named_inputs_give_the_same_run_as_one_input(tmp_path: Path, executor: str) -> None:
    clients, (test_x, test_y) = load_clients()
    named = {name: ({"point": x, "sign": np.ones(len(x), np.int64)}, y) for name, (x, y) in clients.items()}
    settings = {"training.executor": executor}
    plain = go(tmp_path / "plain", settings=settings)
    result = go(
        tmp_path / "named",
        model=Named,
        clients=named,
        test_set=({"point": test_x, "sign": np.ones(len(test_x), np.int64)}, test_y),
        settings=settings,
    )
    assert isinstance(result.model, Named)
    assert [record.accuracy for record in result.records] == [record.accuracy for record in plain.records]
    with safe_open(tmp_path / "named" / "model.safetensors", "numpy") as file:
        assert set(file.keys()) == {"layer.weight", "layer.bias"}
        assert np.array_equal(file.get_tensor("layer.weight"), plain.model.state_dict()["weight"].numpy())


def each_in_a_row(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(outputs, labels, reduction="none")[:, None]


def test_losses_in_columns_and_mean_losses_train(tmp_path: Path) -> None:
    accuracies = set()
    for number, loss in enumerate((None, nn.CrossEntropyLoss(), each_in_a_row)):
        accuracies.add(go(tmp_path / str(number), loss=loss, settings={"training.executor": "processes"}).accuracy)
    assert len(accuracies) == 1


def test_drop_last_comes_from_the_loaders(tmp_path: Path) -> None:
    clients, _ = load_clients()
    loaders = {
        name: DataLoader(TensorDataset(torch.from_numpy(x).float(), torch.from_numpy(y)), batch_size=7, drop_last=True)
        for name, (x, y) in clients.items()
    }
    result = go(tmp_path / "loaders", clients=loaders)
    assert result.summary.config.training.drop_last
    go(tmp_path / "given", settings={"training.batch_size": 7, "training.shuffle": False, "training.drop_last": True})
    go(tmp_path / "kept", settings={"training.batch_size": 7, "training.shuffle": False})
    assert stored_model(tmp_path / "loaders") == stored_model(tmp_path / "given") != stored_model(tmp_path / "kept")
