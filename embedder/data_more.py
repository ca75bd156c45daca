"""Threads, messages, dialogue and packing: the second half of data.py (called through it)."""

import glob, html, json, lzma, os, random, re, subprocess, sys, time
from multiprocessing import Pool

from data import MIRROR, SKIP, clean, folder, git, licence

BOT = re.compile(
    r"\[bot\]|^bors$|rust-highfive|rust-timer|DrahtBot|BitcoinPullTester|dependabot|rustbot|coveralls|codecov",
    re.I,
)
IDS = {}
TAG = re.compile(r"<[^>]+>")


def tidy(text, limit):
    """A post as plain text: no quotes of others, no links, no e-mail leftovers, no ids."""
    text = (text or "").replace("\r", "")
    text = re.sub(r"^>.*$", "", text, flags=re.M)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"https?://\S+|@[\w-]+|\b[0-9a-f]{12,40}\b|<!--.*?-->", " ", text, flags=re.S)
    return re.sub(r"[ \t]{2,}", " ", re.sub(r"\n{3,}", "\n\n", text)).strip()[:limit]


def blobs(repo, names, ref="HEAD"):
    p = subprocess.Popen(
        ["git", "--git-dir=" + folder(repo), "cat-file", "--batch"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    for name in names:
        # By object id: looking a path up in a folder of 90,000 entries costs more than reading the file.
        p.stdin.write(f"{IDS.get((repo, ref, name)) or ref + ':' + name}\n".encode())
        p.stdin.flush()
        top = p.stdout.readline().split()
        if top[-1:] == [b"missing"] or len(top) < 3:
            continue
        yield name, p.stdout.read(int(top[2]) + 1)[:-1]
    p.kill()
    p.wait()


def names(repo, pattern, ref="HEAD"):
    out = []
    for line in git(repo, "ls-tree", "-r", ref).split("\n"):
        head, _, name = line.partition("\t")
        if re.search(pattern, name):
            IDS[repo, ref, name] = head.split()[2]
            out.append(name)
    return out


def strip_html(text):
    text = re.sub(r"<aside.*?</aside>|<blockquote>.*?</blockquote>", " ", text, flags=re.S)
    return html.unescape(TAG.sub("", re.sub(r"<br ?/?>|</p>|</li>|</h\d>", "\n", text)))


def bitcoin(repo):
    for name, raw in blobs(repo, names(repo, r"^(issues|pulls)/\d+\.json$")):
        if len(raw) > 400_000:
            continue
        d = json.loads(raw)
        item = d.get("issue") or d.get("pull") or {}
        said = [
            c
            for c in d.get("events") or []
            if c.get("event") in ("commented", "reviewed") and c.get("body")
        ]
        said += d.get("comments") or []
        who = lambda c: ((c.get("user") or c.get("actor") or {}) or {}).get("login", "")
        yield (
            item.get("title"),
            item.get("body"),
            [c.get("body") for c in said if not BOT.search(who(c))],
        )


def rust(repo):
    have = {}
    for name, raw in blobs(repo, names(repo, r"^items/\d+-(main|comments)\.json$")):
        key, kind = os.path.basename(name)[:-5].split("-")
        if kind == "comments":  # comes before main in order of name
            have[key] = [
                c["body"]
                for c in json.loads(raw)
                if not BOT.search((c.get("user") or {}).get("login", ""))
            ]
        else:
            d = json.loads(raw)
            yield d["title"], d["body"], have.pop(key, [])


def ietf(repo):
    for _, raw in blobs(repo, ["archive.json"], "gh-pages"):
        d = json.loads(raw)
        for i in d.get("issues", []) + d.get("pulls", []):
            said = [c.get("body") for c in i.get("comments") or []]
            for r in i.get("reviews") or []:
                said += [r.get("body")] + [c.get("body") for c in r.get("comments") or []]
            yield i.get("title"), i.get("body"), said


def slicer(repo):
    for _, raw in blobs(repo, names(repo, r"^archive/rendered-topics/.*\.md$")):
        t = raw.decode("utf8", "replace")
        title = re.search(r"^# (.*)$", t, re.M)
        posts = [strip_html(x) for x in re.split(r"^## Post #\d+ by .*$", t, flags=re.M)[1:]]
        if title and posts:
            yield (
                title[1],
                posts[0].replace("\n---", ""),
                [x.replace("\n---", "") for x in posts[1:]],
            )


def urho(repo):
    for name, raw in blobs(repo, names(repo, r"^posts/raw/.*\.md$")):
        parts = [
            re.sub(r"^\s*.* \| \d{4}-.* UTC \| #\d+\n", "", x)
            for x in raw.decode("utf8", "replace").split("-------------------------")
        ]
        title = re.sub(r"\.\d+\.md$", "", os.path.basename(name)).replace("-", " ")
        yield title, parts[0], parts[1:]


def redash(repo):
    for _, raw in blobs(repo, names(repo, r"^t/[^/]+/\d+\.html$")):
        t = raw.decode("utf8", "replace")
        title = re.search(r"<title>(.*?)</title>", t, re.S)
        posts = [
            strip_html(x.split("</div>")[0])
            for x in re.split(r"itemprop=.articleBody.[^>]*>", t)[1:]
        ]
        if title and posts:
            yield html.unescape(title[1]).split(" - Redash")[0].strip(), posts[0], posts[1:]


def merges(repo):
    """Merge messages that hold the pull request's description and what its reviewers said."""
    out = git(repo, "log", "--merges", "-n", "9000", "--format=%x01%s%x02%b")
    for m in out.split("\x01")[1:]:
        s, _, b = m.partition("\x02")
        if "Pull request description:" in b:
            head, _, rest = b.partition("Pull request description:")
            body, _, acks = rest.partition("ACKs for top commit:")
            heads = [re.sub(r"^[0-9a-f]{40} |\([^)]*\)$", "", l.strip()) for l in head.split("\n")]
            said = [
                re.sub(r"\b\w*ACK\w* [0-9a-f]{40}", "", x)
                for x in re.split(r"\n  \S+:\n", acks.split("Tree-SHA512")[0])
            ]
            yield (
                re.sub(r"^Merge \S+: ", "", s),
                body.replace("\n  ", "\n"),
                ["\n".join(h for h in heads if h), *said],
            )
        elif s.startswith("Auto merge of") and len(b) > 150:
            title, _, body = b.strip().partition("\n\n")
            yield title, body, []


READERS = {
    "bitcoin-data+github-metadata-backup-bitcoin-bitcoin": bitcoin,
    "bitcoin-data+github-metadata-backup-bitcoin-core-gui": bitcoin,
    "bitcoin-data+github-metadata-backup-bitcoin-core-secp256k1": bitcoin,
    "brson+rust-issue-archive": rust,
    "tlswg+tls13-spec": ietf,
    "mlswg+mls-protocol": ietf,
    "pieper+slicer-discourse-archive": slicer,
    "SirNate0+Urho3D-Discourse-Archive": urho,
    "getredash+discourse-archive": redash,
    "rust-lang+cargo": merges,
    "rust-lang+rust-clippy": merges,
    "rust-lang+rust-analyzer": merges,
}


def one_thread(job):
    repo, raw = job
    t0, n, said = time.time(), 0, 0
    with open(f"{raw}/{repo}.thr.jsonl", "w") as f:
        for title, body, comments in READERS[repo](repo):
            title, body = tidy(title, 250), tidy(body, 2500)
            comments = [
                c for c in (tidy(x, 1200) for x in (comments or [])[:30] if x) if len(c) > 60
            ][:8]
            if len(title) < 8 or SKIP.match(title) or (len(body) < 60 and not comments):
                continue
            f.write(json.dumps(dict(s=title, b=body, c=comments)) + "\n")
            n, said = n + 1, said + len(comments)
    print(repo, "threads", n, "comments", said, round(time.time() - t0), flush=True)


def threads(raw):
    with Pool(2) as pool:
        list(
            pool.imap_unordered(
                one_thread,
                [
                    (r, raw)
                    for r in READERS
                    if os.path.isdir(MIRROR + r) and not os.path.exists(f"{raw}/{r}.thr.jsonl")
                ],
                chunksize=1,
            )
        )


def one_messages(job):
    """Messages alone (no diff), cheap: subject and a body worth the name."""
    repo, raw = job
    n, seen = 0, set()
    out = subprocess.run(
        [
            "git",
            "--git-dir=" + folder(repo),
            "log",
            "--no-merges",
            "-n",
            "12000",
            "--format=%x01%s%x02%b",
            "HEAD",
        ],
        capture_output=True,
    ).stdout.decode("utf8", "replace")
    with open(f"{raw}/{repo}.msg.jsonl", "w") as f:
        for m in out.split("\x01")[1:]:
            s, _, b = m.partition("\x02")
            s, b = clean(s), clean(b)
            if len(s) < 12 or len(b) < 120 or SKIP.match(s) or s.lower() in seen:
                continue
            seen.add(s.lower())
            f.write(json.dumps(dict(s=s[:300], b=b[:2500])) + "\n")
            n += 1
            if n >= 4000:
                break
    print(repo, "messages", n, flush=True)


def messages(raw):
    repos = [r for f in sys.argv[3:] for r in open(f).read().split() if os.path.isdir(MIRROR + r)]
    with Pool(2) as pool:
        list(pool.imap_unordered(one_messages, [(r, raw) for r in repos], chunksize=1))


# CC BY 4.0 or MIT among the collections that the self-instruct repository holds samples of.
GENERAL = re.compile(
    r"data_per_template/(cosmos_qa|social_i_qa|quoref|ropes|quartz|quarel|qasc|wiqa|common_gen|duorc)"
)


def talk(raw):
    """Everyday language: turns of Topical-Chat (its data licence leaves results of computation free) and Taskmaster, question-answering passages."""
    turns, near = [], []
    repo = "alexa+Topical-Chat"
    for _, b in blobs(repo, names(repo, r"^conversations/.*\.json$")):
        for c in json.loads(b).values():
            m = [x["message"] for x in c["content"]]
            turns += m
            near += [
                (" ".join(m[i : i + 3]), " ".join(m[i + 3 : i + 6]))
                for i in range(0, len(m) - 5, 6)
            ]
    counts = [len(turns)]

    def walk(x):
        if isinstance(x, dict):
            for k, v in x.items():
                if k in (
                    "text",
                    "utterance",
                    "instruction",
                    "input",
                    "output",
                    "prompt",
                    "completion",
                ) and isinstance(v, str):
                    if 30 < len(v) < 3000:
                        turns.append(v)
                else:
                    walk(v)
        elif isinstance(x, list):
            for v in x:
                walk(v)

    repo = "google-research-datasets+Taskmaster"
    for _, b in blobs(repo, names(repo, r"\.json$")):
        try:
            walk(json.loads(b))
        except ValueError:
            pass
    counts.append(len(turns))
    repo = "yizhongw+self-instruct"
    for _, b in blobs(
        repo,
        [
            n
            for n in names(repo, r"\.jsonl$")
            if GENERAL.search(n) or "seed_tasks" in n or "user_oriented" in n
        ],
    ):
        for line in b.decode("utf8", "replace").split("\n"):
            if line:
                walk(json.loads(line))
    counts.append(len(turns))
    turns = list(dict.fromkeys(t.strip() for t in turns if len(t) > 20))
    random.Random(0).shuffle(turns)
    json.dump(
        dict(turns=[t[:1200] for t in turns[:110000]], near=near), open(f"{raw}/talk.json", "w")
    )
    print("talk", counts, len(turns), len(near))


def norm(s):
    return re.sub(r"[^a-z0-9]+", " ", s.lower()).strip()


def added(patch):
    return {
        l.strip()
        for l in patch.splitlines()
        if l[:1] == "+" and l[:3] != "+++" and len(l.strip()) > 25
    }


def pack(raw):
    out, swe = sys.argv[3], sys.argv[4]
    tasks = [json.loads(l) for l in open(swe)]
    titles = {norm(d["problem_statement"].strip().split("\n")[0][:200]) for d in tasks}
    banned = {d["repo"].replace("/", "+").lower() for d in tasks}
    plus, long = {}, {}
    for i, d in enumerate(tasks):
        for a in added(d["gold_patch"]):
            plus.setdefault(a, set()).add(i)
        for f in ("problem_statement", "hints", "gold_patch"):
            for l in d[f].splitlines():
                l = l.strip().lstrip("+-").strip()
                if len(l) >= 60:
                    long.setdefault(l, set()).add(i)

    def meets(text, diff=""):
        """Three added lines or two long lines of one evaluation task."""
        for table, lines, most in (
            (plus, added(diff), 3),
            (long, {l.strip().lstrip("+-").strip() for l in (text + "\n" + diff).splitlines()}, 2),
        ):
            hit = {}
            for l in lines:
                for i in table.get(l, ()):
                    hit[i] = hit.get(i, 0) + 1
            if hit and max(hit.values()) >= most:
                return True
        return False

    dropped, kept, rows = dict(title=0, lines=0), {}, []
    for path in sorted(glob.glob(raw + "/*.jsonl")):
        repo, _, kind = (
            os.path.basename(path)[:-6].partition(".")
            if re.search(r"\.(doc|msg|thr)\.jsonl$", path)
            else (os.path.basename(path)[:-6], "", "com")
        )
        if kind not in ("com", "doc", "msg", "thr"):  # a dot in the repository's own name
            repo, kind = os.path.basename(path)[:-6].rsplit(".", 1)
        if repo.lower() in banned:
            raise SystemExit("evaluation project in the training data: " + repo)
        seen = {norm(r[2]) for r in rows if r[0] == repo} if kind == "msg" else set()
        n = 0
        for line in open(path):
            c = json.loads(line)
            if kind == "doc":
                row = [repo, kind, c[0][:700], c[1][:1100]]
            elif kind == "thr":
                row = [repo, kind, c["s"], c["b"][:1800], [x[:700] for x in c["c"][:6]]]
            elif kind == "msg":
                row = [repo, kind, c["s"], c["b"][:1500]]
            else:
                row = [repo, kind, c["s"], c["b"][:1500], c["d"][:1700], c["t"][:700], c["n"]]
            if kind != "doc" and norm(row[2]) in titles:
                dropped["title"] += 1
                continue
            if kind == "msg" and norm(row[2]) in seen:
                continue
            text = row[2] + "\n" + row[3] + "\n" + ("\n".join(row[4]) if kind == "thr" else "")
            if meets(text, row[4] + "\n" + row[5] if kind == "com" else ""):
                dropped["lines"] += 1
                continue
            rows.append(row)
            n += 1
        kept[repo, kind] = n
    total = {
        k: sum(v for (r, q), v in kept.items() if q == k) for k in ("com", "msg", "doc", "thr")
    }
    print("dropped", dropped, "kept", total, "repositories", len({r for r, _ in kept}))
    with open(out + "/sources.tsv", "w") as f:
        f.write("repository\tlicence file reads\tcommit\tcommits\tmessages\tdoc pairs\tthreads\n")
        for r in sorted({r for r, _ in kept}):
            f.write(
                "\t".join(
                    [
                        r.replace("+", "/", 1),
                        licence(r),
                        git(r, "rev-parse", "HEAD").strip(),
                        *(str(kept.get((r, k), 0)) for k in ("com", "msg", "doc", "thr")),
                    ]
                )
                + "\n"
            )
    random.Random(1).shuffle(rows)
    half = len(rows) // 2
    for i, part in enumerate((rows[:half], rows[half:])):
        p = subprocess.Popen(
            ["xz", "-1", "-T2", "-c"], stdin=subprocess.PIPE, stdout=open(f"{out}/p{i}.xz", "wb")
        )
        for r in part:
            p.stdin.write((json.dumps(r, ensure_ascii=False) + "\n").encode("utf8", "replace"))
        p.stdin.close()
        p.wait()
        print(out, i, os.path.getsize(f"{out}/p{i}.xz") >> 20, "MiB", len(part), flush=True)
