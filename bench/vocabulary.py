"""The words a made-up agent writes with; those that come first are used most (Zipf)."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence

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
    """Draws from a list so that the item at rank r, from 0, comes with weight 1 / (r + head)."""

    def __init__(self, items: Sequence[str], *, head: int) -> None:
        self._items = list(dict.fromkeys(items))
        weights = (1.0 / (rank + head) for rank in range(len(self._items)))
        self._weights = list(itertools.accumulate(weights))

    def draw(self, rng: random.Random) -> str:
        """One item."""
        return rng.choices(self._items, cum_weights=self._weights)[0]

    def draws(self, rng: random.Random, count: int) -> list[str]:
        """Several items, the same one perhaps twice."""
        return rng.choices(self._items, cum_weights=self._weights, k=count)


def _compounds(count: int) -> list[str]:
    """Words like `filename`: a long tail, as every code base has its own."""
    rng = random.Random("compounds")
    return ["".join(rng.sample(NOUNS, 2)) for _ in range(count)]


def _derived(words: Sequence[str], *prefixes: str) -> list[str]:
    return [prefix + word for prefix in prefixes for word in words]


# So that a word of a question stands in a few passages of a hundred, as in texts people write.
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
    """A function, a class and a file made of these words."""
    return (
        f"{does}_{first}_{second}",
        f"{first.capitalize()}{second.capitalize()}{rng.choice(CLASSES)}",
        f"{first}_{second}.{rng.choice(ENDINGS)}",
    )


def _code_base(count: int) -> list[tuple[str, str, str]]:
    rng = random.Random("code base")
    return [names(rng, noun.draw(rng), noun.draw(rng), verb.draw(rng)) for _ in range(count)]


_CODE = _code_base(8000)
snake, camel, file = (Zipf(some, head=50) for some in zip(*_CODE, strict=True))
