"""Fit the weights of ralph/text/sameness.py and report how good they are.

    python -m bench.fit_sameness DATA [--write]

DATA is the folder with the labelled pairs (tests/data). The weights are fitted on pairs of the
`fit` part, also on those of groups: entries that tell one lesson in other words, and entries
beside them that differ. The threshold is the lowest one that is precise enough on out-of-fold
scores: ten folds by subject, each scored by weights that were fitted on the other nine. Pairs of
the `report` part are only used for the figures. `--write` writes the table of weights into the
module.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Sequence
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ralph.index.embedders.static import StaticEmbedder
from ralph.memory.checkpoints import Grouping, Member
from ralph.recall.patterns import case_of
from ralph.recall.sameness import Case, case_features, decide_cases
from ralph.records.knowledge import FailureSolution
from ralph.text import sameness
from ralph.text.sameness import features, gist

Array = NDArray[np.float64]

# The pairs of each model: file, and what its parts are for.
CASE_FILES = {
    "same_pairs.jsonl": {"found": "fit", "held": "fit"},
    "same_pairs_blind.jsonl": {"seen": "fit", "unseen": "fit"},
    "same_pairs_more.jsonl": {},
}
LEARNING_FILES: dict[str, dict[str, str]] = {"learning_pairs.jsonl": {}}
GROUPS = "same_groups.jsonl"
# How precise each model must be. Entries also need the agreement of a whole pattern, so a pair
# may be wrong a little more often.
PRECISION = {"learning": 0.96, "again": 0.94, "problem": 0.93}
_RIDGE = 5.0
_FOLDS = 10
_STRANGERS = 1
_COLUMNS = ("learning", "again", "problem", "solution", "whole")


class Pairs(NamedTuple):
    """Pairs with their features, one row per pair; `decided` is infinite if a rule decides."""

    ids: list[str]
    names: list[str]
    rows: Array
    same: NDArray[np.bool_]
    decided: Array
    subject: NDArray[np.str_]
    part: NDArray[np.str_]

    def real(self) -> NDArray[np.bool_]:
        """Return which of them somebody wrote and labelled."""
        return np.array(["~" not in name and "+" not in name for name in self.ids])


class Fitted(NamedTuple):
    """Weights by feature, and the bias with the threshold subtracted."""

    weights: dict[str, float]
    bias: float

    def scores(self, pairs: Pairs) -> Array:
        found = pairs.rows @ np.array([self.weights[name] for name in pairs.names]) + self.bias
        return np.asarray(np.where(np.isnan(pairs.decided), found, pairs.decided))


class Figures(NamedTuple):
    """The share of merges that are right, the share of same pairs that are merged, and a count."""

    precision: float
    recall: float
    merged: int


def read_pairs(data: Path, files: dict[str, dict[str, str]]) -> list[dict[str, Any]]:
    """Return all pairs of a model, each with its part and subject."""
    found: list[dict[str, Any]] = []
    for file, parts in files.items():
        for line in (data / file).read_text(encoding="utf-8").splitlines():
            pair = json.loads(line)
            pair["part"] = parts.get(pair["part"], pair["part"])
            subject = re.match(r"\D*\d+", pair["id"])
            pair["subject"] = f"{file}:{subject[0] if subject else pair['id']}"
            pair["same"] = pair["same"] if "same" in pair else pair["verdict"] == "duplicate"
            found.append(pair)
    return found


def read_groups(data: Path) -> list[dict[str, Any]]:
    """Return the groups: `same` tell one lesson, each of `different` tells another one."""
    lines = (data / GROUPS).read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def group_pairs(groups: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return every two entries of a group as a pair."""
    found: list[dict[str, Any]] = []
    for group in groups:
        several = len(group["same"])
        told = [_case(entry) for entry in (*group["same"], *group["different"])]
        for (i, one), (j, other) in combinations(enumerate(told), 2):
            found.append(
                {
                    "id": f"{group['id']}-{i}-{j}",
                    "part": group["part"],
                    "subject": f"{GROUPS}:{group['id']}",
                    "same": j < several,
                    "one": one._asdict(),
                    "other": other._asdict(),
                }
            )
    return found


def _case(entry: dict[str, str]) -> Case:
    return case_of(_entry(entry))


def _entry(entry: dict[str, str]) -> FailureSolution:
    return FailureSolution(
        project="bench",
        failure_description=entry["description"],
        error_message=entry["error"],
        solution_steps=entry["solution"],
    )


def _always(members: Sequence[Member], _: int) -> Sequence[Member]:
    return members


class GroupFigures(NamedTuple):
    """Of groups published one entry after another: how many became one pattern, how many patterns
    a group became on average, and how many of the entries that differ joined one."""

    groups: int
    one_pattern: int
    patterns: float
    different: int
    wrong: int


def group_figures(groups: Sequence[dict[str, Any]]) -> GroupFigures:
    """Publish each group on its own, entry by entry, and count its patterns."""
    grouping = Grouping(StaticEmbedder())
    one_pattern = patterns = different = wrong = 0
    for group in groups:
        members: list[Member] = []
        for n, told in enumerate((*group["same"], *group["different"])):
            published = tuple(members)
            [found] = grouping.assign([Member(str(n), _entry(told))], partial(_always, published))
            known = {member.pattern for member in members}
            if n >= len(group["same"]):
                different += 1
                wrong += found.pattern in known
            members.append(Member(str(n), _entry(told), found.pattern))
        count = len({member.pattern for member in members[: len(group["same"])]})
        one_pattern += count == 1
        patterns += count
    return GroupFigures(len(groups), one_pattern, patterns / len(groups), different, wrong)


def strangers(pairs: Sequence[dict[str, Any]], reach: int) -> list[dict[str, Any]]:
    """Return pairs of two subjects in one part, which are never the same."""
    found: list[dict[str, Any]] = []
    for part in ("fit", "report"):
        # The pairs of tests/test_similar.py are about the same few things.
        ours = [p for p in pairs if p["part"] == part and not p["id"].startswith("t")]
        firsts = list({p["subject"]: p for p in ours}.values())
        for n, first in enumerate(firsts):
            for other in firsts[n + 1 : n + 1 + reach]:
                pair = {**first, "other": other["one"], "same": False}
                found.append({**pair, "id": f"{first['id']}+{other['id']}", "kind": "stranger"})
    return found


def with_one_problem(pairs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return each pair of the same cases again, with the problem in exactly the same words.

    Usually the same error message appears twice, and nobody writes that down as a pair.
    """
    return [
        {
            **pair,
            "id": f"{pair['id']}/one",
            "other": {**pair["other"], "problem": pair["one"]["problem"]},
        }
        for pair in pairs
        if pair["same"] and isinstance(pair["one"], dict)
    ]


def made_up(pairs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Make pairs that differ for the `fit` part: one word exchanged, a fix of another problem."""
    firsts = list({p["subject"]: p for p in pairs if p["part"] == "fit"}.values())
    found: list[dict[str, Any]] = []
    for n, first in enumerate(firsts):
        one = first["one"]
        other = firsts[(n + 1) % len(firsts)]["one"]
        if isinstance(one, str):
            changed: list[Any] = [_exchange(one, other)]
        else:
            exchanged = _exchange(one["solution"], other["solution"])
            changed = [{**one, "solution": exchanged}, {**other, "solution": one["solution"]}]
        for kind, text in zip("xy", changed, strict=False):
            found.append({**first, "id": f"{first['id']}~{kind}", "other": text, "same": False})
    return found


def _exchange(text: str, other: str) -> str:
    """Replace the longest word of a text with the longest word of another."""
    mine, theirs = (max(gist(x).spelled or ("this",), key=len) for x in (text, other))
    return re.sub(re.escape(mine), theirs, text, flags=re.I)


def cases(pairs: Sequence[dict[str, Any]], *, again: bool) -> Pairs:
    """Return the features of pairs of cases: of those with one problem, or of all others."""
    grouping = Grouping(StaticEmbedder())
    chosen: list[dict[str, Any]] = []
    found: list[dict[str, float]] = []
    decided: list[bool | None] = []
    for pair in pairs:
        one = Case(**pair["one"])
        other = Case(**pair["other"])
        near = grouping.nearness(one, other)
        compared = case_features(one, other, near)
        if ("again.shared" in compared) == again:
            chosen.append(pair)
            found.append(compared)
            decided.append(decide_cases(one, other, near))
    return _pairs(chosen, found, decided)


def learnings(pairs: Sequence[dict[str, Any]]) -> Pairs:
    """Return the features of pairs of learnings: words only."""
    found: list[dict[str, float]] = []
    decided: list[bool | None] = []
    for pair in pairs:
        a = gist(pair["one"])
        b = gist(pair["other"])
        found.append({f"learning.{name}": value for name, value in features(a, b).items()})
        decided.append(sameness.decide_learnings(a, b))
    return _pairs(pairs, found, decided)


def _pairs(
    pairs: Sequence[dict[str, Any]],
    found: Sequence[dict[str, float]],
    decided: Sequence[bool | None],
) -> Pairs:
    score = {True: np.inf, False: -np.inf, None: np.nan}
    names = list(found[0])
    return Pairs(
        [pair["id"] for pair in pairs],
        names,
        np.array([[row[name] for name in names] for row in found]),
        np.array([pair["same"] for pair in pairs]),
        np.array([score[value] for value in decided]),
        np.array([pair["subject"] for pair in pairs]),
        np.array([pair["part"] for pair in pairs]),
    )


def fit(pairs: Pairs) -> Fitted:
    """Fit the weights, and the lowest threshold that is precise enough on out-of-fold scores."""
    rows = pairs.part == "fit"
    fitted = _logistic(pairs, rows)
    real = rows & pairs.real()
    precision = PRECISION[pairs.names[0].partition(".")[0]]
    threshold = _threshold(out_of_fold(pairs)[real], pairs.same[real], precision)
    return fitted._replace(bias=round(fitted.bias - threshold, 2))


def out_of_fold(pairs: Pairs) -> Array:
    """Score each pair of the `fit` part by weights that were fitted without its subject."""
    rows = pairs.part == "fit"
    scores = np.full(len(pairs.ids), -np.inf)
    subjects = sorted(set(pairs.subject[rows].tolist()))
    np.random.default_rng(0).shuffle(subjects)
    for fold in range(_FOLDS):
        left_out = rows & np.isin(pairs.subject, subjects[fold::_FOLDS])
        scores[left_out] = _logistic(pairs, rows & ~left_out).scores(pairs)[left_out]
    return scores


def _logistic(pairs: Pairs, rows: NDArray[np.bool_]) -> Fitted:
    """Fit a logistic regression with a ridge, by Newton's method, on standardized features."""
    x = pairs.rows[rows]
    y = pairs.same[rows].astype(np.float64)
    mean = x.mean(axis=0)
    spread = np.maximum(x.std(axis=0), 0.02)
    x = np.hstack([(x - mean) / spread, np.ones((len(x), 1))])
    weights = _newton(x, y, np.append(np.full(len(mean), _RIDGE), 1e-6))
    plain = np.round(weights[:-1] / spread, 2)
    bias = float(weights[-1] - plain @ mean)
    return Fitted(dict(zip(pairs.names, plain.tolist(), strict=True)), bias)


def _newton(x: Array, y: Array, ridge: Array) -> Array:
    weights = np.zeros(x.shape[1])
    for _ in range(50):
        likely = 1 / (1 + np.exp(-np.clip(x @ weights, -30, 30)))
        slope = x.T @ (likely - y) + ridge * weights
        curve = (x * (likely * (1 - likely))[:, None]).T @ x + np.diag(ridge)
        step = np.linalg.solve(curve, slope)
        weights -= step
        if np.abs(step).max() < 1e-10:
            break
    return weights


def _threshold(scores: Array, same: NDArray[np.bool_], least: float) -> float:
    """Return the lowest score at which enough of the merged pairs are the same."""
    order = np.argsort(-scores, kind="stable")
    precision = np.cumsum(same[order]) / np.arange(1, len(order) + 1)
    enough = np.flatnonzero((precision >= least) & (scores[order] > -np.inf))
    return float(scores[order][enough[-1]]) if len(enough) else np.inf


def figures(scores: Array, same: NDArray[np.bool_]) -> Figures:
    """Return precision and recall if pairs that score at least 0 are merged."""
    merged = scores >= 0
    right = int((merged & same).sum())
    return Figures(
        right / max(1, int(merged.sum())), right / max(1, int(same.sum())), int(merged.sum())
    )


def weights_of(made: dict[str, Trained]) -> dict[str, float]:
    """Return all weights under the names that the module gives them."""
    found: dict[str, float] = {}
    for column, trained in zip(("learning", "again", "whole"), made.values(), strict=True):
        found |= trained.fitted.weights | {f"{column}.bias": trained.fitted.bias}
    return found


def table(weights: dict[str, float]) -> str:
    """Return the weights as the module writes them."""
    names = dict.fromkeys(["bias", *(name.partition(".")[2] for name in weights)])
    lines = [f"{'feature':17}" + "".join(f"{column:>10}" for column in _COLUMNS)]
    for name in names:
        values = (weights.get(f"{column}.{name}") for column in _COLUMNS)
        cells = ("-" if value is None else f"{value:.2f}" for value in values)
        lines.append(f"{name:17}" + "".join(f"{cell:>10}" for cell in cells))
    return "\n".join(lines)


class Trained(NamedTuple):
    """One of the three models: its pairs, pairs of strangers, and what was fitted."""

    pairs: Pairs
    strangers: Pairs
    fitted: Fitted

    def lines(self, name: str) -> list[str]:
        """Return the figures by part and file, and how many strangers are merged."""
        scores = self.fitted.scores(self.pairs)
        threshold = _logistic(self.pairs, self.pairs.part == "fit").bias - self.fitted.bias
        unseen = np.where(self.pairs.part == "fit", out_of_fold(self.pairs) - threshold, scores)
        files = np.array(
            [
                "one problem" if name.endswith("/one") else subject.partition(":")[0]
                for name, subject in zip(self.pairs.ids, self.pairs.subject, strict=True)
            ]
        )
        found: list[str] = []
        for part in ("fit", "report"):
            for file in ("", *sorted(set(files.tolist()))):
                rows = (self.pairs.part == part) & ((files == file) if file else True)
                rows &= self.pairs.real()
                if rows.any():
                    told = figures(unseen[rows], self.pairs.same[rows])
                    found.append(
                        f"{name:10}{part:8}{file or 'all':25} precision {told.precision:.3f}"
                        f" recall {told.recall:.3f} ({told.merged} merged of {rows.sum()})"
                    )
        strange = self.fitted.scores(self.strangers) >= 0
        return [*found, f"{name:10}strangers merged: {strange.sum()} of {len(strange)}"]


def run(data: Path, reach: int = 40) -> dict[str, Trained]:
    """Fit the three models on the pairs of a folder."""
    made: dict[str, Trained] = {}
    ways: dict[str, tuple[dict[str, dict[str, str]], Callable[..., Pairs]]] = {
        "learnings": (LEARNING_FILES, learnings),
        "again": (CASE_FILES, partial(cases, again=True)),
        "cases": (CASE_FILES, partial(cases, again=False)),
    }
    for name, (files, measure) in ways.items():
        given = read_pairs(data, files)
        given += with_one_problem(given)
        easy = [pair for pair in strangers(given, _STRANGERS) if pair["part"] == "fit"]
        grouped = [] if name == "learnings" else group_pairs(read_groups(data))
        pairs = measure([*given, *made_up(given), *easy, *grouped])
        made[name] = Trained(pairs, measure(strangers(given, reach)), fit(pairs))
    return made


def _show_groups(data: Path) -> None:
    """Print how the weights in the module group entries."""
    groups = read_groups(data)
    for part in ("fit", "report"):
        told = group_figures([group for group in groups if group["part"] == part])
        sys.stdout.write(
            f"groups {part}: {told.one_pattern} of {told.groups} are one pattern, on average"
            f" {told.patterns:.2f}; {told.wrong} of {told.different} different entries merged\n"
        )


def main() -> None:
    """Print the figures, and print or write the table."""
    arguments = [word for word in sys.argv[1:] if word != "--write"]
    made = run(Path(arguments[0]))
    for name, trained in made.items():
        sys.stdout.write("\n".join(trained.lines(name)) + "\n")
    weights = table(weights_of(made))
    if "--write" not in sys.argv:
        sys.stdout.write(f"{weights}\n")
        _show_groups(Path(arguments[0]))
        return
    module = Path(sameness.__file__)
    text = module.read_text(encoding="utf-8")
    text = re.sub(r'(_WEIGHTS = """\n)[^"]*(""")', rf"\g<1>{weights}\n\g<2>", text)
    module.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
