"""The decisions of a session and their reasons; what was asked, and how it ended.

Decisions are found in the agent's words, commit messages, plans and a person's words. A question, a
possibility, a quotation or a piece of code is not a decision; it is better to miss one.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any, Literal

import msgspec

from ralph.capture.lines import FENCED, clip, mapping, sentences, text_of
from ralph.capture.rules import pattern, rows, words
from ralph.capture.shell import commands
from ralph.records.iteration import Decision, Outcome
from ralph.text.summary import title_of
from ralph.text.tokens import shorten

LONGEST = 300
_LONGEST_BODY = 480
_READ = 64_000


_PATTERNS = tuple(re.compile(row) for row in rows("decisions"))
_UNSURE = pattern("unsure")
# Finding these is fast, matching the table is not.
_CUES = rows("cues")


def decisions_in(text: str, *, strict: bool = False) -> list[Decision]:
    """Return the decisions stated in a text, in order; with `strict`, only explicit ones."""
    text = text[:_READ]
    if not any(cue in text for cue in _CUES):
        return []
    found: list[Decision] = []
    for raw in sentences(text.replace("; I ", ".\nI ")):
        sentence = pattern("bullet").sub("", raw).strip()
        if not 15 <= len(sentence) <= 1000 or not any(cue in sentence for cue in _CUES):
            continue
        if sentence[0] == ">":
            continue
        decision = _decision(sentence, strict)
        if decision is None and (label := pattern("label").match(sentence)):
            decision = _decision(sentence[label.end() :], strict)
            if decision:
                subject = label[0].strip(" *_:-\u2013\u2014")
                decision = Decision(f"{subject}: {decision.description}", decision.rationale)
        if decision:
            found.append(decision)
    return found


def _decision(sentence: str, strict: bool) -> Decision | None:
    if pattern("about tools").search(sentence):
        return None
    for statement in _PATTERNS[:3] if strict else _PATTERNS:
        match = statement.match(sentence)
        if match is None:
            continue
        before = sentence[: match.start("d")]
        if before.count('"') % 2 or before.count("`") % 2 or pattern("others").search(before):
            return None
        description, rationale = _apart(match["d"])
        # Doubt in the reason is fine; doubt in the choice means that nothing was decided.
        if "?" in sentence or _UNSURE.search(before) or _UNSURE.search(description):
            return None
        if len(description) < 12:
            return None
        return Decision(description, rationale or None)
    return None


def _apart(said: str) -> tuple[str, str]:
    said = pattern("marks").sub("", said).strip().rstrip(".*_ ")
    chosen = pattern("chosen").search(said)
    split = pattern("split").search(said, max(12, chosen.end() if chosen else 0))
    if split is None:
        return clip(said, LONGEST), ""
    why = pattern("plain why").sub("", split["why"]).strip()
    return clip(said[: split.start()].rstrip(" ,"), LONGEST), clip(why, LONGEST)


# -- Commit messages.


def commit_message(line: str) -> str:
    """Return the message that a command line commits with, without trailers, or ""."""
    if ("commit" not in line and "describe" not in line) or not pattern("commits").search(line):
        return ""
    message = _here_document(line)
    if not message:
        for command in commands(line):
            words = command.words
            if "commit" in words[:4] or "describe" in words[:2]:
                pairs = pairwise(words)
                given = [b for a, b in pairs if a in {"-m", "--message", "-am", "-qm", "-sm"}]
                message = "\n\n".join(given)
    message = message.replace("\r", "").strip()
    trailer = pattern("trailer").search(message)
    return (message[: trailer.start()] if trailer else message).strip()


def _here_document(line: str) -> str:
    """Return the text of the heredoc or PowerShell here-string that a commit uses."""
    at = pattern("commits").search(line)
    rest = line[at.end() :] if at else ""
    if "@'\n" in rest.replace("\r", ""):
        rest = rest.replace("\r", "")
        return rest[rest.index("@'\n") + 3 :].partition("\n'@")[0]
    if opened := pattern("here").search(rest):
        body = rest[opened.end() :].partition("\n")[2]
        return body.partition(f"\n{opened[2]}")[0] if body else ""
    return ""


def committed(message: str) -> Decision | None:
    """Return a commit as a decision: its subject, and the part of its body that says why."""
    subject, _, body = message.partition("\n")
    subject, body = subject.strip(), body.strip()
    if len(subject) < 15 or (pattern("housekeeping").match(subject) and not body):
        return None
    return Decision(clip(subject, LONGEST), clip(_reasons(body), _LONGEST_BODY) or None)


def _reasons(body: str) -> str:
    """Return a commit's body; of a long one, the sentences that say why, else the first."""
    if not body:
        return ""
    plain = " ".join(line.strip() for line in body.split("\n") if line.strip())
    if len(plain) <= _LONGEST_BODY:
        return plain
    told = re.split(r"(?<=[.!])\s+(?=[A-Z`-])", plain)
    return " ".join([one for one in told if words("reason", re.I).search(one)] or told[:1])


# -- Plans.


BOILERPLATE = "Implement the following plan:"
_PLAN_ENDS = (
    "If you need specific details from before exiting plan mode",
    "You can refer back to it if needed during implementation.",
)


def plan_text(text: str) -> str:
    """Return a plan without the client's text before and after it."""
    for end in _PLAN_ENDS:
        text = text.partition(end)[0]
    return text.strip().removeprefix(BOILERPLATE).strip()


def plan_title(text: str) -> str:
    """Return a plan's title, or ""."""
    found = pattern("title").search(plan_text(text)[:2000])
    return found["t"].strip(" #*") if found else ""


def planned(text: str) -> Decision | None:
    """Return an accepted plan as a decision: its title, why, and what it does."""
    plan = plan_text(text)
    title = plan_title(plan)
    if not title:
        return None
    parts = pattern("section").split(plan[:_READ])[1:]
    sections = [pair for pair in zip(parts[::2], parts[1::2], strict=False) if title not in pair[0]]
    told = [_gist(body) for head, body in sections if pattern("about").search(head)][:3]
    steps = [head for head, _ in sections if re.match(r"(?:Step |Change |Fix |Part )?\d", head)]
    whole = " ".join(filter(None, [*told, "; ".join(steps[:4])]))
    plan_name = clip(f"Accepted plan: {title}", LONGEST)
    return Decision(plan_name, clip(whole, _LONGEST_BODY) or None, "human")


def _gist(body: str) -> str:
    """Return the first paragraph of a section, on one line."""
    first = re.split(r"\n\s*\n", FENCED.sub("\n", body).strip(), maxsplit=1)[0]
    text = re.sub(r"\*\*|^\s*(?:[-*]|\d+\.) ", "", first, flags=re.M)
    return clip(" ".join(text.split()), 200)


# -- What the person said: rejections with words, answers, corrections.


_REFUSED = "To tell you how to proceed, the user said:"
_CLARIFY = "The user wants to clarify these questions"
_ANSWERED = re.compile(r"\"([^\"]{3,800})\"=\"([^\"]{1,2000})\"")


def refusal(output: str) -> str:
    """Return what a person said when rejecting a call, or ""."""
    words = pattern("refused note").sub("", output.partition(_REFUSED)[2]).strip()
    return "" if words.startswith(_CLARIFY) else words


def answers(result: Any, output: str) -> list[Decision]:
    """Return the questions that a person was asked, each with its answer, as decisions."""
    found = list(mapping(mapping(result).get("answers")).items()) or _ANSWERED.findall(output)
    told: list[Decision] = []
    for question, given in found:
        answer = _line(text_of(given).replace(" (Recommended)", ""))
        if answer and not pattern("nothing").fullmatch(answer):
            text = clip(f"{_line(question)} -> {answer}", _LONGEST_BODY)
            told.append(Decision(text, None, "human"))
    return told


def refused(words: str, what: str) -> Decision:
    """Return what a person said when rejecting a call or a plan, as a decision."""
    return Decision(clip(_line(words), _LONGEST_BODY), f"said when refusing {what}", "human")


_SETS_A_RULE = words("sets a rule", re.I)
_OBJECTS = words("objects", re.I)
_CORRECTS = pattern("corrects")
# Lines that a program printed, not the person's words.
_PRINTED = pattern("printed")
# A prompt that is one question is a correction only if it objects.
_QUESTION = re.compile(r"[^.!?]{1,400}\?\W*")


def is_plain(text: str) -> bool:
    """Whether a prompt only tells the agent to go on: "commit and push"."""
    return len(text) < 80 and pattern("plain").fullmatch(text) is not None


def asked(text: str, *, first: bool | None) -> Decision | None:
    """Return what a prompt decides: an accepted plan, a rule, or a later choice or correction.

    If it is not known whether a prompt is the first, a long one counts as a request.
    """
    if text.startswith(BOILERPLATE) and plan_title(text):
        return planned(text)
    if is_plain(text):
        return None
    is_request = len(text) > _LONGEST_BODY if first is None else first
    told = _required(text) if is_request else _choices(text)
    return Decision(clip(told, _LONGEST_BODY), None, "human") if told else None


def _required(text: str) -> str:
    """Return the sentences of a first prompt that set a rule, if it also asks for something."""
    parts = _clauses(text[:4000])
    rules = [one for one in parts if _SETS_A_RULE.search(one)] if len(parts) > 1 else []
    return " ".join(rules[:4])


def _choices(text: str) -> str:
    """Return the sentences of a prompt that choose or correct; a short prompt as a whole."""
    own = "\n".join(line for line in text[:4000].split("\n") if not _PRINTED.match(line)).strip()
    if not _CORRECTS.search(own) or (_QUESTION.fullmatch(own) and not _OBJECTS.search(own)):
        return ""
    if len(own) <= _LONGEST_BODY:
        return _line(own)
    return " ".join(one for one in _clauses(own) if _CORRECTS.search(one))


def _clauses(text: str) -> list[str]:
    return [line for part in pattern("clause").split(text) if len(line := _line(part)) > 10]


def _line(text: str) -> str:
    return " ".join(text.split())


# -- How a session went: its title, a summary of every turn, and the outcome that is proven.


_LONGEST = 1900
_LONGEST_ASKED = 220
_LONGEST_SAID = 240
_LONGEST_TITLE = 120
_LONGEST_COMMITS = 400
_MOST_TURNS = 200
_LAST_WORDS = 800

# `passed`, `failed`: a check, or a commit that hooks rejected. `saved`: committed or opened as a
# pull request. `refused`: a person said no, or stopped the agent.
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
        """Begin a turn with a person's prompt."""
        if len(self._turns) < _MOST_TURNS:
            self._turns.append(_Turn(plan_text(text)[:8000]))

    def say(self, text: str) -> None:
        """Note the agent's words; the last ones of a turn stay."""
        if not self._turns:
            self._turns.append(_Turn(""))
        self._turns[-1].said = text

    def commit(self, subject: str) -> None:
        """Note a commit."""
        if not self._turns:
            self._turns.append(_Turn(""))
        if subject and subject not in self._turns[-1].commits:
            self._turns[-1].commits = [*self._turns[-1].commits, subject[:200]]

    def prove(self, proof: Proof) -> None:
        """Note an event that shows how the session is going."""
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
        """Return what was asked, answered and committed per turn; `last` is the final words."""
        turns = [turn for turn in self._turns if turn.asked or turn.said or turn.commits]
        if len(turns) < 2 or not any(turn.asked for turn in turns):
            return _with_commits(last, [subject for turn in turns for subject in turn.commits])
        # The first turns say what it was about, the last ones how it went.
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
        """Return what is proven: success by a check or commit after the last edit, not by words."""
        if (stopped or self._refused) and self._last != "saved":
            return "partial" if self._edited else "unknown"
        if self._last == "failed":
            return "partial" if self._edited or self._saved else "unknown"
        proven = self._last == "saved" or (self._last == "passed" and self._edited)
        return "success" if proven else "unknown"


def title_from(prompt: str, *, plans_only: bool = False) -> str:
    """Return a title for a prompt: the title of the plan in it, else what it asks for."""
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
