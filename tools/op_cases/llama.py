"""ExecuTorch's custom operators for language models, and image tiling.

Expected values come from plain PyTorch formulations in double precision, rounded to the output's dtype. Where the
wheel's ahead-of-time library runs the operator (float32 attention, Hadamard transform, gated delta rule, mixture of
experts), each case is checked against it while it is made.
"""

import itertools
import math

import torch
from executorch.extension.llm.custom_ops import custom_ops, op_fallback  # noqa: F401

from .moe_weights import pack
from .values import BF16, EVERY, F16, F32, F64, I64, I8, U8, Values

L = "llama::"
# Packed weights are long.
MAX_NUMEL = 20000


def agree(name, expected, actual):
    if not torch.allclose(expected, actual, rtol=1e-3, atol=1e-3):
        raise AssertionError(f"{name}: the formula and the wheel disagree by {(expected - actual).abs().max()}")


def attention(q, k, v, start, mask, causal, scale):
    """Sequence in dimension 1, heads in 2. With a mask all keys count, else those before `start` + S."""
    q, k, v = (t.double().transpose(1, 2) for t in (q, k, v))
    length = q.shape[2]
    if mask is None:
        k, v = k[:, :, : start + length], v[:, :, : start + length]
    k, v = (t.repeat_interleave(q.shape[1] // t.shape[1], 1) for t in (k, v))
    scores = q @ k.transpose(-1, -2) * (1 / math.sqrt(q.shape[-1]) if scale is None else scale)
    if causal:
        scores = scores.masked_fill(torch.ones(length, k.shape[2], dtype=torch.bool).triu(start + 1), -math.inf)
    if mask is not None:
        scores = scores + mask.double()
    return (scores.softmax(-1) @ v).transpose(1, 2).contiguous()


def attentions(cases):
    op = f"{L}custom_sdpa.out"
    v = Values(op)
    shapes = ((1, 1, 2, 2, 4, 0, 5), (1, 3, 4, 2, 8, 2, 10), (2, 4, 2, 1, 4, 0, 4), (1, 1, 4, 4, 16, 7, 9), (1, 5, 3, 3, 6, 0, 8), (2, 2, 6, 2, 4, 3, 6), (1, 17, 2, 2, 4, 1, 20))
    for dtype, (b, s, h, kv, d, start, length) in itertools.product((F32, F16, BF16), shapes):
        q, k, x = v.tensor((b, s, h, d), dtype), v.tensor((b, length, kv, d), dtype), v.tensor((b, length, kv, d), dtype)
        mask = v.tensor((s, length), F32, -2, 2)
        blocked = torch.where(v.tensor((s, length), torch.bool) | (torch.arange(length) == 0), 0.0, -math.inf)
        for m, causal, scale in ((None, True, None), (None, False, None), (mask, False, None), (blocked, False, 0.3), (None, True, 0.7)):

            def expect(bound):
                full = attention(bound["query"], bound["key"], bound["value"], bound["start_pos"], bound["attn_mask"], bound["is_causal"], bound["scale"])
                if bound["query"].dtype == F32:
                    agree(op, full.float(), torch.ops.llama.custom_sdpa(**bound))
                return full.to(bound["query"].dtype)

            cases.call(op, q, k, x, start, m, 0.0, causal, scale, _expect=expect, _name="mask" if m is not None else "causal" if causal else "full")
            if m is not None and m is not mask:
                continue

            def cached(bound):
                end = bound["start_pos"] + bound["seq_len"]
                bound["key_cache"][:, bound["start_pos"] : end] = bound["key"]
                bound["value_cache"][:, bound["start_pos"] : end] = bound["value"]
                return attention(bound["query"], bound["key_cache"], bound["value_cache"], bound["start_pos"], bound["attn_mask"], bound["is_causal"], bound["scale"]).to(bound["query"].dtype)

            new = v.tensor((b, s, kv, d), dtype), v.tensor((b, s, kv, d), dtype)
            cases.call(f"{L}sdpa_with_kv_cache.out", q, *new, k, x, start, s, m, 0.0, causal, scale, _expect=cached, _name="mask" if m is not None else "causal" if causal else "full")


def quantized_attentions(cases):
    op = f"{L}custom_quantized_sdpa.out"
    v = Values(op)
    shapes = ((1, 1, 2, 2, 4, 0, 5), (1, 3, 4, 2, 8, 2, 10), (2, 4, 2, 1, 4, 0, 4), (1, 1, 4, 4, 16, 7, 9), (2, 2, 6, 2, 4, 3, 6))
    for (b, s, h, kv, d, start, length), at_dim_2, causal in itertools.product(shapes, (False, True), (True, False)):
        q, k, x = (v.tensor(t, I8, -100, 100) for t in ((b, s, h, d), (b, length, kv, d), (b, length, kv, d)))
        scales = [v.tensor((*t.shape[:3], 1), F32, 0.01, 0.05) for t in (q, k, x)]
        zeros = [v.tensor((*t.shape[:3], 1), I8, -9, 9) for t in (q, k, x)]
        q, k, x, *params = [t.transpose(1, 2).contiguous() if at_dim_2 else t for t in (q, k, x, *[p for pair in zip(zeros, scales) for p in pair])]
        for mask in (None, v.tensor((s, length), F32, -2, 2)):
            if mask is not None and causal:
                continue

            def expect(bound):
                parts = [
                    (bound[n].double() - bound[f"{p}_zero_points"].double()) * bound[f"{p}_scales"].double()
                    for n, p in (("query", "q"), ("key", "k"), ("value", "v"))
                ]
                if at_dim_2:
                    parts = [t.transpose(1, 2) for t in parts]
                out = attention(*parts, bound["start_pos"], bound["attn_mask"], bound["is_causal"], bound["scale"]).float()
                out = out.transpose(1, 2).contiguous() if at_dim_2 else out
                agree(op, out, torch.ops.llama.custom_quantized_sdpa(**bound))
                return out

            cases.call(op, q, k, x, start, mask, 0.0, causal, None, *params, at_dim_2, _expect=expect, _name="seq-2" if at_dim_2 else "seq-1")


def caches(cases):
    v = Values("cache")
    for dtype, (b, s, h, d, start, length) in itertools.product((F32, F16, BF16, I8, U8, I64), ((1, 1, 2, 3, 0, 4), (2, 2, 1, 4, 2, 5), (1, 3, 2, 1, 0, 3), (2, 1, 2, 2, 6, 7))):

        def update(bound):
            bound["cache"][:, bound["start_pos"] : bound["start_pos"] + bound["value"].shape[1]] = bound["value"]
            return torch.zeros(1, dtype=bound["value"].dtype)

        def scatter(bound):
            for batch, row in enumerate(bound["indices"].tolist()):
                for position, target in enumerate(row):
                    bound["cache"][batch, target] = bound["value"][batch, position]
            return torch.zeros(1, dtype=bound["value"].dtype)

        value, cache = v.tensor((b, s, h, d), dtype), v.tensor((b, length, h, d), dtype)
        # The output is a placeholder that the operators leave alone.
        cases.call(f"{L}update_cache.out", value, cache, start, _expect=update, _unspecified=[0], _name="slice")
        indices = torch.stack([v.permutation(length)[:s] for _ in range(b)])
        cases.call(f"{L}update_cache_with_indices.out", value, cache, 0, indices, _expect=scatter, _unspecified=[0], _name="scatter")


def hadamard(cases):
    op = f"{L}fast_hadamard_transform.out"
    v = Values(op)
    for shape in ((1,), (2,), (8,), (3, 4), (2, 16), (1, 2, 32), (2, 64), (128,), (256,), (28,), (56,), (2, 112), (1, 2, 3, 4), (1, 28)):
        for dtype in (F32, F16, BF16):
            # The transform is linear: what the wheel makes of the identity is its matrix, of +-1 / sqrt(part). Rows
            # of 28 parts are multiplied by a Hadamard matrix of order 28 as it is.
            n = shape[-1]
            matrix = torch.ops.llama.fast_hadamard_transform(torch.eye(n)).sign().double() / math.sqrt(n // 28 if n % 28 == 0 else n)
            expect = lambda b: (b["mat"].double() @ matrix).to(b["mat"].dtype)  # noqa: B023, E731
            cases.call(op, v.tensor(shape, dtype), _expect=expect, _name=f"n{n}")


def delta_rule(q, k, v, decay, beta, state):
    """The gated delta rule token by token, in double precision."""
    q, k, v, decay, beta, state = (t.double() for t in (q, k, v, decay, beta, state))
    group = q.shape[1] // k.shape[1]
    decay = decay.unsqueeze(-1).expand_as(k) if decay.dim() == 3 else decay
    out = torch.zeros(*q.shape[:3], v.shape[3], dtype=F64)
    for t in range(q.shape[2]):
        state = state * decay[:, :, t].unsqueeze(-1)
        predicted = torch.einsum("bhkv,bhk->bhv", state, k[:, :, t])
        change = (v[:, :, t] - predicted) * beta[:, :, t].unsqueeze(-1)
        state = state + torch.einsum("bhk,bhv->bhkv", k[:, :, t], change)
        out[:, :, t] = torch.einsum("bhkv,bhk->bhv", state.repeat_interleave(group, 1), q[:, :, t])
    return out.float(), state.float()


def delta_rules(cases):
    v = Values("delta")
    shapes = ((1, 1, 1, 1, 3, 4), (2, 2, 2, 1, 4, 3), (1, 4, 2, 3, 5, 4), (1, 2, 2, 5, 4, 4), (2, 3, 3, 4, 5, 6), (1, 2, 1, 35, 3, 3), (1, 1, 1, 70, 4, 2))
    for (b, h, hk, t, dk, dv), scalar in itertools.product(shapes, (False, True)):
        q, k, x = v.tensor((b, h, t, dk), F32, -1, 1), v.tensor((b, hk, t, dk), F32, -0.6, 0.6), v.tensor((b, hk, t, dv), F32, -1, 1)
        decay = v.tensor((b, hk, t) if scalar else (b, hk, t, dk), F32, 0.3, 0.99)
        beta, state = v.tensor((b, hk, t), F32, 0.1, 0.9), v.tensor((b, hk, dk, dv), F32, -1, 1)

        def expect(bound):
            results = delta_rule(*bound.values())
            for expected, actual in zip(results, torch.ops.llama.gated_delta_rule(**bound)):
                agree("gated_delta_rule", expected, actual)
            return results

        for name in ("gated_delta_rule", "channelwise_gated_delta_rule"):
            cases.call(f"{L}{name}.out", q, k, x, decay, beta, state, _expect=expect, _name=f"tokens{t}")


def experts(cases):
    op = f"{L}quantized_moe_ffn.out"
    v = Values(op)
    settings = (("sigmoid", True, 2.5), ("sigmoid", False, 1.0), ("softmax", False, 1.0), ("sigmoid", True, 0.0))
    for (tokens, dim, hidden, group, count, active), bits, (score, biased, route) in itertools.product(((3, 32, 32, 32, 3, 2), (1, 16, 32, 16, 3, 1), (2, 32, 16, 16, 2, 2)), (4, 8), settings):
        top = 8 if bits == 4 else 127
        w13 = [v.tensor((2 * hidden, dim), I8, -top + 1, top - 1) for _ in range(count)]
        w2 = [v.tensor((dim, hidden), I8, -top + 1, top - 1) for _ in range(count)]
        s13 = [v.tensor((2 * hidden, dim // group), F32, 0.01, 0.05) / (top / 8) for _ in range(count)]
        s2 = [v.tensor((dim, hidden // group), F32, 0.01, 0.05) / (top / 8) for _ in range(count)]
        x, gate = v.tensor((tokens, dim), F32, -2, 2), v.tensor((count, dim), F32, -1, 1)
        bias = v.tensor((count,), F32, -1, 1) if biased else torch.empty(0)

        def weight(q, s):
            return q.double() * s.double().repeat_interleave(group, 1)

        def expect(bound):
            scores = bound["x"].double() @ bound["gate_weight"].double().t()
            if score == "sigmoid":
                s = scores.sigmoid()
                index = (s + bound["expert_bias"].double() if biased else s).topk(active, -1).indices
                gates = s.gather(-1, index)
                gates = gates * route / gates.sum(-1, keepdim=True)
            else:
                values, index = scores.topk(active, -1)
                gates = values.softmax(-1)
            out = torch.zeros(tokens, dim, dtype=F64)
            for t, slot in itertools.product(range(tokens), range(active)):
                e = int(index[t, slot])
                h = weight(w13[e], s13[e]) @ bound["x"][t].double()
                h = torch.nn.functional.silu(h[:hidden]) * h[hidden:]
                out[t] += gates[t, slot] * (weight(w2[e], s2[e]) @ h)
            agree(op, out.float(), torch.ops.llama.quantized_moe_ffn(**bound))
            return out.float()

        packed = [torch.stack([pack(q, s, group, bits) for q, s in zip(*p)]) for p in ((w13, s13), (w2, s2))]
        cases.call(op, x, gate, bias, *packed, active, count, hidden, dim, group, bits, score, route, _expect=expect, _name=f"{score}-{bits}bit")


def others(cases):
    v = Values("others")
    for dtype in EVERY:
        cases.call(f"{L}fallback.out", v.tensor((2, 3), dtype), _name="identity")
    for shape in ((), (0,), (2, 1, 3), (2, 3, 2, 2)):
        cases.call(f"{L}fallback.out", v.tensor(shape), _name="identity")

    def tiles(bound):
        t, (c, height, width) = bound["tile_size"], bound["input"].shape
        return bound["input"].reshape(c, height // t, t, width // t, t).permute(1, 3, 0, 2, 4).reshape(-1, c, t, t)

    for dtype, (shape, size) in itertools.product((F32, U8, F16, I64), (((3, 4, 4), 2), ((1, 2, 6), 2), ((3, 4, 8), 4), ((2, 3, 3), 3), ((1, 3, 6), 3))):
        cases.call("preprocess::tile_crop.out", v.tensor(shape, dtype), size, _expect=tiles, _name=f"tile{size}")


def generate(cases):
    attentions(cases)
    quantized_attentions(cases)
    caches(cases)
    hadamard(cases)
    delta_rules(cases)
    experts(cases)
    others(cases)
