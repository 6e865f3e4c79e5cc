//! The gated delta rule, a linear attention with a decaying state (Yang, Kautz and Hatamizadeh, "Gated Delta
//! Networks", 2024).

use rushlight_runtime::{Detail, Error, KernelContext, Op, Result, Tensor};

/// `llama::gated_delta_rule.out(Tensor query, Tensor key, Tensor value, Tensor decay, Tensor beta,
/// Tensor initial_state, *, Tensor(a!) out, Tensor(b!) final_state_out) -> (Tensor(a!), Tensor(b!))`
///
/// f32. `query [B, H, T, K]`, `key [B, G, T, K]`, `value [B, G, T, V]` with H a multiple of G, `beta [B, G, T]`,
/// `decay [B, G, T]` or `[B, G, T, K]`, state `[B, G, K, V]`. For each token, with the state S as K rows:
/// `S = decay * S; S += key (x) (value - key^T S) * beta; out = query^T S`.
pub const GATED_DELTA_RULE_OUT: Op = Op::new("llama::gated_delta_rule.out", 8, gated_delta_rule).outs(2);

/// The old name of [`GATED_DELTA_RULE_OUT`].
pub const CHANNELWISE_GATED_DELTA_RULE_OUT: Op =
    Op::new("llama::channelwise_gated_delta_rule.out", 8, gated_delta_rule).outs(2);

pub const OPS: &[Op] = &[GATED_DELTA_RULE_OUT, CHANNELWISE_GATED_DELTA_RULE_OUT];

/// Columns of the state that are updated together: each is independent of the others.
const COLUMNS: usize = 64;

fn gated_delta_rule(cx: &KernelContext<'_>) -> Result<()> {
    let (query, key, value) = (cx.tensor(0)?, cx.tensor(1)?, cx.tensor(2)?);
    let (decay, beta, initial_state) = (cx.tensor(3)?, cx.tensor(4)?, cx.tensor(5)?);
    let (&[batches, heads, tokens, rows], &[_, groups, _, _], &[_, _, _, columns]) =
        (query.sizes(), key.sizes(), value.sizes())
    else {
        let got = [&query, &key, &value].map(Tensor::rank);
        let index = got.iter().position(|&rank| rank != 4).unwrap_or(0);
        return Err(Error::from(Detail::Rank { expected: "4", got: got[index] }).arg(index));
    };
    if groups == 0 || !heads.is_multiple_of(groups) {
        let (what, expected) = ("query heads", "a multiple of the key heads");
        return Err(Error::from(Detail::Value { what, expected, got: heads as i64 }).arg(0));
    }
    let scalar_decay = decay.rank() == 3;
    let decay_rank = if scalar_decay { 3 } else { 4 };
    let expected: [(&Tensor<'_>, &[usize]); 6] = [
        (&query, &[batches, heads, tokens, rows]),
        (&key, &[batches, groups, tokens, rows]),
        (&value, &[batches, groups, tokens, columns]),
        (&decay, &[batches, groups, tokens, rows][..decay_rank]),
        (&beta, &[batches, groups, tokens]),
        (&initial_state, &[batches, groups, rows, columns]),
    ];
    for (index, (tensor, sizes)) in expected.into_iter().enumerate() {
        check_sizes(tensor, sizes).map_err(|e| e.arg(index))?;
    }
    let (mut out, mut final_state) = (cx.out(6)?, cx.out(7)?);
    out.resize(&[batches, heads, tokens, columns]).map_err(|e| e.arg(6))?;
    final_state.resize(initial_state.sizes()).map_err(|e| e.arg(7))?;
    for (contiguous, index) in [(out.is_contiguous(), 6), (final_state.is_contiguous(), 7)] {
        if !contiguous {
            return Err(Error::invalid("the tensor must be contiguous").arg(index));
        }
    }
    let (query, key, value) = (query.as_slice::<f32>()?, key.as_slice::<f32>()?, value.as_slice::<f32>()?);
    let (decay, beta) = (decay.as_slice::<f32>()?, beta.as_slice::<f32>()?);
    let out = out.as_mut_slice::<f32>().map_err(|e| e.arg(6))?;
    let state = final_state.as_mut_slice::<f32>().map_err(|e| e.arg(7))?;
    state.copy_from_slice(initial_state.as_slice::<f32>()?);
    if out.is_empty() || state.is_empty() {
        out.fill(0.0);
        return Ok(());
    }
    let decays = if scalar_decay { 1 } else { rows };
    let heads_per_group = heads / groups;
    for (index, state) in state.chunks_exact_mut(rows * columns).enumerate() {
        let head = Head {
            query: &query[index * heads_per_group * tokens * rows..][..heads_per_group * tokens * rows],
            key: &key[index * tokens * rows..][..tokens * rows],
            value: &value[index * tokens * columns..][..tokens * columns],
            decay: &decay[index * tokens * decays..][..tokens * decays],
            beta: &beta[index * tokens..][..tokens],
            rows,
            columns,
        };
        let length = heads_per_group * tokens * columns;
        head.run(state, &mut out[index * length..][..length]);
    }
    Ok(())
}

fn check_sizes(tensor: &Tensor<'_>, expected: &[usize]) -> Result<()> {
    tensor.as_slice::<f32>()?;
    if tensor.rank() != expected.len() {
        let expected = if expected.len() == 3 { "3" } else { "4" };
        return Err(Detail::Rank { expected, got: tensor.rank() }.into());
    }
    let sizes = tensor.sizes().iter().zip(expected).enumerate();
    if let Some((dim, (&got, &expected))) = sizes.into_iter().find(|(_, (got, expected))| got != expected) {
        return Err(Detail::Size { dim, expected, got }.into());
    }
    if tensor.is_contiguous() { Ok(()) } else { Err(Error::invalid("the tensor must be contiguous")) }
}

/// The operands of one key head and its query heads.
struct Head<'a> {
    query: &'a [f32],
    key: &'a [f32],
    value: &'a [f32],
    /// One value a token, or one a row of the state and token.
    decay: &'a [f32],
    beta: &'a [f32],
    rows: usize,
    columns: usize,
}

impl Head<'_> {
    fn run(&self, state: &mut [f32], out: &mut [f32]) {
        let tokens = self.beta.len();
        let decays = self.decay.len() / tokens;
        for first in (0..self.columns).step_by(COLUMNS) {
            let columns = first..self.columns.min(first + COLUMNS);
            for (token, &beta) in self.beta.iter().enumerate() {
                let key = &self.key[token * self.rows..][..self.rows];
                let decay = self.decay[token * decays..][..decays].iter().cycle();
                let value = &self.value[token * self.columns..][columns.clone()];

                let mut predicted = [0.0f32; COLUMNS];
                for ((row, &k), &d) in state.chunks_exact(self.columns).zip(key).zip(decay.clone()) {
                    add_scaled(&mut predicted, &row[columns.clone()], d * k);
                }
                let mut delta = [0.0f32; COLUMNS];
                for ((delta, &v), &p) in delta.iter_mut().zip(value).zip(&predicted) {
                    *delta = (v - p) * beta;
                }
                for ((row, &k), &d) in state.chunks_exact_mut(self.columns).zip(key).zip(decay) {
                    for (s, &delta) in row[columns.clone()].iter_mut().zip(&delta) {
                        *s = *s * d + k * delta;
                    }
                }
                let queries = self.query.chunks_exact(tokens * self.rows);
                for (query, out) in queries.zip(out.chunks_exact_mut(tokens * self.columns)) {
                    let mut sums = [0.0f32; COLUMNS];
                    let query = &query[token * self.rows..][..self.rows];
                    for (row, &q) in state.chunks_exact(self.columns).zip(query) {
                        add_scaled(&mut sums, &row[columns.clone()], q);
                    }
                    out[token * self.columns..][columns.clone()].copy_from_slice(&sums[..columns.len()]);
                }
            }
        }
    }
}

fn add_scaled(sums: &mut [f32; COLUMNS], row: &[f32], factor: f32) {
    for (sum, &x) in sums.iter_mut().zip(row) {
        *sum += x * factor;
    }
}
