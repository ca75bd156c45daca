"""`ralph search`: what was remembered, by meaning and by words."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ralph.doors.cli.cards import hit_json, located, show_entries, show_hits
from ralph.doors.cli.context import as_json, feature_option, opened, opened_anywhere
from ralph.doors.cli.render import Page, note, print_json
from ralph.doors.cli.tree import Command

if TYPE_CHECKING:
    from ralph.memory.ralph import Ralph
    from ralph.recall import Answer


@click.command(cls=Command)
@click.argument("query", nargs=-1, required=True)
@feature_option
@click.option(
    "--conversations",
    is_flag=True,
    help="What was said in this project, and documents added to it, instead of iterations.",
)
@click.option("--knowledge", is_flag=True, help="What all projects published, instead.")
@click.option("--everywhere", is_flag=True, help="With --conversations: in all projects.")
@click.option(
    "--tag", "tags", multiple=True, metavar="T", help="With --conversations: with this tag."
)
@click.option("--since", metavar="DATE", help="With --conversations: said on this day or later.")
@click.option("--until", metavar="DATE", help="With --conversations: said on this day or before.")
@click.option("--limit", type=click.IntRange(1), metavar="N", help="At most so many; 20 at most.")
@click.option(
    "--min-score", type=click.FloatRange(0, 1), metavar="X", help="None less sure than this."
)
@click.option("--explain", is_flag=True, help="Tell what each stage gave a hit.")
@as_json
def search(
    query: tuple[str, ...],
    feature: str | None,
    conversations: bool,
    knowledge: bool,
    everywhere: bool,
    tags: tuple[str, ...],
    since: str | None,
    until: str | None,
    limit: int | None,
    min_score: float | None,
    explain: bool,
    as_json: bool,
) -> None:
    """Find what was remembered, by meaning and by words.

    Scores go from 0 to 1: from 0.55 on a hit is relevant, from 0.40 on possibly so.
    """
    if conversations and feature is not None:
        raise click.UsageError("Conversations belong to no feature; leave one of the two out.")
    if knowledge and (conversations or feature is not None):
        raise click.UsageError("--knowledge goes with neither --feature nor --conversations.")
    if (everywhere or tags or since or until) and not conversations:
        raise click.UsageError("--everywhere, --tag, --since, --until go with --conversations.")
    asked = " ".join(query)
    with opened_anywhere() if conversations or knowledge else opened() as ralph:
        names = [memory.name for memory in ralph.features()]
        floor = ralph.place.settings.min_score if min_score is None else min_score
        if conversations:
            answer = ralph.conversations.search(
                asked,
                limit=limit,
                min_score=floor,
                everywhere=everywhere,
                tags=tags,
                since=since,
                until=until,
                # They have no tags, and nobody said them on a day.
                documents=not (tags or since or until),
            )
            answer = located(answer, ralph.project.root)
        elif knowledge:
            answer = _known(ralph, asked, limit, floor)
        else:
            features = None if feature is None else [feature]
            answer = ralph.search(asked, features=features, limit=limit, min_score=floor)
    for text in answer.notes:
        note(text)
    if feature is not None and feature not in names:
        note(f"nothing is remembered of a feature {feature!r}; there is {_list(names)}")
    if as_json:
        print_json([hit_json(hit, explain=explain) for hit in answer])
    elif answer:
        (show_entries if knowledge else show_hits)(Page(), answer, explain=explain)
    else:
        Page().line(
            f"Nothing found that is sure enough ({floor:.2f}). "
            "Try other words, or a lower --min-score."
        )


def _known(ralph: Ralph, asked: str, limit: int | None, floor: float) -> Answer:
    """The published entries; nothing in a project that wants none."""
    from ralph.recall import Answer

    if not ralph.config.settings.knowledge_receive:
        return Answer(notes=("this project receives no knowledge: knowledge_receive is false",))
    return ralph.knowledge.search(asked, limit=limit, min_score=floor)


def _list(names: list[str]) -> str:
    return ", ".join(names) if names else "none yet"
