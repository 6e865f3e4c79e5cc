//! Steps with their lookup tables, which are computed once, when a program is loaded.

use rushlight_cpu_payload::{self as payload, Int8Epilogue, MatmulKind, TensorId};
use rushlight_engine::{self as engine, Data, Instruction, QuantOut, SoftmaxTable, Source};

use rushlight_runtime::{Code, Detail, Error, Result};

use crate::memory::affine;
use crate::shapes::Shapes;

/// A step that is ready to run.
pub(crate) enum PreparedStep {
    Elementwise(Elementwise),
    Softmax(QuantizedSoftmax),
    Other(Box<payload::Step>),
}

impl PreparedStep {
    /// Checks that the number of operations of the step is bounded by the elements of its tensors at their present sizes.
    pub fn check_work(&self, shapes: &Shapes) -> Result<()> {
        match self {
            Self::Elementwise(_) | Self::Softmax(_) => Ok(()),
            Self::Other(step) => {
                let work = step.work(shapes);
                if work.is_bounded() {
                    return Ok(());
                }
                let [operations, limit] = work.saturated();
                Err(Error::new(Code::DelegateInvalidCompatibility, Detail::Work { operations, limit }))
            }
        }
    }

    /// The step as a product by constant weights, if it is one whose rows may be those of several calls.
    pub fn shared_product(&self) -> Option<&payload::Matmul> {
        let Self::Other(step) = self else { return None };
        let payload::Step::Matmul(step) = &**step else { return None };
        let is_shared = match step.kind {
            MatmulKind::Packed { .. } | MatmulKind::WeightOnly { .. } | MatmulKind::Groupwise { .. } => true,
            MatmulKind::Int8 { epilogue } => matches!(epilogue, Int8Epilogue::Dynamic { .. }),
            MatmulKind::Dense { .. } => false,
        };
        is_shared.then_some(step)
    }

    /// Copies the tensors of the step to allocations of their own.
    #[cfg(feature = "isolate")]
    pub fn isolate(&self, cx: &mut crate::memory::StepContext<'_, '_, '_, '_>) {
        let mut inputs = Vec::new();
        self.for_each_input(&mut |tensor| inputs.push(tensor));
        cx.isolated = crate::isolated::Isolated::of(cx, &inputs, self.output());
    }

    /// Calls `f` for each tensor that the step reads.
    pub fn for_each_input(&self, f: &mut dyn FnMut(TensorId)) {
        match self {
            Self::Elementwise(step) => step.operands.iter().for_each(|&operand| f(operand)),
            Self::Softmax(step) => f(step.x),
            Self::Other(step) => step.for_each_input(f),
        }
    }

    /// The tensor that the step writes.
    pub fn output(&self) -> TensorId {
        match self {
            Self::Elementwise(step) => step.y,
            Self::Softmax(step) => step.y,
            Self::Other(step) => step.output(),
        }
    }

    /// Makes the step ready to run, with its lookup table if it has one.
    pub fn new(step: &payload::Step, program: &payload::CpuProgram) -> Self {
        let affine_of = |id: u32| program.tensors.get(id as usize)?.affine.map(affine);
        match step {
            payload::Step::Softmax { x, y, log: false } if let Some(from) = affine_of(*x) => {
                Self::Softmax(QuantizedSoftmax { x: *x, y: *y, table: SoftmaxTable::new(from) })
            }
            payload::Step::Elementwise(step) => {
                let payload::Elementwise { operands, y, instructions } = step.clone();
                let table = lookup_table(step, program);
                Self::Elementwise(Elementwise { operands, y, instructions, table })
            }
            other => Self::Other(Box::new(other.clone())),
        }
    }
}

/// Computes the result of an elementwise step for each value of a byte; `None` unless its only operand and its result are
/// quantized. Portable code computes it, so that functions with exponentials give the same bytes on all machines.
fn lookup_table(step: &payload::Elementwise, program: &payload::CpuProgram) -> Option<Box<[u8; 256]>> {
    let affine_of = |id: u32| program.tensors.get(id as usize)?.affine.map(affine);
    let [x] = step.operands.as_slice() else { return None };
    let (from, to) = (affine_of(*x)?, affine_of(step.y)?);
    let bytes: [u8; 256] = core::array::from_fn(|byte| byte as u8);
    let mut strides = [0; engine::MAX_DIMS];
    *strides.first_mut()? = 1;
    let source = Source { data: Data::Bytes(&bytes, from), strides };
    let mut table = Box::new([0; 256]);
    let y = QuantOut::Bytes(&mut *table, to);
    engine::elementwise_portable(&step.instructions, &[256], &[source], y).ok()?;
    Some(table)
}

/// An elementwise step, ready to run.
pub(crate) struct Elementwise {
    pub operands: Vec<TensorId>,
    pub y: TensorId,
    pub instructions: Vec<Instruction>,
    /// The result for each byte, if the step has one operand and both are quantized alike.
    pub table: Option<Box<[u8; 256]>>,
}

/// Softmax of u8 to u8.
pub(crate) struct QuantizedSoftmax {
    pub x: TensorId,
    pub y: TensorId,
    pub table: SoftmaxTable,
}
