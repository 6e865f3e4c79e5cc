"""torchao's universal packing of group-quantized weights, which `llama::quantized_moe_ffn` reads.

A 64-byte header, then for each 8 output rows, for each group along the inputs: the values in tiles of 8 x 16, with
the two halves of the 16 columns stored one after the other over the 8 rows; the scales; the sums of the values.
Rows beyond the last are zeros.
"""

import struct

import torch

MAGIC = 6712
UNIVERSAL = 1
ROWS, COLUMNS, HALVES = 8, 16, 2


def nibbles(values):
    """4-bit values, offset by 8, two to a byte: in each 32 the first 16 are the low halves."""
    out = bytearray()
    for start in range(0, len(values), 32):
        for i in range(16):
            out.append((values[start + i] + 8) & 15 | ((values[start + 16 + i] + 8) & 15) << 4)
    return bytes(out)


def pack(weights, scales, group, bits):
    """int8 weights [N, K] and float32 scales [N, K / group] as one tensor of bytes."""
    n, k = weights.shape
    header = [bits, 0, 0, ROWS, COLUMNS, HALVES] + [0] * 8
    out = bytearray(struct.pack("<16i", MAGIC, UNIVERSAL, *header))
    for row in range(0, n, ROWS):
        rows = [weights[row + j].tolist() if row + j < n else [0] * k for j in range(ROWS)]
        for index in range(k // group):
            for column in range(index * group, (index + 1) * group, COLUMNS):
                half = COLUMNS // HALVES
                tile = [x for part in range(HALVES) for r in rows for x in r[column + part * half : column + (part + 1) * half]]
                out += nibbles(tile) if bits == 4 else struct.pack(f"<{len(tile)}b", *tile)
            out += struct.pack("<8f", *[scales[row + j, index].item() if row + j < n else 0.0 for j in range(ROWS)])
            out += struct.pack("<8i", *[sum(r[index * group : (index + 1) * group]) for r in rows])
    return torch.frombuffer(out, dtype=torch.uint8).clone()
