"""`claude -p` as a model: a stand-in that plays what the real one says, and the real one."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

if sys.platform == "win32":
    pytest.skip("the stand-in is a script with a first line", allow_module_level=True)

from clients import World, client, worlds
from looping import eventually
from scripted_model import ScriptedModel

from ralph.chat.model import ChatTurn, ClaudeModel, ModelAnswer, ToolCall
from ralph.errors import ModelOff

LONG = 60.0
HELLO = [ChatTurn("system", "Be brief."), ChatTurn("user", "Hello!")]
# Keeps how it was called, plays its lines, and then does what it is told.
STAND_IN = """#!{python} -S
import json, os, subprocess, sys, time
here = os.path.dirname(os.path.abspath(__file__))
called = dict(argv=sys.argv[1:], prompt=sys.stdin.read(), cwd=os.getcwd(), environ=dict(os.environ))
called["files"] = os.listdir()
with open(os.path.join(here, "called.json"), "w") as file:
    json.dump(called, file)
play = json.load(open(os.path.join(here, "play.json")))
for line in play["lines"]:
    print(line if isinstance(line, str) else json.dumps(line), flush=True)
sys.stderr.write(play["stderr"])
if play["stays"]:
    child = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(600)"],
        start_new_session=True)
    with open(os.path.join(here, "pids.tmp"), "w") as file:
        json.dump([os.getpid(), child.pid], file)
    os.replace(os.path.join(here, "pids.tmp"), os.path.join(here, "pids.json"))
    time.sleep(600)
sys.exit(play["exit"])
"""


class StandIn:
    """A program called claude, and what it is to say."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        program = folder / "claude"
        program.write_text(STAND_IN.format(python=sys.executable), encoding="utf-8")
        program.chmod(0o755)

    def play(
        self, *lines: dict[str, Any] | str, exit: int = 0, stderr: str = "", stays: bool = False
    ) -> None:
        plain = {"lines": lines, "exit": exit, "stderr": stderr, "stays": stays}
        (self.folder / "play.json").write_text(json.dumps(plain), encoding="utf-8")

    @property
    def called(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / "called.json").read_bytes())
        return found

    def all_gone(self) -> bool:
        """Whether it has ended, with the one it started."""
        return all(map(gone, json.loads((self.folder / "pids.json").read_bytes())))


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    return StandIn(folder)


def delta(text: str) -> dict[str, Any]:
    inner = {"type": "content_block_delta", "delta": {"type": "text_delta", "text": text}}
    return {"type": "stream_event", "event": inner, "session_id": "s"}


def result(text: str = "", **more: Any) -> dict[str, Any]:
    usage = {"input_tokens": 3, "cache_read_input_tokens": 40, "output_tokens": 5, "more": {}}
    plain = {"type": "result", "subtype": "success", "is_error": False, "result": text}
    return {**plain, "total_cost_usd": 0.0123, "usage": usage, **more}


INIT = {"type": "system", "subtype": "init", "model": "claude-haiku-4-5", "tools": []}


def ask(model: ClaudeModel, *turns: ChatTurn, **more: Any) -> ModelAnswer:
    return model.answer(turns or HELLO, **{"timeout_s": LONG, **more})


def refused(model: ClaudeModel | None = None, **more: Any) -> ModelOff:
    with pytest.raises(ModelOff) as caught:
        ask(model or ClaudeModel(grace_s=0.5), **more)
    assert caught.value.todo
    assert "\n" not in str(caught.value)
    return caught.value


def test_an_answer_comes_with_its_text_tokens_and_cost(stand_in: StandIn) -> None:
    stand_in.play(INIT, "no JSON", {"type": 7}, delta("He"), delta("y."), result("Hey."))
    pieces: list[str] = []
    said = ask(ClaudeModel(), on_text=pieces.append)
    assert pieces == ["He", "y."]
    assert said == ModelAnswer(
        text="Hey.", tokens_in=43, tokens_out=5, cost_usd=0.0123, model="claude-haiku-4-5"
    )


def test_a_text_that_did_not_stream_is_told_at_the_end(stand_in: StandIn) -> None:
    stand_in.play(result("Hey."))
    pieces: list[str] = []
    assert ask(ClaudeModel("haiku"), on_text=pieces.append).model == "claude:haiku"
    assert pieces == ["Hey."]


def test_it_is_started_with_nothing_but_the_question(
    stand_in: StandIn, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("RALPH_CHAT_API_KEY", "k-secret")
    monkeypatch.setenv("OTHER_SERVICE_TOKEN", "t-secret")
    monkeypatch.setenv("SPECIAL", "wanted")
    stand_in.play(result("Hey."))
    before = set(tmp_path.iterdir())
    ask(ClaudeModel("haiku", also=["SPECIAL"]))
    called = stand_in.called
    assert called["prompt"] == "Be brief.\n\nHello!"
    words = called["argv"]
    assert words[:3] == ["-p", "--output-format", "stream-json"]
    assert words[words.index("--tools") + 1] == ""
    assert words[words.index("--model") + 1] == "haiku"
    assert {"--strict-mcp-config", "--no-session-persistence"} <= set(words)
    assert json.loads(words[words.index("--settings") + 1]) == {"disableAllHooks": True}
    assert called["files"] == []
    assert "secret" not in json.dumps(called["environ"])
    assert called["environ"]["SPECIAL"] == "wanted"
    assert called["environ"]["RALPH_HOOK_CAPTURE"] == "false"
    assert set(tmp_path.iterdir()) == before  # what it was asked lies nowhere


def test_a_conversation_is_told_by_its_speakers(stand_in: StandIn) -> None:
    stand_in.play(result("Hey."))
    call = ToolCall("1", "get_weather", {})
    turns = [
        *HELLO,
        ChatTurn("assistant", "", (call,)),
        ChatTurn("tool", "rain"),
        ChatTurn("user", "So?"),
    ]
    ask(ClaudeModel(), *turns)
    assert stand_in.called["prompt"] == (
        "Be brief.\n\nThe conversation:\n\nUser: Hello!\n\nTool: rain\n\nUser: So?"
    )


def test_a_long_question_fits(stand_in: StandIn) -> None:
    stand_in.play(result("Hey."))
    text = "Zoë " * 100_000
    ask(ClaudeModel(), ChatTurn("user", text))
    assert stand_in.called["prompt"] == text


def test_it_takes_no_tools_and_says_so() -> None:
    assert not ClaudeModel().takes_tools
    assert ClaudeModel().costs


def test_a_program_that_is_not_there_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    error = refused(ClaudeModel(role="summary"))
    assert "was not found" in error.what
    assert error.todo == "Install Claude Code, or set summary_model to another."
    assert error.fault == "setting"


@pytest.mark.parametrize(
    ("lines", "told", "fault"),
    [
        (
            [result("Invalid API key · Please run /login", is_error=True, api_error_status=401)],
            "is not logged in (Invalid API key · Please run /login)",
            "setting",
        ),
        (
            [result("There's an issue", is_error=True, api_error_status=404)],
            "has no such model (There's an issue)",
            "setting",
        ),
        (
            [result("Prompt is too long", is_error=True, terminal_reason="prompt_too_long")],
            "says the prompt is too long (Prompt is too long)",
            "prompt",
        ),
        (
            [result(is_error=True, api_error_status=529, errors=["one", "Overloaded"])],
            "failed (one; Overloaded)",
            "server",
        ),
        ([result(" ")], "gave an empty answer", "prompt"),
        ([INIT], "gave no answer (error: unknown option '--tools')", "server"),
    ],
)
def test_every_failure_is_told(
    stand_in: StandIn, lines: list[dict[str, Any]], told: str, fault: str
) -> None:
    stand_in.play(*lines, exit=1, stderr="a warning\nerror: unknown option '--tools'\n")
    error = refused()
    assert error.what == f"Claude Code {told}"
    assert error.fault == fault


def test_an_end_without_a_word_is_told_with_its_exit_code(stand_in: StandIn) -> None:
    stand_in.play(delta("Once upon"), exit=143)
    error = refused()
    assert error.what == "Claude Code gave no answer (it ended with 143)"
    assert error.partial == "Once upon"


def test_a_secret_in_what_it_says_is_not_repeated(stand_in: StandIn) -> None:
    secret = "sk-ant-api03-" + "a1B2" * 20
    stand_in.play(exit=1, stderr=f"bad key {secret}")
    assert secret not in str(refused())


def test_its_time_over_it_is_ended_with_everything_it_started(stand_in: StandIn) -> None:
    stand_in.play(INIT, delta("Once upon"), stays=True)
    pids = stand_in.folder / "pids.json"
    for seconds in (1.0, 4.0, 16.0):  # a slow machine may need longer to start it
        error = refused(timeout_s=seconds)
        if pids.exists():
            break
    assert error.what == f"Claude Code did not finish its answer within {seconds:g} s"
    assert error.todo == "If it is just slow, raise chat_timeout_s."
    assert error.partial == "Once upon"
    assert eventually(stand_in.all_gone)


def test_an_interrupted_question_leaves_nothing_running(stand_in: StandIn) -> None:
    stand_in.play(INIT, delta("Once upon"), stays=True)

    def interrupt(piece: str) -> None:
        assert eventually((stand_in.folder / "pids.json").exists)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ask(ClaudeModel(grace_s=0.5), on_text=interrupt)
    assert eventually(stand_in.all_gone)


# -- the real one


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    yield from worlds(tmp_path)


def test_the_real_claude_answers_and_leaves_no_session(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    client("claude")
    hooked = world.folder / "hooked"
    hooks = {"Stop": [{"hooks": [{"type": "command", "command": f"touch {hooked}"}]}]}
    (world.home / ".claude").mkdir()
    settings = world.home / ".claude" / "settings.json"
    settings.write_text(json.dumps({"hooks": hooks}), encoding="utf-8")
    with ScriptedModel() as scripted:
        world.talk_to(scripted.url)
        world.move_in(monkeypatch)
        monkeypatch.setattr("tempfile.tempdir", None)
        monkeypatch.chdir(world.folder)  # the clients lie in this project, where none is looked up
        pieces: list[str] = []
        said = ask(ClaudeModel(), on_text=pieces.append)
    assert said.text == "".join(pieces) == "ok"
    assert said.cost_usd is not None
    assert (said.tokens_in, said.tokens_out) == (100, 20)
    assert not hooked.exists()
    assert list((world.home / ".claude").glob("projects/**/*.jsonl")) == []
