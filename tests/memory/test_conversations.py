"""Conversational memory: kept in Ralph's home, one stream a project, found again by asking."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from ralph import open_ralph
from ralph.errors import BadInput, BadRecord, NotFound
from ralph.index.sync import live_of
from ralph.memory.ralph import Ralph
from ralph.memory.store import when
from ralph.records.conversation import Conversation, Exchange, Message, conversation_id, exchange_id
from ralph.records.iteration import ErrorSeen, FileTouched
from ralph.text.sanitize import mark


def opened(folder: Path, home: Path) -> Ralph:
    return open_ralph(folder, home=home)


def held(
    session: str, *pairs: tuple[str, str], created: str = "2026-03-01T10:00:00Z"
) -> tuple[Conversation, list[Exchange]]:
    identity = conversation_id("claude-code", session)
    exchanges = [
        Exchange(
            id=exchange_id(identity, str(n)),
            conversation=identity,
            user=user,
            assistant=assistant,
            completed=f"2026-03-01T10:{n:02}:00Z",
        )
        for n, (user, assistant) in enumerate(pairs)
    ]
    return Conversation(id=identity, source="claude-code", created=created), exchanges


def test_an_exchange_is_found_again_by_another_process(tmp_path: Path) -> None:
    with opened(tmp_path / "shop", tmp_path / "home") as ralph:
        conversation = ralph.conversations.start("Debug timeouts")
        kept = ralph.conversations.exchange(
            conversation,
            user="The checkout times out under load, why?",
            assistant="The connection pool was exhausted; raising its size to 20 fixed it.",
        )
        ralph.conversations.exchange(
            conversation, user="Rename the logo file", assistant="Renamed to logo.svg."
        )

    with opened(tmp_path / "shop", tmp_path / "home") as ralph:
        best = ralph.conversations.search("how did we fix the checkout timeout?")[0]

    assert best.id == kept.id
    assert best.kind == "exchange"
    assert best.record.assistant.startswith("The connection pool")
    assert best.when.endswith(", today")


def test_the_journal_lies_in_the_home_and_the_project_stays_clean(tmp_path: Path) -> None:
    with opened(tmp_path / "shop", tmp_path / "home") as ralph:
        ralph.project.init()
        ralph.conversations.start("One")
        [file] = (tmp_path / "home" / "journal" / "conversations").glob("*.jsonl")

        assert file.stem == ralph.project.id
    assert not list((tmp_path / "shop" / ".ralph" / "db" / "memory").glob("*.jsonl"))


def test_another_projects_conversations_are_found_only_when_everywhere_is_asked(
    tmp_path: Path,
) -> None:
    with opened(tmp_path / "shop", tmp_path / "home") as shop:
        shop.project.init()
        one = shop.conversations.start("Payment")
        shop.conversations.exchange(
            one, user="Which payment provider do we use?", assistant="Stripe, in test mode."
        )
    with opened(tmp_path / "blog", tmp_path / "home") as blog:
        blog.project.init()

        assert blog.conversations.search("which payment provider") == []
        [hit] = blog.conversations.search("which payment provider", everywhere=True)
        assert hit.record.assistant == "Stripe, in test mode."
        assert blog.conversations.conversation(one, everywhere=True).title == "Payment"
        for ask in (blog.conversations.conversation, blog.conversations.exchanges):
            with pytest.raises(NotFound):
                ask(one)
        with pytest.raises(NotFound):
            blog.conversations.get(hit.id)
        assert blog.conversations.list() == []
        assert len(blog.conversations.list(everywhere=True)) == 1


def test_the_same_exchanges_added_again_are_kept_once(tmp_path: Path) -> None:
    conversation, exchanges = held("s1", ("a question", "an answer"), ("another", "one more"))
    with opened(tmp_path / "shop", tmp_path / "home") as ralph:
        first = ralph.conversations.add(conversation, exchanges[:1])
        again = ralph.conversations.add(conversation, exchanges)

        assert [one.fresh for one in first] == [True]
        assert [one.fresh for one in again] == [False, True]
        assert len(ralph.conversations.exchanges(conversation.id)) == 2
    [file] = (tmp_path / "home" / "journal" / "conversations").glob("*.jsonl")
    assert len(file.read_text(encoding="utf-8").splitlines()) == 3


def test_a_known_exchange_that_comes_again_with_other_content_stays_as_it_was(
    tmp_path: Path,
) -> None:
    conversation, exchanges = held("s1", ("a question", "the whole answer"))
    shorter = Exchange(id=exchanges[0].id, conversation=conversation.id, user="a question")
    with opened(tmp_path / "shop", tmp_path / "home") as ralph:
        ralph.conversations.add(conversation, exchanges)
        [kept] = ralph.conversations.add(conversation, [shorter])

    assert kept.record.assistant == "the whole answer"
    assert not kept.fresh


def test_the_conversation_under_way_can_be_left_out(tmp_path: Path) -> None:
    now_open, mine = held("now", ("the login form loses its state", "let me look"))
    before, theirs = held("then", ("the login form loses its state", "it was the session cookie"))
    with opened(tmp_path / "shop", tmp_path / "home") as ralph:
        ralph.conversations.add(now_open, mine)
        ralph.conversations.add(before, theirs)

        found = ralph.conversations.search("login form loses its state", exclude=now_open.id)

    assert [hit.record.conversation for hit in found] == [before.id]


def test_words_alone_need_no_embedder(tmp_path: Path) -> None:
    with open_ralph(tmp_path / "shop", home=tmp_path / "home", embedder="none") as ralph:
        conversation, exchanges = held("s", ("where is PG_POOL_SIZE read?", "in settings.py"))
        ralph.conversations.add(conversation, exchanges)

        [hit] = ralph.conversations.search("PG_POOL_SIZE", words_only=True)

    assert hit.record.assistant == "in settings.py"


def test_secrets_and_recalled_text_are_not_kept(tmp_path: Path) -> None:
    recalled = mark("iteration 7: something remembered")
    with opened(tmp_path / "shop", tmp_path / "home") as ralph:
        conversation = ralph.conversations.start("Keys")
        kept = ralph.conversations.exchange(
            conversation,
            user=f"use sk-ant-api03-{'a1B2' * 20} please\n{recalled}",
            assistant="done",
            errors=(
                ErrorSeen("password=hunter2hunter2 refused", resolution="set PASSWORD=geheim99x"),
            ),
            messages=(Message("tool", "export AWS_SECRET_ACCESS_KEY=" + "Ab1+" * 10, "Bash"),),
        )
    [file] = (tmp_path / "home" / "journal" / "conversations").glob("*.jsonl")
    written = file.read_text(encoding="utf-8")

    assert "[redacted:" in kept.record.user
    for secret in ("a1B2a1B2", "hunter2", "geheim99x", "Ab1+Ab1+", "something remembered"):
        assert secret not in written


def test_a_word_far_down_in_a_long_question_or_answer_is_found(tmp_path: Path) -> None:
    with open_ralph(tmp_path / "shop", home=tmp_path / "home") as ralph:
        talk = ralph.conversations.start()
        far = "The parser reads one line after the other. " * 300
        for n, (user, assistant) in enumerate(
            [(f"{far} visibleDuration", "Done."), ("Why?", f"{far} refetches"), ("And?", far)]
        ):
            ralph.conversations.exchange(talk, user=f"{n}. {user}", assistant=assistant)
        for word, number in (("visibleDuration", "0"), ("refetches", "1")):
            [first, *_] = ralph.search(word)
            assert first.record.user.startswith(number)


def test_long_texts_are_cut_and_say_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ralph.memory.conversation_stream._EXCHANGE_CHARS", 100)
    with open_ralph(tmp_path / "shop", home=tmp_path / "home") as ralph:
        conversation = ralph.conversations.start("x" * 500)
        steps = tuple(Message("assistant", "step " * 10) for _ in range(10))
        kept = ralph.conversations.exchange(
            conversation, user="u " * 200, assistant="a " * 200, messages=steps
        ).record

        assert kept.user.endswith("[truncated]")
        assert len(kept.assistant) <= 100
        assert sum(len(one.content) for one in kept.messages) <= 100
        assert len(ralph.conversations.conversation(conversation).title) <= 200


def test_a_path_outside_the_project_is_not_kept(tmp_path: Path) -> None:
    with opened(tmp_path / "shop", tmp_path / "home") as ralph:
        conversation = ralph.conversations.start("Files")
        kept = ralph.conversations.exchange(
            conversation,
            user="edit them",
            assistant="done",
            files_touched=(FileTouched("../x", "read"), FileTouched("src/a.py", "modified")),
        )

    assert kept.record.files_touched == (FileTouched("src/a.py", "modified"),)


def test_exchanges_come_in_the_order_they_were_held(tmp_path: Path) -> None:
    conversation, exchanges = held("s", ("first", "1"), ("second", "2"), ("third", "3"))
    with opened(tmp_path / "shop", tmp_path / "home") as ralph:
        ralph.conversations.add(conversation, exchanges[2:])
        ralph.conversations.add(conversation, exchanges[:2])

        told = ralph.conversations.exchanges(conversation.id[:8])

    assert [one.user for one in told] == ["first", "second", "third"]


def test_the_conversation_with_the_newest_exchange_is_listed_first(tmp_path: Path) -> None:
    old, some = held("old", ("q", "a"), ("later", "b"))
    new, none = held("new", created="2026-03-01T10:00:30Z")
    with opened(tmp_path / "shop", tmp_path / "home") as ralph:
        ralph.conversations.add(new, none)
        ralph.conversations.add(old, some)

        listed = ralph.conversations.list()

    assert [(one.conversation.id, one.exchanges) for one in listed] == [(old.id, 2), (new.id, 0)]


@pytest.mark.parametrize("wanted", ["", "abc", "0123456789abcdef"])
def test_an_unknown_conversation_or_exchange_is_told(tmp_path: Path, wanted: str) -> None:
    with opened(tmp_path / "shop", tmp_path / "home") as ralph:
        ralph.conversations.start("One")
        with pytest.raises(NotFound, match="there is no conversation"):
            ralph.conversations.conversation(wanted)
        with pytest.raises(NotFound, match="there is no exchange"):
            ralph.conversations.get(wanted)
        with pytest.raises(NotFound):
            ralph.conversations.exchange(wanted, user="hello", assistant="hi")


def test_what_is_no_exchange_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    conversation, exchanges = held("s", ("a", "b"))
    with opened(tmp_path / "shop", tmp_path / "home") as ralph:
        empty = Exchange(id="x1", conversation=conversation.id)
        with pytest.raises(BadRecord, match="nothing in this exchange"):
            ralph.conversations.add(conversation, [*exchanges, empty])
        with pytest.raises(BadRecord, match="belongs to conversation"):
            ralph.conversations.add(Conversation(id="other"), exchanges)
        with pytest.raises(BadRecord, match="is not a time"):
            ralph.conversations.add(
                conversation, [Exchange(id="x2", conversation="", user="a", completed="soon")]
            )
        started = ralph.conversations.start("One")
        with pytest.raises(BadInput, match="not an exchange"):
            ralph.conversations.exchange(started, user="a", assistant="b", colour="red")

        assert len(ralph.conversations.list()) == 1


def test_ids_are_short_and_the_same_on_every_machine() -> None:
    assert conversation_id("claude-code", "97007ef6") == "54fab6d39bb4551e"
    assert exchange_id("c", "1") == "830f16445d17536f"
    assert len({exchange_id("c", "1"), exchange_id("c", "2"), exchange_id("d", "2")}) == 3


def test_a_conversation_whose_record_is_damaged_hides_no_other_and_keeps_its_exchanges(
    tmp_path: Path,
) -> None:
    with opened(tmp_path / "shop", tmp_path / "home") as ralph:
        for session in ("one", "two"):
            ralph.conversations.add(*held(session, (f"What is {session}?", "A number.")))
        [journal] = (tmp_path / "home").glob("journal/conversations/*.jsonl")
    lines = journal.read_text(encoding="utf-8").splitlines(keepends=True)
    body = '"body":{'
    assert body in lines[0]
    lines[0] = lines[0].replace(body, body + '"title":7,', 1)
    journal.write_text("".join(lines), encoding="utf-8")

    with opened(tmp_path / "shop", tmp_path / "home") as ralph:
        listed = ralph.conversations.list()
        told = {one.conversation.title: one.exchanges for one in listed}
        _, complaints = ralph.conversations.stream.verify()
    assert told == {"What is one?": 1, "": 1}
    assert any("is not a readable conversation" in one.what for one in complaints)


@pytest.mark.parametrize(
    ("at", "told"),
    [
        ("2026-03-10T01:00:00Z", "2026-03-10, today"),
        ("2026-03-09T23:00:00Z", "2026-03-09, yesterday"),
        ("2026-02-28T12:00:00Z", "2026-02-28, 10 days ago"),
        ("9999-12-31T23:59:59Z", "9999-12-31"),
        ("", "at an unknown time"),
    ],
)
def test_a_moment_says_how_long_ago_it_is(at: str, told: str) -> None:
    assert when(at, today=datetime(2026, 3, 10, 12, tzinfo=UTC)) == told


def test_another_projects_index_is_not_rebuilt_with_our_embedder(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with open_ralph(tmp_path / "shop", home=home, embedder="none") as shop:
        shop.project.init()
        one = shop.conversations.start("Payment")
        shop.conversations.exchange(one, user="Which payment provider?", assistant="Stripe.")
        shop.conversations.sync()
        theirs = shop.conversations.stream.target().name
    with opened(tmp_path / "blog", home) as blog:
        blog.project.init()
        [hit] = blog.conversations.search("which payment provider", everywhere=True)
        with blog.conversations.store.index.store.state() as view:
            live = live_of(view, theirs)

    assert hit.record.assistant == "Stripe."
    assert live is not None
    assert live.manifest.embedder == "none"
