"""One frozen Settings, and where each of its values came from.

Precedence: defaults, then the user's file, the project's file, the environment, the caller. A
project's file may be a stranger's, so each setting has a level: see `RULES`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from ralph import disk
from ralph.errors import BadSetting, UnsafeFile
from ralph.trust import Wish, trust, trusted

USER_FILE = "config.json"
PROJECT_FILE = "rag_config.json"
_PREFIX = "RALPH_"
# Names in the environment that say where things are, not how they behave.
_PLACES = frozenset(
    {
        *("RALPH_HOME", "RALPH_DEBUG", "RALPH_PROJECT", "RALPH_COMMAND"),
        # What the loop tells the agents it starts.
        *("RALPH_FEATURE", "RALPH_TASK", "RALPH_MCP_CONFIG"),
    }
)


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Every number and choice there is."""

    embedder: Literal["static", "minilm", "ollama", "openai", "none"] = "static"
    search_limit: int = 10
    search_max_limit: int = 20
    min_score: float = 0.40
    recent_count: int = 10
    summary_max_chars: int = 2000
    embedding_max_chars: int = 4000
    error_max_chars: int = 1000
    decision_max_chars: int = 500
    errors_max: int = 50
    decisions_max: int = 50
    files_max: int = 500
    journal_lock_timeout_s: float = 30.0
    index_lock_timeout_s: float = 2.0
    remember_budget_s: float = 2.0
    agent: str = "claude"
    agent_env: tuple[str, ...] = ()
    agent_grace_s: float = 10.0
    model_work: str | None = None
    model_review: str | None = None
    iteration_timeout_s: float = 1800.0
    review_every: int = 5
    verify_all_every: int = 5
    stagnation_limit: int = 3
    rate_limit_wait_s: float = 300.0
    prose_stale_iterations: int = 10
    prose_stale_files: int = 5
    prompt_tokens: int = 12000
    knowledge_file_tokens: int = 2000
    knowledge_excerpt_tokens: int = 500
    knowledge_all_tokens: int = 4000
    attempts_in_prompt: int = 3
    warnings_in_prompt: int = 5
    exchange_max_chars: int = 20000
    conversation_min_score: float = 0.20
    rag_enabled: bool = True
    rag_conversation_limit: int = 3
    rag_exchange_limit_per_conversation: int = 2
    rag_min_similarity: float = 0.70
    rag_recency_half_life_days: float = 0.0
    summarizer_conversation_enabled: bool = True
    summarizer_exchange_enabled: bool = True
    embedding_pipeline_enabled: bool = True
    conversations_keep_days: int = 0
    knowledge_give: bool = True
    knowledge_receive: bool = True
    knowledge_task_limit: int = 5
    knowledge_task_min_score: float = 0.70
    knowledge_failure_limit: int = 3
    knowledge_failure_min_score: float = 0.75
    knowledge_patterns_in_context: int = 3
    knowledge_conflicts_max: int = 3
    knowledge_text_max_chars: int = 4000
    knowledge_batch: int = 500
    knowledge_keep_days: int = 365
    technology: str | None = None
    journal_url: str | None = None
    journal_connect_timeout_s: float = 2.0
    qdrant_url: str | None = None
    qdrant_api_key: str | None = None
    qdrant_timeout_s: float = 5.0
    qdrant_binary: str | None = None
    hook_capture: bool = True
    hook_inject: bool = True
    hook_min_score: float = 0.55
    hook_prompt_hits: int = 3
    hook_prompt_tokens: int = 800
    hook_session_tokens: int = 1500
    hook_session_start_s: float = 2.0
    hook_user_prompt_submit_s: float = 2.0
    hook_post_tool_use_failure_s: float = 2.0
    hook_stop_s: float = 10.0
    hook_session_end_s: float = 1.2
    hook_pre_compact_s: float = 5.0
    mcp_answer_tokens: int = 2000
    mcp_record_tokens: int = 8000
    mcp_resource_bytes: int = 100_000
    mcp_calls_hint: int = 10
    mcp_catch_up_s: float = 10.0
    embed_timeout_s: float = 60.0
    embed_query_timeout_s: float = 2.0
    embed_batch: int = 64
    ollama_url: str = "http://127.0.0.1:11434"
    ollama_model: str = "nomic-embed-text"
    openai_base_url: str = "https://api.openai.com/v1"
    openai_model: str = "text-embedding-3-small"
    openai_dimensions: int | None = None
    openai_api_key: str | None = None
    chat_model: str | None = None
    chat_base_url: str | None = None
    chat_api_key: str | None = None
    chat_timeout_s: float = 300.0
    chat_max_tokens: int = 4096
    summary_model: str | None = None
    summary_base_url: str | None = None
    summary_api_key: str | None = None
    summary_spend_cap_usd: float = 1.0

    def __repr__(self) -> str:
        pairs = ((key, shown(key, getattr(self, key))) for key in self.__struct_fields__)
        return f"Settings({', '.join(f'{key}={value!r}' for key, value in pairs)})"


# Settings of earlier versions, and what replaces them. Reading one gives one warning.
_NO_SETTING = "it is no longer a setting"
RETIRED: dict[str, str] = {
    "summarizer_idle_timeout_s": _NO_SETTING,
    "embedding_pipeline_poll_interval_s": _NO_SETTING,
    "embedding_batch_size": _NO_SETTING,
    "embedding_max_retries": _NO_SETTING,
    "chat_price_in_usd": _NO_SETTING,
    "chat_price_out_usd": _NO_SETTING,
    "summary_price_in_usd": _NO_SETTING,
    "summary_price_out_usd": _NO_SETTING,
    "summary_timeout_s": "use chat_timeout_s",
}
_warned: set[tuple[str, str]] = set()


# What is never shown.
_SECRETS = frozenset(
    {"openai_api_key", "chat_api_key", "summary_api_key", "journal_url", "qdrant_api_key"}
)

Level = Literal["harmless", "trusted", "personal"]


class Rule(NamedTuple):
    """Who may decide on a setting, and from where to where its number goes.

    harmless: a project's file may set it. trusted: a project's file may set it after the person
    has run `ralph trust` there, because it starts programs, spends money or time, sends data
    away, or turns on what the person may have turned off. personal: never a project's file.
    """

    level: Level
    low: float = 0
    high: float = 0
    # What a project may choose without trust: what keeps data here, or turns something off.
    free: tuple[object, ...] = ()


def _harmless(low: float = 0, high: float = 0) -> Rule:
    return Rule("harmless", low, high)


def _trusted(low: float = 0, high: float = 0, *, free: tuple[object, ...] = ()) -> Rule:
    return Rule("trusted", low, high, free)


def _personal(low: float = 0, high: float = 0) -> Rule:
    return Rule("personal", low, high)


_SCORE = _harmless(0, 1)
_SWITCH = _trusted(free=(False,))
_HOOK_S = _trusted(0.05, 600)

RULES: dict[str, Rule] = {
    "embedder": _trusted(free=("static", "minilm", "none")),
    "search_limit": _harmless(1, 20),
    "search_max_limit": _harmless(1, 20),
    "min_score": _SCORE,
    "recent_count": _harmless(0, 1000),
    "summary_max_chars": _harmless(0, 100_000),
    "embedding_max_chars": _harmless(0, 100_000),
    "error_max_chars": _harmless(0, 100_000),
    "decision_max_chars": _harmless(0, 100_000),
    "errors_max": _harmless(0, 10_000),
    "decisions_max": _harmless(0, 10_000),
    "files_max": _harmless(0, 100_000),
    "journal_lock_timeout_s": _harmless(0, 600),
    "index_lock_timeout_s": _harmless(0, 60),
    "remember_budget_s": _harmless(0, 600),
    "agent": _trusted(),
    "agent_env": _trusted(),
    "agent_grace_s": _trusted(0, 600),
    "model_work": _trusted(),
    "model_review": _trusted(),
    "iteration_timeout_s": _trusted(0, 7 * 86_400),
    "review_every": _harmless(0, 1000),
    "verify_all_every": _harmless(0, 1000),
    "stagnation_limit": _harmless(0, 1000),
    "rate_limit_wait_s": _harmless(0, 86_400),
    "prose_stale_iterations": _harmless(0, 10_000),
    "prose_stale_files": _harmless(0, 10_000),
    "prompt_tokens": _harmless(0, 200_000),
    "knowledge_file_tokens": _harmless(0, 100_000),
    "knowledge_excerpt_tokens": _harmless(0, 100_000),
    "knowledge_all_tokens": _harmless(0, 100_000),
    "attempts_in_prompt": _harmless(0, 100),
    "warnings_in_prompt": _harmless(0, 100),
    "exchange_max_chars": _harmless(0, 1_000_000),
    "conversation_min_score": _SCORE,
    "rag_enabled": _SWITCH,
    "rag_conversation_limit": _harmless(1, 20),
    "rag_exchange_limit_per_conversation": _harmless(1, 20),
    "rag_min_similarity": _SCORE,
    "rag_recency_half_life_days": _harmless(0, 36_500),
    "summarizer_conversation_enabled": _SWITCH,
    "summarizer_exchange_enabled": _SWITCH,
    "embedding_pipeline_enabled": _SWITCH,
    # A clone must not decide what of a person's memory goes.
    "conversations_keep_days": _personal(0, 36_500),
    "knowledge_give": _SWITCH,
    "knowledge_receive": _SWITCH,
    "knowledge_task_limit": _harmless(1, 20),
    "knowledge_task_min_score": _SCORE,
    "knowledge_failure_limit": _harmless(1, 20),
    "knowledge_failure_min_score": _SCORE,
    "knowledge_patterns_in_context": _harmless(1, 20),
    "knowledge_conflicts_max": _harmless(1, 20),
    "knowledge_text_max_chars": _harmless(100, 100_000),
    "knowledge_batch": _harmless(1, 2000),
    "knowledge_keep_days": _personal(1, 36_500),
    "technology": _harmless(),
    "journal_url": _personal(),
    "journal_connect_timeout_s": _harmless(0.1, 60),
    "qdrant_url": _personal(),
    "qdrant_api_key": _personal(),
    "qdrant_timeout_s": _harmless(0.1, 600),
    "qdrant_binary": _personal(),
    "hook_capture": _SWITCH,
    "hook_inject": _SWITCH,
    "hook_min_score": _SCORE,
    "hook_prompt_hits": _harmless(0, 20),
    "hook_prompt_tokens": _harmless(0, 100_000),
    "hook_session_tokens": _harmless(0, 100_000),
    "hook_session_start_s": _HOOK_S,
    "hook_user_prompt_submit_s": _HOOK_S,
    "hook_post_tool_use_failure_s": _HOOK_S,
    "hook_stop_s": _HOOK_S,
    "hook_session_end_s": _HOOK_S,
    "hook_pre_compact_s": _HOOK_S,
    "mcp_answer_tokens": _harmless(0, 100_000),
    "mcp_record_tokens": _harmless(0, 100_000),
    "mcp_resource_bytes": _harmless(0, 10_000_000),
    "mcp_calls_hint": _harmless(0, 10_000),
    "mcp_catch_up_s": _harmless(0, 600),
    "embed_timeout_s": _harmless(0.1, 3600),
    "embed_query_timeout_s": _harmless(0.1, 60),
    "embed_batch": _harmless(1, 2048),
    "ollama_url": _personal(),
    "ollama_model": _trusted(),
    "openai_base_url": _personal(),
    "openai_model": _trusted(),
    "openai_dimensions": _trusted(1, 65_536),
    "openai_api_key": _personal(),
    "chat_model": _personal(),
    "chat_base_url": _personal(),
    "chat_api_key": _personal(),
    "chat_timeout_s": _trusted(0.1, 3600),
    "chat_max_tokens": _trusted(1, 1_000_000),
    "summary_model": _personal(),
    "summary_base_url": _personal(),
    "summary_api_key": _personal(),
    "summary_spend_cap_usd": _personal(0, 100_000),
}


_DEFAULTS = Settings()


class Setting(msgspec.Struct, frozen=True):
    """One value, and what gave it."""

    key: str
    value: Any
    origin: str


KEYS: tuple[str, ...] = Settings.__struct_fields__


class Config(msgspec.Struct, frozen=True):
    """The settings in force, the list that explains them, and what a project asked for in vain."""

    settings: Settings
    origins: tuple[Setting, ...]
    ignored: tuple[Wish, ...] = ()


def home_folder(environ: Mapping[str, str] | None = None) -> Path:
    """Where what belongs to no project is kept."""
    return Path(disk.home(environ))


def load(
    *,
    home: Path,
    project_file: Path | None = None,
    environ: Mapping[str, str] | None = None,
    given: Mapping[str, Any] | None = None,
) -> Config:
    """All settings, each from the strongest place that names it and may."""
    values: dict[str, Any] = {}
    origins = dict.fromkeys(KEYS, "default")
    ignored: tuple[Wish, ...] = ()
    for file in (home / USER_FILE, project_file):
        if file is not None:
            plain = _without_retired(_read(file), where=str(file))
            if file is project_file:
                ignored = _untrusted(plain, values, home=home, file=file)
            left_out = {one.name for one in ignored}
            for key, value in plain.items():
                if key not in left_out:
                    _check_place(file, key)
                    values[key] = _fitting(key, value, where=str(file))
                    origins[key] = str(file)
    for name, value in (os.environ if environ is None else environ).items():
        key = name.removeprefix(_PREFIX).lower()
        if not name.startswith(_PREFIX) or name in _PLACES:
            continue
        if _without_retired({key: value}, where=name) and key in KEYS:
            values[key] = _fitting(key, _parsed(key, value), where=name)
            origins[key] = name
    for key, value in _without_retired(given or {}, where="given").items():
        values[key] = _fitting(key, value, where="given")
        origins[key] = "given"
    settings = Settings(**values)
    explained = tuple(
        Setting(key, shown(key, getattr(settings, key)), origins[key]) for key in KEYS
    )
    return Config(settings, explained, ignored)


def wishes(*, home: Path, project_file: Path) -> list[Wish]:
    """What a project's file asks for that a person must allow, allowed or not."""
    user = home / USER_FILE
    plain = _without_retired(_read(user), where=str(user))
    weaker = {key: _fitting(key, value, where=str(user)) for key, value in plain.items()}
    plain = _without_retired(_read(project_file), where=str(project_file))
    return _wishes(plain, weaker, where=str(project_file))


def _wishes(plain: Mapping[str, Any], weaker: Mapping[str, Any], *, where: str) -> list[Wish]:
    """The settings of the trusted level that are not free and would change something."""
    found: list[Wish] = []
    for key, value in plain.items():
        fitted = _fitting(key, value, where=where)
        rule, known = RULES[key], weaker.get(key, getattr(_DEFAULTS, key))
        if rule.level == "trusted" and fitted not in rule.free and fitted != known:
            text = f"{key} = {json.dumps(fitted, ensure_ascii=False)}"
            found.append(Wish("setting", key, fitted, text))
    return found


def _untrusted(
    plain: Mapping[str, Any], weaker: Mapping[str, Any], *, home: Path, file: Path
) -> tuple[Wish, ...]:
    asked = _wishes(plain, weaker, where=str(file))
    if not asked:
        return ()
    known = trusted(home, file.parent.parent)
    return tuple(one for one in asked if one.digest not in known)


def within(key: str, number: float) -> float:
    """The number, or the nearest one that the setting may have."""
    return min(max(number, RULES[key].low), RULES[key].high)


def unknown_variables(environ: Mapping[str, str] | None = None) -> list[str]:
    """Names in the environment that look like settings and are none."""
    names = os.environ if environ is None else environ
    return sorted(
        name
        for name in names
        if name.startswith(_PREFIX)
        and name not in _PLACES
        and name.removeprefix(_PREFIX).lower() not in KEYS
    )


def shown(key: str, value: Any) -> Any:
    """The value as it may be shown: of a secret only whether there is one."""
    if key in _SECRETS:
        return "set" if value else "not set"
    if key.endswith("_url") and isinstance(value, str) and "@" in value:
        # Refused when it is used; a password does not belong there, and is not shown.
        scheme, _, rest = value.partition("://")
        return f"{scheme}://{rest.rpartition('@')[2]}"
    return value


def store(file: Path, key: str, text: str, *, home: Path | None = None) -> Any:
    """Write one setting into a file, keeping the others, and give the value as it is shown.

    With `home`, a person says it: what they put into a project's file themselves is trusted.
    """
    value = _fitting(key, _parsed(key, text), where="config")
    _check_place(file, key)
    plain = _read(file)
    plain[key] = value
    _write(file, plain)
    if home is not None and file.name == PROJECT_FILE:
        said = _wishes(_without_retired(_read(file), where=str(file)), {}, where=str(file))
        if mine := [one for one in said if one.name == key]:
            trust(home, file.parent.parent, mine, more=True)
    return shown(key, value)


def clear(file: Path, key: str) -> bool:
    """Take one setting out of a file; False when it was not there."""
    plain = _read(file)
    if key not in plain:
        _known(key, where="config")  # one that is in the file may go, known or not
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
        json.dumps(plain, ensure_ascii=False).encode()  # no half of a surrogate pair goes further
    except FileNotFoundError:
        return {}
    except RecursionError:
        raise _unreadable(file, "its brackets are nested too deeply") from None
    except UnicodeEncodeError:
        raise _unreadable(
            file, "it holds half of a surrogate pair, which is no character"
        ) from None
    except UnsafeFile:
        raise  # it says everything itself
    except (ValueError, OSError) as error:
        raise _unreadable(file, str(error)) from None
    if not isinstance(plain, dict):
        raise BadSetting(
            "the settings must be one JSON object", where=str(file), todo="Mend or delete it."
        )
    return plain


def _unreadable(file: Path, why: str) -> BadSetting:
    return BadSetting(
        f"the settings cannot be read: {why}", where=str(file), todo="Mend or delete it."
    )


def _fitting(key: str, value: Any, *, where: str) -> Any:
    _known(key, where=where)
    try:
        fitted = msgspec.convert({key: value}, Settings, strict=False)
    except (msgspec.ValidationError, UnicodeEncodeError) as error:
        raise BadSetting(
            f"{key} cannot be {shown(key, value)!r}: {str(error).partition(' - ')[0]}",
            where=where,
            todo="`ralph config` shows every setting and its value.",
        ) from None
    result = getattr(fitted, key)
    rule = RULES[key]
    is_number = isinstance(result, int | float) and not isinstance(result, bool)
    if is_number and not rule.low <= result <= rule.high:
        raise BadSetting(
            f"{key} cannot be {value!r}: it goes from {rule.low} to {rule.high}", where=where
        )
    return result


def _check_place(file: Path, key: str) -> None:
    if key in RULES and RULES[key].level == "personal" and file.name == PROJECT_FILE:
        raise BadSetting(
            f"{key} may not stand in a project's file, which travels with clones",
            where=str(file),
            todo=f"Set it for yourself: ralph config --user {key} VALUE, or {_PREFIX}{key.upper()}",
        )


def _without_retired(plain: Mapping[str, Any], *, where: str) -> dict[str, Any]:
    """The settings that there still are; one warning in this process for each of the others."""
    for key in plain.keys() & RETIRED.keys():
        if (where, key) not in _warned:
            import logging

            _warned.add((where, key))
            warning = "%s: %s has no effect: %s"
            logging.getLogger("ralph").warning(warning, where, key, RETIRED[key])
    return {key: value for key, value in plain.items() if key not in RETIRED}


def _known(key: str, *, where: str) -> None:
    if key in RETIRED:
        raise BadSetting(f"{key} cannot be set: {RETIRED[key]}", where=where)
    if key not in KEYS:
        raise BadSetting(
            f"there is no setting {key!r}",
            where=where,
            todo="`ralph config` shows every setting.",
        )


def spelled(key: str, value: Any) -> str:
    """The value as a variable of the environment says it to another Ralph."""
    return str(value or "") if key in _SECRETS else json.dumps(value)


def _parsed(key: str, text: str) -> Any:
    if key in _SECRETS:
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
