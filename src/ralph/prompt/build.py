"""The sections of a prompt, in the order a reader needs them."""

from __future__ import annotations

from collections.abc import Sequence
from shlex import quote

from ralph.kinds.iteration import Iteration, cut
from ralph.plan.values import Comment, Discipline, Feature, Task
from ralph.prompt.budget import Prompt, Section, fit
from ralph.prompt.facts import Facts, KnowledgeFile, Limits, RepeatedError, ReviewFacts
from ralph.prompt.template import render
from ralph.text.estimate import estimate_tokens, first_tokens
from ralph.text.marks import mark
from ralph.text.sanitise import sanitised_line

# The section of other projects' knowledge.
CONTEXT = "context"
_NOTHING = "(not written down yet)"
_ATTEMPT_CHARS = 400
_ERROR_CHARS = 200
_NAME_CHARS = 40
_COMMENTS = 5
_SAMPLE_CHARS = 50_000
_THIN = (
    "Note: the description of this feature is too short to work from (insufficient_context). "
    "Enrich it: `{how}`.\n"
)


def task_prompt(facts: Facts, limits: Limits) -> Prompt:
    """The prompt for one iteration of work on one task."""
    return fit(
        [
            Section("discipline", _discipline(facts.discipline)),
            Section("feature", _feature(facts)),
            Section("task", _task(facts.task)),
            Section("report", _report(facts)),
            Section("warnings", _warnings(facts.repeated)),
            Section("memory", _memory(facts), worth=1),
            Section("attempts", _attempts(facts.attempts), worth=2),
            Section(CONTEXT, facts.context, worth=3),
            Section("learnings", _learnings(facts.learnings), worth=4),
            Section("files", _files(facts.feature, facts.vanished), worth=5),
            Section("knowledge", _knowledge(facts.knowledge, limits), worth=6),
        ],
        budget_tokens=limits.prompt,
    )


def review_prompt(facts: Facts, review: ReviewFacts, limits: Limits) -> Prompt:
    """The prompt for a review of a feature by the stronger model."""
    learnings = mark("\n".join(review.learnings)) if review.learnings else "There are none."
    flags = "\n".join(f"- {flag}" for flag in review.flags)
    by_tools = {"name": facts.feature.name, "server": facts.server or ""}
    by_commands = {"name": quote(facts.feature.name), "ralph": facts.ralph}
    text = render(
        "review_tools" if facts.server else "review",
        **(by_tools if facts.server else by_commands),
        which=" (all of them)" if review.all_learnings else " (those not reviewed yet)",
        flags=f"\n\n{flags}" if flags else "",
        learnings=learnings,
    )
    return fit(
        [
            Section("feature", _feature(facts)),
            Section("review", text),
            Section("warnings", _warnings(facts.repeated)),
            Section("files", _files(facts.feature, facts.vanished), worth=1),
            Section("knowledge", _knowledge(facts.knowledge, limits), worth=2),
        ],
        budget_tokens=limits.prompt,
    )


def _discipline(discipline: Discipline | None) -> str:
    if discipline is None:
        return ""
    rules = [f"- {rule}" for rule in discipline.conventions]
    rules += [f"- skill: {skill}" for skill in discipline.skills]
    return render(
        "discipline",
        name=discipline.display_name or discipline.name,
        system_prompt=discipline.system_prompt or "",
        conventions="\n".join(rules),
    )


def _feature(facts: Facts) -> str:
    feature = facts.feature
    command = f'{facts.ralph} feature update {quote(feature.name)} --description "..."'
    enrich = 'update_feature(description="...")' if facts.server else command
    return render(
        "feature",
        name=feature.display_name or feature.name,
        note=_THIN.format(how=enrich) if feature.is_thin() else "",
        description=feature.description or _NOTHING,
        architecture=feature.architecture or _NOTHING,
        boundaries=feature.boundaries or _NOTHING,
        dependencies="\n".join(f"- {one}" for one in feature.dependencies) or "(none)",
        current_state=facts.current_state,
    )


def _report(facts: Facts) -> str:
    """How to report: by the tool of the server, or by a command where there is none."""
    task = {"ralph": facts.ralph, "id": quote(str(facts.task.id))}
    if facts.server:
        return render("report_tools", server=facts.server, **task)
    return render("report", **task)


def _task(task: Task) -> str:
    criteria = "\n".join(f"- {one}" for one in task.acceptance_criteria)
    comments = "\n".join(f"- {_comment(one)}" for one in task.comments[-_COMMENTS:])
    return render(
        "task",
        id=str(task.id),
        title=task.title,
        status=task.status,
        description=f"\n\n{task.description}" if task.description else "",
        acceptance=f"\n\nIt is done when:\n{criteria}" if criteria else "",
        comments=f"\n\nComments so far:\n{comments}" if comments else "",
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


def _memory(facts: Facts) -> str:
    """How to use memory, or not a word of it."""
    if not facts.memory_on:
        return ""
    if facts.server:
        return render("memory_tools", server=facts.server)
    return render(
        "memory",
        ralph=facts.ralph,
        feature=quote(facts.feature.name),
        task=quote(str(facts.task.id)),
    )


def _attempts(attempts: Sequence[Iteration]) -> str:
    if not attempts:
        return ""
    return render("attempts", attempts=mark("\n".join(_attempt(one) for one in attempts)))


def _attempt(one: Iteration) -> str:
    told = _harmless(one.summary, _ATTEMPT_CHARS)
    day = f", {one.timestamp[:10]}" if one.timestamp else ""
    lines = [f"Iteration {one.iteration_number}{day}: {one.outcome}. {told}".rstrip()]
    lines += [f"  error: {_harmless(error.message, _ERROR_CHARS)}" for error in one.errors[:3]]
    return "\n".join(lines)


def _harmless(text: str, max_chars: int) -> str:
    """Recalled text on one line, with every attempt to instruct broken (F20)."""
    return cut(sanitised_line(text), max_chars)


def _learnings(learnings: Sequence[str]) -> str:
    if not learnings:
        return ""
    return render("learnings", learnings=mark("\n".join(learnings)))


def _files(feature: Feature, vanished: Sequence[str]) -> str:
    lines = [f"- {one.path}" for one in feature.context_files]
    lines += vanished
    return render("files", files="\n".join(lines)) if lines else ""


def _knowledge(files: Sequence[KnowledgeFile], limits: Limits) -> str:
    """Whole files while they are small; then their beginnings; then only their names (F12)."""
    if not files:
        return ""
    sizes = [_tokens(file.text) for file in files]
    sized = list(zip(files, sizes, strict=True))
    text = "\n\n".join(_knowledge_file(file, tokens, limits) for file, tokens in sized)
    if estimate_tokens(text) > limits.knowledge_all:
        names = [f"- {file.path} ({tokens} tokens)" for file, tokens in sized]
        text = "Too long to show here; open those you need:\n" + "\n".join(names)
    return render("knowledge", files=text)


def _knowledge_file(file: KnowledgeFile, tokens: int, limits: Limits) -> str:
    if tokens <= limits.knowledge_file:
        return f"## {file.path}\n{file.text.strip()}"
    beginning = first_tokens(file.text, limits.knowledge_excerpt)
    return (
        f"## {file.path} (the first {limits.knowledge_excerpt} of {tokens} tokens)\n{beginning}\n"
        f"[...] The rest is in {file.path}."
    )


def _tokens(text: str) -> int:
    """How long a file is; of one that is far too long, by its beginning."""
    if len(text) <= _SAMPLE_CHARS:
        return estimate_tokens(text)
    return estimate_tokens(text[:_SAMPLE_CHARS]) * len(text) // _SAMPLE_CHARS
