"""A plugin for tests that need PostgreSQL: `pytest_plugins = ["postgres_fixtures"]`."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from postgres import GIVEN_URL, own_server, with_database


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The address of a server that all tests of this process share."""
    if GIVEN_URL:
        yield GIVEN_URL
        return
    with own_server() as server:
        yield server.url


@pytest.fixture
def database(postgres: str) -> Iterator[str]:
    """The address of an empty database that nobody else uses."""
    import psycopg

    name = f"ralph_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
        try:
            yield with_database(postgres, name)
        finally:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())
