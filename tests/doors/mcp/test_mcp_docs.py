"""docs/mcp.md tells the tools as they are."""

from __future__ import annotations

import re
from pathlib import Path

from looping import planned
from places import DOCS

from ralph.doors.mcp.context import ServerContext, read_options
from ralph.doors.mcp.server import tools_for
from ralph.prompt.tool import Tool, input_schema

PAGE = DOCS / "mcp.md"
MODES = {
    "--feature": ["--feature", "auth"],
    "--review": ["--feature", "auth", "--review"],
    "--planning": ["--planning"],
    "--conversations": ["--conversations"],
    "--focus": ["--focus"],
}


def table(root: Path) -> str:
    """The tools of every mode, one a row; a tool that two modes know differently has two."""
    found: dict[tuple[str, str], list[str]] = {}
    rows: dict[tuple[str, str], str] = {}
    for mode, words in MODES.items():
        known = {
            tool.name for tool in tools_for(ServerContext(read_options(MODES["--feature"]), root))
        }
        for tool in tools_for(ServerContext(read_options(words), root)):
            if mode == "--review" and tool.name in known:
                continue
            key = (tool.name, _arguments(tool))
            found.setdefault(key, []).append(f"`{mode}`")
            rows[key] = _does(tool)
    lines = ["| tool | arguments | does | in |", "| --- | --- | --- | --- |"]
    for (name, arguments), modes in found.items():
        lines.append(f"| `{name}` | {arguments} | {rows[name, arguments]} | {', '.join(modes)} |")
    return "\n".join(lines)


def _arguments(tool: Tool) -> str:
    schema = input_schema(tool)
    needed = schema.get("required", [])
    names = [f"{name}*" if name in needed else name for name in schema["properties"]]
    return f"`{', '.join(names)}`" if names else "none"


def _does(tool: Tool) -> str:
    if tool.reads:
        return "reads"
    return "changes" if tool.destroys else "adds"


def test_the_table_of_tools_is_that_of_the_server(tmp_path: Path) -> None:
    made = table(planned(tmp_path / "project"))
    text = PAGE.read_text(encoding="utf-8")
    found = re.search(r"<!-- tools: [^>]*-->\n(.*?)<!-- end of tools -->", text, re.S)
    assert found is not None
    assert found[1].strip() == made, f"docs/mcp.md must have this table:\n{made}"
