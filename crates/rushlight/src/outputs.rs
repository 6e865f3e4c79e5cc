//! Memory of the caller's that a call writes its outputs to.

use rushlight_runtime::{EventTracer, Input, MAX_RANK, Output, Outputs, ScalarType, States, TensorView};

use crate::error::Error;
use crate::instance::MethodInstance;
use crate::meta::{MethodMeta, TensorInfo, ValueInfo};

/// Memory of the caller's for one output of a call: its element type, its shape, and its bytes. The elements are dense, with the
/// dimensions in any order.
///
/// ```
/// # fn main() -> rushlight::Result<()> {
/// # std::env::set_current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/cortex-m")).unwrap();
/// use rushlight::{Module, OutputMut, ScalarType, TensorView};
///
/// let mut module = Module::load("digits.pte")?;
/// let image = [0.0f32; 64];
/// let inputs = [TensorView::of(&[1, 1, 8, 8], &image)?.into()];
/// let mut logits = [0u8; 40];
/// let mut outputs = [Some(OutputMut::new(ScalarType::Float, &[1, 10], &mut logits)?)];
/// module.call("forward").inputs(&inputs).run_into(&mut outputs)?;
/// assert_ne!(logits, [0; 40]);
/// # Ok(())
/// # }
/// ```
pub struct OutputMut<'a> {
    dtype: ScalarType,
    sizes: &'a [usize],
    /// The dimensions from the outermost to the innermost in memory; `None` for row-major.
    order: Option<[u8; MAX_RANK]>,
    data: &'a mut [u8],
}

impl<'a> OutputMut<'a> {
    /// Row-major memory.
    ///
    /// # Errors
    /// `InvalidArgument` if `data` is not as long as the sizes say, or the rank is above 16.
    pub fn new(dtype: ScalarType, sizes: &'a [usize], data: &'a mut [u8]) -> Result<Self, Error> {
        TensorView::new(dtype, sizes, data)?;
        Ok(Self { dtype, sizes, order: None, data })
    }

    /// Memory in which neighbours along dimension `i` are `strides[i]` elements apart.
    ///
    /// # Errors
    /// Those of [`new`](Self::new), and `InvalidArgument` if there are gaps between the elements, or if two elements are in the same
    /// place.
    pub fn strided(
        dtype: ScalarType,
        sizes: &'a [usize],
        strides: &[usize],
        data: &'a mut [u8],
    ) -> Result<Self, Error> {
        if strides.len() != sizes.len() {
            return Err(Error::invalid(format!("{} strides for a shape of rank {}", strides.len(), sizes.len())));
        }
        let Some(order) = dense_order(sizes, strides) else {
            return Err(Error::invalid("an output needs memory without gaps, in which no elements overlap")
                .expected(format!("strides of a dense tensor of shape {sizes:?}"))
                .got(format!("{strides:?}"))
                .help("give a new array of this shape, not a slice or an expanded view"));
        };
        let output = Self::new(dtype, sizes, data)?;
        let is_row_major = order.iter().take(sizes.len()).enumerate().all(|(at, &dim)| at == usize::from(dim));
        Ok(Self { order: (!is_row_major).then_some(order), ..output })
    }

    fn write(&mut self, from: &TensorView<'_>) {
        match &self.order {
            None => from.copy_to_row_major(self.data),
            Some(order) => from.copy_ordered(order.get(..self.sizes.len()).unwrap_or_default(), self.data),
        }
    }

    fn text(&self) -> String {
        format!("{} {:?}", self.dtype, self.sizes)
    }
}

impl core::fmt::Debug for OutputMut<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(&self.text())
    }
}

impl MethodInstance {
    /// As [`run_traced`](Self::run_traced), and writes the outputs to memory of the caller's. See
    /// [`Call::run_into`](crate::Call::run_into).
    ///
    /// # Errors
    /// Those of `run_traced`, and `InvalidArgument` for memory that does not fit.
    pub fn run_into(
        &mut self,
        inputs: &[Input<'_>],
        outputs: &mut [Option<OutputMut<'_>>],
        tracer: &mut (impl EventTracer + ?Sized),
    ) -> Result<(), Error> {
        self.run_into_with(None, inputs, outputs, tracer)
    }

    /// Runs the method with the states of a session, or with its own.
    pub(crate) fn run_into_with(
        &mut self,
        states: Option<&mut States>,
        inputs: &[Input<'_>],
        outputs: &mut [Option<OutputMut<'_>>],
        tracer: &mut (impl EventTracer + ?Sized),
    ) -> Result<(), Error> {
        let meta = self.meta()?;
        check(&meta, outputs)?;
        let result = self.read_with(states, inputs, tracer, |given| Ok(write(&meta, given, outputs)?));
        self.release();
        result
    }
}

/// The order of the dimensions in memory, the outermost first; `None` unless the elements are dense.
fn dense_order(sizes: &[usize], strides: &[usize]) -> Option<[u8; MAX_RANK]> {
    let mut order = [0u8; MAX_RANK];
    let dims = order.get_mut(..sizes.len())?;
    dims.iter_mut().enumerate().for_each(|(at, dim)| *dim = at as u8);
    if sizes.contains(&0) {
        return Some(order);
    }
    let of = |list: &[usize], dim: u8| list.get(usize::from(dim)).copied().unwrap_or(1);
    // Dimensions of one element may have any stride, and stay in front of those that they precede.
    let wide: Vec<u8> = dims.iter().copied().filter(|&dim| of(sizes, dim) > 1).collect();
    let mut sorted = wide.clone();
    sorted.sort_by_key(|&dim| std::cmp::Reverse(of(strides, dim)));
    let mut expected = 1usize;
    for &dim in sorted.iter().rev() {
        if of(strides, dim) != expected {
            return None;
        }
        expected = expected.checked_mul(of(sizes, dim))?;
    }
    let mut next = sorted.into_iter();
    for dim in dims.iter_mut().filter(|dim| of(sizes, **dim) > 1) {
        *dim = next.next()?;
    }
    Some(order)
}

/// Checks memory for the outputs of a method before it runs.
///
/// # Errors
/// `InvalidArgument` for another number of outputs, and for memory of another element type or shape.
fn check(meta: &MethodMeta, outputs: &[Option<OutputMut<'_>>]) -> Result<(), Error> {
    if outputs.len() != meta.outputs.len() {
        let plural = |count: usize| if count == 1 { "1 output".to_owned() } else { format!("{count} outputs") };
        let names: Vec<String> = (0..meta.outputs.len()).map(|index| meta.output_label(index)).collect();
        return Err(Error::invalid(format!("memory for another number of outputs than `{}` has", meta.name))
            .expected(format!("{}: {}", plural(meta.outputs.len()), names.join(", ")))
            .got(plural(outputs.len())));
    }
    for (index, (output, info)) in outputs.iter().zip(&meta.outputs).enumerate() {
        let Some(output) = output else { continue };
        match info {
            ValueInfo::Tensor(info) if fits(output, info) => {}
            ValueInfo::Tensor(info) if output.dtype != info.dtype => {
                return Err(misfit(meta, index, output, info.to_string()).help(format!(
                    "the program computes {}; give memory of this type, and convert it afterwards",
                    info.dtype.long_name()
                )));
            }
            ValueInfo::Tensor(info) => {
                return Err(misfit(meta, index, output, info.to_string())
                    .help("the shape is that of the result: nothing is broadcast or resized"));
            }
            other => {
                return Err(misfit(meta, index, output, other.as_output()).help("only tensors are written to memory"));
            }
        }
    }
    Ok(())
}

fn fits(output: &OutputMut<'_>, info: &TensorInfo) -> bool {
    let is_size = |(&size, &bound): (&usize, &usize)| size == bound || (info.is_dynamic && size < bound);
    output.dtype == info.dtype
        && output.sizes.len() == info.sizes.len()
        && output.sizes.iter().zip(&info.sizes).all(is_size)
}

fn misfit(meta: &MethodMeta, index: usize, output: &OutputMut<'_>, expected: String) -> Error {
    let what = if output.sizes.is_empty() { "the memory" } else { "the shape or the type of the memory" };
    Error::invalid(format!("{what} for {} of `{}` does not fit", meta.output_label(index), meta.name))
        .expected(expected)
        .got(output.text())
}

/// Writes the outputs of a call.
///
/// # Errors
/// `InvalidArgument` for an output whose shape was not known before the call, and differs.
fn write(meta: &MethodMeta, from: &Outputs<'_, '_>, outputs: &mut [Option<OutputMut<'_>>]) -> Result<(), Error> {
    for (index, output) in outputs.iter_mut().enumerate() {
        let Some(output) = output else { continue };
        let Output::Tensor(tensor) = from.get(index)? else { continue };
        let view = TensorView::from(tensor);
        if view.sizes() != output.sizes || view.dtype() != output.dtype {
            return Err(misfit(meta, index, output, format!("{} {:?}", view.dtype(), view.sizes()))
                .help("the shape depends on the inputs: give memory of this shape; the call ran, and changed state is changed"));
        }
        output.write(&view);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dense_memory_has_an_order() {
        let order =
            |sizes: &[usize], strides: &[usize]| dense_order(sizes, strides).map(|order| order[..sizes.len()].to_vec());
        assert_eq!(order(&[], &[]), Some(vec![]));
        assert_eq!(order(&[2, 3], &[3, 1]), Some(vec![0, 1]));
        assert_eq!(order(&[2, 3], &[1, 2]), Some(vec![1, 0]));
        assert_eq!(order(&[2, 3, 4, 5], &[60, 1, 15, 3]), Some(vec![0, 2, 3, 1]));
        assert_eq!(order(&[1, 3, 1], &[77, 1, 0]), Some(vec![0, 1, 2]));
        assert_eq!(order(&[0, 3], &[9, 9]), Some(vec![0, 1]));
        for strides in [[6, 2], [3, 0], [1, 1], [4, 1]] {
            assert_eq!(order(&[2, 3], &strides), None, "{strides:?}");
        }
    }

    #[test]
    fn elements_are_written_in_the_order_of_the_memory() {
        let view = TensorView::of(&[2, 3], &[1u8, 2, 3, 4, 5, 6]).unwrap();
        let mut memory = [0u8; 6];
        OutputMut::strided(ScalarType::Byte, &[2, 3], &[1, 2], &mut memory).unwrap().write(&view);
        assert_eq!(memory, [1, 4, 2, 5, 3, 6]);
        OutputMut::new(ScalarType::Byte, &[2, 3], &mut memory).unwrap().write(&view);
        assert_eq!(memory, [1, 2, 3, 4, 5, 6]);
        for strides in [&[3][..], &[6, 1]] {
            assert!(OutputMut::strided(ScalarType::Byte, &[2, 3], strides, &mut memory).is_err(), "{strides:?}");
        }
        assert!(OutputMut::new(ScalarType::Short, &[2, 3], &mut memory).is_err());
    }
}
