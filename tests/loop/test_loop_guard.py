"""An agent that mangles the plan: what it destroyed comes back, its own change stays."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from examples import spread
from looping import DONE, FEATURES, TASKS, Loop, planned, python, ralph_process, scripted, shell

from ralph.config import store
from ralph.loop.agent import AgentOutput
from ralph.plan.edit import update_task
from ralph.plan.learnings import add
from ralph.plan.store import Plan

DB = ".ralph/db"
PROSE = ("The session lives in a cookie", "No third-party identity providers.")
LEARNINGS = ("The cookie must be set", "Hashes are compared", "The test database")


def features(loop: Loop) -> str:
    return (loop.root / DB / "features.yaml").read_text(encoding="utf-8")


def nothing_is_lost(loop: Loop) -> bool:
    """Whether the plan parses and still holds all its prose, learnings and tasks."""
    view = loop.plan.load()
    assert {feature.name for feature in view.features} == {"auth", "search"}
    assert {task.id for task in view.tasks} == {1, 2, 3}
    text = " ".join(features(loop).split())
    assert all(words in text for words in (*PROSE, *LEARNINGS, "An inverted index"))
    return True


MANGLINGS: dict[str, list[dict[str, Any]]] = {
    "f1 all learnings dropped": [
        {"write": f"{DB}/features.yaml", "content": FEATURES.partition("  learnings:")[0]}
    ],
    "f1 the prose emptied": [
        {
            "edit": f"{DB}/features.yaml",
            "old": "  boundaries: No third-party identity providers.\n",
            "new": '  boundaries: ""\n',
        }
    ],
    "f15 the file deleted": [{"bash": f"rm {DB}/features.yaml"}],
    "f15 tabs": [{"write": f"{DB}/features.yaml", "content": "features:\n\t- name: auth\n"}],
    "f15 garbage": [{"bash": f"head -c 2000 /dev/urandom > {DB}/features.yaml"}],
    "f15 half a file": [
        {"write": f"{DB}/features.yaml", "content": FEATURES[: len(FEATURES) // 3]}
    ],
    "f15 an empty file": [{"bash": f": > {DB}/features.yaml"}],
    "f15 another type": [{"write": f"{DB}/features.yaml", "content": "- a\n- b\n"}],
    "f6 another feature": [
        {
            "edit": f"{DB}/features.yaml",
            "old": "An inverted index in src/search.py.",
            "new": "Nothing any more.",
        }
    ],
    "f15 everything in the folder": [{"bash": "rm -rf .ralph/db/*.yaml"}],
    "f15 the tasks rewritten": [
        {"write": f"{DB}/tasks.yaml", "content": "tasks:\n- {id: 1, status: done}\n"}
    ],
}


@pytest.mark.parametrize("name", MANGLINGS)
def test_what_the_agent_mangled_is_restored_and_reported_and_its_task_stays_done(
    loop: Loop, tmp_path: Path, name: str
) -> None:
    steps = [DONE, *MANGLINGS[name]]
    loop(scripted(tmp_path, {"steps": steps, "result": "Tidied up."}), max_iterations=1)
    assert nothing_is_lost(loop)
    assert "restored" in loop.repairs
    if "everything" not in name:
        assert loop.outcomes == ["success"]
        assert loop.plan.task(1).status == "done"
        assert features(loop).startswith("# People's own words stay.")


def test_f15_what_was_there_is_kept_beside_and_named(loop: Loop, tmp_path: Path) -> None:
    mangled = "features: [\t"
    loop(scripted(tmp_path, {"steps": [{"write": f"{DB}/features.yaml", "content": mangled}]}),
         max_iterations=1)  # fmt: skip
    line = next(line for line in loop.repairs.splitlines() if "is kept in" in line)
    kept = loop.root / line.rpartition(" kept in ")[2]
    assert kept.read_text() == mangled


# -- scripts: no tool call says what they do

WIPE = """
import pathlib
for file in pathlib.Path(".ralph/db").glob("*.yaml"):
    lines = file.read_text().splitlines(keepends=True)
    kept = [x for x in lines if x.startswith(("version", "features:", "tasks:", "- "))]
    file.write_text("".join(kept))
"""
FILE = """
import base64, os, re, pathlib
file = pathlib.Path(".ralph/db/features.yaml")
text = file.read_text()
prose = r"(description|architecture|boundaries): [^:]*?(?=\\n  \\w+:|\\n- |\\n\\Z)"
{}
file.write_text(text)
"""
EMPTY = FILE.format("""
text = re.sub(r"  learnings:.*?(?=^- )", "", text, flags=re.S | re.M)
text = re.sub(prose, r"\\1: ''", text)
""")
STUBS = FILE.format("""
text = re.sub(prose, r"\\1: x", text)
""")
GARBLE = FILE.format("""
noise = base64.b64encode(os.urandom(90)).decode()
text = re.sub(r"boundaries: .*", "boundaries: " + noise, text)
text = re.sub(r"architecture: .*", "architecture: '" + "?#%" * 30 + "'", text)
""")
OTHERS = """
import pathlib
file = pathlib.Path(".ralph/db/features.yaml")
file.write_text(file.read_text().replace("An inverted index", "Nothing much, says nobody,"))
file = pathlib.Path(".ralph/db/tasks.yaml")
head, mark, rest = file.read_text().partition("title: Rank by age")
file.write_text(head + mark + rest.replace("pending", "done").replace("priority: 4", "priority: 1"))
"""
SCRIPTS = {
    "python that keeps the names": ("{{python}} ../script.py", WIPE),
    "python that empties": ("{{python}} ../script.py", EMPTY),
    "python that leaves stubs": ("{{python}} ../script.py", STUBS),
    "python that garbles": ("{{python}} ../script.py", GARBLE),
    "python on others": ("{{python}} ../script.py", OTHERS),
    "python behind a file that runs it": ("sh ../script.sh", "{python} ../wipe.py\n"),
    "find and sed": (
        "find . -name 'feat*' -path '*db*' -exec sed -i -e '/learnings/,/^- name/d' {} +",
        "",
    ),
    "find and truncate": ("find . -name '*s.yaml' -exec truncate -s 150 {} +", ""),
    "find and delete": ("find . -name '*.yaml' -delete", ""),
    "a move": ("cd .ral*; mv db/features.yaml db/tasks.yaml ../", ""),
    "a folder away": ("cd .ral*; rm -r db", ""),
    "a file in its place": ("cd .ral*; rm -r db; touch db", ""),
    "noise": ("cd .ral*/db; for f in f*.yaml t*.yaml; do head -c 900 /dev/urandom > $f; done", ""),
    "git checkout": ("git checkout -q -- .", ""),
    "git stash": ("git stash -q", ""),
    "git reset": ("git reset -q --hard", ""),
}


def on_path(name: str, agent: str, folder: Path, patch: pytest.MonkeyPatch) -> str:
    """A client of this name that is really this agent."""
    program = folder / "bin" / name
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\nexec {agent}\n", encoding="utf-8")
    program.chmod(0o755)
    patch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    return name


def committed(loop: Loop) -> None:
    """A repository in which the plan as it is committed knows nothing yet."""
    files = {name: loop.root / DB / f"{name}.yaml" for name in ("features", "tasks")}
    now = {file: file.read_text() for file in files.values()}
    files["features"].write_text("version: 1\nfeatures:\n- name: auth\n")
    files["tasks"].write_text("version: 1\ntasks:\n- {id: 1, feature: auth, title: T}\n")
    who = ["-c", "user.name=Ana", "-c", "user.email=ana@example.org"]
    for words in (["init", "-q"], ["add", "."], [*who, "commit", "-q", "-m", "plan"]):
        subprocess.run(["git", *words], cwd=loop.root, check=True)
    for file, text in now.items():
        file.write_text(text)


@pytest.mark.parametrize(("name", "kind"), spread(SCRIPTS, ["command", "claude", "silent"]))
def test_what_a_script_destroyed_is_restored_and_told_whoever_ran_it(
    loop: Loop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, kind: str
) -> None:
    line, text = SCRIPTS[name]
    line = line.replace("{{python}}", f"{sys.executable} -S")
    if name.startswith("git"):
        committed(loop)
    (tmp_path / "wipe.py").write_text(WIPE)
    (tmp_path / "script.py").write_text(text)
    (tmp_path / "script.sh").write_text(text.replace("{python}", sys.executable))
    agent = scripted(tmp_path, {"steps": [DONE, {"bash": line}]})
    if kind == "silent":
        done = "sed -i '0,/pending/s//done/' .ralph/db/tasks.yaml"
        agent = shell(tmp_path, f"{done}\n{line}\n")
    elif kind == "claude":
        agent = on_path("claude", agent, tmp_path, monkeypatch)
    loop(agent, max_iterations=1)
    assert nothing_is_lost(loop)
    assert features(loop) == FEATURES
    assert loop.plan.task(3) == Plan(planned(tmp_path / "fresh")).task(3)
    assert "restored" in loop.repairs
    if "on others" in name:
        kept = [(loop.root / path).read_text() for path in copies(loop)]
        assert any("says nobody" in text for text in kept)


@pytest.mark.parametrize("line", ["rm -rf .ralph", "git clean -fdxq"])
def test_a_plan_that_went_with_everything_beside_it_is_there_again(
    loop: Loop, tmp_path: Path, line: str
) -> None:
    subprocess.run(["git", "init", "-q"], cwd=loop.root, check=True)
    with contextlib.suppress(FileNotFoundError):  # the agent's output may have gone too
        loop(scripted(tmp_path, {"steps": [{"bash": line}]}), max_iterations=1)
    assert nothing_is_lost(loop)
    assert features(loop) == FEATURES
    assert "features.yaml: the file restored: it was gone" in loop.repairs


def copies(loop: Loop) -> list[str]:
    """The versions that the guard told of."""
    lines = loop.repairs.splitlines()
    return [line.rpartition(" kept in ")[2] for line in lines if " kept in " in line]


def test_learnings_in_another_order_are_no_loss(loop: Loop, tmp_path: Path) -> None:
    first = FEATURES[FEATURES.index("  - text: The cookie") : FEATURES.index("  - text: Hashes")]
    text = FEATURES.replace(first, "").replace("- name: search", first + "- name: search")
    (tmp_path / "sorted.yaml").write_text(text)
    steps = [{"bash": f"cp ../sorted.yaml {DB}/features.yaml"}]
    loop(scripted(tmp_path, {"steps": steps}), max_iterations=1)
    assert loop.repairs == ""
    assert features(loop) == text


def test_prose_of_its_own_that_an_agent_rewrites_stays_and_the_old_one_is_kept(
    loop: Loop, tmp_path: Path
) -> None:
    new = "The form posts to src/forms/login.py, and the cookie is set in a middleware."
    old = "A form posts to src/login.py, which checks the hash and sets the cookie."
    script = f"""
import pathlib
file = pathlib.Path("{DB}/features.yaml")
file.write_text(file.read_text().replace("{old}", "{new}"))
"""
    (tmp_path / "script.py").write_text(script)
    steps = [DONE, {"bash": "{{python}} ../script.py"}]
    loop(scripted(tmp_path, {"steps": steps}), max_iterations=1)
    assert loop.plan.feature("auth").architecture == new
    assert "restored" not in loop.repairs
    assert [(loop.root / path).read_text() for path in copies(loop)] == [FEATURES]


def test_a_file_dumped_without_its_comments_has_them_again(loop: Loop, tmp_path: Path) -> None:
    bare = FEATURES.removeprefix("# People's own words stay.\n")
    (tmp_path / "bare.yaml").write_text(bare)
    steps = [DONE, {"bash": f"cp ../bare.yaml {DB}/features.yaml"}]
    loop(scripted(tmp_path, {"steps": steps}), max_iterations=1)
    assert features(loop) == FEATURES


# -- people and other loops at the same time

THINKING = """
import json, os, time
def say(**event):
    print(json.dumps({"session_id": "s-1", **event}), flush=True)
say(type="system", subtype="init", cwd=os.getcwd())
say(type="assistant", message={"id": "m", "content": [{"type": "text", "text": "Let me think."}]})
while not os.path.exists("../edited"):
    time.sleep(0.01)
say(type="result", subtype="success", is_error=False, result="Nothing to do.")
"""
EDITOR = """
import pathlib
for name, old, new in (
    ("features", "An inverted index in src/search.py.", "A trie in src/search.py."),
    ("tasks", "priority: 4", "priority: 1"),
):
    file = pathlib.Path(f".ralph/db/{name}.yaml")
    file.write_text(file.read_text().replace(old, new))
with pathlib.Path(".ralph/db/tasks.yaml").open("a") as file:
    file.write("- {id: 4, feature: search, title: Mark the words}\\n")
pathlib.Path("../edited").touch()
"""


def call(identity: str, command: str = "ls") -> dict[str, Any]:
    use = {"type": "tool_use", "id": identity, "name": "Bash", "input": {"command": command}}
    return {"type": "assistant", "message": {"content": [use]}}


def answer(identity: str, text: str = "ok") -> dict[str, Any]:
    block = {"type": "tool_result", "tool_use_id": identity, "content": text}
    return {"type": "user", "message": {"content": [block]}}


def item(kind: str, name: str = "command_execution", command: str = "ls") -> dict[str, Any]:
    return {"type": f"item.{kind}", "item": {"id": "i", "type": name, "command": command}}


SAYING = {"type": "assistant", "message": {"content": [{"type": "text", "text": "Hm."}]}}


@pytest.mark.parametrize(
    ("agent", "looks"),
    [
        ("claude", [([], True), ([SAYING], True), ([SAYING], True)]),
        ("claude", [([call("a")], False), ([], False), ([answer("a")], False), ([], True)]),
        ("claude", [([call("a"), answer("a")], False), ([SAYING], True)]),
        ("claude", [([call("a"), call("b"), answer("a")], False), ([], False)]),
        ("claude", [([call("a", "x.sh &"), answer("a")], False), ([], False), ([], False)]),
        ("claude", [([call("a", "x && y 2>&1"), answer("a")], False), ([], True)]),
        ("claude", [([call("a", 'curl "http://x/?a=1&b=2"'), answer("a")], False), ([], True)]),
        ("claude", [([call("a", "git commit -m 'Q&A'"), answer("a")], False), ([], True)]),
        ("claude", [([call("a", "cat <<'E' > x.py\na & b\nE"), answer("a")], False), ([], True)]),
        ("claude", [([call("a", "timeout 9 bash -c 'x.sh &'"), answer("a")], False), ([], False)]),
        ("claude", [([call("a"), answer("a", "Command running in background")], False),
                    ([], False)]),
        ("claude", [([call("a"), answer("a", "background.png")], False), ([], True)]),
        ("codex", [([item("started")], False), ([item("completed")], False), ([], True)]),
        ("codex", [([item("completed", "file_change")], False), ([], True)]),
        ("codex", [([item("completed", command="bash -lc 'x.sh &'")], False), ([], False)]),
        ("codex", [([item("completed", command="bash -lc \"curl 'x?a=1&b=2'\"")], False),
                   ([], True)]),
        ("codex", [([item("completed", command='bash -lc "git commit -m \\"Q&A\\""')], False),
                   ([], True)]),
        ("codex", [([item("completed", "collab_tool_call")], False), ([], False)]),
        ("other", [([SAYING], False), ([], False)]),
    ],
)  # fmt: skip
def test_an_agent_is_idle_while_it_has_no_call_under_way(
    tmp_path: Path, agent: str, looks: list[tuple[list[dict[str, Any]], bool]]
) -> None:
    file = tmp_path / "output.jsonl"
    file.touch()
    output = AgentOutput(file, agent=agent, root=str(tmp_path), injected="")
    for events, idle in looks:
        with file.open("a") as out:
            out.write("".join(json.dumps(event) + "\n" for event in events))
        while output.follow():
            pass
        assert output.idle() is idle


def test_a_call_that_is_left_running_counts_once(tmp_path: Path) -> None:
    file = tmp_path / "output.jsonl"
    events = [call("a", "x.sh &"), answer("a", "Command running in background with ID: b1")]
    file.write_text("".join(json.dumps(event) + "\n" for event in events))
    output = AgentOutput(file, agent="claude", root=str(tmp_path), injected="")
    while output.follow():
        pass
    assert output.capture.live.running == 1


def test_an_agent_that_is_printing_a_line_is_not_idle(tmp_path: Path) -> None:
    file = tmp_path / "output.jsonl"
    file.write_text('{"type": "assist')
    output = AgentOutput(file, agent="claude", root=str(tmp_path), injected="")
    while output.follow():
        pass
    assert not output.idle()


@pytest.mark.parametrize("known", [True, False])
def test_what_a_person_edits_while_the_agent_thinks_stays_or_is_kept_and_told(
    loop: Loop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, known: bool
) -> None:
    """Clients that Ralph knows print a call before they make it; of others nothing is known."""
    agent = python(tmp_path, THINKING)
    if known:
        agent = on_path("claude", agent, tmp_path, monkeypatch)

    def edit(event: Any) -> None:
        if event.event == "doing" and not (tmp_path / "edited").exists():
            subprocess.run([sys.executable, "-S", "-c", EDITOR], cwd=loop.root, check=True)

    loop.on_event = edit
    loop(agent, task_id="1", max_iterations=1)
    assert (tmp_path / "edited").exists()
    assert loop.plan.task(4).title == "Mark the words"
    if known:
        assert loop.plan.feature("search").architecture == "A trie in src/search.py."
        assert loop.plan.task(3).priority == 1
        assert "restored" not in loop.repairs
    else:
        assert loop.plan.feature("search").architecture == "An inverted index in src/search.py."
        assert loop.plan.task(3).priority == 4
        kept = "".join((loop.root / path).read_text() for path in copies(loop))
        assert "A trie in src/search.py." in kept
        assert "priority: 1" in kept
        assert "If you made this change" in loop.repairs


def test_two_loops_whose_agents_edit_the_files_themselves_undo_nothing_of_each_other(
    loop: Loop, tmp_path: Path
) -> None:
    """The second one ends while the first one's agent still works, and then the first one does."""
    wait = "while [ ! -e ../{} ]; do sleep 0.02; done"
    first = scripted(tmp_path, {"steps": [
        DONE, {"bash": "touch ../first"}, {"bash": wait.format("second")},
    ]})  # fmt: skip
    edit = {
        "edit": f"{DB}/tasks.yaml",
        "old": "title: Rank by age\n  status: pending",
        "new": "title: Rank by age\n  status: done",
    }
    second = scripted(tmp_path, {"steps": [{"bash": wait.format("first")}, edit]})
    words = ["run", "--task", "3", "--agent", second, "--max-iterations", "1"]
    with ralph_process(words, cwd=loop.root) as process:

        def go_on() -> None:
            process.wait()
            (tmp_path / "second").touch()

        watch = threading.Thread(target=go_on)
        watch.start()
        loop(first, task_id="1", max_iterations=1)
        watch.join()
        assert process.returncode == 0
    assert loop.plan.task(1).status == "done"
    assert loop.plan.task(3).status == "done"
    assert loop.repairs == ""


def test_f6_a_task_of_another_feature_is_not_the_agents_to_change(
    loop: Loop, tmp_path: Path
) -> None:
    other = {
        "edit": f"{DB}/tasks.yaml",
        "old": "title: Rank by age\n  status: pending",
        "new": "title: Rank by age\n  status: done",
    }
    loop(scripted(tmp_path, {"steps": [DONE, other]}), max_iterations=1)
    assert loop.plan.task(1).status == "done"
    assert loop.plan.task(3).status == "pending"
    assert "it is another feature's" in loop.repairs


def test_f1_a_learning_the_agent_adds_stays_and_those_it_dropped_come_back(
    loop: Loop, tmp_path: Path
) -> None:
    head = FEATURES.partition("  learnings:")[0]
    text = f"{head}  learnings:\n  - The form needs a token against forgery.\n"
    steps = [DONE, {"write": f"{DB}/features.yaml", "content": text}]
    loop(scripted(tmp_path, {"steps": steps}), max_iterations=1)
    learnings = loop.plan.feature("auth").learnings
    assert nothing_is_lost(loop)
    assert learnings[-1].text == "The form needs a token against forgery."
    assert learnings[-1].source == "agent"


def test_what_came_through_ralph_meanwhile_is_never_undone(loop: Loop, tmp_path: Path) -> None:
    """Another loop finishes its task and learns while our agent writes an old copy back."""
    steps = [
        {"bash": f"cp {DB}/features.yaml ../f.yaml; cp {DB}/tasks.yaml ../t.yaml; touch ../copied"},
        {"bash": "while [ ! -e ../written ]; do sleep 0.02; done"},
        {"bash": f"cp ../f.yaml {DB}/features.yaml; cp ../t.yaml {DB}/tasks.yaml"},
        DONE,
    ]

    def meanwhile(event: Any) -> None:
        if (tmp_path / "copied").exists() and not (tmp_path / "written").exists():
            update_task(loop.plan, 3, {"status": "done"}, comment="ranked")
            add(loop.plan, "search", "Ranks are cached for an hour.", source="human")
            (tmp_path / "written").touch()

    loop.on_event = meanwhile
    loop(scripted(tmp_path, {"steps": steps}), task_id="1", max_iterations=1)
    assert (tmp_path / "written").exists()
    assert loop.plan.task(3).status == "done"
    assert loop.plan.task(1).status == "done"
    assert [x.text for x in loop.plan.feature("search").learnings] == [
        "Ranks are cached for an hour."
    ]


def test_an_iteration_that_leaves_the_plan_alone_reports_nothing(loop: Loop) -> None:
    before = (features(loop), (loop.root / DB / "tasks.yaml").read_text())
    loop("/bin/true", max_iterations=1)
    assert loop.repairs == ""
    assert before == (FEATURES, TASKS)
    assert (loop.root / DB / "tasks.yaml").read_text() == TASKS


def test_an_old_copy_written_over_ralphs_own_change_is_noticed_though_the_bytes_are_the_same(
    loop: Loop, tmp_path: Path
) -> None:
    steps = [
        {"bash": f"cp {DB}/tasks.yaml ../t.yaml"},
        {"bash": '{{ralph}} task update 1 --status done --comment "the form is there"'},
        {"bash": f"cp ../t.yaml {DB}/tasks.yaml"},
    ]
    loop(scripted(tmp_path, {"steps": steps}), max_iterations=1)
    assert loop.outcomes == ["success"]
    assert loop.plan.task(1).status == "done"


def test_the_projects_identity_is_put_back(loop: Loop, tmp_path: Path) -> None:
    before = (loop.root / DB / "metadata.yaml").read_bytes()
    loop(scripted(tmp_path, {"steps": [{"bash": f"echo x > {DB}/metadata.yaml"}]}),
         max_iterations=1)  # fmt: skip
    assert (loop.root / DB / "metadata.yaml").read_bytes() == before
    assert "metadata.yaml" in loop.repairs


@pytest.mark.parametrize("existed", [True, False])
def test_f1_an_agent_cannot_turn_memory_off_in_the_settings(
    loop: Loop, tmp_path: Path, existed: bool
) -> None:
    file = loop.root / ".ralph/rag_config.json"
    if existed:
        file.write_text('{"search_limit": 5}')
    command = """echo '{"hook_capture": false, "review_every": 0}' > .ralph/rag_config.json"""
    loop(scripted(tmp_path, {"steps": [{"bash": command}]}), max_iterations=1)
    assert file.exists() == existed
    assert not existed or file.read_text() == '{"search_limit": 5}'
    assert "rag_config.json: the file re" in loop.repairs


def test_settings_that_a_person_changes_meanwhile_stay(loop: Loop, tmp_path: Path) -> None:
    file = loop.root / ".ralph/rag_config.json"

    def configure(event: Any) -> None:
        if event.event == "doing" and not file.exists():
            with loop.plan.changing_settings():
                store(file, "search_limit", "5")

    loop.on_event = configure
    loop(scripted(tmp_path, {"steps": [{"bash": "sleep 0.2"}]}), max_iterations=1)
    assert "search_limit" in file.read_text()
