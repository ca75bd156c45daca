"""A person's scratch home, a stranger's clone in it, and what must hold whatever is run there.

The home has files that Ralph must leave alone, each with a word that occurs nowhere else, and a
project of the person's own with private memory. `Ground.harm` compares home, words and answers
before and after: what was written outside, what was told, what hung, crashed or took memory.
`RALPH_HOSTILE_ROUNDS=20` tries more; `RALPH_HOSTILE_SEED` chooses what is tried.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import select
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

if sys.platform == "win32":
    pytest.skip("links, pipes and forks as POSIX has them", allow_module_level=True)

from forking import ForkServer

ROUNDS = int(os.environ.get("RALPH_HOSTILE_ROUNDS", "1"))
SEED = int(os.environ.get("RALPH_HOSTILE_SEED", "0"))
# Far beyond what any command needs on the slowest machine: whoever is still there then hangs.
PATIENCE_S = 45.0
# What a command may take in all; loading Ralph and its embedder takes about 110 MB of it.
MOST_BYTES = 400 * 1024 * 1024
_READ_BYTES = 1024 * 1024

# Words that occur in one place each, and may never be seen in another.
BASHRC, SSH, THESIS, ENVIRON = "walrusbashrc", "walrusssh", "walrusthesis", "walrusenviron"
TALK, JOURNAL, LESSON, PLAN, DOCUMENT = (
    "walrustalk",
    "walrusjournal",
    "walruslesson",
    "walrusplan",
    "walrusdocument",
)
_COMMON = b"walrus"
WORDS = (BASHRC, SSH, THESIS, ENVIRON, TALK, JOURNAL, LESSON, PLAN, DOCUMENT)
ASKED = "zebra quokka harvest"
# Records of every kind hold the words above; these tell the exchange from the others.
QUESTION = f"What about the {ASKED}, ocelots and tapirs?"

FEATURES = """\
version: 1
features:
- name: auth
  description: People sign in with a name and a password.
  learnings:
  - text: The cookie must be set before the redirect.
    source: human
"""
TASKS = """\
version: 1
tasks:
- id: 1
  feature: auth
  title: Add the login form
  status: pending
  discipline: backend
"""
DISCIPLINES = """\
version: 1
disciplines:
- name: backend
  system_prompt: You write servers.
"""
CLAIM = "11111111-2222-4333-8444-555555555555"


class Ran(NamedTuple):
    """How a run of the command line ended, and what it said."""

    words: tuple[str, ...]
    code: int
    out: str
    err: str
    peak_bytes: int = 0
    hung: bool = False

    @property
    def said(self) -> str:
        """Everything it said."""
        return self.out + self.err

    @property
    def json(self) -> Any:
        """What it printed, read back."""
        assert self.code == 0, self
        return json.loads(self.out)

    def faults(self) -> list[str]:
        """What no run may do, whatever it meets."""
        name = " ".join(self.words)[:80]
        if self.hung:
            return [f"{name}: still running after {PATIENCE_S:g} s"]
        found = []
        if self.code not in (0, 1, 2):
            found.append(f"{name}: ended with {self.code}")
        if self.peak_bytes > MOST_BYTES:
            found.append(f"{name}: took {self.peak_bytes >> 20} MiB")
        # Tracebacks of others are remembered, and told, on stdout.
        if "Traceback (most recent" in self.err:
            found.append(f"{name}: {_around(self.err, 'Traceback (most recent')}")
        if "internal error" in self.said:
            found.append(f"{name}: {_around(self.said, 'internal error')}")
        if self.words[:1] == ("hook",):
            if self.code or self.err:
                found.append(f"{name}: a hook ended with {self.code} and said {self.err[:200]!r}")
            if self.out and not _is_hook_answer(self.out):
                found.append(f"{name}: no client can read {self.out[:200]!r}")
        elif self.code == 1 and not self.out.strip() and not _is_refusal(self.err):
            found.append(f"{name}: refused with {self.err[:300]!r}")
        return found


def _around(text: str, what: str) -> str:
    at = text.index(what)
    return " / ".join(text[at : at + 2000].split("\n"))[-300:]


def _is_hook_answer(text: str) -> bool:
    try:
        answer = json.loads(text)
        told = answer.pop("hookSpecificOutput", {"additionalContext": ""})["additionalContext"]
        line = answer.pop("systemMessage", "")
    except (ValueError, KeyError, TypeError, AttributeError):
        return False
    return isinstance(told, str) and isinstance(line, str) and not answer


def _is_refusal(text: str) -> bool:
    """Whether the last line says what is wrong, in a line that a person can read."""
    lines = text.splitlines()
    return bool(lines) and lines[-1].startswith("ralph: ")


State = tuple[Any, ...]


def tree(root: Path, *, but: Sequence[Path] = ()) -> dict[str, State]:
    """Everything below a folder without following links: kinds, modes, times, links, bytes."""
    found: dict[str, State] = {}
    left = set(map(str, but))

    def look(path: str) -> None:
        if path in left:
            return
        seen = os.lstat(path)
        # A folder that holds something we leave out changes with it.
        fixed = not any(one.startswith(path + os.sep) for one in left)
        mode = seen.st_mode
        state: State = (stat.S_IFMT(mode), stat.S_IMODE(mode), seen.st_uid)
        state += (seen.st_mtime_ns,) if fixed else ()
        if stat.S_ISLNK(mode):
            state += (os.readlink(path),)  # noqa: PTH115 - as it stands
        elif stat.S_ISREG(mode):
            state += (seen.st_size, _digest(path) if seen.st_size <= _READ_BYTES else None)
        found[os.path.relpath(path, root)] = state
        if stat.S_ISDIR(mode):
            for name in sorted(os.listdir(path)):  # noqa: PTH208 - names may be anything
                look(os.path.join(path, name))  # noqa: PTH118

    if os.path.lexists(root):
        look(str(root))
    return found


def _digest(path: str) -> str:
    with open(path, "rb") as file:  # noqa: PTH123
        return hashlib.sha256(file.read()).hexdigest()


def differences(before: Mapping[str, State], after: Mapping[str, State]) -> list[str]:
    """What was made, deleted or changed, by path."""
    found = [f"{path} was deleted" for path in before if path not in after]
    found += [f"{path} was made" for path in after if path not in before]
    return found + [
        f"{path} was changed" for path in before if path in after and before[path] != after[path]
    ]


class Before(NamedTuple):
    """How things stood before an attack."""

    outside: dict[str, State]
    cache: dict[str, State]
    private: dict[str, State]
    holders: dict[str, set[str]]
    runs: int


class Ground:
    """The scratch home: `own` is the person's project, `evil` the stranger's clone."""

    def __init__(self, base: Path, server: ForkServer) -> None:
        self.home = base / "home"
        self.own = self.home / "src" / "own"
        self.evil = self.home / "src" / "evil"
        self.memory = self.home / ".ralph"
        self.transcript = self.home / ".claude" / "projects" / "evil" / "session-1.jsonl"
        self.runs: list[Ran] = []
        self._server = server
        self._pristine = base / "pristine"
        self._scratch = base / "scratch"
        self._scratch.mkdir(parents=True)
        self._build()
        shutil.copytree(self.home, self._pristine, symlinks=True)
        self._untouched = self.outside()

    # What there is

    def _build(self) -> None:
        for path, text in {
            ".bashrc": f"# {BASHRC}\n",
            ".profile": "# nothing\n",
            ".ssh/id": f"{SSH}\n",
            "Documents/thesis/thesis.tex": f"{THESIS}, years of work\n",
            "Documents/letter.txt": "Dear all\n",
        }.items():
            (self.home / path).parent.mkdir(parents=True, exist_ok=True)
            (self.home / path).write_text(text, encoding="utf-8")
        (self.home / ".ssh").chmod(0o700)
        self._build_own()
        self._build_evil()
        write_transcript(self.transcript, self.evil)

    def _build_own(self) -> None:
        root = self.own
        (root / "docs").mkdir(parents=True)
        (root / "docs" / "notes.md").write_text(f"# Notes\n\n{ASKED} {DOCUMENT}\n")
        git(root, "init", "-q", "--template=")
        self.well("init", cwd=root)
        git(root, "add", "-A")
        git(root, "commit", "-q", "-m", "The person's own")
        said = {"user": QUESTION, "assistant": f"It is {TALK}."}
        talk = {"version": 1, "conversations": [{"title": "z", "exchanges": [said]}]}
        self.well("conversations", "import", "-", stdin=json.dumps(talk), cwd=root)
        done = {"summary": f"{ASKED} {JOURNAL}", "outcome": "failure", "task_title": ASKED}
        self.well("record", "--feature", "auth", "-", stdin=json.dumps(done), cwd=root)
        learned = ["--type", "failure_solution", "--failure-description", f"{ASKED} {LESSON}"]
        learned += ["--error-message", f"{LESSON} refused", "--solution", f"do {LESSON}"]
        self.well("knowledge", "capture", *learned, cwd=root)
        self.well("feature", "add", "auth", "--description", f"{ASKED} {PLAN}", cwd=root)
        self.well("task", "add", f"{ASKED} {PLAN}", "--feature", "auth", cwd=root)
        self.well("conversations", "add-document", "docs/notes.md", cwd=root)

    def _build_evil(self) -> None:
        root = self.evil
        root.mkdir(parents=True)
        git(root, "init", "-q", "--template=")
        (root / "README.md").write_text("A useful library\n")
        self.well("init", cwd=root)
        db = root / ".ralph" / "db"
        (db / "features.yaml").write_text(FEATURES)
        (db / "tasks.yaml").write_text(TASKS)
        (db / "disciplines.yaml").write_text(DISCIPLINES)
        done = {"summary": f"{ASKED}, tried and failed", "outcome": "failure", "task_id": 1}
        self.well("record", "--feature", "auth", "-", stdin=json.dumps(done), cwd=root)
        shutil.rmtree(root / ".ralph" / "cache", ignore_errors=True)
        git(root, "add", "-A")
        git(root, "commit", "-q", "-m", "The stranger's")

    def reset(self) -> None:
        """Put everything back as it was made."""
        untouched = self.outside() == self._untouched
        # Copying all of it takes a while.
        changed = [self.shipped, self.memory] if untouched else [self.home]
        for folder in changed:
            remove(folder)
            pristine = self._pristine / folder.relative_to(self.home)
            shutil.copytree(pristine, folder, symlinks=True)
        self._untouched = self.outside()
        self.runs.clear()

    @property
    def shipped(self) -> Path:
        """The clone's `.ralph`."""
        return self.evil / ".ralph"

    def ship(self, path: str, text: str | bytes) -> Path:
        """Put a file into the clone's `.ralph`."""
        file = self.shipped / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text.encode() if isinstance(text, str) else text)
        return file

    def link(self, path: str, target: Path) -> Path:
        """Put a link into the clone's `.ralph`, relative as git would carry it."""
        place = self.shipped / path
        place.parent.mkdir(parents=True, exist_ok=True)
        remove(place)
        place.symlink_to(os.path.relpath(target, place.parent))
        return place

    # What is run

    def environ(self, **more: str | None) -> dict[str, str]:
        """What the person's shell has, with these changes; None takes a variable out.

        Without an embedder only words are compared, which is fast and finds enough.
        """
        found: dict[str, str | None] = {
            "HOME": str(self.home),
            "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
            "LANG": "C.UTF-8",
            "TMPDIR": str(self._scratch),
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_SYSTEM": os.devnull,
            "PERSONS_OWN_KEY": ENVIRON,
            "RALPH_EMBEDDER": "none",
            # No process outlives the one that is looked at.
            "RALPH_SUMMARIZER_CONVERSATION_ENABLED": "false",
            "RALPH_SUMMARIZER_EXCHANGE_ENABLED": "false",
            **more,
        }
        return {name: value for name, value in found.items() if value is not None}

    def run(
        self,
        *words: str,
        stdin: str | bytes = b"",
        cwd: Path | None = None,
        environ: Mapping[str, str | None] | None = None,
    ) -> Ran:
        """`ralph WORDS` as a process in the clone, or elsewhere."""
        data = stdin.encode() if isinstance(stdin, str) else stdin
        with contextlib.ExitStack() as stack:
            streams = [
                stack.enter_context(tempfile.TemporaryFile(dir=self._scratch)) for _ in range(3)
            ]
            given, out, err = streams
            given.write(data)
            given.seek(0)
            pid = self._server.start(
                words,
                cwd=cwd or self.evil,
                environ=self.environ(**(environ or {})),
                streams=(given.fileno(), out.fileno(), err.fileno()),
            )
            end = self._server.wait(pid, timeout_s=PATIENCE_S)
            ran = Ran(words, end.code, _content(out), _content(err), end.peak_bytes, end.hung)
        self.runs.append(ran)
        return ran

    def well(self, *words: str, **more: Any) -> Ran:
        """The same, and it must end with 0."""
        ran = self.run(*words, **more)
        assert ran.code == 0, ran
        return ran

    def hook(self, event: str, *, cwd: Path | None = None, **fields: Any) -> Ran:
        """A hook as the client calls it in the clone, or elsewhere."""
        environ = fields.pop("environ", None)
        given = hook_input(self, cwd or self.evil, **fields)
        return self.run("hook", event, stdin=json.dumps(given), cwd=cwd, environ=environ)

    def told(self, ran: Ran) -> str:
        """What a hook told the model."""
        assert ran.code == 0, ran
        answer = json.loads(ran.out) if ran.out else {}
        told: str = answer.get("hookSpecificOutput", {}).get("additionalContext", "")
        return told

    @contextlib.contextmanager
    def serve(self, *words: str, cwd: Path | None = None, **more: str) -> Iterator[Dialogue]:
        """A server of MCP as a process in the clone; it must end when its input does."""
        with tempfile.TemporaryFile(dir=self._scratch) as err:
            theirs_in, ours_out = os.pipe()
            ours_in, theirs_out = os.pipe()
            pid = self._server.start(
                ["mcp", *words],
                cwd=cwd or self.evil,
                environ=self.environ(**more),
                streams=(theirs_in, theirs_out, err.fileno()),
            )
            os.close(theirs_in)
            os.close(theirs_out)
            dialogue = Dialogue(ours_out, ours_in)
            try:
                yield dialogue
            finally:
                dialogue.close()
                end = self._server.wait(pid, timeout_s=PATIENCE_S)
                name, err_text = ("mcp", *words), _content(err)
                self.runs.append(
                    Ran(name, end.code, dialogue.heard, err_text, end.peak_bytes, end.hung)
                )

    # What must hold

    def before(self) -> Before:
        """How things stand now; the runs so far are none of the attack."""
        return Before(
            self.outside(),
            tree(self.shipped / "cache"),
            self._private(),
            self._holders(),
            len(self.runs),
        )

    def harm(self, before: Before, *, cache: bool = True, told: Sequence[str] = WORDS) -> list[str]:
        """Everything that must not have happened since then.

        `cache`: whether the clone's `.ralph/cache` is looked at as well. `told`: words that no run
        may have said.
        """
        found = differences(before.outside, self.outside())
        if cache:
            now = tree(self.shipped / "cache")
            found += [f".ralph/cache/{line}" for line in differences(before.cache, now)]
        found += [f"private: {line}" for line in differences(before.private, self._private())]
        for word, paths in self._holders().items():
            fresh = paths - before.holders[word]
            found += [f"{word} got into {path}" for path in sorted(fresh)]
        for ran in self.runs[before.runs :]:
            found += ran.faults()
            found += [
                f"{' '.join(ran.words)[:80]} told {word}" for word in told if word in ran.said
            ]
        return found

    def check(self, before: Before, **more: Any) -> None:
        """Fail with a line for everything that must not have happened."""
        found = self.harm(before, **more)
        assert not found, "\n" + "\n".join(found)

    def outside(self) -> dict[str, State]:
        """All of the home but Ralph's, and but what the clone itself brings for Ralph.

        A link at the clone's `.ralph` is the clone's, what it leads to is not.
        """
        return tree(self.home, but=[self.shipped, self.memory])

    def _private(self) -> dict[str, State]:
        """The files of Ralph's home that are the truth of the person's own project."""
        files = tree(self.memory, but=[self.memory / "cache"])
        own = {TALK, LESSON, DOCUMENT}
        return {path: files[path] for path in files if own & _words_in(self.memory / path)}

    def _holders(self) -> dict[str, set[str]]:
        """For each word the files that hold it; an index and its log count as one."""
        found: dict[str, set[str]] = {word: set() for word in WORDS}
        for folder, _, names in os.walk(self.home):
            for name in names:
                for word in _words_in(Path(folder, name)):
                    path = os.path.relpath(os.path.join(folder, name), self.home)  # noqa: PTH118
                    found[word].add(path.removesuffix("-wal").removesuffix("-shm"))
        return found


def _words_in(file: Path) -> set[str]:
    """The words that may be in one place only, as far as this file holds them."""
    seen = file.lstat()
    if not stat.S_ISREG(seen.st_mode) or seen.st_size > 64 * _READ_BYTES:
        return set()
    data = file.read_bytes()
    return {word for word in WORDS if word.encode() in data} if _COMMON in data else set()


def _content(file: Any) -> str:
    file.seek(0)
    text: str = file.read(16 * _READ_BYTES).decode("utf-8", "replace")
    return text


class Dialogue:
    """A talk with a server of MCP, line by line."""

    def __init__(self, out: int, into: int, *, patience_s: float = PATIENCE_S) -> None:
        self._out, self._in = out, into
        self._patience_s = patience_s
        self._rest = b""
        self._next = 0
        self.heard = ""

    def greet(self) -> dict[str, Any] | None:
        """The handshake; None when the server refused to start."""
        client = {"name": "test", "version": "1"}
        given = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client}
        answer = self.ask("initialize", given)
        if answer is not None:
            self.write(json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"}))
        return answer

    def ask(self, method: str, params: Mapping[str, Any] | None = None) -> dict[str, Any] | None:
        """The answer to this request, None when the server is gone; silence is a failure."""
        self._next += 1
        wish = {"jsonrpc": "2.0", "id": self._next, "method": method, "params": params or {}}
        self.write(json.dumps(wish))
        return self.answer(self._next)

    def call(self, name: str, /, **arguments: Any) -> str:
        """What a tool answers, or refuses with; "" when the server is gone."""
        return json.dumps(self.ask("tools/call", {"name": name, "arguments": arguments}) or "")

    def write(self, line: str | bytes) -> None:
        """Send one line as it is."""
        data = line.encode() if isinstance(line, str) else line
        with contextlib.suppress(BrokenPipeError):
            view = memoryview(data + b"\n")
            while view:
                view = view[os.write(self._out, view) :]

    def answer(self, number: int | str) -> dict[str, Any] | None:
        """The message that answers this request; whatever else comes is passed over."""
        deadline = time.monotonic() + self._patience_s
        while (line := self._line(deadline)) is not None:
            try:
                message = json.loads(line)
            except ValueError:
                pytest.fail(f"the server said something that is no message: {line[:200]!r}")
            if isinstance(message, dict) and message.get("id") == number:
                return message
        return None

    def _line(self, deadline: float) -> str | None:
        while b"\n" not in self._rest:
            left_s = deadline - time.monotonic()
            ready, _, _ = select.select([self._in], [], [], max(0.0, left_s))
            if not ready:
                pytest.fail(f"the server did not answer within {self._patience_s:g} s")
            data = os.read(self._in, 1 << 16)
            if not data:
                return None
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        text = line.decode("utf-8", "replace")
        self.heard += text + "\n"
        return text

    def close(self) -> None:
        """Hang up."""
        for fd in (self._out, self._in):
            os.close(fd)


def hook_input(ground: Ground, cwd: Path, **fields: Any) -> dict[str, Any]:
    """What the client gives every hook."""
    return {
        "session_id": "session-1",
        "transcript_path": str(ground.transcript),
        "cwd": str(cwd),
        "source": "startup",
        "prompt": QUESTION,
        "tool_name": "Bash",
        "tool_input": {"command": "pytest"},
        "error": f"AssertionError: {ASKED}",
        "last_assistant_message": "Done.",
        "reason": "other",
        "trigger": "auto",
        **fields,
    }


def write_transcript(file: Path, root: Path, *asked: str) -> None:
    """A short session of the client."""
    file.parent.mkdir(parents=True, exist_ok=True)
    common = {"sessionId": file.stem, "cwd": str(root), "isSidechain": False}
    lines: list[dict[str, Any]] = []
    for number, words in enumerate(asked or ("Add the login form",)):
        prompt, answer, minute = f"u{number}", f"a{number}", f"2026-01-01T00:{number:02}"
        lines.append(
            {
                **common,
                "type": "user",
                "uuid": prompt,
                "promptId": prompt,
                "timestamp": f"{minute}:00Z",
                "message": {"role": "user", "content": words},
            }
        )
        said = {"role": "assistant", "content": [{"type": "text", "text": "It is there."}]}
        lines.append(
            {
                **common,
                "type": "assistant",
                "uuid": answer,
                "parentUuid": prompt,
                "timestamp": f"{minute}:05Z",
                "message": {"id": f"m{number}", "stop_reason": "end_turn", **said},
            }
        )
    file.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


def remove(path: Path) -> None:
    """Take away whatever is there, never what a link leads to."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def git(root: Path, *words: str) -> str:
    """Git as nobody's settings can change it."""
    who = {f"GIT_{role}_NAME": "Test" for role in ("AUTHOR", "COMMITTER")}
    mail = {f"GIT_{role}_EMAIL": "test@example.com" for role in ("AUTHOR", "COMMITTER")}
    devnull = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    done = subprocess.run(
        ["git", *words],
        cwd=root,
        env={"PATH": os.environ["PATH"], "HOME": str(root), **who, **mail, **devnull},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout
