"""What was chosen, and why: in the agent's words, in commit messages and in plans.

A question, a possibility, a quotation or a piece of code is not a decision; better to miss one.
"""

from __future__ import annotations

import re
from itertools import pairwise

from ralph.capture.lines import clip
from ralph.capture.shell import commands
from ralph.records.iteration import Decision

LONGEST = 300
_LONGEST_BODY = 480
_READ = 64_000

_FENCED = re.compile(r"^[ \t>]*(```|~~~).*?(?:^[ \t>]*\1|\Z)", re.M | re.S)
_QUOTED_LINE = re.compile(r"^[ \t]*>.*$", re.M)
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z*`\"(-])|\n+|(?<=\w); (?=I )")
_MARKS = re.compile(r"\*\*|(?<!\w)__|__(?!\w)")
_BULLET = re.compile(r"^\s*(?:[-*+•]|\d+[.)])\s+")
# "**`loadFromFile`** - Now uses": what is spoken of stands before the statement.
_LABEL = re.compile(r"^(?:\*\*|__)[^*_\n]{1,80}(?:\*\*|__):?\s*(?:[-\u2013\u2014:]+\s*)?")

_PEOPLE = r"(?:I|[Ww]e)(?:'ve| have|'m| am|'re| are)?(?: therefore| then| also| now| ultimately)?"
_VERSUS = r"(?:instead of|rather than|in favou?r of|over)"
_APART = r"(?:instead of|rather than|in favou?r of)"
_WHY = (
    r"(?:because|since|so that|so|to avoid|to prevent|to keep|to make|to match|to preserve"
    r"|in order to|due to|given that"
    r"|as (?:it|this|they|we)"
    r"|which (?:\w+ly )?(?:avoids|keeps|prevents|means|handles|makes|allows))"
)
_DO = (
    r"(?:use|using|go with|going with|keep|keeping|stick with|stay with|switch to|replace|store|put"
    r"|implement|make|move|drop|skip|leave|write|build|model|represent|return|pass|handle|split)"
)

_CHOSE = r"(?:decided|chose|chosen|opted|elected|picked|settled on|went with)"
_WILL = r"(?:'ll| will|'m going to| am going to|'re going to)"
_MAYBE_WE = r"(?:I |We |I've |We've |I have |We have )?"
_CHANGED = r"(?:[Rr]eplaced|[Ss]wapped|[Ss]witched|[Mm]igrated)"
_PATTERNS = tuple(
    re.compile(pattern)
    for pattern in (
        r"(?:\*\*|__)?(?:(?:Design|Key|Technical|Architectur\w+|Implementation) )?[Dd]ecision"
        r"(?: \#?\d+)?(?:\*\*|__)?\s*[:\u2014]\s*(?:\*\*|__)?\s*(?P<d>[^\s*].+)$",
        r"(?P<d>(?:\*\*|__)?(?:The )?[Rr]oot cause(?:\*\*|__)?(?: (?:is|was)|:)(?:\*\*|__)?"
        r" .{20,})$",
        rf"(?:.*?\b)?(?P<d>{_PEOPLE} {_CHOSE}\b.+)$",
        r"(?P<d>You(?:'re| are) right\b.{15,})$",
        r"(?P<d>(?:[Dd]ecided (?:to|on|against)|[Oo]pted (?:for|to)|[Ss]ettled on|[Ww]ent with)"
        r" .+)$",
        rf"(?:.*?\b)?(?P<d>(?:I|[Ww]e){_WILL} {_DO}\b.+?\b(?:{_VERSUS}|because|since)\b.+)$",
        rf"(?P<d>(?:I'm |We're |I am )?(?:[Gg]oing|[Ww]ent|[Ss]ticking) with .+? {_VERSUS} .+)$",
        rf"(?P<d>(?:I|[Ww]e)(?:'m|'re| am| are) \w+ing .+? {_APART} .+)$",
        rf"(?P<d>{_MAYBE_WE}{_CHANGED} (?:\w+ ){{0,3}}?(?:.+? )?(?:with|to|by|from) .+)$",
        rf"(?P<d>{_MAYBE_WE}(?:[Cc]hanged|[Mm]oved|[Rr]everted|[Dd]ropped|[Rr]emoved) .+?"
        rf" {_WHY} .+)$",
        rf"(?P<d>{_MAYBE_WE}(?:[Uu]sed|[Uu]sing|[Cc]hose|[Pp]icked|[Kk]ept) .+? {_VERSUS} .+)$",
        r"(?P<d>(?:[Ii]t |[Tt]his )?[Nn]ow (?:uses|returns|passes|reads|runs|calls) .+?"
        rf" {_APART} .+)$",
        rf"(?P<d>(?:To|In order to) .{{5,120}}?,? I(?:'ll| will|'m going to) {_DO}\b.+)$",
    )
)
_UNSURE = re.compile(
    r"\b(?:could|might|may|maybe|perhaps|would|should|whether|if(?![/-])|unless|consider(?:ing)?"
    r"|wonder|not decided|undecided|to be decided|needs? to decide|can decide|let me"
    r"|alternatively|(?:one|another) option|do you|shall)\b|n't decided|\?",
    re.I,
)
_OTHERS = re.compile(
    r"\b(?:says?|said|states?|reads|wrote|documents?|quot\w+|according to|the (?:user|team|author"
    r"|spec|readme|comment|docs?|memory|prompt|(?:previous|earlier) iteration))\b[^.]{0,60}$",
    re.I,
)
# How the agent goes about its work says nothing about the project.
_ABOUT_TOOLS = re.compile(
    r"\b(?:Read|Grep|Glob|Bash|Edit|Write|Task|Search|TodoWrite) tool\b|\b(?:one-liner|heredoc|sed"
    r"|grep|perl|offset and limit|tool call|sub-?agent|a different (?:command|approach))\b",
    re.I,
)
_SPLIT = re.compile(rf",?\s+(?:\u2014 |- )?(?P<why>{_WHY}(?= ).*)$", re.S)
# "decided to keep X because": what was decided, though it looks like a reason.
_CHOSEN = re.compile(rf"\b{_CHOSE}(?: not)?(?: to \w+)?")
_PLAIN_WHY = re.compile(r"^(?:because|since|due to|given that|so that)\s+", re.I)
_CUE = re.compile(
    r"ecision|oot cause|ecided|hose|pted|lected|icked|ettled|ent with|ing with|nstead of"
    r"|ather than|avou?r of| over |eplaced|wapped|witched|igrated|hanged|oved |everted|ropped"
    r"|(?:are|'re) right|because|since| I(?:'ll| will|'m going)"
)


def decisions_in(text: str, *, strict: bool = False) -> list[Decision]:
    """The decisions stated in a text, in order; `strict`: only those that call themselves one."""
    text = text[:_READ]
    if not _CUE.search(text):
        return []
    found: list[Decision] = []
    plain = _QUOTED_LINE.sub("", _FENCED.sub("\n", text))
    for raw in _SENTENCE.split(plain):
        sentence = _BULLET.sub("", raw).strip()
        if not 15 <= len(sentence) <= 1000 or not _CUE.search(sentence):
            continue
        decision = _decision(sentence, strict)
        if decision is None and (label := _LABEL.match(sentence)):
            decision = _decision(sentence[label.end() :], strict)
            if decision:
                subject = label[0].strip(" *_:-\u2013\u2014")
                decision = Decision(f"{subject}: {decision.description}", decision.rationale)
        if decision:
            found.append(decision)
    return found


def _decision(sentence: str, strict: bool) -> Decision | None:
    if _ABOUT_TOOLS.search(sentence):
        return None
    for pattern in _PATTERNS[:3] if strict else _PATTERNS:
        match = pattern.match(sentence)
        if match is None:
            continue
        before = sentence[: match.start("d")]
        if before.count('"') % 2 or before.count("`") % 2 or _OTHERS.search(before):
            return None
        description, rationale = _apart(match["d"])
        # A doubt in the reason is a reason; a doubt in the choice is no choice.
        if "?" in sentence or _UNSURE.search(before) or _UNSURE.search(description):
            return None
        if len(description) < 12:
            return None
        return Decision(description, rationale or None)
    return None


def _apart(said: str) -> tuple[str, str]:
    said = _MARKS.sub("", said).strip().rstrip(".*_ ")
    chosen = _CHOSEN.search(said)
    split = _SPLIT.search(said, max(12, chosen.end() if chosen else 0))
    if split is None:
        return _cut(said), ""
    why = _PLAIN_WHY.sub("", split["why"]).strip()
    return _cut(said[: split.start()].rstrip(" ,")), _cut(why)


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else text[: LONGEST - 1].rstrip() + "\u2026"


# -- Commit messages.


_TRAILER = re.compile(
    r"^(?:[A-Z][A-Za-z]+(?:-[A-Za-z]+)+:\s|Co-authored-by|Signed-off-by|\U0001f916|Generated with)",
    re.M,
)
_COMMITS = re.compile(r"\bgit (?:-C \S+ )?commit\b|\bjj (?:describe|commit)\b")
_HERE = re.compile(r"<<-?\s*(['\"]?)(\w+)\1")
# Keep house; nothing was decided.
_HOUSEKEEPING = re.compile(
    r"(?:\w+(?:\([^)]*\))?!?: )?(?:merge\b|wip\b|release\b|bump\b|version\b"
    r"|update (?:the )?(?:changelog|readme|docs?|version)|address (?:review|comments?|feedback)"
    r"|initial commit|v?\d+\.\d+)",
    re.I,
)


def commit_message(line: str) -> str:
    """The message that a command line commits with, without its trailers; or nothing."""
    if not _COMMITS.search(line):
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
    trailer = _TRAILER.search(message)
    return (message[: trailer.start()] if trailer else message).strip()


def _here_document(line: str) -> str:
    """The text of a heredoc or of PowerShell's here-string that a commit takes."""
    at = _COMMITS.search(line)
    rest = line[at.end() :] if at else ""
    if "@'\n" in rest.replace("\r", ""):
        rest = rest.replace("\r", "")
        return rest[rest.index("@'\n") + 3 :].partition("\n'@")[0]
    if opened := _HERE.search(rest):
        body = rest[opened.end() :].partition("\n")[2]
        return body.partition(f"\n{opened[2]}")[0] if body else ""
    return ""


def committed(message: str) -> Decision | None:
    """What a commit decided: its subject, and the part of its body that says why."""
    subject, _, body = message.partition("\n")
    subject, body = subject.strip(), body.strip()
    if len(subject) < 15 or (_HOUSEKEEPING.match(subject) and not body):
        return None
    return Decision(_cut(subject), clip(_reasons(body), _LONGEST_BODY) or None)


_REASON = re.compile(
    rf"\b(?:{_WHY}|{_APART}|leak\w*|broke\w*|caus\w+|prevent\w*|fail\w*|without|no longer"
    r"|previously|only|never|always|must|ensure\w*)\b",
    re.I,
)


def _reasons(body: str) -> str:
    """A commit's body; of a long one the sentences that say why, else its first."""
    if not body:
        return ""
    plain = " ".join(line.strip() for line in body.split("\n") if line.strip())
    if len(plain) <= _LONGEST_BODY:
        return plain
    told = re.split(r"(?<=[.!])\s+(?=[A-Z`-])", plain)
    reasons = [one for one in told if _REASON.search(one)] or told[:1]
    return " ".join(reasons)


# -- Plans.


BOILERPLATE = "Implement the following plan:"
_PLAN_ENDS = (
    "If you need specific details from before exiting plan mode",
    "You can refer back to it if needed during implementation.",
)
_TITLE = re.compile(r"^#{1,3} (?:Plan:\s*|Fix:\s*(?=\S))?(?P<t>.+)$", re.M)
_SECTION = re.compile(r"^#{1,4} (?P<t>.+)$", re.M)
_ABOUT_WHY = re.compile(r"root cause|problem|context|why|motivation|goal", re.I)
_ABOUT_HOW = re.compile(
    r"approach|solution|fix|change|design|implementation|decision|strategy", re.I
)


def plan_text(text: str) -> str:
    """A plan without what the client wrote before and after it."""
    for end in _PLAN_ENDS:
        text = text.partition(end)[0]
    return text.strip().removeprefix(BOILERPLATE).strip()


def plan_title(text: str) -> str:
    """What a plan is called, or nothing."""
    found = _TITLE.search(plan_text(text)[:2000])
    return found["t"].strip(" #*") if found else ""


def planned(text: str) -> Decision | None:
    """The decision that an accepted plan is: its title, why, and what it does."""
    plan = plan_text(text)
    title = plan_title(plan)
    if not title:
        return None
    parts = _SECTION.split(plan[:_READ])[1:]
    sections = [pair for pair in zip(parts[::2], parts[1::2], strict=False) if title not in pair[0]]
    how = [_gist(body) for head, body in sections if _ABOUT_HOW.search(head)]
    steps = [head for head, _ in sections if re.match(r"(?:Step |Change |Fix |Part )?\d", head)]
    why = [_gist(body) for head, body in sections if _ABOUT_WHY.search(head)]
    told = [*why[-1:], *how[:2], "; ".join(steps[:4])]
    whole = " ".join(dict.fromkeys(one for one in told if one))
    return Decision(_cut(f"Accepted plan: {title}"), clip(whole, _LONGEST_BODY) or None, "human")


def _gist(body: str) -> str:
    """The first sentence of a section, on one line."""
    plain = _FENCED.sub("\n", body).strip()
    first = re.split(r"\n\s*\n", plain, maxsplit=1)[0]
    text = " ".join(re.sub(r"\*\*|^\s*(?:[-*]|\d+\.) ", "", first, flags=re.M).split())
    return clip(text, 200)
