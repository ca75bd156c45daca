"""Does the code that a record speaks of still stand? Real repositories, real sessions."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest
from code_history import DAY, CodeHistory, body

from ralph.capture.anchors import Anchor, line_hashes
from ralph.memory.anchors import AnchorStore, SavedAnchor
from ralph.memory.working_copy import NO_FILE, WorkingCopy
from ralph.recall import Standing


@pytest.fixture
def code(tmp_path: Path, home: Path) -> CodeHistory:
    return CodeHistory(tmp_path / "shop", home)


def test_code_that_is_still_there_holds(code: CodeHistory) -> None:
    record = code.session("cart", code.create("cart.py", body("cart")))
    code.commit("Add the cart")
    assert code.standing(record) == Standing("holds")


def test_code_holds_before_it_is_committed(code: CodeHistory) -> None:
    record = code.session("cart", code.create("cart.py", body("cart")))
    assert code.standing(record) == Standing("holds")


@pytest.mark.parametrize("beside", [False, True])
def test_the_code_of_a_sub_agent_counts_for_the_session_that_started_it(
    code: CodeHistory, beside: bool
) -> None:
    work = code.agent("cart", "a1b2c3", code.create("cart.py", body("cart")), beside=beside)
    record = code.session("cart", work)
    code.commit("Add the cart")
    assert code.standing(record) == Standing("holds")
    code.git("rm", "-q", "cart.py")
    code.write("other.py", body("other"))
    gone = code.commit("Remove the cart", day=DAY + 1)
    assert code.standing(record) == Standing("gone", f"gone from cart.py since {gone}")


def test_what_a_session_removes_after_its_sub_agent_wrote_it_was_never_left(
    code: CodeHistory,
) -> None:
    work = code.agent("cart", "a1b2c3", code.create("cart.py", body("cart") + body("old")))
    record = code.session("cart", work, code.edit("cart.py", body("old"), ""))
    code.commit("Add the cart")
    assert code.standing(record) == Standing("holds")
    with code.open() as ralph:
        saved = AnchorStore(ralph.project.home).of_file("cart.py")
    assert [len(one.anchor.hashes) for one in saved] == [10]


def test_a_sub_agent_without_a_file_or_with_a_strange_id_changes_nothing(
    code: CodeHistory,
) -> None:
    work = code.agent("cart", "a1b2c3", code.create("cart.py", body("cart")))
    strange = work | {"result": {"agentId": "../../cart/subagents/agent-a1b2c3"}}
    missing = work | {"result": {"agentId": "d4e5f6"}}
    assert code.standing(code.session("cart", strange, missing)) is None


def test_code_holds_after_it_is_formatted_and_surrounded(code: CodeHistory) -> None:
    record = code.session("cart", code.create("cart.py", body("cart")))
    code.commit("Add the cart")
    indented = "\n".join(f"\t{line}  " for line in body("cart").splitlines())
    code.write("cart.py", f"{body('before')}\nclass Cart:\n{indented}\n{body('after')}")
    code.commit("Put it into a class", day=DAY + 1)
    assert code.standing(record) == Standing("holds")


def test_code_holds_after_a_squash_that_lost_its_commit(code: CodeHistory) -> None:
    code.git("checkout", "-q", "-b", "work")
    record = code.session("cart", code.create("cart.py", body("cart")), branch="work")
    code.commit("Add the cart")
    code.git("checkout", "-q", "main")
    code.git("merge", "-q", "--squash", "work", day=DAY + 1)
    code.commit("Squashed", day=DAY + 1)
    code.git("branch", "-q", "-D", "work")
    assert code.standing(record) == Standing("holds")


def test_a_line_that_could_be_any_tells_nothing(code: CodeHistory) -> None:
    log = "    log::debug!(\n"
    code.write("cart.rs", log + "one();\n")
    record = code.session("cart", code.edit("cart.rs", "one();\n", log + "two();\n"))
    assert code.standing(record) is None
    telling = "    log::debug!(target: cart,\n"
    other = code.session("other", code.edit("cart.rs", "two();\n", telling + log))
    assert code.standing(other) == Standing("holds")


def test_changed_code_names_the_commit_and_how_many_there_were(code: CodeHistory) -> None:
    record = code.session("cart", code.create("cart.py", body("cart")))
    code.commit("Add the cart")
    lines = body("cart").splitlines()
    code.write("cart.py", "\n".join([*lines[:6], "    changed_in_review = True"]))
    first = code.commit("Change half of it", day=DAY + 1)
    code.write("cart.py", "\n".join([*lines[:6], "    changed_in_review = False"]))
    code.commit("Change it again", day=DAY + 2)
    assert code.standing(record) == Standing(
        "changed", f"cart.py changed since ({first}, 2 commits)"
    )


def test_removed_code_is_gone_since_the_commit_that_removed_it(code: CodeHistory) -> None:
    record = code.session("cart", code.create("cart.py", body("cart")))
    code.commit("Add the cart")
    for day in range(4):
        code.write("cart.py", body("cart") + body(f"more{day}"))
        code.commit(f"Add more on day {day}", day=DAY + day)
    code.write("cart.py", body("other"))
    removed = code.commit("Write it anew", day=DAY + 5)
    code.write("cart.py", body("another"))
    code.commit("Write it anew again", day=DAY + 6)
    assert code.standing(record) == Standing("gone", f"gone from cart.py since {removed}")


def test_code_whose_lines_got_one_more_argument_is_changed(code: CodeHistory) -> None:
    record = code.session("cart", code.create("cart.py", body("cart")))
    code.commit("Add the cart")
    amended = body("cart").replace("compute_cart(", "compute_cart(rate, ").replace("request", "req")
    code.write("cart.py", amended)
    commit = code.commit("Pass the rate", day=DAY + 1)
    assert code.standing(record) == Standing(
        "changed", f"cart.py changed since ({commit}, 1 commit)"
    )


def test_what_a_revert_brings_back_is_no_form_of_what_it_removed(code: CodeHistory) -> None:
    before = body("cart")
    code.write("cart.py", before)
    code.commit("Add the cart")
    after = before.replace("compute_cart(", "compute_cart(rate, ").replace("request", "req")
    record = code.session("cart", code.edit("cart.py", before, after))
    code.commit("Pass the rate")
    code.write("cart.py", before)
    commit = code.commit("Do not pass the rate", day=DAY + 1)
    assert code.standing(record) == Standing("gone", f"gone from cart.py since {commit}")


def test_reverted_code_is_gone(code: CodeHistory) -> None:
    code.write("cart.py", body("old"))
    code.commit("An older cart", day=DAY - 1)
    record = code.session("cart", code.edit("cart.py", body("old"), body("cart")))
    code.commit("Change the cart")
    code.git("revert", "--no-edit", "HEAD", day=DAY + 1)
    reverted = code.git("rev-parse", "--short", "HEAD")
    assert code.standing(record) == Standing("gone", f"gone from cart.py since {reverted}")


def test_code_that_was_removed_and_not_committed_says_so(code: CodeHistory) -> None:
    record = code.session("cart", code.create("cart.py", body("cart")))
    code.commit("Add the cart")
    code.write("cart.py", body("other"))
    assert code.standing(record) == Standing("gone", "gone from cart.py, not committed yet")
    code.git("checkout", "-q", "cart.py")
    assert code.standing(record) == Standing("holds")


def test_what_was_not_committed_names_its_commit_later(code: CodeHistory) -> None:
    record = code.session("cart", code.create("cart.py", body("cart")))
    code.commit("Add the cart")
    code.write("cart.py", body("other"))
    assert code.standing(record) == Standing("gone", "gone from cart.py, not committed yet")
    removed = code.commit("Write it anew", day=DAY + 1)
    assert code.standing(record) == Standing("gone", f"gone from cart.py since {removed}")
    code.write("else.py", "nothing_else = 1\n")
    code.commit("Something else", day=DAY + 2)
    assert code.standing(record) == Standing("gone", f"gone from cart.py since {removed}")


def test_a_renamed_file_is_found(code: CodeHistory) -> None:
    record = code.session("cart", code.create("cart.py", body("cart")))
    code.commit("Add the cart")
    (code.root / "shop").mkdir()
    code.git("mv", "cart.py", "shop/basket.py")
    code.commit("Rename it", day=DAY + 1)
    assert code.standing(record) == Standing("moved", "moved to shop/basket.py")


def test_code_that_moved_to_a_file_of_the_same_name_is_found(code: CodeHistory) -> None:
    record = code.session("cart", code.create("a[1]/cart.py", body("cart")))
    code.commit("Add the cart")
    code.write("b[2]/cart.py", body("cart") + body("more"))
    code.write("a[1]/cart.py", body("other"))
    code.commit("Move it", day=DAY + 1)
    assert code.standing(record) == Standing("moved", "moved to b[2]/cart.py")


def test_code_on_another_branch_names_the_branch(code: CodeHistory) -> None:
    code.git("checkout", "-q", "-b", "work")
    record = code.session("cart", code.create("cart.py", body("cart")), branch="work")
    code.commit("Add the cart")
    assert code.standing(record) == Standing("holds")
    code.git("checkout", "-q", "main")
    assert code.standing(record) == Standing("elsewhere", "only on branch work")
    # After the push, the branch here was deleted.
    code.git("update-ref", "refs/remotes/origin/work", "work")
    code.git("branch", "-q", "-D", "work")
    assert code.standing(record) == Standing("elsewhere", "only on branch work")
    code.git("update-ref", "-d", "refs/remotes/origin/work")
    assert code.standing(record) == Standing("gone", "gone from cart.py")


def test_a_project_below_the_top_of_a_repository(code: CodeHistory) -> None:
    shop = CodeHistory(code.root / "services" / "shop", code.home)
    shutil.rmtree(shop.root / ".git")
    (shop.root / ".ralph" / "db").mkdir(parents=True)
    record = shop.session("cart", shop.create("cart.py", body("cart")))
    code.commit("Add the cart")
    shop.write("cart.py", body("other"))
    removed = code.commit("Write it anew", day=DAY + 1)
    assert shop.standing(record) == Standing("gone", f"gone from cart.py since {removed}")


def test_what_an_exchange_wrote_and_removed_itself_counts_for_nothing(code: CodeHistory) -> None:
    code.write("cart.py", "first_line_of_the_cart()\n")
    first = code.edit("cart.py", "first_line_of_the_cart()\n", body("attempt"))
    second = code.edit("cart.py", body("attempt"), body("cart"))
    record = code.session("cart", first, second)
    code.commit("Add the cart")
    assert code.standing(record) == Standing("holds")


def test_a_record_without_changes_says_nothing(code: CodeHistory) -> None:
    record = code.session("question")
    assert code.standing(record) is None


def test_nothing_is_said_without_git(code: CodeHistory) -> None:
    record = code.session("cart", code.create("cart.py", body("cart")))
    code.commit("Add the cart")
    shutil.rmtree(code.root / ".git")
    with code.open() as ralph:
        assert ralph.standings.of([record]) == {}


def test_nothing_is_said_in_a_shallow_clone(code: CodeHistory, tmp_path: Path) -> None:
    record = code.session("cart", code.create("cart.py", body("cart")))
    code.commit("Add the cart")
    code.write("cart.py", body("other"))
    code.commit("Write it anew", day=DAY + 1)
    shallow = tmp_path / "shallow"
    code.git("clone", "-q", "--depth", "1", f"file://{code.root}", str(shallow))
    clone = CodeHistory.__new__(CodeHistory)
    clone.root, clone.home = shallow, code.home
    with clone.open() as ralph:
        assert ralph.standings.of([record]) == {}


@pytest.mark.skipif(sys.platform == "win32", reason="no named pipes here")
def test_a_pipe_or_a_link_in_place_of_a_file_is_not_read(code: CodeHistory, tmp_path: Path) -> None:
    record = code.session("cart", code.create("cart.py", body("cart")))
    code.commit("Add the cart")
    (tmp_path / "outside.py").write_text(body("cart"), encoding="utf-8")
    (code.root / "cart.py").unlink()
    (code.root / "cart.py").symlink_to(tmp_path / "outside.py")
    assert code.standing(record) == Standing("gone", "gone from cart.py, not committed yet")
    (code.root / "cart.py").unlink()
    if sys.platform != "win32":
        os.mkfifo(code.root / "cart.py")
    assert code.standing(record) == Standing("gone", "gone from cart.py, not committed yet")


def test_a_search_puts_code_that_is_gone_behind_code_that_holds(code: CodeHistory) -> None:
    question = "How does the cart round prices to cents?"
    answer = "The cart rounds prices half to even, in cents."
    old = code.session("old", code.create("old.py", body("old")), question=question, answer=answer)
    code.commit("Old")
    other = "How does the cart round prices to cents now?"
    new = code.session(
        "new", code.create("new.py", body("new")), question=other, answer=f"{answer} Always."
    )
    code.commit("New")
    for gone, holds, path in ((old, new, "old.py"), (new, old, "new.py")):
        code.write(path, body("nothing"))
        with code.open() as ralph:
            hits = ralph.search("How does the cart round prices?")
        assert [hit.id for hit in hits] == [holds, gone]
        assert hits[0].standing == Standing("holds")
        assert hits[1].standing is not None
        assert hits[1].standing.is_gone
        code.git("checkout", "-q", path)


def test_a_failure_says_that_its_file_is_gone(code: CodeHistory) -> None:
    code.write("cart.py", body("cart"))
    code.commit("A cart", day=DAY - 1)
    touched = {"name": "Edit", "input": {"file_path": str(code.root / "cart.py")}}
    record = code.session("cart", touched)
    assert code.standing(record) is None
    code.git("rm", "-q", "cart.py")
    code.commit("No cart", day=DAY + 1)
    assert code.standing(record) == Standing("gone", "cart.py gone")


def test_importing_again_fills_the_anchors_of_old_sessions(code: CodeHistory) -> None:
    record = code.session("cart", code.create("cart.py", body("cart")))
    AnchorStore(code.home).path.unlink()
    assert code.standing(record) is None
    (code.home / "cache" / "imports" / "claude-code.json").unlink()
    code.session("cart", code.create("cart.py", body("cart")))
    assert code.standing(record) == Standing("holds")


def test_anchors_that_are_saved_again_count_at_once(code: CodeHistory) -> None:
    record = code.session("cart", code.create("cart.py", body("cart")))
    code.commit("Add the cart")
    assert code.standing(record) == Standing("holds")
    with code.open() as ralph:
        store = AnchorStore(ralph.project.home)
        saved = store.of_file("cart.py")[0]
        other = "".join(line_hashes(body("other")))
        store.save([saved._replace(anchor=Anchor("cart.py", other))])
    assert code.standing(record) == Standing("gone", "gone from cart.py")


def test_what_is_forgotten_leaves_no_anchor_and_gets_none_again(code: CodeHistory) -> None:
    record = code.session("cart", code.create("secret_plan.py", body("cart")))
    assert code.standing(record) == Standing("holds")
    with code.open() as ralph:
        ralph.conversations.forget([record])
    assert AnchorStore(code.home).of_records([record]) == {}
    left = [
        file
        for file in code.home.rglob("*")
        if file.is_file() and b"secret_plan" in file.read_bytes()
    ]
    assert left == []


def test_a_damaged_store_says_nothing_and_is_filled_again(code: CodeHistory) -> None:
    record = code.session("cart", code.create("cart.py", body("cart")))
    store = AnchorStore(code.home)
    store.path.write_bytes(b"this is no database" * 100)
    assert store.of_records([record]) == {}
    store.save([SavedAnchor(record, Anchor("cart.py", "0a0b0c0d"), "2026-11-02T10:00:00Z")])
    store.save([SavedAnchor(record, Anchor("cart.py", "0a0b0c0d"), "2026-11-02T10:00:00Z")])
    assert list(store.of_records([record])) == [record]


def test_files_that_people_edited_since_a_time(code: CodeHistory) -> None:
    names = ("kept.py", "edited.py", "reformatted.py", "reverted.py", "open.py", "agent.py")
    for name in names:
        code.write(name, body(name.partition(".")[0]))
    code.commit("All of them", day=DAY - 1)
    added = code.edit("agent.py", body("agent"), body("agent") + body("session"))
    code.session("agent", added)
    code.write("edited.py", body("edited") + body("more"))
    code.write("reformatted.py", body("reformatted").replace("    ", "\t"))
    code.write("reverted.py", body("other"))
    code.commit("By hand, and an agent", day=DAY + 2)
    code.write("reverted.py", body("reverted"))
    code.commit("Take it back", day=DAY + 3)
    code.write("open.py", body("other"))
    with code.open() as ralph:
        edited = ralph.standings.edited_by_people(names, f"2026-11-{DAY:02}T08:00:00Z")
        assert edited == ["edited.py", "open.py"]
        assert ralph.standings.edited_by_people(names, "2020-01-01T00:00:00Z") == []
        assert ralph.standings.edited_by_people(names, "") == []


@pytest.mark.skipif(os.name != "posix", reason="modes of files")
def test_only_the_owner_can_read_the_anchors(code: CodeHistory) -> None:
    code.session("cart", code.create("cart.py", body("cart")))
    assert AnchorStore(code.home).path.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("path", ["../secret.txt", "{outside}/secret.txt", "out/secret.txt"])
def test_no_file_outside_the_project_is_read_for_a_record(
    code: CodeHistory, tmp_path: Path, path: str
) -> None:
    (tmp_path / "secret.txt").write_text("a line of somebody else\n")
    (code.root / "out").symlink_to(tmp_path, target_is_directory=True)
    copy = WorkingCopy(code.root)
    assert copy.key(path.format(outside=tmp_path)) == NO_FILE
    assert copy.text(path.format(outside=tmp_path)) == ""


@pytest.mark.parametrize("path", ["cart\0.py", "cart\ud800.py"])
def test_a_path_that_no_file_can_have_is_only_not_there(code: CodeHistory, path: str) -> None:
    code.write("cart.py", body("cart"))
    code.commit("Add the cart")
    copy = WorkingCopy(code.root)
    assert not copy.had(path)
    assert copy.head_text(path) is None
    assert copy.places_of(path) == []
