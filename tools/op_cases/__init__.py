"""Operator test cases for Rushlight, with expected values from PyTorch eager.

`python -m op_cases [family ...]` (run in `tools/`) rewrites `crates/testing/cases/*.jsonl.gz` and
`manifest.json`. The output is deterministic: the same packages give the same bytes.
"""
