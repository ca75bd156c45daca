"""Made-up iterations of an agent, and questions about them, the same ones every time.

Each iteration depends only on the seed and its own number, so a corpus of 1,000 is the beginning of
one of 100,000.
"""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

# Change this when the corpus changes, so that kept folders are built again.
VERSION = "1"
SEED = 20
LEAST_WORDS = 40
MOST_WORDS = 120
_BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
# The share of names in the code that were used before.
_KNOWN_NAMES = 0.8
_OUTCOMES = ("success", "success", "success", "partial", "failure", "failure", "timeout")
_WORD = re.compile(r"[A-Za-z][A-Za-z_]{3,}")

# -- words; the first ones are used most (Zipf)

NOUNS = """
request user session token cache query response handler form client file field service job page
record payment message order config retry header database connection migration schema index
transaction worker queue upload account password email invoice cart product customer address route
middleware endpoint webhook event listener subscription plan price discount tax currency refund
report export import chart filter table column row cell cursor pagination sort search suggestion
notification template locale translation timezone calendar reminder schedule interval timeout
deadline lock semaphore thread process pool socket stream buffer chunk packet frame codec parser
lexer grammar node tree graph edge vertex matrix vector tensor batch epoch checkpoint snapshot
backup archive bucket blob object key value secret certificate signature digest nonce salt cipher
role permission policy tenant workspace project folder document comment mention thread reaction
avatar thumbnail image video caption player playlist sensor reading threshold alarm gauge metric
trace span log exporter dashboard widget panel modal dialog tooltip dropdown checkbox slider
keyboard shortcut focus viewport layout grid theme palette font icon animation gesture scroll
router store reducer selector hook context provider component fixture mock snapshot assertion
coverage pipeline artifact registry container image volume cluster replica shard partition leader
follower quorum heartbeat election ledger balance transfer settlement shipment parcel carrier
warehouse stock supplier catalogue category tag label rating review coupon voucher loyalty
""".split()

VERBS = """
add fix update remove check handle load save validate parse return send create read write retry
move split merge rename cache render fetch resolve build store skip refresh encode decode format
wrap reject accept compute sort filter batch flush close open lock release register schedule
migrate restore normalise escape sanitise hash verify encrypt truncate paginate debounce throttle
stream dispatch subscribe publish reconcile deduplicate interpolate serialise hydrate memoise
""".split()

ADJECTIVES = """
new empty missing wrong old stale slow duplicate invalid expired default nested optional pending
concurrent partial large broken shared deprecated flaky unicode negative hidden remote nullable
idempotent circular ambiguous truncated orphaned misaligned unsigned volatile asynchronous
""".split()

AREAS = """
auth checkout billing search profile admin inventory notifications reports uploads scheduler
gateway telemetry editor onboarding messaging ledger shipping catalogue playback sensors importer
permissions localisation webhooks
""".split()

PLAIN = """
carefully finally quickly usually twice later earlier somewhere elsewhere together apart instead
upstream downstream inline nightly weekly manually locally silently loudly rarely hardly nearly
exactly roughly deeply plainly strictly loosely cleanly safely partly fully mostly barely gently
afterwards beforehand meanwhile indoors overnight sideways backwards forwards halfway wholesale
abroad aloud alike anew askew awry underneath alongside throughout beyond despite
staging production laptop runner sandbox mainline hotfix rollout canary rehearsal handover sprint
colleague reviewer customer-support operations security-team designer auditor newcomer partner
paragraph whitespace rounding alignment spelling wording ordering naming nesting quoting spacing
latency throughput footprint overhead contention starvation leakage jitter drift skew backlog
regression workaround shortcut tradeoff assumption convention guideline constraint boundary seam
morning weekend quarter release-day midnight daylight leap-second winter holiday
""".split()

LAYERS = """
api views tasks storage client rules cli ui domain ports adapters queries commands events forms
jobs mail pages proxies readers rights screens signals types walkers
""".split()
CLASSES = """
Service Store Handler Builder Form Error View Loader Policy Client Cache Mapper Factory Guard Probe
Runner Sink Source Visitor Writer
""".split()
SETTINGS = "seconds limit url enabled path size mode key level host depth retries".split()
ENDINGS = ("py", "py", "ts", "ts", "tsx", "go", "rs", "sql", "css", "yaml", "md", "java")
FAILURES = """
TypeError KeyError ValueError AssertionError TimeoutError ConnectionError IntegrityError
PermissionError AttributeError ImportError OverflowError UnicodeDecodeError ReferenceError
""".split()
TOOLS = """
pytest PostgreSQL Redis React SQLAlchemy Docker TypeScript Kubernetes Celery Webpack Alembic GraphQL
Prometheus Terraform Kafka Vite Playwright nginx protobuf OpenTelemetry RabbitMQ Elasticsearch
""".split()


class Zipf:
    """Draws from a list; the item at rank r, from 0, has the weight 1 / (r + head)."""

    def __init__(self, items: Sequence[str], *, head: int) -> None:
        self._items = list(dict.fromkeys(items))
        weights = (1.0 / (rank + head) for rank in range(len(self._items)))
        self._weights = list(itertools.accumulate(weights))

    def draw(self, rng: random.Random) -> str:
        """Return one item."""
        return rng.choices(self._items, cum_weights=self._weights)[0]

    def draws(self, rng: random.Random, count: int) -> list[str]:
        """Return several items, perhaps some of them twice."""
        return rng.choices(self._items, cum_weights=self._weights, k=count)


def _compounds(count: int) -> list[str]:
    """Return words like `filename`: the long tail that every code base has."""
    rng = random.Random("compounds")
    return ["".join(rng.sample(NOUNS, 2)) for _ in range(count)]


def _derived(words: Sequence[str], *prefixes: str) -> list[str]:
    return [prefix + word for prefix in prefixes for word in words]


# Chosen so that a word of a question is in a few of a hundred passages, as in real texts.
noun = Zipf([*NOUNS, *_compounds(3000)], head=30)
verb = Zipf([*VERBS, *_derived(VERBS, "re", "pre", "auto", "co")], head=20)
adjective = Zipf([*ADJECTIVES, *_derived(ADJECTIVES, "non", "semi", "over", "quasi")], head=12)
area = Zipf(AREAS, head=4)
layer = Zipf(LAYERS, head=8)
setting = Zipf(SETTINGS, head=8)
failure = Zipf(FAILURES, head=5)
tool = Zipf(TOOLS, head=10)
plain = Zipf([*PLAIN, *_derived(PLAIN, "half", "ever")], head=20)


def names(rng: random.Random, first: str, second: str, does: str) -> tuple[str, str, str]:
    """Return the names of a function, a class and a file, made of these words."""
    return (
        f"{does}_{first}_{second}",
        f"{first.capitalize()}{second.capitalize()}{rng.choice(CLASSES)}",
        f"{first}_{second}.{rng.choice(ENDINGS)}",
    )


def _code_base(count: int) -> list[tuple[str, str, str]]:
    rng = random.Random("code base")
    return [names(rng, noun.draw(rng), noun.draw(rng), verb.draw(rng)) for _ in range(count)]


_CODE = _code_base(8000)
snake, camel, file = (Zipf(names, head=50) for names in zip(*_CODE, strict=True))


# -- templates

_TITLES = (
    "{Verb} the {noun} {noun2} in {area}",
    "{Verb} {adjective} {noun} in {area}/{layer}",
    "{area}: {verb} {noun} and {noun2}",
    "Make {snake} {verb} the {adjective} {noun}",
    "{Verb} {camel} when the {noun} is {adjective}",
)
# The fixed words mean little; the words that mean something are drawn.
_SENTENCES = (
    "Wrote {camel} in {path} so that the {noun} can {verb} before the {noun2} is {adjective}.",
    "The {adjective} {noun} was from {snake}, which did {verb} the {noun2} after a {noun3}.",
    "Added a {noun} for the {adjective} {noun2} and we {verb} it {plain}.",
    "Here the {noun} is out of {path}: {camel} was {adjective} and the {noun2} too {adjective2}.",
    "{tool} could {verb} the {noun}, so I had to {verb2} the {noun2} {plain}.",
    "We {verb} the {noun} {plain} now; the {area} {layer} has its own {noun2}.",
    "After that {snake} had a {adjective} {noun} for {adjective2} {noun2}, {plain}.",
    "But the {noun} is {adjective} when both {verb} the same {noun2}.",
    "To {verb} the {noun} failed with {failure} at {path}:{line}.",
    "{camel} is there for the {adjective} {noun}, {number} of them.",
    "It is {tool} that should {verb} a {noun} until {setting} is {number}.",
    "{snake} is as it was, since the {noun2} in {area} has a {adjective} {noun}.",
    "{camel} before {snake}, so that the {noun2} can {verb} {plain}.",
    "Had to {verb} {plain}, because {tool} and the {noun} are {plain2}.",
    "{Verb} and {verb2} are in {snake}, so the {noun} is with a {adjective} {noun2}.",
    "{path} has its {noun}; only {camel} should {verb} it.",
    "In {plain} the {noun} was {adjective}, on {plain2} the {noun2} was.",
    "{setting} is now beside the {noun}, with {plain2} for {plain}.",
    "A {noun} with {adjective} {noun2} will {verb} through {snake} {plain}.",
    "{snake} and {camel} {verb} the {noun} {plain}, {plain2}.",
    "Both {noun} and {noun2} {verb} {plain} under {tool}.",
    "{hash} is out because the {noun2} would {verb} {plain}.",
    "The {plain2} between {noun} and {noun2} is {adjective}.",
    "Which of them should {verb} the {noun3} in {path}?",
    "{snake} was {adjective} with {adjective2} {noun} and {noun2}; a test for it is there.",
    "{camel} is {adjective}, see {path}.",
    "Without {setting} the {noun} will {verb} {number} times.",
    "All tests pass again, but the {noun} is {adjective} and {noun2} too.",
)
_ERRORS = (
    "{failure}: {snake}() got an unexpected keyword argument '{noun}'",
    "{failure}: '{camel}' object has no attribute '{snake}'",
    'File "{path}", line {line}, in {snake}: {failure}: {adjective} {noun} {number}',
    "E   {failure}: expected {number} {noun} rows, got {line} ({snake})",
    "{path}:{line}: error: Argument 1 to {camel} has incompatible type {noun}",
    "{failure}: could not {verb} {noun} {hash} within {number} ms",
)
_DECISIONS = (
    ("{Verb} the {noun} with {tool}", "The {adjective} {noun2} made {snake} too slow"),
    ("Keep {camel} in {area}/{layer}", "Moving it would {verb} the {noun} twice"),
    ("Do not {verb} {adjective} {noun} any more", "Nobody reads the {noun2}"),
    ("Use one {noun} for each {noun2}", "{tool} cannot {verb} them together"),
)
_QUESTIONS = (
    "how did we {verb} the {noun} {noun2}",
    "why is the {noun} {adjective} in {area}",
    "{adjective} {noun} {noun2} {failure}",
    "{verb} {noun} {noun2}",
    "{snake} returns {adjective} {noun}",
    "{area} {noun} {verb} {noun2} {tool}",
    "what happens to {noun} when {noun2} {verb}",
)
_EVERYWHERE = frozenset(_WORD.findall(" ".join(_SENTENCES + _TITLES)))


def iterations(start: int, stop: int, *, seed: int = SEED) -> Iterator[dict[str, Any]]:
    """Yield the iterations with these numbers, as JSON-like data."""
    for number in range(start, stop):
        yield iteration(number, seed=seed)


def iteration(number: int, *, seed: int = SEED) -> dict[str, Any]:
    """Return one run of an agent on a task, with its errors and decisions."""
    rng = random.Random(f"{seed}:{number}")
    words = _Words(rng)
    outcome = rng.choice(_OUTCOMES)
    errors = rng.choice((0, 0, 1, 2)) if outcome == "success" else rng.choice((1, 2, 3))
    return {
        "iteration_number": number + 1,
        "task_id": number // 3 + 1,
        "task_title": words.fill(rng.choice(_TITLES)),
        "discipline": words.of["area"],
        "timestamp": (_BEGIN + timedelta(minutes=4 * number)).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "outcome": outcome,
        "summary": _summary(rng, words),
        "errors": [
            {
                "message": words.again().fill(rng.choice(_ERRORS)),
                "error_type": rng.choice(("runtime", "test", "compile")),
                "file_path": words.of["path"],
                "line": int(words.of["line"]),
            }
            for _ in range(errors)
        ],
        "decisions": [
            {"description": words.fill(what), "rationale": words.again().fill(because)}
            for what, because in rng.sample(_DECISIONS, rng.choice((0, 1, 1, 2)))
        ],
        "files_touched": [
            {"path": words.again().of["path"], "action": rng.choice(("read", "modified"))}
            for _ in range(rng.randint(1, 6))
        ],
        "tokens_used": rng.randint(4_000, 180_000),
        "duration_ms": rng.randint(20_000, 900_000),
        "session_id": f"run-{rng.getrandbits(48):012x}",
    }


def queries(count: int, *, size: int, seed: int = SEED) -> list[str]:
    """Return questions of 3-8 words; most are about something in a corpus of this size."""
    rng = random.Random(f"{seed}:queries:{size}")
    return [_query(rng, size, seed) for _ in range(count)]


def _query(rng: random.Random, size: int, seed: int) -> str:
    if rng.random() < 0.4:
        return _Words(rng).fill(rng.choice(_QUESTIONS))
    made = iteration(rng.randrange(size), seed=seed)
    words = list(dict.fromkeys(_WORD.findall(f"{made['task_title']} {made['summary']}")))
    rng.shuffle(words)
    # People ask with the words that matter; the fixed words of the templates come less often.
    words.sort(key=lambda word: word in _EVERYWHERE and rng.random() < 0.9)
    return " ".join(words[: rng.randint(3, 8)])


def _summary(rng: random.Random, words: _Words) -> str:
    wanted = rng.randint(LEAST_WORDS, MOST_WORDS - 20)
    text: list[str] = []
    while len(text) < wanted:
        text += words.again().fill(rng.choice(_SENTENCES)).split()
    return " ".join(text[:MOST_WORDS])


class _Words:
    """The words that fill the blanks of a template; the area stays, the rest is drawn again."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        # An iteration stays on its subject: it uses these nouns again and again.
        self._own = noun.draws(rng, 4)
        self.of: dict[str, str] = {"area": area.draw(rng)}
        self.again()

    def again(self) -> _Words:
        """Draw other words."""
        rng = self._rng
        nouns = [self._noun() for _ in range(5)]
        verbs = verb.draws(rng, 3)
        place = layer.draw(rng)
        reused = rng.random() < _KNOWN_NAMES
        snake_name, camel_name, file_name = names(rng, nouns[3], nouns[4], verbs[2])
        self.of |= {
            "noun": nouns[0],
            "noun2": nouns[1],
            "noun3": nouns[2],
            "verb": verbs[0],
            "Verb": verbs[0].capitalize(),
            "verb2": verbs[1],
            "adjective": adjective.draw(rng),
            "adjective2": adjective.draw(rng),
            "plain": plain.draw(rng),
            "plain2": plain.draw(rng),
            "layer": place,
            "failure": failure.draw(rng),
            "tool": tool.draw(rng),
            "number": str(rng.choice((2, 3, 5, 10, 30, 50, 100, 250, 500, 1000))),
            "line": str(int(rng.paretovariate(0.6)) % 900 + 1),
            "hash": f"{rng.getrandbits(32):08x}",
            "snake": snake.draw(rng) if reused else snake_name,
            "camel": camel.draw(rng) if reused else camel_name,
            "setting": f"{nouns[2]}_{setting.draw(rng)}".upper(),
            "path": f"src/{self.of['area']}/{place}/{file.draw(rng) if reused else file_name}",
        }
        return self

    def fill(self, template: str) -> str:
        """Return the template with its blanks filled."""
        return template.format_map(self.of)

    def _noun(self) -> str:
        rng = self._rng
        return rng.choice(self._own) if rng.random() < 0.6 else noun.draw(rng)
