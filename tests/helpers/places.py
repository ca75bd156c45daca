"""Where the project and its test data are, wherever a test file is."""

from __future__ import annotations

from pathlib import Path

TESTS = Path(__file__).parents[1]
ROOT = TESTS.parent
DOCS = ROOT / "docs"
DATA = TESTS / "data"
FIXTURES = TESTS / "fixtures"
