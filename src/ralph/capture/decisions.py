"""The decisions of a session and their reasons; what was asked, and how it ended.

Decisions are found in the agent's words, commit messages, plans and a person's words. A question, a
possibility, a quotation or a piece of code is not a decision; it is better to miss one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice, pairwise
from typing import Any, Literal

import msgspec

from ralph.capture.lines import FENCED, clip, mapping, sentences, text_of
from ralph.capture.rules import pattern, rows, words
from ralph.capture.shell import commands
from ralph.records.iteration import ACCEPTED_PLAN, Decision, Outcome
from ralph.text.outcome import content_words, outcome_of, tells_a_result
from ralph.text.sentences import lines_joined
from ralph.text.sentences import sentences as split_sentences
from ralph.text.summary import (
    TITLE_CHARS,
    is_telling,
    names_its_subject,
    plain_title,
    short_title,
    title_of,
)
from ralph.text.tokens import rule, shorten

LONGEST = 300
_LONGEST_BODY = 480
_LEAST_BODY = 30
_READ = 64_000
# Commits in one line of a shell.
_MOST_COMMITS = 20


_PATTERNS = tuple(re.compile(row) for row in rows("decisions"))
_UNSURE = pattern("unsure")
# Finding these is fast, matching the table is not.
_CUES = rows("cues")
_LEAST = 12
_LEAST_PLAIN = 25
_LEAST_CAUSE = 36


def decisions_in(text: str, *, strict: bool = False) -> list[Decision]:
    """Return the decisions stated in a text, in order; with `strict`, only explicit ones."""
    text = text[:_READ]
    cues = [cue for cue in _CUES if cue in text]
    if not cues:
        return []
    if "](" in text:
        text = pattern("linked").sub(r"\g<name>", text)
    found: list[Decision] = []
    said = list(sentences(text.replace("; I ", ".\nI ")))
    for place, raw in enumerate(said):
        sentence = pattern("bullet").sub("", raw).strip()
        if pattern("cause heading").fullmatch(sentence):
            if cause := _listed_cause(said[place + 1 : place + 5]):
                found.append(Decision(f"Root cause: {cause}", None))
            continue
        if not 15 <= len(sentence) <= 1000 or not any(cue in sentence for cue in cues):
            continue
        if sentence[0] == ">":
            continue
        decision = _decision(sentence, strict)
        if decision is None and (label := pattern("label").match(sentence)):
            decision = _decision(sentence[label.end() :], strict)
            if decision:
                subject = label[0].strip(" *_:-\u2013\u2014")
                decision = Decision(f"{subject}: {decision.description}", decision.rationale)
        if decision and pattern("cause").search(decision.description):
            why = decision.rationale or _explanation(said[place + 1 : place + 2])
            decision = Decision(decision.description, why or None)
        if decision:
            found.append(decision)
    return found


def _listed_cause(following: list[str]) -> str:
    """Return the first of the next sentences or items that says what is wrong, or ""."""
    for place, sentence in enumerate(following):
        cause = _explanation(following[place : place + 1])
        if pattern("causal").search(cause):
            return cause
        if sentence.strip() and not pattern("bullet").match(sentence):
            return ""
    return ""


def _explanation(following: list[str]) -> str:
    """Return the next sentence if it explains; a plan for what to do next does not."""
    said = (" ".join(pattern("markup").sub("", one.strip()).split()) for one in following)
    first = next((one for one in said if one), "")
    if not 20 <= len(first) <= 1000 or first[-1] in ":?" or pattern("next step").match(first):
        return ""
    return clip(first.rstrip("."), LONGEST)


def _decision(sentence: str, strict: bool) -> Decision | None:
    if pattern("about tools").search(sentence) or pattern("no cause").search(sentence):
        return None
    for place, statement in enumerate(_PATTERNS[:3] if strict else _PATTERNS):
        match = statement.match(sentence)
        if match is None:
            continue
        before = sentence[: match.start("d")]
        if before.count('"') % 2 or before.count("`") % 2 or pattern("others").search(before):
            return None
        description, rationale = _apart(match["d"])
        if rationale.endswith(":"):  # what follows it is a list or code
            if place >= _FIRST_PLAIN:
                return None
            rationale = ""
        # Doubt in the reason is fine; doubt in the choice means that nothing was decided.
        if "?" in sentence or _UNSURE.search(before) or _UNSURE.search(description):
            return None
        if description.endswith((":", "@")) or len(description) < _LEAST:
            return None
        is_cause = pattern("cause").search(description) is not None
        if (
            is_cause
            and len(description) < _LEAST_CAUSE
            and not pattern("causal").search(description)
        ):
            return None
        if "cause" in statement.groupindex:
            if not pattern("causal").search(description):
                return None
            description = f"Root cause: {description}"
        if pattern("names nothing").fullmatch(description):
            return None
        if place >= _FIRST_PLAIN and len(description) < _LEAST_PLAIN and not rationale:
            return None
        return Decision(description, rationale or None)
    return None


# The rows before it say themselves that something was decided.
_FIRST_PLAIN = 6


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
    for at in islice(pattern("commits").finditer(line), _MOST_COMMITS):
        rest = line[at.end() :]
        if "@'\n" in rest.replace("\r", ""):
            rest = rest.replace("\r", "")
            return rest[rest.index("@'\n") + 3 :].partition("\n'@")[0]
        opened = pattern("here").search(rest)
        if opened is None:
            return ""
        # After another command has begun, a heredoc is that command's.
        if not pattern("next command").search(rest, 0, opened.start()):
            body = rest[opened.end() :].partition("\n")[2]
            return body.partition(f"\n{opened[2]}")[0] if body else ""
    return ""


def committed(message: str) -> Decision | None:
    """Return a commit as a decision: its subject, and the part of its body that says why.

    A subject alone is what was done, not what was decided, unless it states a choice.
    """
    subject, _, body = message.partition("\n")
    subject = subject.strip()
    body = body.strip()
    if len(subject) < 15:
        return None
    reasons = _reasons(body)
    if pattern("housekeeping").match(subject):
        if not pattern("weighty").search(f"{subject} {reasons}"):
            return None
    elif len(reasons) < _LEAST_BODY and not pattern("contrast").search(subject):
        return None
    return Decision(clip(subject, LONGEST), clip(reasons, _LONGEST_BODY) or None)


def _reasons(body: str) -> str:
    """Return a commit's body; of a long one, the sentences that say why, else the first."""
    if not body:
        return ""
    parts = lines_joined(body)
    plain = " ".join(part for part in parts if part is not parts[-1] or not part.endswith(":"))
    if len(plain) <= _LONGEST_BODY:
        return plain
    told = [one for part in parts for one in split_sentences(part) if not one.endswith(":")]
    return " ".join([one for one in told if words("reason", re.I).search(one)] or told[:1])


# -- Plans.


_PLAN_ENDS = (
    "If you need specific details from before exiting plan mode",
    "You can refer back to it if needed during implementation.",
)


def plan_text(text: str) -> str:
    """Return a plan without the client's text before and after it."""
    for end in _PLAN_ENDS:
        text = text.partition(end)[0]
    text = text.strip()
    lead = pattern("plan follows").match(text)
    return text[lead.end() :].strip() if lead else text


def is_plan(text: str) -> bool:
    """Whether a prompt is a plan that a person hands over."""
    if pattern("plan follows").match(text.lstrip()):
        return bool(plan_title(text))
    return text.startswith("# ") and pattern("plan section").search(text) is not None


def plan_title(text: str) -> str:
    """Return a plan's title, or ""."""
    found = pattern("title").search(plan_text(text)[:2000])
    return found["t"].strip(" #*") if found else ""


def _proposed(said: str) -> str:
    """Return the plan that Codex proposed in its last words, or ""."""
    return said.partition("<proposed_plan>")[2].partition("</proposed_plan>")[0]


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
    plan_name = clip(f"{ACCEPTED_PLAN}{title}", LONGEST)
    return Decision(plan_name, clip(whole, _LONGEST_BODY) or None, "human")


def _gist(body: str) -> str:
    """Return the first paragraph of a section, on one line."""
    first = re.split(r"\n\s*\n", FENCED.sub("\n", body).strip(), maxsplit=1)[0]
    text = re.sub(r"\*\*|^\s*(?:[-*]|\d+\.) ", "", first, flags=re.M)
    return clip(" ".join(text.split()), 200)


# -- What the person said: rejections with words, answers, corrections.


SAID_WHEN_REFUSING = "said when refusing"
_REFUSED = "To tell you how to proceed, the user said:"
_CLARIFY = "The user wants to clarify these questions"
_ANSWERED = re.compile(r"\"([^\"]{3,800})\"=\"([^\"]{1,2000})\"")


def refusal(output: str) -> str:
    """Return what a person said when rejecting a call, or ""."""
    words = pattern("refused note").sub("", output.partition(_REFUSED)[2]).strip()
    return "" if words.startswith(_CLARIFY) else words


def answers_by_question(questions: Mapping[str, str], output: str) -> dict[str, Any]:
    """Return a person's answers in a tool's JSON, by the text of each question."""
    try:
        told = mapping(mapping(msgspec.json.decode(output)).get("answers"))
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return {}
    found: dict[str, str] = {}
    for name, answer in told.items():
        texts = mapping(answer).get("answers", answer)
        texts = texts if isinstance(texts, list) else [texts]
        if question := questions.get(name):
            found[question] = ", ".join(filter(None, map(text_of, texts)))
    return {"answers": found}


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


def refused(words: str, what: str) -> Decision | None:
    """Return what a person said when rejecting a call, as a decision.

    A question or a remark is none, and of a command only what holds beyond it is one.
    """
    passes = what.startswith("`") and not pattern("does it alone").search(words)
    passes = passes or pattern("remark").match(words) is not None
    if (passes or all(map(_is_question, _clauses(words)))) and not _choices(words):
        return None
    return Decision(clip(_line(words), _LONGEST_BODY), f"{SAID_WHEN_REFUSING} {what}", "human")


def refused_plan(title: str, words: str) -> Decision:
    """Return a rejected plan as a decision, and what the person said about it."""
    text = f"Rejected plan: {title}. {_line(words)}".rstrip()
    return Decision(clip(text, _LONGEST_BODY), None, "human")


# The least that is told after a command in a title.
_LEAST_TOLD = 30
# Lines that a program printed, not the person's words.
_PRINTED = pattern("printed")
_SHORT = 300
_LEAST_WORDS = 3
_LEAST_CONTENT = 4


def is_plain(text: str) -> bool:
    """Whether a prompt only tells the agent to go on: "commit and push"."""
    return len(text) < 80 and pattern("plain").fullmatch(text) is not None


def asked(text: str, *, first: bool | None, said: str = "") -> Decision | None:
    """Return what a prompt decides: an accepted plan, a rule, or a later choice or correction.

    `said` is what the agent said before: a prompt may answer with the letter or number of an
    option. If it is not known whether a prompt is the first, a long one counts as a request.
    """
    if is_plan(text):
        return planned(text)
    if pattern("accepts plan").fullmatch(text) and (accepted := planned(_proposed(said))):
        return accepted
    if option := _option(text, said):
        return Decision(clip(f"{_line(text)} -> {option}", _LONGEST_BODY), None, "human")
    if is_plain(text):
        return None
    is_request = len(text) > _LONGEST_BODY if first is None else first
    told = _required(text) if is_request else _choices(text)
    return Decision(clip(told, _LONGEST_BODY), None, "human") if told else None


def _required(text: str) -> str:
    """Return the sentences of a first prompt that set a rule, if it also asks for something.

    In a short one, choices count, too, and what does not work.
    """
    own = _own_words(text)
    parts = list(dict.fromkeys(_clauses(own)))
    if len(parts) < 2:
        return ""
    if len(own) > _LONGEST_BODY:
        return " ".join([one for one in parts if _sets_rule(one)][:4])
    chosen = [one for one in parts if _chooses(one)]
    if chosen and parts[0] not in chosen and pattern("takes back").search(parts[0]):
        chosen.insert(0, parts[0])
    told = " ".join(chosen)
    is_enough = len(content_words(told)) >= _LEAST_CONTENT or any(map(_sets_rule, chosen))
    return told if is_enough else ""


def _sets_rule(sentence: str) -> bool:
    plain = _unquoted(sentence)
    if not pattern("sets a rule").search(plain) or _is_passing(plain) or _describes(plain):
        return False
    return not _is_question(plain) and not pattern("broken off").search(plain)


def _choices(text: str) -> str:
    """Return the sentences of a prompt that choose or correct; a short prompt as a whole."""
    own = _own_words(text)
    parts = _clauses(own)
    chosen = [part for part in parts if _chooses(part)]
    if not chosen and pattern("denies").match(own):
        chosen = parts[:1]
    if not chosen:
        return ""
    findings = [part for part in parts if _describes(part)]
    is_short = len(own) <= _SHORT and len(findings) <= len(chosen)
    return _line(own) if is_short else " ".join(dict.fromkeys(chosen))


def _chooses(sentence: str) -> bool:
    """Whether a sentence sets a rule, makes a choice or refuses, for longer than this moment."""
    plain = _unquoted(sentence)
    if len(plain.split()) < _LEAST_WORDS and plain.isascii():
        return False
    if pattern("broken off").search(plain):
        return False
    if pattern("objects").search(plain):
        return True
    if _is_passing(plain) or _is_question(plain) or _describes(plain):
        return False
    is_report = pattern("reports").match(plain) is not None
    if pattern("rules").search(plain):
        passes = is_report or pattern("moves on").match(plain) is not None
        return not passes or pattern("lasting").search(plain) is not None
    if is_report or pattern("wants now").match(plain):
        return False
    return pattern("chooses").search(plain) is not None and names_its_subject(plain)


def _describes(sentence: str) -> bool:
    """Whether a sentence only says how code behaves: a finding that a person pasted."""
    if pattern("describes").match(sentence) is None or pattern("addresses").search(sentence):
        return False
    return pattern("code word").search(sentence) is not None


def _is_request(text: str) -> bool:
    """Whether every sentence asks something or wants a deed, so that none gives a reason."""
    parts = _clauses(_own_words(text))
    return bool(parts) and all(
        _is_question(part) or pattern("wants now").match(part) for part in parts
    )


def _takes_back(text: str) -> str:
    """Return the sentence that says that what was done failed or goes, or ""."""
    parts = _clauses(_own_words(text))
    found = next((one for one in parts if pattern("takes back").search(one)), "")
    return "" if _is_question(found) else _quoted(found)


def _quoted(text: str) -> str:
    return clip(_line(text), _LONGEST_QUOTE).replace('"', "'")


def _is_passing(sentence: str) -> bool:
    lasts = pattern("lasting").search(sentence)
    return not lasts and pattern("for the moment").search(sentence) is not None


def _is_question(sentence: str) -> bool:
    """Whether a sentence asks; "can you always show the unit?" asks for a rule."""
    if pattern("asks for a rule").search(sentence):
        return False
    return sentence.rstrip(" .)\"'").endswith(("?", "\uff1f")) or bool(
        pattern("asks").match(sentence)
        or pattern("inverted").search(sentence)
        or pattern("asks to agree").search(sentence)
    )


def _unquoted(sentence: str) -> str:
    """Return a sentence without long quotations and pictures, which are not the person's words."""
    return pattern("quotation").sub(" ", sentence).strip()


def _own_words(text: str) -> str:
    """Return what a person wrote, without what they pasted: printed lines, reports, logs."""
    lines = FENCED.sub("\n", text[:4000]).split("\n")
    own: list[str] = []
    for place, line in enumerate(lines):
        if _PRINTED.match(line) or pattern("pasted").match(line):
            continue
        own.append(line)
        pasted = "\n".join(lines[place + 1 :]).strip()
        if len(pasted) > _LEAST_PASTED and pattern("introduces").search(line):
            break
    return pattern("image").sub("", "\n".join(own)).strip()


_LEAST_PASTED = 80
_LONGEST_QUOTE = 200


def _clauses(text: str) -> list[str]:
    if text.count("..") > 1:
        # Some people end every sentence with dots and no space.
        text = pattern("dots").sub("..\n", text)
    else:
        text = pattern("dots once").sub("..\n", text)
    parts = (part for line in text.split("\n") for part in split_sentences(line, typed=True))
    return [line for part in parts if len(line := _line(part)) > 10]


def _line(text: str) -> str:
    return " ".join(text.split())


# -- The option that a person chose by its letter or number.


_LONGEST_ANSWER = 60


def _option(answer: str, said: str) -> str:
    """Return the text of the option that an answer like "b" or "option 2" names, or ""."""
    match = pattern("picks").fullmatch(answer.strip()) if len(answer) <= _LONGEST_ANSWER else None
    if match is None or not said:
        return ""
    picked = (match["a"] or match["b"]).lower()
    options = _options(said[-_READ:])
    text = options.get(picked, "")
    return "" if pattern("goes on").match(text) else text


def _options(said: str) -> dict[str, str]:
    """Return the last list of options in an answer: each one's letter or number, and its text.

    Lines that begin with "Option" count before numbers, which may be the steps of an option.
    """
    found: dict[bool, dict[str, str]] = {True: {}, False: {}}
    for line in FENCED.sub("\n", said).split("\n"):
        if match := pattern("option").match(line):
            options = found[match["word"] is not None]
            name = (match["a"] or match["b"]).lower()
            if name in {"a", "1"}:
                options.clear()
            text = _line(pattern("marks").sub("", match["t"])).strip(" :-\u2013\u2014")
            options[name] = clip(text, LONGEST)
    return next((options for options in found.values() if len(options) > 1), {})


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
        # What the agent said before the first turn, if another reader read it.
        self.said_before = ""
        self._plan = ""
        self._refused_plan = ""
        # What a person said against a plan that was carried out, or a decision.
        self._taken_back: dict[str, str] = {}
        self._turns: list[_Turn] = []
        self._edited = self._saved = self._refused = False
        # The last check or commit since the last edit.
        self._last: Proof | None = None

    def ask(self, text: str) -> None:
        """Begin a turn with a person's prompt."""
        if len(self._turns) < _MOST_TURNS:
            self._turns.append(_Turn(plan_text(text)[:8000]))

    @property
    def said(self) -> str:
        """The agent's last words, which a person may answer."""
        return self._turns[-1].said if self._turns else self.said_before

    def accept_plan(self, decision: Decision) -> None:
        """Note an accepted plan: a person may take it back later."""
        self._plan = decision.description

    def refuse_plan(self, title: str) -> None:
        """Note a plan that was rejected without a word: the next prompt may say why."""
        self._refused_plan = title

    def follow(self, before: SessionAccount) -> None:
        """Continue after another account: a person may answer what was said or planned last."""
        self.said_before = before.said
        self._refused_plan = before._refused_plan

    @property
    def has_plan(self) -> bool:
        """Whether a person accepted a plan."""
        return bool(self._plan)

    def hear_reply(self, text: str) -> bool:
        """Note whether a person's words take the accepted plan back; return whether they do."""
        sentence = _takes_back(text) if self._plan else ""
        if sentence:
            self._taken_back[self._plan] = sentence
        return bool(sentence)

    def take_back(self, decision: Decision, text: str) -> None:
        """Note a person's words against a decision."""
        self._taken_back[decision.description] = _quoted(text)

    def hear(self, text: str, *, first: bool | None) -> list[Decision]:
        """Return what a person's words decide, and begin a turn with them."""
        title = self._refused_plan
        self._refused_plan = ""
        found = asked(text, first=first, said=self.said)
        self.ask(text)
        if found and found.accepts_plan:
            self.accept_plan(found)
        else:
            self.hear_reply(text)
        # A client may start anew with the plan that it asked about.
        if title and not is_plain(text) and not is_plan(text):
            return [refused_plan(title, "" if _is_request(text) else text)]
        return [found] if found else []

    def settled(self, decision: Decision) -> Decision:
        """Return a decision with what became of it: a plan that a person took back says so."""
        if sentence := self._taken_back.get(decision.description):
            why = f'{decision.rationale or ""} Later the person said: "{sentence}"'.strip()
            return Decision(decision.description, why, decision.source)
        return decision

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
            self._edited = True
            self._last = None
        elif proof != "refused":
            self._last = proof
        self._refused = proof == "refused"
        self._saved |= proof == "saved"

    @property
    def title(self) -> str:
        """The client's own title, the plan's, or the first real request in a few words."""
        done = (text for turn in self._turns for text in (*turn.commits, turn.said))
        return session_title([turn.asked for turn in self._turns], own=self.own_title, done=done)

    def summary(self, last: str) -> str:
        """Return what was asked, answered and committed per turn; `last` is the final words."""
        turns = [turn for turn in self._turns if turn.asked or turn.said or turn.commits]
        if len(turns) < 2 or not any(turn.asked for turn in turns):
            commits = [subject for turn in turns for subject in turn.commits]
            return _with_commits(_without_frames(last, tables=True), commits)
        # The first turns say what it was about, the last ones how it went.
        told = [self._told(turn) for turn in [*turns[:-1][:6], *turns[6:-1][-8:]]]
        end = _with_commits(clip(_without_frames(last), _LAST_WORDS), turns[-1].commits)
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
        said = shorten(" ".join(_without_frames(turn.said).split()), _LONGEST_SAID)
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


def session_title(prompts: Iterable[str], *, own: str = "", done: Iterable[str] = ()) -> str:
    """Return a session's title: its `own`, the plan's, the first request that says something.

    Without any, the first of what was `done`. A name like `fix-the-login` is no title beside a
    plan's. A command like `/review` begins the title of a session that it began.
    """
    asked = [prompt for prompt in prompts if not _is_aside(prompt)]
    if asked and " " not in own and (plan := title_from(asked[0], plans_only=True)):
        return plan
    if own:
        return _from_name(own)
    results = [text for text in done if text[:1] != "/"]
    if asked and pattern("command").fullmatch(asked[0]):
        return _commands_title(asked[0], asked[1:], results)
    return _request_title(asked, results)


def _request_title(asked: Sequence[str], results: Sequence[str]) -> str:
    """Return what the first request that says something asks for, else what was done."""
    found = (title for prompt in asked if (title := title_from(prompt)))
    first = next(found, "")
    if first and is_telling(first):
        return first if names_its_subject(first) else _with_result(first, found, results)
    titles = [first, *found] if first else []
    # After a prompt that names nothing, the first answer says what it was about.
    told = _told_result(results[:1]) if titles else ""
    told = told or next(filter(is_telling, titles), "") or _told_result(results)
    return told or next(iter(titles), "")


def _with_result(title: str, others: Iterable[str], results: Sequence[str]) -> str:
    """Return a title like "Look at the PR comments" with what was found or done then."""
    title = title.rstrip(" .:;,!-?()")
    room = TITLE_CHARS - len(title) - len(": ")
    # The title of an exchange may be this one with what was done then.
    done = (_told_result([text.removeprefix(title).lstrip(" .:")]) for text in results)
    told = next(filter(names_its_subject, done), "")
    told = told or next(filter(names_its_subject, others), "")
    return f"{title}: {short_title(told, room)}" if told and room > _LEAST_TOLD else title


def _commands_title(command: str, others: Sequence[str], results: Sequence[str]) -> str:
    """Return a command with the first request after it, else with the last result."""
    titles = [title for prompt in others if (title := title_from(prompt))]
    requests = (one for one in titles if rule("request").match(one) and is_telling(one))
    ends = (text for text in reversed(results) if tells_a_result(_told_result([text])))
    told = next(requests, "") or _told_result(ends)
    room = TITLE_CHARS - len(command) - len(": ")
    return f"{command}: {short_title(told, room)}" if told and room > _LEAST_TOLD else command


def _is_aside(prompt: str) -> bool:
    """Whether a prompt asks for no work: "go on", a shell line, a client's settings."""
    if prompt[:1] in {"", "!"} or is_plain(prompt):
        return True
    return pattern("setup commands").fullmatch(prompt) is not None


def _told_result(answers: Iterable[str]) -> str:
    """Return the first result that says something."""
    results = (outcome_of("", text, TITLE_CHARS) for text in answers if text[:1] != "/")
    told = (pattern("and more").sub("", plain_title(one)).rstrip(".") for one in results)
    return next((one for one in told if is_telling(one) and not one.startswith("Commit")), "")


def _from_name(title: str) -> str:
    """Return a client's title; a name like `fix-the-login` in words."""
    if pattern("slug").fullmatch(title):
        words = title.replace("-", " ")
        return words[:1].upper() + words[1:]
    return plain_title(title)


def title_from(prompt: str, *, plans_only: bool = False) -> str:
    """Return a title for a prompt: the title of the plan in it, else what it asks for."""
    prompt = prompt.strip()
    has_plan = prompt.startswith("# ") or is_plan(prompt)
    if has_plan and (title := plan_title(prompt)):
        return clip(title, _LONGEST_TITLE)
    if plans_only or pattern("command").fullmatch(prompt):
        return ""
    prompt = plan_text(prompt)
    title = title_of(_own_words(prompt) or prompt)
    # "Check this:" says what to do with what was pasted, which says what it is about.
    return title if is_telling(title) else title_of(prompt) or title


def _request(prompt: str) -> str:
    title = title_from(prompt, plans_only=True)
    text = " ".join(plan_text(prompt).split())
    return f"plan \u201c{title}\u201d" if title else shorten(text, _LONGEST_ASKED)


def _without_frames(text: str, *, tables: bool = False) -> str:
    """Return a text without colors, lines drawn on a screen and, unless wanted, rows of tables."""
    drawn = pattern("line drawn" if tables else "drawn")
    text = pattern("ansi").sub("", text)
    return "\n".join(line for line in text.split("\n") if not drawn.match(line)).strip()


def _with_commits(text: str, commits: list[str]) -> str:
    new = [subject for subject in commits if subject not in text]
    if not new:
        return text
    return f"{text}\n{clip('Committed: ' + '; '.join(new), _LONGEST_COMMITS)}.".strip()
