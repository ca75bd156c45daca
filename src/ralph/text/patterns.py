"""Regular expressions that cost nothing until they are used."""

from __future__ import annotations

import re
from functools import cache


@cache
def compiled(pattern: str, flags: re.RegexFlag = re.NOFLAG) -> re.Pattern[str]:
    """Compile a pattern when it is first needed: hooks start often and need few of them."""
    return re.compile(pattern, flags)
