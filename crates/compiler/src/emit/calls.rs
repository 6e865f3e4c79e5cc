//! Calls of operators, by their out variants.

use rushlight_format::pte::{InstructionModel, ValueModel};

use rushlight_graph::Error;
use rushlight_graph::operators::aten;
use rushlight_graph::{Arg, Kind, Node, Schema, Type, ValueId};

use super::method::Method;

/// Operators that runtimes have under their own name: they compute numbers, which programs hold as values.
fn computes_numbers(name: &str) -> bool {
    name.starts_with("executorch_prim::") || name.starts_with("aten::sym_") || name == aten::_LOCAL_SCALAR_DENSE
}

impl Method<'_> {
    /// A call of an operator that has a schema.
    pub fn call(&mut self, schema: &Schema, node: &Node) -> Result<(), Error> {
        match schema.name.as_str() {
            aten::VIEW_COPY if self.view_of_known_size(node)? => return Ok(()),
            _ if self.updating_call(node)? => return Ok(()),
            name if computes_numbers(name) => {
                let mut args = node.args.iter().map(|arg| self.argument(arg)).collect::<Result<Vec<_>, _>>()?;
                for result in &node.results {
                    args.push(self.value(*result)?);
                }
                self.kernel(name, args);
                return Ok(());
            }
            _ => {}
        }
        let no_variant = || {
            Error::unsupported(format!("operator `{}` writes to no memory that it is given", schema.name))
                .help("register an out variant of the operator, or decompose it before exporting")
        };
        // PyTorch describes operators of torchvision without the variant that programs call.
        let described;
        let schema = match schema.out_variant {
            None if schema.name.starts_with("torchvision::") => {
                described = schema.clone().with_out_variant();
                &described
            }
            _ => schema,
        };
        let name = schema.out_variant.as_deref().ok_or_else(no_variant)?;
        let out = self.model.schemas.get(name).unwrap_or_else(|| opaque_out_variant(schema, name).into());
        let mut args = Vec::with_capacity(out.params.len() + 1);
        let mut results = node.results.iter().copied();
        let mut written = Vec::new();
        for param in &out.params {
            if let Some(arg) = schema.position(&param.name).and_then(|at| node.args.get(at)) {
                args.push(self.argument_of(&param.kind, arg)?);
            } else if param.kind == Kind::Tensor {
                let result = results.next().ok_or_else(no_variant)?;
                let value = self.value(result)?;
                written.push(value);
                args.push(value);
            } else {
                let items = self.values(&mut results)?;
                let list = self.push(ValueModel::TensorList(items));
                written.push(list);
                args.push(list);
            }
        }
        args.push(match written.as_slice() {
            [one] => *one,
            _ => self.push(ValueModel::TensorList(written)),
        });
        self.kernel(name, args);
        Ok(())
    }

    fn values(&mut self, ids: &mut impl Iterator<Item = ValueId>) -> Result<Vec<u32>, Error> {
        ids.map(|id| self.value(id)).collect()
    }

    /// A view whose sizes are known needs no instruction; one whose sizes change with the inputs sets them. Returns
    /// whether the view could be made.
    fn view_of_known_size(&mut self, node: &Node) -> Result<bool, Error> {
        let (Some(Arg::Value(base)), Some(result)) = (node.args.first(), node.result()) else { return Ok(false) };
        let (from, to) = (self.graph.tensor(*base)?, self.graph.tensor(result)?);
        if !from.is_contiguous() || !to.is_contiguous() || from.dtype != to.dtype {
            return Ok(false);
        }
        let is_static = from.static_sizes().is_some() && to.static_sizes().is_some();
        let base = self.value(*base)?;
        // Memory of the caller's is known only when the method runs.
        let is_given = !self.options.plan_inputs && self.plan.inputs.contains(&base);
        if is_static && !is_given {
            self.view(result, base)?;
            return Ok(true);
        }
        let size = node.args.get(1).cloned().unwrap_or(Arg::None);
        let size = self.argument_of(&Kind::List(Box::new(Kind::Int), None), &size)?;
        let view = self.view(result, base)?;
        let operator = self.plan.operator("executorch_prim::et_view", "default");
        self.emit(InstructionModel::Kernel { operator, args: vec![base, size, view] });
        Ok(true)
    }

    /// The program's value of an argument for a parameter of this kind.
    pub fn argument_of(&mut self, kind: &Kind, arg: &Arg) -> Result<u32, Error> {
        match (kind, arg) {
            (Kind::Optional(_), Arg::None) => Ok(self.none()),
            (Kind::Optional(inner), arg) => self.argument_of(inner, arg),
            (Kind::Float, Arg::Int(expr)) if expr.is_static() => Ok(self.double(expr.as_int().unwrap_or(0) as f64)),
            (Kind::Float, Arg::Bool(bool)) => Ok(self.double(f64::from(u8::from(*bool)))),
            (Kind::Int, Arg::Bool(bool)) => Ok(self.int(i64::from(*bool))),
            (Kind::Bool, Arg::Int(expr)) if expr.is_static() => Ok(self.bool(!expr.is(0))),
            (Kind::List(item, _), Arg::List(items)) => self.list_of(item, items),
            // One number stands for all.
            (Kind::List(item, Some(length)), arg) => self.list_of(item, &vec![arg.clone(); *length as usize]),
            (_, arg) => self.argument(arg),
        }
    }

    fn list_of(&mut self, item: &Kind, items: &[Arg]) -> Result<u32, Error> {
        let value = match item {
            Kind::Int => ValueModel::IntList(items.iter().map(|item| self.argument(item)).collect::<Result<_, _>>()?),
            Kind::Tensor => {
                ValueModel::TensorList(items.iter().map(|item| self.argument(item)).collect::<Result<_, _>>()?)
            }
            Kind::Optional(_) => {
                let item = |arg: &Arg| if arg.is_none() { Ok(None) } else { self.argument(arg).map(Some) };
                ValueModel::OptionalTensorList(items.iter().map(item).collect::<Result<_, _>>()?)
            }
            Kind::Float if items.is_empty() => ValueModel::DoubleList(Vec::new()),
            Kind::Bool if items.is_empty() => ValueModel::BoolList(Vec::new()),
            _ => return self.argument(&Arg::List(items.to_vec())),
        };
        Ok(self.push(value))
    }
}

/// The out variant of an operator that no table knows: its parameters, then one tensor for each result.
fn opaque_out_variant(schema: &Schema, name: &str) -> Schema {
    let mut out = Schema { name: name.into(), ..schema.clone() };
    for (index, kind) in schema.returns.iter().enumerate() {
        let template = rushlight_graph::Param {
            name: format!("out{index}"),
            kind: kind.clone(),
            default: None,
            writes: true,
            aliased: true,
        };
        out.params.push(template);
    }
    out
}

/// True if a value is a tensor.
pub(super) const fn is_tensor(ty: &Type) -> bool {
    matches!(ty, Type::Tensor(_))
}
