"""Reference, man pages and shell completion of the commands for users, all from their own parsers."""

import argparse
from collections.abc import Iterator
from importlib import import_module

from schedd import __version__
from schedd.cli.main import BARE, COMMANDS

__all__ = ["completion", "man_page", "parsers", "reference"]


def parsers() -> dict[str, argparse.ArgumentParser]:
    """The parser of each command that has a bare name."""
    return {name: import_module(COMMANDS[name][0]).make_parser(name) for name in BARE}


# ---- Markdown -----------------------------------------------------------------------------------


def reference() -> str:
    """All commands with their options, as Markdown."""
    parts = []
    for name, parser in parsers().items():
        usage = " ".join(parser.format_usage().split()).removeprefix("usage: ")
        rows = [f"| `{words}` | {about} |" for words, about in _options(parser)]
        parts.append(
            f"### {name}\n\n{_about(parser)}\n\n```\n{usage}\n```\n\n| | |\n|---|---|\n" + "\n".join(rows)
        )
    return "\n\n".join(parts) + "\n"


def _about(parser: argparse.ArgumentParser) -> str:
    return " ".join((parser.description or "").split())


def _actions(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    return parser._actions  # noqa: SLF001  (argparse has no other way to ask for them)


def _options(parser: argparse.ArgumentParser) -> Iterator[tuple[str, str]]:
    """How each argument is written, and what it does."""
    for action in _actions(parser):
        value = action.metavar if isinstance(action.metavar, str) else (action.dest.upper())
        takes = action.nargs != 0
        about = (action.help or "") % vars(action) if action.help else ""
        if not action.option_strings:
            yield value.replace("|", "\\|"), about
        else:
            names = ", ".join(action.option_strings)
            yield (f"{names} {value}" if takes else names), about


# ---- man ----------------------------------------------------------------------------------------


def man_page(name: str) -> str:
    """The man page of one command, as troff."""
    parser = parsers()[name]
    usage = " ".join(parser.format_usage().split()).removeprefix(f"usage: {name}").strip()
    lines = [
        f'.TH {name.upper()} 1 "" "schedd {__version__}" "schedd"',
        ".SH NAME",
        f"{name} \\- {_troff(COMMANDS[name][1].rstrip('.')).lower()}",
        ".SH SYNOPSIS",
        f".B {name}",
        _troff(usage),
        ".SH DESCRIPTION",
        _troff(_about(parser)),
        ".SH OPTIONS",
    ]
    for words, about in _options(parser):
        lines += [".TP", f".B {_troff(words.replace(chr(92) + '|', '|'))}", _troff(about)]
    for paragraph in (parser.epilog or "").split("\n\n"):
        title, _, rest = paragraph.partition("\n")
        if title.endswith(":"):
            lines += [
                f".SH {title[:-1].upper()}",
                ".nf",
                *(_troff(line) for line in rest.splitlines()),
                ".fi",
            ]
        else:
            lines += [".PP", _troff(paragraph)]
    lines += [
        ".SH ENVIRONMENT",
        *(".TP", ".B SCHEDD_URL", "where the daemon is"),
        *(".TP", ".B SCHEDD_TOKEN", "the token to show it"),
        *(".TP", ".B SCHEDD_CLUSTER", "which cluster, where the daemon has several"),
        ".SH FILES",
        *(".TP", ".I ~/.config/schedd/client.toml, /etc/schedd/client.toml", "url, cluster and token_file"),
        *(".TP", ".I ~/.config/schedd/token", "the token; nobody else may be able to read it"),
        ".SH SEE ALSO",
        ", ".join(f"{other}(1)" for other in BARE if other != name),
    ]
    return "\n".join(lines) + "\n"


def _troff(text: str) -> str:
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return "\\&" + text if text[:1] in (".", "'") else text


# ---- completion ---------------------------------------------------------------------------------


def completion() -> str:
    """A bash script that completes the commands and their options; zsh reads it after `bashcompinit`."""
    flags = {
        name: " ".join(option for action in _actions(parser) for option in action.option_strings)
        for name, parser in parsers().items()
    }
    cases = "\n".join(f"    {name}) words='{options}' ;;" for name, options in flags.items())
    return f"""\
# bash completion of schedd and its commands for users; written by `schedd install`.
_schedd() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} name=${{COMP_WORDS[0]##*/}} words=
  if [ "$name" = schedd ]; then
    if [ "$COMP_CWORD" = 1 ]; then
      COMPREPLY=($(compgen -W '{" ".join(COMMANDS)} --help --version' -- "$current"))
      return
    fi
    name=${{COMP_WORDS[1]}}
  fi
  case $name in
{cases}
    *) words=--help ;;
  esac
  case $current in
    -*) COMPREPLY=($(compgen -W "$words" -- "$current")) ;;
    *) COMPREPLY=() ;;
  esac
}}
complete -o default -F _schedd schedd {" ".join(BARE)}
"""
