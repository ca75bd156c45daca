"""What a rule forbids: the shapes of commands and the paths that it is about."""

from __future__ import annotations

import pytest

from ralph.capture.forbidden import Target, target_from, targets_of, wants_to_be_asked

RAN = [
    "npm install",
    "cd web && npm run build",
    "python manage.py migrate",
    "yarn test",
    'git commit -m "Add it"',
    "docker compose up -d",
    "make deploy-prod",
    "ls -la migrations",
]
FILES = ["src/gen/api.py", "vendor/x/y.go", "src/app.py"]


def keys(rule: str, *, refused: str = "") -> list[str]:
    return [target.key for target in targets_of(rule, RAN, FILES, refused=refused)]


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("Use pnpm, not npm.", ["npm"]),
        ("please use pnpm in this repo", ["npm", "yarn"]),
        ("no, use uv instead of pip", ["pip"]),
        ("stop using yarn", ["yarn"]),
        ("Do not run yarn or npm, use pnpm", ["yarn", "npm"]),
        ("do not run npm install, I use bun", ["npm install"]),
        ("you should never use `docker compose down -v` here", ["docker compose | down -v"]),
        ("never run the migrations here", ["python | manage.py migrate"]),
        ("never deploy", ["make deploy-prod"]),
        ("don't push to main", ["git push | main"]),
        ("Never force push.", ["git push | --force", "git push | -f"]),
        ("Don't commit without asking me first.", ["git commit"]),
        ("don't commit or push", ["git commit", "git push"]),
        ("Next time you made changes to the code, let me commit.", ["git commit"]),
    ],
)
def test_a_rule_about_commands(rule: str, expected: list[str]) -> None:
    assert keys(rule) == expected


def test_a_command_with_an_empty_argument_is_read() -> None:
    ran = ['echo ""', 'python "" migrate', "python manage.py migrate"]

    found = targets_of("never run the migrations here", ran, FILES)

    assert "python | manage.py migrate" in [target.key for target in found]


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("don't touch the generated files in src/gen", ["src/gen"]),
        ("never edit vendor/", ["vendor"]),
        ("never change the vendor folder", ["vendor"]),
        ("don't edit app.py", ["src/app.py"]),
        ("never modify `schema.sql`", ["*schema.sql"]),
    ],
)
def test_a_rule_about_files(rule: str, expected: list[str]) -> None:
    assert keys(rule) == expected


@pytest.mark.parametrize(
    "rule",
    [
        "we never use floats for money",
        "use camelCase, not snake_case",
        "don't make changes without tests",
        "never say you are done without running the tests",
        "do not commit and push the booth setup guide",
        "don't add comments to the code",
        "please don't go overboard",
        "from now on run the tests with make test",
    ],
)
def test_a_rule_that_names_no_command_and_no_file_has_no_target(rule: str) -> None:
    assert keys(rule) == []


def test_words_against_a_call_are_about_that_call() -> None:
    rule = "No, I always do this by hand"
    assert keys(rule) == []
    assert keys(rule, refused="terraform apply -auto-approve") == [
        "terraform apply | -auto-approve"
    ]


def test_which_rules_leave_the_deed_to_the_person() -> None:
    assert wants_to_be_asked("Don't commit without asking me first.")
    assert wants_to_be_asked("let me commit")
    assert not wants_to_be_asked("never run the migrations here")


def test_a_person_can_write_the_target_down() -> None:
    assert target_from("CI=1 make deploy", "command") == Target("command", "make deploy")
    assert target_from("./src/gen/", "path") == Target("path", "src/gen")
    assert target_from("   ", "command") is None
    assert target_from("", "path") is None
