"""Code blocks of pages: how they are read, run and compared."""

from pathlib import Path

import pytest
from tests.support.page_blocks import PageError, PageRun, compare_output, find_faults, read_blocks, split_console

PAGE = """\
# A page

```{drawing} circles
A caption.
```

```{code-block} toml
:caption: my.toml

rounds = 3
```

```python
words = open("my.toml").read()
print(words, end="")
```
```text
rounds = 3
```

<!-- block: not run, it installs packages -->
```console
$ pip install .
```

<!-- block: slow -->
```console
$ cat my.toml && false
rounds = ...
$ echo $?
1
```
"""


def play(text: str, folder: Path, *, slow: bool = True) -> None:
    PageRun(folder).play(read_blocks(text), slow=slow)


def test_a_page_is_run_in_order(tmp_path: Path) -> None:
    assert find_faults(read_blocks(PAGE)) == []
    assert [block.language for block in read_blocks(PAGE)] == ["toml", "python", "text", "console", "console"]
    play(PAGE, tmp_path)


@pytest.mark.parametrize(
    ("old", "new"),
    [("```text\nrounds = 3", "```text\nrounds = 4"), ("rounds = ...", "nothing"), ("\n1\n```", "\n2\n```")],
)
def test_an_output_that_differs_is_an_error(tmp_path: Path, old: str, new: str) -> None:
    with pytest.raises(PageError, match="but this was printed"):
        play(PAGE.replace(old, new), tmp_path)


def test_slow_blocks_are_left_to_the_slow_tests(tmp_path: Path) -> None:
    play(PAGE.replace("rounds = ...", "nothing"), tmp_path, slow=False)


def test_one_slow_block_may_be_left_out_alone(tmp_path: Path) -> None:
    page = "<!-- block: slow alone -->\n```python\n1 / 0\n```\n\n```python\nopen('after', 'w')\n```\n"
    play(page, tmp_path, slow=False)
    assert (tmp_path / "after").exists()
    with pytest.raises(ZeroDivisionError):
        play(page, tmp_path)


def test_what_comes_before_an_excerpt_is_not_shown(tmp_path: Path) -> None:
    play("<!-- setup\nbefore = 3\n-->\n```python\nprint(before)\n```\n```text\n3\n```\n", tmp_path)


def test_a_block_may_be_left_to_a_test_that_has_its_commands() -> None:
    page = (
        "<!-- block: run by tests/speed/test_secagg_bench.py -->\n```console\n$ coterie bench secagg --active\n```\n"
        "<!-- block: run by tests/integration/test_examples.py -->\n```sh\npython examples/confined_peers.py\n```\n"
    )
    assert find_faults(read_blocks(page)) == []


def test_a_failure_that_the_page_does_not_show_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(PageError, match="the command before it ended with 3"):
        play("```console\n$ exit 3\n$ true\n```\n", tmp_path)
    with pytest.raises(PageError, match="the end of the page"):
        play("```console\n$ exit 3\n```\n", tmp_path)


def test_code_that_raises_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        play("```python\n1 / 0\n```\n", tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "```\ncoterie run\n```\n",
        "```toml\nrounds = 3\n```\n",
        "```text\nrounds = 3\n```\n",
        "<!-- block: later -->\n```python\n1\n```\n",
        "<!-- block: not run, I do not like it -->\n```python\n1\n```\n",
        "<!-- block: run by tests/unit/test_nothing.py -->\n```console\n$ coterie bench secagg\n```\n",
        "<!-- block: run by tests/speed/test_secagg_bench.py -->\n```console\n$ coterie bench ledger\n```\n",
        "<!-- block: run by tests/speed/test_secagg_bench.py -->\n```sh\nLC_ALL=C pytest tests/speed/test_x.py\n```\n",
        "<!-- block: run by tests/speed/test_secagg_bench.py -->\n```python\nfrom coterie.api import Missing\n```\n",
        "<!-- block: not run,-->\n```\n1\n```\n",
        "```console\ncoterie run\n```\n",
    ],
)
def test_a_block_that_nothing_checks_is_found(text: str) -> None:
    assert len(find_faults(read_blocks(text))) == 1


@pytest.mark.parametrize(
    ("expected", "printed"),
    [
        ("", "anything"),
        ("one\n...\nfour", "one\ntwo\nthree\nfour\n"),
        ("...\nfour", "one\nfour\n"),
        ("one\n...", "one\ntwo\n"),
        ("a ... c", "a   b c"),
        ("one  two", "one two   \n"),
    ],
)
def test_outputs_that_agree_are_accepted(expected: str, printed: str) -> None:
    compare_output(expected, printed, "here")


@pytest.mark.parametrize(
    ("expected", "printed"),
    [
        ("one", "one\ntwo"),
        ("one\nthree", "one\ntwo\nthree"),
        ("...\nfive", "one\nfour\n"),
        ("a ... c", "a b\nc"),
        ("1.5", "125"),
    ],
)
def test_outputs_that_differ_are_errors(expected: str, printed: str) -> None:
    with pytest.raises(PageError):
        compare_output(expected, printed, "here")


def test_commands_may_have_comments_and_several_lines() -> None:
    text = "$ coterie run \\\n  --json  # trains\n{\n$ ls\n"
    assert list(split_console(text)) == [("coterie run   --json", "{\n"), ("ls", "")]
