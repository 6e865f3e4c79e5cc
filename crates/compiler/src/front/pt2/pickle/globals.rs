//! The functions and classes that a pickle may name.

use std::sync::Arc;

use rushlight_format::ScalarType;

/// A function or class that pickles may name.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Global {
    /// `torch._utils._rebuild_tensor_v2(storage, offset, size, stride, requires_grad, hooks, metadata=None)`.
    RebuildTensorV2,
    /// `torch._utils._rebuild_tensor_v3(storage, offset, size, stride, requires_grad, hooks, dtype, metadata=None)`.
    RebuildTensorV3,
    /// `torch._utils._rebuild_parameter(data, requires_grad, hooks)`.
    RebuildParameter,
    /// `torch._utils._rebuild_parameter_with_state(data, requires_grad, hooks, state)`. `state` has the attributes that
    /// Python code set on the parameter.
    RebuildParameterWithState,
    /// `torch._tensor._rebuild_from_type_v2(function, type, arguments, state)`.
    RebuildFromType,
    /// `torch._utils._rebuild_wrapper_subclass(class, dtype, size, stride, offset, layout, device, requires_grad)`.
    RebuildWrapperSubclass,
    /// `torch.serialization._get_layout(name)`.
    GetLayout,
    /// `collections.OrderedDict()`.
    OrderedDict,
    /// `torch.Size(sizes)`.
    Size,
    /// `torch.device(type, index)`.
    Device,
    /// A class of storages, with its element type; `None` for `UntypedStorage`, which counts bytes.
    Storage(Option<ScalarType>),
    /// A constant of torch: an element type, a layout or a memory format.
    Constant(Arc<str>),
    /// `torch.Tensor`, `torch.nn.Parameter` or `torch.nn.Buffer`: read as the plain tensor.
    Tensor,
    /// A class whose instances are kept as data.
    Class(Arc<str>),
}

/// Classes of torchao: tensor subclasses and their settings.
const CLASS_PREFIXES: [&str; 2] = ["torchao.quantization.", "torchao.dtypes."];

impl Global {
    /// Looks up `module.name`; `None` if it is not allowed.
    pub(super) fn named(module: &str, name: &str) -> Option<Self> {
        Some(match (module, name) {
            ("torch._utils", "_rebuild_tensor_v2") => Self::RebuildTensorV2,
            ("torch._utils", "_rebuild_tensor_v3") => Self::RebuildTensorV3,
            ("torch._utils", "_rebuild_parameter") => Self::RebuildParameter,
            ("torch._utils", "_rebuild_parameter_with_state") => Self::RebuildParameterWithState,
            ("torch._utils", "_rebuild_wrapper_subclass") => Self::RebuildWrapperSubclass,
            ("torch._tensor", "_rebuild_from_type_v2") => Self::RebuildFromType,
            ("torch.serialization", "_get_layout") => Self::GetLayout,
            ("collections", "OrderedDict") => Self::OrderedDict,
            ("torch", "Size") => Self::Size,
            ("torch", "device") => Self::Device,
            ("torch.storage", "UntypedStorage") => Self::Storage(None),
            ("torch", "Tensor") | ("torch.nn.parameter", "Parameter" | "Buffer") => Self::Tensor,
            ("torch", name) => {
                if let Some(elements) = name.strip_suffix("Storage") {
                    Self::Storage(Some(storage_type(elements)?))
                } else if is_constant(name) {
                    Self::Constant(format!("torch.{name}").into())
                } else {
                    return None;
                }
            }
            _ => {
                let full = format!("{module}.{name}");
                let is_plain = full.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'.');
                // Names of classes begin with a capital. Functions are refused.
                let is_class = name.starts_with(|first: char| first.is_ascii_uppercase());
                if !(is_plain && is_class && CLASS_PREFIXES.iter().any(|prefix| full.starts_with(prefix))) {
                    return None;
                }
                Self::Class(full.into())
            }
        })
    }
}

fn storage_type(elements: &str) -> Option<ScalarType> {
    Some(match elements {
        "Byte" => ScalarType::Byte,
        "Char" => ScalarType::Char,
        "Short" => ScalarType::Short,
        "Int" => ScalarType::Int,
        "Long" => ScalarType::Long,
        "Half" => ScalarType::Half,
        "Float" => ScalarType::Float,
        "Double" => ScalarType::Double,
        "ComplexFloat" => ScalarType::ComplexFloat,
        "ComplexDouble" => ScalarType::ComplexDouble,
        "Bool" => ScalarType::Bool,
        "BFloat16" => ScalarType::BFloat16,
        _ => return None,
    })
}

/// Element types (also those without a [`ScalarType`]), layouts and memory formats.
fn is_constant(name: &str) -> bool {
    let is_sized = |prefix| {
        name.strip_prefix(prefix).is_some_and(|rest: &str| rest.starts_with(|first: char| first.is_ascii_digit()))
    };
    ["int", "uint", "float", "bfloat", "complex"].into_iter().any(is_sized)
        || matches!(name, "bool" | "half" | "double" | "float" | "long" | "int" | "short" | "strided")
        || matches!(name, "contiguous_format" | "channels_last" | "channels_last_3d" | "preserve_format")
}

/// The element type that a constant names.
pub(super) fn dtype(constant: &str) -> Option<ScalarType> {
    Some(match constant.strip_prefix("torch.")? {
        "uint8" => ScalarType::Byte,
        "int8" => ScalarType::Char,
        "int16" | "short" => ScalarType::Short,
        "int32" | "int" => ScalarType::Int,
        "int64" | "long" => ScalarType::Long,
        "float16" | "half" => ScalarType::Half,
        "float32" | "float" => ScalarType::Float,
        "float64" | "double" => ScalarType::Double,
        "complex32" => ScalarType::ComplexHalf,
        "complex64" => ScalarType::ComplexFloat,
        "complex128" => ScalarType::ComplexDouble,
        "bool" => ScalarType::Bool,
        "bfloat16" => ScalarType::BFloat16,
        "uint16" => ScalarType::UInt16,
        "uint32" => ScalarType::UInt32,
        "uint64" => ScalarType::UInt64,
        "float8_e4m3fn" => ScalarType::Float8E4M3Fn,
        "float8_e5m2" => ScalarType::Float8E5M2,
        "float8_e4m3fnuz" => ScalarType::Float8E4M3Fnuz,
        "float8_e5m2fnuz" => ScalarType::Float8E5M2Fnuz,
        _ => return None,
    })
}
