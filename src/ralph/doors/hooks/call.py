"""One hook call: read its JSON, handle the event in time, print the answer."""

from __future__ import annotations

import _thread
import json
import os
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ralph import disk
from ralph.clients import BY_AGENT
from ralph.current_run import current_run, restore_run
from ralph.memory.activity import note_activity, read_activity, work_is_pending
from ralph.memory.servers import server_folders
from ralph.state_folders import hooks_folder

if TYPE_CHECKING:
    from ralph.clients import Client
    from ralph.doors.hooks.sessions import Sessions
    from ralph.memory.project import Project

EVENTS = {
    "session-start": "SessionStart",
    "user-prompt-submit": "UserPromptSubmit",
    "pre-tool-use": "PreToolUse",
    "post-tool-use-failure": "PostToolUseFailure",
    "stop": "Stop",
    "stop-failure": "StopFailure",
    "session-end": "SessionEnd",
    "pre-compact": "PreCompact",
}
CLAUDE = "claude"
_BY_CLIENT_NAME = {client: ours for ours, client in EVENTS.items()}
USAGE = f"""\
Usage: ralph hook EVENT [--agent NAME] < JSON

One hook of Claude Code: {", ".join(EVENTS)}.
Its own names (SessionStart, ...) are understood too. With --agent NAME, of another client that
`ralph hooks install --agent NAME` was run for. It always ends with 0; what went wrong stands
in cache/hooks/<project>/hooks.log in Ralph's home.
`ralph hooks install` puts these calls into the client's settings.
"""
# The events that can add text for the model.
_ANSWERED_EVENTS = ("session-start", "user-prompt-submit", "post-tool-use-failure")
# How long an event may take, unless the setting `hook_timeout_s` says otherwise. Loading the
# settings may take as long, and at least `_USUAL_S`.
_USUAL_S = 2.0
LIMITS_S = {"stop": 10.0, "stop-failure": 10.0, "pre-compact": 5.0, "session-end": 1.2}
_LONGEST_FIRST_S = 60.0
# The events that end an exchange.
_OVER = ("stop", "stop-failure", "session-end")
_MOST_INPUT_BYTES = 16 * 1024 * 1024
# The longest text that the client shows the model in full; it cuts a longer one.
MOST_CHARS = 10_000


LOG_NAME = "hooks.log"
# We keep two log files of this size: the current one and the one before it.
_MOST_LOG_BYTES = 500_000
_LONGEST_NOTE = 1000
_TICK_S = 0.02


class HookTimer:
    """Exits the process with 0 when its time is up, unless the timer is stopped before.

    Exiting anywhere loses nothing: journals and index are written all or nothing, and a later hook
    captures a session that this one did not.
    """

    def __init__(self, limit_s: float, on_end: Callable[[float], None]) -> None:
        self._began = time.monotonic()
        self.limit_s = limit_s  # in total, counted from the start
        self._on_end = on_end
        self._off = False
        # Not `threading`, which takes a millisecond to load. And not a signal: SQLite and locks
        # wait in C, where a signal handler would not run.
        _thread.start_new_thread(self._wait, ())

    def left_s(self) -> float:
        """Return how much time is left."""
        return max(0.0, self._began + self.limit_s - time.monotonic())

    def stop(self) -> None:
        """Stop the timer."""
        self._off = True

    def _wait(self) -> None:
        while not self._off and (left_s := self.left_s()):
            time.sleep(min(left_s, _TICK_S))
        if not self._off:
            self._on_end(self.limit_s)
            os._exit(0)


class HookCall:
    """A hook's event and input, its project, and its timer."""

    def __init__(
        self,
        event: str,
        event_input: dict[str, Any],
        root: str,
        home: str,
        watch: HookTimer,
        agent: str = CLAUDE,
    ) -> None:
        self.event = event
        self.agent = agent
        self.event_input = event_input
        self.root = root
        self.home = home
        self.watch = watch
        # The line that the user sees, and whether the event's main work is done.
        self.message = ""
        self.done = False
        # Whether a tool call is held: "deny" or "ask". Then the text is the reason.
        self.decision = ""
        # Whether the memory of this folder is on a server.
        self.remote = os.path.realpath(root) in server_folders(home)
        # The length of the transcript when this event ended its exchange.
        self.over_at: int | None = None
        # Between calls, hooks keep their data on this project in the user's home: it may contain
        # pieces of conversations, and the project may be somebody else's, or read-only.
        self.own_folder = hooks_folder(root, home)

    @property
    def client(self) -> Client:
        """The client's row in the table of clients."""
        return BY_AGENT[self.agent]

    def text(self, name: str) -> str:
        """Return a field of the input, or "" if it is not a text."""
        value = self.event_input.get(name)
        return value if isinstance(value, str) else ""

    @property
    def session(self) -> str:
        """The client's id for the session; if missing, the transcript's name, which is the same."""
        stem, _ = os.path.splitext(os.path.basename(self.transcript))
        return self.text("session_id").strip() or stem

    @property
    def transcript(self) -> str:
        """The file the client writes the session to."""
        path = self.text("transcript_path")
        if not self.client.writes_transcript:
            return os.path.join(self.spool, f"{self.text('session_id')}.jsonl")
        return "" if "\0" in path else os.path.expanduser(path)

    @property
    def spool(self) -> str:
        """The folder where lines of clients without a transcript wait to be captured."""
        return os.path.join(self.own_folder, "spool")

    @property
    def sessions(self) -> Sessions:
        """The notes on this project's running sessions."""
        from ralph.doors.hooks.sessions import Sessions

        return Sessions(self.own_folder, self.fault, self.agent)

    @property
    def source(self) -> str:
        """The client's name in the ids of its conversations."""
        return self.client.source

    def note_shown(self, shown: list[tuple[str, float | None]], *, after: str = "") -> None:
        """Log which records the model is shown, with scores; `after` marks the failed command."""
        pairs = [(name, score and round(score, 3)) for name, score in shown]
        about = {"agent": self.agent, "after": after}
        note_activity(self.own_folder, self.event, self.session, shown=pairs, **about)

    def note(self, what: str, where: str = "") -> None:
        """Write one line to the log."""
        note(log_folders(self.root, self.home), self.event, what, where)

    def fault(self, error: BaseException, where: str = "") -> None:
        """Write an exception to the log, as one line."""
        fault(log_folders(self.root, self.home), self.event, error, where)


# -- one event


def serve(argv: list[str], data: bytes | None = None) -> int:
    """Handle one event and return 0. Whatever goes wrong becomes a line in the log.

    `data` is the input, if it was read already.
    """
    if "--help" in argv or "-h" in argv:
        sys.stdout.write(USAGE)
        return 0
    if data is None and sys.stdin is not None and sys.stdin.isatty():
        sys.stderr.write(USAGE)
        return 0
    project, agent, words = _words(argv)
    home = disk.home()
    event = " ".join(words[:1]) or "hook"
    root = ""
    call: HookCall | None = None

    def late(limit_s: float) -> None:
        known = root or find_root(_starts(project, {}), home)
        if known and not (call and call.done):
            session = call.session if call else ""
            note_activity(hooks_folder(known, home), event, session, late_s=limit_s)
        if known:
            what = f"ended after {limit_s:g} s, with its work undone"
            note(log_folders(known, home), event, what, known)

    watch = HookTimer(_USUAL_S, late)
    restore_run(os.environ)
    try:
        event_input, trouble = _read(read_stdin() if data is None else data)
        root = find_root(_starts(project, event_input), home)
        if root:
            disk.protect(home)
            event = _event(event, event_input) or event
            plain = None
            if agent in BY_AGENT:
                plain = BY_AGENT[agent].hook_input(event, event_input)
            if plain is None:
                return 0
            event_input = plain
            call = HookCall(event, event_input, root, home, watch, agent)
            watch.limit_s = _first_limit_s(event)
            if trouble:
                call.note(trouble, "stdin")
            elif event not in EVENTS:
                call.note(f"there is no event {' '.join(words)[:80]!r}", "argv")
            else:
                _say(call, _answer(call))
                call.done = True
                _catch_up(call)
                if call.event == "session-start":
                    start_due_worker(call)
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001  a hook never breaks its client
        if root:
            fault(log_folders(root, home), event, error, root)
    finally:
        watch.stop()
    return 0


def limit_s(event: str) -> float:
    """Return how long the event may take by default."""
    return LIMITS_S.get(event, _USUAL_S)


def _first_limit_s(event: str) -> float:
    """Return how long loading the settings may take; the environment can only allow more."""
    usual_s = max(_USUAL_S, limit_s(event))
    try:
        given_s = float(os.environ.get("RALPH_HOOK_TIMEOUT_S", "0"))
    except ValueError:
        return usual_s  # loading the settings reports it
    return max(usual_s, min(given_s, _LONGEST_FIRST_S))


def _event(word: str, event_input: dict[str, Any]) -> str:
    """Return our name for the event; without an argument, for the event in the input."""
    if word == "hook":
        word = str(event_input.get("hook_event_name"))
    return _BY_CLIENT_NAME.get(word, word if word in EVENTS else "")


def _answer(call: HookCall) -> str:
    """Handle the event; return the text for the model, or ""."""
    if call.event == "pre-tool-use":
        from ralph.doors.hooks.tool_answers import answer_tool

        return answer_tool(call)
    run = current_run()
    if run is None:
        _note_session(call)
        if call.event in _ANSWERED_EVENTS and is_paused(call):
            return ""
    if call.event == "post-tool-use-failure" and (run is None or run.feature):
        from ralph.doors.hooks.context import answer_failure

        return answer_failure(call, run)
    if run is not None:
        return ""  # the loop makes its own prompts and records
    if call.event == "session-start":
        from ralph.doors.hooks.answers import answer_start

        return answer_start(call)
    if call.event == "user-prompt-submit":
        from ralph.doors.hooks.answers import answer_prompt

        return answer_prompt(call)
    from ralph.doors.hooks.session_end import keep

    keep(call)
    return ""


def _note_session(call: HookCall) -> None:
    """Note the session's progress before loading anything, because this hook may be killed."""
    session = call.session
    transcript = call.transcript
    lines = None if call.client.writes_transcript else call.event_input.get("lines")
    if lines:
        from ralph.doors.hooks.sessions import append

        disk.make_folder(call.spool)
        append(transcript, b"".join(json.dumps(one).encode() + b"\n" for one in lines))
    if call.event == "session-start":
        call.sessions.begin(session, transcript, remembers=call.text("source") == "resume")
    elif call.event == "user-prompt-submit":
        call.sessions.note_prompt(session, transcript)
    elif call.event in _OVER:
        call.over_at = call.sessions.over(session, transcript, call.event)


def _catch_up(call: HookCall) -> None:
    """Capture what earlier hooks did not finish; runs after the answer, to not delay it."""
    if call.event not in _ANSWERED_EVENTS[1:] or os.environ.get("RALPH_FEATURE"):
        return  # SessionStart has done it before its answer, the others with their own capture
    if due := call.sessions.due(call.session, waited_for=True):
        from ralph.doors.hooks.session_end import recover

        recover(call, due)


def start_due_worker(call: HookCall) -> bool:
    """Start a worker if something was saved since the last one; return whether it started."""
    if current_run() or call.remote or is_paused(call):
        return False  # if memory is on a server, summaries are made there
    if not work_is_pending(read_activity(call.own_folder)):
        return False
    from ralph.doors.hooks.context import settings_of
    from ralph.doors.hooks.worker import start_worker

    return start_worker(call, settings_of(call))


def is_paused(call: HookCall) -> bool:
    """Whether memory is paused here."""
    from ralph.memory.pausing import in_force

    def project() -> Project:
        from pathlib import Path

        from ralph.memory.project import Project

        return Project(Path(call.root), Path(call.home))

    def conversation() -> str:
        from ralph.records.conversation import conversation_id

        return conversation_id(call.source, call.session)

    folder = os.environ.get("CLAUDE_PROJECT_DIR") or call.text("cwd")
    return in_force(call.home, project, conversation, folder) is not None


def _say(call: HookCall, text: str) -> None:
    """Print the text for the model and the line for the user."""
    answer: dict[str, Any] = {}
    if call.message and call.client.shows_messages:
        answer["systemMessage"] = call.message
    if len(text) > MOST_CHARS:
        text = text[: MOST_CHARS - 1] + "\u2026"
    name = call.text("hook_event_name") or EVENTS[call.event]
    if call.decision:
        answer["hookSpecificOutput"] = {
            "hookEventName": name,
            "permissionDecision": call.decision,
            "permissionDecisionReason": text,
        }
    elif text:
        answer["hookSpecificOutput"] = {"hookEventName": name, "additionalContext": text}
    if not answer:
        return
    data = json.dumps(answer, ensure_ascii=False) + "\n"
    # If stdout is closed, its descriptor may belong to another file by now.
    if sys.stdout is not None:
        sys.stdout.flush()
        rest = data.encode("utf-8", "replace")
        while rest:
            rest = rest[os.write(sys.stdout.fileno(), rest) :]


def _words(argv: list[str]) -> tuple[str, str, list[str]]:
    """Return the values of --project and --agent, and the other words."""
    given = {"--project": "", "--agent": CLAUDE}
    words = list[str]()
    rest = iter(argv)
    for word in rest:
        name, apart, value = word.partition("=")
        if name in given:
            given[name] = value if apart else next(rest, "")
        else:
            words.append(word)
    return given["--project"], given["--agent"], words


def read_stdin() -> bytes | None:
    """Return everything on stdin, or None if it is more than any event needs."""
    if sys.stdin is None:  # closed: its descriptor may belong to another file by now
        return b""
    parts = list[bytes]()
    size = 0
    fd = sys.stdin.fileno()
    while part := os.read(fd, 1 << 16):
        size += len(part)
        # Always read to the end: a client must not fail because nobody reads.
        if size <= _MOST_INPUT_BYTES:
            parts.append(part)
    return None if size > _MOST_INPUT_BYTES else b"".join(parts)


def _read(data: bytes | None) -> tuple[dict[str, Any], str]:
    """Parse the input; return it, and what is wrong with it."""
    if data is None:
        return {}, f"the input is longer than {_MOST_INPUT_BYTES} bytes"
    if not data.strip():
        return {}, "there is no input"
    try:
        event_input = json.loads(data)
    except (ValueError, RecursionError) as error:
        return {}, f"the input is not JSON ({error})"
    if not isinstance(event_input, dict):
        return {}, f"the input is not a JSON object but {type(event_input).__name__}"
    return event_input, ""


def _starts(project: str, event_input: dict[str, Any]) -> list[Any]:
    """Return where to look for the project: the named folder, or else that of the session.

    The session's folder comes before the input's `cwd`, because it stays the same when the agent
    changes directory. In a run it is always the run's project.
    """
    if (run := current_run()) is not None and run.project:
        return [run.project]
    if project:
        return [project]
    return [os.environ.get("CLAUDE_PROJECT_DIR", ""), event_input.get("cwd") or "."]


def find_root(starts: list[Any], home: str) -> str:
    """Return the project's folder, above the first of `starts` that is in a project, or "".

    Gives the same answer as `find_project`, but loads less. A folder whose memory is on a server
    counts as a project. Without a project, it is the repository or the folder itself, if the user
    wants hooks in every folder.
    """
    own = os.path.realpath(home)
    bound = server_folders(home)
    given = [one for one in starts if isinstance(one, str) and one and "\0" not in one]
    folders = [os.path.realpath(os.path.expanduser(one)) for one in given]
    for start in folders:
        folder = start
        below = ""
        while folder != below:
            inside = os.path.join(folder, disk.FOLDER)
            if os.path.isdir(os.path.join(inside, "db")) and os.path.realpath(inside) != own:
                return folder if _is_safe(inside) else ""
            if folder in bound:
                return folder
            folder, below = os.path.dirname(folder), folder
    from ralph.memory.pausing import paused_folders

    plain = next((one for one in folders if os.path.isdir(one)), "")
    if not plain or paused_folders(home) is None:
        return ""

    return disk.find_repository(plain) or plain


def _is_safe(inside: str) -> bool:
    """Whether the project's folder is no link, and ours or trusted. Commands explain a refusal."""
    try:
        if not disk.is_folder(os.path.join(inside, "db")):
            return False
        if disk.is_own(inside):
            return True
    except OSError:
        return False
    from pathlib import Path

    from ralph.memory.project import Project

    return Project(Path(inside).parent, Path(disk.home())).is_usable


def log_folders(root: str, home: str) -> list[str]:
    """Return the folders where the log may be, best first."""
    return [hooks_folder(root, home), os.path.join(home, "cache")]


# -- the log: one line per problem, in a file of limited size


def note(folders: list[str], event: str, what: str, where: str = "") -> None:
    """Write a line to the log, in the first folder where that works; if none does, ignore it."""
    from ralph.text.redact import redact  # most calls have nothing to log

    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    text = redact(" ".join(f"{what} ({where})".split() if where else what.split())[:_LONGEST_NOTE])
    plain = "".join(c if c.isprintable() else " " for c in text)  # people read it in a terminal
    _log(folders, f"{at} {event} {plain}\n")


def fault(folders: list[str], event: str, error: BaseException, where: str = "") -> None:
    """Write an exception to the log; RALPH_DEBUG=1 adds the traceback."""
    # Ralph's own errors need no type name. Check for one without loading `ralph.errors`.
    errors = sys.modules.get("ralph.errors")
    own = errors is not None and isinstance(error, errors.RalphError)
    note(folders, event, str(error) if own else f"{type(error).__name__}: {error}", where)
    if os.environ.get("RALPH_DEBUG", "0") not in ("", "0"):
        import traceback

        from ralph.text.redact import redact

        _log(folders, redact("".join(traceback.format_exception(error))))


def _log(folders: list[str], text: str) -> None:
    for folder in folders:
        try:
            data = text.encode("utf-8", "replace")
            return disk.log(os.path.join(folder, LOG_NAME), data, _MOST_LOG_BYTES)
        except OSError:
            continue
