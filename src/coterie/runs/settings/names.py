"""The names of settings, suggestions for misspelled ones, and what settings name of the user's own."""

import difflib
from collections.abc import Iterator

from pydantic import BaseModel

from coterie.runs.sections.base import choices_of
from coterie.runs.sections.common import OWN
from coterie.runs.settings.config import RunConfig

_SIMILAR = 0.8  # smallest similarity of words, from 0 to 1, at which one counts as a misspelling of the other


def setting_names(model: type[BaseModel] = RunConfig, path: str = "") -> Iterator[str]:
    """Yield the name of every setting, such as ``cohort.size``, in the order of the settings file."""
    for name, field in model.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from setting_names(kind, f"{path}{name}.")
        else:
            yield f"{path}{name}"


def names_of_user(settings: BaseModel, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield every function or class of the user that settings name, after the setting that names it."""
    for name, field in type(settings).model_fields.items():
        value = getattr(settings, name)
        if isinstance(value, BaseModel):
            yield from names_of_user(value, f"{path}{name}.")
        for choice in choices_of(field):
            for text in value if isinstance(value, tuple) else (value,):
                if choice.is_named(text) and not text.startswith(f"{OWN}:"):
                    yield f"{path}{name}", text


def find_settings(word: str) -> list[str]:
    """Return the settings that a word may mean, by the first rule that finds any.

    The rules: the name of a setting, its last part, the end of its last part, a section, or nearly a name.

    >>> find_settings("--cohort-size"), find_settings("size"), find_settings("rate"), find_settings("rouds")
    (['cohort.size'], ['cohort.size'], ['training.learning_rate', 'training.server_learning_rate'], ['rounds'])
    """
    wanted = _plain(word)
    if not wanted:
        return []
    names = {_plain(name): name for name in setting_names()}
    same = [name for plain, name in names.items() if plain == wanted]
    last = [name for name in names.values() if name.rpartition(".")[2] == wanted]
    end = [name for plain, name in names.items() if plain.endswith(f"_{wanted}")]
    section = [name for plain, name in names.items() if plain.startswith(f"{wanted}_")]
    similar = [names[plain] for plain in difflib.get_close_matches(wanted, names, 1, _SIMILAR)]
    return same or last or end or section or similar


def _plain(word: str) -> str:
    return word.lstrip("-").replace("-", "_").replace(".", "_").lower()
