"""The prompts of a task, a review and a planning run, and the text a session starts with."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from importlib.resources import files
from shlex import quote
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote as quote_url

import msgspec

from ralph.plan.model import Discipline, Feature, PlanView, Task
from ralph.records.iteration import TRUNCATED, Iteration
from ralph.text.outcome import stop
from ralph.text.sanitize import mark, mark_plan, plain_date, sanitize, sanitize_line
from ralph.text.sentences import cut_at_end
from ralph.text.tokens import estimate_tokens, first_tokens

if TYPE_CHECKING:
    from ralph.memory.brief import Brief, FeatureNow, PastSession
    from ralph.memory.compaction import CommandResult, SessionSoFar
    from ralph.memory.lessons import RepeatedError
    from ralph.memory.spoken_rules import PersonsWords
    from ralph.memory.working_commands import KnownCommand
    from ralph.records.note import Note

# -- Everything a prompt is made from. Callers gather it from files and memories.


class KnowledgeFile(msgspec.Struct, frozen=True):
    """A file from `knowledge_paths`, and its text."""

    path: str
    text: str


class PromptLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The budget of a prompt, in tokens."""

    prompt: int = 12000
    requirements: int = 40000
    knowledge_file: int = 2000
    knowledge_excerpt: int = 500
    knowledge_all: int = 4000


class PromptFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The facts for a prompt for one task. `vanished` has a note for each file that is gone.

    `server` is the MCP server whose tools the agent has; without one, the prompt names commands.
    `context` is what helped in other projects, a block that goes into the prompt as it is.
    `ids` are the records that a section comes from.
    """

    feature: Feature
    task: Task
    current_state: str
    discipline: Discipline | None = None
    learnings: tuple[str, ...] = ()
    attempts: tuple[Iteration, ...] = ()
    repeated: tuple[RepeatedError, ...] = ()
    knowledge: tuple[KnowledgeFile, ...] = ()
    vanished: tuple[str, ...] = ()
    context: str = ""
    ids: dict[str, list[str]] = {}
    memory_on: bool = True
    server: str | None = None
    ralph: str = "ralph"


class ReviewFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The facts for a review, besides those about the feature."""

    learnings: tuple[str, ...]
    all_learnings: bool
    flags: tuple[str, ...] = ()


# -- Templates are text files with strict variables: none may be missing, none unused.


Values = dict[str, str]
_VARIABLE = re.compile(r"\{\{ *([a-z_]+) *\}\}")


def render(template: str, /, **values: str) -> str:
    """Return the template's text with its variables filled in."""
    text = _text(template)
    wanted = set(_VARIABLE.findall(text))
    if wanted != values.keys():
        missing = sorted(wanted - values.keys())
        unused = sorted(values.keys() - wanted)
        raise KeyError(f"template {template}: missing {missing}, unused {unused}")
    return _VARIABLE.sub(lambda found: values[found[1]], text).strip() + "\n"


@functools.cache
def _text(name: str) -> str:
    return (files("ralph.prompt") / "templates" / f"{name}.txt").read_text(encoding="utf-8")


# -- Fitting sections into a budget: required sections stay, the others are chosen by worth.


class PromptSection(msgspec.Struct, frozen=True):
    """A part of the prompt. With `worth` 0 it is required; else the smallest numbers come first."""

    name: str
    text: str
    worth: int = 0


class Placed(msgspec.Struct, frozen=True):
    """What became of a section: its tokens, and why it was left out if it was."""

    name: str
    tokens: int
    left_out: str | None = None


class Prompt(msgspec.Struct, frozen=True):
    """The text to send, and how its budget was spent."""

    text: str
    tokens: int
    budget_tokens: int
    sections: tuple[Placed, ...]

    def has(self, name: str) -> bool:
        """Return whether the section is in the prompt."""
        return any(one.name == name and one.left_out is None for one in self.sections)


def fit(sections: Sequence[PromptSection], *, budget_tokens: int) -> Prompt:
    """Join the sections in order; those that do not fit are left out, the least worth first."""
    filled = [section for section in sections if section.text.strip()]
    tokens = {section.name: estimate_tokens(section.text) for section in filled}
    spent = 0
    kept = set[str]()
    for section in sorted(filled, key=lambda one: one.worth):
        if not section.worth or spent + tokens[section.name] <= budget_tokens:
            spent += tokens[section.name]
            kept.add(section.name)
    text = "\n".join(section.text.strip() + "\n" for section in filled if section.name in kept)
    over = f"over the budget of {budget_tokens} tokens"
    placed = tuple(
        Placed(name, count, None if name in kept else over) for name, count in tokens.items()
    )
    return Prompt(text, estimate_tokens(text), budget_tokens, placed)


# The section with other projects' knowledge.
CONTEXT = "context"
_LINE_CHARS = 200
_ATTEMPT_CHARS = 400
_TITLE_CHARS = 80
_FIX_CHARS = 300
_NAME_CHARS = 40
_COMMENTS = 5
_SAMPLE_CHARS = 50_000
_THIN = (
    "Note: the description of this feature is too short to work from (insufficient_context). "
    "Enrich it: `{how}`.\n"
)


def task_prompt(facts: PromptFacts, limits: PromptLimits) -> Prompt:
    """Return the prompt for one iteration of work on one task."""
    return fit(
        [
            PromptSection("discipline", _discipline(facts.discipline)),
            PromptSection("feature", _feature(facts)),
            PromptSection("task", _task(facts.task)),
            PromptSection("report", _report(facts)),
            PromptSection("warnings", _warnings(facts.repeated)),
            PromptSection("memory", _memory(facts), worth=1),
            PromptSection(
                "attempts", _block("attempts", [_attempt(one) for one in facts.attempts]), worth=2
            ),
            PromptSection(CONTEXT, facts.context, worth=3),
            PromptSection("learnings", _block("learnings", facts.learnings), worth=4),
            PromptSection("files", _files(facts.feature, facts.vanished), worth=5),
            PromptSection("knowledge", _knowledge(facts, limits), worth=6),
        ],
        budget_tokens=limits.prompt,
    )


def review_prompt(facts: PromptFacts, review: ReviewFacts, limits: PromptLimits) -> Prompt:
    """Return the prompt for a review of a feature by the stronger model."""
    learnings = mark("\n".join(review.learnings)) if review.learnings else "There are none."
    flags = "\n".join(f"- {sanitize_line(flag)}" for flag in review.flags)
    shared = {
        "which": " (all of them)" if review.all_learnings else " (those not reviewed yet)",
        "flags": f"\n\nWhy the prose may be outdated:\n{mark(flags)}" if flags else "",
        "learnings": learnings,
    }
    name = one_line(facts.feature.name)
    text = _told_by(facts, "review", {"name": name, **shared}, {"name": quote(name), **shared})
    return fit(
        [
            PromptSection("feature", _feature(facts)),
            PromptSection("review", text),
            PromptSection("warnings", _warnings(facts.repeated)),
            PromptSection("memory", _memory(facts, review=True)),
            PromptSection("files", _files(facts.feature, facts.vanished), worth=1),
            PromptSection("knowledge", _knowledge(facts, limits), worth=2),
        ],
        budget_tokens=limits.prompt,
    )


def _discipline(discipline: Discipline | None) -> str:
    if discipline is None:
        return ""
    rules = [sanitize(discipline.system_prompt or "")]
    rules += [f"- {sanitize_line(rule)}" for rule in discipline.conventions]
    rules += [f"- skill: {sanitize_line(skill)}" for skill in discipline.skills]
    return render(
        "discipline",
        name=one_line(discipline.display_name or discipline.name),
        rules=mark_plan("\n".join(filter(None, rules))),
    )


def _feature(facts: PromptFacts) -> str:
    feature = facts.feature
    command = f'{facts.ralph} feature update {quote(one_line(feature.name))} --description "..."'
    enrich = 'update_feature(description="...")' if facts.server else command
    dependencies = "\n".join(f"- {sanitize_line(one)}" for one in feature.dependencies)
    filled = {
        "What it is": _prose(feature.description),
        "Architecture": _prose(feature.architecture),
        "Boundaries": _prose(feature.boundaries),
        "Dependencies": dependencies,
        "Where it stands": sanitize_line(facts.current_state),
    }
    prose = "\n".join(
        render("feature_section", title=title, text=text)
        for title, text in filled.items()
        if text.strip()
    )
    return render(
        "feature",
        name=one_line(feature.display_name or feature.name),
        note=_THIN.format(how=enrich) if feature.is_thin() else "",
        prose=mark(prose) if prose else "",
    )


def one_line(text: str, max_chars: int = _LINE_CHARS) -> str:
    """Return text or a name on one line, sanitized so that it cannot instruct a model (F20).

    A text that is too long is cut where a sentence or a clause ends.
    """
    line = sanitize_line(text)
    if line.endswith(TRUNCATED):
        line = f"{line.removesuffix(TRUNCATED)}\u2026"
    return cut_at_end(line, max_chars)


def _prose(text: str | None) -> str:
    """Return text with every line indented, so that no line looks like one of our headings."""
    lines = sanitize(text or "").splitlines()
    return "\n".join(f"  {line}" if line.strip() else "" for line in lines)


def _told_by(facts: PromptFacts, template: str, tools: Values, commands: Values) -> str:
    """Render the template with the server's tools, or with commands if there is no server."""
    if facts.server:
        return render(f"{template}_tools", server=facts.server, **tools)
    return render(template, ralph=facts.ralph, **commands)


def _task(task: Task) -> str:
    asked = _prose(task.description) if task.description else ""
    if task.acceptance_criteria:
        criteria = "\n".join(f"- {sanitize_line(one)}" for one in task.acceptance_criteria)
        asked += f"\n\nIt is done when:\n{criteria}"
    comments = "\n".join(
        f"- {one_line(one.author or 'somebody', _NAME_CHARS)}: {one_line(one.text, _ATTEMPT_CHARS)}"
        for one in task.comments[-_COMMENTS:]
    )
    return render(
        "task",
        id=one_line(str(task.id)),
        title=one_line(task.title),
        status=task.status,
        asked=f"\n\n{mark_plan(asked)}" if asked else "",
        comments=f"\n\nComments so far:\n{mark(comments)}" if comments else "",
    )


def _block(template: str, lines: Sequence[str]) -> str:
    """Render lines of recalled text in the template, as the variable of its name; "" if none."""
    return render(template, **{template: mark("\n".join(lines))}) if lines else ""


def _warnings(repeated: Sequence[RepeatedError]) -> str:
    lines = [
        f"Warning: this error has occurred in {one.times} previous iterations: {_with_fix(one)}"
        for one in repeated
    ]
    return _block("warnings", lines)


def _with_fix(one: RepeatedError) -> str:
    if not one.fix:
        return one_line(one.message)
    return f"{one_line(one.message)} Fix: {one_line(one.fix, _FIX_CHARS)}"


def _report(facts: PromptFacts) -> str:
    """Return how to report."""
    task = {"id": quote(one_line(str(facts.task.id)))}
    return _told_by(facts, "report", {"ralph": facts.ralph, **task}, task)


def _memory(facts: PromptFacts, *, review: bool = False) -> str:
    """Return how to use memory; "" if memory is off."""
    task = "" if review else f" --task {quote(one_line(str(facts.task.id)))}"
    commands = {"feature": quote(one_line(facts.feature.name)), "task": task}
    return _told_by(facts, "memory", {}, commands) * facts.memory_on


def _attempt(one: Iteration) -> str:
    told = one_line(one.summary, _ATTEMPT_CHARS)
    day = f", {date}" if (date := plain_date(one.timestamp)) else ""
    lines = [f"Iteration {one.iteration_number}{day}: {one.outcome}. {told}".rstrip()]
    for error in one.errors[:3]:
        solved = f" (solved: {one_line(error.resolution, _FIX_CHARS)})" if error.resolution else ""
        lines.append(f"  error: {one_line(error.message)}{solved}")
    return "\n".join(lines)


def _files(feature: Feature, vanished: Sequence[str]) -> str:
    lines = [f"- {sanitize_line(one.path)}" for one in feature.context_files]
    return _block("files", [*lines, *map(sanitize_line, vanished)])


def _knowledge(facts: PromptFacts, limits: PromptLimits) -> str:
    """Show whole files if they are small, else their beginnings, else only their names (F12)."""
    if not facts.knowledge:
        return ""
    sized = [(file, _tokens(file.text)) for file in facts.knowledge]
    parts = [_knowledge_file(file, tokens, limits, facts) for file, tokens in sized]
    text = "\n\n".join(parts)
    if estimate_tokens(text) > limits.knowledge_all:
        names = [f"- {sanitize_line(file.path)} ({tokens} tokens)" for file, tokens in sized]
        text = "Too long to show here; open those you need:\n" + "\n".join(names)
    return render("knowledge", files=mark(text))


def _knowledge_file(
    file: KnowledgeFile, tokens: int, limits: PromptLimits, facts: PromptFacts
) -> str:
    path = sanitize_line(file.path)
    if tokens <= limits.knowledge_file:
        return f"## {path}\n{_prose(file.text.strip())}"
    beginning = first_tokens(file.text, limits.knowledge_excerpt)
    place = path
    if facts.server:  # its files are resources, too
        address = f"feature://{quote_url(facts.feature.name, safe='')}/files/{quote_url(file.path)}"
        place += f", and as the MCP resource {address}"
    return (
        f"## {path} (the first {limits.knowledge_excerpt} of {tokens} tokens)\n"
        f"{_prose(beginning)}\n[...] The rest is in {place}."
    )


def _tokens(text: str) -> int:
    """Return how long a file is; estimate it from its beginning if it is far too long."""
    if len(text) <= _SAMPLE_CHARS:
        return estimate_tokens(text)
    return estimate_tokens(text[:_SAMPLE_CHARS]) * len(text) // _SAMPLE_CHARS


# -- The text a session starts with, and the prompt of a planning run.


_PROSE_CHARS = 200
_STATE_CHARS = 300
_RESULT_CHARS = 180
_NOTE_CHARS = 200
_TASKS = 3
_OUTCOMES = 3
_COMMAND_TOKENS = 80
_MISTAKE_CHARS = 120
_MISTAKE_FIX_CHARS = 200
# For the text around the memory, and for what the client may add.
_SPARE_CHARS = 500


def brief_text(now: Brief, bounds: TextBounds) -> str:
    """Return the text for the model: current work, repeated mistakes, and what was done last."""
    first, *others = now.features or [None]
    tasks = first.tasks[:_TASKS] if first else ()
    told = first.told[: -_OUTCOMES - 1 : -1] if first else ()
    parts = [
        ("What the person decided, in their words:", [_brief_words(one) for one in now.rules]),
        ("Notes:", [_brief_note(one) for one in now.notes]),
        ("Commands that passed here last:", _brief_commands(now.commands)),
        (
            "Mistakes made again and again, and what fixed them:",
            [_brief_mistake(one) for one in now.repeated],
        ),
        ("", _brief_feature(first) if first else []),
        ("Tasks under way:", [_brief_task(task) for task in tasks]),
        (
            "Open ends:",
            [
                *(_brief_words(one) for one in now.put_off),
                *(_brief_failing(one) for one in now.failing),
            ],
        ),
        ("The last iterations, newest first:", [_brief_outcome(one) for one in told]),
        (
            "The last sessions that changed something, newest first:",
            [_brief_session(one) for one in now.sessions],
        ),
        ("", [line for one in others if one for line in _brief_feature(one)[:1]]),
        ("Learned from earlier iterations, to be verified:", first.learnings if first else ()),
    ]
    return framed("brief", parts, bounds)


def compacted_text(so_far: SessionSoFar, now: Brief, bounds: TextBounds) -> tuple[str, list[str]]:
    """Return what a compacted session should know again, and the records that it shows."""
    own = set(so_far.rules)
    rules = [one for one in now.rules if one.text not in own]
    parts = [
        (
            "What the person decided, in their words:",
            [
                *(f'- "{one_line(rule, _NOTE_CHARS)}"' for rule in so_far.rules),
                *(_brief_words(one) for one in rules),
            ],
        ),
        ("Commands of this session, with their last result:", _results(so_far.commands)),
        ("Files changed in this session:", _file_lines(so_far.files)),
        (
            "Open ends:",
            [
                *(f'- "{one_line(end, _NOTE_CHARS)}"' for end in so_far.open_ends),
                *(_brief_words(one) for one in now.put_off),
            ],
        ),
        ("Commands that passed here last:", _brief_commands(now.commands)),
    ]
    text = framed("compacted", parts, bounds)
    return text, [one.id for one in rules if one.id and _brief_words(one) in text]


def _results(commands: Sequence[CommandResult]) -> list[str]:
    lines: list[str] = []
    for one in commands:
        line = f"- {_code(one.command)} {'passed' if one.passed else 'failed'}"
        if one.error:
            line += f": {one_line(one.error, _MISTAKE_CHARS)}"
        lines.append(line)
    return lines


def _file_lines(paths: Sequence[str]) -> list[str]:
    return [f"- {', '.join(map(one_line, paths))}"] if paths else []


def brief_ids(now: Brief, text: str) -> list[str]:
    """Return the ids of the records that this text of a brief shows."""
    lines = [(one.id, _brief_note(one)) for one in now.notes]
    lines += [(one.id, _brief_words(one)) for one in (*now.rules, *now.put_off)]
    lines += [(one.id, _brief_command(one)) for one in now.commands]
    lines += [(one.id, _brief_failing(one)) for one in now.failing]
    lines += [(one.id, _brief_session(one)) for one in now.sessions]
    if now.features:
        first = now.features[0]
        pairs = zip(first.told_ids, first.told, strict=True)
        lines += [(identity, _brief_outcome(one)) for identity, one in pairs]
    return [identity for identity, line in lines if identity and line in text]


def _brief_note(one: Note) -> str:
    return f"- {one_line(one.text, _NOTE_CHARS)} ({one.by}, {day(one.at)})"


def _brief_words(words: PersonsWords) -> str:
    text = one_line(words.text, _NOTE_CHARS).strip(" '\"")
    return f'- {day(words.at)}: "{text}"'


def _brief_mistake(one: RepeatedError) -> str:
    text = f"- {one.times} times: {one_line(one.message, _MISTAKE_CHARS)}"
    return f"{text} Fix: {one_line(one.fix, _MISTAKE_FIX_CHARS)}" if one.fix else text


def _brief_commands(commands: Sequence[KnownCommand]) -> list[str]:
    """Return the lines of the commands that fit into their share of the text."""
    lines: list[str] = []
    tokens = 0
    for one in commands:
        line = _brief_command(one)
        tokens += estimate_tokens(line)
        if tokens > _COMMAND_TOKENS:
            break
        lines.append(line)
    return lines


def _brief_command(one: KnownCommand) -> str:
    return f"- {one.purpose}: {_code(one.command)}"


def _brief_failing(one: KnownCommand) -> str:
    return f"- {_code(one.command)} failed on {day(one.at)}, and has not passed since"


def _code(command: str) -> str:
    return f"`{one_line(command).replace('`', chr(39))}`"


def _brief_feature(now: FeatureNow) -> list[str]:
    head = f"Feature {now.chosen}: {one_line(now.feature.display_name or now.feature.name)}"
    prose = one_line(now.feature.description or "", _PROSE_CHARS)
    lines = [f"{head}. {prose}" if prose else head]
    if now.current_state:
        lines.append(f"State: {one_line(now.current_state, _STATE_CHARS)}")
    return lines


def _brief_session(one: PastSession) -> str:
    text = f"- {day(one.at)}: {one_line(one.title, _TITLE_CHARS)}"
    if one.result:
        text = f"{stop(text.rstrip('. '))} {one_line(one.result, _RESULT_CHARS)}"
    if one.commits:
        subjects = "; ".join(one_line(subject, _TITLE_CHARS) for subject in one.commits)
        text += f" Committed: {subjects}."
    return f"{text} It was not finished." if one.unfinished else text


BriefPart = tuple[str, Sequence[str]]


class TextBounds(NamedTuple):
    """How long a text may be, and how the model calls Ralph."""

    command: str
    budget_tokens: int
    max_chars: int


class TextRoom:
    """The room for a text: what is left of its budget after what stands around it."""

    def __init__(self, template: str, bounds: TextBounds) -> None:
        self._template = template
        self._command = bounds.command
        around = self.render("")
        self._tokens = bounds.budget_tokens - estimate_tokens(around)
        self._chars = bounds.max_chars - len(around) - _SPARE_CHARS

    def take(self, text: str) -> bool:
        """Take the room for these lines; tell whether they fit."""
        tokens = estimate_tokens(text) + 1
        chars = len(text) + 2
        if tokens > self._tokens or chars > self._chars:
            return False
        self._tokens -= tokens
        self._chars -= chars
        return True

    def render(self, memory: str) -> str:
        """Return the text with what stands around it."""
        return render(self._template, memory=mark(memory), command=self._command)


def framed(template: str, parts: Sequence[BriefPart], bounds: TextBounds) -> str:
    """Render as many lines as fit, part by part; a part that is cut leaves room for the next.

    A part is a heading and the lines under it; without lines, the heading is left out, too.
    """
    room = TextRoom(template, bounds)
    kept: list[str] = []
    for heading, lines in parts:
        block: list[str] = []
        for line in lines:
            text = line if block or not heading else f"{heading}\n{line}"
            if not room.take(text):
                break
            block.append(text)
        if block:
            kept.append("\n".join(block))
    return room.render("\n\n".join(kept)) if kept else ""


def day(timestamp: str | None) -> str:
    """Return the date of a moment: it stays true however late the text is read."""
    return plain_date(timestamp) or "an unknown day"


def outcome(one: Iteration) -> str:
    """Return how an iteration ended, if known."""
    return "" if one.outcome == "unknown" else f"{one.outcome}. "


def _brief_task(task: Task) -> str:
    title = one_line(task.title)
    since = f", since {day(task.updated)}" if plain_date(task.updated) else ""
    text = f"- task {one_line(str(task.id))} ({task.status}{since}): {title}"
    if task.comments:
        text += f". Last comment: {one_line(task.comments[-1].text)}"
    return text


def _brief_outcome(one: Iteration) -> str:
    when = f"iteration {one.iteration_number}, {day(one.timestamp)}"
    head = f"{outcome(one)}{one_line(one.task_title, _TITLE_CHARS)}".rstrip(". ")
    result = "" if one.summary == one.task_title else one_line(one.summary, _RESULT_CHARS)
    text = f"- {when}: {'. '.join(filter(None, (head, result)))}"
    if solved := next((error for error in one.errors if error.resolution), None):
        how = one_line(solved.resolution or "", _RESULT_CHARS)
        text += f" [error: {one_line(solved.message, _TITLE_CHARS)}; solved by: {how}]"
    return text


# -- The prompt of a planning run: how to plan, the plan so far, and the requirements.


_TASKS_SHOWN = 200


def braindump_prompt(
    requirements: str,
    view: PlanView,
    limits: PromptLimits,
    *,
    server: str | None,
    ralph: str = "ralph",
) -> Prompt:
    """Return the prompt that turns requirements into features and tasks, by tools or commands."""
    tools = "braindump_tools"
    commands = "braindump_commands"
    how = render(tools, server=server) if server else render(commands, ralph=ralph)
    text = render(
        "braindump",
        how=how.strip(),
        disciplines=_disciplines(view),
        plan=_so_far(view),
        requirements=mark_plan(sanitize(requirements)),
    )
    budget_tokens = limits.prompt + limits.requirements
    return fit([PromptSection("braindump", text)], budget_tokens=budget_tokens)


def _disciplines(view: PlanView) -> str:
    names = ", ".join(one_line(one.name) for one in view.disciplines)
    how = "A discipline says how work of one kind is done; give a task the one that fits"
    return f"{how}: {names}." if names else "The plan has no disciplines: leave `discipline` out."


def _so_far(view: PlanView) -> str:
    """List features and tasks by name; the agent can ask for the rest."""
    if not view.features and not view.tasks:
        return "(empty)"
    described = {f.name: one_line(f.display_name or f.description or "") for f in view.features}
    lines: list[str] = []
    left = _TASKS_SHOWN
    for name in dict.fromkeys([*described, *(task.feature for task in view.tasks)]):
        lines.append(
            f"- {one_line(name)}: {described.get(name, '')[:120] or '(not described yet)'}"
        )
        tasks = [task for task in view.tasks if task.feature == name]
        lines += [
            f"  - task {one_line(str(task.id))} ({task.status}): {one_line(task.title)}"
            for task in tasks[:left]
        ]
        if len(tasks) > left:
            lines.append(f"  - and {len(tasks) - left} more tasks")
        left = max(0, left - len(tasks))
    return mark("\n".join(lines))
