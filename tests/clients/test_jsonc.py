"""One member of a settings file with comments: put in and taken out, the rest untouched."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralph.clients.editors import plain, put, take

PATH = ("servers", "ralph")
ENTRY = {"command": "ralph", "args": ["mcp"]}
ZED = """\
// Zed settings
{
  "theme": "One Dark", // not "One Light"
  /* fonts: { */
  "buffer_font_size": 16,
  "url": "http://x/*y*/", // a trailing comma follows
}
"""
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text('ab/*",\\\n{}é', max_size=6),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.text("ab/", max_size=3), inner, max_size=2)
    ),
    max_leaves=5,
)
settings = st.dictionaries(st.text("ab/*", max_size=3) | st.just("servers"), values, max_size=3)


def test_comments_stay_where_they_are() -> None:
    text = put(ZED, PATH, ENTRY)

    assert json.loads(plain(text))["servers"] == {"ralph": ENTRY}
    assert [line for line in ZED.splitlines() if line not in text.splitlines()] == []
    assert take(text, PATH) == ZED


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ('{"servers": {"ralph": 1, "b": 2}}', '{"servers": { "b": 2}}'),
        ('{"servers": {"b": 2, /* mine */ "ralph": 1}}', '{"servers": {"b": 2 /* mine */}}'),
        ('{"a": 1, "servers": {"ralph": 1}}', '{"a": 1}'),
        ('{"a": 1, "servers": {"ralph": 1 /* why */}}', '{"a": 1, "servers": { /* why */}}'),
        ('{"servers": {"ralph": 1,},}', "{}"),
    ],
)
def test_a_member_goes_alone(text: str, left: str) -> None:
    assert take(text, PATH) == left


def test_a_member_is_replaced_in_its_place() -> None:
    text = '{"servers": {"a": 0, "ralph": 1, "b": 2}} // end'
    assert put(text, PATH, 3) == '{"servers": {"a": 0, "ralph": 3, "b": 2}} // end'


@given(settings, st.sampled_from([None, 2, 4]))
def test_what_is_put_in_and_taken_out_changes_nothing(
    others: dict[str, object], indent: int | None
) -> None:
    if not isinstance(others.get("servers", {}), dict):
        del others["servers"]
    text = json.dumps(others, indent=indent)
    changed = put(text, PATH, ENTRY)
    servers = others.get("servers", {})
    assert isinstance(servers, dict)
    assert json.loads(plain(changed)) == {**others, "servers": {**servers, "ralph": ENTRY}}
    left = json.loads(plain(take(changed, PATH)))
    assert left == {name: one for name, one in others.items() if name != "servers" or one}
