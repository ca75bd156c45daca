#!/usr/bin/env python3
"""A trained table and its tokeniser -> the shipped file: pack.py TOK.json TABLE.npz OUT.bin [TABLE2.npz ...]
Several tables (seeds of one recipe, trained from one start) are averaged."""

import json, sys, zlib
import numpy as np

tok, first, out, *more = sys.argv[1:]
lead, hashed = 64, 1024
T, A, p = 0, 0, None
for f in [first, *more]:
    z = np.load(f)
    t = z["q"].astype(np.float32) * z["s"][:, None]
    p = float(z["damping"])
    T = T + t / (1 + len(more))
    A = A + (
        z["A"].astype(np.float32) if "A" in z.files else np.zeros((t.shape[1],) * 2, np.float32)
    ) / (1 + len(more))
vocab = json.load(open(tok))["model"]["vocab"]
words = [None] * len(vocab)
for k, i in vocab.items():
    words[i] = k
words[0] = "[UNK]"
# Pairs of letters of unknown scripts: fixed random directions, as long as a middling piece.
rnd = np.random.RandomState(7).randn(hashed, T.shape[1]).astype(np.float32)
T = np.concatenate(
    [T, rnd / np.linalg.norm(rnd, axis=1, keepdims=True) * np.median(np.linalg.norm(T, axis=1))]
)
s = np.maximum(np.abs(T).max(1), 1e-9) / 127
q = np.round(T / s[:, None]).astype(np.int8)
q[~q.any(1), 0] = 1
v = zlib.compress("\n".join(words).encode(), 9)
head = json.dumps(
    dict(
        name="ralph-static",
        version=1,
        dims=int(T.shape[1]),
        rows=len(T),
        words=len(words),
        hash=hashed,
        damping=p,
        lead=lead,
        vocabulary=len(v),
        licence="MIT OR Apache-2.0",
    )
).encode()
b = b"RALPHEM1" + len(head).to_bytes(4, "little") + head + v
b += b"\0" * (-len(b) % 64) + s.astype("<f4").tobytes() + A.astype("<f2").tobytes() + q.tobytes()
open(out, "wb").write(b)
print(out, len(b), "bytes; vocabulary", len(v), "rows", len(T))
