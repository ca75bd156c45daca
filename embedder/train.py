#!/usr/bin/env python3
"""Training of the static table (needs a GPU).
train.py prep DATA WORK [PIECES]     texts -> vocabulary, bags of pieces, pair tables
train.py teach DATA WORK             teachers' vectors (all-mpnet-base-v2, all-MiniLM-L6-v2) of a sample of the texts
train.py evalvec DATA WORK OUT       MiniLM vectors of the evaluation texts (baseline only)
train.py train WORK OUT CONFIGS      one table a configuration, own held-out scores, OUT/<name>.npz
"""

import collections, glob, json, lzma, math, os, random, re, sys, time, unicodedata
import numpy as np

WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\d_A-Za-z]+")
HELD = {
    "pypa+pip",
    "mitmproxy+mitmproxy",
    "rust-lang+cargo",
    "bitcoin-data+github-metadata-backup-bitcoin-core-gui",
    "bitcoin-data+github-metadata-backup-bitcoin-core-secp256k1",
    "SirNate0+Urho3D-Discourse-Archive",
}
START = time.time()


def log(*a):
    print(f"[{time.time() - START:.0f}s]", *a, flush=True)


def pre(text):
    if not text.isascii():
        text = "".join(
            c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c)
        )
    return " ".join(w.lower()[:32] for w in WORD.findall(text) if w.isascii())


def prelist(texts):
    return [pre(t) for t in texts]


def halves(body):
    parts = [x for x in re.split(r"\n\s*\n|(?<=[.!?])\s+(?=[A-Z])", body) if x.strip()]
    if len(parts) < 2 or len(body) < 160:
        return body, ""
    seen = 0
    for i, x in enumerate(parts):
        seen += len(x)
        if seen >= len(body) / 2:
            k = max(1, min(i + 1, len(parts) - 1))
            return "\n".join(parts[:k]), "\n".join(parts[k:])
    return body, ""


def prep(data, work, pieces=48000):
    from multiprocessing import Pool
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    os.makedirs(work, exist_ok=True)
    rows = [
        json.loads(l)
        for f in sorted(glob.glob(data + "/p*.xz"))
        for l in lzma.open(f, "rt", encoding="utf8")
    ]
    talk = json.load(lzma.open(data + "/talk.xz", "rt"))
    log("rows", len(rows), collections.Counter(r[1] for r in rows))
    texts, groups, names = [], [], {}
    L, R, kind, group, item = [], [], [], [], []  # pairs: up to three segments a side
    teach = []  # (segments, raw text, kind)
    E = -1

    def seg(t):
        texts.append(t)
        return len(texts) - 1

    def pair(g, it, k, left, right):
        L.append((left + [E, E])[:3])
        R.append((right + [E, E])[:3])
        kind.append(k)
        group.append(g)
        item.append(it)

    KIND = {
        k: i
        for i, k in enumerate(
            "S-D SB-D B-D S-B B2-B1 T-D S-T doc msg msg2 CC-I C-I S-C C-C I-ref near".split()
        )
    }
    rnd = random.Random(0)
    same = collections.defaultdict(list)
    for it, r in enumerate(rows):
        repo, what = r[0], r[1]
        g = names.setdefault((repo, what), len(names))
        if what in ("com", "msg"):
            s = seg(r[2])
            b1, b2 = halves(r[3])
            B1 = seg(b1) if len(b1) > 40 else None
            B2 = seg(b2) if len(b2) > 40 else None
            B = [x for x in (B1, B2) if x is not None]
            teach.append(([s], r[2], "S"))
            if B and len(r[3]) > 100:
                teach.append((B, r[3], "B"))
            if what == "com":
                D = seg(r[4])
                T = seg(r[5]) if len(r[5]) > 80 else None
                DT = [D] + ([T] if T is not None else [])
                teach.append(([D], r[4], "D"))
                pair(g, it, KIND["S-D"], [s], DT)
                if B:
                    pair(g, it, KIND["SB-D"], [s] + B, DT)
                    pair(g, it, KIND["B-D"], B, DT)
                    pair(g, it, KIND["S-B"], [s], B)
                if B2 is not None:
                    pair(g, it, KIND["B2-B1"], [B2], [s] + B[:-1])
                if T is not None:
                    pair(g, it, KIND["T-D"], [T], [D])
                    pair(g, it, KIND["S-T"], [s], [T])
                for n in r[6]:
                    same[repo, n].append((g, it, [s] + B))
            else:
                if B:
                    pair(g, it, KIND["msg"], [s], B)
                if B2 is not None:
                    pair(g, it, KIND["msg2"], [B2], [s] + B[:-1])
        elif what == "doc":
            a, b = seg(r[2]), seg(r[3])
            pair(g, it, KIND["doc"], [a], [b])
            teach.append(([a], r[2], "doc"))
            teach.append(([b], r[3], "D"))
        else:
            s = seg(r[2])
            b = seg(r[3]) if len(r[3]) > 40 else None
            I = [s] + ([b] if b is not None else [])
            teach.append((I, r[2] + "\n" + r[3], "I"))
            if b is not None:
                pair(g, it, KIND["S-B"], [s], [b])
            C = [seg(c) for c in r[4]]
            for c, t in zip(C, r[4]):
                pair(g, it, KIND["C-I"], [c], I)
                teach.append(([c], t, "C"))
            if C:
                cc = seg("\n".join(r[4])[:400])
                pair(g, it, KIND["CC-I"], [cc], I)
                pair(g, it, KIND["S-C"], [s], [C[0]])
            if len(C) > 1:
                a, b2 = rnd.sample(C, 2)
                pair(g, it, KIND["C-C"], [a], [b2])
    for (repo, n), v in same.items():
        if 2 <= len(v) <= 6:
            for a, b in zip(v, v[1:]):
                pair(a[0], a[1], KIND["I-ref"], a[2], b[2])
    g = names.setdefault(("talk", "near"), len(names))
    for j, (a, b) in enumerate(talk["near"]):
        pair(g, len(rows) + j, KIND["near"], [seg(a)], [seg(b)])
    for t in talk["turns"]:
        teach.append(([seg(t)], t, "G"))
    log("texts", len(texts), "pairs", len(L), {k: kind.count(i) for k, i in KIND.items()})
    with Pool(os.cpu_count()) as pool:
        P = [
            y
            for x in pool.imap(prelist, [texts[i : i + 4000] for i in range(0, len(texts), 4000)])
            for y in x
        ]
    log("split")
    take = list(range(len(P)))
    rnd.shuffle(take)

    def sample():
        for i in take[:420000]:
            yield P[i]
        for segs, t, k in teach:
            if k == "G":
                yield P[segs[0]]
                yield P[segs[0]]

    tok = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=40))
    tok.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tok.train_from_iterator(
        sample(),
        trainers.WordPieceTrainer(
            vocab_size=pieces,
            special_tokens=["[UNK]"],
            min_frequency=4,
            show_progress=False,
            initial_alphabet=list("abcdefghijklmnopqrstuvwxyz0123456789"),
        ),
    )
    tok.save(work + "/tok.json")
    log("vocabulary", tok.get_vocab_size())
    ids, ln = [], np.zeros(len(P), np.int32)
    for a in range(0, len(P), 50000):
        for j, e in enumerate(tok.encode_batch_fast(P[a : a + 50000])):
            v = e.ids[:600]
            ln[a + j] = len(v)
            ids.append(np.asarray(v, np.uint16))
    ids = np.concatenate(ids)
    np.savez(
        work + "/bags.npz",
        ids=ids,
        ln=ln,
        L=np.array(L, np.int32),
        R=np.array(R, np.int32),
        kind=np.array(kind, np.int8),
        group=np.array(group, np.int16),
        item=np.array(item, np.int32),
    )
    json.dump(
        dict(kinds=list(KIND), groups=[list(k) for k in names]), open(work + "/meta.json", "w")
    )
    log("pieces", len(ids), "texts", len(P))
    # what the teachers read: a sample by kind
    rnd.shuffle(teach)
    want = dict(S=110000, B=90000, D=60000, doc=30000, I=90000, C=130000, G=110000)
    got = collections.Counter()
    out = []
    for t in teach:
        if got[t[2]] < want[t[2]]:
            got[t[2]] += 1
            out.append(((t[0] + [E, E])[:3], t[1][:900], t[2]))
    json.dump(out, open(work + "/teach.json", "w"))
    log("to teach", dict(got))


def load_teacher(data, name):
    """Weights from int8 rows; -> encode(texts, max_len)."""
    import torch
    from tokenizers import Tokenizer
    from transformers import BertConfig, BertModel, MPNetConfig, MPNetModel

    W = {}
    for f in sorted(glob.glob(f"{data}/{name}[0-9].npz")):
        z = np.load(f)
        for k in z.files:
            if not k.endswith("|s"):
                W[k] = torch.tensor(
                    z[k].astype(np.float32) * z[k + "|s"]
                    if k + "|s" in z.files
                    else z[k].astype(np.float32)
                )
    conf = {
        k: v
        for k, v in json.load(open(f"{data}/{name}_config.json")).items()
        if k not in ("architectures", "_name_or_path", "transformers_version", "torch_dtype")
    }
    m = (
        MPNetModel(MPNetConfig(**conf), add_pooling_layer=False)
        if name == "mpnet"
        else BertModel(BertConfig(**conf), add_pooling_layer=False)
    )
    miss = m.load_state_dict(
        {k: v for k, v in W.items() if not k.startswith("pooler") and "position_ids" not in k},
        strict=False,
    )
    log(
        name,
        "missing",
        [k for k in miss.missing_keys if "position_ids" not in k],
        "unexpected",
        miss.unexpected_keys[:4],
    )
    m = m.half().cuda().eval()
    tk = Tokenizer.from_file(f"{data}/{name}_tokenizer.json")
    tk.no_padding()
    pad = 1 if name == "mpnet" else 0

    @torch.no_grad()
    def enc(texts, max_len=160, budget=262144):
        tk.enable_truncation(max_len)
        texts = [t if t.strip() else "." for t in texts]
        out = np.zeros((len(texts), m.config.hidden_size), np.float16)
        E = [
            e.ids
            for a in range(0, len(texts), 50000)
            for e in tk.encode_batch_fast(texts[a : a + 50000])
        ]
        order = sorted(range(len(texts)), key=lambda i: len(E[i]))
        a = 0
        while a < len(order):
            n = max(1, budget // max(1, len(E[order[min(len(order) - 1, a + 2000)]])))
            ix = order[a : a + min(n, 4096)]
            a += len(ix)
            w = len(E[ix[-1]])
            ids = np.full((len(ix), w), pad, np.int64)
            am = np.zeros((len(ix), w), np.int64)
            for r, i in enumerate(ix):
                ids[r, : len(E[i])] = E[i]
                am[r, : len(E[i])] = 1
            ids, am = torch.tensor(ids, device="cuda"), torch.tensor(am, device="cuda")
            h = m(input_ids=ids, attention_mask=am).last_hidden_state.float()
            h = (h * am[..., None]).sum(1) / am.sum(1, keepdim=True)
            out[ix] = torch.nn.functional.normalize(h, dim=1).half().cpu().numpy()
        return out

    return enc


def teach(data, work):
    X = json.load(open(work + "/teach.json"))
    texts = [x[1] for x in X]
    vocab = json.load(open(work + "/tok.json"))["model"]["vocab"]
    words = [None] * len(vocab)
    for k, i in vocab.items():
        words[i] = k[2:] if k.startswith("##") and len(k) > 2 else k
    out = dict(seg=np.array([x[0] for x in X], np.int32), kind=np.array([x[2] for x in X]))
    for name in ("minilm", "mpnet"):
        enc = load_teacher(data, name)
        out[name] = enc(texts)
        out[name + "_words"] = enc(words, 16)
        log("taught by", name, out[name].shape)
    np.savez(work + "/taught.npz", **out)


def evalvec(data, work, out):
    T = json.load(lzma.open(data + "/evaltexts.xz", "rt"))
    enc = load_teacher(data, "minilm")
    for k, v in T.items():
        z = enc(v, 256)
        parts = -(-z.nbytes // (15 << 20))
        for i, p in enumerate(np.array_split(z, parts)):
            np.save(f"{out}/minilm_{k}_{i}.npy", p)
        log("evaluation vectors", k, z.shape)


class Bags:
    """Distinct pieces and damped counts of every text, on the GPU."""

    def __init__(self, work, dev, damping):
        import torch

        z = np.load(work + "/bags.npz")
        t = lambda k: torch.tensor(z[k].astype(np.int64), device=dev)
        ids, ln = t("ids"), t("ln")
        row = torch.repeat_interleave(torch.arange(len(ln), device=dev), ln)
        K = int(ids.max()) + 1
        u, c = torch.unique(row * K + ids, return_counts=True)
        self.row, self.ids, self.w, self.n, self.dev = (
            u // K,
            u % K,
            c.float() ** damping,
            len(ln),
            dev,
        )
        n = torch.bincount(self.row, minlength=len(ln))
        z0 = torch.zeros(1, dtype=torch.long, device=dev)
        self.len, self.start = torch.cat([n, z0]), torch.cat([torch.cumsum(n, 0) - n, z0])
        self.L, self.R = (torch.where(x < 0, len(ln), x) for x in (t("L"), t("R")))
        self.kind, self.group, self.item = t("kind"), t("group"), t("item")

    def batch(self, seg, drop):
        import torch

        f = seg.reshape(-1)
        n = self.len[f]
        off = torch.cumsum(n, 0) - n
        per = n.reshape(seg.shape).sum(1)
        pos = torch.arange(int(n.sum()), device=self.dev) + torch.repeat_interleave(
            self.start[f] - off, n
        )
        i, w = self.ids[pos], self.w[pos]
        if drop:
            w = w * (torch.rand_like(w) >= drop)
        return i, w, torch.cumsum(per, 0) - per, per


def train(work, out, configs):
    import torch, torch.nn as nn, torch.nn.functional as F

    dev = "cuda"
    torch.backends.cuda.matmul.allow_tf32 = True
    os.makedirs(out, exist_ok=True)
    meta = json.load(open(work + "/meta.json"))
    vocab = json.load(open(work + "/tok.json"))["model"]["vocab"]
    V = len(vocab)
    z = np.load(work + "/taught.npz")
    kinds = z["kind"]
    tseg = torch.tensor(z["seg"].astype(np.int64), device=dev)
    TV = {
        n: (torch.tensor(z[n], device=dev), torch.tensor(z[n + "_words"], device=dev))
        for n in ("minilm", "mpnet")
    }
    bags = {}
    for cfg in configs:
        c = dict(
            name="x",
            dim=256,
            damping=0.5,
            steps=2500,
            bs=8192,
            lr=3e-4,
            drop=0.25,
            lam=1.0,
            lamr=1.0,
            sif=1e-3,
            groups=8,
            seed=0,
            tmax=60.0,
            tt=0.05,
            teacher="both",
            m=4096,
            init="both",
            lwx=5.0,
            gate=0,
            mlp=0,
            share=dict(com=1.0, msg=0.5, doc=0.4, thr=1.2, near=0.5),
            kw={},
            tw=dict(S=0.17, B=0.1, D=0.06, doc=0.04, I=0.14, C=0.17, G=0.32),
        )
        c.update(cfg)
        torch.manual_seed(c["seed"])
        t1 = time.time()
        if c["damping"] not in bags:
            bags.clear()
            bags[c["damping"]] = Bags(work, dev, c["damping"])
        B = bags[c["damping"]]
        dim = c["dim"]
        seg_t = torch.where(tseg < 0, B.n, tseg)
        cnt = torch.bincount(B.ids, minlength=V).float()
        prob = cnt / cnt.sum()

        def mixed(which):
            names = ("mpnet", "minilm") if which == "both" else (which,)
            return [
                torch.cat([TV[n][j] for n in names], 1).float() / math.sqrt(len(names))
                for j in (0, 1)
            ]

        TT, _ = mixed(c["teacher"])
        TT = TT.half()
        _, TW = mixed(c["init"])
        X = TW - TW.mean(0)
        _, _, Vh = torch.linalg.svd(X[:20000], full_matrices=False)
        Z = X @ Vh[:dim].T
        E = nn.Parameter(F.normalize(Z, dim=1))
        lw = nn.Parameter(torch.log(c["sif"] / (c["sif"] + prob)).clamp(min=-6))
        ls = nn.Parameter(torch.tensor(math.log(20.0), device=dev))
        head = nn.Linear(dim, TT.shape[1], bias=False).to(dev)
        extra = {}
        if c["gate"]:  # a piece counts more, or less, the better it goes with the whole text
            extra["A"] = nn.Parameter(torch.zeros(dim, dim, device=dev))
        if c["mlp"]:  # one small layer on the sum
            extra["W1"] = nn.Parameter(torch.randn(c["mlp"], dim, device=dev) / 16)
            extra["b1"] = nn.Parameter(torch.zeros(c["mlp"], device=dev))
            extra["W2"] = nn.Parameter(torch.zeros(dim, c["mlp"], device=dev))
        opt = torch.optim.Adam(
            [
                dict(params=[E], lr=c["lr"]),
                dict(params=[lw], lr=c["lr"] * c["lwx"]),
                dict(params=[ls, *head.parameters(), *extra.values()], lr=1e-3),
            ]
        )
        base = [g["lr"] for g in opt.param_groups]

        def emb(seg, drop=0.0, table=None):
            T = E * torch.exp(lw)[:, None] if table is None else table
            i, w, off, per = B.batch(seg, drop)
            z = F.embedding_bag(i, T, off, mode="sum", per_sample_weights=w)
            if c["gate"]:
                m = F.normalize(z, dim=1, eps=1e-6) @ extra["A"].T
                bag = torch.repeat_interleave(torch.arange(len(per), device=dev), per)
                g = (F.normalize(T, dim=1)[i] * m[bag]).sum(1)
                z = F.embedding_bag(
                    i, T, off, mode="sum", per_sample_weights=w * torch.exp(g.clamp(-4, 4))
                )
            z = F.normalize(z, dim=1, eps=1e-6)
            if c["mlp"]:
                z = F.normalize(
                    z + F.relu(z * 16 @ extra["W1"].T + extra["b1"]) @ extra["W2"].T / 16,
                    dim=1,
                    eps=1e-6,
                )
            return z

        held = torch.tensor([g[0] in HELD for g in meta["groups"]], device=dev)[B.group]
        if c.get("full"):
            held[:] = False
        W = torch.tensor(
            [
                float(
                    c["kw"].get(
                        k,
                        dict(
                            zip(
                                "S-D SB-D B-D S-B B2-B1 T-D S-T doc msg msg2 CC-I C-I S-C C-C I-ref near".split(),
                                [3, 1, 1, 1.5, 1, 0.7, 0.5, 1, 1, 1, 2, 1, 0.5, 0.7, 0.7, 1],
                            )
                        )[k],
                    )
                )
                for k in meta["kinds"]
            ],
            device=dev,
        )[B.kind]
        pool, weight = [], []
        for gi, (repo, what) in enumerate(meta["groups"]):
            ix = torch.where((B.group == gi) & ~held)[0]
            if len(ix) > 150 and c["share"][what] > 0:
                pool.append(ix)
                weight.append(len(ix) ** 0.6 * c["share"][what])
        weight = torch.tensor(weight)
        per = c["bs"] // c["groups"]
        tby = {k: torch.tensor(np.where(kinds == k)[0], device=dev) for k in c["tw"]}
        hseg = torch.zeros(B.n + 1, dtype=torch.bool, device=dev)
        hs = torch.where(held)[0]
        for S_ in (B.L[hs], B.R[hs]):
            hseg[S_.reshape(-1)] = True
        hseg[B.n] = False
        tby = {k: v[~hseg[seg_t[v]].any(1)] for k, v in tby.items()}
        gval = tby["G"][:3000]
        tby["G"] = tby["G"][3000:]
        avg = None
        for st in range(c["steps"]):
            f = max(0.01, min(1, (st + 1) / 100) * 0.5 * (1 + math.cos(math.pi * st / c["steps"])))
            for g, b in zip(opt.param_groups, base):
                g["lr"] = b * f
            ix = []
            for gi in torch.multinomial(weight, c["groups"]).tolist():
                p = pool[gi]
                p = p[torch.randint(len(p), (4 * per,), device=dev)]
                k = torch.rand(len(p), device=dev) ** (1 / W[p])
                p = p[k.argsort(descending=True)[:per]]
                ix.append(torch.unique(p))
            ix = torch.cat(ix)
            a, b = emb(B.L[ix], c["drop"]), emb(B.R[ix], c["drop"])
            sc = ls.exp().clamp(max=c["tmax"])
            with torch.autocast(dev, dtype=torch.bfloat16):
                lg = a @ b.T
            lg = lg.float() * sc
            it = B.item[ix]
            same = it[:, None] == it[None]
            same.fill_diagonal_(False)
            lg = lg.masked_fill(same, -1e4)
            y = torch.arange(len(ix), device=dev)
            nce = 0.5 * (F.cross_entropy(lg, y) + F.cross_entropy(lg.T, y))
            loss = nce
            if c["lam"] or c["lamr"]:
                j = torch.cat(
                    [
                        v[torch.randint(len(v), (int(c["m"] * c["tw"][k]),), device=dev)]
                        for k, v in tby.items()
                    ]
                )
                t = TT[j].float()
                zz = emb(seg_t[j], c["drop"] * 0.5)
                ts, zs = t @ t.T / c["tt"], zz @ zz.T / c["tt"]
                d = torch.eye(len(j), dtype=torch.bool, device=dev)
                kl = F.kl_div(
                    F.log_softmax(zs.masked_fill(d, -1e4), 1),
                    F.softmax(ts.masked_fill(d, -1e4), 1),
                    reduction="batchmean",
                )
                reg = 1 - F.cosine_similarity(head(zz), t, dim=1).mean()
                loss = loss + c["lam"] * kl + c["lamr"] * reg
            opt.zero_grad()
            loss.backward()
            opt.step()
            if st % 1000 == 0 or st == c["steps"] - 1:
                log(
                    c["name"],
                    st,
                    "nce",
                    round(nce.item(), 3),
                    "kl",
                    round(kl.item(), 3) if c["lam"] else "",
                    "scale",
                    round(sc.item(), 1),
                    "batch",
                    len(ix),
                )
        with torch.no_grad():
            T = E * torch.exp(lw)[:, None]
            s = T.abs().amax(1).clamp(min=1e-9) / 127
            q = torch.round(T / s[:, None]).to(torch.int8)
            T = q.float() * s[:, None]
            res = {}
            hb = torch.tensor([g[0] in HELD for g in meta["groups"]], device=dev)[B.group]
            for k in ("S-D", "S-B", "B2-B1", "CC-I", "C-I"):
                ranks = []
                for gi, (repo, what) in enumerate(meta["groups"]):
                    ix = torch.where(hb & (B.group == gi) & (B.kind == meta["kinds"].index(k)))[0]
                    if len(ix) < 100 or what == "msg":
                        continue
                    ix = ix[
                        torch.randperm(
                            len(ix),
                            generator=torch.Generator(device=dev).manual_seed(1),
                            device=dev,
                        )[:2500]
                    ]
                    a, b = emb(B.L[ix], table=T), emb(B.R[ix], table=T)
                    S = a @ b.T
                    it = B.item[ix]
                    m = it[:, None] == it[None]
                    m.fill_diagonal_(False)
                    S = S.masked_fill(m, -9)
                    ranks.append((S > S.diag()[:, None]).sum(1))
                if ranks:
                    r = torch.cat(ranks)
                    res[k] = [round((r < n).float().mean().item(), 3) for n in (1, 10)]
            a = emb(seg_t[gval], table=T)
            t = TT[gval].float()
            A, Bt = a @ a.T, t @ t.T
            A.fill_diagonal_(-1)
            Bt.fill_diagonal_(-1)
            res["talk10"] = round(
                (A.topk(10, 1).indices[:, :, None] == Bt.topk(10, 1).indices[:, None])
                .any(2)
                .float()
                .mean()
                .item(),
                3,
            )
        log("RESULT", c["name"], json.dumps(res), f"{time.time() - t1:.0f}s", json.dumps(cfg))
        np.savez(
            f"{out}/{c['name']}.npz",
            q=q.cpu().numpy(),
            s=s.cpu().numpy().astype(np.float32),
            damping=np.float32(c["damping"]),
            **{k: v.detach().cpu().numpy().astype(np.float16) for k, v in extra.items()},
        )
        with open(out + "/results.jsonl", "a") as fh:
            fh.write(json.dumps([cfg, res]) + "\n")


if __name__ == "__main__":
    os.environ["TOKENIZERS_PARALLELISM"] = "true"
    a = sys.argv
    if a[1] == "prep":
        prep(a[2], a[3], int(a[4]) if len(a) > 4 else 48000)
    elif a[1] == "teach":
        teach(a[2], a[3])
    elif a[1] == "evalvec":
        evalvec(a[2], a[3], a[4])
    else:
        train(a[2], a[3], json.load(open(a[4])))
