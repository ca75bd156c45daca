"""From a line to its commit, its session, and what was decided there. Real repositories."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from code_history import DAY, CodeHistory, body

from ralph.errors import BadInput
from ralph.memory import working_copy
from ralph.memory.blame import Blame, blame
from ralph.memory.commit_sessions import is_bot
from ralph.memory.working_copy import Commit
from ralph.records.conversation import conversation_id

FIRST = "0a1b2c3d-1111-2222-3333-444455556666"
SECOND = "9f8e7d6c-1111-2222-3333-444455556666"
needs_links = pytest.mark.skipif(sys.platform == "win32", reason="links need rights on Windows")


@pytest.fixture
def code(tmp_path: Path, home: Path) -> CodeHistory:
    return CodeHistory(tmp_path / "shop", home)


def blamed(code: CodeHistory, target: str, **more: Any) -> Blame:
    with code.open() as ralph:
        return blame(ralph, target, **more)


def talk(session: str) -> str:
    return conversation_id("claude-code", session)


@pytest.mark.parametrize(
    "trailer",
    [
        f"Codex-Thread-ID: {FIRST}",
        f"Claude-Session: {FIRST}",
        f"X-Session-Id: {FIRST}",
        f"Session: https://example.com/s/{FIRST}",
    ],
)
def test_a_commit_names_its_session(code: CodeHistory, trailer: str) -> None:
    record = code.session(FIRST, code.create("cart.py", body("cart")))
    commit = code.commit(f"Add the cart\n\nCo-Authored-By: Claude <a@b.c>\n{trailer}")
    found = blamed(code, "cart.py:3")
    assert (found.session, found.record, found.found_by) == (talk(FIRST), record, "trailer")
    assert found.commit is not None
    assert found.commit.id.startswith(commit)
    assert found.text == "cart_step_1 = compute_cart(1)"


def test_the_address_of_a_session_in_the_cloud_is_found_in_what_it_wrote(
    code: CodeHistory,
) -> None:
    address = "https://claude.ai/code/session_01R5HnfdYMwXXrJGAkYVE48c"
    message = f"Add the cart\n\nClaude-Session: {address}"
    shell = {"name": "Bash", "input": {"command": f"git commit -m 'Add the cart' -m '{address}'"}}
    record = code.session(FIRST, code.create("cart.py", "one = 1\n"), shell)
    code.commit(message)
    found = blamed(code, "cart.py:1")
    assert (found.session, found.record, found.found_by) == (talk(FIRST), record, "trailer")


def test_a_session_that_read_an_address_in_the_log_is_not_the_one_it_names(
    code: CodeHistory,
) -> None:
    address = "https://claude.ai/code/session_01R5HnfdYMwXXrJGAkYVE48c"
    code.write("cart.py", body("cart"))
    code.commit(f"Add the cart\n\nClaude-Session: {address}", day=DAY - 1)
    shell = {"name": "Bash", "input": {"command": f"git log --grep {address}"}}
    code.session(
        FIRST,
        code.edit("cart.py", "    cart_step_8", "    more_of_cart = 1\n    cart_step_8"),
        shell,
    )
    found = blamed(code, "cart.py:3")
    assert (found.session, found.record) == ("", "")


def test_a_checkpoint_branch_says_which_session_it_was(code: CodeHistory) -> None:
    record = code.session(FIRST, code.create("cart.py", body("cart")))
    commit = code.commit("Add the cart\n\nEntire-Checkpoint: a1b2c3d4e5f6")
    assert blamed(code, "cart.py:3").found_by == "content"
    code.git("checkout", "-q", "--orphan", "entire/checkpoints/v1")
    code.git("rm", "-rfq", ".")
    folder = "a1/b2c3d4e5f6"
    code.write(f"{folder}/metadata.json", json.dumps({"sessions": [{"metadata": "x"}]}))
    # The program that writes it leaves an empty list as null.
    about = {"session_id": FIRST, "files_touched": None}
    code.write(f"{folder}/0/metadata.json", json.dumps(about))
    code.commit("Checkpoint")
    code.git("checkout", "-q", "main")
    found = blamed(code, "cart.py:3")
    assert (found.session, found.record, found.found_by) == (talk(FIRST), record, "trailer")
    assert found.commit is not None
    assert found.commit.id.startswith(commit)


def test_a_commit_of_a_loop_names_its_iteration(code: CodeHistory) -> None:
    code.write("cart.py", body("cart"))
    with code.open() as ralph:
        saved = ralph.feature("cart").remember(
            {"task_title": "Add the cart", "outcome": "success", "decisions": ["Use cents."],
             "files_touched": [{"path": "cart.py", "action": "created"}]}
        )  # fmt: skip
    code.commit(f"Add the cart\n\nRalph-Iteration: {saved.id}")
    found = blamed(code, "cart.py:3")
    assert (found.record, found.session, found.found_by) == (saved.id, "", "trailer")
    assert [decision.text for decision in found.decisions] == ["Use cents."]


def test_without_a_trailer_the_content_leads_to_the_session(code: CodeHistory) -> None:
    code.session(FIRST, code.create("cart.py", body("cart")))
    code.commit("Add the cart")
    both = body("cart") + body("basket")
    other = code.session(SECOND, code.edit("cart.py", body("cart"), both))
    code.commit("Add the basket", day=DAY + 1)
    found = blamed(code, "cart.py:14")
    assert (found.session, found.record, found.found_by) == (talk(SECOND), other, "content")


def test_a_line_that_a_person_wrote_leads_to_no_session(code: CodeHistory) -> None:
    code.session(FIRST, code.create("cart.py", body("cart")))
    code.commit("Add the cart")
    code.write("cart.py", body("cart") + body("person"))
    code.commit("By hand", day=DAY + 1)
    found = blamed(code, "cart.py:14")
    assert (found.session, found.record, found.named) == ("", "", ())


def test_one_line_that_a_session_had_too_is_not_enough(code: CodeHistory) -> None:
    code.session(FIRST, code.create("cart.py", body("cart")))
    code.commit("Add the cart")
    shared = "    cart_step_3 = compute_cart(3)\n"
    code.write("cart.py", body("other") + shared + body("person"))
    code.commit("By hand", day=DAY + 1)
    assert blamed(code, "cart.py:14").session == ""


def test_a_squash_of_two_sessions_is_told_apart_by_content(code: CodeHistory) -> None:
    code.git("checkout", "-q", "-b", "work")
    code.session(FIRST, code.create("cart.py", body("cart")), branch="work")
    code.commit(f"Add the cart\n\nCodex-Thread-ID: {FIRST}")
    both = body("cart") + body("basket")
    code.session(SECOND, code.edit("cart.py", body("cart"), both), branch="work")
    code.write("cart.py", both + "# TODO\n")
    code.commit(f"Add the basket\n\nCodex-Thread-ID: {SECOND}")
    code.git("checkout", "-q", "main")
    code.git("merge", "-q", "--squash", "work")
    code.commit(f"Cart\n\n* Add\n\nCodex-Thread-ID: {FIRST}\n* Add\n\nCodex-Thread-ID: {SECOND}")
    assert blamed(code, "cart.py:3").session == talk(FIRST)
    assert blamed(code, "cart.py:14").session == talk(SECOND)


def test_a_line_that_two_sessions_of_a_squash_left_leads_to_none(code: CodeHistory) -> None:
    code.session(FIRST, code.create("cart.py", body("cart")))
    both = body("cart") + body("basket")
    code.session(SECOND, code.create("cart.py", both))
    code.commit(f"Squash\n\nCodex-Thread-ID: {FIRST}\nCodex-Thread-ID: {SECOND}")
    assert blamed(code, "cart.py:14").session == talk(SECOND)
    assert blamed(code, "cart.py:3").named == (FIRST, SECOND)


def test_a_plain_line_of_a_squash_is_from_the_session_around_it(code: CodeHistory) -> None:
    code.session(FIRST, code.create("cart.py", body("cart") + "\n" + body("sum")))
    text = (code.root / "cart.py").read_text(encoding="utf-8")
    code.session(SECOND, code.edit("cart.py", text, text + "\n" + body("tax")))
    code.commit(f"Squash\n\nCodex-Thread-ID: {FIRST}\nCodex-Thread-ID: {SECOND}")
    assert blamed(code, "cart.py:11").session == talk(FIRST)
    assert blamed(code, "cart.py:22").session == ""


def test_a_checkpoint_says_which_of_two_sessions_changed_the_file(code: CodeHistory) -> None:
    code.session(FIRST, code.create("other.py", body("other")))
    code.session(SECOND, code.create("other2.py", body("other2")))
    code.write("cart.py", body("cart"))  # by a program that a session started
    code.commit("Squash\n\nEntire-Checkpoint: a1b2c3d4e5f6\nEntire-Checkpoint: b1b2c3d4e5f6")
    code.git("checkout", "-q", "--orphan", "entire/checkpoints/v1")
    code.git("rm", "-rfq", ".")
    for folder, session, file in (("a1", FIRST, "other.py"), ("b1", SECOND, "cart.py")):
        about = {"session_id": session, "files_touched": [file]}
        code.write(f"{folder}/b2c3d4e5f6/metadata.json", json.dumps(about))
    code.commit("Checkpoint")
    code.git("checkout", "-q", "main")
    found = blamed(code, "cart.py:3")
    assert (found.session, found.found_by) == (talk(SECOND), "trailer")


def test_a_checkpoint_and_an_address_in_one_paragraph_name_one_session(code: CodeHistory) -> None:
    code.session(FIRST, code.create("other.py", body("other")))
    code.write("cart.py", body("cart"))
    address = "Claude-Session: https://claude.ai/code/session_01AS8YV3giRoWagbRFo3ihAX"
    code.commit(f"Add the cart\n\n{address}\nEntire-Checkpoint: a1b2c3d4e5f6")
    code.git("checkout", "-q", "--orphan", "entire/checkpoints/v1")
    code.git("rm", "-rfq", ".")
    code.write("a1/b2c3d4e5f6/metadata.json", json.dumps({"session_id": FIRST}))
    code.commit("Checkpoint")
    code.git("checkout", "-q", "main")
    found = blamed(code, "cart.py:3")
    assert (found.session, found.found_by) == (talk(FIRST), "trailer")


def test_a_squash_of_two_sessions_without_their_lines_leads_to_none(code: CodeHistory) -> None:
    code.session(FIRST, code.create("other.py", body("other")))
    code.session(SECOND, code.create("other2.py", body("other2")))
    code.write("cart.py", body("cart"))
    code.commit(f"Squash\n\nCodex-Thread-ID: {FIRST}\nCodex-Thread-ID: {SECOND}")
    found = blamed(code, "cart.py:3")
    assert (found.session, found.named) == ("", (FIRST, SECOND))


def test_a_squash_of_many_commits_names_all_of_its_sessions(code: CodeHistory) -> None:
    record = code.session(FIRST, code.create("cart.py", body("cart")))
    others = "".join(
        f"* fix: number {n}\n\nReviewed-by: Someone {n}\nCodex-Thread-ID: {n:08}{SECOND[8:]}\n"
        for n in range(30)
    )
    code.commit(f"Squashed\n\n{others}Codex-Thread-ID: {FIRST}")
    found = blamed(code, "cart.py:3")
    assert (found.session, found.record, found.found_by) == (talk(FIRST), record, "trailer")


def test_a_session_that_commits_what_another_one_wrote(code: CodeHistory) -> None:
    record = code.session(FIRST, code.create("cart.py", body("cart")))
    code.session(SECOND, code.create("other.py", body("other")))
    code.commit(f"Add all of it\n\nCodex-Thread-ID: {SECOND}")
    found = blamed(code, "cart.py:3")
    assert (found.session, found.record, found.found_by) == (talk(SECOND), record, "trailer")
    assert found.changes[0].session == talk(FIRST)


def test_a_session_that_memory_lacks_is_named(code: CodeHistory) -> None:
    code.session(FIRST, code.create("cart.py", body("cart")))
    code.commit(f"Add the cart\n\nCodex-Thread-ID: {SECOND}")
    found = blamed(code, "cart.py:3")
    assert (found.session, found.record, found.named) == ("", "", (SECOND,))


@pytest.mark.parametrize(
    ("author", "bot"),
    [
        ("dependabot[bot]", True),
        ("renovate-bot", True),
        ("github-actions", True),
        ("Abbot Smith", False),
        ("Robot Rosa", False),
    ],
)
def test_bots_are_known_by_their_names(author: str, bot: bool) -> None:
    assert is_bot(Commit("0" * 40, author, "someone@example.com")) is bot


def test_a_commit_of_a_bot_leads_to_no_session(code: CodeHistory) -> None:
    code.session(FIRST, code.create("cart.py", body("cart")))
    code.git("add", "-A")
    who = ("-c", "user.name=dependabot[bot]", "-c", "user.email=d@example.com")
    bot = "--author=dependabot[bot] <d@example.com>"
    code.git(*who, "commit", "-q", bot, "-m", f"Bump\n\nCodex-Thread-ID: {FIRST}")
    found = blamed(code, "cart.py:3")
    assert found.session == ""
    assert found.commit is not None
    assert found.commit.bot


def test_a_line_that_moved_since_the_commit_is_found(code: CodeHistory) -> None:
    record = code.session(FIRST, code.create("cart.py", body("cart")))
    code.commit(f"Add the cart\n\nCodex-Thread-ID: {FIRST}")
    code.write("cart.py", "# A new first line.\n\n" + body("cart"))
    assert blamed(code, "cart.py:5").record == record
    first = blamed(code, "cart.py:1")
    assert (first.commit, first.note, first.session) == (None, "not committed yet", "")


def test_lines_before_and_after_a_change_are_found_however_long_the_file(
    code: CodeHistory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(working_copy, "_MOST_COMPARED", 4)
    record = code.session(FIRST, code.create("cart.py", body("cart", 30)))
    code.commit(f"Add the cart\n\nCodex-Thread-ID: {FIRST}")
    text = (code.root / "cart.py").read_text(encoding="utf-8")
    code.write("cart.py", text.replace("    cart_step_9 ", "    # New.\n    cart_step_9 "))
    assert blamed(code, "cart.py:3").record == record
    assert blamed(code, "cart.py:30").record == record
    assert blamed(code, "cart.py:11").note == "not committed yet"


@needs_links
def test_a_link_has_no_lines(code: CodeHistory) -> None:
    (code.root / "link.py").symlink_to(code.root / "README.md")
    with pytest.raises(BadInput, match=r"link\.py is a link or no plain file"):
        blamed(code, "link.py:1")


def test_a_file_that_was_renamed_keeps_its_sessions(code: CodeHistory) -> None:
    record = code.session(FIRST, code.create("cart.py", body("cart")))
    code.commit("Add the cart")
    code.git("mv", "cart.py", "basket.py")
    code.commit("Rename it", day=DAY + 1)
    assert blamed(code, "basket.py:3").record == record


def test_a_line_says_what_was_decided_rejected_and_broken(code: CodeHistory) -> None:
    question = "Why not floats? Don't use floats for prices in the cart, always use cents."
    answer = "I decided to keep prices in cents because floats lose cents when they are added."
    record = code.session(
        FIRST, code.create("cart.py", body("cart")), question=question, answer=answer
    )
    code.commit("Add the cart")
    found = blamed(code, "cart.py:3")
    assert found.record == record
    assert any("cents" in decision.text for decision in found.decisions)
    assert found.changes[0].title == question
    assert (found.changes[0].lines, found.changes[0].surviving) == (10, 10)


def test_a_file_lists_what_changed_it_and_how_much_is_left(code: CodeHistory) -> None:
    first = code.session(FIRST, code.create("cart.py", body("cart")))
    code.commit("Add the cart")
    half = "".join(f"{line}\n" for line in body("cart").splitlines()[:5])
    second = code.session(SECOND, code.edit("cart.py", body("cart"), half + body("basket")))
    code.commit("Add the basket", day=DAY + 1)
    found = blamed(code, "cart.py")
    lines = {change.id: (change.surviving, change.lines) for change in found.changes}
    assert lines == {first: (5, 10), second: (10, 10)}


def test_a_deleted_file_still_has_its_history(code: CodeHistory) -> None:
    record = code.session(FIRST, code.create("cart.py", body("cart")))
    code.commit("Add the cart")
    code.git("rm", "-q", "cart.py")
    code.commit("No cart", day=DAY + 1)
    found = blamed(code, "cart.py")
    assert [change.id for change in found.changes] == [record]
    assert found.note == "the file is not there any more"
    with pytest.raises(BadInput, match="not there any more"):
        blamed(code, "cart.py:3")


def test_without_git_the_content_leads_to_the_session(code: CodeHistory) -> None:
    record = code.session(FIRST, code.create("cart.py", body("cart")))
    shutil.rmtree(code.root / ".git")
    (code.root / ".ralph").mkdir(exist_ok=True)
    with code.open() as ralph:
        code_of = [hit.id for hit in ralph.recent(5, kinds=("conversation",))]
        found = blame(ralph, "cart.py:3")
    assert found.note == "no git history to ask"
    assert found.record == (record if record in code_of else "")


@pytest.mark.parametrize(
    ("target", "complaint"),
    [
        ("nothing.py", "not a file of this project"),
        ("cart.py:0", "no line 0"),
        ("cart.py:11", "has 10 lines, and no line 11"),
        ("cart.py:x", "not a file of this project"),
        ("../outside.py", "not in the project"),
        ("/etc/passwd", "not in the project"),
        (".", "is a folder"),
        ("", "no file name"),
    ],
)
def test_bad_input_says_what_is_wrong(code: CodeHistory, target: str, complaint: str) -> None:
    code.session(FIRST, code.create("cart.py", body("cart")))
    with pytest.raises(BadInput, match=complaint):
        blamed(code, target)


def test_a_path_is_taken_from_the_folder_one_is_in(code: CodeHistory) -> None:
    record = code.session(FIRST, code.create("src/cart.py", body("cart")))
    code.commit("Add the cart")
    assert blamed(code, "cart.py:3", folder=code.root / "src").record == record
    assert blamed(code, "../src/cart.py:3", folder=code.root / "src").record == record


def test_git_runs_no_program_that_the_repository_names(code: CodeHistory, tmp_path: Path) -> None:
    code.session(FIRST, code.create("cart.py", body("cart")))
    code.write(".gitattributes", "*.py filter=bad diff=bad\n")
    code.commit("Add the cart")
    mark = tmp_path / "ran"
    for name in ("filter.bad.clean", "filter.bad.smudge", "diff.bad.textconv"):
        code.git("config", name, f"touch '{mark}' && cat")
    code.write("cart.py", body("cart") + "# More of it.\n")
    blamed(code, "cart.py:3")
    assert not mark.exists()
