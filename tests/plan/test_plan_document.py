"""The YAML of the plan: read with places, written back with its comments, order and quotes."""

from __future__ import annotations

import copy
import difflib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralph.errors import BadPlan
from ralph.plan.yaml import PlanFile

WRITTEN_BY_A_PERSON = """\
# The plan. Hands off the order!
version: 1
features:

  # login comes first
  - name: auth   # short on purpose
    display_name: 'Log in'
    empty:
    prose: |
      one
      two

    # the date is a promise
    when: 2026-02-07
    tags: [x, y]
    learnings:
      - plain string   # said by Ana
      # about the second
      - text: "second"
        hit_count: 1

    # what we lean on
    dependencies:
      - one

  # money
  - name: payments
    odd: {a: b}
# the end
"""


def written(data: dict[str, Any]) -> str:
    return PlanFile("", name="x").with_data(data).text


def changed_lines(before: str, after: str) -> list[str]:
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), n=0, lineterm="")
    return [line for line in lines if line[0] in "+-" and line[:3] not in ("+++", "---")]


def test_only_the_lines_that_say_something_new_change() -> None:
    document = PlanFile(WRITTEN_BY_A_PERSON, name="features.yaml")
    data = copy.deepcopy(document.data)
    auth = data["features"][0]
    auth["learnings"].append({"text": "third: one", "source": "auto"})
    auth["learnings"][1]["hit_count"] = 2
    auth["empty"] = "filled"
    auth["tags"].append("z")
    data["features"][1]["description"] = "first\n\nsecond"
    assert changed_lines(WRITTEN_BY_A_PERSON, document.with_data(data).text) == [
        "-    empty:",
        "+    empty: filled",
        "-    tags: [x, y]",
        "+    tags: [x, y, z]",
        "-        hit_count: 1",
        "+        hit_count: 2",
        "+      - text: 'third: one'",
        "+        source: auto",
        "+    description: |-",
        "+      first",
        "+",
        "+      second",
    ]


def test_a_text_keeps_the_quotes_a_person_gave_it() -> None:
    document = PlanFile("a: 'one'\nb: \"two\"\nc: three\n", name="x")
    data = {"a": "it's", "b": "deux", "c": "trois"}
    assert document.with_data(data).text == "a: 'it''s'\nb: \"deux\"\nc: trois\n"


def test_what_is_taken_out_takes_no_comment_of_its_neighbours_with_it() -> None:
    document = PlanFile(WRITTEN_BY_A_PERSON, name="features.yaml")
    data = copy.deepcopy(document.data)
    del data["features"][0]["learnings"][0]
    del data["features"][0]["when"]
    assert changed_lines(WRITTEN_BY_A_PERSON, document.with_data(data).text) == [
        "-    when: 2026-02-07",
        "-      - plain string   # said by Ana",
    ]


def test_a_new_entry_stands_before_the_comment_of_the_next_one() -> None:
    document = PlanFile(WRITTEN_BY_A_PERSON, name="features.yaml")
    data = copy.deepcopy(document.data)
    data["features"].insert(1, {"name": "new", "prose": "one\ntwo"})
    after = document.with_data(data).text
    added = ["  - name: new", "    prose: |-", "      one", "      two"]
    assert changed_lines(WRITTEN_BY_A_PERSON, after) == ["+" + line for line in added]
    assert "      - one\n  - name: new\n" in after
    assert "      two\n\n  # money\n  - name: payments\n" in after


def test_an_entry_that_is_deleted_leaves_the_comments_around_it() -> None:
    text = "tasks:\n  # one\n  - id: 1 # a\n    title: x\n  # two\n  - id: 2\n# end\n"
    document = PlanFile(text, name="tasks.yaml")
    first = document.with_data({"tasks": [{"id": 2}]}).text
    assert first == "tasks:\n  # one\n  # two\n  - id: 2\n# end\n"
    second = document.with_data({"tasks": [{"id": 1, "title": "x"}]}).text
    assert second == "tasks:\n  # one\n  - id: 1 # a\n    title: x\n  # two\n# end\n"


@pytest.mark.parametrize(
    ("before", "data", "after"),
    [
        ("k: v # c\n# d\nj: 1\n", {"k": "a\nb", "j": 1}, "k: |-\n  a\n  b\n# c\n# d\nj: 1\n"),
        ("k: |\n  a\n  b\n# d\nj: 1\n", {"k": 5, "j": 1}, "k: 5\n# d\nj: 1\n"),
        ("k: []  # none\n# d\n", {"k": ["a"]}, "k: [a]  # none\n# d\n"),
        ("# t\n---\nk: 1 # c\n", {"k": 2}, "# t\n---\nk: 2 # c\n"),
        ("k: >\n  one\n  two\n\n  three\nj: 1\n", {"k": "one two\nthree\n", "j": 2},
         "k: >\n  one\n  two\n\n  three\nj: 2\n"),
        ("k:\n- a # x\n# y\n- b\n", {"k": ["a", "c", "b"]}, "k:\n- a # x\n- c\n# y\n- b\n"),
        ("# only\n# words", {"k": 1}, "# only\n# words\nk: 1\n"),
        ("k: [a, # x\n  b]\nj: 1\n", {"k": ["a", "b"], "j": 2}, "k: [a, # x\n  b]\nj: 2\n"),
        ("k: one\n  two\nl:\n- 'a\n  b'\nj: 1\n", {"k": "one two", "l": ["a b"], "j": 2},
         "k: one\n  two\nl:\n- 'a\n  b'\nj: 2\n"),
        ("# c\nk: &x 1\nj: *x # d\n", {"k": 2, "j": 1}, "# c\nk: 2\nj: 1 # d\n"),
        ("a:\n    b: |\n      t\n    # c\n    d: 1\n", {"a": {"b": "t\n", "d": 2}},
         "a:\n    b: |\n      t\n    # c\n    d: 2\n"),
        ("a:\n  b:\n      c: |\n          t\n      # x\n      d: 1\n",
         {"a": {"b": {"c": "t\n", "d": 2}}},
         "a:\n  b:\n      c: |\n          t\n      # x\n      d: 2\n"),
    ],
)  # fmt: skip
def test_comments_and_style_survive_a_change(before: str, data: dict[str, Any], after: str) -> None:
    assert PlanFile(before, name="x").with_data(data).text == after


def test_data_that_is_the_same_is_the_same_file() -> None:
    document = PlanFile(WRITTEN_BY_A_PERSON, name="features.yaml")
    assert document.with_data(copy.deepcopy(document.data)) is document


def test_a_long_list_of_equal_items_can_be_changed() -> None:
    document = PlanFile("a:\n" + "  - x\n" * 4000, name="x")
    data = {"a": ["x"] * 3000 + ["y"]}
    assert document.with_data(data).data == data


def test_places_are_known_after_a_change() -> None:
    document = PlanFile(WRITTEN_BY_A_PERSON, name="features.yaml")
    document.with_data({"version": 1})
    assert document.where(("features", 0, "when")) == "features.yaml:14:11"


def test_line_endings_of_windows_stay() -> None:
    text = "version: 1\r\nfeatures:\r\n  - name: a # x\r\n"
    document = PlanFile(text, name="x")
    data = copy.deepcopy(document.data)
    data["features"][0]["description"] = "hello"
    after = document.with_data(data).text
    assert after.splitlines() == [*text.splitlines(), "    description: hello"]
    assert "\n" not in after.replace("\r\n", "")


def test_anchors_are_read_and_a_change_behind_one_is_still_right() -> None:
    text = "base: &b\n  k: 1\nfeatures:\n  - name: a\n    own: *b\n  - name: c\n    <<: *b\n"
    document = PlanFile(text, name="x")
    assert document.data["features"][1] == {"k": 1, "name": "c"}
    data = copy.deepcopy(document.data)
    data["features"][0]["own"] = {"k": 2}
    data["features"][1]["k"] = 3
    assert PlanFile(document.with_data(data).text, name="x").data == data


@pytest.mark.parametrize(
    ("text", "place", "says"),
    [
        ("version: 1\nfeatures:\n\t- name: a\n", "3:1", "spaces, not tabs"),
        ("features:\n  - name: a\n  - name: [b\n", "4:1", "not valid YAML"),
        ("a: b: c\n", "1:5", "mapping values are not allowed"),
        ("a: 1\nb: 2\na: 3\n", "3:1", "'a' is here twice"),
        ("- just\n- a list\n", "1:1", "not a mapping"),
        ("just words", "1:1", "not a mapping"),
        ("a: *nobody\n", "1:4", "undefined alias"),
        ("a: 1\n---\nb: 2\n", "2:1", "another document"),
        ("a: \x00\n", "1:4", "control character"),
        ("? [a, b]\n: 1\n", "1:3", "a key must be a plain word"),
        ("[" * 5000, "1:63", "nests or repeats too much"),
    ],
)
def test_f9_a_file_that_cannot_be_read_is_one_error_with_its_place(
    text: str, place: str, says: str
) -> None:
    with pytest.raises(BadPlan) as caught:
        PlanFile(text, name="features.yaml")
    assert str(caught.value).startswith(f"features.yaml:{place}: ")
    assert says in str(caught.value)


def test_f9_bytes_that_are_no_text_are_one_error_with_their_place() -> None:
    with pytest.raises(BadPlan, match=r"features\.yaml:2:4: this byte is not UTF-8"):
        PlanFile.read(b"a: 1\nb: \xff\n", name="features.yaml")


def test_aliases_inside_aliases_do_not_eat_the_memory() -> None:
    bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
    bomb += "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 9))
    with pytest.raises(BadPlan, match="nests or repeats too much"):
        PlanFile(bomb, name="x")


def test_an_alias_to_itself_is_an_error_and_no_endless_loop() -> None:
    with pytest.raises(BadPlan):
        PlanFile("a: &a [*a]\n", name="x")


TEXTS = st.text(max_size=30) | st.sampled_from(
    ["yes", "null", "~", "1", "1.5", "2026-01-01", "- a", "a: b", "#c", "two\nlines", "end\n", " x",
     "it's", '"q"', "[", "{a}", "x #y", "x: y", "key:", "@at", "`tick`", "%", "!tag", "&a", "*a",
     "line\n\n\nline", "tab\there", "\ud7ff", "a\u2028b", "e\x85f", "\x7f", "?", "-", "...", "---"]
)  # fmt: skip
SCALARS = (
    TEXTS.map(lambda s: s.encode("utf-8", "replace").decode())
    | st.integers(-(10**12), 10**12)
    | st.floats(allow_nan=False, allow_infinity=False, width=32)
    | st.booleans()
    | st.none()
)
KEYS = st.sampled_from(
    ["name", "text", "id", "on", "no", "odd key", "k1", "42", "a: b", "learnings"]
)
DATA = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)
DOCUMENTS = st.dictionaries(KEYS, DATA, min_size=1, max_size=4)


@given(DOCUMENTS)
def test_whatever_is_written_is_read_back(data: dict[str, Any]) -> None:
    assert PlanFile(written(data), name="x").data == data


@given(DOCUMENTS, DOCUMENTS)
def test_any_document_can_be_changed_into_any_other(
    before: dict[str, Any], after: dict[str, Any]
) -> None:
    text = written(before)
    assert PlanFile(PlanFile(text, name="x").with_data(after).text, name="x").data == after


@given(st.data())
def test_any_change_to_one_value_leaves_every_comment_where_it_was(choice: st.DataObject) -> None:
    document = PlanFile(WRITTEN_BY_A_PERSON, name="x")
    data = copy.deepcopy(document.data)
    feature = choice.draw(st.sampled_from(data["features"]))
    action = choice.draw(st.sampled_from(["set", "add", "learn"]))
    value = choice.draw(SCALARS)
    if action == "set":
        feature[choice.draw(st.sampled_from([k for k in feature if k != "name"]))] = value
    elif action == "add":
        feature["new_key"] = value
    else:
        feature.setdefault("learnings", []).append({"text": value})
    after = document.with_data(data).text
    assert PlanFile(after, name="x").data == data
    kept = [line.strip() for line in WRITTEN_BY_A_PERSON.splitlines() if line.strip()[:1] == "#"]
    if action == "set":
        kept.remove("# about the second")  # it may stand inside what was replaced
    found = [line.strip() for line in after.splitlines() if line.strip()[:1] == "#"]
    assert [line for line in found if line in kept] == kept
