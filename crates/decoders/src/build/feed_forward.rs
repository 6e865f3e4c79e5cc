//! Feed-forward networks with a gate.

use rushlight_checkpoint::damaged;
use rushlight_graph::operators::aten;
use rushlight_graph::{Error, ValueId};

use super::Build;
use crate::decoder::Activation;
use crate::family::Joined;

impl Build<'_> {
    /// Adds the feed-forward network on `[1, T, hidden]`.
    pub(super) fn feed_forward(&mut self, y: ValueId, prefix: &str) -> Result<ValueId, Error> {
        let (names, hidden) = (self.decoder.names, self.decoder.hidden);
        let [gate, up] = match names.gate_up {
            Joined::Apart(apart) => {
                let mut each = |name: &str| self.linear(y, &format!("{prefix}{name}"), hidden, None);
                [each(apart[0])?, each(apart[1])?]
            }
            Joined::One(name) => {
                let both = self.linear(y, &format!("{prefix}{name}"), hidden, None)?;
                let width = self.width(both)?;
                if !width.is_multiple_of(2) {
                    return Err(damaged(format!("`{prefix}{name}` has an odd number of rows")).got(width));
                }
                self.split(both, [width / 2; 2])?
            }
        };
        let width = self.width(gate)?;
        check_width("intermediate_size", self.decoder.feed_forward, width)?;
        let gated = self.gated(gate, up)?;
        self.linear(gated, &format!("{prefix}{}", names.down), width, Some(hidden))
    }

    /// Multiplies `up` by the activation of the gate.
    pub(super) fn gated(&mut self, gate: ValueId, up: ValueId) -> Result<ValueId, Error> {
        let gate = match self.decoder.activation {
            Activation::Silu => self.call("", aten::SILU, vec![gate.into()])?,
            Activation::GeluTanh => self.call("", aten::GELU, vec![gate.into(), "tanh".into()])?,
            Activation::Gelu => self.call("", aten::GELU, vec![gate.into()])?,
        };
        self.call("", aten::MUL_TENSOR, vec![gate.into(), up.into()])
    }
}

/// Refuses weights whose width differs from the configuration.
pub(super) fn check_width(key: &str, expected: Option<usize>, width: usize) -> Result<(), Error> {
    match expected.filter(|expected| *expected != width) {
        None => Ok(()),
        Some(expected) => Err(damaged(format!("the weights do not have `{key}` of the configuration"))
            .expected(format!("{expected} columns"))
            .got(width)),
    }
}
