"""The explorer in a real browser: what it shows, how it is used, and whether it is accessible."""

import base64
import json
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.explorer import explorer as explorer
from tests.support.explorer import running_explorer

from coterie.explorer import server as server_module
from coterie.explorer.export import export_page
from coterie.explorer.leaks import LeakSettings, play_story
from coterie.explorer.people import NAMES, SIDE, pictures
from coterie.explorer.plans import PlanSettings, make_plan
from coterie.explorer.requests import REQUESTS, Request
from coterie.explorer.server import ExplorerServer

if TYPE_CHECKING:
    from tests.browser.conftest import Page

VIEWS = {"leak": "#/leak?story=naive&seed=7&round=7", "plan": "#/plan", "log": "#/log", "server": "#/server"}
READY = {
    "leak": "document.querySelectorAll('.person').length === 12",
    "plan": "document.querySelectorAll('.three .value').length === 3",
    "log": "document.querySelector('.drop') !== null",
    "server": "document.querySelector('.mean canvas') !== null",
}


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> str:
    return export_page(tmp_path_factory.mktemp("copy")).as_uri()


def show(page: "Page", base: str, view: str, place: str | None = None, **emulated: Any) -> None:  # noqa: ANN401
    page.visit(base + (place or VIEWS[view]), **emulated)
    page.wait_for(READY[view])


def pixels(page: "Page", canvas: str) -> list[int]:
    """Return what a canvas shows: red, green and blue of each pixel."""
    script = (
        "(() => { const c = %s; const all = [...c.getContext('2d').getImageData(0, 0, c.width, c.height).data];"
        " return all.filter((_, at) => at % 4 !== 3); })()"
    )
    found: list[int] = page.evaluate(script.replace("%s", canvas))
    return found


def texts(page: "Page", selector: str) -> list[str]:
    found: list[str] = page.evaluate(f"[...document.querySelectorAll({selector!r})].map((one) => one.textContent)")
    return found


def click(page: "Page", selector: str) -> None:
    page.evaluate(f"document.querySelector({selector!r}).click()")


def enter(page: "Page", selector: str, value: object, event: str = "input") -> None:
    """Give a control a value, as a user does."""
    page.evaluate(
        f"(() => {{ const control = document.querySelector({selector!r}); control.value = '{value}';"
        f" control.dispatchEvent(new Event({event!r}, {{ bubbles: true }})); }})()"
    )


def audit_example(page: "Page") -> None:
    click(page, ".intake button")
    page.wait_for("document.querySelector('.certificate') !== null")


def press(page: "Page", key: str, code: int, text: str = "") -> None:
    for kind in ("keyDown", "keyUp"):
        page.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, text=text)


def drop(page: "Page", name: str, content: str, onto: str = ".drop") -> None:
    """Drop a file onto the page."""
    page.evaluate(
        "(() => { const data = new DataTransfer();"
        f" data.items.add(new File([{json.dumps(content)}], {json.dumps(name)}));"
        f" document.querySelector({onto!r}).dispatchEvent("
        "new DragEvent('drop', { dataTransfer: data, bubbles: true, cancelable: true })); })()"
    )


# Watch it leak.


def test_pictures_become_exact_when_the_library_says_so(page: "Page", explorer: ExplorerServer) -> None:
    show(page, explorer.url, "leak")
    leak = play_story(LeakSettings("naive", 7))
    exposed = {one["person"] for row in leak["rounds"][:7] for one in row["exposed"]}
    shown = page.evaluate(
        "[...document.querySelectorAll('.person')].filter((one) => one.classList.contains('exposed'))"
        ".map((one) => one.querySelector('.name').textContent)"
    )
    assert sorted(shown) == sorted(NAMES[person] for person in exposed)
    for person, name in enumerate(NAMES):
        canvas = f"document.querySelector('.person canvas[aria-label^=\"{name}:\"]')"
        off = max(
            abs(a - b) for a, b in zip(pixels(page, canvas), pictures()[person].reshape(-1).tolist(), strict=True)
        )
        assert (off <= 2) == (person in exposed), name
    assert f"{SIDE}" == page.evaluate("document.querySelector('.person canvas').getAttribute('width')")
    assert page.complaints == []


def test_the_witness_is_shown_in_words_and_as_a_picture(page: "Page", explorer: ExplorerServer) -> None:
    show(page, explorer.url, "leak", "#/leak?story=naive&seed=7&round=4")
    assert "Round 3 − round 4 = Gus’s picture." in texts(page, ".news")[0]
    assert texts(page, ".equation") == ["round 3−round 4=Gus"]
    assert texts(page, "tr.unit td:not(.zero)") == ["1"]
    assert page.evaluate("document.querySelectorAll('tr.plus, tr.minus').length") == 2


def test_marks_of_the_matrix_are_explained(page: "Page", explorer: ExplorerServer) -> None:
    show(page, explorer.url, "leak", "#/leak?story=whole&seed=7&round=0")
    assert texts(page, ".legend li") == []
    show(page, explorer.url, "leak", "#/leak?story=whole&seed=7&round=20")
    assert texts(page, ".legend li") == ["summed", "left during the round", "left out with its circle"]
    assert {"1", "0", "0, left during the round", "0, left out with its circle"} == set(texts(page, ".bits td .hidden"))
    show(page, explorer.url, "leak", "#/leak?story=circles&seed=7&round=20")
    assert texts(page, ".legend li") == ["summed"]


def test_a_sign_of_an_equation_is_beside_its_picture(page: "Page", explorer: ExplorerServer) -> None:
    """On a phone, where an equation takes several lines."""
    show(page, explorer.url, "leak", "#/leak?story=naive&seed=7&round=12", width=390)
    middles = page.evaluate(
        "[...document.querySelectorAll('.step:has(.sign)')].map((one) => [...one.children].map((part) => {"
        " const box = part.getBoundingClientRect(); return [box.top, box.bottom, box.left]; }))"
    )
    assert len(middles) > 20
    for (top, bottom, left), (other_top, other_bottom, other_left) in middles:
        assert other_top < (top + bottom) / 2 < other_bottom
        assert left < other_left


def test_news_of_one_person_and_of_several_have_the_right_verb(page: "Page", explorer: ExplorerServer) -> None:
    show(page, explorer.url, "leak", "#/leak?story=whole&seed=7&round=20&privacy=2&lost=0.15")
    found = set()
    for number in range(1, 21):
        enter(page, ".transport input", number)
        (news,) = texts(page, ".news")
        found |= set(re.findall(r"\. ([\w, ]+) (is|are) left out too", news))
    assert {verb for _, verb in found} == {"is", "are"}
    assert all((verb == "are") == (" and " in names) for names, verb in found)


def test_the_end_of_a_story_says_who_is_exposed(page: "Page", explorer: ExplorerServer) -> None:
    show(page, explorer.url, "leak", "#/leak?story=random&seed=7&round=20")
    assert "The rounds are over: everybody is exposed." in texts(page, ".news")[0]
    show(page, explorer.url, "leak", "#/leak?story=naive&seed=7&round=20")
    assert "The rounds are over: 10 of 12 people are exposed." in texts(page, ".news")[0]


def test_rounds_play_pause_and_scrub(page: "Page", explorer: ExplorerServer) -> None:
    show(page, explorer.url, "leak", "#/leak?story=random&seed=7&round=0", still=True)
    assert "knows nothing" in texts(page, ".news")[0]
    click(page, ".play")
    page.wait_for("Number(document.querySelector('.transport input').value) >= 1")
    assert texts(page, ".play") == ["Pause"]
    click(page, ".play")
    assert texts(page, ".play") == ["Play"]
    enter(page, ".transport input", 12)
    assert "Everybody is exposed" in texts(page, ".news")[0]
    assert texts(page, ".equation summary .many")[0] == "11 sums, added and subtracted"
    assert "round=12" in page.evaluate("location.hash")
    assert len(texts(page, ".person.exposed")) == 12


def test_the_explorer_can_be_used_by_keyboard(page: "Page", explorer: ExplorerServer) -> None:
    show(page, explorer.url, "leak", "#/leak?story=whole&seed=7&round=3", still=True)
    page.evaluate("document.querySelector('.transport input').focus()")
    press(page, "ArrowRight", 39)
    page.wait_for("location.hash.includes('round=4')")
    page.evaluate("document.activeElement.blur()")
    press(page, " ", 32, " ")
    page.wait_for("document.querySelector('.play').textContent === 'Pause'")
    press(page, " ", 32, " ")
    page.wait_for("document.querySelector('.play').textContent === 'Play'")
    page.evaluate("document.querySelector('.story input:checked').focus()")
    press(page, "ArrowLeft", 37)
    page.wait_for("location.hash.includes('story=naive')")
    page.wait_for("document.querySelector('.person.exposed') !== null")


def test_whole_circles_expose_no_person(page: "Page", explorer: ExplorerServer) -> None:
    show(page, explorer.url, "leak", "#/leak?story=whole&seed=7&round=20")
    assert texts(page, ".person.exposed") == []
    assert "nobody is exposed" in texts(page, ".news")[0]
    assert texts(page, ".circle h3") == ["Circle A", "Circle B", "Circle C", "Circle D"]
    assert set(texts(page, ".percent")) == {"33%"}
    assert "Every equation has 3 people or more" in texts(page, ".findings")[0]


def test_another_draw_has_other_rounds(page: "Page", explorer: ExplorerServer) -> None:
    show(page, explorer.url, "leak", "#/leak?story=naive&seed=7&round=9")
    click(page, ".again")
    page.wait_for("location.hash.includes('seed=8')")
    assert page.complaints == []


def test_the_size_of_circles_can_be_changed(page: "Page", explorer: ExplorerServer) -> None:
    show(page, explorer.url, "leak", "#/leak?story=whole&seed=7&round=20&privacy=4&lost=0.15")
    assert set(texts(page, ".percent")) == {"25%"}
    assert len(texts(page, ".circle")) == 3
    enter(page, ".fine select", 2, "change")
    page.wait_for("document.querySelectorAll('.circle').length === 6")
    assert "privacy=2" in page.evaluate("location.hash")
    assert set(texts(page, ".percent")) == {"50%"}
    click(page, ".story input")
    page.wait_for("[...document.querySelectorAll('.fine select')].every((select) => select.disabled)")


# Plan.


def test_a_plan_is_a_link(page: "Page", explorer: ExplorerServer) -> None:
    place = "#/plan?clients=200&cohort=20&privacy=5&absent=0.1&lost=0.01&collusion=0&rounds=50&epsilon=4&active=false"
    show(page, explorer.url, "plan", place)
    plan = make_plan(PlanSettings(200, 20, 5, 0.1, 0.01, 0.0, 50, 4.0))
    assert texts(page, ".three .value") == [number["value"] for number in plan["numbers"]]
    assert texts(page, ".sentence") == [plan["sentence"]]
    assert page.evaluate("location.hash") == place
    assert texts(page, ".knob output") == ["200", "20", "5", "10%", "1%", "0%", "50", "4"]


def test_sliders_and_bars_change_the_plan_and_the_link(page: "Page", explorer: ExplorerServer) -> None:
    show(page, explorer.url, "plan")
    page.evaluate("document.querySelector('#plan-privacy').focus()")
    press(page, "ArrowRight", 39)
    page.wait_for("location.hash.includes('privacy=5')")
    page.wait_for("document.querySelector('.bar.chosen .number').textContent === '5'")
    click(page, ".bar[data-privacy='2']")
    page.wait_for("document.querySelector('.bar.chosen .number').textContent === '2'")
    assert "privacy=2" in page.evaluate("location.hash")
    enter(page, "#plan-privacy", 30)
    page.wait_for("location.hash.includes('cohort=30')")  # a circle must fit into a cohort
    assert page.complaints == []


def test_a_plan_that_does_not_exist_has_a_reason(page: "Page", explorer: ExplorerServer) -> None:
    page.visit(f"{explorer.url}#/plan?clients=12&cohort=4&privacy=2&lost=0.5&collusion=0.3&active=true")
    page.wait_for("document.querySelector('.empty .notice') !== null", complaints=True)
    assert "No plan exists" in texts(page, ".empty")[0]
    assert [line for line in page.complaints if "422" not in line] == []


# Your log.


def test_a_dropped_log_gets_a_certificate(page: "Page", explorer: ExplorerServer) -> None:
    show(page, explorer.url, "log")
    drop(page, "mine.csv", "round,client\n1,ada\n1,ben\n2,ada\n2,ben\n2,cleo\n")
    page.wait_for("document.querySelector('.certificate') !== null")
    (certificate,) = texts(page, ".certificate")
    assert "1 of 3 clients is exposed" in certificate
    assert "round 2 − round 1 = cleo's update" in certificate or "−round 1 + round 2 = cleo's update" in certificate
    assert re.search(r"SHA-256[0-9a-f]{64}", certificate)
    assert "mine.csv" in certificate
    page.call("Emulation.setEmulatedMedia", media="print")
    hidden = "getComputedStyle(document.querySelector({!r})).display"
    assert page.evaluate(hidden.format(".intake")) == page.evaluate(hidden.format(".top")) == "none"
    printed = base64.b64decode(page.call("Page.printToPDF")["data"])
    page.call("Emulation.setEmulatedMedia", media="")
    assert printed.startswith(b"%PDF")
    assert page.complaints == []


def test_a_log_dropped_outside_the_zone_is_audited_and_not_opened(page: "Page", explorer: ExplorerServer) -> None:
    show(page, explorer.url, "log")
    drop(page, "mine.csv", "round,client\n1,ada\n1,ben\n", "h1")
    page.wait_for("document.querySelector('.certificate') !== null")
    show(page, explorer.url, "plan")
    drop(page, "mine.csv", "round,client\n1,ada\n1,ben\n", "h1")
    assert page.evaluate("document.querySelector('.certificate')") is None


def test_curves_of_a_quiet_log_claim_no_exposure(page: "Page", explorer: ExplorerServer) -> None:
    show(page, explorer.url, "log")
    drop(page, "mine.csv", "round,client\n1,ada\n1,ben\n2,ada\n2,ben\n")
    page.wait_for("document.querySelector('.certificate') !== null")
    assert texts(page, ".charts figcaption .quiet") == ["2 at the end; up to 2", "0 at the end"]
    assert page.evaluate("document.querySelectorAll('.curve.danger').length") == 0


def test_headings_of_the_list_are_not_broken_inside_a_word(page: "Page", explorer: ExplorerServer) -> None:
    show(page, explorer.url, "log", width=390)
    audit_example(page)
    lines = page.evaluate(
        "[...document.querySelectorAll('.list thead th')].map((one) => {"
        " const range = document.createRange(); range.selectNodeContents(one);"
        " return [range.getClientRects().length, one.textContent.split(' ').length]; })"
    )
    assert len(lines) == 3
    assert all(rows <= words for rows, words in lines), lines


def test_the_example_is_the_story_of_naive_dropout(page: "Page", explorer: ExplorerServer) -> None:
    show(page, explorer.url, "log")
    audit_example(page)
    found = sum(len(row["exposed"]) for row in play_story(LeakSettings("naive"))["rounds"])
    assert f"{found} of 12 clients are exposed" in texts(page, ".verdict h2")[0]


def test_a_hostile_log_is_shown_and_does_nothing(page: "Page", explorer: ExplorerServer) -> None:
    show(page, explorer.url, "log")
    drop(page, "<img src=x onerror=hacked=1>.csv", "round,client\n1,<script>hacked=1</script>\n2,<b>bold</b>\n")
    page.wait_for("document.querySelector('.certificate') !== null")
    assert "<script>hacked=1</script>" in texts(page, ".certificate")[0]
    assert page.evaluate("window.hacked") is None
    assert page.evaluate("document.querySelectorAll('main img, main script, main b').length") == 0


def test_an_unclear_log_is_refused_and_can_be_explained(page: "Page", explorer: ExplorerServer) -> None:
    show(page, explorer.url, "log")
    drop(page, "odd.csv", "fl,who,event\n1,a,done\n1,b,done\n1,c,gone\n2,a,done\n")
    page.wait_for("document.querySelector('.empty .notice') !== null", complaints=True)
    page.evaluate(
        "(() => { const set = (id, value) => { document.getElementById(id).value = value; };"
        " set('log-round_column', 'fl'); set('log-client_column', 'who'); set('log-where', 'event=done');"
        " document.querySelector('.reading').requestSubmit(); })()"
    )
    page.wait_for("document.querySelector('.certificate') !== null", complaints=True)
    assert "--round-column fl --client-column who --where event=done" in texts(page, ".certificate")[0]


# What the server saw.


def test_a_real_session_is_shown(page: "Page", explorer: ExplorerServer) -> None:
    show(page, explorer.url, "server")
    first = texts(page, ".hex")[0]
    assert re.fullmatch(r"(?:[0-9a-f]{2}[ \n]?){160}", first)
    assert "sum of 11 pictures" in texts(page, ".sum")[0]
    click(page, ".upload:nth-child(2)")
    assert "Ben" in texts(page, ".message h2")[0]
    click(page, ".upload:nth-child(1)")
    click(page, ".controls .primary")
    page.wait_for(f"document.querySelector('.hex').textContent !== {first!r}")
    assert page.complaints == []


def test_circles_are_left_out_whole_and_small_sums_stay_closed(page: "Page", explorer: ExplorerServer) -> None:
    show(page, explorer.url, "server", "#/server?leaving=1&circles=true&active=true")
    assert len(texts(page, ".upload.stranded")) == 2
    page.visit(f"{explorer.url}#/server?leaving=4&circles=true&active=false")
    page.wait_for("document.querySelector('.sum .notice') !== null")
    assert "Nothing was unmasked" in texts(page, ".sum")[0]


# Everywhere.


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("width", [390, 1360])
def test_nothing_is_wider_than_the_page_and_no_other_host_is_contacted(
    page: "Page", explorer: ExplorerServer, view: str, width: int
) -> None:
    show(page, explorer.url, view, width=width)
    if view == "log":
        audit_example(page)
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert all(url.startswith(explorer.url) for url in page.loaded())
    assert page.complaints == []


def test_the_player_has_room_for_the_largest_number_of_a_round(page: "Page", explorer: ExplorerServer) -> None:
    """On a phone, and with "Pause" on the button, which is the longer word."""
    show(page, explorer.url, "leak", width=375)
    enter(page, ".transport input", 20)
    page.wait_for("document.querySelector('.counter').textContent === '20 of 20'")
    row = "[...document.querySelectorAll('.transport > :not(.track, .news)')]"
    for name in ("Play", "Pause"):
        page.evaluate(f"document.querySelector('.play').lastChild.textContent = '{name}'")
        sides = page.evaluate(f"{row}.map((one) => one.getBoundingClientRect()).map((box) => [box.left, box.right])")
        assert all(right <= left for (_, right), (left, _) in pairwise(sorted(sides))), name
        assert page.evaluate(f"{row}.every((one) => one.scrollWidth <= one.clientWidth + 1)"), name
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_every_view_is_accessible(page: "Page", explorer: ExplorerServer, view: str, dark: bool) -> None:
    """The rules of axe-core: names and roles for screen readers, contrast, order, landmarks."""
    show(page, explorer.url, view, dark=dark, still=True)
    if view == "log":
        audit_example(page)
        page.evaluate("document.querySelector('details').open = true")
    assert page.find_barriers() == []


def test_views_are_links_with_titles_and_focus(page: "Page", explorer: ExplorerServer) -> None:
    show(page, explorer.url, "leak")
    for view, title in (("plan", "Plan"), ("log", "Your log"), ("server", "What the server saw")):
        click(page, f"nav a[href='#/{view}']")
        page.wait_for(f"document.title.startsWith({title!r})")
        assert texts(page, "nav a[aria-current]") == [title]
        assert page.evaluate("document.activeElement.tagName") == "H1"
        assert page.evaluate("[...document.querySelectorAll('.view')].filter((one) => !one.hidden).length") == 1
    page.evaluate("history.back()")
    page.wait_for("document.title.startsWith('Your log')")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_an_unknown_address_is_said_to_be_unknown(page: "Page", explorer: ExplorerServer, dark: bool) -> None:
    page.visit(f"{explorer.url}#/nonsense?clients=7", dark=dark)
    assert texts(page, ".view:not([hidden]) h1") == ["No such page."]
    assert page.evaluate("document.title").startswith("No such page")
    assert texts(page, "nav a[aria-current]") == []
    assert texts(page, ".missing li a") == texts(page, "nav a")
    assert page.find_barriers() == []
    click(page, ".missing a[href='#/plan']")
    page.wait_for("document.title.startsWith('Plan')")
    assert page.evaluate("document.querySelector('.missing').hidden")
    page.evaluate("history.back()")
    page.wait_for("document.title.startsWith('No such page')")
    assert page.complaints == []


@pytest.mark.parametrize("place", ["", "#/", "#main"])
def test_an_address_without_a_page_shows_the_first_view(page: "Page", explorer: ExplorerServer, place: str) -> None:
    """The link that skips to the content writes #main into the address."""
    page.visit(explorer.url + place)
    assert page.evaluate("document.title").startswith("Watch it leak")


def test_nothing_moves_if_reduced_motion_is_preferred(page: "Page", explorer: ExplorerServer) -> None:
    show(page, explorer.url, "leak", still=True)
    moving = "[...document.querySelectorAll('*')].some((one) => getComputedStyle(one).transitionDuration !== '0s')"
    assert page.evaluate(moving) is False
    assert page.evaluate("document.getAnimations().length") == 0


def test_the_copy_works_without_a_server(page: "Page", copy: str) -> None:
    show(page, copy, "leak")
    assert len(texts(page, ".person.exposed")) == 4
    click(page, ".again")
    page.wait_for("location.hash.includes('seed=2')")
    show(page, copy, "server")
    assert "Recorded when this copy was made" in texts(page, ".controls")[0]
    click(page, ".controls input")
    page.wait_for("document.querySelector('.upload.stranded') !== null")
    for view in ("plan", "log"):
        page.visit(f"{copy}#/{view}")
        page.wait_for("document.querySelector('.view:not([hidden]) .empty') !== null")
        assert "coterie explore" in texts(page, ".view:not([hidden]) .command")[0]
        assert not re.search("[Mm]ove a slider|[Dd]rop", texts(page, ".view:not([hidden])")[0])
    assert "computed when this copy was made" in texts(page, "#about")[0]
    assert page.complaints == []
    assert set(page.loaded()) <= {copy, *(f"{copy}#/{v}" for v in VIEWS)}


@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "open"])
def test_another_page_cannot_send_requests_to_the_explorer(
    page: "Page", tmp_path: Path, monkeypatch: pytest.MonkeyPatch, guarded: bool
) -> None:
    """The attack works with the check of the sender off, and fails with it on."""
    asked: list[str] = []

    def spied(path: str) -> Request:
        def answer(_query: str, _body: bytes) -> dict[str, Any]:
            asked.append(path)
            return {}

        return replace(REQUESTS[path], answer=answer)

    monkeypatch.setattr(server_module, "REQUESTS", {path: spied(path) for path in REQUESTS})
    if not guarded:
        monkeypatch.setattr(server_module._Handler, "_check_sender", lambda _self: None)
    foreign = tmp_path / "foreign.html"
    foreign.write_text("<!DOCTYPE html><title>foreign</title>")
    with running_explorer() as server:
        page.open_plainly(foreign.as_uri())
        page.evaluate(
            f"Promise.allSettled([fetch('{server.url}api/plan', {{ mode: 'no-cors' }}),"
            f" fetch('{server.url}api/audit', {{ method: 'POST', mode: 'no-cors', body: 'x' }})]).then(() => 0)"
        )
    assert sorted(asked) == ([] if guarded else ["/api/audit", "/api/plan"])


def test_a_stopped_server_is_reported(page: "Page") -> None:
    with running_explorer() as server:
        show(page, server.url, "server")
    click(page, ".controls .primary")
    page.wait_for("document.querySelector('.notice.danger') !== null", complaints=True)
    assert "Is coterie explore still running?" in texts(page, ".notice.danger")[0]
