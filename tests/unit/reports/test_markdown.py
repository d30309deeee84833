"""Tables and lists in Markdown."""

from coterie.reports.markdown import bullets, table


def test_a_table_has_its_numbers_on_the_right() -> None:
    assert table(("scheme", "T"), [("random", "1"), ("circles", "3")]).splitlines() == [
        "| scheme | T |",
        "| --- | ---: |",
        "| random | 1 |",
        "| circles | 3 |",
    ]


def test_a_list_has_an_item_on_each_line() -> None:
    assert bullets(["one", "two"]) == "- one\n- two"
    assert bullets([]) == ""
