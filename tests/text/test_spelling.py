from __future__ import annotations

import pytest

from ralph.text.tokens import american, tokens


@pytest.mark.parametrize(
    ("british", "plain"),
    [
        ("licence", "license"),
        ("colours", "colors"),
        ("behavioural", "behavioral"),
        ("catalogue", "catalog"),
        ("centred", "centered"),
        ("kilometres", "kilometers"),
        ("initialises", "initializes"),
        ("authorisation", "authorization"),
        ("serialising", "serializing"),
        ("analyser", "analyzer"),
        ("defence", "defense"),
        ("grey", "gray"),
        ("acknowledgement", "acknowledgment"),
        ("programmes", "program"),
        ("artefacts", "artifacts"),
        ("datacentre", "datacenter"),
        ("organisational", "organizational"),
        ("watercolour", "watercolor"),
        ("catalogued", "cataloged"),
        ("cataloguing", "cataloging"),
        ("focussed", "focused"),
        ("fuelled", "fueled"),
        ("practise", "practice"),
        ("cheques", "checks"),
        ("discs", "disks"),
        ("queueing", "queuing"),
        ("setColour", "setColor"),
        ("serialise_json", "serialize_json"),
    ],
)
def test_british_and_american_spelling_are_one_word(british: str, plain: str) -> None:
    assert tokens(british) == tokens(plain)


@pytest.mark.parametrize(
    "word",
    [
        "hour",
        "four",
        "source",
        "fence",
        "science",
        "are",
        "else",
        "rice",
        "discover",
        "there",
        "acre",
    ],
)
def test_other_words_keep_their_spelling(word: str) -> None:
    assert american(word) == word


@pytest.mark.parametrize("family", [("promise", "promised", "promises"), ("raise", "raising")])
def test_a_word_that_always_ends_in_ise_stays_one_word(family: tuple[str, ...]) -> None:
    assert len({*map(tuple, map(tokens, family))}) == 1
