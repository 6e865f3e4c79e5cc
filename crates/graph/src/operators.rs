//! The operators' full names, as constants: `aten::ADD_TENSOR` is `aten::add.Tensor`. A name with a typing error does not
//! compile.

include!(concat!(env!("OUT_DIR"), "/operators.rs"));

/// Rushlight's own operators. They become PyTorch's if no backend computes them, so finished programs have none of
/// them.
pub mod rushlight {
    pub const DEQUANTIZE_INT4_ROWS: &str = "rushlight::dequantize_int4_rows";
    pub const EXPERTS_LINEAR: &str = "rushlight::experts_linear";
    pub const EXPERTS_MM: &str = "rushlight::experts_mm";
    pub const QUANTIZE_INT4_ROWS: &str = "rushlight::quantize_int4_rows";
    pub const QUANTIZE_ROWS: &str = "rushlight::quantize_rows";
}

/// Operators on numbers, views and stacks. They are part of the runtime, and PyTorch does not register them.
pub mod executorch_prim {
    pub const ADD_SCALAR: &str = "executorch_prim::add.Scalar";
    pub const ADD_INT: &str = "executorch_prim::add.int";
    pub const CEIL_SCALAR: &str = "executorch_prim::ceil.Scalar";
    pub const EQ_SCALAR: &str = "executorch_prim::eq.Scalar";
    pub const EQ_INT: &str = "executorch_prim::eq.int";
    pub const ET_COPY_INDEX_TENSOR: &str = "executorch_prim::et_copy_index.tensor";
    pub const ET_VIEW_DEFAULT: &str = "executorch_prim::et_view.default";
    pub const FLOORDIV_SCALAR: &str = "executorch_prim::floordiv.Scalar";
    pub const MOD_SCALAR: &str = "executorch_prim::mod.Scalar";
    pub const MUL_SCALAR: &str = "executorch_prim::mul.Scalar";
    pub const NEG_SCALAR: &str = "executorch_prim::neg.Scalar";
    pub const ROUND_SCALAR: &str = "executorch_prim::round.Scalar";
    pub const SUB_SCALAR: &str = "executorch_prim::sub.Scalar";
    pub const SYM_FLOAT_SCALAR: &str = "executorch_prim::sym_float.Scalar";
    pub const SYM_INT_SCALAR: &str = "executorch_prim::sym_int.Scalar";
    pub const SYM_ITE_SCALAR: &str = "executorch_prim::sym_ite.Scalar";
    pub const SYM_MAX_SCALAR: &str = "executorch_prim::sym_max.Scalar";
    pub const SYM_MIN_SCALAR: &str = "executorch_prim::sym_min.Scalar";
    pub const SYM_NOT_SCALAR: &str = "executorch_prim::sym_not.Scalar";
    pub const TRUEDIV_SCALAR: &str = "executorch_prim::truediv.Scalar";
    pub const TRUNC_SCALAR: &str = "executorch_prim::trunc.Scalar";
}
