"""No string of any record is written as it came, whatever its field is called."""

from __future__ import annotations

import base64
import importlib
import pkgutil
import random
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hooking import log
from remembering import made

import ralph.records
from ralph.doors.hooks.call import log_folders, note
from ralph.errors import BadRecord
from ralph.memory.ralph import Ralph
from ralph.records import Source, Tombstone, clean, clean_beginning
from ralph.records.iteration import fit
from ralph.records.note import MAX_CHARS, make_note

SECRET = "ghp_" + "0123456789abcdefABCDEF0123456789abcd"


def structs() -> Iterator[type[msgspec.Struct]]:
    """Everything that can be inside a record, and what stands beside it."""
    yield from (Source, Tombstone)
    for found in pkgutil.iter_modules(ralph.records.__path__, "ralph.records."):
        module = importlib.import_module(found.name)
        for value in vars(module).values():
            own = getattr(value, "__module__", "") == found.name
            if own and isinstance(value, type) and issubclass(value, msgspec.Struct):
                yield value


def filled(kind: Any) -> Any:
    """A value of this type with the secret in every string of it."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if kind is str:
        return f"the key is {SECRET} here"
    if origin is typing.Literal:
        return inner[0]
    if origin in (typing.Union, types.UnionType):
        some = [one for one in inner if one is not type(None)]
        return filled(str if str in some else some[0])
    if origin is typing.Annotated:
        return filled(inner[0])
    if origin in (tuple, list):
        if len(inner) == 2 and inner[1] is not ...:
            return tuple(filled(one) for one in inner)
        return origin([filled(inner[0])])
    if origin in (dict, typing.Mapping):
        return {filled(inner[0]): filled(inner[1])}
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        hints = typing.get_type_hints(kind, include_extras=True)
        return kind(**{name: filled(hints[name]) for name in kind.__struct_fields__})
    return {int: 1, float: 1.0, bool: True, bytes: b"{}"}.get(kind)


@pytest.mark.parametrize("kind", [*structs()], ids=lambda kind: kind.__name__)
def test_every_string_of_every_struct_is_cleaned(kind: type[msgspec.Struct]) -> None:
    value = filled(kind)
    strings = msgspec.json.encode(value).count(SECRET.encode())
    assert strings or not any(
        "str" in str(hint) for hint in typing.get_type_hints(kind).values()
    ), "the test would prove nothing"
    assert SECRET.encode() not in msgspec.json.encode(clean(value))


def test_what_holds_no_secret_stays_the_same_value() -> None:
    session = "0b2f9d3e-1111-4222-8333-444455556666"
    one = made("The login form failed.", session_id=session)
    assert clean(one) is one
    again = made("The login form failed.", session_id="".join([session[:9], session[9:]]))
    assert clean(again) is again  # though the cache holds the first one's strings


def kept(*folders: Path) -> list[str]:
    """The files that hold the secret, in any case of its letters."""
    return [
        str(file)
        for folder in folders
        for file in folder.rglob("*")
        if file.is_file() and SECRET.lower().encode() in file.read_bytes().lower()
    ]


def test_tags_reasons_titles_and_notes_keep_no_key(memory: Ralph, home: Path) -> None:
    said = memory.conversations
    one = said.start(f"title {SECRET}", session=f"session {SECRET}")
    said.tag(one, add=[SECRET])
    said.rename(one, f"renamed {SECRET}")
    exchange = said.exchange(one, user=f"use {SECRET}", assistant="ok", model=SECRET)
    said.forget([exchange.id], reason=f"because of {SECRET}")
    iteration = memory.feature("auth").remember(made(f"used {SECRET}", discipline=SECRET))
    memory.feature("auth").forget([iteration.id], reason=f"because of {SECRET}")
    memory.close()
    assert kept(home, memory.project.root) == []


def test_the_log_of_hooks_keeps_no_key(project: Path, home: Path) -> None:
    note(log_folders(str(project), str(home)), "stop", f"no setting {SECRET}", "rag_config.json")
    assert len(log(project)) == 1
    assert kept(home) == []


def test_only_the_beginning_of_a_long_text_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    real = ralph.records.clean_text

    def reading(text: str) -> str:
        read.append(text)
        return real(text)

    monkeypatch.setattr(ralph.records, "clean_text", reading)
    assert len(fit("curl -u a:" * 190_000, 500)) == 500
    assert sum(map(len, read)) < 10_000


@pytest.mark.parametrize("length", range(5_900, 6_040, 7))
def test_a_secret_where_reading_ends_is_not_kept_in_part(length: int) -> None:
    text = "a b " * (length // 4) + SECRET + " c d" * 9000
    assert "ghp_" not in clean_beginning(text, 500)[:500]


def test_a_text_that_is_mostly_one_secret_is_read_whole() -> None:
    lines = [base64.b64encode(random.Random(n).randbytes(48)).decode() for n in range(89)]
    frame = "PRIVATE" + " KEY-----"
    key = "\n".join([f"-----BEGIN {frame}", *lines, f"-----END {frame}"])
    text = f"{key}\n{SECRET} and more" + " words" * 2000
    assert clean_beginning(text, 500).startswith("[redacted:private-key]\n[redacted:github-token]")


def test_a_note_that_is_too_long_is_refused_before_it_is_redacted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ralph.records.note.clean_text", lambda text: pytest.fail("redacted"))
    with pytest.raises(BadRecord, match="at most 2000"):
        make_note("curl -u a:" * (MAX_CHARS // 10) + "!")


def test_a_note_has_no_secret() -> None:
    assert make_note(f"use {SECRET}").text == "use [redacted:github-token]"
