"""The settings as one frozen value, and where each setting came from.

Precedence: defaults, then the user's file, the project's file, the environment, the caller. A
project's file may come from a stranger, so each setting has a level: see `Rule`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar, get_args

import msgspec

from ralph import disk
from ralph.errors import BadSetting, UnsafeFile, suggestion
from ralph.plugins import installed
from ralph.trust import TrustRequest, trust, trusted_hashes

USER_FILE = "config.json"
PROJECT_FILE = disk.SETTINGS_FILE
_PREFIX = "RALPH_"
# Environment variables that are not settings: they say where things are.
_PLACES = frozenset(
    "RALPH_HOME RALPH_DEBUG RALPH_PROJECT RALPH_COMMAND RALPH_SERVER RALPH_TOKEN"
    # Set by the loop for the agents it starts.
    " RALPH_FEATURE RALPH_TASK RALPH_STARTED RALPH_MCP_CONFIG".split()
)


Level = Literal["harmless", "trusted", "personal"]


class Rule(NamedTuple):
    """The rule of one setting: what it is for, who may set it, and the range of its number.

    harmless: a project's file may set it. trusted: a project's file may set it after the person
    has run `ralph trust` there, because it starts programs, spends money or time, sends data away,
    or turns on something the person may have turned off. personal: a project's file may never set
    it.
    """

    level: Level
    what: str
    low: float = 0
    high: float = 0
    # Values a project may choose without trust: they keep data here or turn something off.
    free: tuple[object, ...] = ()
    # Whether the value must never be shown.
    secret: bool = False
    # The group of entry points with which other packages add values.
    group: str = ""


_T = TypeVar("_T")
_rules: list[Rule] = []


def _setting(level: Level, default: _T, *rule: Any, **more: Any) -> _T:
    """Record the rule of a field, in field order, and return the field's default."""
    _rules.append(Rule(level, *rule, **more))
    return default


_safe, _trusted, _own = (partial(_setting, level) for level in get_args(Level))
_switch = partial(_trusted, True, free=(False,))


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Every setting with its default."""

    embedder: Literal["static", "minilm", "ollama", "openai", "none"] = _trusted(
        "static",
        "what turns text into vectors; `none` searches by words alone",
        free=("static", "minilm", "none"),
        group="ralph.embedders",
    )
    search_limit: int = _safe(10, "how many results a search shows", 1, 20)
    min_score: float = _safe(0.40, "hide results that score below this", 0, 1)
    journal_lock_timeout_s: float = _safe(
        30.0, "how long a write waits for another process that writes", 0, 600
    )
    index_lock_timeout_s: float = _safe(
        2.0, "how long a search waits for another process that indexes", 0, 60
    )
    remember_budget_s: float = _safe(
        2.0,
        "how long memory may hold up its caller: indexing, a connection, a query's vector",
        0,
        600,
    )
    agent: str = _trusted("claude", "the agent that `ralph run` starts: a name or a command")
    agent_env: tuple[str, ...] = _trusted((), "more environment variables that the agent gets")
    agent_permissions: str = _trusted(
        "project",
        "what the agent may run: `project` (build, test, lint, git), `full`, `project, COMMAND`",
        free=("project",),
    )
    model_work: str | None = _trusted(None, "the agent's model for work")
    model_review: str | None = _trusted(None, "the agent's model for reviews (Claude: opus)")
    iteration_timeout_s: float = _trusted(1800.0, "stop an iteration after this time", 0, 604_800)
    review_every: int = _safe(5, "review every N iterations; 0 for never", 0, 1000)
    stagnation_limit: int = _safe(
        3, "stop after this many iterations without a change to the plan", 0, 1000
    )
    prompt_tokens: int = _safe(12000, "the size of the loop's prompt", 0, 200_000)
    rag_enabled: bool = _switch("recall past conversations before every answer of `ralph chat`")
    rag_conversation_limit: int = _safe(3, "how many conversations to recall from", 1, 20)
    rag_exchange_limit_per_conversation: int = _safe(2, "how many exchanges of each", 1, 20)
    rag_min_similarity: float = _safe(0.70, "hide exchanges that score below this", 0, 1)
    rag_recency_half_life_days: float = _safe(
        0.0, "how fast old exchanges fade; 0 for never", 0, 36_500
    )
    summarizer_conversation_enabled: bool = _switch(
        "summarize conversations in the background, also after sessions"
    )
    summarizer_exchange_enabled: bool = _switch(
        "summarize exchanges in the background, also after sessions"
    )
    embedding_pipeline_enabled: bool = _switch("embed conversations in the background")
    summarizer_idle_timeout_s: float = _safe(
        30.0, "how long the summarizers rest when there is nothing to do", 0.1, 3600
    )
    embedding_pipeline_poll_interval_s: float = _safe(
        5.0, "how often the embedding pipeline looks for work when nothing wakes it", 0.1, 3600
    )
    embedding_batch_size: int = _safe(100, "how many texts are embedded at once", 1, 100)
    embedding_max_retries: int = _safe(
        6, "how often background work that failed is tried again, after 1, 2, 4 ... 32 s", 0, 20
    )
    # A clone must not decide which of a person's memories are deleted.
    conversations_keep_days: int = _own(
        0, "delete conversations after this many days; 0 for never", 0, 36_500
    )
    knowledge_give: bool = _switch("publish this project's lessons to your other projects")
    knowledge_receive: bool = _switch("use the lessons of your other projects")
    knowledge_keep_days: int = _own(365, "delete lessons that are older than this", 1, 36_500)
    technology: str | None = _safe(None, "the project's technology, to match lessons")
    journal_url: str | None = _own(None, "a PostgreSQL server that holds the journals", secret=True)
    vector_store: Literal["sqlite"] = _own(
        "sqlite", "what holds the index, if another package adds it", group="ralph.vector_stores"
    )
    qdrant_url: str | None = _own(None, "a Qdrant server that holds the index")
    qdrant_api_key: str | None = _own(None, "its key", secret=True)
    qdrant_binary: str | None = _own(None, "a Qdrant program that Ralph starts and stops")
    hook_capture: bool = _switch("hooks save sessions")
    hook_inject: bool = _switch("hooks give the model relevant memories")
    hook_files: bool = _switch("tell what is known about a file when it is opened or changed")
    hook_compaction: bool = _switch("tell again after a compaction what the summary may lack")
    hook_holds: bool = _switch("hold a command once that failed the same way in two sessions")
    hook_checks: bool = _switch("hold or ask about what a person's approved rules forbid")
    hook_holds_unattended: bool = _trusted(
        False, "also hold where no person is at the client, as in `claude -p`", free=(False,)
    )
    hook_timeout_s: float | None = _trusted(
        None, "the time limit of every hook, instead of 1.2 to 10 s by event", 0.05, 600
    )
    hook_messages: bool = _switch("Claude Code shows one line when memory was used or saved")
    pause_folders: tuple[str, ...] | None = _own(
        None,
        "patterns of folders where nothing is saved or recalled, such as `~/clients/*`; once set "
        "(`[]`: none), hooks also work without `ralph init`",
    )
    ollama_url: str = _own("http://127.0.0.1:11434", "where Ollama listens")
    ollama_model: str = _trusted("nomic-embed-text", "its embedding model")
    openai_base_url: str = _own(
        "https://api.openai.com/v1", "an OpenAI-compatible server for embeddings"
    )
    openai_model: str = _trusted(
        "text-embedding-3-small",
        "its embedding model; `NAME@256` for vectors of that length, if the model lets you choose",
    )
    openai_api_key: str | None = _own(None, "its key", secret=True)
    chat_model: str | None = _own(
        None,
        "the model of `ralph chat`: `openai:NAME`, `anthropic:NAME`, `ollama:NAME` or `claude`",
    )
    chat_base_url: str | None = _own(None, "its server, if it is not the provider's")
    chat_api_key: str | None = _own(None, "its key", secret=True)
    chat_timeout_s: float = _trusted(300.0, "how long an answer may take", 0.1, 3600)
    chat_max_tokens: int = _trusted(4096, "how long an answer may be", 1, 1_000_000)
    summary_model: str | None = _own(
        None, "the model that writes summaries; without one they are extracts"
    )
    summary_base_url: str | None = _own(None, "its server")
    summary_api_key: str | None = _own(None, "its key", secret=True)
    summary_spend_cap_usd: float = _own(
        1.0, "stop summarizing when one run of the workers has cost this much", 0, 100_000
    )

    @property
    def wait_s(self) -> float:
        """How long one wait for a server may take: the budget, at least 0.1 s, at most 60 s."""
        return min(max(self.remember_budget_s, 0.1), 60.0)

    def __repr__(self) -> str:
        pairs = ((key, safe_value(key, getattr(self, key))) for key in self.__struct_fields__)
        return f"Settings({', '.join(f'{key}={value!r}' for key, value in pairs)})"


_warned: set[tuple[str, str]] = set()


class Setting(msgspec.Struct, frozen=True):
    """One setting's value and where it came from."""

    key: str
    value: Any
    origin: str


KEYS: tuple[str, ...] = Settings.__struct_fields__
RULES: dict[str, Rule] = dict(zip(KEYS, _rules, strict=True))


class Config(msgspec.Struct, frozen=True):
    """The settings in force, where each came from, and the project's requests that were ignored."""

    settings: Settings
    origins: tuple[Setting, ...]
    ignored: tuple[TrustRequest, ...] = ()


def home_folder(environ: Mapping[str, str] | None = None) -> Path:
    """Return Ralph's home, the folder for everything that belongs to no project."""
    return Path(disk.home(environ))


def load(
    *,
    home: Path,
    project_file: Path | None = None,
    environ: Mapping[str, str] | None = None,
    given: Mapping[str, Any] | None = None,
) -> Config:
    """Load all settings, each from the strongest source that sets it and is allowed to."""
    values: dict[str, Any] = {}
    origins = dict.fromkeys(KEYS, "default")
    ignored: tuple[TrustRequest, ...] = ()

    def take(where: str, plain: Mapping[str, Any]) -> None:
        for key, value in _drop_retired(plain, where=where).items():
            values[key] = _fit(key, value, where=where)
            origins[key] = where

    take(str(home / USER_FILE), _read(home / USER_FILE))
    if project_file is not None:
        plain = _read(project_file)
        if asked := _trust_requests(plain, Settings(**values), where=str(project_file)):
            allowed = trusted_hashes(home, project_file.parent.parent)
            ignored = tuple(one for one in asked if one.digest not in allowed)
        for key in plain:
            _check_place(project_file, key)
        left_out = {one.name for one in ignored}
        take(str(project_file), {k: v for k, v in plain.items() if k not in left_out})
    for name, value in (os.environ if environ is None else environ).items():
        key = name.removeprefix(_PREFIX).lower()
        if not name.startswith(_PREFIX) or name in _PLACES:
            continue
        if key in KEYS or key in _retired():
            take(name, {key: _parse(key, value)})
    take("given", given or {})
    settings = Settings(**values)
    explained = tuple(Setting(k, safe_value(k, getattr(settings, k)), origins[k]) for k in KEYS)
    return Config(settings, explained, ignored)


def trust_requests(*, home: Path, project_file: Path) -> list[TrustRequest]:
    """Return every setting in a project's file that needs a person's trust, given or not."""
    weaker = load(home=home, environ={}).settings
    return _trust_requests(_read(project_file), weaker, where=str(project_file))


def _trust_requests(
    plain: Mapping[str, Any], weaker: Settings | None, where: str
) -> list[TrustRequest]:
    """Return the settings of level "trusted" that are not free and differ from the weaker ones."""
    found: list[TrustRequest] = []
    for key, value in _drop_retired(plain, where=where).items():
        fitted = _fit(key, value, where=where)
        rule = RULES[key]
        same = weaker is not None and fitted == getattr(weaker, key)
        if rule.level == "trusted" and fitted not in rule.free and not same:
            text = f"{key} = {json.dumps(fitted, ensure_ascii=False)}"
            found.append(TrustRequest("setting", key, fitted, text))
    return found


def within(key: str, number: float) -> float:
    """Return the number, clamped to the setting's range."""
    return min(max(number, RULES[key].low), RULES[key].high)


def unknown_variables(environ: Mapping[str, str] | None = None) -> list[str]:
    """Return the environment variables that look like settings but are not."""
    names = os.environ if environ is None else environ
    settings = {*_PLACES, *(_PREFIX + key.upper() for key in KEYS)}
    return sorted(n for n in names if n.startswith(_PREFIX) and n.upper() not in settings)


def safe_value(key: str, value: Any) -> Any:
    """Return the value as it may be shown: for a secret, only whether it is set."""
    if RULES[key].secret:
        return "set" if value else "not set"
    if key.endswith("_url") and isinstance(value, str) and "@" in value:
        # A password does not belong in a URL. It is refused on use, and hidden here.
        scheme, _, rest = value.partition("://")
        return f"{scheme}://{rest.rpartition('@')[2]}"
    return value


def store(file: Path, key: str, text: str, *, home: Path | None = None) -> Any:
    """Save one setting to a file, keep the others, and return the value as it may be shown.

    With `home`, the setting comes from a person: what they put into a project's file themselves is
    trusted.
    """
    value = _fit(key, _parse(key, text), where="config")
    _check_place(file, key)
    plain = _read(file)
    plain[key] = value
    _write(file, plain)
    mine = _trust_requests({key: value}, None, where=str(file))
    if mine and home is not None and file.name == PROJECT_FILE:
        trust(home, file.parent.parent, mine, more=True)
    return safe_value(key, value)


def check_value(key: str, text: str) -> None:
    """Raise BadSetting if there is no such setting, or this is no value of it."""
    _fit(key, _parse(key, text), where="config")


def has_setting(file: Path, key: str) -> bool:
    """Return whether the file has this setting."""
    return key in _read(file)


def clear(file: Path, key: str) -> bool:
    """Remove one setting from a file; return False if it was not there."""
    plain = _read(file)
    if key not in plain:
        check_key(key, where="config")  # a key that is in the file may go even if it is unknown
        return False
    del plain[key]
    _write(file, plain)
    return True


def _write(file: Path, plain: dict[str, Any]) -> None:
    disk.make_folder(file.parent)
    disk.replace(file, (json.dumps(plain, indent=2, ensure_ascii=False) + "\n").encode())


def _read(file: Path) -> dict[str, Any]:
    try:
        plain = json.loads(disk.read(file))
        json.dumps(plain, ensure_ascii=False).encode()  # lone surrogates stop here
        if isinstance(plain, dict):
            return plain
        what = "the settings must be one JSON object"
    except FileNotFoundError:
        return {}
    except UnsafeFile:
        raise  # its message is already complete
    except (ValueError, OSError, RecursionError) as error:
        what = f"the settings cannot be read: {error}"
    raise BadSetting(what, where=str(file), todo="Fix or delete it.")


def _fit(key: str, value: Any, *, where: str) -> Any:
    check_key(key, where=where)
    try:
        fitted = msgspec.convert({key: value}, Settings, strict=False)
    except (msgspec.ValidationError, UnicodeEncodeError) as error:
        group = RULES[key].group
        if group and value in [point.name for point in installed(group)]:
            return value
        what = f"{key} cannot be {safe_value(key, value)!r}: {str(error).partition(' - ')[0]}"
        todo = "`ralph config` shows every setting and its value."
        raise BadSetting(what, where=where, todo=todo) from None
    result = getattr(fitted, key)
    rule = RULES[key]
    is_number = isinstance(result, int | float) and not isinstance(result, bool)
    if is_number and not rule.low <= result <= rule.high:
        what = f"{key} cannot be {value!r}: it must be between {rule.low} and {rule.high}"
        raise BadSetting(what, where=where)
    return result


def _check_place(file: Path, key: str) -> None:
    if key in RULES and RULES[key].level == "personal" and file.name == PROJECT_FILE:
        what = f"{key} cannot be set in a project's file, because every clone gets that file"
        todo = f"Set it for yourself: ralph config --user {key} VALUE, or {_PREFIX}{key.upper()}"
        raise BadSetting(what, where=str(file), todo=todo)


@cache
def _retired() -> dict[str, str]:
    """Return the settings of earlier versions, each with what to do instead."""
    retired = json.loads(disk.read(Path(__file__).with_name("retired_settings.json")))
    return {key: instead for instead, keys in retired.items() for key in keys}


def _drop_retired(plain: Mapping[str, Any], *, where: str) -> dict[str, Any]:
    """Return the settings that still exist; warn about each retired one once per process."""
    gone = {key for key in plain.keys() - {*KEYS} if key in _retired()}
    for key in gone:
        if (where, key) not in _warned:
            import logging

            _warned.add((where, key))
            logger = logging.getLogger("ralph")
            logger.warning("%s: %s has no effect: %s", where, key, _retired()[key])
    return {key: value for key, value in plain.items() if key not in gone}


def check_key(key: str, *, where: str = "config") -> None:
    """Raise BadSetting if the key is not a setting; the error suggests the nearest one."""
    if key not in KEYS:
        if key in _retired():
            raise BadSetting(f"{key} cannot be set: {_retired()[key]}", where=where)
        todo = f"{suggestion(key, KEYS)}`ralph config` shows every setting."
        raise BadSetting(f"there is no setting {key!r}", where=where, todo=todo)


def variable_text(key: str, value: Any) -> str:
    """Return the value as the text of an environment variable for another Ralph process."""
    return str(value or "") if RULES[key].secret else json.dumps(value)


def _parse(key: str, text: str) -> Any:
    if key in RULES and RULES[key].secret:
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


# -- Warnings about settings and memories.


@contextmanager
def warnings_to(tell: Callable[[str], None]) -> Iterator[None]:
    """Pass each warning that Ralph logs to `tell`, and to nobody else."""
    import logging

    class WarningHandler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            tell(record.getMessage())

    logger = logging.getLogger("ralph")
    handler = WarningHandler(logging.WARNING)
    passed_on = logger.propagate
    logger.propagate = False
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate = passed_on
