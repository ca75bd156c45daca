"""`ralph feature`, `task`, `discipline` and `learning`: manage the entries of the plan."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, cast

import click

from ralph.config import home_folder
from ralph.current_run import current_run
from ralph.doors.cli import context
from ralph.doors.cli.cards import minute
from ralph.doors.cli.main import Group
from ralph.doors.cli.render import Page, Result, Table, excerpt, note, picked, plain
from ralph.errors import BadInput, MemoryOff
from ralph.memory.project import trust_servers
from ralph.plan import edit, learnings, task_run
from ralph.plan.fields import clean_status
from ralph.plan.model import Comment, Discipline, Feature, Kind, PlanView, Task
from ralph.plan.store import Plan
from ralph.records.learning import Learning
from ralph.text.tokens import plural

_TITLE_CHARS = 70
_PROBLEMS_TOLD = 3
_STATUSES = "pending (default), in_progress, blocked, done, skipped."


# -- the table


def _list_option(
    name: str, help: str, field: str, metavar: str = "TEXT", completes: Kind | None = None
) -> context.Decorator:
    """Define a repeatable option whose values replace a list."""
    help = f"{help} Repeatable; the values replace the list."
    complete = context.completing(completes) if completes else None
    return context.option(name, help, metavar, field, multiple=True, shell_complete=complete)


class PlanCommands(NamedTuple):
    """The commands for one kind of entry: its options, its texts, and steps of its own."""

    word: str
    examples: tuple[str, str]  # arguments of `add` and of `update`
    fields: Sequence[context.Decorator]
    label: Callable[[Any], str] = lambda entry: str(entry.name)
    value: Callable[[Plan, Any], Any] = lambda plan, entry: plain(entry)  # as JSON
    required: Sequence[str] = ("name",)  # arguments of `create_*` before the patch
    add_arguments: Sequence[context.Decorator] = (click.argument("name"),)
    update_options: Sequence[context.Decorator] = ()
    texts: Callable[[Any], dict[str, list[str]]] = lambda entry: {}  # lists, as text for people
    clean: Callable[[dict[str, Any]], None] = lambda patch: None
    history: Callable[[Any], dict[str, Any]] = lambda entry: {}  # what `show` adds from memory
    update: Callable[..., Any] | None = None
    check_agent: Callable[[Plan, str, dict[str, Any]], None] = lambda plan, key, patch: None
    after: Callable[[Any, dict[str, Any]], None] = lambda entry, patch: None
    delete: Callable[[str], str] = lambda key: ""
    delete_help: str = ""

    def group(self) -> Group:
        """Create the command group with add, show, update and delete."""
        word = self.word
        group = Group(word, help=f"Add, show and change {word}s of the plan.")
        kind = cast("Kind", f"{word}s")
        metavar = "ID" if word == "task" else "NAME"
        key = click.argument("key", metavar=metavar, shell_complete=context.completing(kind))
        examples = [
            f"\n\n\b\nExamples:\n  ralph {word} {verb} {arguments}"
            for verb, arguments in zip(("add", "update"), self.examples, strict=True)
        ]

        @group.command("add", help=f"Add a {word}.{examples[0]}")
        @context.options(*self.add_arguments)
        @context.options(*self.fields)
        def add(**given: Any) -> Result:
            plan = context.the_plan()
            required = [given.pop(name) for name in self.required]
            patch = context.patch_from(given)
            self.clean(patch)
            if current_run() is not None and patch.get("context_files"):
                patch["context_files"] = task_run.files_of_agent(
                    Feature(name=""), patch["context_files"]
                )
            new: Any = plan.edits.create(kind, *required, patch)
            self.after(new, patch)
            return Result(self.value(plan, new), f"Added {word} {self.label(new)}.")

        @group.command("show", help=f"Show one {word}.")
        @key
        def show(key: str) -> Result:
            plan = context.the_plan()
            entry = getattr(plan, word)(key)
            _tell_problems(plan, kind)
            value = self.value(plan, entry) | self.history(entry)
            names = [name for name in ("created", "updated", "completed") if value.get(name)]
            times = {name: minute(value[name]) for name in names}
            return Result(value, lambda page: page.fields(value | times | self.texts(entry)))

        @group.command("update", help=f"Change only the fields that are given.{examples[1]}")
        @key
        @context.options(*self.update_options)
        @context.options(*self.fields)
        @context.option("--clear", "Make this field empty. Repeatable.", "FIELD", multiple=True)
        def update(key: str, clear: tuple[str, ...], **given: Any) -> Result:
            plan = context.the_plan()
            patch = context.patch_from(given, clear)
            self.clean(patch)
            more = self.update(plan, key, patch) if self.update else {}
            self.check_agent(plan, key, patch)
            if not patch and not more:
                todo = f"See: ralph {word} update --help"
                raise BadInput("there is nothing to change", todo=todo)
            changed: Any = plan.edits.update(kind, key, patch, **more)
            self.after(changed, patch)
            names = ", ".join([*patch, *(name for name in more if name == "comment")])
            text = f"Changed {word} {self.label(changed)}: {names}."
            return Result(self.value(plan, changed), text)

        @group.command("delete", help=f"Delete a {word} from the plan.{self.delete_help}")
        @key
        def delete(key: str) -> Result:
            plan = context.the_plan()
            task = plan.task(key) if word == "task" else None
            identity = task.id if task else key
            plan.edits.delete(kind, identity)
            title = f": {task.title}" if task else "."
            text = f"Deleted {word} {identity}{title}{self.delete(key)}"
            return Result({"deleted": identity}, text)

        return group


def _tell_problems(plan: Plan, *kinds: Kind) -> None:
    """Say what in these files could not be read, so that nothing is left out silently (F36)."""
    problems = plan.errors(*kinds)
    for problem in problems[:_PROBLEMS_TOLD]:
        note(str(problem))
    if len(problems) > _PROBLEMS_TOLD:
        note(f"and {len(problems) - _PROBLEMS_TOLD} more: ralph plan check")


# -- features


def _feature_json(view: PlanView, feature: Feature) -> dict[str, Any]:
    learnings = [learning_json(learning) for learning in feature.learnings]
    state = view.current_state(feature.name)
    return {**plain(feature), "learnings": learnings, "current_state": state}


def _sized(path: str) -> str:
    """Return a knowledge file's path with its size, as a prompt counts it (F12)."""
    if context.on_server() is not None:
        return path
    tokens = edit.file_tokens(context.the_project().root, path)
    return f"{path} [missing]" if tokens is None else f"{path} [{plural(tokens, 'token')}]"


def _feature_texts(feature: Feature) -> dict[str, list[str]]:
    files = [
        f"{file.path} [{file.source}"
        + (f", touched {plural(file.touch_count, 'time')}]" if file.touch_count else "]")
        for file in feature.context_files
    ]
    lessons = [f"{each.id} {each.text} {each.provenance}" for each in feature.learnings]
    knowledge = [_sized(path) for path in feature.knowledge_paths]
    return {"context_files": files, "knowledge_paths": knowledge, "learnings": lessons}


def _feature_history(feature: Feature) -> dict[str, Any]:
    """Return what the work has cost so far; empty in a run, which sees only its own feature."""
    if current_run() is not None or context.on_server() is not None:
        return {}
    from ralph.memory.stats import feature_usage

    try:
        with context.opened(anywhere=False) as ralph:
            used = feature_usage(ralph, feature.name)
    except MemoryOff as error:  # the plan works without memory
        note(f"its iterations are not counted: {error}")
        return {}
    return picked(used, "iterations", "success_rate", "cost_usd", "tokens_used")


def _verify(plan: Plan, name: str, patch: dict[str, Any]) -> dict[str, Any]:
    """Apply `--verified`, as the number of the last iteration, and added or removed files."""
    added = patch.pop("more_files", [])
    removed = patch.pop("fewer_files", [])
    if added or removed:
        files = [file.path for file in plan.feature(name).context_files]
        patch["context_files"] = [*(path for path in files if path not in removed), *added]
    if patch.pop("verified"):
        if "last_verified" in patch:
            raise BadInput("last_verified cannot be set and cleared at once")
        plan.feature(name)
        patch["last_verified"] = context.last_iteration(name)
    return {}


def _check_agents_feature(plan: Plan, name: str, patch: dict[str, Any]) -> None:
    """Refuse what the agent of a run may not change in its feature."""
    if (run := current_run()) is None:
        return
    entry = plan.feature(name)
    if run.on_task:
        if "last_verified" in patch:
            raise BadInput(
                "an agent that works on a task may not mark the prose as verified",
                todo="A review run or a person can do it.",
            )
        task_run.check_feature_patch(entry, patch)
    if "context_files" in patch:
        paths = patch["context_files"] or []
        patch["context_files"] = task_run.files_of_agent(entry, paths)


def _drop_index(name: str) -> str:
    with context.opened(anywhere=False) as ralph:
        try:
            if not ralph.feature(name).drop_index():
                return ""  # the server manages its own index
        except MemoryOff as error:  # the plan works without memory
            note(f"its collection is still in the index: {error}")
    return " Its index is deleted too; its journal stays."


feature = PlanCommands(
    word="feature",
    examples=(
        'user-login --description "Sign in with a password."',
        "user-login --boundaries 'No changes to the database.' --clear acronym",
    ),
    fields=(
        context.option("--display-name", "The name people read."),
        context.option("--acronym", "A short name for it."),
        context.option("--description", "What it is and why."),
        context.option("--architecture", "How it is built."),
        context.option("--boundaries", "What it must not do or touch."),
        _list_option("--dependency", "What it builds on.", "dependencies"),
        _list_option("--knowledge-path", "A file to quote.", "knowledge_paths", "PATH"),
        _list_option("--context-file", "A file to open first.", "context_files", "PATH"),
    ),
    value=lambda plan, feature: _feature_json(plan.read("tasks"), feature),
    update_options=[
        context.flag("--verified", "Its text was compared with the code just now."),
        context.option("--add-context-file", "Repeatable.", "PATH", "more_files", multiple=True),
        context.option(
            "--remove-context-file", "Repeatable.", "PATH", "fewer_files", multiple=True
        ),
    ],
    texts=_feature_texts,
    history=_feature_history,
    update=_verify,
    check_agent=_check_agents_feature,
    delete=_drop_index,
    delete_help=" Its collection is deleted from the index.\n\nA feature that has tasks is not"
    " deleted. Its journal stays; `ralph forget --feature NAME` deletes that too.",
).group()


@feature.command("list")
def list_features() -> Result:
    """List the features and their progress."""
    plan = context.the_plan()
    _tell_problems(plan, "features", "tasks")
    view = plan.read()
    value = [_feature_json(view, feature) for feature in view.features]
    rows = [_feature_row(view, feature) for feature in view.features]
    empty = "The plan has no features yet. Add one: ralph feature add NAME"
    return Result(value, Table(("feature", "done", "learnings", "in progress"), rows, empty))


def _feature_row(view: PlanView, feature: Feature) -> tuple[str, ...]:
    tasks = [t for t in view.tasks if t.feature == feature.name and t.status != "skipped"]
    done = sum(task.status == "done" for task in tasks)
    current = ", ".join(task.title for task in tasks if task.status == "in_progress")
    learnings = str(len(feature.learnings))
    return feature.name, f"{done}/{len(tasks)}", learnings, excerpt(current, _TITLE_CHARS)


# -- tasks


def _clean_task(patch: dict[str, Any]) -> None:
    if patch.get("priority") is not None:
        patch["priority"] = context.number(patch["priority"])
    if patch.get("blocked_by") is not None:
        patch["blocked_by"] = [context.number(blocker) for blocker in patch["blocked_by"]]


def _take_comment(_: Plan, __: str, patch: dict[str, Any]) -> dict[str, Any]:
    comment = patch.pop("comment", None)
    author = patch.pop("author", None)
    if comment is None:
        return {}
    # An agent must not pass for a person.
    return {"comment": comment, "author": "agent" if context.in_agents_run() else author}


def _check_agents_task(plan: Plan, key: str, patch: dict[str, Any]) -> None:
    """Refuse what an agent may not change in a task of its feature."""
    if (run := current_run()) is not None and run.on_task:
        task_run.check_task_patch(plan.task(key), patch)


def _comment_line(comment: Comment) -> str:
    return f"{minute(comment.at)} {comment.author or 'unknown'}: {comment.text}".lstrip()


_disciplines = context.completing("disciplines")
task = PlanCommands(
    word="task",
    examples=(
        '"Refuse empty passwords" --feature user-login --criterion "a test shows it"',
        '42 --status done --comment "Merged."',
    ),
    fields=(
        context.option("--discipline", "How it is worked on.", "NAME", shell_complete=_disciplines),
        context.option("--description", "What is to be done."),
        _list_option("--criterion", "When it is done.", "acceptance_criteria"),
        context.option("--status", _STATUSES, "STATUS"),
        context.option("--priority", "1 comes first; or critical, high, medium, low.", "N"),
        _list_option("--blocked-by", "A task to do first.", "blocked_by", "ID", "tasks"),
        _list_option("--tag", "A word to sort it by.", "tags"),
    ),
    label=lambda task: f"{task.id} of {task.feature} ({task.status})",
    required=("feature", "title"),
    add_arguments=(
        click.argument("title"),
        context.plan_feature(required=True, help="The feature it belongs to."),
    ),
    update_options=(
        context.option("--title", "Its title."),
        context.plan_feature(help="The feature it belongs to."),
        context.option("--comment", "Append a comment."),
        context.option("--author", "Who comments (in an agent's run always: agent).", "NAME"),
    ),
    texts=lambda task: {"comments": [_comment_line(each) for each in task.comments]},
    clean=_clean_task,
    update=_take_comment,
    check_agent=_check_agents_task,
    delete_help=" A task that blocks another is not deleted.",
).group()


@task.command("list")
@context.plan_feature(help="Only tasks of this feature.")
@context.option("--status", "Only tasks with this status.", "STATUS")
def list_tasks(feature: str | None, status: str | None) -> Result:
    """List the tasks.

    \b
    Examples:
      ralph task list --feature user-login --status blocked
    """
    wanted = None if status is None else clean_status(status)
    tasks = [t for t in _tasks_of(context.the_plan(), feature) if wanted in (None, t.status)]
    none = "The plan has no tasks yet. Add one: ralph task add TITLE --feature NAME"
    return _task_table(tasks, "No task matches." if feature or wanted else none)


@task.command()
@context.plan_feature(help="Only tasks of this feature.")
def ready(feature: str | None) -> Result:
    """List the tasks that can be worked on now, in the order a run takes them.

    \b
    Examples:
      ralph task ready --feature user-login
    """
    plan = context.the_plan()
    _tasks_of(plan, feature)
    return _task_table(edit.ready(plan.read("tasks").tasks, feature=feature), "No task is ready.")


def _tasks_of(plan: Plan, feature: str | None) -> list[Task]:
    """Return the tasks, of one feature or of all; raise if the feature does not exist."""
    _tell_problems(plan, "tasks")
    tasks = [each for each in plan.read("tasks").tasks if feature in (None, each.feature)]
    if feature is not None and not tasks:
        plan.feature(feature)
    return tasks


def _task_table(tasks: Sequence[Task], empty: str) -> Result:
    rows = [
        (str(t.id), t.status, str(t.priority), t.feature, excerpt(t.title, _TITLE_CHARS))
        for t in tasks
    ]
    return Result(list(tasks), Table(("id", "status", "prio", "feature", "title"), rows, empty))


# -- disciplines


def _clean_discipline(patch: dict[str, Any]) -> None:
    if isinstance(text := patch.get("mcp_servers"), str):
        try:
            patch["mcp_servers"] = json.loads(text)
        except (ValueError, RecursionError) as error:
            todo = 'Give an object such as {"files": {"command": "files-server"}}.'
            raise BadInput(f"--mcp-servers is not JSON: {error}", todo=todo) from None


def _trust_servers(changed: Discipline, patch: dict[str, Any]) -> None:
    """Trust the servers that the user names on the command line."""
    if "mcp_servers" in patch:
        trust_servers(context.the_project(), changed, home=home_folder())


discipline = PlanCommands(
    word="discipline",
    examples=('backend --convention "Type every function."', "backend --clear skills"),
    fields=(
        context.option("--display-name", "The name people read."),
        context.option("--system-prompt", "How prompts of this kind begin."),
        _list_option("--skill", "What it takes.", "skills"),
        _list_option("--convention", "A rule to follow.", "conventions"),
        context.option(
            "--mcp-servers", 'MCP servers: {"name": {"command": ..., "args": [...]}}', "JSON"
        ),
    ),
    clean=_clean_discipline,
    after=_trust_servers,
).group()


@discipline.command("list")
def list_disciplines() -> Result:
    """List the disciplines."""
    found = context.the_plan().read("disciplines").disciplines
    rows = [(each.name, excerpt(each.system_prompt or "", _TITLE_CHARS)) for each in found]
    empty = "The plan has no disciplines yet. Add one: ralph discipline add NAME"
    return Result(list(found), Table(("discipline", "system prompt"), rows, empty))


# -- learnings

_learning_feature = context.plan_feature(required=True, help="The feature of the learning.")
_ref = click.argument("ref", metavar="ID")
_INDENT = 10
_SOURCES = ("human", "agent")
_ADDED = {
    "added": "Added: {0.text}",
    "known": "Not added: too close to {0.id}: {0.text}",
    "seen_again": "Seen again: {0.text}",
    "reason_added": "The reason is added to {0.id}: {0.text}",
    "removed_before": "Not added, because it was removed before: {0.text}",
}


@click.group(cls=Group)
def learning() -> None:
    """List, add, remove and review learnings.

    ID is what `ralph learning list` prints before a learning. The text of a learning, or its
    position in the list, works too.
    """


def learning_json(learning: Learning) -> dict[str, Any]:
    """Return a learning as every command prints it."""
    return {"id": learning.id, **plain(learning), "provenance": learning.provenance}


@learning.command("list")
@context.plan_feature(help="Only those of this feature.")
def list_learnings(feature: str | None) -> Result:
    """List learnings and where each comes from, of one feature or of all.

    \b
    Examples:
      ralph learning list --feature user-login
    """
    if feature is None and not (context.server_address() or context.found_project()):
        return Result([], f"No learnings here: {context.NO_PLAN}")
    plan = context.the_plan()
    _tell_problems(plan, "features")
    if feature is not None:
        return _learnings(plan.feature(feature))
    entries = plan.read("features").features
    named = {entry.name: _learnings(entry) for entry in entries if entry.learnings}

    def show(page: Page) -> None:
        for name, result in named.items():
            page.line((name, "bold"))
            page.show(result.view)

    value = [{**each, "feature": name} for name, result in named.items() for each in result.value]
    return Result(value, show if named else "No feature has learnings yet.")


def _learnings(entry: Feature) -> Result:
    """Show the learnings of one feature."""
    feature = entry.name
    found = entry.learnings
    rivals = {i: [one.id for one in some] for i, some in learnings.rivals(found).items()}
    last = context.last_iteration(feature) if any(each.source == "auto" for each in found) else 0
    stale = {each.id: learnings.is_stale(each, last + 1) for each in found}

    def show(page: Page) -> None:
        for each in found:
            mark = "[STALE] " if stale[each.id] else ""
            page.line((each.id, "cyan"), "  ", (mark, "yellow"), each.text)
            page.line((f"{each.provenance} {each.reason or ''}", "dim"), indent=_INDENT)
            if rivals[each.id]:
                page.line((f"contradicts {', '.join(rivals[each.id])}", "yellow"), indent=_INDENT)

    value = [
        {**learning_json(each), "stale": stale[each.id], "conflicts": rivals[each.id]}
        for each in found
    ]
    return Result(value, show if found else f"{feature} has no learnings yet.")


@learning.command()
@click.argument("text")
@_learning_feature
@context.task_option("It concerns this task only.")
@context.option("--reason", "Why it exists.")
@context.choice("--source", "Who says so (default: human; in an agent's run: agent).", _SOURCES)
def add(text: str, feature: str, task: str | None, source: str | None, **why: Any) -> Result:
    """Add a learning; one that says the same as another is not added twice.

    A learning that contradicts another, or adds something to it, is saved beside it.

    \b
    Examples:
      ralph learning add "Run the tests with -n 2." --feature user-login
    """
    in_run = context.in_agents_run()
    if in_run and source == "human":  # an agent must not pass for a person
        raise BadInput("an agent cannot speak for a person", todo="Leave --source out.")
    plan = context.the_plan()
    concerned = None if task is None else plan.task(task)
    if concerned is not None and concerned.feature != feature:
        what = f"task {concerned.id} belongs to {concerned.feature!r}, not to {feature!r}"
        raise BadInput(what, todo="Name the feature of the task, or leave --task out.")
    who: Literal["agent", "human"] = "agent" if in_run or source == "agent" else "human"
    task_id = concerned.id if concerned else None
    added = plan.edits.add_learning(feature, text, source=who, task_id=task_id, **why)

    lines = [_ADDED[added.what].format(added.learning)]
    if in_run and added.what in ("added", "known") and not added.learning.reason:
        lines.append("It has no reason. Run it again with --reason to say why it exists.")
    lines += [f"It contradicts: {each.id} {each.text}" for each in added.conflicts]
    lines += [f"It replaced: {added.evicted.text}"] if added.evicted else []
    conflicts = [learning_json(each) for each in added.conflicts]
    evicted = learning_json(added.evicted) if added.evicted else None
    value = {"what": added.what, "learning": learning_json(added.learning)}
    return Result({**value, "conflicts": conflicts, "evicted": evicted}, lines)


@learning.command()
@_ref
@_learning_feature
@context.option("--reason", "Why it is removed.")
def remove(ref: str, feature: str, reason: str | None) -> Result:
    """Remove a learning for good: the same lesson is not learned again.

    The agent of a task run can only remove what it added in that run.

    \b
    Examples:
      ralph learning remove 3f9a1c20 --feature user-login --reason "no longer true"
    """
    by = "agent" if context.in_agents_run() else "human"
    plan = context.the_plan()
    if context.in_agents_run():
        found = plan.feature(feature).learnings
        learnings.check_removal(found[learnings.index_of(found, ref)])
    removed = plan.edits.remove_learning(feature, ref, by=by, reason=reason)
    return Result(learning_json(removed), f"Removed: {removed.text}")


@learning.command()
@_ref
@_learning_feature
@context.option("--text", "Better words for it.")
@context.option("--reason", "What the review found.")
def review(ref: str, feature: str, text: str | None, reason: str | None) -> Result:
    """Note that a learning was reviewed. Reviewed does not mean proven.

    \b
    Examples:
      ralph learning review 3f9a1c20 --feature user-login --text "Run the tests with -n 2."
    """
    reviewed = context.the_plan().edits.review_learning(feature, ref, text=text, reason=reason)
    return Result(learning_json(reviewed), f"Reviewed: {reviewed.text}")
