"""Context files: joined by use, left by neglect, never noise, and never a person's against them."""

from __future__ import annotations

from pathlib import Path

import pytest

from ralph.errors import BadInput
from ralph.plan import edit
from ralph.plan.edit import drop_vanished, enrich, is_noise
from ralph.plan.store import Plan
from ralph.records.iteration import FileTouched, Iteration


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    plan = Plan(tmp_path)
    edit.create_feature(plan, "auth")
    return plan


def make(plan: Plan, *paths: str) -> None:
    for path in paths:
        file = plan.project / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("x")


def touching(number: int, *paths: str) -> Iteration:
    files = tuple(FileTouched(path, "modified") for path in paths)
    return Iteration(feature="auth", iteration_number=number, files_touched=files)


def listed(plan: Plan) -> list[str]:
    return [file.path for file in plan.feature("auth").context_files]


def test_f33_a_file_touched_in_three_iterations_joins_and_noise_does_not(plan: Plan) -> None:
    paths = ["src/auth.ts", "package-lock.json", "dist/app.js", "tsconfig.json", "gone.ts"]
    make(plan, *paths[:-1], "src/twice.ts")
    history = [touching(i, *paths) for i in (1, 2, 4)]
    history += [touching(5, "src/twice.ts"), touching(6, "src/twice.ts")]
    assert enrich(plan, "auth", history, among={"src/twice.ts"}) == []
    assert enrich(plan, "auth", history) == ["src/auth.ts"]
    (file,) = plan.feature("auth").context_files
    assert (file.source, file.touch_count, file.last_touched) == ("auto", 3, 4)


@pytest.mark.parametrize(
    "path",
    ["Cargo.lock", "yarn.lock", "a/b/uv.lock", "node_modules/x/i.js", "build/x.o", "target/d.rs",
     ".env", ".eslintrc.json", "vite.config.ts", ".github/workflows/ci.yml", "pyproject.toml",
     "x.min.js", "app.js.map", "__pycache__/a.pyc", "logo.png", ".ralph/db/tasks.yaml", "go.sum",
     "web\\dist\\x.js", "Dockerfile", ".gitignore"],
)  # fmt: skip
def test_f33_infrastructure_is_noise(path: str) -> None:
    assert is_noise(path)


@pytest.mark.parametrize(
    "path",
    ["src/auth.ts", "lib/lock.py", "src/build_plan.py", "docs/design.md", "src/config.py",
     "tests/test_auth.py", "src/target.rs", "README.md", "src/env.ts", "app/configuration.rb"],
)  # fmt: skip
def test_f33_what_people_write_is_no_noise(path: str) -> None:
    assert not is_noise(path)


def test_the_least_touched_leaves_and_a_persons_file_never_does(plan: Plan) -> None:
    make(plan, *[f"src/f{i}.py" for i in range(31)], "mine.py")
    edit.update_feature(plan, "auth", {"context_files": ["mine.py"]})
    history = [
        touching(n, *[f"src/f{i}.py" for i in range(31) if n <= i + 3]) for n in range(1, 40)
    ]
    assert len(enrich(plan, "auth", history)) == 29
    assert len(listed(plan)) == 30
    assert "mine.py" in listed(plan)
    assert "src/f0.py" not in listed(plan)
    assert "src/f30.py" in listed(plan)


def test_when_people_fill_the_list_a_further_file_is_refused(plan: Plan) -> None:
    thirty = [f"f{i}.py" for i in range(30)]
    edit.update_feature(plan, "auth", {"context_files": thirty})
    with pytest.raises(BadInput, match="people added them all"):
        edit.update_feature(plan, "auth", {"context_files": [*thirty, "one_more.py"]})


def test_f4_a_vanished_file_is_noted_and_removed(plan: Plan) -> None:
    make(plan, "src/there.ts")
    edit.update_feature(
        plan,
        "auth",
        {"context_files": ["src/lib/auth.ts", "src/there.ts"], "knowledge_paths": ["d.md"]},
    )
    assert drop_vanished(plan, "auth") == [
        "[STALE: src/lib/auth.ts no longer exists — removed from context_files]",
        "[STALE: d.md no longer exists — removed from knowledge_paths]",
    ]
    assert listed(plan) == ["src/there.ts"]
    assert plan.feature("auth").knowledge_paths == ()
    assert drop_vanished(plan, "auth") == []


def test_a_plain_text_is_a_persons_file_and_stays_as_it_was_written(plan: Plan) -> None:
    make(plan, "a.py", "b.py")
    plan.path("features").write_text(
        "features:\n  - name: auth\n    context_files:\n      - a.py\n"
    )
    assert plan.feature("auth").context_files[0].source == "human"
    enrich(plan, "auth", [touching(n, "a.py", "b.py") for n in range(1, 4)])
    assert "      - a.py\n" in plan.path("features").read_text()
    assert listed(plan) == ["a.py", "b.py"]


def test_a_new_list_keeps_what_is_known_of_a_file_that_stays(plan: Plan) -> None:
    make(plan, "a.py")
    enrich(plan, "auth", [touching(n, "a.py") for n in range(1, 4)])
    edit.update_feature(plan, "auth", {"context_files": ["a.py", "b.py"]})
    first, second = plan.feature("auth").context_files
    assert (first.touch_count, first.source) == (3, "auto")
    assert second.source == "human"
