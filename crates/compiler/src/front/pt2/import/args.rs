//! Arguments of nodes.

use rushlight_graph::Error;
use rushlight_graph::{Arg, Expr, Layout, MemoryFormat, ValueId};

use super::super::schema::{
    self, Argument, Graph as Source, OptionalTensorArgument, SymBoolArgument, SymFloatArgument, SymInt, SymIntArgument,
};
use super::{Binding, Importer, Scope, unknown_name};

impl<'a> Importer<'_, '_, 'a> {
    /// An argument of a node in a graph of the program.
    pub(super) fn argument(&mut self, scope: &Scope, source: &Source<'a>, arg: &Argument<'a>) -> Result<Arg, Error> {
        let named = |name: &str| value_named(scope, name).map(Arg::Value);
        Ok(match arg {
            Argument::Tensor(tensor) => named(&tensor.name)?,
            Argument::OptionalTensor(OptionalTensorArgument::Tensor(tensor)) => named(&tensor.name)?,
            Argument::Tensors(tensors) => {
                // Operands of control flow are written as tensors, though some may be numbers.
                let item = |name: &str| match scope.get(name) {
                    Some(Binding::Arg(arg)) => Ok(arg.clone()),
                    _ => named(name),
                };
                Arg::List(tensors.iter().map(|tensor| item(&tensor.name)).collect::<Result<_, _>>()?)
            }
            Argument::OptionalTensors(tensors) => {
                let item = |tensor: &OptionalTensorArgument<'_>| match tensor {
                    OptionalTensorArgument::Tensor(tensor) => named(&tensor.name),
                    _ => Ok(Arg::None),
                };
                Arg::List(tensors.iter().map(item).collect::<Result<_, _>>()?)
            }
            Argument::SymInt(int) => self.sym_int_arg(scope, source, int)?,
            Argument::SymInts(ints) => {
                Arg::List(ints.iter().map(|int| self.sym_int_arg(scope, source, int)).collect::<Result<_, _>>()?)
            }
            Argument::SymFloat(SymFloatArgument::Name(name)) | Argument::SymBool(SymBoolArgument::Name(name)) => {
                scalar_named(scope, name)?
            }
            Argument::SymFloats(floats) => {
                let item = |float: &SymFloatArgument<'_>| match float {
                    SymFloatArgument::Name(name) => scalar_named(scope, name),
                    SymFloatArgument::Float(float) => Ok(Arg::Float(*float)),
                    SymFloatArgument::Unknown { tag } => Err(unknown_kind(tag)),
                };
                Arg::List(floats.iter().map(item).collect::<Result<_, _>>()?)
            }
            other => literal(other)?,
        })
    }

    fn sym_int_arg(&mut self, scope: &Scope, source: &Source<'a>, int: &SymIntArgument<'a>) -> Result<Arg, Error> {
        match int {
            SymIntArgument::Int(value) => Ok(Arg::from(*value)),
            SymIntArgument::Name(name) => match scope.get(&**name) {
                Some(Binding::Arg(arg)) => Ok(arg.clone()),
                _ => self.sym_int(source, name).map(Arg::Int),
            },
            SymIntArgument::Unknown { tag } => Err(unknown_kind(tag)),
        }
    }

    /// The expression of a name; a symbol of its own if the expression is not understood.
    pub(super) fn sym_int(&mut self, source: &Source<'a>, name: &str) -> Result<Expr, Error> {
        match source.sym_int_values.get(name) {
            Some(SymInt::Int(value)) => Ok(Expr::Int(*value)),
            Some(SymInt::Expr(text)) => Ok(self.sizes.parse(&text.expr_str).unwrap_or_else(|| self.sizes.opaque(name))),
            Some(SymInt::Unknown { tag }) => Err(unknown_kind(tag)),
            None => Err(unknown_name(name)),
        }
    }
}

/// The value of a name, which must be that of an input or result.
pub(super) fn value_named(scope: &Scope, name: &str) -> Result<ValueId, Error> {
    match scope.get(name) {
        Some(Binding::Arg(Arg::Value(value))) => Ok(*value),
        Some(Binding::Subclass(subclass)) => {
            Err(Error::unsupported(format!("`{name}` is a tensor of class {}", subclass.class)).help(
                "unwrap the model's tensor subclasses before exporting: torchao.utils.unwrap_tensor_subclass(model)",
            ))
        }
        _ => Err(unknown_name(name)),
    }
}

/// The number or truth value of a name.
fn scalar_named(scope: &Scope, name: &str) -> Result<Arg, Error> {
    match scope.get(name) {
        Some(Binding::Arg(arg)) => Ok(arg.clone()),
        _ => Err(unknown_name(name)),
    }
}

/// An argument that names nothing.
pub(super) fn literal(arg: &Argument<'_>) -> Result<Arg, Error> {
    Ok(match arg {
        Argument::None | Argument::OptionalTensor(OptionalTensorArgument::None) => Arg::None,
        Argument::Int(int) | Argument::SymInt(SymIntArgument::Int(int)) => Arg::from(*int),
        Argument::Ints(ints) => Arg::from(ints.as_slice()),
        Argument::Float(float) | Argument::SymFloat(SymFloatArgument::Float(float)) => Arg::Float(*float),
        Argument::Floats(floats) => Arg::List(floats.iter().map(|float| Arg::Float(*float)).collect()),
        Argument::Bool(bool) | Argument::SymBool(SymBoolArgument::Bool(bool)) => Arg::Bool(*bool),
        Argument::Bools(bools) => Arg::List(bools.iter().map(|bool| Arg::Bool(*bool)).collect()),
        Argument::String(text) => Arg::Str(text.to_string()),
        Argument::Strings(texts) => Arg::List(texts.iter().map(|text| Arg::Str(text.to_string())).collect()),
        Argument::ScalarType(code) => {
            Arg::DType(code.scalar_type().ok_or_else(|| {
                Error::unsupported("a dtype that programs cannot hold").got(format!("code {}", code.0))
            })?)
        }
        Argument::MemoryFormat(format) => Arg::MemoryFormat(match *format {
            schema::MemoryFormat::CHANNELS_LAST => MemoryFormat::ChannelsLast,
            schema::MemoryFormat::CHANNELS_LAST_3D => MemoryFormat::ChannelsLast3d,
            schema::MemoryFormat::PRESERVE => MemoryFormat::Preserve,
            _ => MemoryFormat::Contiguous,
        }),
        Argument::Layout(layout) => {
            Arg::Layout(if *layout == schema::Layout::STRIDED { Layout::Strided } else { Layout::Sparse })
        }
        Argument::Device(device) => Arg::Device(device.kind.to_string()),
        Argument::Complex(complex) => Arg::Complex(complex.real, complex.imag),
        Argument::IntLists(lists) => Arg::List(lists.iter().map(|ints| Arg::from(ints.as_slice())).collect()),
        other => return Err(Error::unsupported(format!("an argument of the kind `{}`", other.tag()))),
    })
}

fn unknown_kind(tag: &str) -> Error {
    Error::unsupported(format!("a value of the unknown kind `{tag}`"))
        .help("the archive is from a newer torch than this reader knows")
}
