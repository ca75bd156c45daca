"""Embedders on a server: what they are asked, what is never believed, and when they get a rest."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from embedding_server import KEY, OLLAMA_MODEL, EmbeddingServer, running

from ralph.config import Settings
from ralph.errors import EmbedderOff
from ralph.index.embedders.ollama import Ollama, ollama_wire
from ralph.index.embedders.openai import OpenAI
from ralph.index.embedders.openai import open_embedder as open_openai
from ralph.index.embedders.served import Dialect, ServedEmbedder
from ralph.wire import Deadline

# Long enough for a busy machine to answer, short enough to wait for.
SHORT = 1.0
EMBED = {"ollama": "/api/embed", "openai": "/v1/embeddings"}


@pytest.fixture
def server() -> Iterator[EmbeddingServer]:
    with running() as started:
        yield started


class Clock:
    """A clock that goes on when a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


Make = Callable[..., ServedEmbedder]


@pytest.fixture(params=["ollama", "openai"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def make(kind: str, server: EmbeddingServer, clock: Clock, tmp_path: Path) -> Make:
    """Makes an embedder that never really waits before it asks again."""

    def made(**more: object) -> ServedEmbedder:
        options = {"memo": tmp_path / "cache" / f"{kind}.json", "clock": clock, **more}
        dialect: Ollama | OpenAI
        if kind == "ollama":
            wire = ollama_wire(server.url)
            wire.sleep = lambda seconds: None
            dialect = Ollama(wire)
        else:
            dialect = OpenAI(server.url, key=KEY)
            dialect._wire.sleep = lambda seconds: None
        return ServedEmbedder(dialect, **options)  # type: ignore[arg-type]

    return made


def refused(work: Callable[[], object]) -> EmbedderOff:
    with pytest.raises(EmbedderOff) as caught:
        work()
    return caught.value


def embeds(server: EmbeddingServer, kind: str) -> int:
    return len(server.asked(EMBED[kind]))


# -- what it asks


def test_texts_go_out_in_batches_and_come_back_in_order(
    make: Make, server: EmbeddingServer, kind: str
) -> None:
    embedder = make(batch=10)
    texts = [f"text {n}" for n in range(25)]
    vectors = embedder.embed_passages(texts)
    sizes = [len(one.body["input"]) for one in server.asked(EMBED[kind])]
    assert sizes == [1, 10, 10, 5]  # one to see that it works
    alone = make().embed_passages([texts[17]])[0]
    assert np.array_equal(vectors[17], alone)


def test_a_request_holds_no_more_text_than_a_server_takes(
    make: Make, server: EmbeddingServer, kind: str
) -> None:
    make(batch=1000).embed_passages(["word " * 12000] * 7)
    sizes = [len(one.body["input"]) for one in server.asked(EMBED[kind])]
    assert sizes == [1, 3, 3, 1]


def test_a_text_without_content_is_not_sent(make: Make, server: EmbeddingServer) -> None:
    embedder = make()
    vectors = embedder.embed_passages(["", "login form", "  \n"])
    assert [bool(row.any()) for row in vectors] == [False, True, False]
    assert not any(not text.strip() for text in server.texts())
    before = len(server.requests)
    assert not embedder.embed_query(" ").any()
    assert len(server.requests) == before


def test_ollama_gets_the_prefixes_its_model_was_trained_with(server: EmbeddingServer) -> None:
    embedder = ServedEmbedder(Ollama(ollama_wire(server.url)))
    embedder.embed_query("how?")
    embedder.embed_passages(["so"])
    assert "search_query: how?" in server.texts()
    assert server.texts()[-1] == "search_document: so"
    assert server.asked("/api/embed")[-1].body["model"] == "nomic-embed-text"


def test_openai_gets_the_key_in_a_header_and_the_dimensions_if_wanted(
    server: EmbeddingServer,
) -> None:
    server.key = KEY
    embedder = ServedEmbedder(OpenAI(server.url, key=KEY, dimensions=64))
    assert embedder.embed_query("how?").shape == (64,)
    last = server.requests[-1]
    assert last.headers["authorization"] == f"Bearer {KEY}"
    assert last.body == {"model": "text-embedding-3-small", "input": ["how?"], "dimensions": 64}


@pytest.mark.parametrize("ending", ["", "/", "/v1", "/v1/"])
def test_the_base_url_may_be_written_with_or_without_its_version(
    server: EmbeddingServer, ending: str
) -> None:
    ServedEmbedder(OpenAI(server.url + ending)).check()
    assert {one.path for one in server.requests} == {"/v1/models", "/v1/embeddings"}


def test_a_check_gives_up_on_a_server_that_says_nothing_before_it_waits_for_the_model(
    server: EmbeddingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ralph.index.embedders.served._GREETING_TIMEOUT_S", 0.2)
    server.fail("hang", paths="/v1/models /v1/embeddings")
    with pytest.raises(EmbedderOff):
        ServedEmbedder(OpenAI(server.url)).check()
    assert server.asked("/v1/embeddings") == []


def test_an_openai_server_that_numbers_nothing_is_believed_in_its_order(
    server: EmbeddingServer,
) -> None:
    embedder = ServedEmbedder(OpenAI(server.url))
    texts = ["login form", "invoice totals", "thumbnail cache"]
    numbered = embedder.embed_passages(texts)
    server.numbered = False
    assert np.array_equal(embedder.embed_passages(texts), numbered)


# -- who it is


def test_the_identity_names_the_model_its_version_and_its_dimensions(make: Make, kind: str) -> None:
    embedder = make()
    assert embedder.identity.endswith(":unknown")
    assert embedder.dims == 0
    embedder.check()
    assert embedder.dims == 256
    beginning = {
        "ollama": "ollama:nomic-embed-text:0a109f422b47:256:",
        "openai": "openai:text-embedding-3-small:",
    }
    assert embedder.identity.startswith(beginning[kind])


def test_the_identity_is_kept_on_disk_and_asks_nobody(make: Make, server: EmbeddingServer) -> None:
    first = make()
    first.check()
    before = len(server.requests)
    second = make()
    assert (second.identity, second.dims) == (first.identity, 256)
    assert len(server.requests) == before


@pytest.mark.parametrize("damage", [b"", b"{", b'{"dims": -3, "version": ""}', b"\xff\x00"])
def test_a_damaged_memo_is_no_memo(make: Make, tmp_path: Path, damage: bytes) -> None:
    make().check()
    [memo] = (tmp_path / "cache").iterdir()
    memo.write_bytes(damage)
    embedder = make()
    assert embedder.identity.endswith(":unknown")
    embedder.embed_query("learn it again")
    assert make().dims == 256


def test_a_memo_that_cannot_be_kept_does_no_harm(make: Make, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    embedder = make(memo=tmp_path / "file" / "memo.json")
    assert embedder.embed_query("login form").any()


def test_pulling_another_version_is_another_identity(
    server: EmbeddingServer, clock: Clock, tmp_path: Path
) -> None:
    def made() -> ServedEmbedder:
        dialect = Ollama(ollama_wire(server.url))
        return ServedEmbedder(dialect, memo=tmp_path / "memo.json", clock=clock)

    embedder = made()
    embedder.embed_query("first")
    old = embedder.identity
    server.digests[f"{OLLAMA_MODEL}:latest"] = "sha256:ffff0000ffff0000"
    server.dims = 128
    clock.now += 60.0
    assert embedder.embed_query("second").shape == (128,)
    assert embedder.identity != old
    assert "ffff0000ffff:128" in embedder.identity
    assert made().identity == embedder.identity


def test_other_servers_and_dimensions_are_other_identities(server: EmbeddingServer) -> None:
    dialects: list[Dialect] = [
        OpenAI(server.url),
        OpenAI(server.url.replace("127.0.0.1", "localhost")),
        OpenAI(server.url, dimensions=64),
        Ollama(ollama_wire(server.url)),
    ]
    identities = set()
    for dialect in dialects:
        embedder = ServedEmbedder(dialect)
        embedder.check()
        identities.add(embedder.identity)
    assert len(identities) == len(dialects)


# -- what is never believed

_READ = "gave an answer that cannot be read"
WRONG = [
    ("not_json", _READ),
    ("other_json", _READ),
    ("words", _READ),
    ("nan", _READ),
    ("half", "gave 2 vectors for 4 texts"),
    ("more", "gave 5 vectors for 4 texts"),
    ("dims", "gave vectors of 128 numbers instead of 256"),
    ("ragged", "gave vectors of 253 and 254 and 255 and 256 numbers instead of 256"),
    ("empty", "gave vectors of 0 numbers instead of 256"),
    ("infinite", "gave vectors that hold what is no number"),
    ("400", "refused to embed (400: the input is not what I expect)"),
    ("500", "refused to embed (500: llama runner process has terminated)"),
    ("reset", "broke off the connection"),
]


@pytest.mark.parametrize(("fault", "told"), WRONG, ids=[fault for fault, _ in WRONG])
def test_a_wrong_answer_is_told_and_not_used(
    make: Make, server: EmbeddingServer, fault: str, told: str
) -> None:
    embedder = make()
    embedder.check()
    server.fail(fault)
    error = refused(lambda: embedder.embed_passages(["one", "two", "three", "four"]))
    assert told in error.what
    assert error.where is not None
    assert error.where.startswith(server.url)
    assert error.todo
    assert "\n" not in str(error)


def test_vectors_that_have_no_numbers_are_refused_at_the_first_meeting(
    make: Make, server: EmbeddingServer, tmp_path: Path
) -> None:
    server.fail("empty")
    assert "0 numbers" in refused(make().check).what
    assert not (tmp_path / "cache").exists()


def test_a_model_changed_on_purpose_is_accepted_by_a_check(
    make: Make, server: EmbeddingServer
) -> None:
    embedder = make()
    embedder.check()
    old = embedder.identity
    server.dims = 128
    assert "run: ralph status" in str(refused(lambda: embedder.embed_query("how?")))
    embedder.check()
    assert embedder.dims == 128
    assert embedder.identity != old


# -- what it says when it is not there


def test_an_ollama_that_does_not_run_says_how_to_start_it(server: EmbeddingServer) -> None:
    embedder = ServedEmbedder(Ollama(ollama_wire(server.url)))
    server.close()
    error = refused(embedder.check)
    assert str(error) == f"{server.url}: Ollama is not reachable. Start it: ollama serve"


@pytest.mark.parametrize("work", ["check", "query", "passages"])
def test_a_model_that_was_not_pulled_says_how_to_get_it(server: EmbeddingServer, work: str) -> None:
    server.digests.clear()
    embedder = ServedEmbedder(Ollama(ollama_wire(server.url)))
    tries = {
        "check": embedder.check,
        "query": lambda: embedder.embed_query("how?"),
        "passages": lambda: embedder.embed_passages(["so"]),
    }
    told = "nomic-embed-text not found. Run: ollama pull nomic-embed-text"
    assert str(refused(tries[work])) == told


def test_a_model_that_goes_while_we_work_says_so_too(server: EmbeddingServer) -> None:
    embedder = ServedEmbedder(Ollama(ollama_wire(server.url)))
    embedder.check()
    server.digests.clear()
    assert str(refused(lambda: embedder.embed_query("how?"))).startswith("nomic-embed-text not f")


def test_an_ollama_too_old_for_batches_is_told(server: EmbeddingServer) -> None:
    server.fail("not_json", paths="/api/tags")
    embedder = ServedEmbedder(Ollama(ollama_wire(server.url)))
    assert _READ in refused(embedder.check).what
    server.fail(None)
    dialect = Ollama(ollama_wire(server.url + "/old"))
    assert "does not list its models (404)" in refused(ServedEmbedder(dialect).check).what


def test_a_key_that_is_missing_or_wrong_is_told_and_never_shown(server: EmbeddingServer) -> None:
    server.key = KEY
    wrong = "sk-wrong-9876543210"
    for key in ("", wrong):
        error = refused(ServedEmbedder(OpenAI(server.url, key=key)).check)
        assert "does not accept the key (401: Incorrect API key provided" in error.what
        assert error.todo == "Check RALPH_OPENAI_API_KEY."
        assert wrong not in str(error)


def test_openai_itself_is_not_asked_without_a_key() -> None:
    error = refused(ServedEmbedder(OpenAI()).check)
    assert error.what == "OpenAI needs a key"
    assert error.todo == "Set RALPH_OPENAI_API_KEY."


def test_an_unknown_model_and_a_used_up_account_are_told(server: EmbeddingServer) -> None:
    assert "does not know gpt" in refused(ServedEmbedder(OpenAI(server.url, "gpt")).check).what
    server.fail("quota")
    assert "has enough of us" in refused(ServedEmbedder(OpenAI(server.url)).check).what
    assert embeds(server, "openai") == 2


# -- rest


def test_a_server_that_failed_gets_a_rest_and_is_asked_again_after_it(
    make: Make, server: EmbeddingServer, clock: Clock
) -> None:
    embedder = make()
    embedder.check()
    server.fail("reset")
    first = refused(lambda: embedder.embed_query("one"))
    before = len(server.requests)
    for work in (lambda: embedder.embed_query("two"), lambda: embedder.embed_passages(["three"])):
        again = refused(work)
        assert str(again) == str(first)
    assert len(server.requests) == before
    server.fail(None)
    clock.now += 31.0
    assert embedder.embed_query("four").any()


def test_a_check_asks_in_spite_of_the_rest_and_ends_it(make: Make, server: EmbeddingServer) -> None:
    embedder = make()
    server.fail("reset")
    refused(lambda: embedder.embed_query("one"))
    refused(embedder.check)
    server.fail(None)
    embedder.check()
    assert embedder.embed_query("two").any()


def test_a_server_that_hangs_is_asked_once(make: Make, server: EmbeddingServer, kind: str) -> None:
    embedder = make(query_timeout_s=SHORT)
    embedder.check()
    server.fail("hang")
    before = embeds(server, kind)
    assert "gave no answer within 1 s" in refused(lambda: embedder.embed_query("one")).what
    refused(lambda: embedder.embed_query("two"))
    refused(lambda: embedder.embed_passages(["three"] * 500))
    assert embeds(server, kind) == before + 1


def test_many_passages_for_a_server_that_hangs_wait_for_one_short_text(
    make: Make, server: EmbeddingServer, kind: str
) -> None:
    make().check()
    server.fail("hang")
    embedder = make(query_timeout_s=SHORT)
    told = refused(lambda: embedder.embed_passages(["long " * 500] * 100)).what
    assert "gave no answer within 1 s" in told
    assert [len(one.body["input"]) for one in server.asked(EMBED[kind])] == [1, 1]


@pytest.mark.parametrize(("loaded", "patience_s"), [(True, 2.0), (False, 60.0)])
def test_a_model_that_must_be_loaded_first_gets_the_long_time(
    server: EmbeddingServer, loaded: bool, patience_s: float
) -> None:
    given: list[float] = []

    class WarningsToLog(Ollama):
        def vectors(self, texts: Sequence[str], deadline: Deadline) -> list[list[float]]:
            given.append(deadline.seconds)
            return super().vectors(texts, deadline)

    server.loaded = loaded
    embedder = ServedEmbedder(WarningsToLog(ollama_wire(server.url)), batch=1)
    embedder.embed_passages(["x" * 600, "x" * 50_000])
    # Then it gets time for what it is given.
    assert given == [patience_s, 2.0 + 600 / 200, 60.0]


def test_a_budget_bounds_everything_together(make: Make, server: EmbeddingServer) -> None:
    embedder = make()
    embedder.check()
    server.fail("hang")
    told = refused(lambda: embedder.embed_passages(["one"] * 200, budget_s=SHORT)).what
    assert "gave no answer within 1 s" in told


def test_back_off_goes_on_within_the_budget(make: Make, server: EmbeddingServer, kind: str) -> None:
    embedder = make()
    embedder.check()
    server.fail("429", times=2)
    server.retry_after = "0"
    assert embedder.embed_passages(["one"]).shape == (1, 256)
    assert embeds(server, kind) == 4


def test_a_text_the_server_does_not_want_costs_the_others_nothing(
    make: Make, server: EmbeddingServer
) -> None:
    embedder = make()
    texts = [f"text {n}" for n in range(20)]
    alone = embedder.embed_passages(texts)
    server.longest_chars = 1000
    texts[13] = "login form " * 300
    vectors = embedder.embed_passages(texts)
    kept = [place for place in range(20) if place != 13]
    assert np.array_equal(vectors[kept], alone[kept])
    # Of the long one as much as the server takes.
    assert vectors[13] @ embedder.embed_query("login form") > 0.9
    assert max(map(len, server.texts()[-3:])) < 1000


def test_a_server_that_wants_no_text_at_all_is_told(make: Make, server: EmbeddingServer) -> None:
    embedder = make()
    embedder.check()
    server.longest_chars = 2
    error = refused(lambda: embedder.embed_passages(["long " * 500, "other"]))
    assert "refused to embed (413: the input is longer than the context)" in error.what


def test_a_server_at_work_is_not_tried_again_in_between(
    make: Make, server: EmbeddingServer, clock: Clock
) -> None:
    embedder = make()
    for n in range(5):
        embedder.embed_passages([f"text {n}"])
        clock.now += 20.0
    assert len([text for text in server.texts() if text.endswith("ready?")]) == 1


def test_the_version_is_looked_up_now_and_then_not_every_time(
    server: EmbeddingServer, clock: Clock
) -> None:
    embedder = ServedEmbedder(Ollama(ollama_wire(server.url)), clock=clock)
    for n, step in itertools.product(range(3), (0.0, 5.0)):
        clock.now += step
        embedder.embed_query(f"question {n}")
    assert len(server.asked("/api/tags")) == 1
    clock.now += 31.0
    embedder.embed_query("later")
    assert len(server.asked("/api/tags")) == 2


@pytest.mark.parametrize(
    ("setting", "model", "dimensions"),
    [
        ("m@64", "m", 64),
        ("m", "m", None),
        ("@cf/baai/bge", "@cf/baai/bge", None),
        ("@64", "@64", None),
    ],
)
def test_the_name_of_an_openai_model_may_say_how_long_its_vectors_are(
    setting: str, model: str, dimensions: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[tuple[str, int | None]] = []

    class Noted(OpenAI):
        def __init__(self, url: str, model: str, **more: Any) -> None:
            called.append((model, more["dimensions"]))
            super().__init__(url, model, **more)

    monkeypatch.setattr("ralph.index.embedders.openai.OpenAI", Noted)
    open_openai(Settings(openai_model=setting), None)
    assert called == [(model, dimensions)]
