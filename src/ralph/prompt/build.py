"""The prompt of a task: its sections, in order, within a budget of tokens."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from importlib.resources import files
from shlex import quote

import msgspec

from ralph.plan.model import Comment, Discipline, Feature, Task
from ralph.records.iteration import Iteration, cut
from ralph.text.marks import mark, mark_plan
from ralph.text.sanitize import plain_date, sanitize, sanitize_line
from ralph.text.tokens import estimate_tokens, first_tokens

# -- Everything a prompt is made from, gathered by whoever may read files and ask memories.


class KnowledgeFile(msgspec.Struct, frozen=True):
    """A file behind `knowledge_paths`, as it was found."""

    path: str
    text: str


class RepeatedError(msgspec.Struct, frozen=True):
    """An error that earlier iterations met, and in how many of them."""

    message: str
    iterations: int


class PromptLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The budget of a prompt, in tokens."""

    prompt: int = 12000
    requirements: int = 40000
    knowledge_file: int = 2000
    knowledge_excerpt: int = 500
    knowledge_all: int = 4000


class PromptFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What is known when a prompt for one task is built. `vanished`: a note for each lost file.

    `server` is the MCP server whose tools the agent has; without one it is told commands.
    `context` is what helped in other projects, a block that goes into the prompt as it is.
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
    memory_on: bool = True
    server: str | None = None
    ralph: str = "ralph"


class ReviewFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a reviewer is given besides the feature."""

    learnings: tuple[str, ...]
    all_learnings: bool
    flags: tuple[str, ...] = ()


# -- Templates are text files with strict variables: none may be missing, none unused.


_VARIABLE = re.compile(r"\{\{ *([a-z_]+) *\}\}")


def render(template: str, /, **values: str) -> str:
    """The template's text with its variables filled in."""
    text = _text(template)
    wanted = set(_VARIABLE.findall(text))
    if wanted != values.keys():
        missing, unused = sorted(wanted - values.keys()), sorted(values.keys() - wanted)
        raise KeyError(f"template {template}: missing {missing}, unused {unused}")
    return _VARIABLE.sub(lambda found: values[found[1]], text).strip() + "\n"


@functools.cache
def _text(name: str) -> str:
    return (files("ralph.prompt") / "templates" / f"{name}.txt").read_text(encoding="utf-8")


# -- Fitting sections into a budget: what must be there stays, the rest goes by what it is worth.


class PromptSection(msgspec.Struct, frozen=True):
    """A part of the prompt. `worth` 0 must be there; of the others the smallest number stays."""

    name: str
    text: str
    worth: int = 0


class Placed(msgspec.Struct, frozen=True):
    """What became of a section: its tokens, and why it is not there if it is not."""

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
        """Whether the section found room."""
        return any(one.name == name and one.left_out is None for one in self.sections)


def fit(sections: Sequence[PromptSection], *, budget_tokens: int) -> Prompt:
    """The sections in their order; those that do not fit are left out, the least worth first."""
    filled = [section for section in sections if section.text.strip()]
    tokens = {section.name: estimate_tokens(section.text) for section in filled}
    spent = sum(tokens[section.name] for section in filled if section.worth == 0)
    kept = {section.name for section in filled if section.worth == 0}
    for section in sorted(filled, key=lambda one: one.worth):
        if section.worth and spent + tokens[section.name] <= budget_tokens:
            spent += tokens[section.name]
            kept.add(section.name)
    text = "\n".join(section.text.strip() + "\n" for section in filled if section.name in kept)
    placed = tuple(
        Placed(
            section.name,
            tokens[section.name],
            None if section.name in kept else f"over the budget of {budget_tokens} tokens",
        )
        for section in filled
    )
    return Prompt(text, estimate_tokens(text), budget_tokens, placed)


# The section of other projects' knowledge.
CONTEXT = "context"
_NOTHING = "(not written down yet)"
_ATTEMPT_CHARS = 400
_ERROR_CHARS = 200
_NAME_CHARS = 40
_TITLE_CHARS = 200
_COMMENTS = 5
_SAMPLE_CHARS = 50_000
_THIN = (
    "Note: the description of this feature is too short to work from (insufficient_context). "
    "Enrich it: `{how}`.\n"
)


def task_prompt(facts: PromptFacts, limits: PromptLimits) -> Prompt:
    """The prompt for one iteration of work on one task."""
    return fit(
        [
            PromptSection("discipline", _discipline(facts.discipline)),
            PromptSection("feature", _feature(facts)),
            PromptSection("task", _task(facts.task)),
            PromptSection("report", _report(facts)),
            PromptSection("warnings", _warnings(facts.repeated)),
            PromptSection("memory", _memory(facts), worth=1),
            PromptSection("attempts", _attempts(facts.attempts), worth=2),
            PromptSection(CONTEXT, facts.context, worth=3),
            PromptSection("learnings", _learnings(facts.learnings), worth=4),
            PromptSection("files", _files(facts.feature, facts.vanished), worth=5),
            PromptSection("knowledge", _knowledge(facts.knowledge, limits), worth=6),
        ],
        budget_tokens=limits.prompt,
    )


def review_prompt(facts: PromptFacts, review: ReviewFacts, limits: PromptLimits) -> Prompt:
    """The prompt for a review of a feature by the stronger model."""
    learnings = mark("\n".join(review.learnings)) if review.learnings else "There are none."
    flags = "\n".join(f"- {sanitize_line(flag)}" for flag in review.flags)
    by_tools = {"name": name_of(facts.feature.name), "server": facts.server or ""}
    by_commands = {"name": quote(name_of(facts.feature.name)), "ralph": facts.ralph}
    text = render(
        "review_tools" if facts.server else "review",
        **(by_tools if facts.server else by_commands),
        which=" (all of them)" if review.all_learnings else " (those not reviewed yet)",
        flags=f"\n\nWhy the prose may be outdated:\n{mark(flags)}" if flags else "",
        learnings=learnings,
    )
    return fit(
        [
            PromptSection("feature", _feature(facts)),
            PromptSection("review", text),
            PromptSection("warnings", _warnings(facts.repeated)),
            PromptSection("files", _files(facts.feature, facts.vanished), worth=1),
            PromptSection("knowledge", _knowledge(facts.knowledge, limits), worth=2),
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
        name=name_of(discipline.display_name or discipline.name),
        rules=mark_plan("\n".join(filter(None, rules))),
    )


def _feature(facts: PromptFacts) -> str:
    feature = facts.feature
    command = f'{facts.ralph} feature update {quote(name_of(feature.name))} --description "..."'
    enrich = 'update_feature(description="...")' if facts.server else command
    prose = render(
        "feature_prose",
        description=_prose(feature.description),
        architecture=_prose(feature.architecture),
        boundaries=_prose(feature.boundaries),
        dependencies="\n".join(f"- {sanitize_line(one)}" for one in feature.dependencies)
        or "(none)",
        current_state=sanitize_line(facts.current_state),
    )
    return render(
        "feature",
        name=name_of(feature.display_name or feature.name),
        note=_THIN.format(how=enrich) if feature.is_thin() else "",
        prose=mark(prose),
    )


def name_of(text: str) -> str:
    """A name as it may stand outside of marks: short, on one line, and no order."""
    return cut(sanitize_line(text), _TITLE_CHARS)


def _prose(text: str | None) -> str:
    """What somebody wrote, every line indented: no line of it looks like a heading of ours."""
    lines = sanitize(text or _NOTHING).splitlines()
    return "\n".join(f"  {line}" if line.strip() else "" for line in lines)


def _report(facts: PromptFacts) -> str:
    """How to report: by the tool of the server, or by a command where there is none."""
    task = {"ralph": facts.ralph, "id": quote(name_of(str(facts.task.id)))}
    if facts.server:
        return render("report_tools", server=facts.server, **task)
    return render("report", **task)


def _task(task: Task) -> str:
    asked = _prose(task.description) if task.description else ""
    if task.acceptance_criteria:
        criteria = "\n".join(f"- {sanitize_line(one)}" for one in task.acceptance_criteria)
        asked += f"\n\nIt is done when:\n{criteria}"
    comments = "\n".join(f"- {_comment(one)}" for one in task.comments[-_COMMENTS:])
    return render(
        "task",
        id=name_of(str(task.id)),
        title=name_of(task.title),
        status=task.status,
        asked=f"\n\n{mark_plan(asked)}" if asked else "",
        comments=f"\n\nComments so far:\n{mark(comments)}" if comments else "",
    )


def _comment(one: Comment) -> str:
    who = _harmless(one.author or "somebody", _NAME_CHARS)
    return f"{who}: {_harmless(one.text, _ATTEMPT_CHARS)}"


def _warnings(repeated: Sequence[RepeatedError]) -> str:
    if not repeated:
        return ""
    lines = [
        f"Warning: this error has occurred in {one.iterations} previous iterations: "
        f"{_harmless(one.message, _ERROR_CHARS)}"
        for one in repeated
    ]
    return render("warnings", warnings=mark("\n".join(lines)))


def _memory(facts: PromptFacts) -> str:
    """How to use memory, or not a word of it."""
    if not facts.memory_on:
        return ""
    if facts.server:
        return render("memory_tools", server=facts.server)
    return render(
        "memory",
        ralph=facts.ralph,
        feature=quote(name_of(facts.feature.name)),
        task=quote(name_of(str(facts.task.id))),
    )


def _attempts(attempts: Sequence[Iteration]) -> str:
    if not attempts:
        return ""
    return render("attempts", attempts=mark("\n".join(_attempt(one) for one in attempts)))


def _attempt(one: Iteration) -> str:
    told = _harmless(one.summary, _ATTEMPT_CHARS)
    day = f", {date}" if (date := plain_date(one.timestamp)) else ""
    lines = [f"Iteration {one.iteration_number}{day}: {one.outcome}. {told}".rstrip()]
    lines += [f"  error: {_harmless(error.message, _ERROR_CHARS)}" for error in one.errors[:3]]
    return "\n".join(lines)


def _harmless(text: str, max_chars: int) -> str:
    """Recalled text on one line, with every attempt to instruct broken (F20)."""
    return cut(sanitize_line(text), max_chars)


def _learnings(learnings: Sequence[str]) -> str:
    if not learnings:
        return ""
    return render("learnings", learnings=mark("\n".join(learnings)))


def _files(feature: Feature, vanished: Sequence[str]) -> str:
    lines = [f"- {sanitize_line(one.path)}" for one in feature.context_files]
    lines += map(sanitize_line, vanished)
    return render("files", files=mark("\n".join(lines))) if lines else ""


def _knowledge(files: Sequence[KnowledgeFile], limits: PromptLimits) -> str:
    """Whole files while they are small; then their beginnings; then only their names (F12)."""
    if not files:
        return ""
    sizes = [_tokens(file.text) for file in files]
    sized = list(zip(files, sizes, strict=True))
    text = "\n\n".join(_knowledge_file(file, tokens, limits) for file, tokens in sized)
    if estimate_tokens(text) > limits.knowledge_all:
        names = [f"- {sanitize_line(file.path)} ({tokens} tokens)" for file, tokens in sized]
        text = "Too long to show here; open those you need:\n" + "\n".join(names)
    return render("knowledge", files=mark(text))


def _knowledge_file(file: KnowledgeFile, tokens: int, limits: PromptLimits) -> str:
    path = sanitize_line(file.path)
    if tokens <= limits.knowledge_file:
        return f"## {path}\n{_prose(file.text.strip())}"
    beginning = first_tokens(file.text, limits.knowledge_excerpt)
    return (
        f"## {path} (the first {limits.knowledge_excerpt} of {tokens} tokens)\n"
        f"{_prose(beginning)}\n[...] The rest is in {path}."
    )


def _tokens(text: str) -> int:
    """How long a file is; of one that is far too long, by its beginning."""
    if len(text) <= _SAMPLE_CHARS:
        return estimate_tokens(text)
    return estimate_tokens(text[:_SAMPLE_CHARS]) * len(text) // _SAMPLE_CHARS
