"""Outputs of commands and committed files, and expressions that find a number in them.

An expression is Python's. Names are keys of the output, ``rows["SA"]`` is the record that has this text among its
values, and an attribute of a list is the list of its entries' attributes.
"""

import ast
import json
import operator
import os
import re
import shlex
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from itertools import takewhile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

PROJECT = Path(__file__).parents[2]
NUMBER = r"[-+−]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?"

# Training can give other results if the last bit of a product differs. So numbers are computed as by one kind of
# processor, which any x86 processor of the last ten years can imitate, and with one order of additions.
ARITHMETIC = {
    "ATEN_CPU_CAPABILITY": "avx2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
    "OMP_NUM_THREADS": "1",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "OPENBLAS_CORETYPE": "Haswell",
}


@cache
def functions_of(file: str) -> set[str]:
    """Return the names of the functions in a file of the repository."""
    tree = ast.parse((PROJECT / file).read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


class NoteError(Exception):
    """A note that cannot be read, or that does not fit the text after it."""


class Near(float):
    """A value that need not agree to the last digit: ``near(value, within)`` in a note, which says why."""

    def __new__(cls, value: float, within: float) -> "Near":
        """Make it from a value and the largest difference."""
        near = super().__new__(cls, value)
        near.within = within
        return near

    within: float


Value = float | str | bool


class DataMissing(Exception):
    """A data set that a command needs and that is not on this machine."""


@cache
def run_command(command: str) -> Any:  # noqa: ANN401
    """Run a command of Coterie as a user would; return its JSON, or its text if that is none."""
    program, *words = shlex.split(command)
    if program != "coterie":
        raise NoteError(f"only commands of coterie are run, not {command}")
    path = os.pathsep.join([str(PROJECT / "src"), os.environ.get("PYTHONPATH", "")])
    with TemporaryDirectory() as folder:
        (Path(folder) / "examples").symlink_to(PROJECT / "examples")
        call = [sys.executable, "-m", "coterie", *words]
        environment = {**os.environ, **ARITHMETIC, "COLUMNS": "80", "PYTHONPATH": path}
        done = subprocess.run(call, cwd=folder, capture_output=True, text=True, env=environment)
        output = _read_output(done.stdout, Path(folder))
    if done.returncode == 2 and "nothing is downloaded" in done.stderr:
        raise DataMissing(done.stderr.strip())
    if done.returncode:
        raise NoteError(f"{command} ended with {done.returncode}: {done.stderr.strip()[-500:]}")
    return output


def _read_output(text: str, folder: Path) -> Any:  # noqa: ANN401
    """Read JSON, or text. A run's numbers get its last record as ``last``."""
    try:
        output = json.loads(text)
    except json.JSONDecodeError:
        return text
    if isinstance(output, dict) and "folder" in output:
        *_, last = (folder / output["folder"] / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        output["last"] = json.loads(last)
    return output


@cache
def load(file: Path) -> Any:  # noqa: ANN401
    """Read a JSON file, or the tables of a report: by heading, words at a row's beginning, and column.

    Of "95.6 ± 2.1" and "94.1 to 96.8" in the column "right, %", "right, %" is the first number, and "right, % ±" or
    "right, % to" the second. What is in percent is a share.
    """
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".json":
        return json.loads(text)
    found: dict[str, dict[str, dict[str, float]]] = {}
    heading, columns = "", list[str]()
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip()[1:-1].split("|")] if line.startswith("|") else []
        if line.startswith("#"):
            heading = line.strip("# ")
        elif not cells:
            columns = []
        elif not columns:  # of two columns with one name, the second is "name 2"
            columns = [name if name not in cells[:at] else f"{name} 2" for at, name in enumerate(cells)]
        elif not cells[0].startswith("---"):
            words = list(takewhile(lambda cell: cell and not re.match(NUMBER, cell), cells[1:]))
            row = found.setdefault(heading, {}).setdefault(", ".join([cells[0], *words]), {})
            for column, cell in zip(columns, cells, strict=False):
                for number, name in zip(re.findall(NUMBER, cell), (column, f"{column} {_joint(cell)}"), strict=False):
                    row.setdefault(name, _number(number) / (100 if "%" in column + cell else 1))
    return found


def _joint(cell: str) -> str:
    return "±" if "±" in cell else "to"


def average(values: Sequence[Value]) -> Value:
    """Average the results of several commands; a comparison must hold for all of them."""
    if isinstance(values[0], bool):
        return all(values)
    mean = _mean(values)
    return Near(mean, values[0].within) if isinstance(values[0], Near) else mean


def _mean(values: Iterable[float | str]) -> float:
    return statistics.fmean(float(value) for value in values)


def _number(text: str) -> float:
    return float(text.replace(",", "").replace("−", "-").strip("%"))


_OPERATORS: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "deviation": statistics.stdev,
    "len": len,
    "max": max,
    "mean": _mean,
    "median": statistics.median,
    "min": min,
    "near": Near,
    "number": _number,
    "sum": sum,
    "values": lambda table: list(table.values()),
}


def evaluate(node: ast.expr, scope: Any, root: Any) -> Any:  # noqa: ANN401
    """Evaluate a Python expression whose names are the keys of an output; it has no other names."""

    def inner(part: ast.expr) -> Any:  # noqa: ANN401
        return evaluate(part, scope, root)

    match node:
        case ast.Constant():
            return node.value
        case ast.Name(id="this"):
            return scope
        case ast.Name():
            return scope[node.id]
        case ast.Attribute():
            whole = inner(node.value)
            return [entry[node.attr] for entry in whole] if isinstance(whole, list) else whole[node.attr]
        case ast.Subscript():
            return _select(inner(node.value), inner(node.slice))
        case ast.Tuple():
            return tuple(map(inner, node.elts))
        case ast.UnaryOp(op=ast.USub()):
            return -inner(node.operand)
        case ast.BinOp() if type(node.op) in _OPERATORS:
            return _OPERATORS[type(node.op)](inner(node.left), inner(node.right))
        case ast.Compare(ops=[sign], comparators=[right]) if type(sign) in _OPERATORS:
            return _OPERATORS[type(sign)](inner(node.left), inner(right))
        case ast.Call(func=ast.Name(id="find" | "findall" as name), args=[ast.Constant(value=str(pattern))]):
            found = re.findall(pattern, root if isinstance(root, str) else json.dumps(root, ensure_ascii=False))
            if not found:
                raise LookupError(f"nothing in the output is like {pattern}")
            return found[0] if name == "find" else found
        case ast.Call(func=ast.Name(id=name)) if name in _FUNCTIONS:
            return _FUNCTIONS[name](*map(inner, node.args))
    raise NoteError(f"{ast.unparse(node)} is not understood in a note")


def _select(whole: Any, key: Any) -> Any:  # noqa: ANN401
    """Take an entry by its key or place; of a list of records, the one that has these texts among its values."""
    texts = key if isinstance(key, tuple) else (key,)
    if not isinstance(whole, list) or not isinstance(texts[0], str):
        return whole[key]
    fitting = [entry for entry in whole if all(text in entry.values() for text in texts)]
    if len(fitting) != 1:
        raise LookupError(f"{len(fitting)} entries have {key!r}")
    return fitting[0]
