"""Tables of patterns and names, in text files beside the code that uses them.

A file has sections, `[name]` and a line for each row; `[macros]` come first, where rows use them.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path


@cache
def table(module: str, name: str) -> dict[str, list[str]]:
    """The rows of a file by section, macros filled in; it is beside this `__file__`."""
    text = Path(module).with_name(name).read_text(encoding="utf-8")
    head, _, rest = text.partition("\n[macros]\n")
    macros, _, text = rest.partition("\n\n") if rest else ("", "", head)
    for macro in macros.splitlines():
        name, meaning = macro.split(" ", 1)
        text = text.replace(f"<{name}>", meaning)
    found: dict[str, list[str]] = {}
    for section in f"\n{text}".split("\n[")[1:]:
        name, *lines = section.split("\n")
        found[name.removesuffix("]")] = [line for line in lines if line and line[0] != "#"]
    return found
