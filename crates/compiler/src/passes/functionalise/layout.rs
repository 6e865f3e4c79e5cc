//! PyTorch's layout of a tensor in its storage, which decides whether a `reshape` is a view or a copy.

use rushlight_graph::{Expr, TensorType};

/// Strides and offset in elements of the tensor's storage.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::passes) struct StridedLayout {
    pub strides: Vec<Expr>,
    pub offset: Expr,
}

impl StridedLayout {
    /// The layout of a tensor that fills its storage.
    pub fn dense(ty: &TensorType) -> Option<Self> {
        let mut strides = vec![Expr::Int(1); ty.rank()];
        let mut stride = Expr::Int(1);
        for dim in ty.dim_order.iter().rev() {
            strides.get_mut(*dim as usize)?.clone_from(&stride);
            stride = stride.mul(ty.shape.get(*dim as usize)?.clone());
        }
        Some(Self { strides, offset: Expr::Int(0) })
    }

    /// True if the elements of a tensor of this shape follow each other in row-major order.
    pub fn is_contiguous(&self, shape: &[Expr]) -> bool {
        let mut stride = Expr::Int(1);
        shape.iter().zip(&self.strides).rev().all(|(size, actual)| {
            let fits = size.is(1) || *actual == stride;
            stride = stride.mul(size.clone());
            fits
        })
    }

    /// With the dimensions in another order.
    pub fn permuted(&self, dims: &[usize]) -> Option<Self> {
        let strides = dims.iter().map(|dim| self.strides.get(*dim).cloned()).collect::<Option<_>>()?;
        Some(Self { strides, offset: self.offset.clone() })
    }

    /// From `start` on in steps along a dimension.
    pub fn sliced(&self, dim: usize, start: &Expr, step: i64) -> Option<Self> {
        let mut sliced = self.clone();
        let stride = sliced.strides.get_mut(dim)?;
        sliced.offset = sliced.offset.add(stride.mul(start.clone()));
        *stride = stride.mul(step);
        Some(sliced)
    }

    /// Without a dimension.
    pub fn without(&self, dim: usize) -> Option<Self> {
        let mut rest = self.clone();
        (dim < rest.strides.len()).then(|| rest.strides.remove(dim))?;
        Some(rest)
    }

    /// With the sizes of 1 repeated; `shape` before, `wider` after.
    pub fn expanded(&self, shape: &[Expr], wider: &[Expr]) -> Option<Self> {
        let new = wider.len().checked_sub(shape.len())?;
        let mut strides = vec![Expr::Int(0); new];
        let kept = shape.iter().zip(wider.iter().skip(new)).zip(&self.strides);
        strides.extend(kept.map(|((from, to), stride)| if from == to { stride.clone() } else { Expr::Int(0) }));
        Some(Self { strides, offset: self.offset.clone() })
    }

    /// With the same elements as another shape; `None` if no strides express that, so that PyTorch copies. This is
    /// ATen's `computeStride` with symbolic sizes, which are equal only if they are written equally.
    pub fn viewed(&self, from: &[Expr], to: &[Expr]) -> Option<Self> {
        let one = Expr::Int(1);
        let mut strides = vec![one.clone(); to.len()];
        let mut left = to.len();
        // Dimensions that lie densely in one another form a chunk, which must be divided without a rest.
        let (mut elements, mut base) = (one.clone(), self.strides.last().cloned().unwrap_or(one.clone()));
        for dim in (0..from.len()).rev() {
            elements = elements.mul(from.get(dim)?.clone());
            let outer = dim.checked_sub(1).map(|outer| Some((from.get(outer)?, self.strides.get(outer)?)));
            let outer = match outer {
                Some(outer) => Some(outer?),
                None => None,
            };
            if outer.is_some_and(|(size, stride)| size.is(1) || *stride == elements.mul(base.clone())) {
                continue;
            }
            let mut covered = one.clone();
            while let Some(size) = left.checked_sub(1).and_then(|at| to.get(at)) {
                if covered == elements && !size.is(1) {
                    break;
                }
                left -= 1;
                *strides.get_mut(left)? = covered.mul(base.clone());
                covered = covered.mul(size.clone());
            }
            if covered != elements {
                return None;
            }
            if let Some((_, stride)) = outer {
                base.clone_from(stride);
            }
            elements = one.clone();
        }
        let rest_is_one = to.get(..left)?.iter().all(|size| size.is(1));
        rest_is_one.then(|| Self { strides, offset: self.offset.clone() })
    }
}

#[cfg(test)]
mod tests {
    use rushlight_format::ScalarType;

    use super::*;
    use rushlight_graph::{Symbol, Symbols};

    fn shape(sizes: &[i64]) -> Vec<Expr> {
        sizes.iter().map(|size| Expr::Int(*size)).collect()
    }

    fn layout(sizes: &[i64]) -> StridedLayout {
        StridedLayout::dense(&TensorType::of(ScalarType::Float, sizes)).unwrap()
    }

    #[test]
    fn a_reshape_of_dense_dimensions_is_a_view() {
        let dense = layout(&[2, 3, 4]);
        assert_eq!(dense.strides, shape(&[12, 4, 1]));
        assert_eq!(dense.viewed(&shape(&[2, 3, 4]), &shape(&[6, 2, 2])).unwrap().strides, shape(&[4, 2, 1]));
        assert_eq!(dense.viewed(&shape(&[2, 3, 4]), &shape(&[1, 24, 1])).unwrap().strides, shape(&[24, 1, 1]));
        assert!(layout(&[1]).viewed(&shape(&[1]), &[]).is_some());
        assert!(layout(&[]).viewed(&[], &shape(&[1, 1])).is_some());
    }

    #[test]
    fn a_reshape_across_transposed_dimensions_copies() {
        let transposed = layout(&[2, 3, 4]).permuted(&[0, 2, 1]).unwrap();
        let from = shape(&[2, 4, 3]);
        assert!(!transposed.is_contiguous(&from));
        assert!(transposed.viewed(&from, &shape(&[2, 12])).is_none());
        assert_eq!(transposed.viewed(&from, &shape(&[2, 2, 2, 3])).unwrap().strides, shape(&[12, 2, 1, 4]));
    }

    #[test]
    fn sizes_may_be_symbols() {
        let mut symbols = Symbols::new();
        let s: Expr = symbols.push(Symbol { name: "s0".into(), min: 1, max: None }).into();
        let ty = TensorType::new(ScalarType::Float, vec![s.clone(), Expr::Int(4), Expr::Int(8)]);
        let dense = StridedLayout::dense(&ty).unwrap();
        assert!(dense.viewed(&ty.shape, &[s.mul(4), Expr::Int(8)]).is_some());
        assert!(dense.permuted(&[1, 0, 2]).unwrap().viewed(&[4.into(), s.clone(), 8.into()], &[s.mul(32)]).is_none());
    }

    #[test]
    fn slices_and_expansions_move_strides() {
        let sliced = layout(&[4, 6]).sliced(1, &Expr::Int(2), 2).unwrap();
        assert_eq!((sliced.strides.clone(), sliced.offset.clone()), (shape(&[6, 2]), Expr::Int(2)));
        assert_eq!(sliced.without(0).unwrap().strides, shape(&[2]));
        let expanded = layout(&[3, 1]).expanded(&shape(&[3, 1]), &shape(&[2, 3, 5])).unwrap();
        assert_eq!(expanded.strides, shape(&[0, 1, 0]));
    }
}
