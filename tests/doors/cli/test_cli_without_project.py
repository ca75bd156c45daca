"""Commands in a folder where nobody ran `ralph init`, and what they say of other folders."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from commanding import Line

CSV = {
    "title": "CSV export",
    "exchanges": [
        {
            "user": "Why do umlauts break when accounting opens the export?",
            "assistant": "We write CSV files as UTF-8 with a BOM, because of Excel.",
            "completed": "2026-02-03T10:00:00Z",
            "files_touched": [{"path": "export.py", "action": "modified"}],
        },
        {
            "user": "Run the export for January.",
            "assistant": "It stopped half-way.",
            "status": "failed",
            "completed": "2026-02-03T11:00:00Z",
        },
    ],
}


@pytest.fixture
def shop(ralph: Line, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder without `.ralph` that has one imported conversation."""
    folder = tmp_path / "shop"
    folder.mkdir()
    monkeypatch.chdir(folder)
    ralph.well("conversations", "import", "-", stdin=json.dumps([CSV]))
    return folder


@pytest.fixture
def empty_folder(shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Another folder, where nothing was saved."""
    folder = tmp_path / "other"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def test_forgetting_by_text_works_without_init(ralph: Line, shop: Path) -> None:
    assert (
        "To be forgotten: 1 record" in ralph.well("forget", "--match", "umlauts", "--dry-run").out
    )

    ralph.well("forget", "--match", "umlauts", "--yes")

    assert ralph.well("search", "umlauts", "--json").json == []
    assert list(shop.iterdir()) == []


def test_failures_and_files_of_sessions_are_listed_without_init(ralph: Line, shop: Path) -> None:
    [failed] = ralph.well("failures", "--json").json
    assert failed["record"]["user"] == "Run the export for January."

    [file] = ralph.well("files", "--json").json
    assert file == {
        "path": "export.py",
        "actions": ["modified"],
        "count": 1,
        "last": "2026-02-03T10:00:00Z",
    }
    assert ralph.well("files").out.splitlines()[1].split() == [
        *("export.py", "modified", "1"),
        *ralph.well("files").out.splitlines()[1].split()[3:],
    ]


def test_a_document_can_be_added_without_init(ralph: Line, shop: Path) -> None:
    guide = shop / "guide.md"
    guide.write_text("# Releases\n\nTag the commit before the build starts.\n")

    ralph.well("conversations", "add-document", "guide.md")

    [hit] = ralph.well("search", "tag the commit", "--json").json
    assert hit["kind"] == "document"


def test_a_folder_without_init_can_be_named(ralph: Line, shop: Path, empty_folder: Path) -> None:
    [hit] = ralph.well("--project", shop, "search", "umlauts accounting", "--json").json

    assert hit["record"]["user"] == CSV["exchanges"][0]["user"]  # type: ignore[index]


@pytest.mark.parametrize(
    "words",
    [
        ("search", "umlauts"),
        ("recent",),
        ("log", "--since", "9999d"),
        ("failures",),
        ("files",),
        ("status",),
        ("stats",),
        ("conversations", "list"),
    ],
    ids=" ".join,
)
def test_an_empty_list_says_that_other_projects_have_something(
    ralph: Line, empty_folder: Path, words: tuple[str, ...]
) -> None:
    assert "1 conversation in 1 other project: add --everywhere." in ralph(*words).out

    with_everywhere = ralph(*words, "--everywhere").out
    assert "add --everywhere" not in with_everywhere
    assert with_everywhere != ralph(*words).out


def test_nothing_is_said_of_other_projects_when_there_are_none(
    ralph: Line, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    for words in (("search", "umlauts"), ("recent",), ("failures",), ("status",), ("stats",)):
        assert "everywhere" not in ralph(*words).out


def test_status_lists_the_other_projects(ralph: Line, empty_folder: Path) -> None:
    ran = ralph.well("status", "--everywhere")

    assert ran.out.splitlines()[-1].split()[:3] == ["shop", "1", "2"]
    [other] = ralph.well("status", "--everywhere", "--json").json["projects"]
    assert other == {
        "project": "shop",
        "conversations": 1,
        "exchanges": 2,
        "last": "2026-02-03T11:00:00Z",
    }
    assert "projects" not in ralph.well("status", "--json").json


def test_stats_count_the_sessions_of_all_projects(ralph: Line, empty_folder: Path) -> None:
    assert ralph.well("stats", "--json").json["total"]["exchanges"] == 0
    assert ralph.well("stats", "--everywhere", "--json").json["total"]["exchanges"] == 2


def test_plan_lists_are_empty_without_init_and_say_why(ralph: Line, shop: Path) -> None:
    for words in (("learning", "list"), ("focus",)):
        assert "ralph init" in ralph.well(*words).out

    assert ralph.well("learning", "list", "--json").json == []
    assert ralph.well("focus", "--json").json is None
    assert ralph.well("knowledge", "staged", "--json").json == []
    assert list(shop.iterdir()) == []


def test_an_export_names_the_conversations_it_leaves_out(ralph: Line, shop: Path) -> None:
    assert "without this folder's 1 conversation" in ralph.well("export", "-").err


def test_an_empty_export_says_that_other_projects_have_something(
    ralph: Line, empty_folder: Path
) -> None:
    assert "1 other project" in ralph.well("conversations", "export", "-").err
    assert ralph.well("conversations", "export", "-", "--everywhere").err == ""


def test_forgetting_by_text_names_the_projects_that_have_it(
    ralph: Line, empty_folder: Path
) -> None:
    ran = ralph.well("forget", "--match", "Umlauts", "--dry-run")

    assert "Other projects have it: shop." in ran.out
    assert "Other projects" not in ralph.well("forget", "--match", "zebra", "--dry-run").out


def test_any_id_is_shown_and_opened_from_any_folder(
    ralph: Line, shop: Path, empty_folder: Path
) -> None:
    [hit, *_] = ralph.well("--project", shop, "search", "umlauts", "--json").json

    assert ralph.well("show", hit["id"][:8], "--json").json["id"] == hit["id"]
    assert "UTF-8 with a BOM" in ralph.well("open", hit["id"][:8]).out


def test_a_wrong_value_is_refused_before_the_missing_project(ralph: Line, shop: Path) -> None:
    assert "min_score" in ralph("config", "min_score", "3").complaint
    assert "ralph init" not in ralph("config", "min_score", "3").complaint
    assert "ralph init" in ralph("config", "min_score", "0.5").complaint


def test_doctor_asks_for_hooks_and_not_for_a_project(ralph: Line, shop: Path) -> None:
    checks = {one["name"]: one for one in ralph.well("doctor", "--json").json["checks"]}

    assert checks["project"]["state"] == "ok"
    assert checks["hooks"]["todo"] == "Run: ralph hooks install --user"


def test_doctor_says_when_a_client_lacks_the_server(
    ralph: Line, shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    ralph.well("hooks", "install", "--user", "--no-mcp")

    checks = {one["name"]: one for one in ralph.well("doctor", "--json").json["checks"]}

    assert checks["hooks"]["detail"] == "claude (user, without the MCP server)"
    assert checks["settings"]["detail"] == "set by you: pause_folders"


def test_a_backup_says_that_it_replaces_a_file(ralph: Line, shop: Path) -> None:
    file = shop.parent / "memory.zip"

    assert "replaced" not in ralph.well("backup", file).out
    assert ralph.well("backup", file).out.endswith("The file that was there before is replaced.\n")


def test_an_export_of_nothing_says_how_to_export_the_rest(
    ralph: Line, shop: Path, empty_folder: Path
) -> None:
    ran = ralph.well("export", "-")

    assert ran.out == ""
    assert "ralph conversations export FILE --everywhere" in ran.complaint
    assert json.loads(ralph.well("conversations", "export", "-", "--everywhere").out)
