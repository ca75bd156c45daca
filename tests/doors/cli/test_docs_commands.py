"""Every command that README, docs and help name exists, and takes the options it is shown with."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from places import DOCS, ROOT

from ralph.doors.cli.main import COMMANDS, ralph

PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md")),
    *sorted(DOCS.glob("*.md")),
    *sorted((ROOT / "src" / "ralph" / "plugin").rglob("*.md")),
]
# A line of a block, perhaps behind a prompt, or a text between backticks.
COMMAND = re.compile(r"^ *(?:\$ )?(ralph [^\n]*)$|`(ralph [^`\n]*)`|[|;] *(ralph [^`\n|;]*)", re.M)
# Where the command ends: a comment, a pipe, another command, a sentence.
END = re.compile(r"  +#| \| |;|&&| > |[.,:)]$|`| = ")
# Told to be gone.
GONE = {"bench"}


def named(text: str) -> Iterator[str]:
    """The commands that a text names."""
    for found in COMMAND.finditer(text):
        yield END.split(next(filter(None, found.groups())))[0].strip()


def wrong(line: str) -> str | None:
    """What a command line has that there is not."""
    try:
        words = shlex.split(line.replace("[", " ").replace("]", " "))[1:]
    except ValueError:  # the text goes on elsewhere
        words = line.split()[1:]
    if words[:1] == ["help"]:
        words = [word for word in words[1:] if word != "--all"]
    command: click.Command = ralph
    context = click.Context(ralph)
    for number, word in enumerate(words):
        if not isinstance(command, click.Group) or not re.fullmatch(r"[a-z][a-z|-]*", word):
            break
        choices = [command.get_command(context, name) for name in word.split("|")]
        if word in COMMANDS and not COMMANDS[word][0]:
            return None  # a door of its own
        if command is ralph and word in GONE:
            return None
        if None in choices:
            return f"there is no {word}"
        last = choices[-1]
        assert last is not None
        command, words[number] = last, ""
    options = {name for param in command.params for name in (*param.opts, *param.secondary_opts)}
    options |= {"-h", "--help"}
    for word in words:
        for name in word.partition("=")[0].split("|"):
            if re.fullmatch(r"--?[a-z][a-z-]*", name) and name not in options:
                return f"there is no {name}"
    return None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_commands_of_a_page_exist(page: Path) -> None:
    lines = list(named(page.read_text(encoding="utf-8")))
    assert [(line, why) for line in lines if (why := wrong(line))] == []


def test_the_commands_are_seen() -> None:
    assert len(list(named((ROOT / "README.md").read_text(encoding="utf-8")))) > 20


@pytest.mark.parametrize(
    "line", ["ralph serch x", "ralph hooks remove", "ralph search --colour x", "ralph recent|old"]
)
def test_a_command_that_is_not_there_is_seen(line: str) -> None:
    assert wrong(line)
