"""What a site reads of a job's configuration and what it refuses, with NVFlare's own configurator beside it."""

import copy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

pytest.importorskip("nvflare", reason="needs coterie[nvflare]")

from tests.support.nvflare_jobs import FILE, STREAMER, TRAINER, built, deploy, job, read
from tests.support.nvflare_jobs import site_environment as site_environment

from coterie.errors import ConfigError
from coterie.transports.nvflare.job_config import read_app

RATES = {"site-1": "0", "site-2": "0.1"}


@pytest.mark.parametrize(
    "config",
    [
        job("{SITE_NAME}"),
        job("--params {SITE_NAME}.json"),
        job("lr={{rates[{SITE_NAME!s}]}}", rates=RATES),
        job("0.{SITE_NAME[5]}"),
        job("{places:.{SITE_NAME[5]}}", places=0.1234),
        job("lr={$RATE_OF_SITE}"),
        job("lr={components[0][id]}", {"id": "0.1", "path": TRAINER}),
        job("--batch {server-round}", **{"server-round": 16}),
        job("{{}}"),
    ],
    ids=lambda config: config["executors"][0]["executor"]["args"]["executor"]["args"]["model_name"],
)
def test_a_configuration_that_nvflare_changes_on_a_site_is_refused(
    config: dict[str, Any], site_environment: None, tmp_path: Path
) -> None:
    app = deploy(tmp_path, config)
    given_text = config["executors"][0]["executor"]["args"]["executor"]["args"]["model_name"]
    assert built(app, "site-1") != given_text  # NVFlare itself replaces it
    with pytest.raises(ConfigError, match="which NVFlare replaces on each site"):
        read(app)


@pytest.mark.parametrize("path", ["{JobLogStreamer}", "{@made:rate=0.1}"])
def test_components_that_are_references_are_refused(path: str, tmp_path: Path) -> None:
    made = {"@made": {"path": TRAINER, "args": {"model_name": "{rate}"}}}
    app = deploy(tmp_path, job("x", {"id": "a", "path": path}, JobLogStreamer=TRAINER, **made))
    with pytest.raises(ConfigError, match=r"which NVFlare replaces|cannot resolve"):
        read(app)


def test_references_to_secrets_of_a_site_are_refused(tmp_path: Path) -> None:
    for text in ("--rate ${secret:RATE}", "--rate ${secret:file:/etc/rate}"):
        with pytest.raises(ConfigError, match="which NVFlare replaces on each site"):
            read(deploy(tmp_path, job(text)))


def test_braces_that_nvflare_leaves_alone_are_no_references(site_environment: None, tmp_path: Path) -> None:
    for text in ("--json {'a': 1, 'b': {}}", "{other} and {more}", "a { b", "100 %"):
        app = deploy(tmp_path, job(text))
        assert built(app, "site-1") == text
        assert read(app).config == job(text)


TEMPLATES = (
    "{",
    "}",
    "{{",
    "}}",
    "SITE_NAME",
    "$RATE_OF_SITE",
    "rate",
    "rates",
    "[5]",
    "[site-1]",
    "!s",
    ":",
    ".2",
    "x",
)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.lists(st.sampled_from([*TEMPLATES, " "]), max_size=9).map("".join))
def test_an_accepted_text_is_the_same_on_every_site(text: str, site_environment: None, tmp_path: Path) -> None:
    app = deploy(tmp_path, job(text, rate=0.25, rates=RATES))
    try:
        read(app)
    except ConfigError:
        assume(False)
    assert [built(app, site) for site in ("site-1", "site-2", "s")] == [text] * 3


def streamer(**args: Any) -> dict[str, Any]:  # noqa: ANN401
    """Return the component that NVFlare adds to a job to send the error log, with other arguments."""
    added = {"target_parent_server": True, "log_file_name": "error_log.txt", **args}
    return {"id": "auto_log_streamer", "path": STREAMER, "args": added}


def test_a_site_whose_error_log_is_sent_has_the_same_app_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    other = {"id": "a", "path": "b.C"}
    plain = read(deploy(tmp_path, job("x", other)))
    assert plain.config == job("x", other)
    assert "allow_log_streaming" not in caplog.text
    for added in (streamer(), streamer(poll_interval=2.5, liveness_interval=5)):
        assert read(deploy(tmp_path, job("x", other, added))) == plain
        assert "set allow_log_streaming to false" in caplog.text
    assert read(deploy(tmp_path, job("y", other))).digest != plain.digest
    (tmp_path / "job" / "app" / "config" / FILE).unlink()
    with pytest.raises(ConfigError, match="cannot be read"):
        read(tmp_path / "job" / "app")


@pytest.mark.parametrize(
    "components",
    [
        [streamer(log_file_name="log.txt")],
        [{"id": "auto_log_streamer", "path": STREAMER}],
        [{**streamer(), "id": "mine"}],
        [{**streamer(), "more": 1}],
        [streamer(more=1)],
        [streamer(poll_interval="0.1")],
        [streamer(), {"id": "a", "path": "b.C"}],
        [streamer(), streamer()],
    ],
)
def test_another_sender_of_logs_than_nvflares_own_is_compared(components: list[Any], tmp_path: Path) -> None:
    app = deploy(tmp_path, job("x", *components))
    assert read(app).digest != read(deploy(tmp_path, job("x"))).digest


def test_a_component_that_is_only_called_like_the_sender_is_compared(tmp_path: Path) -> None:
    digests = [
        read(deploy(tmp_path, job("x", {"id": "a", "path": "my_JobLogStreamer.X", "args": {"rate": rate}}))).digest
        for rate in (0, 0.1)
    ]
    assert digests[0] != digests[1]


def script(path: str) -> dict[str, Any]:
    config = copy.deepcopy(job("x"))
    config["executors"][0]["executor"]["args"]["executor"]["args"] = {"task_script_path": path}
    return config


def test_scripts_have_to_be_in_the_app(tmp_path: Path) -> None:
    for path in ("/opt/client.py", "../other/client.py", "custom/../../client.py"):
        with pytest.raises(ConfigError, match="must be relative to the app's folder"):
            read(deploy(tmp_path, script(path)))
    for path in ("client.py", "src/client.py"):
        assert read(deploy(tmp_path, script(path))).config == script(path)


def test_a_script_has_to_be_the_only_one_that_its_path_may_name(tmp_path: Path) -> None:
    app = deploy(tmp_path, job("x"))
    for place in ("a/src", "src"):
        (app / "custom" / place).mkdir(parents=True)
        (app / "custom" / place / "client.py").write_text("")
    for path in ("client.py", "src/client.py"):
        with pytest.raises(ConfigError, match="the app has several"):
            read(deploy(tmp_path, script(path)))
    assert read(deploy(tmp_path, script("a/src/client.py"))).config == script("a/src/client.py")
    (app / "custom" / "client.py").write_text("")  # NVFlare looks there first
    assert read(deploy(tmp_path, script("client.py"))).config == script("client.py")


def test_paths_into_the_workspace_outside_of_the_app_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "workspace"
    app = deploy(site, job("x"))
    other = deploy(site, {"rate": 0.1}, "other") / "config" / FILE
    (tmp_path / "link").symlink_to(other)
    (app / "custom").mkdir()
    (app / "custom" / "rates.json").write_text("1")
    monkeypatch.chdir(site)
    refused = [
        f"--params {other}",
        f"--params={other}",
        f"-I{other.parent}",
        f"file://{other}",
        f"--params {site}/later/meta.json",  # it may come with a job that starts later
        "--params ../meta.json",
        "--params custom/../../../meta.json",
        f"--params other/app/config/{FILE}",  # from where the process was started
        f"--params {tmp_path}/link",
        str(site),
        "--data other",  # a folder of another job, without a slash
        f"--params app/config/{FILE}",  # the app has such a file too, and the process is in another folder
        "--params other/app/config/a,b.json",  # the server chooses this name
    ]
    decoy = app / "app" / "config"
    decoy.mkdir(parents=True)
    for folder in (decoy, site / "app" / "config"):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / FILE).write_text("{}")
    for config in [*map(job, refused), job("x", more={str(other): 1})]:
        deploy(site, config)
        with pytest.raises(ConfigError, match="in NVFlare's workspace and not in the app's folder"):
            read(app)
    for text in (
        "--data /data/mnist",
        f"--data {tmp_path}/data",
        "custom/rates.json",
        "--metric train/loss",
        "local",  # a folder of the operator
        "a/" * 5000,
    ):
        assert read(deploy(site, job(text))).config == job(text)


@pytest.mark.parametrize(
    "text",
    [
        "/proc/self/cwd/../../other/x",
        "--params=//proc/./self/cwd/x",
        "../../../proc/1/root",
        "-i/dev/fd/3",
        "/dev/stdin",
    ],
)
def test_paths_that_are_others_in_each_process_are_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="may be in NVFlare's workspace"):
        read(deploy(tmp_path, job(text)))
    for other in ("/dev/shm/mnist", "proc", "the process/of", "/data/process"):  # noqa: S108 - a place of data
        assert read(deploy(tmp_path, job(other))).config == job(other)


@pytest.mark.parametrize("text", ["--data /mnt/proc/images", "data/proc/train.csv", "--cache /srv/dev/fd-study/fd"])
def test_a_folder_that_is_only_called_like_that_of_processes(text: str, tmp_path: Path) -> None:
    assert read(deploy(tmp_path, job(text)))


def test_a_link_to_a_place_beside_the_files_of_processes(tmp_path: Path) -> None:
    """The system follows a link before it goes to the folder above."""
    (tmp_path / "link").symlink_to("/usr")
    with pytest.raises(ConfigError, match="workspace"):
        read(deploy(tmp_path / "site-1", job(f"{tmp_path}/link/../proc/self/environ")))


def test_a_path_into_a_workspace_whose_path_has_a_space_is_refused(tmp_path: Path) -> None:
    site = tmp_path / "of a site"
    with pytest.raises(ConfigError, match="in NVFlare's workspace and not in the app's folder"):
        read(deploy(site, job(f"--data /data --params {site}/other/x.json")))
    own = job(f"--data /data --params {site}/job/app/custom/x.json")
    assert read(deploy(site, own)).config == own


@pytest.mark.parametrize(
    "text", ['{"rate": NaN}', '{"rate": -Infinity}', "layers: {1: 0.1}", "[]", '"x"', "[" * 5000, ""]
)
def test_a_configuration_that_is_no_json_document_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(text)
    with pytest.raises(ConfigError, match="cannot be read as JSON"):
        read_app(tmp_path, tmp_path)


def test_a_configuration_in_hocon_is_refused(tmp_path: Path) -> None:
    """It may include an address: NVFlare would read one text, and the site compare another."""
    (tmp_path / "config_fed_client.conf").write_text("format_version = 2\nexecutors = []\ncomponents = []\n")
    with pytest.raises(ConfigError, match="write the client's part of the job in JSON"):
        read_app(tmp_path, tmp_path)
