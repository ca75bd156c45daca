from __future__ import annotations

import subprocess
import sys

import pytest
from places import ROOT

from ralph.text.rarity import usual_rarity
from ralph.text.tokens import stem


def rarity_of(word: str) -> float:
    return usual_rarity(stem(word))


def test_a_name_says_more_than_a_word_of_every_project() -> None:
    assert rarity_of("bitbucket") > rarity_of("upload") > rarity_of("server") > rarity_of("error")


def test_a_word_that_is_not_in_the_table_is_as_rare_as_any() -> None:
    assert usual_rarity("xyzzyq") == max(map(usual_rarity, ("xyzzyq", "ldap", "kerbero", "error")))


@pytest.mark.parametrize("word", ["the", "of"])
def test_a_stop_word_says_nothing(word: str) -> None:
    assert usual_rarity(word) == 0.0


def test_small_numbers_and_single_letters_say_little() -> None:
    assert usual_rarity("7") == usual_rarity("42") == usual_rarity("x") < rarity_of("upload")
    assert usual_rarity("8443") > usual_rarity("42")


def test_words_of_orders_say_little() -> None:
    assert rarity_of("commit") + rarity_of("push") < rarity_of("bitbucket")


def test_the_table_is_made_from_the_vocabulary_of_the_embedder() -> None:
    script = ROOT / "embedder" / "rarities.py"
    made = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)
    assert made.stdout == (ROOT / "src/ralph/text/rarities.txt").read_text("utf-8")
