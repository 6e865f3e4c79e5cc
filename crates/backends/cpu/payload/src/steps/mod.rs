//! The list of steps. A step is a file: its structure, bytes, checks, work and cost.

mod attention;
mod choose_qparams;
mod convert;
mod convolution;
mod copy;
mod delta_rule;
mod elementwise;
mod experts;
mod gather;
mod gather_elements;
mod matmul;
mod normalization;
mod pack_nibbles;
mod pooling;
mod quantize_rows;
mod reduce;
mod resize;
mod scatter;
mod softmax;
mod top_k;
mod unpack_nibbles;

use crate::codec::union;
use crate::{StepKind, TensorId};

pub use attention::{Attention, KeyValueFormat, RowQparams};
pub use choose_qparams::ChooseQparams;
pub use convert::{Convert, ConvertedType, Direction, MAX_POSITION};
pub use convolution::{Convolution, ConvolutionKind, Window};
pub use copy::Copy;
pub use delta_rule::DeltaRule;
pub use elementwise::{Elementwise, MAX_OPERANDS, REGISTERS, Register};
pub use experts::Experts;
pub use gather::{Gather, TableFormat};
pub use gather_elements::GatherElements;
pub use matmul::{Matmul, MatmulKind};
pub use normalization::Normalization;
pub use pack_nibbles::PackNibbles;
pub use pooling::Pooling;
pub use quantize_rows::QuantizeRows;
pub use reduce::Reduce;
pub use resize::Resize;
pub use scatter::Scatter;
pub use softmax::Softmax;
pub use top_k::{MAX_TOP_K, TopK};
pub use unpack_nibbles::UnpackNibbles;

/// Version of the format of payloads. A payload of another version is refused. Other bytes of a step count it up. A step that is
/// added does not: it has a tag of its own, which an older runtime refuses, and payloads without it stay readable.
pub const VERSION: u8 = 13;

/// Declares the steps, each with the tag that its bytes begin with, and what goes from step to step.
macro_rules! steps {
    ($dollar:tt $($tag:literal $name:ident)*) => {
        /// A step: reads tensors and writes one.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Step {
            $( $name($name), )*
        }

        union! { Step { $( $tag $name(step) ),* } }

        /// Evaluates an expression for the structure of a step, whatever its kind: `match_step!(step, step => step.name())`.
        #[macro_export]
        macro_rules! match_step {
            ($dollar step:expr, $dollar inner:ident => $dollar value:expr) => {
                match $dollar step {
                    $( $crate::Step::$name($dollar inner) => $dollar value, )*
                }
            };
        }

        /// Examples of all steps, and their bytes.
        #[cfg(test)]
        pub(crate) fn examples() -> alloc::vec::Vec<(Step, &'static str)> {
            use crate::examples::Examples;
            let mut all = alloc::vec::Vec::new();
            $( all.extend($name::examples().into_iter().map(|(step, bytes)| (Step::$name(step), bytes))); )*
            all
        }
    };
}

steps! {
    $
    0 Matmul
    1 Convolution
    2 Elementwise
    3 Pooling
    4 Reduce
    5 Softmax
    6 Normalization
    7 Copy
    8 Gather
    9 Attention
    10 Resize
    11 Convert
    12 ChooseQparams
    13 QuantizeRows
    14 Scatter
    15 PackNibbles
    16 UnpackNibbles
    17 Experts
    18 TopK
    19 GatherElements
    20 DeltaRule
}

impl Step {
    /// Returns the structure of the step.
    pub fn kind(&self) -> &dyn StepKind {
        match_step!(self, step => step)
    }

    /// Returns the tensor that is written.
    pub fn output(&self) -> TensorId {
        self.kind().output()
    }

    /// Visits the tensors that are read.
    pub fn for_each_input(&self, visit: &mut dyn FnMut(TensorId)) {
        self.kind().for_each_input(visit);
    }

    /// Returns the kind of the step, for profiles.
    pub fn name(&self) -> &'static str {
        self.kind().name()
    }
}
