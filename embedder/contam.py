"""After packing: how many training rows share a long line with the evaluation texts? contam.py PACKED SWE.jsonl EVALTEXTS.json"""

import collections, glob, json, lzma, sys

pk, swe, ev = sys.argv[1:4]
src = {}
for i, d in enumerate(json.loads(l) for l in open(swe)):
    for f in ("problem_statement", "hints", "gold_patch"):
        for l in d[f].splitlines():
            l = l.strip().lstrip("+-").strip()
            if len(l) >= 60:
                src.setdefault(l, set()).add(i)
talk = {
    l.strip()
    for k in ("locomo", "lme", "beam")
    for t in json.load(open(ev))[k]
    for l in t.splitlines()
    if len(l.strip()) >= 60
}
n = one = 0
lines = collections.Counter()
tasks = set()
tl = collections.Counter()
per = collections.Counter()


def texts(r):
    for x in r[2:]:
        if isinstance(x, str):
            yield x
        elif isinstance(x, list):
            yield from (y for y in x if isinstance(y, str))


rows = (
    json.loads(l)
    for f in sorted(glob.glob(pk + "/p*.xz"))
    for l in lzma.open(f, "rt", encoding="utf8")
)
for r in rows:
    n += 1
    got = set()
    for t in texts(r):
        for l in t.split("\n"):
            l = l.strip().lstrip("+-").strip()
            if len(l) >= 60:
                if l in src:
                    got.add(l)
                if l in talk:
                    tl[l] += 1
    if got:
        one += 1
        per[r[0]] += 1
        lines.update(got)
        for l in got:
            tasks |= src[l]
for t in json.load(lzma.open(pk + "/talk.xz", "rt"))["turns"]:
    for l in t.splitlines():
        if len(l.strip()) >= 60 and l.strip() in talk:
            tl[l.strip()] += 1
print("rows", n, "with a shared long line", one, "tasks touched", len(tasks), per.most_common(8))
print("conversation lines shared", sum(tl.values()), tl.most_common(5))
for l, k in lines.most_common(8):
    print(k, l[:110])
