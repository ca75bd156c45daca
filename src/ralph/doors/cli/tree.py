"""The tree of commands. Listing them loads none; running one loads that one."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

from ralph.errors import RalphError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

# Each command: where it is defined, and what it does, in the order that help lists them. Those
# defined nowhere here are doors of their own, opened before the command line is.
COMMANDS: dict[str, tuple[str, str]] = {
    "init": ("init:init", "Make a project's memory here."),
    "status": ("status:status", "Tell whether memory serves, and what it holds."),
    "doctor": ("doctor:doctor", "Check everything memory needs, and say what to do."),
    "demo": ("demo:demo", "Show a memory at work in a scratch project."),
    "config": ("config:config", "Show settings and where they come from, or change one."),
    "trust": ("trust:trust", "Show what a project asks for, and allow it."),
    "feature": ("feature:feature", "Add, look at and change the features of the plan."),
    "task": ("task:task", "Add, look at and change the tasks of the plan."),
    "discipline": ("discipline:discipline", "Add, look at and change the plan's disciplines."),
    "learning": ("learning:learning", "Look at, add, remove and review learnings."),
    "plan": ("plan:plan", "Bring in a plan, and check it."),
    "run": ("run:run", "Drive an agent over the plan, and learn from each iteration."),
    "prompt": ("prompt:prompt", "Show the prompt for a task as it would be sent."),
    "focus": ("focus:focus", "Say what your own work with an agent belongs to."),
    "pause": ("pause:pause", "Keep nothing of what is said from now on."),
    "resume": ("pause:resume", "Keep what is said again."),
    "hooks": ("hooks:hooks", "Let Claude Code and Codex use the memory."),
    "mcp": ("", "Serve memory to an agent over MCP."),
    "hook": ("", "Answer one event of Claude Code; its hooks call this."),
    "record": ("record:record", "Put iterations into memory."),
    "search": ("search:search", "Find what was remembered, by meaning and by words."),
    "recent": ("recent:recent", "List the newest iterations."),
    "files": ("files:files", "List the files that iterations touched."),
    "failures": ("recent:failures", "List the attempts that failed or ran out of time."),
    "show": ("show:show", "Show one record whole."),
    "chat": ("chat:chat", "Chat with a model that remembers past conversations."),
    "conversations": ("conversations:conversations", "Look at past conversations."),
    "rag": ("workers:rag", "Show or change what is recalled before an answer."),
    "summarizer": ("workers:summarizer", "Show or switch the workers that summarize."),
    "embeddings": ("workers:embeddings", "Show, switch or rebuild the embeddings."),
    "workers": ("workers:workers", "Run the background workers, or show their status."),
    "knowledge": ("knowledge:knowledge", "Give and ask for what projects learned."),
    "gate": ("gate:gate", "Approve or reject what an agent did, so that it is learned."),
    "journal": ("journal:journal", "Look after the journal, which is the truth."),
    "forget": ("forget:forget", "Take records out of journal and index for good."),
    "export": ("transfer:export", "Write every record to a file."),
    "import": ("transfer:import_", "Bring in the records of an export."),
    "index": ("index:index", "Look after the index, which can always be made again."),
    "completion": ("completion:completion", "Print a script that completes ralph's words."),
}
# Words that are gone: help does not list them, and saying one tells where it went.
GONE: dict[str, str] = {
    "bench": "Run `scripts/bench NAME` from a clone of the repository.",
}
_PACKAGE = "ralph.doors.cli.commands"
_PROJECT = f"{__name__}.project"
_SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


def project_given() -> str | None:
    """The folder that `--project` named, wherever on the line it stood."""
    given: str | None = click.get_current_context().meta.get(_PROJECT)
    return given


def keep_project(context: click.Context, folder: str | None) -> None:
    """Remember what `--project` said, for the commands below too."""
    if folder is not None:
        context.meta[_PROJECT] = folder


def _project_option() -> click.Option:
    return click.Option(
        ["--project"],
        type=click.Path(file_okay=False),
        metavar="DIR",
        expose_value=False,
        callback=lambda context, _, value: keep_project(context, value),
        help="The project; else the nearest folder upwards that has a .ralph folder.",
    )


class CheckedCommand(click.Command):
    """A command that an agent in its run may call only if the table of `in_run` says so."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run it, or refuse."""
        from ralph.doors.cli.in_run import check

        check(ctx)
        return super().invoke(ctx)


class Command(CheckedCommand):
    """A command that takes `--project`, unless it has one of its own."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs["context_settings"] = {**_SETTINGS, **(kwargs.get("context_settings") or {})}
        super().__init__(*args, **kwargs)
        if all(option.name != "project" for option in self.params):
            self.params.append(_project_option())


class Group(click.Group):
    """A group of such commands, which takes `--project` as well."""

    command_class = Command

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs["context_settings"] = {**_SETTINGS, **(kwargs.get("context_settings") or {})}
        super().__init__(*args, **kwargs)
        self.params.append(_project_option())


class Tree(Group):
    """All commands by name; each is imported when it is run."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, imported now."""
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name][0].partition(":")
        if not name:
            return Command(cmd_name) if ctx.resilient_parsing else None
        command: click.Command = getattr(import_module(f"{_PACKAGE}.{module}"), name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command of the first word; a word that is none gets its likeliest neighbour."""
        word = args[0]
        if word in COMMANDS or word.startswith("-") or ctx.resilient_parsing:
            return super().resolve_command(ctx, args)
        if word in GONE:
            raise RalphError(f"`ralph {word}` is no longer part of the package", todo=GONE[word])
        from difflib import get_close_matches

        near = get_close_matches(word, COMMANDS, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise click.UsageError(f"There is no command {word!r}.{hint}", ctx)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The table as it stands, without importing a command."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Commands from the table, options from click."""
        from click.shell_completion import CompletionItem

        words = [
            CompletionItem(name, help=text)
            for name, (_, text) in COMMANDS.items()
            if name.startswith(incomplete)
        ]
        return words + click.Command.shell_complete(self, ctx, incomplete)


def _show_version(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted and not context.resilient_parsing:
        from ralph import __version__

        click.echo(f"ralph {__version__}")
        context.exit()


@click.command(cls=Tree)
@click.option(
    "-V",
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_version,
    help="Show the version.",
)
def ralph() -> None:
    """Long-term memory for coding agents.

    The journal is the truth, the index can be deleted at any time, memory is optional.
    """
