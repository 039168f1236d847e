"""Loader of settings files (TOML), and the wording of all errors in them: fault, place, remedy."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from schedd.wire.section import Problem, main_problems, problem_place, problem_text
from schedd.wire.toml_files import SettingsError, read_toml, setting_line

Place = tuple[str, ...]
"""The path of a setting: ``("server", "port")``."""
_S = TypeVar("_S", bound=BaseModel)
_HIDDEN: Final = {"sha256", "url"}  # may contain a token or password: errors do not show their values
_MAX_LISTED: Final = 10  # settings of a section that a message lists


def load_settings_file(
    kind: type[_S], path: Path | None, options: Mapping[str, Any], *, reference: str
) -> _S:
    """Return the settings of the file (None: defaults). Raises SettingsError.

    ``options``: values of the command line by setting (``server.port``), which override the file.
    ``reference``: see `explain_errors`.
    """
    values = read_toml(path) if path is not None else {}
    elsewhere = {tuple(setting.split(".")): "the command line" for setting in options}
    for place, value in zip(elsewhere, options.values(), strict=True):
        table = values
        for key in place[:-1]:
            table = table.setdefault(key, {})
            if not isinstance(table, dict):
                raise SettingsError(f"{path}: {key}: a table is expected")
        table[place[-1]] = value
    with explain_errors(kind, path, elsewhere, reference=reference):
        return kind.model_validate(values)


class SettingsFiles:
    """The settings file and the files that the settings name: a restart must be able to read them."""

    def __init__(self, path: Path | None, settings: BaseModel) -> None:
        """Files that are missing now, folders and sockets are left out."""
        named = [path] if path is not None else []
        parts: list[Any] = [settings]
        while parts:
            part = parts.pop()
            if isinstance(part, Path):
                named.append(part)
            elif isinstance(part, BaseModel):
                parts += [value for _, value in part]
            elif isinstance(part, Mapping):
                parts += part.values()
            elif isinstance(part, (list, tuple)):
                parts += part
        self._files = sorted({one for one in named if one.is_file()})

    @property
    def problem(self) -> str:
        """Which of the files cannot be opened now, and the consequence; empty if all can."""
        found = []
        for path in self._files:
            try:
                path.open("rb").close()
            except OSError as error:
                found.append(f"{path}: {error.strerror}")
        return f"its next start would fail: {'; '.join(found)}" if found else ""


@contextmanager
def explain_errors(
    kind: type[BaseModel], path: Path | None, elsewhere: Mapping[Place, str], *, reference: str
) -> Iterator[None]:
    """Turn errors of a validation by ``kind`` into a SettingsError.

    ``elsewhere``: the places of the settings that are not from the file. ``reference``: a sentence that says
    where all settings are listed.
    """
    try:
        yield
    except ValidationError as error:
        text = path.read_text(encoding="utf-8") if path is not None else ""
        lines = []
        for problem in main_problems(error.errors(include_url=False)):
            setting = tuple(map(str, problem_place(problem)))
            origin = next((words for one, words in elsewhere.items() if setting[: len(one)] == one), None)
            if origin is None and path is not None:
                line = setting_line(text, setting)
                origin = str(path) if line is None else f"{path}, line {line}"
            said = _describe_problem(problem, kind, reference)
            lines.append(f"{origin}: {said}" if origin else said)
        raise SettingsError("\n".join(lines)) from None


def read_token(path: Path | None, setting: str) -> str:
    """Return the token in a file that contains nothing else; empty without a file. Raises SettingsError."""
    if path is None:
        return ""
    try:
        token = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{setting}: {path} cannot be read: {error}") from None
    if len(token.split()) != 1:
        raise SettingsError(f"{setting}: {path} must hold one token and nothing else")
    return token


def _describe_problem(problem: Problem, kind: type[BaseModel], reference: str) -> str:
    place = problem_place(problem)
    setting = ".".join(map(str, place))
    if problem["type"] == "extra_forbidden":
        return f"{setting}: no such setting; {_suggest_setting(problem, kind, reference)}"
    value, hidden = problem["input"], place and place[-1] in _HIDDEN
    shown = f" (it is {value!r})" if isinstance(value, str | int | float) and not hidden else ""
    return f"{setting}: {problem_text(problem)}{shown}" if setting else problem_text(problem)


def _suggest_setting(problem: Problem, kind: type[BaseModel], reference: str) -> str:
    *path, name = problem["loc"]
    section = kind
    for step in path:
        section = _find_section(section, str(step))
    names = [field.alias or key for key, field in section.model_fields.items()]
    near = get_close_matches(str(name), names, 1)
    if near:
        return f"did you mean {near[0]}?"
    return f"there is {', '.join(names)}" if len(names) <= _MAX_LISTED else reference


def _find_section(section: type[BaseModel], step: str) -> type[BaseModel]:
    """Return the section for ``step`` in ``section``; itself for a key of its tables or lists."""
    field = section.model_fields.get(step)
    if field is None:
        return section
    return next((kind for kind in _kinds(field.annotation) if issubclass(kind, BaseModel)), section)


def _kinds(annotation: Any) -> Iterator[type]:
    if isinstance(annotation, type) and not get_args(annotation):
        yield annotation
    for part in get_args(annotation):
        yield from _kinds(part)
