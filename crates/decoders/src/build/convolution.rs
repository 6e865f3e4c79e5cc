//! Causal convolutions over positions, and the short convolutions that LFM2 has in place of attention.

use rushlight_format::ScalarType;

use rushlight_graph::operators::aten;
use rushlight_graph::{Error, Expr, Target, TensorType, Update, ValueId};

use super::Build;

impl Build<'_> {
    /// Adds LFM2's operator in place of attention: `C * conv(B * x)`. The projection gives `B`, `C` and `x`, and the
    /// convolution is causal.
    pub(super) fn short_convolution(
        &mut self,
        x: ValueId,
        index: usize,
        prefix: &str,
        taps: usize,
    ) -> Result<ValueId, Error> {
        let (names, hidden) = (self.decoder.names.conv, self.decoder.hidden);
        let parts = self.linear(x, &format!("{prefix}{}", names.input), hidden, Some(3 * hidden))?;
        let [b, c, x] = self.split(parts, [hidden; 3])?;
        let gated = self.call("", aten::MUL_TENSOR, vec![b.into(), x.into()])?;
        let mixed = self.causal_convolution(gated, index, &format!("{prefix}{}", names.conv), [hidden, taps])?;
        let mixed = self.permute(mixed, [0, 2, 1])?;
        let mixed = self.call("", aten::MUL_TENSOR, vec![c.into(), mixed.into()])?;
        self.linear(mixed, &format!("{prefix}{}", names.output), hidden, Some(hidden))
    }

    /// Adds a causal depthwise convolution of `[1, T, channels]` over positions; the result is `[1, channels, T]`. The
    /// state holds the inputs of earlier calls that the filter sees.
    pub(super) fn causal_convolution(
        &mut self,
        x: ValueId,
        index: usize,
        filter: &str,
        [channels, taps]: [usize; 2],
    ) -> Result<ValueId, Error> {
        let (width, kept) = (channels as i64, taps as i64 - 1);
        let x = self.permute(x, [0, 2, 1])?;
        let weight = self.weight(&format!("{filter}.weight"), &[channels, 1, taps])?;
        let bias = self.optional_bias(filter, channels)?;
        let mut seen = x;
        if kept > 0 {
            let (state, before) =
                self.state(&format!("layers.{index}.conv_state"), TensorType::of(ScalarType::Float, &[1, width, kept]));
            seen = self.call("", aten::CAT, vec![vec![before, x].into(), 2.into()])?;
            let length = Expr::Symbol(self.length);
            let (from, to) = (length.clone(), length.add(kept));
            let after = self.call("", aten::SLICE_COPY_TENSOR, vec![seen.into(), 2.into(), from.into(), to.into()])?;
            self.graph.updates.push(Update { target: Target::State(state), value: after });
        }
        let args = vec![
            seen.into(),
            weight.into(),
            bias,
            [1].into(),
            [0].into(),
            [1].into(),
            false.into(),
            [0].into(),
            width.into(),
        ];
        self.call(filter, aten::CONVOLUTION, args)
    }
}
