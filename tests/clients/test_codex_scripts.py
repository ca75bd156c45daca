"""The scripts in which Codex calls its tools: which calls are in them, and what each gave."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralph.clients.codex_outputs import ScriptResult, results_in, script_output
from ralph.clients.codex_scripts import calls_in


def commands(script: str) -> list[str]:
    return [call.given.get("cmd", "") for call in calls_in(script)]


def test_a_call_is_read_with_its_arguments() -> None:
    [call] = calls_in(
        'const r = await tools.exec_command({\n  cmd: "rg -n \\"a\\\\.b\\" src",\n'
        '  "workdir": "/home/dev/shop", yield_time_ms: 10000,\n});\ntext(r.output);\n'
    )
    assert call.tool == "exec_command"
    assert call.given == {
        "cmd": 'rg -n "a\\.b" src',
        "workdir": "/home/dev/shop",
        "yield_time_ms": 10000,
    }


def test_calls_at_the_same_time_and_in_a_row_are_all_read() -> None:
    script = (
        'const a = await tools.exec_command({cmd: "make"});\n'
        "const [b, c] = await Promise.all([\n"
        "  tools.exec_command({cmd: 'make test'}), // slow\n"
        "  tools.web__run({query: 'makefile'}),\n]);"
    )
    assert [call.tool for call in calls_in(script)] == ["exec_command", "exec_command", "web__run"]
    assert commands(script) == ["make", "make test", ""]


def test_variables_and_templates_are_filled_in() -> None:
    script = (
        'const folder = "src/app";\n'
        "const patch = `*** Begin Patch\n*** Delete File: ${folder}/old.py\n*** End Patch`;\n"
        "const cmd = ['ls', folder].join(' ');\n"
        "await tools.apply_patch(patch);\n"
        "await tools.exec_command({cmd});\n"
        "await tools.exec_command({cmd: `echo ${when}` + ' done'});"
    )
    patch, listed, unknown = calls_in(script)
    assert patch.text == "*** Begin Patch\n*** Delete File: src/app/old.py\n*** End Patch"
    assert listed.given == {"cmd": "ls src/app"}
    assert unknown.given == {"cmd": "echo ${when} done"}


@pytest.mark.parametrize(
    "script",
    [
        'const ns = ["a", "b"];\nawait Promise.all(ns.map(n => tools.exec_command({cmd: n})));',
        'for (const cmd of ["a", "b"]) { text(await tools.exec_command({cmd})); }',
        'const all = [["one", "a"], ["two", "b"]];\n'
        "for (const [name, cmd] of all) {\n  const r = await tools.exec_command({cmd});\n}",
        'const all = [{name: 1, cmd: "a"}, {name: 2, cmd: "b"}];\n'
        "all.map(async ({name, cmd}) => await tools.exec_command({cmd}));",
        '["a", "b"].forEach((c, i) => tools.exec_command({cmd: `${c}`}));',
        'for (const n of ["a"]) await tools.exec_command({cmd: n});\n'
        'await tools.exec_command({cmd: "b"});',
    ],
)
def test_a_loop_over_a_list_makes_a_call_for_each_value(script: str) -> None:
    assert commands(script) == ["a", "b"]


def test_what_only_looks_like_a_call_is_none() -> None:
    script = (
        '// tools.exec_command({cmd: "a"})\n/* tools.exec_command({cmd: "b"}) */\n'
        'const hits = ALL_TOOLS.filter(x => /tools.exec_command\\("/.test(x.name));\n'
        'text("tools.exec_command({cmd: 1})");'
    )
    assert calls_in(script) == []


def test_a_raw_template_keeps_its_backslashes() -> None:
    assert commands(r"tools.exec_command({cmd: String.raw`a\nb`, env: {a: [1]}});") == [r"a\nb"]


@pytest.mark.parametrize("part", ["const a=a+a;", "const a=`${a}${a}`;", "for(const a of l){"])
def test_no_script_makes_more_than_it_may(part: str) -> None:
    script = f'const a="xxxxxxxx"; const l=[1,2,3,4,5,6,7,8,9]; {part * 3000} tools.x({{cmd: a}});'
    began = time.process_time()
    for call in calls_in(script):
        assert len(str(call.given.get("cmd"))) < 1_000_000
    assert time.process_time() - began < 3


def test_a_script_that_still_runs_names_its_cell() -> None:
    running = script_output("Script running with cell ID 24\nWall time 10.0 seconds\nOutput:\n")
    assert (running.cell, running.texts) == ("24", ())


def test_an_output_has_no_words_of_the_client() -> None:
    printed = script_output(
        [
            {"type": "input_text", "text": "Script completed\nWall time 0.2 seconds\nOutput:\n"},
            {"type": "input_text", "text": ""},
            {
                "type": "input_text",
                "text": "Warning: truncated output (original token count: 9)\n"
                "Total output lines: 7\n\nthe text",
            },
        ]
    )
    assert printed.texts == ("", "the text")
    assert not printed.failed


def test_each_command_gets_its_result() -> None:
    one = '{"chunk_id":"1","exit_code":2,"output":"no rule"}'
    two = '{\n  "session_id": 77,\n  "output": ""\n}'
    assert results_in("text(r)", [one], 1) == [ScriptResult("no rule", 2)]
    assert results_in("text(r)", [one, two], 2) == [
        ScriptResult("no rule", 2),
        ScriptResult("", None, "77"),
    ]
    cut = '{"exit_code":0,"output":"Warning: truncated output (original token count: 9)\\n\\nab"}'
    assert results_in("text(r)", [cut], 1) == [ScriptResult("ab", 0)]
    assert results_in("text(r)", [f"[{one}, {one}]"], 2) == [ScriptResult("no rule", 2)] * 2
    assert results_in("text(a.output); text(b)", ["all well", one], 2) == [
        ScriptResult("all well"),
        ScriptResult("no rule", 2),
    ]
    says = "text(`exit=${r.exit_code}`)"
    assert results_in(says, ["no rule", "exit=2"], 1) == [ScriptResult("no rule\nexit=2", 2)]
    assert results_in("text(r.output)", ["exit=2"], 1) == [ScriptResult("exit=2")]
    assert results_in("text(r.output)", ["a and b, cut together"], 2) is None
    assert results_in("text(r.output)", [], 2) is None
    assert results_in("", [], 1) is None


@pytest.mark.parametrize(
    "part",
    (
        '[ {a: ( `${ `${a}` (/[ /* /a " "\\ "\\\n\\ \'a\\ const\xa0a=['
        " for(const\xa0a\xa0of\xa0[1,2]) [1,2].map(a=> tools.x({cmd:"
        ' tools.x( x\xa0 =>( "a"+ $$ ].map(a `\\ (/[] [0,const\xa0a=['
    ).split(" "),
)
def test_no_script_takes_long(part: str) -> None:
    script = part.replace("\xa0", " ") * (70_000 // len(part))
    began = time.process_time()
    calls_in(script)
    assert time.process_time() - began < 3


_RESULT = '{"exit_code": 1, "output": "x"}'


@given(st.lists(st.sampled_from(["", "{}", "exit=1", _RESULT, f"[{_RESULT}]"])), st.integers(0, 4))
def test_it_reads_whatever_a_script_printed(printed: list[str], wanted: int) -> None:
    found = results_in("text(r.exit_code)", printed, wanted)
    assert found is None or len(found) == wanted


@given(st.text(alphabet="abt[](){}`$'\"\\/,;:.+=>* \nconstfrmpl", max_size=200))
def test_it_reads_whatever_a_script_is(script: str) -> None:
    for call in calls_in(f"tools.x({script}); const a = {script}; a.map(b => tools.y({script}))"):
        assert isinstance(call.tool, str)
