"""Settings: all mistakes are reported at once with their places, and written settings are read back unchanged."""

import re
import tomllib
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Annotated, Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, TypeAdapter, ValidationError
from tests.support.interpreter import printed_by

from coterie.cohorts.availability import AVAILABILITIES
from coterie.cohorts.policies import POLICIES
from coterie.errors import ConfigError
from coterie.graphs.table import TOPOLOGIES
from coterie.privacy import DISTRIBUTIONS
from coterie.runs.algorithms import ALGORITHMS
from coterie.runs.sections.base import OneOf
from coterie.runs.sections.common import OWN, CohortSettings, StepName
from coterie.runs.settings.config import RunConfig
from coterie.runs.settings.toml import commented_toml, load_config, make_config, parse_config, to_toml
from coterie.secagg.server import Step
from coterie.training.data.datasets import DATASETS
from coterie.training.data.partitions import PARTITIONS
from coterie.training.models import MODELS


def complaints(path: Path | None = None, *overrides: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load_config(path, overrides)
    lines = str(caught.value).splitlines()
    if len(lines) > 1:
        assert lines[0] == f"{len(lines) - 1} settings are wrong:"
    return [line.strip() for line in lines[len(lines) > 1 :]]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "run.toml"


def test_the_commented_file_is_the_default(file: Path) -> None:
    file.write_text(commented_toml(file.name))
    assert load_config(file) == load_config() == RunConfig()


def settings(model: type[BaseModel], path: str = "") -> Iterator[tuple[str, str]]:
    for name, field in model.model_fields.items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            yield from settings(inner, f"{path}{name}.")
        else:
            yield f"{path}{name}", field.description or ""


def test_every_setting_is_explained() -> None:
    tree = tomllib.loads(commented_toml())
    for key, description in settings(RunConfig):
        assert description, key
        *sections, last = key.split(".")
        table = tree
        for section in sections:
            table = table[section]
        assert last in table
        first_words = " ".join(description.split()[:3])
        assert first_words in commented_toml().replace("\n# ", " ")


TABLES: list[tuple[str, Collection[str]]] = [
    ("data.name", {*DATASETS, OWN}),
    ("partition.kind", PARTITIONS),
    ("model.name", {*MODELS, OWN}),
    ("availability.kind", AVAILABILITIES),
    ("cohort.policy", {*POLICIES, OWN}),
    ("training.algorithm", ALGORITHMS),
    ("aggregation.topology", {*TOPOLOGIES, "auto"}),
    ("noise.kind", {*DISTRIBUTIONS, "none"}),
]


@pytest.mark.parametrize(("key", "table"), TABLES)
def test_choices_are_those_of_the_tables(key: str, table: Collection[str]) -> None:
    section, name = key.split(".")
    for choice in table:
        chosen = getattr(make_config({key: choice}), section)
        assert getattr(chosen, name) == choice
    (complaint,) = complaints(None, f"{key}={min(table)}x")
    assert complaint.endswith(f'not "{min(table)}x"; did you mean {min(table)}?')
    assert all(f"'{choice}'" in complaint for choice in table)
    explained = commented_toml().replace("\n# ", " ").split(f"[{section}]")[1]
    comment, *_ = re.findall(rf"\(([^\n()]*)\)\n{name} = ", explained)
    assert set(comment.split(" | ")) == set(table)


def test_a_new_entry_of_a_table_is_accepted_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MODELS, "perceptron", "perceptron")
    assert make_config({"model.name": "perceptron"}).model.name == "perceptron"
    assert "| perceptron | own)" in commented_toml().replace("\n# ", " ")


@given(st.lists(st.text(min_size=1), min_size=1, max_size=4, unique=True), st.text() | st.integers() | st.none())
def test_only_listed_names_can_be_chosen(names: list[str], other: object) -> None:
    chooser = TypeAdapter(Annotated[str, OneOf(dict.fromkeys(names[1:]), names[0])])
    assert [chooser.validate_python(name) for name in names] == names
    if other not in names:
        with pytest.raises(ValidationError) as caught:
            chooser.validate_python(other)
        (details,) = caught.value.errors()
        assert all(repr(name) in details["msg"] for name in names)
        assert details["msg"].endswith(f" or {names[0]!r}" if len(names) > 1 else f"be {names[0]!r}")


def test_steps_are_those_of_the_protocol() -> None:
    assert set(get_args(StepName)) == set(Step) - {Step.DONE, Step.CONTRIBUTE}


def test_settings_are_read_and_explained_without_anything_heavy() -> None:
    program = (
        "import sys; from coterie.runs.settings.toml import commented_toml, load_config\n"
        "commented_toml(); load_config(None, ['training.algorithm=local-only'])\n"
        "print(*{'torch', 'mpmath', 'scipy', 'sklearn', 'sqlalchemy'} & sys.modules.keys())"
    )
    assert printed_by(program) == "\n"


changes = st.fixed_dictionaries(
    {},
    optional={
        "name": st.from_regex(r"\A[A-Za-z0-9][A-Za-z0-9._-]{0,20}\Z"),
        "seed": st.integers(0, 2**62),
        "data.folder": st.text(st.characters(codec="utf-8"), max_size=20),
        "data.options": st.dictionaries(st.text("ab _\x7f\n", max_size=4), st.integers() | st.booleans(), max_size=3),
        "training.learning_rate": st.floats(1e-9, 1e9),
        "training.shuffle": st.booleans(),
        "training.schedule.milestones": st.lists(st.integers(0, 1000), max_size=4),
        "cohort.mode": st.sampled_from(["uniform", "fair", "fairest"]),
        "noise.delta": st.floats(1e-30, 0.5),
    },
)


@given(changes)
def test_what_is_written_is_read_back(tmp_path_factory: pytest.TempPathFactory, changed: dict[str, Any]) -> None:
    config = make_config(changed)
    file = tmp_path_factory.getbasetemp() / "written.toml"
    file.write_bytes(to_toml(config).encode())
    assert load_config(file) == config == parse_config(to_toml(config))


SHORT = {
    "data": ("name", "mnist", "folder", "/data"),
    "model": ("name", "lenet", None, None),
    "partition": ("kind", "dirichlet", "alpha", 0.1),
    "availability": ("kind", "equal", "dropout", 0.2),
    "aggregation": ("kind", "plain", "clip", 2.0),
    "noise": ("kind", "skellam", "multiplier", 2.0),
    "training.schedule": ("kind", "inverse", "decay", 0.5),
}


@pytest.mark.parametrize("section", SHORT)
@pytest.mark.parametrize("short_first", [True, False])
@pytest.mark.parametrize("in_file", [True, False])
def test_a_name_is_short_for_one_key_and_leaves_the_others(
    file: Path, section: str, short_first: bool, in_file: bool
) -> None:
    leading, name, key, value = SHORT[section]
    short = f"{section}={name}"
    more = [] if key is None else [f"{section}.{key}={value}"]
    if in_file:
        outer, _, last = section.rpartition(".")
        file.write_text(f'[{outer}]\n{last} = "{name}"\n' if outer else f'{last} = "{name}"\n')
        found = load_config(file, more)
    else:
        found = load_config(None, [short, *more] if short_first else [*more, short])
    assert found == load_config(None, [f"{section}.{leading}={name}", *more])
    tree: Any = found
    for part in section.split("."):
        tree = getattr(tree, part)
    assert getattr(tree, leading) == name
    assert key is None or str(getattr(tree, key)) == str(value)


def test_an_error_in_a_short_form_names_its_place(file: Path) -> None:
    file.write_text('seed = 1\ndata = "mnit"\n')
    (complaint,) = complaints(file)
    assert complaint.startswith(f"{file}:2: data.name: should be")
    (complaint,) = complaints(None, "partition=idd")
    assert complaint.startswith("set partition.kind: should be")
    (complaint,) = complaints(None, "cohort=5", "cohort.size=6")
    assert complaint == "cohort.size: cohort was set to 5; give either cohort or cohort.size, not both"


def test_every_mistake_is_reported_with_its_place(file: Path) -> None:
    file.write_text(
        "seed = -1\n"
        'nam = "x"\n'
        "[cohort]\n"
        'size = "8"\n'
        "privcy = 3\n"
        "[availability]\n"
        "low = 0.9\n"
        "[faults]\n"
        'steps = ["mask", "sleep"]\n'
        "[training.schedule]\n"
        'kind = "steep"\n'
    )
    found = complaints(file, "model.name=resnet", "rounds=0")
    assert sorted(found) == sorted(
        [
            f"{file}:1: seed: should be at least 0, not -1",
            f"{file}:2: nam: there is no such setting; did you mean name?",
            f'{file}:4: cohort.size: should be a whole number, not "8"',
            f"{file}:5: cohort.privcy: there is no such setting; did you mean privacy?",
            f"{file}:7: availability.low: must not be above high, 0.5",
            f"{file}:9: faults.steps.1: should be 'advertise', 'share', 'mask', 'confirm' or 'reveal', not \"sleep\"",
            f"{file}:11: training.schedule.kind: should be 'constant', 'milestones', 'inverse' or 'cosine', "
            'not "steep"',
            f"set model.name: should be {', '.join(map(repr, MODELS))}, 'own' or module:name, not \"resnet\"; "
            "did you mean lenet?",
            "set rounds: should be at least 1, not 0",
        ]
    )


def test_contradictions_between_sections_are_reported_together() -> None:
    found = complaints(
        None,
        "cohort.size=50",
        "cohort.privacy=60",
        "cohort.minimum=99",
        "aggregation.precision=53",
        'faults.steps=["confirm"]',
    )
    assert [line.split(":")[0] for line in found] == [
        "set cohort.size",
        "set cohort.minimum",
        "set cohort.privacy",
        "set faults.steps",
        "set aggregation.precision",
    ]


def test_contradictions_are_reported_unless_other_mistakes_may_cause_them() -> None:
    contradiction = ("cohort.size=50", 'faults.steps=["confirm"]')
    assert complaints(None, *contradiction, "model.name=resnet", "rounds=0")[-2:] == complaints(None, *contradiction)
    found = complaints(None, *contradiction, "clients.count=many")
    assert [line.split(":")[0] for line in found] == ["set clients.count", "set faults.steps"]
    assert len(complaints(None, *contradiction, "training.algorithm=fedavgg")) == 1


@pytest.mark.parametrize(
    ("overrides", "complaint"),
    [
        (["clients.count=41", "cohort.size=2", "cohort.privacy=2"], "the largest circle has 3 clients"),
        (["cohort.policy=balanced-halves", "cohort.size=7"], "balanced halves need an even cohort"),
        (["aggregation.threshold=9"], "a cohort of cohort.size = 8 has no 9 shares"),
        (["noise.kind=skellam", "aggregation.kind=plain"], "needs aggregation.kind = secure"),
        (["noise.sigma=0.5"], "needs noise.kind, which is none: no noise would be added; set it to discrete-gaussian"),
        (["noise.kind=skellam", "clients.weighting=samples"], "must be uniform with noise"),
        (
            ["noise.kind=skellam", "aggregation.threat=active-server", "aggregation.topology=harary"],
            "must be complete with noise",
        ),
        (
            ["noise.kind=skellam", "aggregation.topology=erdos-renyi", "aggregation.connection=0.7"],
            "must be complete or planned with noise",
        ),
        (
            ["noise.kind=skellam", "aggregation.topology=harary", "aggregation.threshold=5"],
            "must be complete or planned with noise",
        ),
        (["aggregation.collusion=0.5"], "c = 8 of clients.count = 40 may be in one session, and cohort.size = 8"),
        (
            ["aggregation.threat=active-server", "aggregation.collusion=0.25"],
            "raise cohort.size to c + 2 = 12 or more, or lower aggregation.collusion to 0.15 or less",
        ),
        (
            ["aggregation.threat=active-server", "aggregation.collusion=0.1", "aggregation.threshold=4"],
            "c = 4 colluders in one session could open every secret with 4 shares; take 5 or more, or 0",
        ),
        (["aggregation.collusion=-0.5"], "is a share of all clients, or -1"),
        (["noise.kind=skellam", "training.algorithm=local-only"], "aggregates nothing"),
        (["name=../elsewhere"], "should match pattern"),
        (["training.learning_rate=nan"], "finite"),
        (["nowhere.size=3"], "there is no such setting; known are name, seed"),
        (["seed.size=3"], "should be a whole number, not {"),
        (["cohort=3"], "is a section and has keys of its own, such as cohort.policy"),
        (["cohort=3", "cohort.size=3"], "give either cohort or cohort"),
        (["cohort.size"], "takes section.key=value"),
        (["cohort size=3"], "takes section.key=value"),
        (["cohort.size=[1"], "is not a TOML value"),
    ],
)
def test_each_mistake_has_its_message(overrides: list[str], complaint: str) -> None:
    (found,) = complaints(None, *overrides)
    assert complaint in found


def test_words_need_no_quotation_marks() -> None:
    config = load_config(None, ["model.name=lenet", 'data.name="cifar10"', "data.folder=~/my-data", "seed = 7"])
    assert (config.model.name, config.data.name, config.data.folder, config.seed) == (
        "lenet",
        "cifar10",
        "~/my-data",
        7,
    )


def test_settings_files_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    assert "there is no such file; coterie init writes" in complaints(tmp_path / "none.toml")[0]
    for content in (b"[cohort\n", b"name = '\xff'\n"):
        (tmp_path / "bad.toml").write_bytes(content)
        assert "is not TOML" in complaints(tmp_path / "bad.toml")[0]


def test_settings_cannot_be_changed_or_contradict_when_made_in_python() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        RunConfig().rounds = 3
    with pytest.raises(ValidationError, match=r"cohort\.privacy: a circle of 9 does not fit"):
        RunConfig(cohort=CohortSettings(privacy=9))
