//! Sums of products by subscripts: `einsum`, and the operators that are cases of it.

use crate::Error;
use crate::operators::aten;
use crate::{Arg, Builder, Expr, ValueId};

use super::matmul::product;
use super::views::{permute, squeeze};
use super::{Definition, Lowered, Operands, by_lowering, composite};

pub(crate) const OPS: &[Definition] = &[
    composite(aten::EINSUM, by_lowering, einsum),
    composite(aten::TENSORDOT, by_lowering, tensordot),
    composite(aten::BILINEAR, by_lowering, bilinear),
    composite(aten::_TRILINEAR, by_lowering, trilinear),
];

/// A subscript: letters are their code points, the dimensions of an ellipsis count from the last one.
type Label = u32;

const ELLIPSIS: Label = 1 << 24;

/// A tensor with a label for each dimension, no two the same.
#[derive(Clone, Debug)]
struct Labelled {
    value: ValueId,
    labels: Vec<Label>,
}

fn einsum(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let equation = operands.str(0)?.unwrap_or_default();
    let values = operands.values(1)?;
    let ranks = values.iter().map(|value| Ok(b.tensor(*value)?.rank())).collect::<Result<Vec<_>, Error>>()?;
    let malformed = || Error::type_error("malformed equation of `einsum`").got(equation);
    let (inputs, output) = parse(equation, &ranks).ok_or_else(malformed)?;
    sum_of_products(b, values.into_iter().zip(inputs).collect(), &output).map(|value| Some(vec![value]))
}

/// The labels of each operand and of the result; `None` for an equation that does not fit the operands.
fn parse(equation: &str, ranks: &[usize]) -> Option<(Vec<Vec<Label>>, Vec<Label>)> {
    let equation: String = equation.chars().filter(|c| !c.is_whitespace()).collect();
    let (left, right) = match equation.split_once("->") {
        Some((left, right)) => (left, Some(right)),
        None => (equation.as_str(), None),
    };
    let terms: Vec<&str> = left.split(',').collect();
    if terms.len() != ranks.len() {
        return None;
    }
    let inputs = terms.iter().zip(ranks).map(|(term, rank)| {
        let letters = term.replace("...", "").chars().count();
        let labels = labels(term, rank.checked_sub(letters)?)?;
        (labels.len() == *rank).then_some(labels)
    });
    let inputs = inputs.collect::<Option<Vec<_>>>()?;
    let is_dots = |label: &&Label| **label >= ELLIPSIS;
    let dots = inputs.iter().map(|labels| labels.iter().filter(is_dots).count()).max().unwrap_or(0);
    let output = if let Some(right) = right {
        labels(right, dots)?
    } else {
        // Without an arrow: the ellipsis, then the letters that stand once, in order.
        let mut letters: Vec<Label> = inputs.iter().flatten().copied().filter(|label| *label < ELLIPSIS).collect();
        letters.sort_unstable();
        let once = |label: &Label| letters.iter().filter(|other| *other == label).count() == 1;
        (0..dots as Label).rev().map(|at| ELLIPSIS + at).chain(letters.iter().copied().filter(once)).collect()
    };
    let known = |label: &Label| inputs.iter().any(|labels| labels.contains(label));
    let repeated = output.iter().enumerate().any(|(at, label)| output.iter().skip(at + 1).any(|other| other == label));
    (!repeated && output.iter().all(known)).then_some((inputs, output))
}

/// The labels of a term whose ellipsis, if it has one, stands for `dots` dimensions.
fn labels(term: &str, dots: usize) -> Option<Vec<Label>> {
    let letters =
        |text: &str| text.chars().map(|c| c.is_ascii_alphabetic().then_some(c as Label)).collect::<Option<Vec<_>>>();
    match term.split_once("...") {
        Some((before, after)) => {
            let ellipsis = (0..dots as Label).rev().map(|at| ELLIPSIS + at).collect();
            Some([letters(before)?, ellipsis, letters(after)?].concat())
        }
        None => letters(term),
    }
}

/// The product of all operands, summed over the labels that are not in `output`, with dimensions in its order.
fn sum_of_products(
    b: &mut Builder<'_>,
    operands: Vec<(ValueId, Vec<Label>)>,
    output: &[Label],
) -> Result<ValueId, Error> {
    let mut terms = Vec::new();
    for (value, labels) in operands {
        terms.push(distinct(b, value, labels)?);
    }
    let sizes = sizes_of(b, &terms)?;
    for term in &mut terms {
        drop_ones(b, term, &sizes)?;
    }
    let mut terms = terms.into_iter();
    let Some(mut product) = terms.next() else { return Err(Error::type_error("`einsum` of nothing")) };
    let mut rest: Vec<Labelled> = terms.collect();
    loop {
        let needed = |label: Label| output.contains(&label) || rest.iter().any(|term| term.labels.contains(&label));
        sum_over(b, &mut product, &needed)?;
        if rest.is_empty() {
            break;
        }
        let mut next = rest.remove(0);
        let needed = |label: Label| output.contains(&label) || rest.iter().any(|term| term.labels.contains(&label));
        let in_product = product.labels.clone();
        sum_over(b, &mut next, &|label| needed(label) || in_product.contains(&label))?;
        product = contract(b, &product, &next, &needed)?;
    }
    let order = output.iter().filter_map(|label| product.labels.iter().position(|known| known == label));
    let order: Vec<usize> = order.collect();
    permute(b, product.value, &order)
}

/// Repeated labels of a tensor become the diagonal of their dimensions.
fn distinct(b: &mut Builder<'_>, mut value: ValueId, mut labels: Vec<Label>) -> Result<Labelled, Error> {
    let repeated = |labels: &[Label]| {
        labels.iter().enumerate().find_map(|(first, label)| {
            let second = labels.iter().skip(first + 1).position(|other| other == label)?;
            Some((first, first + 1 + second))
        })
    };
    while let Some((first, second)) = repeated(&labels) {
        let args = vec![value.into(), 0.into(), (first as i64).into(), (second as i64).into()];
        value = b.one(aten::DIAGONAL_COPY, args)?;
        let label = labels.remove(second);
        labels.remove(first);
        labels.push(label);
    }
    Ok(Labelled { value, labels })
}

/// The size of each label: that of the operands whose dimension is not broadcast.
fn sizes_of(b: &Builder<'_>, terms: &[Labelled]) -> Result<Vec<(Label, Expr)>, Error> {
    let mut sizes: Vec<(Label, Expr)> = Vec::new();
    for term in terms {
        for (label, size) in term.labels.iter().zip(b.tensor(term.value)?.shape) {
            match sizes.iter_mut().find(|(known, _)| known == label) {
                Some((_, known)) if known.is(1) => *known = size,
                Some((_, known)) if known.is_static() && size.is_static() && !size.is(1) && *known != size => {
                    return Err(Error::type_error("sizes of one subscript of `einsum` differ")
                        .expected(known.as_int().unwrap_or_default())
                        .got(size.as_int().unwrap_or_default()));
                }
                Some(_) => {}
                None => sizes.push((*label, size)),
            }
        }
    }
    Ok(sizes)
}

/// A dimension of one element, where other operands have more, is as if it were not there.
fn drop_ones(b: &mut Builder<'_>, term: &mut Labelled, sizes: &[(Label, Expr)]) -> Result<(), Error> {
    for (dim, size) in b.tensor(term.value)?.shape.iter().enumerate().rev() {
        let Some(label) = term.labels.get(dim) else { continue };
        if size.is(1) && sizes.iter().any(|(known, size)| known == label && !size.is(1)) {
            term.value = squeeze(b, term.value, dim)?;
            term.labels.remove(dim);
        }
    }
    Ok(())
}

/// Sums over the dimensions that nothing needs any more.
fn sum_over(b: &mut Builder<'_>, term: &mut Labelled, needed: &impl Fn(Label) -> bool) -> Result<(), Error> {
    let dims: Vec<i64> =
        term.labels.iter().enumerate().filter(|(_, label)| !needed(**label)).map(|(dim, _)| dim as i64).collect();
    if dims.is_empty() {
        return Ok(());
    }
    let dtype = b.tensor(term.value)?.dtype;
    let args = vec![term.value.into(), Arg::from(dims.as_slice())];
    term.value = b.one_with(aten::SUM_DIM_INTLIST, args, &[("dtype", dtype.into())])?;
    term.labels.retain(|label| needed(*label));
    Ok(())
}

/// The product of two: labels of both that are still needed are the batch, those that are not are summed over.
fn contract(
    b: &mut Builder<'_>,
    left: &Labelled,
    right: &Labelled,
    needed: &impl Fn(Label) -> bool,
) -> Result<Labelled, Error> {
    let shared = |label: &&Label| right.labels.contains(label);
    let batch: Vec<Label> = left.labels.iter().filter(shared).copied().filter(|label| needed(*label)).collect();
    let summed: Vec<Label> = left.labels.iter().filter(shared).copied().filter(|label| !needed(*label)).collect();
    let rows: Vec<Label> = left.labels.iter().filter(|label| !shared(label)).copied().collect();
    let columns: Vec<Label> = right.labels.iter().filter(|label| !left.labels.contains(label)).copied().collect();
    let labels = [batch.as_slice(), &rows, &columns].concat();
    let (x, y) = (arrange(b, left, &[&batch, &rows, &summed])?, arrange(b, right, &[&batch, &summed, &columns])?);
    let [(x, x_sizes), (y, y_sizes)] = [x, y];
    let ([x_batch, x_rows, x_summed], [_, _, y_columns]) = (x_sizes, y_sizes);
    let shape = [x_batch.as_slice(), &x_rows, &y_columns].concat();
    if summed.is_empty() {
        let ones = |count: usize| vec![Expr::Int(1); count];
        let y_shape = [x_batch, ones(rows.len()), y_columns].concat();
        let x_shape = [shape.get(..batch.len() + rows.len()).unwrap_or_default(), &ones(columns.len())].concat();
        let (x, y) = (b.view(x, x_shape)?, b.view(y, y_shape)?);
        let value = b.one(aten::MUL_TENSOR, vec![x.into(), y.into()])?;
        return Ok(Labelled { value, labels });
    }
    let size = |sizes: &[Expr]| Expr::product(sizes);
    let (m, k, n) = (size(&x_rows), size(&x_summed), size(&y_columns));
    let value = if batch.is_empty() {
        let (x, y) = (b.view(x, vec![m, k.clone()])?, b.view(y, vec![k, n])?);
        product(b, x, y)?
    } else {
        let count = size(&x_batch);
        let x = b.view(x, vec![count.clone(), m, k.clone()])?;
        let y = b.view(y, vec![count, k, n])?;
        b.one(aten::BMM, vec![x.into(), y.into()])?
    };
    Ok(Labelled { value: b.view(value, shape)?, labels })
}

/// The tensor with its dimensions in the order of three groups of labels, and the sizes of each.
fn arrange(b: &mut Builder<'_>, term: &Labelled, groups: &[&[Label]; 3]) -> Result<(ValueId, [Vec<Expr>; 3]), Error> {
    let shape = b.tensor(term.value)?.shape;
    let place = |label: &Label| term.labels.iter().position(|known| known == label);
    let order: Vec<usize> = groups.iter().flat_map(|group| group.iter().filter_map(place)).collect();
    let value = permute(b, term.value, &order)?;
    let sizes = |group: &&[Label]| group.iter().filter_map(place).filter_map(|dim| shape.get(dim).cloned()).collect();
    Ok((value, groups.each_ref().map(sizes)))
}

fn tensordot(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let (left, right) = (operands.value(0)?, operands.value(1)?);
    let (left_rank, right_rank) = (b.tensor(left)?.rank(), b.tensor(right)?.rank());
    let wrapped = |index: usize, rank: usize| {
        let wrap = |dim: i64| usize::try_from(if dim < 0 { dim + rank as i64 } else { dim }).ok();
        let dims = operands.ints(index)?.into_iter().map(wrap).collect::<Option<Vec<_>>>();
        dims.filter(|dims| dims.iter().all(|dim| *dim < rank))
            .ok_or_else(|| operands.wrong(index, &format!("dimensions of {rank}")))
    };
    let (left_dims, right_dims) = (wrapped(2, left_rank)?, wrapped(3, right_rank)?);
    if left_dims.len() != right_dims.len() {
        return Err(operands.wrong(3, "as many dimensions as of the first tensor"));
    }
    let left_labels: Vec<Label> = (0..left_rank as Label).collect();
    let right_label = |dim: usize| match right_dims.iter().position(|known| *known == dim) {
        Some(at) => left_dims.get(at).map_or(0, |dim| *dim as Label),
        None => (left_rank + dim) as Label,
    };
    let right_labels: Vec<Label> = (0..right_rank).map(right_label).collect();
    let free_left = left_labels.iter().filter(|label| !left_dims.contains(&(**label as usize)));
    let free_right = right_labels.iter().filter(|label| **label >= left_rank as Label);
    let output: Vec<Label> = free_left.chain(free_right).copied().collect();
    sum_of_products(b, vec![(left, left_labels), (right, right_labels)], &output).map(|value| Some(vec![value]))
}

/// `input1[…, i] weight[o, i, j] input2[…, j] + bias[o]`.
fn bilinear(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    const I: Label = 0;
    const J: Label = 1;
    const OUT: Label = 2;
    let (first, second) = (operands.value(0)?, operands.value(1)?);
    let rank = b.tensor(first)?.rank();
    let lead: Vec<Label> = (0..rank.saturating_sub(1) as Label).map(|dim| dim + 3).collect();
    let with = |last: Label| [lead.as_slice(), &[last]].concat();
    let terms = vec![(first, with(I)), (operands.value(2)?, vec![OUT, I, J]), (second, with(J))];
    let product = sum_of_products(b, terms, &with(OUT))?;
    match operands.optional(3)? {
        Some(bias) => b.call(aten::ADD_TENSOR, vec![product.into(), bias.into()]).map(Some),
        None => Ok(Some(vec![product])),
    }
}

/// The product of three tensors with new dimensions of one element, summed over some.
fn trilinear(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let sum = operands.ints(6)?;
    let mut terms = Vec::new();
    let mut rank = 0;
    for index in 0..3 {
        let (value, new) = (operands.value(index)?, operands.ints(index + 3)?);
        rank = b.tensor(value)?.rank() + new.len();
        let old = (0..rank as Label).filter(|dim| !new.contains(&i64::from(*dim))).collect();
        terms.push((value, old));
    }
    let output: Vec<Label> = (0..rank as Label).filter(|dim| !sum.contains(&i64::from(*dim))).collect();
    sum_of_products(b, terms, &output).map(|value| Some(vec![value]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equations_are_read() {
        let letter = |c: char| c as Label;
        let (inputs, output) = parse("b i h, bjh -> b i j", &[3, 3]).unwrap();
        assert_eq!(inputs, [vec![letter('b'), letter('i'), letter('h')], vec![letter('b'), letter('j'), letter('h')]]);
        assert_eq!(output, [letter('b'), letter('i'), letter('j')]);
        let (_, output) = parse("ij,jk", &[2, 2]).unwrap();
        assert_eq!(output, [letter('i'), letter('k')]);
        let (inputs, output) = parse("...ij,...jk", &[4, 3]).unwrap();
        assert_eq!(inputs[1][0], ELLIPSIS);
        assert_eq!(output, [ELLIPSIS + 1, ELLIPSIS, letter('i'), letter('k')]);
        for (equation, ranks) in [("ij,jk->il", [2, 2]), ("ij->", [2, 2]), ("i1,jk", [2, 2]), ("ijk,jk", [2, 2])] {
            assert!(parse(equation, &ranks).is_none(), "{equation}");
        }
    }
}
