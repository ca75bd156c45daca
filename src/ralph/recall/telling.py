"""What a model is told unasked: one rule for the prompt hook, for chats and for prompts.

Nothing is told unless the hits are likely to answer. Then the best are told, at most a few from
each conversation. How many is the budget of the moment.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence

from ralph.recall import Hit
from ralph.recall.score import FLOOR, TOLD, WORTH_TELLING
from ralph.records.conversation import SUMMARY, Exchange
from ralph.records.iteration import Iteration
from ralph.text.questions import is_question
from ralph.text.rarity import usual_rarity
from ralph.text.tokens import tokens, word_set

# How relevant a conversation must be compared with the best one: next to a good answer, weak ones
# only distract.
_BESIDE_THE_BEST = 0.85


def conversation_of(hit: Hit) -> str:
    """Return the conversation that a hit belongs to; a record without one stands for itself."""
    if isinstance(hit.record, Exchange):
        return hit.record.conversation
    if hit.kind == SUMMARY:
        return str(hit.record.target)
    return hit.id


def answered(hits: Sequence[Hit]) -> float:
    """Return how likely the answer is among these hits.

    A server may leave out what each stage contributed. The answer is at least as likely as its most
    relevant hit.
    """
    return max((hit.parts.answered if hit.parts else hit.score or 0.0 for hit in hits), default=0.0)


def worth_telling(
    hits: Sequence[Hit],
    *,
    conversations: int,
    each: int = 1,
    bar: float = TOLD,
) -> list[Hit]:
    """Return the hits to tell, in their order; none if they probably don't answer.

    At most `each` hits from one conversation, and at most this many `conversations`; a record that
    belongs to none counts as one. `bar`: how likely an answer must be. A conversation is told for a
    relevant hit that would be told alone, or is nearly as relevant as the best one. Further hits
    from it need only reach the floor. Without a bar, every hit may be told.
    """
    if answered(hits) < bar:
        return []
    floor = min(FLOOR, bar)
    best = max((hit.score or 0.0 for hit in hits), default=0.0)
    least = min(WORTH_TELLING, bar)
    chosen: dict[str, list[Hit]] = {}
    for hit in hits:
        score = hit.score or 0.0
        name = conversation_of(hit)
        if name in chosen:
            if score >= floor and len(chosen[name]) < each:
                chosen[name].append(hit)
            continue
        alone = hit.parts.alone if hit.parts else 0.0
        fits = alone >= bar or score >= _BESIDE_THE_BEST * best
        if score >= least and fits and len(chosen) < conversations:
            chosen[name] = [hit]
    return [hit for group in chosen.values() for hit in group]


# -- At a prompt.


_PROMPT_HITS = 3
# How likely an answer must be. Nobody asked memory, so it is more than in a chat.
_PROMPT_BAR = 0.80
# A longer prompt asks for work.
_QUESTION_CHARS = 200
# The share of what a prompt is about that earlier work must have. A long prompt says much else.
_LEAST_SHARE = 0.35
_MOST_NATS = 30.0
# How rare the shared words must be together: one usual word is no subject.
_LEAST_NATS = 5.0
# How relevant a record must be: in replays, most of what scored less than this was not about the
# work that a prompt asked for. A question may be told records that are a little less relevant.
_LEAST_FOR_WORK = 0.58
_LEAST_FOR_QUESTION = 0.5
# From here on, two texts mean the same, whatever their words are.
_SAME_MEANING = 0.6
_PICTURE = re.compile(r"(?i)\[(?:image|screenshot)[^\]\n]{0,80}\]")
_ADDRESS = re.compile(r"\b\w+://\S+")
# What is asked for, what the agent did ("did you ...?"), and what goes on ("and the page?").
_REQUEST = re.compile(
    r"^(?:and|also)\b|(?:^|[.!?] +)"
    r"(?:(?:can|could|may|might|shall|should|will|would) (?:i|it|that|this|we|you)\b"
    r"|(?!how|who|why)[a-z]{2,4} you\b)",
    re.I,
)


def told_at_prompt(
    hits: Sequence[Hit], prompt: str, *, shown: Callable[[Hit], str], common: frozenset[str]
) -> list[Hit]:
    """Return the few hits that a prompt is told, the most relevant first.

    `shown` returns what the model would read of a hit. The `common` words of the project say
    nothing about what a prompt for work is about.
    """
    if asks_memory(prompt):
        return chosen_hits(_about_the_question(prompt, hits, shown), _LEAST_FOR_QUESTION)
    return chosen_hits(_about_the_prompt(prompt, hits, shown, common), _LEAST_FOR_WORK)


def chosen_hits(hits: Sequence[Hit], least: float) -> list[Hit]:
    """Return the few hits to tell, the most relevant first, at most two from one conversation."""
    once = sorted(_each_question_once(hits), key=lambda hit: hit.score or 0.0, reverse=True)
    told = worth_telling(once, conversations=_PROMPT_HITS, each=2, bar=_PROMPT_BAR)
    fitting = [hit for hit in told if (hit.score or 0.0) >= least or _means_the_same(hit)]
    return fitting[:_PROMPT_HITS]


def _means_the_same(hit: Hit) -> bool:
    return hit.parts is not None and (hit.parts.meaning or 0.0) >= _SAME_MEANING


def asks_memory(prompt: str) -> bool:
    """Whether a prompt asks something that earlier sessions may know.

    "Can you add ...?" asks for work, and "did you push?" is about the session under way.
    """
    plain = prompt.strip()
    return len(plain) <= _QUESTION_CHARS and is_question(plain) and not _REQUEST.search(plain)


def _about_the_prompt(
    prompt: str, hits: Sequence[Hit], shown: Callable[[Hit], str], common: frozenset[str]
) -> list[Hit]:
    """Return the hits that share enough of what the prompt is about, by how rare its words are.

    Words about how to work, such as "commit", and the `common` words of the project do not count.
    A note says one thing, so one word of it is enough.
    """
    subject = subject_of(prompt) - common
    wanted = min(_MOST_NATS, sum(map(usual_rarity, subject)))
    found: list[Hit] = []
    for hit in hits if wanted else ():
        shared = subject & subject_of(shown(hit))
        is_work = isinstance(hit.record, Exchange | Iteration)
        least = max(_LEAST_NATS, _LEAST_SHARE * wanted) if is_work else 0.0
        if shared and sum(map(usual_rarity, shared)) >= least:
            found.append(hit)
    return found


def _about_the_question(prompt: str, hits: Sequence[Hit], shown: Callable[[Hit], str]) -> list[Hit]:
    """Return the hits that share a word with a question, or surely mean the same.

    A question such as "why not?" has no subject of its own.
    """
    subject = subject_of(prompt)
    found: list[Hit] = []
    for hit in hits if subject else ():
        if _means_the_same(hit) or subject & subject_of(shown(hit)):
            found.append(hit)
    return found


def subject_of(text: str) -> set[str]:
    """Return the words that tell what a text is about."""
    # Clients put "[Image #1]" in the place of a picture. The words of an address are not about it.
    words = tokens(_ADDRESS.sub(" ", _PICTURE.sub(" ", text)))
    return {word for word in words if not word.isdigit()} - _process_words()


@functools.cache
def _process_words() -> frozenset[str]:
    return frozenset(tokens(" ".join(word_set("how to work"))))


def _each_question_once(hits: Sequence[Hit]) -> list[Hit]:
    """Keep only the newest exchange for each question, in the place of the best one."""
    newest: dict[str, Hit] = {}
    for hit in hits:
        record = hit.record
        asked = " ".join(record.user.lower().split()) if isinstance(record, Exchange) else ""
        before = newest.get(asked or hit.id)
        if before is None or (_when(hit) > _when(before) and _adds(hit) >= _adds(before)):
            newest[asked or hit.id] = hit
    return list(newest.values())


def _when(hit: Hit) -> str:
    return getattr(hit.record, "completed", None) or ""


def _adds(hit: Hit) -> float:
    """Return what the answer says beyond the question: a newer one that says nothing is no news."""
    return hit.parts.adds if hit.parts else 1.0
