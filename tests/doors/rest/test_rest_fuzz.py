"""Whatever a call is given that the OpenAPI document allows, and much that it does not: no 5xx."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from teaming import OWN, Team, team

from ralph.doors.rest.app import openapi
from ralph.doors.rest.calls import CALLS, ApiRoute

DOCUMENT = openapi()
NAMES = st.sampled_from(["auth", "1", "0" * 16, "..", "nobody", "a b", "é", "%2e%2e%2f", "x" * 300])
LEAF = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=30)
ANYTHING = st.recursive(
    LEAF,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)
TEXTS = st.text(max_size=40) | st.sampled_from(
    ["login form", "2026-11-01", "yesterday", "\0", "\ud83d"]
)


def values_of(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Values that a schema of the document allows, or nearly."""
    if "$ref" in schema:
        return values_of(DOCUMENT["components"]["schemas"][schema["$ref"].rpartition("/")[2]])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if "anyOf" in schema:
        return st.one_of(*map(values_of, schema["anyOf"]))
    kind = schema.get("type")
    if kind == "object" and "properties" in schema:
        needed = schema.get("required", ())
        fields = {name: values_of(about) for name, about in schema["properties"].items()}
        return st.fixed_dictionaries(
            {name: fields[name] for name in needed},
            optional={name: one for name, one in fields.items() if name not in needed},
        )
    if kind == "object":
        names = st.sampled_from(
            ["feature", "title", "name", "status", "priority", "summary", "errors", "decisions",
             "outcome", "blocked_by", "entry_type", "solution_steps", "comment", "files_touched"]
        )  # fmt: skip
        return st.dictionaries(names, TEXTS | ANYTHING, max_size=5)
    if kind == "array":
        return st.lists(values_of(schema["items"]), max_size=3)
    plain: dict[Any, st.SearchStrategy[Any]] = {
        "string": TEXTS,
        "integer": st.integers(-(2**70), 2**70),
        "number": st.floats(allow_nan=False),
        "boolean": st.booleans(),
        "null": st.none(),
    }
    return plain.get(kind, ANYTHING)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Team]:
    with team(tmp_path_factory.mktemp("team")) as made:
        yield made


@pytest.fixture(scope="module")
def token(served: Team) -> str:
    return served.token("admin")


def operation(call: ApiRoute) -> dict[str, Any]:
    path = f"/v1/projects/{{project}}{call.path}"
    found: dict[str, Any] = DOCUMENT["paths"][path][call.method.lower()]
    return found


@pytest.mark.parametrize("call", CALLS, ids=lambda call: f"{call.method} {call.path}")
@settings(deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_no_call_fails_in_an_unforeseen_way(
    served: Team, token: str, call: ApiRoute, data: st.DataObject
) -> None:
    about = operation(call)
    path, query = call.path, []
    for one in about["parameters"]:
        if one["in"] == "path" and one["name"] != "project":
            path = path.replace("{" + one["name"] + "}", quote(data.draw(NAMES), safe=""))
        elif one["in"] == "query" and (one["required"] or data.draw(st.booleans())):
            value = data.draw(values_of(one["schema"]))
            for each in value if isinstance(value, list) else [value]:
                text = each if isinstance(each, str) else json.dumps(each)
                query.append(f"{one['name']}={quote(text.encode('utf-8', 'surrogatepass'))}")
    more: dict[str, Any] = {}
    if "requestBody" in about:
        schema = about["requestBody"]["content"]["application/json"]["schema"]
        body = data.draw(values_of(schema) | ANYTHING)
        more["content"] = json.dumps(body).encode("utf-8", "surrogatepass")
    url = f"/v1/projects/{OWN}{path}?{'&'.join(query)}"
    answer = served.call(call.method, url, token, **more)
    assert answer.status_code < 500, (url, more, answer.text)
    kind = answer.headers["content-type"]
    assert kind == ("application/json" if answer.is_success else "application/problem+json")
    # Nothing about the machine that serves it.
    assert answer.is_success or str(served.own.root) not in answer.text
