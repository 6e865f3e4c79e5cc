//! Values of steps that are computed once, when a program is loaded.

use rushlight_cpu_payload as payload;
use rushlight_engine::{self as engine, Data, Engine, Isa, QuantOut, SoftmaxTable, Source};

use rushlight_runtime::{Code, Detail, Error, Result};

use crate::memory::affine;
use crate::shapes::Shapes;
use crate::steps::{ByteSoftmax, Elementwise};

/// A step that is ready to run.
pub(crate) enum Prepared {
    Elementwise(Elementwise),
    Softmax(ByteSoftmax),
    Other(Box<payload::Step>),
}

impl Prepared {
    /// Checks that the operations of the step are in proportion to the present elements of its tensors.
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

    /// Gives the step copies of its tensors.
    #[cfg(feature = "isolate")]
    pub fn isolate(&self, site: &mut crate::memory::Site<'_, '_, '_, '_>) {
        let mut reads = Vec::new();
        let written = match self {
            Self::Elementwise(step) => {
                reads.extend_from_slice(&step.operands);
                step.y
            }
            Self::Softmax(step) => {
                reads.push(step.x);
                step.y
            }
            Self::Other(step) => {
                step.for_each_input(&mut |tensor| reads.push(tensor));
                step.output()
            }
        };
        site.isolated = crate::isolated::Isolated::of(site, &reads, written);
    }

    pub fn new(step: &payload::Step, program: &payload::CpuProgram) -> Self {
        let affine_of = |id: u32| program.tensors.get(id as usize)?.affine.map(affine);
        match step {
            payload::Step::Softmax { x, y, log: false } if let Some(from) = affine_of(*x) => {
                Self::Softmax(ByteSoftmax { x: *x, y: *y, table: SoftmaxTable::new(from) })
            }
            payload::Step::Elementwise(step) => {
                let payload::Elementwise { operands, y, instructions } = step.clone();
                let table = table(step, program);
                Self::Elementwise(Elementwise { operands, y, instructions, table })
            }
            other => Self::Other(Box::new(other.clone())),
        }
    }
}

/// Computes the result of an elementwise step for each byte, if it has one operand and both are quantized. Portable code
/// does, so that functions with exponentials give the same on all machines.
fn table(step: &payload::Elementwise, program: &payload::CpuProgram) -> Option<Box<[u8; 256]>> {
    let affine_of = |id: u32| program.tensors.get(id as usize)?.affine.map(affine);
    let [x] = step.operands.as_slice() else { return None };
    let (from, to) = (affine_of(*x)?, affine_of(step.y)?);
    let engine = Engine::with_isa(Isa::Scalar, 1).ok()?;
    let bytes: [u8; 256] = core::array::from_fn(|byte| byte as u8);
    let mut strides = [0; engine::MAX_DIMS];
    *strides.first_mut()? = 1;
    let source = Source { data: Data::Bytes(&bytes, from), strides };
    let mut table = Box::new([0; 256]);
    engine::elementwise(&engine, &step.instructions, &[256], &[source], QuantOut::Bytes(&mut *table, to)).ok()?;
    Some(table)
}
