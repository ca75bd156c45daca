"""Templates are text files with strict variables: none may be missing, none unused."""

from __future__ import annotations

import functools
import re
from importlib.resources import files

_VARIABLE = re.compile(r"\{\{ *([a-z_]+) *\}\}")


def render(template: str, /, **values: str) -> str:
    """The template's text with its variables filled in."""
    text = _text(template)
    wanted = set(_VARIABLE.findall(text))
    if wanted != values.keys():
        missing, unused = sorted(wanted - values.keys()), sorted(values.keys() - wanted)
        raise KeyError(f"template {template}: missing {missing}, unused {unused}")
    return _VARIABLE.sub(lambda found: values[found[1]], text).strip() + "\n"


@functools.cache
def _text(name: str) -> str:
    return (files("ralph.prompt") / "templates" / f"{name}.txt").read_text(encoding="utf-8")
