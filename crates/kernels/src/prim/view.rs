//! Views that share the memory of their input.

use rushlight_runtime::{Detail, Error, KernelContext, Op, Result};

use crate::support::shape::{Dims, numel};

/// `executorch_prim::et_view.default(Tensor self, int[] size) -> Tensor`: one size may be -1.
pub const ET_VIEW_DEFAULT: Op = Op::new("executorch_prim::et_view.default", 3, et_view).view();

pub const OPS: &[Op] = &[ET_VIEW_DEFAULT];

fn et_view(cx: &KernelContext<'_>) -> Result<()> {
    let elements = cx.tensor(0)?.numel();
    let sizes = infer_sizes(elements, cx.ints(1)?.iter()).map_err(|e| e.arg(1))?;
    cx.set_view(2, 0, &sizes)
}

/// Replaces one -1 by the size that makes the view hold `elements` elements.
fn infer_sizes(elements: usize, requested: impl Iterator<Item = i64>) -> Result<Dims> {
    let mut sizes = Dims::EMPTY;
    let mut inferred = None;
    for (dim, size) in requested.enumerate() {
        match usize::try_from(size) {
            Ok(size) => sizes.push(size)?,
            Err(_) if size == -1 && inferred.is_none() => {
                inferred = Some(dim);
                sizes.push(1)?;
            }
            Err(_) => {
                let expected = "sizes of at least 0, and at most one -1";
                return Err(Detail::Value { what: "view size", expected, got: size }.into());
            }
        }
    }
    let known = numel(&sizes)?;
    if let Some(dim) = inferred {
        sizes[dim] =
            elements.checked_div(known).ok_or_else(|| Error::invalid("the size -1 is ambiguous beside a size of 0"))?;
    }
    let got = numel(&sizes)?;
    if got != elements {
        return Err(Detail::Count { what: "elements of the view", expected: elements, got }.into());
    }
    Ok(sizes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_size_is_inferred() {
        let infer = |elements, sizes: &[i64]| infer_sizes(elements, sizes.iter().copied());
        assert_eq!(infer(6, &[2, -1]).as_deref(), Ok(&[2, 3][..]));
        assert_eq!(infer(0, &[-1, 4]).as_deref(), Ok(&[0, 4][..]));
        assert_eq!(infer(1, &[]).as_deref(), Ok(&[][..]));
        assert!(infer(6, &[-1, -1]).is_err());
        assert!(infer(6, &[-2, 3]).is_err());
        assert!(infer(0, &[0, -1]).is_err());
        assert!(infer(7, &[2, -1]).is_err());
        assert!(infer(7, &[i64::MAX, i64::MAX]).is_err());
    }
}
