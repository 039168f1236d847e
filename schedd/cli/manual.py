"""Reference, man pages and shell completion of the commands, all from their own parsers."""

import argparse
from collections.abc import Iterator
from importlib import import_module
from typing import Final

from schedd import __version__
from schedd.cli.main import BARE_COMMANDS, COMMANDS, VALUES_COMMAND


def command_parsers() -> dict[str, argparse.ArgumentParser]:
    """The parsers of commands that use the API: those with short names, then those for administrators."""
    asking = (".user.", ".features.", ".federation.commands.")
    admins = [
        name
        for name, (module, _) in COMMANDS.items()
        if any(folder in module for folder in asking) and name not in BARE_COMMANDS
    ]
    return {
        name: import_module(COMMANDS[name][0]).make_parser(_display_name(name))
        for name in (*BARE_COMMANDS, *admins)
    }


def _make_parser(name: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = import_module(COMMANDS[name][0]).make_parser()
    return parser


def _display_name(name: str) -> str:
    return name if name in BARE_COMMANDS else f"schedd {name}"


# ---- Markdown -----------------------------------------------------------------------------------


def reference() -> str:
    """All commands with their options, as Markdown: commands that use the API, then the others."""
    asking = command_parsers()
    own = {f"schedd {name}": _make_parser(name) for name in COMMANDS if name not in asking}
    sections = [_section(_display_name(name), parser) for name, parser in asking.items()]
    return "\n\n".join((*sections, *(_section(name, parser) for name, parser in own.items()))) + "\n"


def _section(name: str, parser: argparse.ArgumentParser) -> str:
    rows = [f"| `{words}` | {about} |" for words, about in _options(parser)]
    acts = "".join(
        f"\n\n`{_usage(act)}`: {about}." + (f"\n\n{_table(rows)}" if rows else "")
        for act, about, rows in _action_sections(parser)
    )
    head = f"## {name}\n\n{_description(parser)}"
    return f"{head}\n\n```\n{_usage(parser)}\n```\n\n{_table(rows)}{acts}"


def _table(rows: list[str]) -> str:
    return "| | |\n|---|---|\n" + "\n".join(rows)


def _action_sections(
    parser: argparse.ArgumentParser,
) -> Iterator[tuple[argparse.ArgumentParser, str, list[str]]]:
    """Each action of a command: its parser, its summary, its own options."""
    for act, about, found in _sub_parsers(parser):
        rows = [f"| `{words}` | {words_of} |" for words, words_of in _options(act) if words != "-h, --help"]
        yield act, about, rows if found else []


def _sub_parsers(
    parser: argparse.ArgumentParser,
) -> Iterator[tuple[argparse.ArgumentParser, str, bool]]:
    for action in _actions(parser):
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001  (argparse has no other way)
            about = {one.dest: one.help or "" for one in action._choices_actions}  # noqa: SLF001
            for name, act in action.choices.items():
                yield act, about.get(name, ""), len(_actions(act)) > 1


def _usage(parser: argparse.ArgumentParser) -> str:
    return " ".join(parser.format_usage().split()).removeprefix("usage: ")


def _description(parser: argparse.ArgumentParser) -> str:
    return " ".join((parser.description or "").split())


def _actions(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    return parser._actions  # noqa: SLF001  (argparse has no other way to ask for them)


def _options(parser: argparse.ArgumentParser) -> Iterator[tuple[str, str]]:
    """The notation and the help of each argument."""
    for action in _actions(parser):
        if action.help == argparse.SUPPRESS:
            continue
        value = action.metavar if isinstance(action.metavar, str) else (action.dest.upper())
        takes = action.nargs != 0
        about = (action.help or "") % vars(action) if action.help else ""
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001  (argparse has no other way)
            about = ", ".join(f"`{name}`" for name in action.choices)
        if not action.option_strings:
            yield value.replace("|", "\\|"), about
        else:
            names = ", ".join(action.option_strings)
            yield (f"{names} {value}" if takes else names), about


# ---- man ----------------------------------------------------------------------------------------


def man_page(name: str) -> str:
    """The man page of one command that has a bare name, or of ``schedd`` with all others, as troff."""
    if name == "schedd":
        return _main_man_page()
    parser = command_parsers()[name]
    lines = [
        *_man_head(name, COMMANDS[name][1]),
        ".SH SYNOPSIS",
        f".B {name}",
        _troff(_usage(parser).removeprefix(name).strip()),
        ".SH DESCRIPTION",
        _troff(_description(parser)),
        ".SH OPTIONS",
        *_man_options(parser),
        *_man_epilog(parser),
        *_MAN_TAIL,
        ".SH SEE ALSO",
        ", ".join(f"{other}(1)" for other in ("schedd", *BARE_COMMANDS) if other != name),
    ]
    return "\n".join(lines) + "\n"


def render_man_page(parser: argparse.ArgumentParser, about: str) -> str:
    """The man page of a program that is no command of ``schedd``."""
    lines = [
        *_man_head(parser.prog, about),
        ".SH SYNOPSIS",
        f".B {_troff(_usage(parser))}",
        ".SH DESCRIPTION",
        _troff(_description(parser)),
        ".SH OPTIONS",
        *_man_options(parser),
        *_man_epilog(parser),
    ]
    return "\n".join(lines) + "\n"


def _main_man_page() -> str:
    lines = [
        *_man_head("schedd", "A planning scheduler for PBS-family clusters"),
        ".SH SYNOPSIS",
        ".B schedd",
        "COMMAND [OPTIONS] [ARGUMENTS]",
        ".SH DESCRIPTION",
        "For every queued job a start, an end and nodes are planned. \\-\\-help explains a command.",
        ".SH COMMANDS",
    ]
    for name, (_, about) in COMMANDS.items():
        lines += [".TP", f".B {_troff(name)}", _troff(about)]
    for name, parser in command_parsers().items():
        if name in BARE_COMMANDS:
            continue
        lines += [f".SH SCHEDD {_troff(name.upper())}", f".B {_troff(_usage(parser))}", ".PP"]
        lines += [_troff(_description(parser)), *_man_options(parser)]
        for act, about, found in _sub_parsers(parser):
            lines += [".PP", f".B {_troff(_usage(act))}", ".br", _troff(about)]
            lines += _man_options(act) if found else []
    lines += [
        *_man_epilog(parser),
        *_MAN_TAIL,
        ".SH SEE ALSO",
        ", ".join(f"{one}(1)" for one in BARE_COMMANDS),
    ]
    return "\n".join(lines) + "\n"


def _man_head(name: str, about: str) -> list[str]:
    first = about[:1].lower() + about[1:].rstrip(".")
    return [
        f'.TH {name.upper()} 1 "" "schedd {__version__}" "schedd"',
        ".SH NAME",
        f"{name} \\- {_troff(first)}",
    ]


def _man_options(parser: argparse.ArgumentParser) -> list[str]:
    return [
        line
        for words, about in _options(parser)
        for line in (".TP", f".B {_troff(words.replace(chr(92) + '|', '|'))}", _troff(about))
    ]


def _man_epilog(parser: argparse.ArgumentParser) -> list[str]:
    lines: list[str] = []
    for paragraph in (parser.epilog or "").split("\n\n"):
        title, _, rest = paragraph.partition("\n")
        if title.endswith(":"):
            lines += [f".SH {title[:-1].upper()}", ".nf", *map(_troff, rest.splitlines()), ".fi"]
        else:
            lines += [".PP", _troff(paragraph)]
    return lines


_MAN_TAIL = (
    ".SH ENVIRONMENT",
    *(".TP", ".B SCHEDD_URL", "where the daemon is"),
    *(".TP", ".B SCHEDD_TOKEN", "the token to show it"),
    *(".TP", ".B SCHEDD_CLUSTER", "which cluster, where the daemon has several"),
    ".SH FILES",
    *(".TP", ".I ~/.config/schedd/client.toml, /etc/schedd/client.toml", "url, cluster and token_file"),
    *(".TP", ".I ~/.config/schedd/token", "file with the token; it must be readable by its owner only"),
)


def _troff(text: str) -> str:
    text = text.replace("…", "...").replace("\\", "\\e").replace("-", "\\-")
    return "\\&" + text if text[:1] in (".", "'") else text


# ---- completion ---------------------------------------------------------------------------------


def bash_completion() -> str:
    """A bash script that completes commands, acts, options and their values; zsh reads it after
    `bashcompinit`. Names are asked of the daemon.
    """
    words = {name: _command_completions(name) for name in COMMANDS}
    cases = "\n".join(
        f"    {name}) acts='{' '.join(acts)}' words='{' '.join(options)}' ;;"
        for name, (acts, options) in words.items()
    )
    values = "\n".join(_completion_cases())
    places = "\n".join(f"    {name}) kind={kind} ;;" for name, kind in _FIRST_ARGUMENT_KINDS.items())
    return f"""\
# bash completion of schedd and its commands for users; written by `schedd install`.
_schedd() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} name=${{COMP_WORDS[0]##*/}} words= acts= first=1 kind= given=
  if [ "$name" = schedd ]; then
    if [ "$COMP_CWORD" = 1 ]; then
      COMPREPLY=($(compgen -W '{" ".join(COMMANDS)} --help --version' -- "$current"))
      return
    fi
    name=${{COMP_WORDS[1]}} first=2
  fi
  case $name in
{cases}
    *) words=--help ;;
  esac
  case "$name ${{COMP_WORDS[COMP_CWORD-1]}}" in
{values}
  esac
  [ -z "$kind$given" ] && [ "$COMP_CWORD" = "$first" ] && case $name in
{places}
  esac
  case $current in
    -*) COMPREPLY=($(compgen -W "$words" -- "$current")) ;;
    *)
      COMPREPLY=()
      [ -n "$kind" ] && given=$(schedd {VALUES_COMMAND} "$kind" 2>/dev/null)
      [ -z "$given$kind" ] && [ "$COMP_CWORD" = "$first" ] && given=$acts
      [ -n "$given" ] && COMPREPLY=($(compgen -W "$given" -- "$current"))
      ;;
  esac
}}
complete -o default -F _schedd schedd {" ".join(BARE_COMMANDS)}
"""


_VALUE_KINDS: Final = {
    "--cluster": "cluster",
    "--job": "job",
    "--queues": "queue",
    "--user": "user",
    "--users": "user",
    "-q": "queue",
    "-u": "user",
    "-w": "node",
}
_RELEASE_KINDS: Final = {"-q": "held-queue", "-w": "held-node"}
_FIRST_ARGUMENT_KINDS: Final = {
    "cancel": "job",
    "checkjob": "job",
    "cost": "job",
    "pause": "cluster",
    "resume": "cluster",
    "showstart": "job",
}
"""What the first argument of a command names."""


def _completion_cases() -> Iterator[str]:
    """A branch for each option with a name or a choice of words as value."""
    for name in COMMANDS:
        parser = _make_parser(name)
        found = [
            action
            for one in (parser, *(act for act, _, _ in _sub_parsers(parser)))
            for action in _actions(one)
        ]
        for action in found:
            known = {**_VALUE_KINDS, **(_RELEASE_KINDS if name == "release" else {})}
            for option in action.option_strings:
                if action.choices:
                    yield f"    '{name} {option}') given='{' '.join(map(str, action.choices))}' ;;"
                elif option in known and name not in ("submit", "account"):
                    yield f"    '{name} {option}') kind={known[option]} ;;"
    yield "    'reservation remove') kind=reservation ;;"


def render_completion(parser: argparse.ArgumentParser) -> str:
    """A bash script that completes the options of a program that is no command of ``schedd``."""
    words = " ".join(sorted(option for action in _actions(parser) for option in action.option_strings))
    return f"# bash completion of {parser.prog}.\ncomplete -o default -W '{words}' {parser.prog}\n"


def _command_completions(name: str) -> tuple[list[str], list[str]]:
    """Completions after a command: its actions, and all their options."""
    parser = _make_parser(name)
    acts = [act for act, _, _ in _sub_parsers(parser)]
    names = [act.prog.rpartition(" ")[2] for act in acts]
    every = [action for one in (parser, *acts) for action in _actions(one)]
    return names, sorted({option for action in every for option in action.option_strings})
