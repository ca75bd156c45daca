"""The guide to servers says what is so: its compose file, settings, commands, SQL and sums."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click
import psycopg
import pytest
from places import DOCS
from postgres import PASSWORD, own_server, programs
from remembering import ToyEmbedder, topical
from ruamel.yaml import YAML
from scaling import everything, filled, opened

from ralph.config import KEYS
from ralph.doors.cli.main import ralph as tree

GUIDE = (DOCS / "guide-scale.md").read_text(encoding="utf-8")
TEAM_GUIDE = (DOCS / "guide-server.md").read_text(encoding="utf-8")
SERVERS = ("ralph-1", "ralph-2")
NODES = ("qdrant-1", "qdrant-2", "qdrant-3")


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    loaded: dict[str, Any] = YAML(typ="safe").load(DOCS / "compose" / "compose.yaml")
    return loaded


def blocks(language: str) -> list[str]:
    """The fenced pieces of the guide in one language."""
    return re.findall(rf"```{language}\n(.*?)```", GUIDE, re.DOTALL)


# -- compose


def test_compose_has_postgres_and_three_nodes_of_qdrant_with_two_copies(
    compose: dict[str, Any],
) -> None:
    services = compose["services"]
    assert {"postgres", *NODES} <= services.keys()
    for name in NODES:
        environment = services[name]["environment"]
        assert environment["QDRANT__CLUSTER__ENABLED"] == "true"
        assert environment["QDRANT__STORAGE__COLLECTION__REPLICATION_FACTOR"] == "2"
        words = services[name]["command"]
        assert words[words.index("--uri") + 1] == f"http://{name}:6335"
        joins = "--bootstrap" in words
        assert joins == (name != "qdrant-1")
        if joins:
            assert words[words.index("--bootstrap") + 1] == "http://qdrant-1:6335"
            assert services[name]["depends_on"]["qdrant-1"] == {"condition": "service_healthy"}


def test_compose_has_a_volume_of_its_own_for_whoever_keeps_something(
    compose: dict[str, Any],
) -> None:
    kept = [compose["services"][name]["volumes"] for name in ("postgres", *NODES)]
    names = [one.partition(":")[0] for [one] in kept]
    assert len(set(names)) == len(names)
    assert set(names) == compose["volumes"].keys()


def test_every_service_has_a_health_check_and_comes_up_again(compose: dict[str, Any]) -> None:
    for service in compose["services"].values():
        assert service["healthcheck"]["test"][0] == "CMD"
        assert {"interval", "timeout", "retries"} <= service["healthcheck"].keys()
        assert service["restart"] == "unless-stopped"
        assert ":" in service["image"]
        assert not service["image"].endswith(":latest")


def test_compose_has_no_password_of_its_own_and_refuses_to_start_without_one(
    compose: dict[str, Any],
) -> None:
    secrets = [
        value
        for service in compose["services"].values()
        for name, value in service.get("environment", {}).items()
        if "PASSWORD" in name or "KEY" in name
    ]
    assert len(secrets) == 4
    assert all(re.fullmatch(r"\$\{RALPH_[A-Z_]+:\?[^}]+\}", value) for value in secrets)


def test_nothing_listens_for_other_machines(compose: dict[str, Any]) -> None:
    ports = [port for service in compose["services"].values() for port in service.get("ports", ())]
    assert sorted(ports) == ["127.0.0.1:5432:5432", "127.0.0.1:6333:6333"]
    balanced = compose["configs"]["balancer"]["content"]
    assert re.findall(r"server (qdrant-\d):6333", balanced) == list(NODES)


def test_the_guides_own_lines_make_the_variables_that_compose_asks_for(
    compose: dict[str, Any],
) -> None:
    asked = set(re.findall(r"\$\{(RALPH_[A-Z_]+):\?", str(compose)))
    [text] = [block for block in blocks("sh") if "docker compose up" in block]
    assert set(re.findall(r"(RALPH_[A-Z_]+)=%s", text)) == asked


# -- compose with the team's servers


def test_two_servers_and_one_address_come_on_top_of_the_databases(compose: dict[str, Any]) -> None:
    loaded: dict[str, Any] = YAML(typ="safe").load(DOCS / "compose" / "server.yaml")
    services = loaded["services"]
    assert services.keys() == {"ralph", *SERVERS}
    assert not services.keys() & compose["services"].keys()
    homes = set()
    for name in SERVERS:
        one = services[name]
        assert {*one["depends_on"]} <= compose["services"].keys()
        environment = one["environment"]
        for key, value in environment.items():
            assert key == "RALPH_HOME" or key.removeprefix("RALPH_").lower() in KEYS
            assert all(
                host in compose["services"] for host in re.findall(r"(?:@|//)(\w+):\d", value)
            )
        _, home = one["volumes"]
        assert home.endswith(f":{environment['RALPH_HOME']}")
        homes.add(home.partition(":")[0])
        _, word, *options = one["command"]
        assert "/srv/project" in options
        parsed = subprocess.run(
            [sys.executable, "-m", "ralph", word, *options, "--help"],
            capture_output=True,
            text=True,
        )
        assert parsed.returncode == 0
        assert all(option in parsed.stdout for option in options if option.startswith("--"))
    assert homes == loaded["volumes"].keys()  # each has its own
    for service in services.values():
        assert service["restart"] == "unless-stopped"
        assert "/readyz" in str(service["healthcheck"]["test"])
    assert services["ralph"]["ports"] == ["127.0.0.1:8757:8757"]
    balanced = loaded["configs"]["ralph-balancer"]["content"]
    assert re.findall(r"server (ralph-\d):8757", balanced) == list(SERVERS)
    secrets = set(re.findall(r"\$\{(RALPH_[A-Z_]+):\?", str(loaded)))
    named = set(re.findall(r"RALPH_[A-Z_]+", TEAM_GUIDE + GUIDE))
    assert secrets <= named


# -- what the guide names


def test_every_setting_that_the_guide_names_is_one() -> None:
    rows = re.findall(r"^\| `(\w+)` \| `RALPH_(\w+)` \|", GUIDE, re.MULTILINE)
    assert [key for key, _ in rows] == [variable.lower() for _, variable in rows]
    named = {key for key in KEYS if key.startswith(("journal_url", "qdrant"))}
    assert {key for key, _ in rows} == named | {"remember_budget_s"}
    for key in re.findall(r"ralph config --user (?:--unset )?(\w+)", GUIDE):
        assert key in KEYS or key == "KEY"


def test_every_command_that_the_guide_names_is_one() -> None:
    said = {one.strip("`") for one in re.findall(r"`ralph [a-z][^`]*`", GUIDE)}
    assert len(said) > 8
    for line in said:
        command: click.Command = tree
        context = click.Context(tree)
        words = shlex.split(line)[1:]
        while isinstance(command, click.Group) and words:
            found = command.get_command(context, words.pop(0))
            assert found is not None, line
            command = found
        options = {one for parameter in command.params for one in parameter.opts}
        assert {word for word in words if word.startswith("--")} <= options, line


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", GUIDE):
        assert (DOCS / target).exists(), target


# -- sums


def number(text: str) -> float:
    return float(text.replace(",", ""))


def test_the_sums_are_right() -> None:
    giga = re.findall(r"([\d,]+) \S ([\d,]+) B = ([\d.]+) GB", GUIDE)
    assert len(giga) == 3
    for count, size, total in giga:
        assert round(number(count) * number(size) / 1e9, 1) == float(total)
    shares = re.findall(r"([\d,]+) \S ([\d,]+) B \S 2 / 3 = ([\d.]+) GB", GUIDE)
    assert len(shares) == 2
    for count, size, total in shares:
        assert round(number(count) * number(size) * 2 / 3 / 1e9, 1) == float(total)
    copies = re.findall(r"= ([\d.]+) GB; twice[^=]*= ([\d.]+) GB; a third[^=]*= ([\d.]+)", GUIDE)
    assert len(copies) == 2
    for one, two, third in copies:
        assert float(two) == pytest.approx(2 * float(one), abs=0.15)
        assert float(third) == pytest.approx(float(two) / 3, abs=0.05)
    times = re.findall(r"(?:(\d) \S )?([\d,]+) / ([\d,]+) = ([\d,]+) s", GUIDE)
    assert len(times) == 2
    for often, records, rate, seconds in times:
        assert round(int(often or 1) * number(records) / number(rate)) == number(seconds)


def test_the_bytes_of_a_point_add_up_to_what_is_told() -> None:
    table = re.search(r"\| vectors, float32.*?\*\*together\*\*[^\n]*", GUIDE, re.DOTALL)
    assert table is not None
    *rows, last = [line.split("|")[2:4] for line in table[0].splitlines()]
    for column in (0, 1):
        total = number(last[column].replace("*", ""))
        assert sum(number(row[column]) for row in rows) == total
        assert f"{total:,.0f} B" in GUIDE


# -- what the guide tells to do


@pytest.mark.slow
def test_a_backup_is_restored_as_the_guide_says_and_the_index_goes_on(
    project: Path, tmp_path: Path
) -> None:
    found = programs()
    [text] = [block for block in blocks("sh") if "pg_dump" in block]
    with own_server() as server:
        with psycopg.connect(server.url, autocommit=True) as admin:
            admin.execute("CREATE DATABASE ralph")
        toy = ToyEmbedder()
        with opened(project, toy, journal_url=server.url_of("ralph")) as before:
            filled(before, each=10)
            records = everything(before)
        parts = urlsplit(server.url)
        environ = {
            "PATH": f"{found}:{os.environ['PATH']}",
            "PGHOST": "127.0.0.1",
            "PGPORT": str(parts.port),
            "PGUSER": "ralph",
            "PGPASSWORD": PASSWORD,
        }
        subprocess.run(
            ["/bin/sh", "-e", "-c", text], cwd=tmp_path, env=environ, check=True, timeout=60
        )
        embedded = len(toy.embedded)
        with opened(project, toy, journal_url=server.url_of("ralph_restored")) as after:
            assert everything(after) == records
            answer = after.feature("auth").search(topical(1)[0].summary)
            assert answer[0].record.summary == topical(1)[0].summary
            assert answer.notes == ()
            after.feature("auth").remember_all(topical(1, start=500))
            assert after.feature("auth").verify() == (11, [])
        assert len(toy.embedded) - embedded <= 2


@pytest.mark.slow
def test_a_role_with_the_grants_of_the_guide_can_do_everything(project: Path) -> None:
    grants = [block for block in blocks("sql") if "GRANT" in block]
    with own_server() as server:
        with opened(project, journal_url=server.url) as owner:
            owner.feature("auth").remember_all(topical(3))
        with psycopg.connect(server.url, autocommit=True) as admin:
            admin.execute("CREATE ROLE somebody LOGIN PASSWORD 'somebodys'")
            for statement in grants[0].split(";"):
                if statement.strip():
                    admin.execute(statement.encode())
        url = server.url.replace(f"ralph:{PASSWORD}", "somebody:somebodys")
        with opened(project, journal_url=url) as other:
            [kept] = other.feature("auth").remember_all(topical(1, start=3))
            other.feature("new").remember_all(topical(1, start=9))
            other.conversations.start(title="x")
            assert other.feature("auth").forget([kept.id]) == [kept.id]
            assert other.feature("auth").verify() == (3, [])
            assert other.store.journals.trouble() is None
