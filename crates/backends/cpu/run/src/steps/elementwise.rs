//! Elementwise computations of several operands.

use rushlight_cpu_payload::{CpuProgram, Elementwise, MAX_OPERANDS};
use rushlight_engine::{Data, Engine, MAX_DIMS, QuantOut, Source};
use rushlight_runtime::Result;

use super::RunStep;
use crate::bf16_choice::Choice;
use crate::error::Unfit;
use crate::memory::{StepContext, affine_of, done};
use crate::table::Table;

/// Maximum number of operands of most elementwise steps. Clearing room for [`MAX_OPERANDS`] takes longer than running a
/// small step.
const FEW_OPERANDS: usize = 3;

impl RunStep for Elementwise {
    fn run(&self, engine: &Engine, cx: &mut StepContext<'_, '_, '_, '_>) -> Result<()> {
        if self.operands.len() <= FEW_OPERANDS {
            run_with::<FEW_OPERANDS>(self, engine, cx)
        } else {
            run_with::<MAX_OPERANDS>(self, engine, cx)
        }
    }

    /// Computes the result for each value of a byte, unless the only operand and the result are not quantized. Portable code
    /// computes it, so that functions with exponentials give the same bytes on all machines.
    fn table(&self, program: &CpuProgram) -> Option<Table> {
        let [x] = self.operands.as_slice() else { return None };
        let (from, to) = (affine_of(program, *x)?, affine_of(program, self.y)?);
        let bytes: [u8; 256] = core::array::from_fn(|byte| byte as u8);
        let mut strides = [0; MAX_DIMS];
        *strides.first_mut()? = 1;
        let source = Source { data: Data::Bytes(&bytes, from), strides };
        let mut table = Box::new([0; 256]);
        let y = QuantOut::Bytes(&mut *table, to);
        rushlight_engine::elementwise_portable(&self.instructions, &[256], &[source], y).ok()?;
        Some(Table::Bytes(table))
    }

    fn run_with_table(&self, table: &Table, engine: &Engine, cx: &mut StepContext<'_, '_, '_, '_>) -> Result<()> {
        let (Table::Bytes(table), [x]) = (table, self.operands.as_slice()) else { return self.run(engine, cx) };
        if cx.shapes.dims(*x) != cx.shapes.dims(self.y) {
            return self.run(engine, cx);
        }
        let (y, reader) = cx.split_quantized(self.y)?;
        done(rushlight_engine::lookup(engine, table, reader.quantized(*x)?, y))
    }

    fn restrict_bf16(&self, choice: &mut Choice<'_>) -> bool {
        let read = self.operands.iter().fold(false, |changed, operand| choice.read(*operand) | changed);
        read | choice.only_for_gemms(self.y)
    }
}

/// Runs the step with room for `N` operands.
fn run_with<const N: usize>(step: &Elementwise, engine: &Engine, cx: &mut StepContext<'_, '_, '_, '_>) -> Result<()> {
    let (y, reader) = cx.split_data(step.y)?;
    let dims = reader.dims(step.y);
    let mut sources = [Source { data: Data::Floats(&[]), strides: [0; MAX_DIMS] }; N];
    let count = step.operands.len();
    let sources = sources.get_mut(..count).ok_or(Unfit::Count { what: "operands", expected: N, got: count })?;
    for (operand, source) in step.operands.iter().zip(sources.iter_mut()) {
        source.data = reader.data(*operand)?;
        let own = reader.dims(*operand);
        if own.len() != dims.len() {
            return Err(Unfit::Count { what: "dimensions of an operand", expected: dims.len(), got: own.len() }.into());
        }
        let mut stride = 1;
        for (dim, (size, whole)) in own.iter().zip(dims).enumerate().rev() {
            let slot = source.strides.get_mut(dim).ok_or(Unfit::Rank { expected: "at most 16", got: dims.len() })?;
            *slot = if size == whole { stride } else { 0 };
            if size != whole && *size != 1 {
                return Err(Unfit::Size { dim, expected: *whole, got: *size }.into());
            }
            // A tensor without elements may have arbitrarily large sizes.
            stride = stride.saturating_mul(*size);
        }
    }
    done(rushlight_engine::elementwise(engine, &step.instructions, dims, sources, y))
}
