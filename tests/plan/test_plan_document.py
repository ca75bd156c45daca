"""The YAML of the plan: read with places, written back without touching what did not change."""

from __future__ import annotations

import copy
import difflib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralph.errors import BadPlan
from ralph.plan.document import Document
from ralph.plan.emit import emit_document
from ralph.plan.splice import render

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


def changed_lines(before: str, after: str) -> list[str]:
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), n=0, lineterm="")
    return [line for line in lines if line[0] in "+-" and line[:3] not in ("+++", "---")]


def test_only_the_lines_that_say_something_new_change() -> None:
    document = Document(WRITTEN_BY_A_PERSON, name="features.yaml")
    data = copy.deepcopy(document.data)
    auth = data["features"][0]
    auth["learnings"].append({"text": "third: one", "source": "auto"})
    auth["learnings"][1]["hit_count"] = 2
    auth["empty"] = "filled"
    auth["tags"].append("z")
    data["features"][1]["description"] = "first\n\nsecond"
    assert changed_lines(WRITTEN_BY_A_PERSON, render(document, data)) == [
        "-    empty:",
        "+    empty: filled",
        "-    tags: [x, y]",
        '+    tags: [x, "y", z]',
        "-        hit_count: 1",
        "+        hit_count: 2",
        '+      - text: "third: one"',
        "+        source: auto",
        "+    description: |-",
        "+      first",
        "+",
        "+      second",
    ]


def test_a_text_keeps_the_quotes_a_person_gave_it() -> None:
    document = Document("a: 'one'\nb: \"two\"\nc: three\n", name="x")
    data = {"a": "it's", "b": "deux", "c": "trois"}
    assert render(document, data) == "a: 'it''s'\nb: \"deux\"\nc: trois\n"


def test_what_is_taken_out_takes_no_comment_of_its_neighbours_with_it() -> None:
    document = Document(WRITTEN_BY_A_PERSON, name="features.yaml")
    data = copy.deepcopy(document.data)
    del data["features"][0]["learnings"][0]
    del data["features"][0]["when"]
    assert changed_lines(WRITTEN_BY_A_PERSON, render(document, data)) == [
        "-    when: 2026-02-07",
        "-      - plain string   # said by Ana",
    ]


def test_line_endings_of_windows_stay() -> None:
    text = "version: 1\r\nfeatures:\r\n  - name: a # x\r\n"
    document = Document(text, name="x")
    data = copy.deepcopy(document.data)
    data["features"][0]["description"] = "hello"
    after = render(document, data)
    assert after.splitlines() == [*text.splitlines(), "    description: hello"]
    assert "\n" not in after.replace("\r\n", "")


def test_anchors_are_read_and_a_change_behind_one_is_still_right() -> None:
    text = "base: &b\n  k: 1\nfeatures:\n  - name: a\n    own: *b\n  - name: c\n    <<: *b\n"
    document = Document(text, name="x")
    assert document.data["features"][1] == {"k": 1, "name": "c"}
    data = copy.deepcopy(document.data)
    data["features"][0]["own"] = {"k": 2}
    data["features"][1]["k"] = 3
    assert Document(render(document, data), name="x").data == data


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
        Document(text, name="features.yaml")
    assert str(caught.value).startswith(f"features.yaml:{place}: ")
    assert says in str(caught.value)


def test_f9_bytes_that_are_no_text_are_one_error_with_their_place() -> None:
    with pytest.raises(BadPlan, match=r"features\.yaml:2:4: this byte is not UTF-8"):
        Document.read(b"a: 1\nb: \xff\n", name="features.yaml")


def test_aliases_inside_aliases_do_not_eat_the_memory() -> None:
    bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
    bomb += "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 9))
    with pytest.raises(BadPlan, match="nests or repeats too much"):
        Document(bomb, name="x")


def test_an_alias_to_itself_is_an_error_and_no_endless_loop() -> None:
    with pytest.raises(BadPlan):
        Document("a: &a [*a]\n", name="x")


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
    assert Document(emit_document(data), name="x").data == data


@given(DOCUMENTS, DOCUMENTS)
def test_any_document_can_be_changed_into_any_other(
    before: dict[str, Any], after: dict[str, Any]
) -> None:
    text = emit_document(before)
    assert Document(render(Document(text, name="x"), after), name="x").data == after


@given(st.data())
def test_any_change_to_one_value_leaves_every_comment_where_it_was(choice: st.DataObject) -> None:
    document = Document(WRITTEN_BY_A_PERSON, name="x")
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
    after = render(document, data)
    assert Document(after, name="x").data == data
    kept = [line.strip() for line in WRITTEN_BY_A_PERSON.splitlines() if line.strip()[:1] == "#"]
    if action == "set":
        kept.remove("# about the second")  # it may stand inside what was replaced
    found = [line.strip() for line in after.splitlines() if line.strip()[:1] == "#"]
    assert [line for line in found if line in kept] == kept
