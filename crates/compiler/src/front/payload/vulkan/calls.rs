//! Calls of a payload, one by one.

use rushlight_format::ScalarType;
use rushlight_format::payload::vulkan::{Call, Value};
use rushlight_graph::operators::aten;
use rushlight_graph::{Arg, Error, Expr, Kind, Schema, ValueId};

use super::Site;
use super::values::{Values, cast};

/// Adds calls to the graph.
pub(super) struct Calls<'v, 'a> {
    pub site: &'v mut dyn Site,
    pub values: &'v mut Values<'a>,
}

/// Operators that only move tensors between layouts on the device, and copies.
const COPIES: [&str; 5] = [
    "et_vk.prepack.default",
    "aten.clone.default",
    "aten.alias_copy.default",
    "dim_order_ops._to_dim_order_copy.default",
    "dim_order_ops._clone_dim_order.default",
];

impl Calls<'_, '_> {
    /// Adds the operators that compute a call.
    pub fn add(&mut self, call: &Call<'_>) -> Result<(), Error> {
        let args: Vec<u32> = call.args.iter().map(|id| id as u32).collect();
        let Some((out, given)) = args.split_last() else { return Err(Error::invalid("a call without a result")) };
        match call.name {
            // `copy(self, src)` has the values of its second argument, the others of their first.
            "aten.copy.default" => self.copy(given.get(1), *out),
            name if COPIES.contains(&name) => self.copy(given.first(), *out),
            "sym_size.int" | "aten.sym_size.int" => self.sym_size(given, *out),
            "add" | "sub" | "mul" | "floordiv" => self.arithmetic(call.name, given, *out),
            // They compute nothing.
            "aten.sym_constrain_range_for_size.default" | "aten._assert_scalar.default" => Ok(()),
            name if name.starts_with("et_vk.") || name.starts_with("aten._weight_int8pack_mm") => {
                let value = self.fused(name, given, *out)?;
                self.write(*out, value)
            }
            name => self.operator(name, given, *out),
        }
    }

    fn copy(&mut self, from: Option<&u32>, out: u32) -> Result<(), Error> {
        let from = *from.ok_or_else(|| Error::invalid("a copy of nothing"))?;
        let value = self.values.tensor(from, self.site)?;
        self.write(out, value)
    }

    fn sym_size(&mut self, given: &[u32], out: u32) -> Result<(), Error> {
        let [of, dim] = given else { return Err(Error::invalid("a size of no dimension")) };
        let value = self.values.tensor(*of, self.site)?;
        let shape = &self.site.tensor(value)?.shape;
        let dim = match self.values.value(*dim)? {
            Value::Int(dim) if dim < 0 => dim + shape.len() as i64,
            Value::Int(dim) => dim,
            _ => return Err(Error::invalid("a size of a dimension that is no integer")),
        };
        let size = usize::try_from(dim).ok().and_then(|dim| shape.get(dim)).cloned();
        let size = size.ok_or_else(|| Error::invalid("a size of a missing dimension").got(dim))?;
        self.values.write(out, Arg::Int(size))
    }

    /// A Python operator on sizes.
    fn arithmetic(&mut self, name: &str, given: &[u32], out: u32) -> Result<(), Error> {
        let [a, b] = given else { return Err(Error::invalid("two integers were expected").got(given.len())) };
        let (Arg::Int(a), Arg::Int(b)) = (self.values.size(*a)?, self.values.size(*b)?) else {
            return Err(Error::invalid("arithmetic with sizes of what is no integer"));
        };
        let result: Expr = match name {
            "add" => a.add(b),
            "sub" => a.sub(b),
            "mul" => a.mul(b),
            _ if b.is(0) => return Err(Error::invalid("a division of a size by 0")),
            _ => a.floor_div(b),
        };
        self.values.write(out, Arg::Int(result))
    }

    /// An operator of PyTorch or ExecuTorch, whose schema says what its arguments are.
    fn operator(&mut self, name: &str, given: &[u32], out: u32) -> Result<(), Error> {
        let full = full_name(name);
        let schema =
            self.site.schema(&full).map_err(|_| Error::unsupported(format!("the operator {name} of Vulkan")))?;
        if given.len() != schema.params.len() {
            return Err(Error::invalid(format!("`{full}` has another number of arguments"))
                .expected(schema.params.len())
                .got(given.len()));
        }
        let outs: Vec<u32> = match self.values.value(out)? {
            Value::ValueList(outs) => outs.iter().map(|id| id as u32).collect(),
            _ => vec![out],
        };
        let dtypes = outs.iter().map(|out| Ok(self.values.tensor_value(*out)?.dtype));
        let dtypes = dtypes.collect::<Result<Vec<_>, Error>>()?;
        let dtype = *dtypes.first().ok_or_else(|| Error::invalid(format!("`{full}` has no result")))?;
        let mut args = Vec::with_capacity(given.len());
        for (param, id) in schema.params.iter().zip(given) {
            let arg = self.values.argument(&param.kind, *id, self.site)?;
            args.push(if is_scalar(&param.kind) { as_kind_of(arg, dtype) } else { arg });
        }
        self.add_dtypes(&schema, &mut args, &dtypes)?;
        let results = self.site.call(&full, args, &[])?;
        self.write_all(&full, &results, &outs)
    }

    /// Adds the types that a payload leaves out, as they are those of its tensors.
    fn add_dtypes(&self, schema: &Schema, args: &mut [Arg], results: &[ScalarType]) -> Result<(), Error> {
        let first = args.first().and_then(Arg::as_value);
        let input = first.map(|value| self.site.tensor(value)).transpose()?.map(|ty| ty.dtype);
        let is_dequantize = schema.base_name().contains("::dequantize_");
        let is_choice = schema.base_name().contains("::choose_qparams");
        for (param, arg) in schema.params.iter().zip(args) {
            let kind = if let Kind::Optional(kind) = &param.kind { kind } else { &param.kind };
            if *kind != Kind::DType {
                continue;
            }
            let dtype = match param.name.as_str() {
                "dtype" | "input_dtype" if is_dequantize => input,
                "zero_point_dtype" => results.get(1).copied(),
                // The delegate takes integers of 8 bits with a sign alone.
                "dtype" | "target_dtype" if is_choice => Some(ScalarType::Char),
                _ => results.first().copied(),
            };
            *arg = dtype.map_or(Arg::None, Arg::DType);
        }
        Ok(())
    }

    /// Lets numbers be the results of a call, in the types that the payload has for them.
    fn write_all(&mut self, name: &str, results: &[ValueId], outs: &[u32]) -> Result<(), Error> {
        if results.len() < outs.len() {
            return Err(Error::invalid(format!("`{name}` has other results")).expected(results.len()).got(outs.len()));
        }
        outs.iter().zip(results).try_for_each(|(out, value)| self.write(*out, *value))
    }

    fn write(&mut self, out: u32, value: ValueId) -> Result<(), Error> {
        let dtype = self.values.tensor_value(out)?.dtype;
        let value = cast(self.site, value, dtype)?;
        self.values.write(out, value.into())
    }

    /// Calls an operator with one result.
    pub fn one(&mut self, name: &str, args: Vec<Arg>) -> Result<ValueId, Error> {
        self.site.one(name, args)
    }
}

/// The name of an operator in schemas: `aten.add.Tensor` is `aten::add.Tensor`, and the default overload has no name.
fn full_name(name: &str) -> String {
    let name = name.strip_suffix(".default").unwrap_or(name);
    match name.split_once('.') {
        Some((namespace, rest)) => format!("{namespace}::{rest}"),
        None => name.to_owned(),
    }
}

fn is_scalar(kind: &Kind) -> bool {
    match kind {
        Kind::Optional(kind) => is_scalar(kind),
        kind => *kind == Kind::Scalar,
    }
}

/// A number as a float if the result is of floats, which an integer in the payload may stand for; as an integer if the result
/// is of integers.
fn as_kind_of(arg: Arg, dtype: ScalarType) -> Arg {
    match arg {
        Arg::Int(Expr::Int(int)) if dtype.is_floating() => Arg::Float(int as f64),
        Arg::Float(float) if dtype.is_integral(false) && float == float.trunc() && float.abs() < 9e15 => {
            (float as i64).into()
        }
        arg => arg,
    }
}

/// The last dimension's size, which must be known.
pub(super) fn last_size(calls: &Calls<'_, '_>, value: ValueId) -> Result<Expr, Error> {
    let last = calls.site.tensor(value)?.shape.last().cloned();
    last.ok_or_else(|| Error::invalid("a tensor without dimensions"))
}

/// Clamps numbers; an infinite bound is none.
pub(super) fn clamped(calls: &mut Calls<'_, '_>, value: ValueId, bounds: [Option<f64>; 2]) -> Result<ValueId, Error> {
    let arg = |bound: Option<f64>| bound.map_or(Arg::None, Arg::Float);
    match bounds {
        [None, None] => Ok(value),
        [Some(0.0), None] => calls.one(aten::RELU, vec![value.into()]),
        [min, max] => calls.one(aten::CLAMP, vec![value.into(), arg(min), arg(max)]),
    }
}
