//! Linear layers, norms and the small operators that all layers consist of.

use rushlight_format::ScalarType;

use rushlight_checkpoint::Tensor;
use rushlight_graph::operators::aten;
use rushlight_graph::{Arg, Builder, Constant, Error, Expr, Origin, TensorType, ValueId};

use super::Build;
use crate::lora::{Adapted, Linear};

impl Build<'_> {
    /// Adds a linear layer, with a bias if the checkpoint has one. Without a given number of outputs, the weight's
    /// number is used.
    pub(super) fn linear(
        &mut self,
        x: ValueId,
        module: &str,
        inputs: usize,
        outputs: Option<usize>,
    ) -> Result<ValueId, Error> {
        let name = format!("{module}.weight");
        let outputs = match outputs {
            Some(outputs) => outputs,
            None => self.tensors.take_optional(&name).and_then(|tensor| tensor.sizes.first().copied()).unwrap_or(1),
        };
        let weight = self.weight(&name, &[outputs, inputs])?;
        let bias = self.optional_bias(module, outputs)?;
        let y = self.call(module, aten::LINEAR, vec![x.into(), weight.into(), bias])?;
        let Some((module, kind)) = self.decoder.published_linear(module) else { return Ok(y) };
        let adapted = self.adapted.get(&module).copied();
        self.linears.push(Linear { module, kind, inputs, outputs });
        match adapted {
            Some(adapted) => self.adapt(x, y, adapted),
            None => Ok(y),
        }
    }

    /// Adds the low-rank update of a layer to its output. The matrices of all layers of its kind are in one input.
    fn adapt(&mut self, x: ValueId, y: ValueId, adapted: Adapted) -> Result<ValueId, Error> {
        let mut row = x;
        for matrices in [adapted.a, adapted.b] {
            let matrix = self.call("", aten::SELECT_COPY_INT, vec![matrices.into(), 0.into(), adapted.index.into()])?;
            row = self.call("", aten::LINEAR, vec![row.into(), matrix.into(), Arg::None])?;
        }
        self.call("", aten::ADD_TENSOR, vec![y.into(), row.into()])
    }

    pub(super) fn optional_bias(&mut self, module: &str, outputs: usize) -> Result<Arg, Error> {
        let Some(bias) = self.tensors.take_optional(&format!("{module}.bias")) else { return Ok(Arg::None) };
        let bias = dense(bias.of_sizes(&[outputs])?, |x| x)?;
        Ok(self.constant(bias).into())
    }

    pub(super) fn optional_norm(&mut self, x: ValueId, module: Option<String>) -> Result<ValueId, Error> {
        match module {
            Some(module) => {
                let hidden = self.decoder.hidden;
                self.norm(x, &module, hidden)
            }
            None => Ok(x),
        }
    }

    /// Adds a root-mean-square norm over the last dimension.
    pub(super) fn norm(&mut self, x: ValueId, module: &str, width: usize) -> Result<ValueId, Error> {
        self.norm_with(x, module, width, self.decoder.norm_offset)
    }

    /// As [`norm`](Self::norm), with its own offset that is added to the weights.
    pub(super) fn norm_with(&mut self, x: ValueId, module: &str, width: usize, offset: f32) -> Result<ValueId, Error> {
        let weight = self.tensors.take(&format!("{module}.weight"), &[width])?;
        let weight = dense(weight, |x| x + offset)?;
        let eps = self.decoder.eps;
        let weight = self.constant(weight);
        self.call(module, aten::RMS_NORM, vec![x.into(), [width as i64].into(), weight.into(), eps.into()])
    }

    pub(super) fn scaled(&mut self, x: ValueId, factor: f64) -> Result<ValueId, Error> {
        if factor == 1.0 { Ok(x) } else { self.call("", aten::MUL_SCALAR, vec![x.into(), factor.into()]) }
    }

    /// Adds `cap * tanh(x / cap)`.
    pub(super) fn capped(&mut self, x: ValueId, cap: Option<f64>) -> Result<ValueId, Error> {
        let Some(cap) = cap else { return Ok(x) };
        let x = self.scaled(x, 1.0 / cap)?;
        let x = self.call("", aten::TANH, vec![x.into()])?;
        self.scaled(x, cap)
    }

    /// Splits the last dimension.
    pub(super) fn split<const N: usize>(&mut self, x: ValueId, widths: [usize; N]) -> Result<[ValueId; N], Error> {
        let widths: Vec<Expr> = widths.iter().map(|width| Expr::Int(*width as i64)).collect();
        let args = vec![x.into(), widths.into(), (-1).into()];
        let parts = self.builder("").call(aten::SPLIT_WITH_SIZES_COPY, args)?;
        parts.try_into().map_err(|_| Error::invalid(format!("a split that does not have {N} parts")))
    }

    /// Reshapes `[1, T, heads * columns]` to `[1, T, heads, columns]`.
    pub(super) fn in_heads(&mut self, x: ValueId, heads: usize, columns: usize) -> Result<ValueId, Error> {
        let sizes = [heads, columns].map(|size| Expr::Int(size as i64));
        self.view(x, [vec![1.into(), Expr::Symbol(self.length)], sizes.to_vec()].concat())
    }

    pub(super) fn permute<const N: usize>(&mut self, x: ValueId, dims: [i64; N]) -> Result<ValueId, Error> {
        self.call("", aten::PERMUTE_COPY, vec![x.into(), dims.into()])
    }

    pub(super) fn view(&mut self, x: ValueId, shape: Vec<Expr>) -> Result<ValueId, Error> {
        self.call("", aten::VIEW_COPY, vec![x.into(), shape.into()])
    }

    /// Returns the size of the last dimension.
    pub(super) fn width(&self, x: ValueId) -> Result<usize, Error> {
        let width = self.graph.tensor(x)?.shape.last().and_then(Expr::as_int);
        width.and_then(|width| usize::try_from(width).ok()).ok_or_else(|| Error::invalid("a tensor without a width"))
    }

    pub(super) fn weight(&mut self, name: &str, sizes: &[usize]) -> Result<ValueId, Error> {
        let constant = self.tensors.take(name, sizes)?.constant();
        Ok(self.constant(constant))
    }

    /// Returns the value of a constant, which another method may have added already.
    pub(super) fn constant(&mut self, constant: Constant) -> ValueId {
        let constants = &mut self.model.constants;
        let id = *self.named.constants.entry(constant.name.clone()).or_insert_with(|| constants.push(constant));
        self.graph.constant(id, &self.model.constants)
    }

    /// Adds a call of an operator with one result, in a module.
    pub(super) fn call(&mut self, module: &str, name: &str, args: Vec<Arg>) -> Result<ValueId, Error> {
        self.builder(module).one(name, args)
    }

    pub(super) fn builder(&mut self, module: &str) -> Builder<'_> {
        let (body, origin) = (self.graph.body, self.graph.origins.push(origin(module)));
        Builder::new(&mut self.graph, &mut self.model.constants, &self.model.schemas, body, origin)
    }
}

pub(super) fn origin(module: &str) -> Origin {
    Origin { module: module.to_owned(), ..Origin::default() }
}

/// Decodes a small weight to floats, and applies a function to each.
pub(super) fn dense(tensor: Tensor, function: impl Fn(f32) -> f32) -> Result<Constant, Error> {
    let sizes: Vec<i64> = tensor.sizes.iter().map(|size| *size as i64).collect();
    let bytes: Vec<u8> = tensor.floats().iter().flat_map(|x| function(*x).to_le_bytes()).collect();
    Constant::dense(tensor.name, TensorType::of(ScalarType::Float, &sizes), bytes)
}
