"""Write the table of moments: what hooks may say about a command or a file of this project.

The table is made from the newest sessions and the notes, after anything was saved or forgotten.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ralph import disk
from ralph.errors import BadInput
from ralph.memory.file_moments import FileLine, file_lines, shown_line
from ralph.memory.general_fixes import remove_general_fixes, write_general_fixes
from ralph.memory.inbox import Check, approved, chosen_replacements
from ralph.memory.moments_table import (
    ASK,
    FILE,
    HOLD,
    MOST_ROWS,
    REPEAT,
    MomentRow,
    table_file,
)
from ralph.memory.newest import newest_exchanges, notes_of
from ralph.memory.project_words import write_common_words
from ralph.memory.repeats import Repeat, proven_repeats
from ralph.memory.replaced import Replaced, all_replaced, write_replaced
from ralph.memory.uses import write_silent
from ralph.text.sanitize import plain_date, plain_id, sanitize_line
from ralph.text.tokens import plural, shorten

if TYPE_CHECKING:
    from ralph.memory.ralph import Ralph
    from ralph.records.conversation import Exchange
    from ralph.records.note import Note

_ID_CHARS = 12
_MESSAGE_CHARS = 160


def write_moments(ralph: Ralph) -> None:
    """Write the project's table; remove it if there is nothing to say.

    A memory on a server has none: what its people said is not on this machine.
    """
    if not ralph.reads_private_notes:
        return
    exchanges = newest_exchanges(ralph)
    notes = notes_of(ralph)
    replaced = all_replaced(exchanges, notes, _chosen(ralph))
    write_replaced(ralph.project, replaced)
    write_silent(ralph, exchanges, notes)
    write_common_words(ralph.project, exchanges)
    gives = ralph.config.settings.knowledge_give
    write_general_fixes(ralph.project, exchanges, gives=gives)
    file = Path(table_file(str(ralph.project.root), str(ralph.project.home)))
    told = ralph.config.settings.hook_inject
    rows = moment_rows(ralph, exchanges, notes, replaced) if told else []
    if not rows:
        file.unlink(missing_ok=True)
        return
    text = "".join(f"{row.encoded()}\n" for row in rows[:MOST_ROWS])
    with contextlib.suppress(OSError):  # a read-only or full home has no table, only its journals
        disk.make_folder(file.parent)
        disk.replace(file, text.encode("utf-8", "replace"), mode=0o600)


def remove_moments(ralph: Ralph) -> None:
    """Remove the project's table, so that nothing that is to be forgotten is told any more."""
    Path(table_file(str(ralph.project.root), str(ralph.project.home))).unlink(missing_ok=True)
    remove_general_fixes(ralph.project)


def moment_rows(
    ralph: Ralph,
    exchanges: Sequence[Exchange],
    notes: Sequence[Note],
    replaced: Iterable[Replaced] = (),
) -> list[MomentRow]:
    """Return the rows of the table, the most important first."""
    settings = ralph.config.settings
    rows: list[MomentRow] = []
    if settings.hook_checks:
        rows += [row for check in _approved(ralph) for row in _check_rows(check)]
    if settings.hook_holds:
        rows += [_repeat_row(repeat) for repeat in proven_repeats(exchanges)]
    if settings.hook_files:
        replaced_words = {(one.record, one.words) for one in replaced}
        by_path = file_lines(exchanges, notes, replaced=replaced_words)
        lines = [line for some in by_path.values() for line in some]
        standings = ralph.standings.of([line.id for line in lines])
        # What was decided about code that is gone is history.
        gone = {name for name, standing in standings.items() if standing.is_gone}
        rows += [_file_row(line) for line in lines if line.id not in gone]
    return rows


def _chosen(ralph: Ralph) -> list[Replaced]:
    try:
        return chosen_replacements(ralph)
    except BadInput:  # `ralph inbox` reports it
        return []


def _approved(ralph: Ralph) -> list[Check]:
    try:
        return approved(ralph)
    except BadInput:  # `ralph inbox` reports it; the other moments do not depend on it
        return []


def _check_rows(check: Check) -> Iterator[MomentRow]:
    """Yield the rows of a rule that the person approved, in the person's words."""
    day = plain_date(check.at)
    words = sanitize_line(check.text).replace('"', "'")
    when = f" of {day}" if day else ""
    line = f'The rule{when}: "{words}" [{plain_id(check.record, _ID_CHARS)}]'
    kind = ASK if check.action == "ask" else HOLD
    for target in check.targets:
        yield _row(kind, target.subject, target.key, 1, check.record, line)


def _file_row(line: FileLine) -> MomentRow:
    shown = shown_line(line)
    return _row(FILE, "path", line.path, line.times, line.id, shown, origin=line.origin)


def _repeat_row(repeat: Repeat) -> MomentRow:
    """Return the row of a proven repeat. Its line is the reason that the model reads."""
    often = plural(repeat.sessions, "earlier session")
    last = plain_date(repeat.last)
    when = f", the last on {last}" if last else ""
    message = shorten(sanitize_line(repeat.message), _MESSAGE_CHARS).rstrip(" .")
    fix = sanitize_line(repeat.fix).replace("`", "'")
    identity = plain_id(repeat.id, _ID_CHARS)
    line = f"It failed in {often}{when}: {message}. What worked instead: `{fix}` [{identity}]"
    return _row(REPEAT, "command", repeat.shape.key, repeat.sessions, repeat.id, line)


def _row(
    kind: str, subject: str, key: str, count: int, identity: str, line: str, *, origin: str = ""
) -> MomentRow:
    plain_key = " ".join(key.split())
    text = json.dumps(line)
    return MomentRow(kind, subject, plain_key, count, plain_id(identity), plain_id(origin), text)
