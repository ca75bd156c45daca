"""What the tests with real clients stand on: a model that keeps to its script and tells what it
was shown, and a world that notices what was left outside of it."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from clients import worlds
from scripted_model import Call, Refusal, Run, ScriptedModel, Step, main

if sys.platform == "win32":
    pytest.skip("the clients are driven as processes are on POSIX", allow_module_level=True)

TOOLS = [{"name": "Bash", "description": "Runs a command."}]


def post(url: str, body: dict[str, Any]) -> str:
    """What the model answers, whole."""
    request = urllib.request.Request(url, json.dumps(body).encode(), method="POST")
    with urllib.request.urlopen(request, timeout=60) as answer:
        return str(answer.read().decode())


def ask(model: ScriptedModel, *messages: dict[str, Any], **more: Any) -> dict[str, Any]:
    """One request of the Messages API, answered in one piece."""
    body = {"model": "m", "messages": list(messages), "tools": TOOLS, **more}
    answer: dict[str, Any] = json.loads(post(f"{model.url}/v1/messages?beta=true", body))
    return answer


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "text", "text": text}]}


def events(stream: str) -> list[dict[str, Any]]:
    data = (line[6:] for line in stream.splitlines() if line.startswith("data: "))
    return [json.loads(one) for one in data]


def to_the_end(connection: socket.socket) -> None:
    while connection.recv(4096):
        pass


def said(answer: dict[str, Any]) -> str:
    return str(answer["content"][0]["text"])


def test_the_turns_of_a_conversation_choose_the_step_however_often_it_is_asked() -> None:
    steps = (Step(text="one", calls=(Call("Bash", {"command": "ls"}),)), Step(text="two"))
    with ScriptedModel(Run(steps=steps)) as model:
        first = ask(model, user("go"))
        assert ask(model, user("go"))["content"][1]["input"] == {"command": "ls"}
        assert first["stop_reason"] == "tool_use"
        spoken = {"role": "assistant", "content": first["content"]}
        result = {"type": "tool_result", "tool_use_id": "t", "content": "a.py"}
        second = ask(model, user("go"), spoken, {"role": "user", "content": [result]})
        assert (said(second), second["stop_reason"]) == ("two", "end_turn")
    *_, last = model.asked(0)
    assert last.turn == 1
    assert last.results == ["a.py"]
    assert last.tools == {"Bash": "Runs a command."}
    assert last.shown == "go\na.py"


def test_a_conversation_gets_the_first_run_that_is_free_and_meant_for_its_prompt() -> None:
    runs = (
        Run(when="login", steps=(Step(text="for the login"),)),
        Run(steps=(Step(text="for anything"),)),
        Run(steps=(Step(text="for anything else"),)),
    )
    with ScriptedModel(*runs) as model:
        asked = [("a", "tea"), ("b", "the login"), ("c", "the login"), ("a", "tea")]
        answers = [
            said(ask(model, user(prompt), metadata={"user_id": session}))
            for session, prompt in asked
        ]
    assert answers == ["for anything", "for the login", "for anything else", "for anything"]


def test_what_a_client_asks_beside_the_work_does_not_disturb_the_script() -> None:
    with ScriptedModel(Run(steps=(Step(text="one"),))) as model:
        assert said(ask(model, user("A title for this, please."), tools=[])) == "ok"
        counted = post(f"{model.url}/v1/messages/count_tokens", {"messages": [user("hello")]})
        assert json.loads(counted)["input_tokens"] > 0
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"{model.url}/v1/else", timeout=60)
        assert said(ask(model, user("go"))) == "one"
    assert len(model.asked(0)) == 1


def test_a_streamed_answer_says_the_same_in_pieces() -> None:
    step = Step(text="Hm.", calls=(Call("Bash", {"command": "ls"}),), tokens_in=7, tokens_out=9)
    with ScriptedModel(Run(steps=(step,))) as model:
        body = {"model": "m", "messages": [user("go")], "tools": TOOLS, "stream": True}
        heard = events(post(f"{model.url}/v1/messages", body))
    deltas = [event["delta"] for event in heard if event["type"] == "content_block_delta"]
    assert [delta["type"] for delta in deltas] == ["text_delta", "input_json_delta"]
    assert json.loads(deltas[1]["partial_json"]) == {"command": "ls"}
    assert heard[-2]["usage"] == {"input_tokens": 7, "output_tokens": 9}
    assert heard[-1]["type"] == "message_stop"


def test_the_responses_api_counts_several_items_in_a_row_as_one_turn() -> None:
    calls = (Call("mcp__memory.search", {"query": "x"}), Call("apply_patch", "*** Begin Patch"))
    steps = (Step(text="one", calls=calls), Step(text="two"))
    with ScriptedModel(Run(steps=steps)) as model:
        prompt = {"type": "message", "role": "user", "content": [{"text": "go"}]}
        inner = {"type": "function", "name": "search", "description": "Finds."}
        tools = [{"type": "namespace", "name": "mcp__memory", "tools": [inner]}]
        body = {"model": "m", "input": [prompt], "tools": tools, "stream": True}
        url = f"{model.url}/v1/responses"
        heard = events(post(url, body | {"prompt_cache_key": "s"}))
        items = [e["item"] for e in heard if e["type"] == "response.output_item.done"]
        assert [item["type"] for item in items] == ["message", "function_call", "custom_tool_call"]
        assert (items[1]["namespace"], items[1]["name"]) == ("mcp__memory", "search")
        assert heard[-1]["response"]["usage"]["total_tokens"] == 120
        output = {"type": "function_call_output", "call_id": "c", "output": "found"}
        later = body | {"input": [prompt, *items, output], "prompt_cache_key": "s"}
        assert '"two"' in post(url, later)
    assert model.asked(0)[-1].results == ["found"]
    assert model.asked(0)[-1].tools["mcp__memory.search"] == "Finds."


def test_a_refusal_comes_with_its_status_as_often_as_the_script_says() -> None:
    refusal = Refusal(529, "overloaded_error", "busy", times=1)
    with ScriptedModel(Run(steps=(Step(text="at last", refusal=refusal),))) as model:
        with pytest.raises(urllib.error.HTTPError) as raised:
            ask(model, user("go"))
        with raised.value as answer:
            assert answer.code == 529
            assert json.load(answer)["error"] == {"type": "overloaded_error", "message": "busy"}
        assert said(ask(model, user("go"))) == "at last"


def test_a_stream_that_is_cut_or_stalls_never_comes_to_its_end() -> None:
    steps = (Step(text="one", cut=True),)
    body = {"model": "m", "messages": [user("go")], "tools": TOOLS, "stream": True}
    with ScriptedModel(Run(steps=steps)) as model:
        heard = events(post(f"{model.url}/v1/messages", body))
    assert heard[0]["type"] == "message_start"
    assert heard[-1]["type"] != "message_stop"
    with ScriptedModel(Run(steps=(Step(text="one", stalls=True),))) as model:
        where = urlsplit(model.url)
        with socket.create_connection((where.hostname or "", where.port or 0)) as connection:
            data = json.dumps(body).encode()
            head = f"POST /v1/messages HTTP/1.1\r\ncontent-length: {len(data)}\r\n\r\n"
            connection.sendall(head.encode() + data)
            with connection.makefile("rb") as answer:
                while b"message_start" not in answer.readline():
                    pass
            connection.settimeout(0.2)
            with pytest.raises(TimeoutError):
                to_the_end(connection)


def test_what_the_script_has_no_answer_to_is_refused_and_fails_the_test() -> None:
    def too_much() -> None:
        with ScriptedModel(Run(steps=(Step(text="one"),))) as model:
            ask(model, user("go"), metadata={"user_id": "a"})
            with pytest.raises(urllib.error.HTTPError, match="400"):
                ask(model, user("once more"), metadata={"user_id": "b"})

    with pytest.raises(AssertionError, match=r"turn 0 of run None.*'once more'"):
        too_much()


def test_as_a_program_it_serves_while_a_command_runs_and_ends_like_it(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    script, log = tmp_path / "script.json", tmp_path / "log.jsonl"
    script.write_text('[{"steps": [{"text": "hello"}]}]')
    asks = (
        "import json, sys, urllib.request as u; "
        "b = json.dumps({'messages': [{'role': 'user', 'content': 'go'}], 'tools': [{}]}); "
        f"a = u.urlopen('http://127.0.0.1:{port}/v1/messages', b.encode()).read(); "
        "sys.exit(7 if b'hello' in a else 1)"
    )
    words = ["--port", str(port), "--script", str(script), "--log", str(log)]
    assert main([*words, "--", sys.executable, "-c", asks]) == 7
    [line] = log.read_text().splitlines()
    assert json.loads(line)["body"]["messages"][0]["content"] == "go"


# -- the world


def test_a_world_that_left_a_process_behind_ends_it_and_fails_its_test(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("looping.PATIENCE_S", 0.0)
    made = worlds(tmp_path)
    world = next(made)
    with subprocess.Popen(["sleep", "600"], cwd=world.home, env=world.environ) as left:
        assert world.processes("sleep") == [left.pid]
        with pytest.raises(AssertionError, match="sleep"):
            next(made)
        assert left.wait(60) == -9


def test_a_world_in_which_ralph_left_a_file_lying_about_fails_its_test(tmp_path: Path) -> None:
    made = worlds(tmp_path)
    (next(made).temporary / "ralph-1234").mkdir()
    with pytest.raises(AssertionError, match="ralph"):
        next(made)
