"""The settings in groups, each with a name that says what it does."""

from __future__ import annotations

from typing import Any, NamedTuple

from ralph.config import RULES, Rule, Setting, Settings


class SettingGroup(NamedTuple):
    """Settings that belong together, each key with its plain name."""

    title: str
    about: str
    names: dict[str, str]


class SettingLine(NamedTuple):
    """A setting as the page shows it."""

    setting: Setting
    name: str
    value: str
    default: str
    rule: Rule

    @property
    def is_switch(self) -> bool:
        """Whether it is either on or off."""
        return isinstance(getattr(Settings(), self.setting.key), bool)

    @property
    def is_changed(self) -> bool:
        """Whether something sets it, instead of its default."""
        return self.setting.origin != "default"


GROUPS = (
    SettingGroup(
        "Sessions",
        "what is saved, and what the model is told unasked",
        {
            "hook_capture": "Save my sessions",
            "hook_inject": "Give the model relevant memories",
            "hook_messages": "Show me one line when memory was used",
            "hook_files": "Tell what is known about a file",
            "hook_compaction": "Tell again after a compaction",
            "hook_holds": "Hold a command that failed twice",
            "hook_checks": "Hold what my approved rules forbid",
            "hook_holds_unattended": "Hold also where nobody is at the client",
            "pause_folders": "Folders where nothing is saved",
            "hook_timeout_s": "Time limit of a hook (seconds)",
        },
    ),
    SettingGroup(
        "Search",
        "how much is shown, and how text becomes searchable",
        {
            "search_limit": "Results of a search",
            "min_score": "Lowest score that is shown",
            "embedder": "What finds text by meaning",
            "ollama_url": "Ollama: address",
            "ollama_model": "Ollama: model",
            "openai_base_url": "OpenAI-compatible server: address",
            "openai_model": "OpenAI-compatible server: model",
            "openai_api_key": "OpenAI-compatible server: key",
        },
    ),
    SettingGroup(
        "The loop",
        "how `ralph run` works on a plan",
        {
            "agent": "Agent program",
            "agent_permissions": "What the agent may run",
            "agent_env": "More variables for the agent",
            "model_work": "Model for work",
            "model_review": "Model for reviews",
            "iteration_timeout_s": "Time limit of an iteration (seconds)",
            "review_every": "Review every so many iterations",
            "stagnation_limit": "Stop after so many without a change",
            "prompt_tokens": "Size of the prompt (tokens)",
        },
    ),
    SettingGroup(
        "Chat",
        "`ralph chat` and what it recalls",
        {
            "chat_model": "Model",
            "chat_base_url": "Server",
            "chat_api_key": "Key",
            "chat_timeout_s": "Time limit of an answer (seconds)",
            "chat_max_tokens": "Longest answer (tokens)",
            "rag_enabled": "Recall past conversations",
            "rag_conversation_limit": "Conversations to recall from",
            "rag_exchange_limit_per_conversation": "Exchanges of each",
            "rag_min_similarity": "Lowest score that is recalled",
            "rag_recency_half_life_days": "Old exchanges fade (days)",
        },
    ),
    SettingGroup(
        "Summaries and background work",
        "what is done after sessions",
        {
            "summarizer_conversation_enabled": "Summarize conversations",
            "summarizer_exchange_enabled": "Summarize exchanges",
            "embedding_pipeline_enabled": "Prepare conversations for search by meaning",
            "summary_model": "Model that writes summaries",
            "summary_base_url": "Its server",
            "summary_api_key": "Its key",
            "summary_spend_cap_usd": "Most that summaries may cost (USD)",
            "summarizer_idle_timeout_s": "Pause of the summarizers (seconds)",
            "embedding_pipeline_poll_interval_s": "Pause between looks for new text (seconds)",
            "embedding_batch_size": "Texts prepared at once",
            "embedding_max_retries": "Retries after a failure",
        },
    ),
    SettingGroup(
        "Sharing and keeping",
        "between your projects, and for how long",
        {
            "knowledge_give": "Publish this project's lessons to my projects",
            "knowledge_receive": "Use the lessons of my other projects",
            "knowledge_keep_days": "Keep lessons (days)",
            "conversations_keep_days": "Keep conversations (days)",
            "technology": "Technology of this project",
        },
    ),
    SettingGroup(
        "Servers and time limits",
        "where journals and index are, and how long to wait",
        {
            "journal_url": "PostgreSQL server of the journals",
            "vector_store": "What keeps the index",
            "qdrant_url": "Qdrant server of the index",
            "qdrant_api_key": "Qdrant: key",
            "qdrant_binary": "Qdrant: program that Ralph starts",
            "remember_budget_s": "How long memory may hold up a caller (seconds)",
            "journal_lock_timeout_s": "Wait for another writer (seconds)",
            "index_lock_timeout_s": "Wait for another indexer (seconds)",
        },
    ),
)
_OTHER = "Other"


def group_of(key: str) -> str:
    """Return the title of the group that a setting is in."""
    return next((group.title for group in GROUPS if key in group.names), _OTHER)


def line_of(setting: Setting) -> SettingLine:
    """Return a setting as the page shows it."""
    names = {key: name for group in GROUPS for key, name in group.names.items()}
    name = names.get(setting.key, setting.key.replace("_", " ").capitalize())
    default = getattr(Settings(), setting.key)
    return SettingLine(setting, name, _shown(setting.value), _shown(default), RULES[setting.key])


def grouped_lines(lines: list[SettingLine]) -> list[tuple[str, str, list[SettingLine]]]:
    """Return the groups that have one of these settings: title, what it is about, settings."""
    groups = []
    for group in (*GROUPS, SettingGroup(_OTHER, "", {})):
        order = list(group.names)
        mine = [line for line in lines if group_of(line.setting.key) == group.title]
        mine.sort(key=lambda line: order.index(line.setting.key) if order else 0)
        if mine:
            groups.append((group.title, group.about, mine))
    return groups


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return "" if value in (None, ()) else str(value)
