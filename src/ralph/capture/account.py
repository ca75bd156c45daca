"""What became of a session: its title, a summary of every turn, and the outcome that is proven."""

from __future__ import annotations

from typing import Literal

import msgspec

from ralph.capture.decisions import BOILERPLATE, is_plain, plan_text, plan_title
from ralph.capture.lines import clip
from ralph.records.iteration import Outcome
from ralph.text.summary import title_of
from ralph.text.tokens import shorten

_LONGEST = 1900
_LONGEST_ASKED = 220
_LONGEST_SAID = 240
_LONGEST_TITLE = 120
_LONGEST_COMMITS = 400
_MOST_TURNS = 200
_LAST_WORDS = 800

# `passed`, `failed`: a check, or a commit that hooks turned down. `saved`: committed or opened as
# a pull request. `refused`: a person said no, or stopped the agent.
Proof = Literal["edited", "passed", "failed", "saved", "refused"]


class _Turn(msgspec.Struct):
    asked: str
    said: str = ""
    commits: list[str] = []


class SessionAccount:
    """The turns of a session so far."""

    def __init__(self) -> None:
        self.own_title = ""
        self._turns: list[_Turn] = []
        self._edited = self._saved = self._refused = False
        # The last check or commit since the last edit.
        self._last: Proof | None = None

    def ask(self, text: str) -> None:
        """A person's prompt begins a turn."""
        if len(self._turns) < _MOST_TURNS:
            self._turns.append(_Turn(plan_text(text)[:8000]))

    def say(self, text: str) -> None:
        """The agent's words; the last ones of a turn stay."""
        if not self._turns:
            self._turns.append(_Turn(""))
        self._turns[-1].said = text

    def commit(self, subject: str) -> None:
        """Something was committed."""
        if not self._turns:
            self._turns.append(_Turn(""))
        if subject and subject not in self._turns[-1].commits:
            self._turns[-1].commits = [*self._turns[-1].commits, subject[:200]]

    def prove(self, proof: Proof) -> None:
        """Something happened that tells how the session goes."""
        if proof == "edited":
            self._edited, self._last = True, None
        elif proof != "refused":
            self._last = proof
        self._refused = proof == "refused"
        self._saved |= proof == "saved"

    @property
    def title(self) -> str:
        """The plan's title, the client's own, or the request in a few words."""
        prompts = [turn.asked for turn in self._turns if turn.asked and not is_plain(turn.asked)]
        if prompts and (plan := title_from(prompts[0], plans_only=True)):
            return plan
        return self.own_title or (title_from(prompts[0]) if prompts else "")

    def summary(self, last: str) -> str:
        """What was asked, answered and committed, turn by turn; `last` are the final words."""
        turns = [turn for turn in self._turns if turn.asked or turn.said or turn.commits]
        if len(turns) < 2 or not any(turn.asked for turn in turns):
            commits = [subject for turn in turns for subject in turn.commits]
            return _with_commits(last, commits)
        # The first turns say what it was about, the latest how it went.
        told = [self._told(turn) for turn in [*turns[:-1][:6], *turns[6:-1][-8:]]]
        end = _with_commits(clip(last, _LAST_WORDS), turns[-1].commits)
        asked = turns[-1].asked
        if asked and not is_plain(asked):
            end = f"Asked: {_request(asked)}\n{end}"
        room = _LONGEST - len(end)
        share = max(80, room // max(1, sum(bool(one) for one in told)))
        lines = [shorten(one, share) for one in told if one]
        while sum(map(len, lines)) > room and len(lines) > 2:
            del lines[len(lines) // 2]
        return "\n".join([*lines, end])

    @staticmethod
    def _told(turn: _Turn) -> str:
        asked = "" if is_plain(turn.asked) else f"Asked: {_request(turn.asked)}"
        said = shorten(" ".join(turn.said.split()), _LONGEST_SAID)
        commits = f"Committed: {'; '.join(turn.commits)}." if turn.commits else ""
        if commits and not asked:
            return commits
        return " ".join(part for part in (asked, commits, said) if part)

    def outcome(self, *, stopped: bool) -> Outcome:
        """What is proven: success by a check or commit after the last edit, never by words."""
        if (stopped or self._refused) and self._last != "saved":
            return "partial" if self._edited else "unknown"
        if self._last == "failed":
            return "partial" if self._edited or self._saved else "unknown"
        proven = self._last == "saved" or (self._last == "passed" and self._edited)
        return "success" if proven else "unknown"


def title_from(prompt: str, *, plans_only: bool = False) -> str:
    """A title from a prompt: of the plan in it, else what it asks for."""
    prompt = prompt.strip()
    if prompt.startswith((BOILERPLATE, "# ")) and (title := plan_title(prompt)):
        return clip(title, _LONGEST_TITLE)
    return "" if plans_only else title_of(plan_text(prompt))


def _request(prompt: str) -> str:
    title = title_from(prompt, plans_only=True)
    text = " ".join(plan_text(prompt).split())
    return f"plan \u201c{title}\u201d" if title else shorten(text, _LONGEST_ASKED)


def _with_commits(text: str, commits: list[str]) -> str:
    new = [subject for subject in commits if subject not in text]
    if not new:
        return text
    return f"{text}\n{clip('Committed: ' + '; '.join(new), _LONGEST_COMMITS)}.".strip()
