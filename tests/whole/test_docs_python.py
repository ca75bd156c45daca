"""The examples of docs/python.md run, one after the other, as the page says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from places import DOCS

import ralph

EXAMPLES = re.compile(r"^```python\n(.*?)^```$", re.M | re.S)


def test_the_examples_of_the_page_about_python_run(tmp_path: Path) -> None:
    examples = EXAMPLES.findall((DOCS / "python.md").read_text(encoding="utf-8"))
    script = tmp_path / "examples.py"
    script.write_text("\n".join(examples), encoding="utf-8")

    done = subprocess.run(
        [sys.executable, script.name], cwd=tmp_path, capture_output=True, text=True, check=False
    )

    assert len(examples) == 7
    assert (done.returncode, done.stderr) == (0, "")
    assert "an iteration has no field 'outcom'" in done.stdout


def test_the_names_to_import_are_listed() -> None:
    assert {"open_ralph", "Ralph", "Iteration", "RalphError"} <= {*dir(ralph)}
    assert "open_ralph" in (ralph.__doc__ or "")
