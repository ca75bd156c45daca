from __future__ import annotations

import re
import sqlite3
import subprocess
import sys
import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralph.text import tokens as module
from ralph.text.tokens import TOKENISER_VERSION, query_tokens, spellings, tokens


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("getUserById", "getuserbyid user id"),
        ("GetUserById", "getuserbyid user id"),
        ("get_user_by_id", "getuserbyid user id"),
        ("get-user-by-id", "getuserbyid user id"),
        ("HTTPServer", "httpserver http server"),
        ("parseURLs", "parseurl pars url"),
        ("MAX_RETRIES", "maxretri max retri"),
        ("__init__", "init"),
        ("utf8 UTF-8", "utf8 utf utf8 utf"),
        ("Linear1D", "linear1d linear"),
        ("e-mail", "email mail"),
        ("os.path.join", "os.path.join os path join"),
        ("userService.getUser()", "userservice.getuser userservic user servic getus"),
        ("src/auth/login.py", "src/auth/login.py src auth login.py login py"),
        (r"src\auth\login.py", "src/auth/login.py src auth login.py login py"),
        ("login.py:42:7", "login.py login py 42 7"),
        ("std::io::Error", "std/io/error std io error"),
        ("@app.route", "app.route app rout"),
        ("--max-depth=3", "maxdepth max depth 3"),
        ("3.11.4 v3.11", "3.11.4 3.11 3.11"),
        ("error[E0382]", "error e0382 0382"),
        ("TS2345 ENOENT", "ts2345 ts 2345 enoent"),
        ("0x7ffdEAD0 3f2a9c1", "0x7ffdead0 3f2a9c1"),
        ("C++ and C#", "c++ c#"),
        ("the migrations were failing", "migrat fail"),
    ],
)
def test_code_gives_the_whole_and_its_parts(text: str, expected: str) -> None:
    assert tokens(text) == expected.split()


@pytest.mark.parametrize("text", ["never", "no", "not", "without"])
def test_negations_are_kept(text: str) -> None:
    assert tokens(text) == [text]


@pytest.mark.parametrize("text", ["don't", "DON'T", "can\u2019t", "cannot", "isn't", "dont"])
def test_contracted_negations_are_not(text: str) -> None:
    assert tokens(text) == ["not"]


def test_other_contractions_lose_their_ending() -> None:
    assert tokens("the user's token, we'll see, it needn't") == ["user", "token", "see", "not"]


def test_accents_width_and_case_do_not_matter() -> None:
    assert tokens("café CAFÉ cafe\u0301 \uff43afe") == ["cafe"] * 4
    assert tokens("Straße") == tokens("STRASSE")
    assert tokens("Ærø Łódź") == ["aero", "lodz"]


def test_unspaced_scripts_are_characters_and_overlapping_pairs() -> None:
    assert tokens("東京都") == ["東", "京", "都", "東京", "京都"]
    assert query_tokens("東京都") == ["東京", "京都"]
    assert query_tokens("猫") == ["猫"]
    assert set(query_tokens("검색")) <= set(tokens("한국어검색기"))
    assert set(query_tokens("ไทย")) <= set(tokens("ภาษาไทย"))


def test_other_scripts_go_by_letters() -> None:
    assert tokens("Привет, мир") == ["привет", "мир"]
    assert tokens("हिन्दी") == ["हिन्दी"]
    assert tokens("שָׁלוֹם") == tokens("שלום")


def test_a_question_has_each_token_once_and_no_stop_words() -> None:
    assert query_tokens("why did the migration fail? The failing migration") == ["migrat", "fail"]


def test_a_question_of_stop_words_keeps_them() -> None:
    assert query_tokens("What is it, the what's?") == ["what", "is", "it", "the"]
    assert query_tokens("  ?? __ ") == []


def test_tokens_can_be_shown_as_they_were_written() -> None:
    written = spellings("Login validation of getUserById in CLIRunner, KeyError in src/form.py")
    assert {token: written[token] for token in ("login", "valid", "clirunn", "kei", "form.py")} == {
        "login": "login",
        "valid": "validation",
        "clirunn": "clirunner",
        "kei": "key",
        "form.py": "form.py",
    }


def test_the_same_name_written_in_any_style_is_found() -> None:
    for left, right in pairwise(["getUserById", "get_user_by_id", "get-user-by-id", "GetUserByID"]):
        assert set(query_tokens(left)) == set(tokens(right))


HOSTILE = ["a", "_", "/", "a/", "a.", "aB", "a-", "'", "a'", "0", "é", "東", "a1", "c+", "1.", "f0"]


@pytest.mark.parametrize("piece", [*HOSTILE, "a:::", "AAa", "é/a", "\u0301", "n't", "\\a"])
def test_hostile_input_takes_linear_time(piece: str) -> None:
    # Quadratic would be minutes; the bound leaves room for a busy machine.
    text = piece * (300_000 // len(piece))
    start = time.process_time()
    found = tokens(text)
    assert time.process_time() - start < 5
    assert all(len(token) <= 64 for token in found)


def test_the_cache_of_words_is_bounded_and_takes_no_long_ones() -> None:
    limit = module._cached.cache_info().maxsize
    assert limit is not None
    assert limit <= 100_000
    before = module._cached.cache_info().currsize
    for number in range(1000):
        assert tokens(f"word{number}x") == [f"word{number}x", "word", *_number(number)]
    tokens("long" * 1000)
    assert module._cached.cache_info().currsize <= before + 1000


def _number(number: int) -> list[str]:
    return [str(number)] if number > 9 else []


def test_fts5_takes_every_token_as_it_is() -> None:
    text = "src/a_b/login.py:42 C++ c# 3.11.4 E0382 café 東京都 Привет हिन्दी user@example.com x"
    found = tokens(text)
    database = sqlite3.connect(":memory:")
    database.execute("""CREATE VIRTUAL TABLE w USING fts5(t, tokenize="ascii tokenchars './+#'")""")
    database.execute("CREATE VIRTUAL TABLE v USING fts5vocab(w, 'row')")
    database.execute("INSERT INTO w VALUES (?)", (" ".join(found),))
    assert {term for (term,) in database.execute("SELECT term FROM v")} == set(found)
    database.close()


def test_importing_is_cheap() -> None:
    code = "import sys, ralph.text.tokens; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_version_is_a_word_for_the_manifest() -> None:
    assert re.fullmatch(r"\w+", TOKENISER_VERSION)


@given(st.text())
def test_any_text_gives_clean_tokens_and_always_the_same(text: str) -> None:
    found = tokens(text)
    assert found == tokens(text)
    for token in [*found, *query_tokens(text)]:
        assert 0 < len(token) <= 64
        assert not re.search(r"[\s\"'*^():\\\-]", token)


@given(st.text(alphabet=st.sampled_from("aB9_.-/\\:'#@+ é東ж"), max_size=60))
def test_a_question_finds_the_passage_it_was_copied_from(text: str) -> None:
    found = tokens(text)
    if found:
        assert set(query_tokens(text)) <= set(found)
    assert len(query_tokens(text)) == len(set(query_tokens(text)))


@given(st.lists(st.from_regex(r"[a-z]{3,12}", fullmatch=True)))
def test_tokenising_a_passage_in_two_pieces_is_tokenising_it_whole(words: list[str]) -> None:
    half = len(words) // 2
    left, right = " ".join(words[:half]), " ".join(words[half:])
    assert tokens(f"{left} {right}") == tokens(left) + tokens(right)
