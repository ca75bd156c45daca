"""Same, opposite or something else: a table of pairs, read both ways round."""

from __future__ import annotations

import pytest

from ralph.text.sameness import Verdict, compare, from_signature, gist, jaccard

PAIRS: list[tuple[Verdict, str, str]] = [
    # the same thing said again
    (
        "duplicate",
        "Auth middleware expects User object not userId",
        "Auth middleware expects User object instead of userId",
    ),
    ("duplicate", "AUTH MIDDLEWARE EXPECTS USER OBJECT", "auth middleware expects user object"),
    ("duplicate", "Don't use X", "Never use X"),
    ("duplicate", "Don't use X", "Avoid using X"),
    ("duplicate", "Don't use X, use Y", "Use Y instead of X"),
    ("duplicate", "Use fetch rather than axios", "Use fetch instead of axios"),
    ("duplicate", "Use redis not memcached for sessions", "Use redis for sessions"),
    ("duplicate", "Tests must not run in parallel", "Run tests serially, not in parallel"),
    (
        "duplicate",
        "Use pnpm for installing workspace packages in this repo",
        "Use pnpm for installing workspace packages in this repo, not npm",
    ),
    (
        "duplicate",
        "TypeError in auth middleware on line 42 when user is missing",
        "TypeError in auth middleware on line 57 when user is missing",
    ),
    ("duplicate", "Don't forget to run migrations before tests", "Run migrations before tests"),
    (
        "duplicate",
        "Token refresh must happen before the 401 response reaches React Query",
        "Token refresh must happen before 401 response reaches React Query",
    ),
    (
        "duplicate",
        "The users table has a unique index on email, not username",
        "The users table has a unique index on email",
    ),
    ("duplicate", "The build fails without NODE_ENV", "The build needs NODE_ENV"),
    (
        "duplicate",
        "Not only tests but also docs are generated",
        "Tests and docs are generated",
    ),
    (
        "duplicate",
        "Prefer composition over inheritance in the widget tree",
        "Prefer composition over inheritance in widget tree",
    ),
    ("duplicate", "You can't call hooks conditionally", "Hooks cannot be called conditionally"),
    (
        "duplicate",
        "pytest needs -p no:cacheprovider in CI",
        "pytest needs -p no:cacheprovider in the CI",
    ),
    ("duplicate", "Do not commit .env files", "Never commit .env files or tokens"),
    ("duplicate", "使用缓存提高性能", "使用缓存提高性能"),
    # the opposite
    ("conflict", "use X", "don't use X"),
    ("conflict", "use X", "do not use X"),
    ("conflict", "use X", "never use X"),
    ("conflict", "use X", "avoid X"),
    ("conflict", "use X", "avoid using X"),
    ("conflict", "use X", "stop using X"),
    ("conflict", "use X", "use Y instead of X"),
    (
        "unique",
        "Don't use sqlx for database queries",
        "Use diesel instead of sqlx for database queries",
    ),
    ("conflict", "Use axios", "Use fetch rather than axios"),
    ("conflict", "We use moment", "We no longer use moment"),
    ("conflict", "Use Redis for sessions", "Don't use Redis for sessions"),
    (
        "conflict",
        "Use redis not memcached for sessions",
        "Use memcached not redis for sessions",
    ),
    ("conflict", "Don't use X, use Y", "Don't use Y, use X"),
    ("conflict", "Tests must not run in parallel", "Tests must run in parallel"),
    ("conflict", "Never store tokens in localStorage", "Store tokens in localStorage"),
    (
        "conflict",
        "Don't mock the database in integration tests",
        "Mock the database in integration tests",
    ),
    ("conflict", "Use npm for installing packages", "Never use npm, use pnpm"),
    ("conflict", "Run migrations before seeding", "Run migrations after seeding"),
    ("conflict", "The lock file is needed", "The lock file is not needed"),
    (
        "conflict",
        "The users table has a unique index on email, not username",
        "The users table has a unique index on username, not email",
    ),
    ("conflict", "Enable strict mode in tsconfig", "Disable strict mode in tsconfig"),
    (
        "conflict",
        "Tests pass with the --runInBand flag",
        "Tests pass without the --runInBand flag",
    ),
    ("conflict", "Call close() after every request", "Never call close() after a request"),
    ("conflict", "Use async handlers", "Use sync handlers"),
    (
        "conflict",
        "Session cookies must be SameSite=Lax",
        "Session cookies must not be SameSite=Lax",
    ),
    ("conflict", "The config loader does not read .env", "The config loader reads .env"),
    (
        "conflict",
        "Import from ralph.text, not from ralph.text.similar",
        "Import from ralph.text.similar",
    ),
    ("conflict", "You can't call hooks conditionally", "Hooks can be called conditionally"),
    ("conflict", "The migration is required for login", "The migration is optional for login"),
    ("conflict", "Don\u2019t use var in new code", "Use var in new code"),
    (
        "conflict",
        "Mutex must be held while writing the index",
        "Mutex must not be held while writing the index",
    ),
    # something else
    (
        "unique",
        "Never store tokens in localStorage",
        "Store tokens in httpOnly cookies, never in localStorage",
    ),
    (
        "unique",
        "Don't use moment for date formatting in the frontend",
        "Use dayjs for date formatting in the frontend",
    ),
    (
        "unique",
        "Don't mock the database in integration tests",
        "Mock the database in unit tests",
    ),
    (
        "unique",
        "Staging server listens on port 8080 behind nginx with TLS termination",
        "Staging server listens on port 9090 behind nginx with TLS termination",
    ),
    (
        "unique",
        "Tests use a real database",
        "Unit tests don't touch the network or the database",
    ),
    (
        "unique",
        "Auth middleware expects User object",
        "Payment webhooks need raw body parsing",
    ),
    ("unique", "The API returns snake_case keys", "The API returns camelCase keys"),
    ("unique", "Use Redis for sessions", "Don't use Redis for caching"),
    ("unique", "Rate limits are per user", "Rate limits are per IP"),
    (
        "unique",
        "Keep retries at 3 for the payment client",
        "Keep retries at 5 for the payment client",
    ),
    ("unique", "Nullable columns break the importer", "Empty strings break the importer"),
]


@pytest.mark.parametrize(("verdict", "one", "other"), PAIRS)
def test_f21_a_pair_is_judged_the_same_from_either_side(
    verdict: Verdict, one: str, other: str
) -> None:
    assert compare(one, other) == verdict
    assert compare(other, one) == verdict


def test_f11_the_example_of_the_data_model_is_a_duplicate() -> None:
    one = "Auth middleware expects User object not userId"
    other = "Auth middleware expects User object instead of userId"
    assert jaccard(gist(one), gist(other)) == 1.0
    assert compare(one, other) == "duplicate"


def test_a_signature_is_enough_to_know_the_text_again_and_not_its_opposite() -> None:
    stone = gist("Don't use Redis for sessions").signature()
    known = from_signature(stone)
    assert compare(known, from_signature(gist("Never use Redis for sessions").signature())) == (
        "duplicate"
    )
    assert compare(known, from_signature(gist("Use Redis for sessions").signature())) == "conflict"


def test_a_text_without_words_is_like_another_one_without_words() -> None:
    assert compare("", "...") == "duplicate"
