"""Conversations as plain JSON: out and in again, and in from what other tools write."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from capturing import SECRET
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from importing import Kept
from msgspec.structs import replace

from ralph.errors import BadInput, BadRecord, NotFound
from ralph.memory.conversation_json import (
    export_conversations,
    import_conversations,
    read_conversations,
    written,
)
from ralph.memory.conversation_stream import (
    ConversationContent,
    ConversationImport,
    ConversationStream,
)
from ralph.records.conversation import (
    Conversation,
    Exchange,
    Label,
    Message,
    Rating,
    Summary,
    record_of,
)
from ralph.records.iteration import ErrorSeen, FileTouched

HERE = "general"


def stream(kept: Kept, name: str = HERE) -> ConversationStream:
    return ConversationStream(name, kept.store)


def bring_in(kept: Kept, plain: Any, name: str = "talk.json") -> ConversationImport:
    data = plain if isinstance(plain, bytes) else json.dumps(plain).encode()
    return import_conversations(kept.store, stream(kept), data, name=name)


def out(kept: Kept, **more: Any) -> Any:
    streams = [stream(kept, one) for one in kept.streams()]
    return json.loads(written(export_conversations(streams, **more)))


# -- our own form

TIMES = st.datetimes().map(lambda at: f"{at.replace(microsecond=0).isoformat()}Z")
TEXTS = st.text(st.characters(codec="utf-8"), max_size=40)
WORDS = TEXTS.filter(lambda text: bool(text.strip()))
EXCHANGES = st.builds(
    Exchange,
    conversation=st.just(""),
    user=WORDS,
    assistant=TEXTS,
    status=st.sampled_from(["complete", "interrupted", "failed"]),
    started=st.none() | TIMES,
    completed=TIMES,
    tokens_used=st.none() | st.integers(0, 10**9),
    cost_usd=st.none() | st.floats(0, 1e6, allow_nan=False),
    model=st.none() | WORDS,
    errors=st.lists(st.builds(ErrorSeen, message=WORDS, line=st.integers(1, 9)), max_size=2).map(
        tuple
    ),
    files_touched=st.lists(
        st.builds(FileTouched, path=st.sampled_from(["a.py", "b.py"]), action=st.just("read")),
        max_size=2,
    ).map(tuple),
    messages=st.lists(
        st.builds(Message, role=st.sampled_from(["user", "assistant", "tool"]), content=TEXTS),
        max_size=2,
    ).map(tuple),
)


@settings(max_examples=examples(40))
@given(
    st.lists(
        st.tuples(TEXTS, TEXTS, TIMES, st.lists(EXCHANGES, max_size=3)), min_size=1, max_size=3
    ),
    st.booleans(),
)
def test_out_and_in_again_elsewhere_is_the_same(
    tmp_path_factory: pytest.TempPathFactory, told: list[Any], lines: bool
) -> None:
    here, there = (Kept(tmp_path_factory.mktemp("home")) for _ in range(2))
    talks = []
    for number, (title, project, created, exchanges) in enumerate(told):
        name = f"{number:016x}"
        conversation = Conversation(id=name, title=title, project=project, created=created)
        said = [
            replace(one, id=f"e{number:07x}{place:08x}", conversation=name)
            for place, one in enumerate(exchanges)
        ]
        talks.append(ConversationContent(conversation, said))
    ConversationStream(HERE, here.store).save(talks)

    data = written(export_conversations([stream(here)]), lines=lines)
    import_conversations(there.store, stream(there), data, name="talk")

    assert written(export_conversations([stream(there)]), lines=lines) == data
    assert there.conversations() == sorted(here.conversations(), key=lambda one: one.created or "")

    def by_id(kept: Kept) -> dict[str, dict[str, Any]]:
        return {one.id: {**one.to_json(), "number": None} for one in kept.exchanges()}

    assert by_id(there) == by_id(here)
    assert import_conversations(there.store, stream(there), data, name="talk").exchanges == 0


ONE = {
    "title": "Timeouts",
    "created": "2026-11-02T10:00:00Z",
    "exchanges": [
        {"user": "Why does it time out?", "assistant": "The pool is full."},
        {"user": "Why does it time out?", "assistant": "The pool is full."},
    ],
}


def test_without_ids_the_same_file_twice_is_once(kept: Kept) -> None:
    document = {"version": 1, "conversations": [ONE]}
    came = bring_in(kept, document)
    assert (came.conversations, came.exchanges) == (1, 2)  # asked twice is two
    again = bring_in(kept, document)
    assert (again.conversations, again.exchanges, again.known) == (0, 0, 2)


def test_a_conversation_that_went_on_is_still_the_same(kept: Kept) -> None:
    bring_in(kept, ONE)
    more = {"user": "And now?", "assistant": "It is larger."}
    bring_in(kept, {**ONE, "exchanges": [*ONE["exchanges"], more]})
    [conversation] = kept.conversations()
    assert len(kept.memory.exchanges(conversation.id)) == 3


def test_ids_of_other_tools_become_ours_and_stay_the_same(kept: Kept) -> None:
    told = {**ONE, "id": "Chat/42", "exchanges": [{"id": "m-1", "user": "Hello there."}]}
    bring_in(kept, told)
    [one] = kept.conversations()
    assert len(one.id) == 16
    assert kept.memory.conversation(one.id[:8]).title == "Timeouts"
    assert bring_in(kept, told).known == 1


def test_what_is_left_out_has_its_default(kept: Kept) -> None:
    bring_in(kept, {"exchanges": [{"user": "Only this.", "status": None, "errors": None}]})
    [conversation] = kept.conversations()
    [one] = kept.exchanges()
    assert (conversation.source, conversation.project) == ("import", "")
    assert (one.status, one.errors, one.tokens_used) == ("complete", (), None)


def test_an_exchange_without_a_time_stands_at_its_conversation_s(kept: Kept) -> None:
    bring_in(kept, ONE)
    assert {one.completed for one in kept.exchanges()} == {"2026-11-02T10:00:00Z"}


def test_a_conversation_without_a_time_began_with_its_first_exchange(kept: Kept) -> None:
    said_then = {"user": "Why?", "assistant": "So.", "started": "2026-03-03T10:00:00Z"}
    later = {"user": "And?", "assistant": "Yes.", "completed": "2026-03-03T10:05:00Z"}
    bring_in(kept, [{"exchanges": [said_then, later]}])
    [conversation] = kept.conversations()
    assert conversation.created == "2026-03-03T10:00:00Z"


def test_secrets_are_taken_out_of_every_field(kept: Kept, home: Path) -> None:
    said = {
        "user": SECRET,
        "assistant": f"I used {SECRET}.",
        "model": SECRET,
        "errors": [{"message": SECRET, "file_path": SECRET, "resolution": SECRET}],
        "files_touched": [{"path": SECRET, "action": "read"}],
        "messages": [{"role": "tool", "content": SECRET, "tool": SECRET}],
    }
    bring_in(kept, {"title": SECRET, "project": SECRET, "source": SECRET, "exchanges": [said]})
    [file] = (home / "journal" / "conversations").glob("*.jsonl")
    assert SECRET not in file.read_text(encoding="utf-8")


BAD: list[tuple[bytes, str]] = [
    (b"", r"talk\.json:1: is not JSON"),
    (b'{"version": 1,\n "conversations": [\n oops]}', r"talk\.json:3: is not JSON"),
    (b'{"exchanges": [{"user": "a"}]}\n{"exchanges": ', r"talk\.json:2: is not JSON"),
    (b"[]", r"talk\.json: there is no conversation in it"),
    (b"[7]", r"talk\.json\[0\]: this is not a conversation"),
    (b'{"hello": 1}', r"talk\.json: this is not a conversation"),
    (b'{"version": 2, "conversations": []}', r"version: is of version 2"),
    (b'{"version": 1, "conversations": 3}', r"talk\.json\.conversations: must be a list"),
    (
        b'{"version": 1, "conversations": [{"exchanges": [{"user": "a"}, {"user": 7}]}]}',
        r"talk\.json\.conversations\[0\]\.exchanges\[1\]\.user: expected `str",
    ),
    (
        b'{"exchanges": [{"user": "a", "status": "over"}]}',
        r"exchanges\[0\]\.status: invalid enum value 'over'",
    ),
    (b'{"exchanges": [{"user": "a", "tokens_used": -1}]}', r"tokens_used: expected `int` >= 0"),
    (b'{"exchanges": [{"user": " "}]}', r"exchanges\[0\]: there is nothing in this exchange"),
    (b'{"exchanges": [{"user": "a", "started": "noon"}]}', r"started: started 'noon' is not a"),
    (b'{"created": "x", "exchanges": []}', r"talk\.json\.created: created 'x' is not a time"),
    (
        b'{"exchanges": [{"id": "1", "user": "a"}, {"id": "1", "user": "b"}]}',
        r"exchanges\[1\]: has the id of another exchange",
    ),
    (b'{"messages": 1}', r"talk\.json\.messages: must be a list of messages"),
    (b'{"messages": [{"content": "a"}]}', r"messages\[0\]: a message needs a role"),
    (
        b'{"messages": [{"role": "robot", "content": "a"}]}',
        r"messages\[0\]\.role: unknown role 'robot'",
    ),
]


@pytest.mark.parametrize(("data", "complaint"), BAD)
def test_bad_input_is_refused_with_its_place_and_what_to_do(
    kept: Kept, data: bytes, complaint: str
) -> None:
    with pytest.raises(BadRecord, match=complaint) as caught:
        bring_in(kept, data)
    assert caught.value.todo
    assert kept.streams() == []


def test_nothing_of_a_file_is_kept_when_its_end_is_bad(kept: Kept) -> None:
    with pytest.raises(BadRecord):
        bring_in(kept, {"version": 1, "conversations": [ONE, {**ONE, "exchanges": [{}]}]})
    assert kept.streams() == []


# -- what other tools write


def said(kept: Kept) -> Iterator[tuple[str, str]]:
    for one in kept.exchanges():
        yield one.user, one.assistant


MESSAGES = [
    {"role": "system", "content": "You are kind."},
    {"role": "user", "content": "What is in the folder?"},
    {
        "role": "assistant",
        "content": "I look.",
        "tool_calls": [{"function": {"name": "ls", "arguments": '{"path": "."}'}}],
    },
    {"role": "tool", "content": "a.py b.py"},
    {"role": "assistant", "content": [{"type": "text", "text": "Two files."}]},
    {"role": "user", "content": [{"type": "image_url", "image_url": {}}, "And here?"]},
    {"role": "user", "content": "Please."},
    {"role": "assistant", "content": "A cat."},
    {"role": "user", "content": "Thanks."},
]


@pytest.mark.parametrize(
    "data",
    [
        json.dumps({"messages": MESSAGES}),
        json.dumps([{"messages": MESSAGES}]),
        json.dumps(MESSAGES),
        "\n".join(json.dumps(one) for one in MESSAGES),
        "\ufeff" + json.dumps({"messages": MESSAGES}, indent=2),
    ],
)
def test_a_list_of_messages_becomes_exchanges(kept: Kept, data: str) -> None:
    bring_in(kept, data.encode())
    assert list(said(kept)) == [
        ("What is in the folder?", "Two files."),
        ("[image]\n\nAnd here?\n\nPlease.", "A cat."),
        ("Thanks.", ""),
    ]
    one, _, last = kept.exchanges()
    assert one.messages == (
        Message("assistant", "I look."),
        Message("tool", '{"path": "."}\na.py b.py', "ls"),
    )
    assert (one.status, last.status) == ("complete", "interrupted")
    assert bring_in(kept, data.encode()).known == 3


def test_one_conversation_a_line_is_many(kept: Kept) -> None:
    lines = [{"messages": [{"role": "user", "content": f"Question {n}?"}]} for n in range(3)]
    data = "\n\n".join(json.dumps(one) for one in lines) + "\n"
    assert bring_in(kept, data.encode()).conversations == 3


def test_half_of_an_emoji_keeps_nothing_away(kept: Kept) -> None:
    bring_in(kept, b'{"exchanges": [{"user": "Look \\ud83d here"}]}')
    assert list(said(kept)) == [("Look \ufffd here", "")]


def node(parent: str | None, role: str, text: str, at: float) -> dict[str, Any]:
    content = {"content_type": "text", "parts": [text]}
    message = {"author": {"role": role}, "content": content, "create_time": at}
    return {"parent": parent, "message": message}


def test_some_conversations_go_out(kept: Kept) -> None:
    two = {**ONE, "title": "Logo", "exchanges": [{"user": "Rename it.", "started": "2026-11-09"}]}
    bring_in(kept, [ONE, two])
    logo = next(one for one in kept.conversations() if one.title == "Logo")

    def titles(**more: Any) -> list[str]:
        return [one["title"] for one in out(kept, **more)["conversations"]]

    assert titles() == ["Timeouts", "Logo"]
    assert titles(conversations=[logo.id[:6].upper()]) == ["Logo"]
    assert titles(since="2026-11-05") == ["Logo"]
    assert titles(since="2027-01-01") == []
    with pytest.raises(NotFound, match="no conversation 'ffff'"):
        out(kept, conversations=["ffff"])
    with pytest.raises(BadInput, match="is not a day"):
        out(kept, since="noon")


def test_the_document_says_its_version_and_every_field(kept: Kept) -> None:
    bring_in(kept, ONE)
    document = out(kept)
    assert document["version"] == 1
    [conversation] = document["conversations"]
    assert set(conversation) == {
        *("id", "title", "source", "project", "created", "exchanges"),
        *("tags", "summaries", "ratings"),
    }
    assert set(conversation["exchanges"][0]) == {
        *("id", "user", "assistant", "started", "completed", "status", "tokens_used"),
        *("cost_usd", "model", "errors", "decisions", "files_touched", "messages"),
        *("stumbles", "checks"),
    }


def test_reading_alone_keeps_nothing(home: Path) -> None:
    [talk] = read_conversations(json.dumps(ONE).encode(), name="talk.json", project="shop")
    assert (talk.conversation.project, len(talk.exchanges)) == ("shop", 2)
    assert not home.exists()


# What was said of conversations later


@pytest.fixture
def here(tmp_path: Path) -> Kept:
    return Kept(tmp_path / "here")


@pytest.fixture
def there(tmp_path: Path) -> Kept:
    return Kept(tmp_path / "there")


def discussed(kept: Kept) -> tuple[ConversationStream, str, str]:
    """A conversation with a tag, a summary that was paid for, and a rating."""
    bring_in(kept, ONE)
    stream = ConversationStream(HERE, kept.store)
    [talk] = stream.history.conversations
    exchange = stream.history.exchanges[talk][0]
    summary = Summary(of="conversation", target=talk, text="It was the pool.", by="m", cost_usd=0.1)
    said: list[Any] = [
        Label(target=talk, add=("auth",)),
        summary,
        Rating(target=exchange, value=1),
    ]
    stream.append([record_of(one, id=f"{n:016x}") for n, one in enumerate(said)])
    return stream, talk, exchange


def test_tags_summaries_and_ratings_travel_with_their_conversation(here: Kept, there: Kept) -> None:
    stream, talk, exchange = discussed(here)
    data = written(export_conversations([ConversationStream(HERE, here.store)]))

    import_conversations(there.store, ConversationStream(HERE, there.store), data, name="talk")
    import_conversations(there.store, ConversationStream(HERE, there.store), data, name="talk")

    other = ConversationStream(HERE, there.store)
    assert other.history.conversations[talk].tags == ("auth",)
    assert other.history.summaries[talk] == stream.history.summaries[talk]
    assert other.history.ratings == {exchange: 1}
    assert len(other.records()) == len(stream.records())
    # Where it comes from it changes nothing.
    import_conversations(here.store, ConversationStream(HERE, here.store), data, name="talk")
    assert len(stream.records()) == len(other.records())


def test_what_was_said_here_later_stays(here: Kept, there: Kept) -> None:
    _, talk, exchange = discussed(here)
    data = written(export_conversations([ConversationStream(HERE, here.store)]))
    import_conversations(there.store, ConversationStream(HERE, there.store), data, name="talk")
    other = ConversationStream(HERE, there.store)
    newer = Summary(of="conversation", target=talk, text="Newer.", covers=5)
    said: list[Any] = [
        Label(target=talk, remove=("auth",)),
        Rating(target=exchange, value=-1),
        newer,
    ]
    other.append([record_of(one, id=f"f{n:015x}") for n, one in enumerate(said)])

    import_conversations(there.store, ConversationStream(HERE, there.store), data, name="talk")

    assert other.history.conversations[talk].tags == ()
    assert other.history.ratings[exchange] == -1
    assert other.history.summaries[talk].text == "Newer."


def test_nothing_is_said_of_what_was_forgotten(here: Kept, there: Kept) -> None:
    _, talk, _ = discussed(here)
    data = written(export_conversations([ConversationStream(HERE, here.store)]))
    import_conversations(there.store, ConversationStream(HERE, there.store), data, name="talk")
    other = ConversationStream(HERE, there.store)
    other.forget([talk])

    import_conversations(there.store, ConversationStream(HERE, there.store), data, name="talk")

    assert other.records() == []


def test_a_key_in_a_tag_or_a_summary_is_not_kept(there: Kept) -> None:
    key = "ghp_0123456789abcdefABCDEF0123456789abcd"
    talk, exchange = "a" * 16, "b" * 16
    plain = {
        "id": talk,
        "exchanges": [{"id": exchange, "user": "Hello", "assistant": "Hello."}],
        "tags": [key],
        "summaries": [{"of": "exchange", "target": exchange, "text": f"It is {key}."}],
        "ratings": {exchange: 1, "nobody": 1},
    }

    bring_in(there, plain)

    stream = ConversationStream(HERE, there.store)
    assert stream.history.ratings == {exchange: 1}
    assert not any(key.lower() in one.body.decode().lower() for one in stream.records())
