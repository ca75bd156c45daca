#!/usr/bin/env python3
"""Training data from public git repositories (bare copies under $MIRROR/<owner>+<name>/repo).

data.py commits RAW            one raw/<repo>.jsonl a repository: subject, body, code diff, test/doc diff, issue numbers
data.py messages RAW LISTS     raw/<repo>.msg.jsonl: subject <-> body without the diff (cheap)
data.py docs RAW               raw/<repo>.doc.jsonl: documentation string <-> function body at HEAD (Python, Go, Rust)
data.py threads RAW            raw/<repo>.thr.jsonl: title, body, comments of stored issue threads and merge messages
data.py talk RAW               raw/talk.json: dialogue turns (distillation only) and adjacent turns
data.py pack RAW OUT SWE       drop what meets the evaluation texts, write OUT/p*.xz and sources.tsv
"""

import glob, json, lzma, os, re, subprocess, sys, time
from multiprocessing import Pool

MIRROR = os.environ["MIRROR"] + "/"
SECONDS = float(os.environ.get("LIM", "14"))
COMMITS = int(os.environ.get("CAP", "5000"))
PERMISSIVE = {
    "MIT",
    "BSD",
    "Apache-2.0",
    "ISC",
    "PSF",
    "curl",
    "PostgreSQL",
    "W3C",
    "0BSD",
    "Unlicense",
    "Zlib",
    "BlueOak",
    "IETF-TLP",
    "CC0",
    "CC-BY-4.0",
    "Ruby/BSD",
}
TRAILER = re.compile(
    r"^(signed-off-by|co-authored-by|reviewed-by|acked-by|tested-by|change-id|reviewed-on|run-trybot|trybot-result|auto-submit|reported-by|cc|git-svn-id|commit-queue|author|backpatch-through|discussion|suggested-by|closes|fixes|fix|refs?|bug|see|tryjob|luci-\S*|pr-url|original-commit|upstream-commit|pull request|link|message-id|tree-sha\d*|updates|for|github-last-rev|github-pull-request|gitorigin\S*)\b[^\n]{0,3}[:#].*$|^\(cherry picked from.*$|^[-*=]{3,}$",
    re.I,
)
SKIP = re.compile(
    r"^(merge|bump|revert|release|version|update changelog|pre-commit|\[pre-commit|chore\(deps|build\(deps|update dependency|\[autofix|ci:|typo|wip|pep8|prep|roll|deps:|renovate|auto merge|rollup merge)\b",
    re.I,
)
LINE = re.compile(r"^(diff --git|@@|[+-](?![+-]))")
SIDE = re.compile(
    r"(^|/)(tests?|testing|specs?|__tests__|docs?|changes|changelog|news|newsfragments|doc-src)(/|_|\.)|[_.]test\.|_test\b|test_|\.(md|rst|adoc|txt)$|changelog|CHANGES|NEWS",
    re.I,
)
NUMBER = re.compile(r"(?:#|bpo-|gh-|GH-|issue[ /]|issues/|pull/|ticket )(\d{2,6})\b", re.I)


def git(repo, *words, text=True):
    run = subprocess.run(["git", "--git-dir=" + folder(repo), *words], capture_output=True)
    return run.stdout.decode("utf8", "replace") if text else run.stdout


def folder(repo):
    base = MIRROR + repo + "/repo"
    return base if os.path.exists(base + "/HEAD") else base + "/.git"


def licence(repo):
    """SPDX-like guess from the licence file(s) at HEAD."""
    names = [
        n
        for n in git(repo, "ls-tree", "--name-only", "HEAD").split("\n")
        if re.search(r"licen[cs]e|copying|copyright|unlicense", n, re.I)
    ]
    found = []
    for name in names[:6]:
        t = re.sub(r"\s+", " ", git(repo, "show", "HEAD:" + name))[:6000]
        low = t.lower()
        for tag, mark in (
            ("GPL", "gnu general public license"),
            ("GPL", "gnu lesser"),
            ("GPL", "gnu affero"),
            ("MPL", "mozilla public license"),
            ("EPL", "eclipse public"),
            ("BUSL", "business source license"),
            ("Apache-2.0", "apache license"),
            ("MIT", "permission is hereby granted, free of charge"),
            ("PSF", "python software foundation license"),
            ("BSD", "redistribution and use in source and binary forms"),
            (
                "ISC",
                "permission to use, copy, modify, and/or distribute this software for any purpose",
            ),
            (
                "ISC",
                "permission to use, copy, modify, and distribute this software for any purpose with or without fee",
            ),
            ("PostgreSQL", "postgresql database management system"),
            ("W3C", "w3c software and document"),
            ("IETF-TLP", "ietf"),
            ("CC0", "cc0"),
            ("CC-BY-4.0", "creative commons attribution 4.0"),
            ("CC-BY-SA", "sharealike"),
            ("CC-BY-NC", "noncommercial"),
            ("Unlicense", "released into the public domain"),
            ("Ruby/BSD", "ruby is copyrighted free software"),
        ):
            if mark in low and tag not in found:
                found.append(tag)
    return "/".join(found) or "none"


def clean(message):
    lines = [l.rstrip() for l in message.split("\n") if not TRAILER.match(l.strip())]
    m = re.sub(r"https?://\S+", "", "\n".join(lines))
    m = re.sub(
        r"\s*\(#\d+\)|\s*\[#\d+[^\]]*\]|\b(?:GH|bpo)[-#]?\d+:?|(?:closes|fixes|resolves|see|fix|refs?)?\s*#\d{2,}",
        "",
        m,
        flags=re.I,
    )
    return re.sub(r"\n{3,}", "\n\n", m).strip()


def commits(job):
    repo, raw = job
    started, n, seen = time.time(), 0, set()
    out = open(f"{raw}/{repo}.jsonl", "w")
    skip = [
        f":(exclude)*{x}"
        for x in (
            ".lock",
            ".po",
            ".json",
            ".svg",
            ".snap",
            ".ipynb",
            ".csv",
            ".pot",
            "go.sum",
            ".min.js",
            "vendor/*",
            "third_party/*",
            "node_modules/*",
            "deps/*",
        )
    ]

    def start(passed):
        return subprocess.Popen(
            [
                "git",
                "--git-dir=" + folder(repo),
                "log",
                "--no-merges",
                "-p",
                "-U0",
                "--no-renames",
                "--no-color",
                "--no-ext-diff",
                "--format=%x01%H%x02%s%x02%b%x03",
                "-n",
                str(COMMITS - passed),
                f"--skip={passed}",
                "HEAD",
                "--",
                ".",
                *skip,
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )

    head, parts, sizes, side, inside = None, ([], []), [0, 0], 0, False

    def emit():
        nonlocal n
        if not head or not (parts[0] or parts[1]):
            return
        try:
            sha, s, b = "".join(head).split("\x02")
        except ValueError:
            return
        b = b.split("\x03")[0]
        numbers = sorted({int(x) for x in NUMBER.findall(s + "\n" + b)})[:4]
        s, b = clean(s), clean(b)
        if len(s) < 12 or SKIP.match(s) or s.lower() in seen:
            return
        seen.add(s.lower())
        code, other = ("\n".join(x) for x in parts)
        if len(code) + len(other) < 60:
            return
        if not code:
            code, other = other, ""
        out.write(
            json.dumps(dict(s=s[:300], b=b[:2500], d=code[:2200], t=other[:1000], n=numbers)) + "\n"
        )
        n += 1

    passed = 0
    # A stored copy can lack its largest blobs: git stops there, so go on behind that commit.
    while passed < COMMITS and time.time() - started < SECONDS:
        p, before = start(passed), passed
        try:
            for line in p.stdout:
                l = line[:400].decode("utf8", "replace").rstrip("\n")
                if l.startswith("\x01"):
                    emit()
                    passed += 1
                    if time.time() - started > SECONDS:
                        break
                    head, parts, sizes, side, inside = (
                        [l[1:] + "\n"],
                        ([], []),
                        [0, 0],
                        0,
                        "\x03" not in l,
                    )
                elif inside:
                    head.append(l + "\n")
                    inside = "\x03" not in l
                elif LINE.match(l):
                    if l.startswith("diff --git"):
                        side = 1 if SIDE.search(l) else 0
                    if sizes[side] < 2300:
                        parts[side].append(l[:240])
                        sizes[side] += len(l[:240]) + 1
            else:
                emit()
                head = None
        finally:
            p.kill()
            code = p.wait()
        if passed == before or code == 0:
            break
    out.close()
    print(
        repo,
        "commits",
        n,
        round(time.time() - started),
        licence(repo),
        git(repo, "rev-parse", "HEAD")[:10],
        flush=True,
    )


def docs(job):
    """Up to 1,500 documented functions of a repository at HEAD."""
    import ast, io, tarfile

    repo, raw = job
    started, rows, seen = time.time(), [], set()
    names = [
        x
        for x in git(repo, "ls-tree", "-r", "--name-only", "HEAD").split("\n")
        if re.search(r"\.(py|go|rs)$", x)
        and not re.search(r"(^|/)(vendor|third_party|_vendor|node_modules|testdata)/", x)
    ]
    step = max(1, len(names) // 500)
    p = subprocess.Popen(
        ["git", "--git-dir=" + folder(repo), "cat-file", "--batch"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )

    def keep(doc, code):
        doc = doc.strip()
        if 40 < len(doc) and len(code) > 80 and doc[:60] not in seen:
            seen.add(doc[:60])
            rows.append((doc[:900], code[:1500]))

    for name in names[::step]:
        if len(rows) >= 1500 or time.time() - started > 8:
            break
        p.stdin.write(f"HEAD:{name}\n".encode())
        p.stdin.flush()
        top = p.stdout.readline().split()
        if top[-1:] == [b"missing"]:
            continue
        text = p.stdout.read(int(top[2]) + 1).decode("utf8", "replace")
        if len(text) > 200_000:
            continue
        if name.endswith(".py"):
            try:
                tree = ast.parse(text)
            except (SyntaxError, ValueError, RecursionError):
                continue
            lines = text.split("\n")
            for node in ast.walk(tree):
                if (
                    isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
                    and ast.get_docstring(node)
                    and len(node.body) > 1
                ):
                    keep(
                        ast.get_docstring(node),
                        "\n".join(
                            [
                                lines[node.lineno - 1],
                                *lines[node.body[0].end_lineno : node.end_lineno],
                            ]
                        ),
                    )
        else:
            mark, word = (
                ("//", r"func ")
                if name.endswith(".go")
                else ("///", r"(?:pub(?:\([a-z]+\))? )?(?:async )?fn ")
            )
            for m in re.finditer(
                r"((?:^[ \t]*%s[^\n]*\n){2,})(?:[ \t]*#\[[^\n]*\n)*([ \t]*%s[^\n]*\n(?:[^\n]*\n){2,30}?)(?=[ \t]*\}\n)"
                % (mark, word),
                text,
                re.M,
            ):
                keep(re.sub(r"^[ \t]*///? ?", "", m[1], flags=re.M), m[2])
    p.kill()
    p.wait()
    with open(f"{raw}/{repo}.doc.jsonl", "w") as f:
        for r in rows:
            f.write(json.dumps(r) + "\n")
    print(repo, "docs", len(rows), round(time.time() - started), flush=True)


if __name__ == "__main__":
    what, raw = sys.argv[1], sys.argv[2]
    if what in ("commits", "docs"):
        end = {"commits": ".jsonl", "docs": ".doc.jsonl"}[what]
        repos = [
            r
            for r in open(os.environ["REPOS"]).read().split()
            if not os.path.exists(f"{raw}/{r}{end}") and os.path.isdir(MIRROR + r)
        ]
        with Pool(2) as pool:
            for _ in pool.imap_unordered(
                {"commits": commits, "docs": docs}[what], [(r, raw) for r in repos], chunksize=1
            ):
                pass
    else:
        import data_more

        getattr(data_more, what)(raw)
