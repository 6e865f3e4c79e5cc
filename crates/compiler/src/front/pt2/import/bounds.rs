//! Bounds of slices that data gives, which count from the end of a dimension where they are negative.
//!
//! Passes decide from the range of a bound if it counts from the end. Such a bound has both signs in its range.

use rushlight_graph::operators::aten;
use rushlight_graph::ops::wrap_dim;
use rushlight_graph::{Arg, Expr, NodeId, Schema};

use super::Importer;

/// Operators with bounds along a dimension: the arguments that are the dimension and its bounds.
const BOUNDED: &[(&str, usize, &[usize])] = &[
    (aten::SLICE_TENSOR, 1, &[2, 3]),
    (aten::SLICE_COPY_TENSOR, 1, &[2, 3]),
    (aten::SLICE_SCATTER, 2, &[3, 4]),
    (aten::NARROW, 1, &[2]),
    (aten::NARROW_COPY, 1, &[2]),
];

impl Importer<'_, '_, '_> {
    /// Counts bounds from the start of their dimension if they depend on data and may be negative.
    pub(super) fn count_from_start(&self, schema: &Schema, args: &mut [Arg]) {
        let Some((_, dim, bounds)) = BOUNDED.iter().find(|(name, ..)| **name == *schema.name) else { return };
        let Some(size) = self.size_along(args, *dim).cloned() else { return };
        for bound in *bounds {
            if let Some(Arg::Int(bound)) = args.get_mut(*bound)
                && self.sizes.is_of_data(bound)
                && self.sizes.may_be_negative(bound)
            {
                *bound = from_start(bound, &size);
            }
        }
    }

    /// Bounds the size of a result that depends on data by the size of its input: of a slice, and of the boxes that are kept.
    pub(super) fn bound_part(&mut self, id: NodeId) {
        let node = &self.graph.nodes[id];
        let whole = match node.op.name() {
            aten::SLICE_TENSOR | aten::SLICE_COPY_TENSOR => self.size_along(&node.args, 1),
            // An operator of torchvision, whose description in PyTorch has no bound.
            "torchvision::nms" => self.first_size(&node.args),
            _ => return,
        };
        let Some(upper_bound) = whole.and_then(|whole| self.sizes.upper_bound(whole)) else { return };
        let result = node.result().and_then(|result| self.graph.ty(result).as_tensor());
        for size in result.map(|result| result.shape.clone()).unwrap_or_default() {
            if self.sizes.is_of_data(&size) {
                self.sizes.bound(&size, upper_bound);
            }
        }
    }

    /// The size of the first argument along its first dimension.
    fn first_size(&self, args: &[Arg]) -> Option<&Expr> {
        self.graph.ty(args.first()?.as_value()?).as_tensor()?.shape.first()
    }

    /// The size of the first argument along the dimension that argument `dim` names.
    fn size_along(&self, args: &[Arg], dim: usize) -> Option<&Expr> {
        let tensor = self.graph.ty(args.first()?.as_value()?).as_tensor()?;
        let Arg::Int(Expr::Int(dim)) = args.get(dim)? else { return None };
        tensor.shape.get(wrap_dim(*dim, tensor.rank())?)
    }
}

/// A bound counted from the start: `bound + size` where it is negative, then between 0 and `size`.
fn from_start(bound: &Expr, size: &Expr) -> Expr {
    let is_negative = bound.mul(-1).at_least(0).at_most(1);
    bound.add(size.mul(is_negative)).at_least(0).at_most(size.clone())
}
