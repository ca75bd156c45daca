"""`scripts/bench replay FOLDER...`: what hooks would have told the model in real sessions.

Each folder is the history of one project: session files of Claude Code or Codex. All moments of
all its sessions run in time order through the real hooks, in a scratch project, with a memory made
only of what came before. For each moment that told something, one JSON line says what was told, in
which request to the model it would have stood, and whether the session used it soon.
"""

from __future__ import annotations

import gc
import json
import os
import shutil
import statistics
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import msgspec

from bench.histories import Moment, PastSession, in_time_order, read_history
from bench.report import Tell, count, parser, teller
from ralph.doors.hooks import call, context, messages, session_end, tool_answers, tool_moments
from ralph.errors import BadInput, RalphError
from ralph.memory.followup import NEXT_ACTIONS, named_actions, was_used
from ralph.memory.ralph import open_ralph
from ralph.records.iteration import ErrorSeen
from ralph.text.tokens import estimate_tokens

# Hooks run as long as they need: a replay is about what they tell, not how fast they are.
_ENVIRONMENT = {
    "RALPH_HOOK_TIMEOUT_S": "60",
    "RALPH_SUMMARIZER_CONVERSATION_ENABLED": "false",
    "RALPH_SUMMARIZER_EXCHANGE_ENABLED": "false",
    "OPENBLAS_NUM_THREADS": "1",
    "NO_COLOR": "1",
    # A person was at the client, so commands may be held.
    "CLAUDE_CODE_SESSION_ATTENDED": "1",
}
# Loaded before the fork: each hook would load them again.
_LOADED = (context, messages, session_end, tool_answers)
_ACTIONS = ("read", "edit", "command")
_SHOWN_CHARS = 600
_COMPARED_CHARS = 60
# In which request a hook's text stands: see docs/guide-moments.md.
_STANDS = {
    "session-start": "the first request, before the prompt",
    "user-prompt-submit": "the request with the prompt",
    "pre-tool-use": "the request after the tool ran",
    "post-tool-use": "the request after the tool ran",
    "post-tool-use-failure": "the request after the tool failed",
}
_DENIED = "the request after the denied call; the tool did not run"


class Told(msgspec.Struct, kw_only=True):
    """What one moment told the model. `used` is null if the text names no command and no file."""

    history: str
    session: str
    n: int
    moment: str
    at: str
    about: str
    tokens: int
    text: str
    request: int
    stands: str
    held: bool = False
    # For a held call: how it ended in the session, "failed" or "passed".
    ended: str = ""
    used: bool | None = None
    lines: list[dict[str, Any]] = []
    next: list[str] = []


class RepeatedFailure(msgspec.Struct, kw_only=True):
    """A failure whose fix was known, and whether the fix was told before the tool ran."""

    history: str
    session: str
    n: int
    at: str
    command: str
    error: str
    fix: str
    before: bool


class Replayed(msgspec.Struct, kw_only=True):
    """The result of one history."""

    history: str
    moments: Counter[str] = msgspec.field(default_factory=Counter)
    told: list[Told] = []
    repeated: list[RepeatedFailure] = []


def main(args: Sequence[str]) -> int:
    """Replay the histories, write JSON lines, and show a summary."""
    options = parser("replay", __doc__)
    options.add_argument("folders", nargs="+", type=Path, help="a history's folder")
    options.add_argument("--out", type=Path, help="write the JSON lines to this file")
    options.add_argument("--first", type=count, help="only the first sessions of each history")
    options.add_argument("--silent", action="store_true", help="do not tell of the progress")
    given = options.parse_args(args)
    tell = (lambda text: None) if given.silent else teller(5.0)
    results = [replay(folder, first=given.first, tell=tell) for folder in given.folders]
    rows = [row for result in results for row in _rows(result)]
    if given.out is not None:
        with given.out.open("w", encoding="utf-8") as file:
            _write(rows, file)
    elif given.json:
        _write(rows, sys.stdout)
    summary = summarized(results)
    if given.out is None and given.json:
        _write([{"row": "summary", **summary}], sys.stdout)
    elif given.json:
        sys.stdout.write(json.dumps(summary, indent=2) + "\n")
    else:
        _show(summary)
    return 0


def replay(folder: Path, *, first: int | None = None, tell: Tell = lambda text: None) -> Replayed:
    """Run a history through the hooks; leave nothing behind."""
    sessions = read_history(folder)[:first]
    result = Replayed(history=folder.name)
    with _scratch() as place:
        gc.freeze()  # a collection in a child would copy everything
        walk = _Replay(place, result)
        moments = in_time_order(sessions)
        for number, (session, moment) in enumerate(moments, 1):
            tell(f"{folder.name}: moment {number} of {len(moments)}")
            walk.take(session, moment)
    return result


class _Place(msgspec.Struct):
    """A scratch project with its own home."""

    project: Path
    home: Path
    transcripts: Path


@contextmanager
def _scratch() -> Iterator[_Place]:
    folder = Path(tempfile.mkdtemp(prefix="ralph-replay-")).resolve()
    place = _Place(folder / "project", folder / "home", folder / "transcripts")
    # A replay sets its whole environment, and puts the old one back.
    before = dict(os.environ)
    try:
        for one in (place.project, place.home, place.transcripts):
            one.mkdir()
        for name in [name for name in os.environ if name.startswith(("RALPH_", "CLAUDE"))]:
            del os.environ[name]
        os.environ.update(_ENVIRONMENT, HOME=str(folder), RALPH_HOME=str(place.home))
        (place.project / ".git").mkdir()
        (place.project / ".ralph" / "db").mkdir(parents=True)
        with open_ralph(place.project) as ralph:
            ralph.conversations.sync()
        yield place
    finally:
        os.environ.clear()
        os.environ.update(before)
        shutil.rmtree(folder, ignore_errors=True)


class _Replay:
    """Runs moments through the hooks, and collects what they tell."""

    def __init__(self, place: _Place, result: Replayed) -> None:
        self._place = place
        self._result = result
        self._files: dict[str, _Transcript] = {}
        self._numbers: Counter[str] = Counter()
        # Texts that the session was told so far, each with the tool call that ran before it stood
        # in a request.
        self._stood: dict[str, list[tuple[str, str]]] = {}

    def take(self, session: PastSession, moment: Moment) -> None:
        """Run one moment."""
        self._numbers[session.name] += 1
        self._result.moments[moment.kind] += 1
        file = self._file(session)
        file.write_up_to(moment.line)
        if moment.event == "post-tool-use-failure":
            self._note_repeated(session, moment)
        if moment.event not in call.EVENTS:
            return
        answer = self._hook(session, moment, file)
        text = answer.get("permissionDecisionReason") or answer.get("additionalContext") or ""
        held = answer.get("permissionDecision") in ("deny", "ask")
        if not text:
            return
        ran = "" if held else _call_of(moment)
        self._stood.setdefault(session.name, []).append((text, ran))
        place = session.moments.index(moment)
        actions = _next_actions(session, place)
        lines = [
            {"line": line, "used": was_used(named, actions) if named else None}
            for line in text.splitlines()
            if (named := named_actions(line)) or line.lstrip().startswith("- ")
        ]
        uses = [line["used"] for line in lines if line["used"] is not None]
        self._result.told.append(
            Told(
                history=self._result.history,
                session=session.name,
                n=self._numbers[session.name],
                moment=moment.kind,
                at=moment.at,
                about=_about(session, place),
                tokens=estimate_tokens(text),
                text=text.replace(str(self._place.project), "PROJECT"),
                request=moment.request + 1,
                stands=_DENIED if held else _STANDS.get(moment.event, moment.event),
                held=held,
                ended=_end_of(session, place) if held else "",
                used=any(uses) if uses else None,
                lines=lines,
                next=[action[:_SHOWN_CHARS] for action in actions],
            )
        )

    def _file(self, session: PastSession) -> _Transcript:
        if session.name not in self._files:
            path = self._place.transcripts / f"{session.session}.jsonl"
            self._files[session.name] = _Transcript(path, session, self._place.project)
        return self._files[session.name]

    def _hook(self, session: PastSession, moment: Moment, file: _Transcript) -> dict[str, Any]:
        fields = {
            "session_id": session.session,
            "transcript_path": str(file.path),
            "cwd": str(self._place.project),
            "hook_event_name": call.EVENTS[moment.event],
            "attended": True,
            **json.loads(file.moved(json.dumps(moment.fields).encode())),
        }
        words = [moment.event, "--project", str(self._place.project), "--agent", session.agent]
        serve = tool_moments.serve_tool if moment.event == "pre-tool-use" else call.serve
        output = _in_a_fork(lambda: serve(words), json.dumps(fields).encode())
        answer: dict[str, Any] = json.loads(output).get("hookSpecificOutput", {}) if output else {}
        return answer

    def _note_repeated(self, session: PastSession, moment: Moment) -> None:
        """Note a failure that memory knows a fix for; a hook may or may not tell it."""
        errors = _errors(moment, str(moment.fields.get("error")), str(self._place.project))
        found = _forked_value(lambda: _known_fix(self._place, [one.message for one in errors]))
        if not found:
            return
        message, fix = found
        stood = self._stood.get(session.name, [])
        before = any(_tells(text, fix) for text, call in stood if call != _call_of(moment))
        self._result.repeated.append(
            RepeatedFailure(
                history=self._result.history,
                session=session.name,
                n=self._numbers[session.name],
                at=moment.at,
                command=moment.command[:_SHOWN_CHARS],
                error=message,
                fix=fix,
                before=before,
            )
        )


def _errors(moment: Moment, output: str, root: str = "/") -> tuple[ErrorSeen, ...]:
    """Return the errors in the output of a tool call."""
    from ralph.clients.claude_code import tool_errors

    tool = str(moment.fields.get("tool_name"))
    return tool_errors(tool, moment.fields.get("tool_input"), output, root=root, cwd=None)


def _known_fix(place: _Place, messages: Sequence[str]) -> tuple[str, str] | None:
    from ralph.memory.lessons import solved

    with open_ralph(place.project) as ralph:
        for message in messages[:3]:
            found = solved(ralph, message)
            if found is not None:
                return message, found.solution
    return None


class _Transcript:
    """A session's file as it grows; the folder it was held in becomes the scratch project."""

    def __init__(self, path: Path, session: PastSession, project: Path) -> None:
        self.path = path
        self._lines = session.lines
        self._written = 0
        self._old = json.dumps(session.cwd)[1:-1].encode()
        self._new = json.dumps(str(project))[1:-1].encode()
        path.touch()

    def write_up_to(self, line: int) -> None:
        """Append the lines before this one."""
        if line > self._written:
            with self.path.open("ab") as file:
                file.writelines(self.moved(one) for one in self._lines[self._written : line])
            self._written = line

    def moved(self, data: bytes) -> bytes:
        """Return the text with the session's folder replaced."""
        return data.replace(self._old, self._new) if len(self._old) > 1 else data


def _next_actions(session: PastSession, place: int) -> list[str]:
    later = (one for one in session.moments[place + 1 :] if one.kind in _ACTIONS)
    found: list[str] = []
    for moment in later:
        found.append(moment.command or moment.file)
        if len(found) == NEXT_ACTIONS:
            break
    return found


def _end_of(session: PastSession, place: int) -> str:
    """Return how the call of a moment ended, and the beginning of its output."""
    name = _call_of(session.moments[place])
    for moment in session.moments[place + 1 :]:
        if _call_of(moment) == name:
            output = moment.fields.get("error") or moment.fields.get("tool_response") or ""
            # A pipe may hide the exit code of a command that failed.
            failed = moment.event == "post-tool-use-failure" or bool(_errors(moment, str(output)))
            return f"{'failed' if failed else 'passed'}: {output}"[:_SHOWN_CHARS]
    return ""


def _call_of(moment: Moment) -> str:
    return str(moment.fields.get("tool_use_id", ""))


def _tells(text: str, fix: str) -> bool:
    """Whether a text has the beginning of a fix, or a command that the fix names."""
    if " ".join(fix.split())[:_COMPARED_CHARS] in " ".join(text.split()):
        return True
    return not set(named_actions(fix).commands).isdisjoint(named_actions(text).commands)


def _about(session: PastSession, place: int) -> str:
    """Return what the moment is about: the prompt, the command or file, or the next prompt."""
    moment = session.moments[place]
    if moment.event == "session-start":
        prompts = [one for one in session.moments[place:] if one.event == "user-prompt-submit"]
        text = " | ".join(str(one.fields.get("prompt"))[:200] for one in prompts[:2])
        return f"{moment.fields.get('source')}: {text}"
    if prompt := moment.fields.get("prompt"):
        return str(prompt)[:_SHOWN_CHARS]
    text = moment.command or moment.file
    if error := moment.fields.get("error"):
        text += f"\n{error}"
    return text[:_SHOWN_CHARS]


def _in_a_fork(work: Callable[[], object], data: bytes = b"") -> bytes:
    """Run something in a child process with this on stdin; return what it wrote to stdout."""
    if sys.platform == "win32":
        raise BadInput("a replay forks its hooks", todo="Run it on Linux or macOS.")
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as written:
        given.write(data)
        given.flush()
        child = os.fork()
        if child == 0:
            code = 1
            try:
                given.seek(0)
                os.dup2(given.fileno(), 0)
                os.dup2(written.fileno(), 1)
                sys.stdin = open(0, closefd=False)  # noqa: SIM115  the child's own
                sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
                work()
                sys.stdout.flush()
                code = 0
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        if status:
            raise RalphError(f"a hook ended with status {status}")
        written.seek(0)
        return written.read()


def _forked_value(work: Callable[[], Any]) -> Any:
    output = _in_a_fork(lambda: sys.stdout.write(json.dumps(work())))
    return json.loads(output) if output else None


# -- The summary.


def summarized(results: Sequence[Replayed]) -> dict[str, Any]:
    """Return the counts of all histories together."""
    told = [one for result in results for one in result.told]
    repeated = [one for result in results for one in result.repeated]
    moments: Counter[str] = sum((result.moments for result in results), Counter())
    sessions = {(one.history, one.session) for one in told}
    by_moment: dict[str, Any] = {}
    for name in sorted({one.moment for one in told}):
        mine = [one for one in told if one.moment == name]
        tokens = [one.tokens for one in mine]
        uses = [line["used"] for one in mine for line in one.lines if line["used"] is not None]
        by_moment[name] = {
            "moments": moments[name],
            "told": len(mine),
            "lines": sum(len(one.lines) for one in mine),
            "tokens": sum(tokens),
            "tokens_median": int(statistics.median(tokens)),
            "followed_up": len(uses),
            "used": sum(uses),
        }
    return {
        "histories": len(results),
        "sessions_told": len(sessions),
        "moments": dict(moments),
        "by_moment": by_moment,
        "repeated_failures": len(repeated),
        "fix_before_the_tool_ran": sum(one.before for one in repeated),
        "held": sum(one.held for one in told),
        "held_that_passed": sum(one.held and one.ended.startswith("passed") for one in told),
        "commands": moments["command"],
    }


def _show(summary: dict[str, Any]) -> None:
    write = sys.stdout.write
    head = ("moment", "moments", "told", "lines", "tokens", "median", "used/named")
    write(f"{head[0]:<24}" + "".join(f"{one:>11}" for one in head[1:]) + "\n")
    for name, row in summary["by_moment"].items():
        cells = [row[key] for key in ("moments", "told", "lines", "tokens", "tokens_median")]
        used = f"{row['used']}/{row['followed_up']}"
        write(f"{name:<24}" + "".join(f"{cell:>11}" for cell in [*cells, used]) + "\n")
    write(
        f"repeated failures with a known fix: {summary['repeated_failures']}, told before the tool"
        f" ran: {summary['fix_before_the_tool_ran']}; held: {summary['held']} of"
        f" {summary['commands']} commands, of which {summary['held_that_passed']} passed\n"
    )


def _rows(result: Replayed) -> Iterator[dict[str, Any]]:
    for one in result.told:
        yield {"row": "told", **msgspec.to_builtins(one)}
    for failure in result.repeated:
        yield {"row": "repeated", **msgspec.to_builtins(failure)}


def _write(rows: Sequence[dict[str, Any]], file: TextIO) -> None:
    for row in rows:
        file.write(json.dumps(row, ensure_ascii=False) + "\n")
