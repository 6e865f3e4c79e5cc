//! Views: how a value is stored in a buffer.

use rushlight_cpu_payload::{Affine, Half};

use rushlight_graph::Expr;

/// A strided tensor in a buffer.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct View {
    pub buffer: usize,
    /// The first element.
    pub offset: Expr,
    /// The sizes, in the order of the PyTorch tensor's dimensions.
    pub shape: Vec<Expr>,
    /// The stride of each dimension, in elements.
    pub strides: Vec<Expr>,
    /// The dim order: dimensions from the outermost in memory to the innermost.
    pub order: Vec<usize>,
    /// The scale and zero point of a quantized tensor, whose elements are bytes; `None` for floats.
    pub affine: Option<Affine>,
    /// The format of elements of 16 bits, which those of some states are.
    pub half: Option<Half>,
}

impl View {
    /// A row-major tensor at the start of a buffer.
    pub fn dense(buffer: usize, shape: Vec<Expr>) -> Self {
        let order = (0..shape.len()).collect();
        Self::ordered(buffer, shape, order)
    }

    /// A tensor at the start of a buffer that fills memory in some order.
    pub fn ordered(buffer: usize, shape: Vec<Expr>, order: Vec<usize>) -> Self {
        let strides = dense_strides(&shape, &order);
        Self { buffer, offset: Expr::Int(0), shape, strides, order, affine: None, half: None }
    }

    /// The same elements as bytes with an affine, or as floats.
    #[must_use]
    pub fn with_affine(self, affine: Option<Affine>) -> Self {
        Self { affine, ..self }
    }

    /// The same place as elements of 16 bits, if there is a format.
    #[must_use]
    pub fn with_half(self, half: Option<Half>) -> Self {
        Self { half, ..self }
    }

    /// The sizes, from the outermost dimension in memory to the innermost.
    pub fn dims(&self) -> Vec<Expr> {
        self.order.iter().map(|dim| self.shape[*dim].clone()).collect()
    }

    /// True if the elements fill memory in that order; dimensions of one element do not matter.
    pub fn is_in(&self, order: &[usize]) -> bool {
        let dense = dense_strides(&self.shape, order);
        self.shape.iter().zip(&self.strides).zip(&dense).all(|((size, stride), dense)| size.is(1) || stride == dense)
    }

    /// True if the elements are in row-major order.
    pub fn is_dense(&self) -> bool {
        self.is_in(&(0..self.shape.len()).collect::<Vec<_>>())
    }

    /// The extent in the buffer from the first element to the last, gaps included.
    pub fn span(&self) -> Expr {
        let reach = |(size, stride): (&Expr, &Expr)| size.sub(1).mul(stride.clone());
        let span = self.shape.iter().zip(&self.strides).map(reach).fold(Expr::Int(1), |sum, reach| sum.add(reach));
        // 0 if a size is 0.
        let count = Expr::product(&self.shape);
        if count.as_int().is_some_and(|count| count > 0) { span } else { span.mul(count.at_most(1)) }
    }

    /// The same elements with the dimensions in another order, as `aten::permute` does.
    pub fn permuted(&self, dims: &[usize]) -> Self {
        let pick = |list: &[Expr]| dims.iter().map(|dim| list[*dim].clone()).collect();
        let position = |dim: &usize| dims.iter().position(|old| old == dim);
        let order = self.order.iter().filter_map(position).collect();
        let (shape, strides) = (pick(&self.shape), pick(&self.strides));
        Self { offset: self.offset.clone(), shape, strides, order, ..*self }
    }

    /// The same elements in other sizes, as `aten::view` does; `None` if they would have to move.
    pub fn reshaped(&self, shape: &[Expr]) -> Option<Self> {
        // A tensor without elements has any order.
        if self.is_dense() || Expr::product(&self.shape).is(0) {
            let view = Self::dense(self.buffer, shape.to_vec());
            return Some(Self { offset: self.offset.clone(), affine: self.affine, half: self.half, ..view });
        }
        // Dimensions of one element are left out at first, and are put back as the outermost ones.
        let non_unit_dims =
            |shape: &[Expr]| -> Vec<usize> { (0..shape.len()).filter(|dim| !shape[*dim].is(1)).collect() };
        let (from, to) = (non_unit_dims(&self.shape), non_unit_dims(shape));
        let mut strides = vec![Expr::Int(0); shape.len()];
        // For the last old dimension of each group its new ones: groups of both have the same number of elements.
        let mut groups: Vec<(usize, Vec<usize>)> = Vec::new();
        let (mut i, mut j) = (0, 0);
        while i < from.len() || j < to.len() {
            let (mut old, mut new) = (vec![*from.get(i)?], vec![*to.get(j)?]);
            i += 1;
            j += 1;
            let product = |dims: &[usize], shape: &[Expr]| Expr::product(dims.iter().map(|dim| &shape[*dim]));
            loop {
                let (have, want) = (product(&old, &self.shape), product(&new, shape));
                if have == want {
                    break;
                }
                match (have.as_int(), want.as_int()) {
                    (Some(have), Some(want)) if have < want => {
                        old.push(*from.get(i)?);
                        i += 1;
                    }
                    (Some(_), Some(_)) => {
                        new.push(*to.get(j)?);
                        j += 1;
                    }
                    // Sizes that are not known are taken where one divides the other.
                    _ if want.exact_div(&have).is_some() => {
                        old.push(*from.get(i)?);
                        i += 1;
                    }
                    _ => {
                        have.exact_div(&want)?;
                        new.push(*to.get(j)?);
                        j += 1;
                    }
                }
            }
            // Old dimensions merge where each begins where the one before it ends.
            for pair in old.windows(2) {
                if self.strides[pair[0]] != self.strides[pair[1]].mul(self.shape[pair[1]].clone()) {
                    return None;
                }
            }
            let last = *old.last()?;
            let mut stride = self.strides[last].clone();
            for dim in new.iter().rev() {
                strides[*dim] = stride.clone();
                stride = stride.mul(shape[*dim].clone());
            }
            groups.push((last, new));
        }
        let mut order: Vec<usize> = (0..shape.len()).filter(|dim| !to.contains(dim)).collect();
        for dim in &self.order {
            order.extend(groups.iter().filter(|(last, _)| last == dim).flat_map(|(_, new)| new));
        }
        Some(Self { offset: self.offset.clone(), shape: shape.to_vec(), strides, order, ..*self })
    }

    /// The window `start..start + size` of a dimension.
    #[must_use]
    pub fn sliced(&self, dim: usize, start: &Expr, size: &Expr) -> Self {
        let mut view = self.clone();
        view.offset = self.offset.add(start.mul(self.strides[dim].clone()));
        view.shape[dim] = size.clone();
        view
    }

    /// The elements at an index of a dimension, with the other dimensions.
    #[must_use]
    pub fn selected(&self, dim: usize, index: &Expr) -> Self {
        let mut view = self.sliced(dim, index, &Expr::Int(1));
        view.shape.remove(dim);
        view.strides.remove(dim);
        view.order =
            self.order.iter().filter(|of| **of != dim).map(|of| if *of > dim { of - 1 } else { *of }).collect();
        view
    }
}

/// The strides of a tensor that fills memory in some order.
fn dense_strides(shape: &[Expr], order: &[usize]) -> Vec<Expr> {
    let mut strides = vec![Expr::Int(1); shape.len()];
    let mut stride = Expr::Int(1);
    for dim in order.iter().rev() {
        strides[*dim] = stride.clone();
        stride = stride.mul(shape[*dim].clone());
    }
    strides
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(shape: &[i64], order: &[usize]) -> View {
        View::ordered(0, shape.iter().map(|size| Expr::Int(*size)).collect(), order.to_vec())
    }

    fn reshaped(from: &View, shape: &[i64]) -> Option<Vec<usize>> {
        let shape: Vec<Expr> = shape.iter().map(|size| Expr::Int(*size)).collect();
        from.reshaped(&shape).map(|view| view.order)
    }

    #[test]
    fn pixels_merge_where_channels_are_last() {
        let image = view(&[2, 8, 4, 4], &[0, 2, 3, 1]);
        assert_eq!(reshaped(&image, &[2, 8, 16]), Some(vec![0, 2, 1]));
        assert_eq!(reshaped(&image, &[2, 128]), None);
        assert_eq!(reshaped(&image, &[2, 2, 4, 4, 4]), Some(vec![0, 3, 4, 1, 2]));
        assert_eq!(reshaped(&view(&[2, 8, 1, 1], &[0, 2, 3, 1]), &[2, 8]), Some(vec![0, 1]));
        assert_eq!(reshaped(&view(&[1, 8, 4, 4], &[0, 2, 3, 1]), &[8, 16]), Some(vec![1, 0]));
    }

    #[test]
    fn nothing_has_any_sizes() {
        let none = view(&[2, 0, 3], &[2, 0, 1]).permuted(&[1, 2, 0]);
        for shape in [&[0, 6][..], &[5, 0, 2], &[0]] {
            assert!(reshaped(&none, shape).is_some());
        }
    }

    #[test]
    fn selection_leaves_the_other_dimensions() {
        for shape in [[2, 3, 4, 1], [2, 3, 0, 1], [1, 1, 2, 5]] {
            let image = view(&shape, &[0, 2, 3, 1]);
            for dim in 0..4 {
                let chosen = image.selected(dim, &Expr::Int(1));
                let kept = |list: &[Expr]| [&list[..dim], &list[dim + 1..]].concat();
                assert_eq!((chosen.shape, chosen.strides), (kept(&image.shape), kept(&image.strides)));
                assert_eq!(chosen.offset, image.strides[dim]);
                let mut order = chosen.order;
                order.sort_unstable();
                assert_eq!(order, [0, 1, 2]);
            }
        }
    }

    #[test]
    fn permuting_back_is_dense() {
        let tokens = view(&[2, 8, 16], &[0, 2, 1]).permuted(&[0, 2, 1]);
        assert!(tokens.is_dense());
        assert_eq!(tokens.shape, [2, 16, 8].map(Expr::Int));
    }

    #[test]
    fn heads_of_a_common_gemm_are_windows() {
        // [windows, tokens, (3, heads, depth)] to three tensors [windows, heads, tokens, depth].
        let qkv = view(&[6, 5 * 24], &[0, 1]);
        let parts = qkv.reshaped(&[6, 5, 3, 2, 4].map(Expr::Int)).unwrap().permuted(&[2, 0, 3, 1, 4]);
        let part = parts.sliced(0, &Expr::Int(1), &Expr::Int(1)).reshaped(&[6, 2, 5, 4].map(Expr::Int)).unwrap();
        assert!(part.offset.is(8));
        assert_eq!(part.strides, [120, 4, 24, 1].map(Expr::Int));
        assert!(!part.is_in(&[0, 2, 1, 3]));
        assert!(part.span().is(5 * 120 + 4 + 4 * 24 + 3 + 1));
    }
}
