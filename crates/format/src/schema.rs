//! The tables of the schemas that this crate reads and writes, field by field.

/// A field of a schema: the number of its table, and its slot in the table's vtable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Field(u16);

impl Field {
    /// `slot` is below 32.
    pub const fn new(table: u16, slot: u16) -> Self {
        Self(table << 5 | slot)
    }

    pub const fn slot(self) -> u16 {
        self.0 & 31
    }
}

/// Names fields: number of the table, its name, and for each field a constant, its slot and its name. Slot 31,
/// which no table reaches, stands for the table itself.
macro_rules! schema {
    ($names:ident $($id:literal $table:literal: { $($constant:ident = $slot:literal $name:literal,)* })*) => {
        $($(pub(crate) const $constant: Field = Field::new($id, $slot);)*)*

        /// The names of every field: of its table, and its own.
        pub(crate) const $names: &[(Field, &str, &str)] = &[$($(($constant, $table, $name),)*)*];
    };
}

schema! {
    NAMES
    63 "file": {
        FILE_SIZE = 0 "size",
    }
    // The parts of every container.
    0 "header": {
        HEADER_IDENTIFIER = 0 "identifier",
        HEADER_MAGIC = 1 "magic",
        HEADER_LENGTH = 2 "length",
        HEADER_PROGRAM_SIZE = 3 "program_size",
        HEADER_FLATBUFFER_OFFSET = 4 "flatbuffer_offset",
        HEADER_FLATBUFFER_SIZE = 5 "flatbuffer_size",
        HEADER_SEGMENT_BASE = 6 "segment_base_offset",
        HEADER_SEGMENT_SIZE = 7 "segment_data_size",
    }
    1 "DataSegment": {
        SEGMENT_OFFSET = 0 "offset",
        SEGMENT_SIZE = 1 "size",
    }
    // `program.fbs`.
    2 "Program": {
        PROGRAM_VERSION = 0 "version",
        PROGRAM_EXECUTION_PLAN = 1 "execution_plan",
        PROGRAM_CONSTANT_BUFFER = 2 "constant_buffer",
        PROGRAM_BACKEND_DELEGATE_DATA = 3 "backend_delegate_data",
        PROGRAM_SEGMENTS = 4 "segments",
        PROGRAM_CONSTANT_SEGMENT = 5 "constant_segment",
        PROGRAM_MUTABLE_DATA_SEGMENTS = 6 "mutable_data_segments",
        PROGRAM_NAMED_DATA = 7 "named_data",
        PROGRAM_ROOT = 31 "root",
    }
    3 "SubsegmentOffsets": {
        SUBSEGMENT_SEGMENT_INDEX = 0 "segment_index",
        SUBSEGMENT_OFFSETS = 1 "offsets",
    }
    4 "NamedData": {
        NAMED_KEY = 0 "key",
        NAMED_SEGMENT_INDEX = 1 "segment_index",
    }
    5 "Buffer": {
        BUFFER_STORAGE = 0 "storage",
    }
    6 "BackendDelegateInlineData": {
        INLINE_DATA = 0 "data",
    }
    7 "ExecutionPlan": {
        PLAN_NAME = 0 "name",
        PLAN_CONTAINER = 1 "container_meta_type",
        PLAN_VALUES = 2 "values",
        PLAN_INPUTS = 3 "inputs",
        PLAN_OUTPUTS = 4 "outputs",
        PLAN_CHAINS = 5 "chains",
        PLAN_OPERATORS = 6 "operators",
        PLAN_DELEGATES = 7 "delegates",
        PLAN_BUFFER_SIZES = 8 "non_const_buffer_sizes",
        PLAN_BUFFER_DEVICE = 9 "non_const_buffer_device",
    }
    8 "ContainerMetadata": {
        CONTAINER_INPUT = 0 "encoded_inp_str",
        CONTAINER_OUTPUT = 1 "encoded_out_str",
    }
    9 "NonConstBufferDevice": {
        BUFFER_DEVICE_ID = 0 "buffer_idx",
        BUFFER_DEVICE_TYPE = 1 "device_type",
        BUFFER_DEVICE_INDEX = 2 "device_index",
    }
    10 "Chain": {
        CHAIN_INPUTS = 0 "inputs",
        CHAIN_OUTPUTS = 1 "outputs",
        CHAIN_INSTRUCTIONS = 2 "instructions",
        CHAIN_STACKTRACE = 3 "stacktrace",
    }
    11 "Operator": {
        OPERATOR_NAME = 0 "name",
        OPERATOR_OVERLOAD = 1 "overload",
    }
    12 "BackendDelegate": {
        DELEGATE_ID = 0 "id",
        DELEGATE_PROCESSED = 1 "processed",
        DELEGATE_COMPILE_SPECS = 2 "compile_specs",
    }
    13 "BackendDelegateDataReference": {
        PAYLOAD_LOCATION = 0 "location",
        PAYLOAD_INDEX = 1 "index",
    }
    14 "CompileSpec": {
        SPEC_KEY = 0 "key",
        SPEC_VALUE = 1 "value",
    }
    15 "FrameList": {
        FRAME_LIST_ITEMS = 0 "items",
    }
    16 "Frame": {
        FRAME_FILENAME = 0 "filename",
        FRAME_LINENO = 1 "lineno",
        FRAME_NAME = 2 "name",
        FRAME_CONTEXT = 3 "context",
    }
    17 "EValue": {
        VALUE_TYPE = 0 "val_type",
        VALUE_VALUE = 1 "val",
    }
    18 "Int": {
        INT_VAL = 0 "int_val",
    }
    19 "Bool": {
        BOOL_VAL = 0 "bool_val",
    }
    20 "Double": {
        DOUBLE_VAL = 0 "double_val",
    }
    21 "String": {
        STRING_VAL = 0 "string_val",
    }
    22 "List": {
        LIST_ITEMS = 0 "items",
    }
    23 "Tensor": {
        TENSOR_SCALAR_TYPE = 0 "scalar_type",
        TENSOR_STORAGE_OFFSET = 1 "storage_offset",
        TENSOR_SIZES = 2 "sizes",
        TENSOR_DIM_ORDER = 3 "dim_order",
        TENSOR_REQUIRES_GRAD = 4 "requires_grad",
        TENSOR_DATA_BUFFER_IDX = 5 "data_buffer_idx",
        TENSOR_ALLOCATION = 6 "allocation_info",
        TENSOR_SHAPE_DYNAMISM = 8 "shape_dynamism",
        TENSOR_EXTRA = 9 "extra_tensor_info",
    }
    24 "AllocationDetails": {
        ALLOCATION_MEMORY_ID = 0 "memory_id",
        ALLOCATION_OFFSET_LOW = 1 "memory_offset_low",
        ALLOCATION_OFFSET_HIGH = 2 "memory_offset_high",
    }
    25 "ExtraTensorInfo": {
        EXTRA_FULLY_QUALIFIED_NAME = 1 "fully_qualified_name",
        EXTRA_LOCATION = 2 "location",
        EXTRA_DEVICE_TYPE = 3 "device_type",
        EXTRA_DEVICE_INDEX = 4 "device_index",
    }
    26 "Instruction": {
        INSTRUCTION_ARGS_TYPE = 0 "instr_args_type",
        INSTRUCTION_ARGS = 1 "instr_args",
    }
    27 "KernelCall": {
        KERNEL_CALL_OP_INDEX = 0 "op_index",
        KERNEL_CALL_ARGS = 1 "args",
    }
    28 "DelegateCall": {
        DELEGATE_CALL_INDEX = 0 "delegate_index",
        DELEGATE_CALL_ARGS = 1 "args",
    }
    29 "MoveCall": {
        MOVE_FROM = 0 "move_from",
        MOVE_TO = 1 "move_to",
    }
    30 "JumpFalseCall": {
        JUMP_COND = 0 "cond_value_index",
        JUMP_DESTINATION = 1 "destination_instruction",
    }
    31 "FreeCall": {
        FREE_VALUE = 0 "value_index",
    }
    // `flat_tensor.fbs`.
    32 "FlatTensor": {
        FLAT_VERSION = 0 "version",
        FLAT_SEGMENTS = 1 "segments",
        FLAT_NAMED_DATA = 2 "named_data",
        FLAT_ROOT = 31 "root",
    }
    33 "NamedData": {
        ENTRY_KEY = 0 "key",
        ENTRY_SEGMENT_INDEX = 1 "segment_index",
        ENTRY_LAYOUT = 2 "tensor_layout",
    }
    34 "TensorLayout": {
        LAYOUT_SCALAR_TYPE = 0 "scalar_type",
        LAYOUT_SIZES = 1 "sizes",
        LAYOUT_DIM_ORDER = 2 "dim_order",
    }
    // `flat_tensor.fbs` of ExecuTorch 0.6, whose root has other fields in the same slots.
    65 "FlatTensor": {
        FIRST_TENSORS = 2 "tensors",
        FIRST_SEGMENTS = 3 "segments",
        FIRST_NAMED_DATA = 4 "named_data",
    }
    66 "TensorMetadata": {
        METADATA_NAME = 0 "fully_qualified_name",
        METADATA_SCALAR_TYPE = 1 "scalar_type",
        METADATA_SIZES = 2 "sizes",
        METADATA_DIM_ORDER = 3 "dim_order",
        METADATA_SEGMENT_INDEX = 4 "segment_index",
        METADATA_OFFSET = 5 "offset",
    }
    // `bundled_program_schema.fbs`.
    35 "BundledProgram": {
        BUNDLE_VERSION = 0 "version",
        BUNDLE_SUITES = 1 "method_test_suites",
        BUNDLE_PROGRAM = 2 "program",
        BUNDLE_ROOT = 31 "root",
    }
    36 "BundledMethodTestSuite": {
        SUITE_METHOD_NAME = 0 "method_name",
        SUITE_CASES = 1 "test_cases",
    }
    37 "BundledMethodTestCase": {
        CASE_INPUTS = 0 "inputs",
        CASE_OUTPUTS = 1 "expected_outputs",
    }
    38 "Value": {
        BUNDLED_TYPE = 0 "val_type",
        BUNDLED_VALUE = 1 "val",
    }
    39 "Tensor": {
        BUNDLED_SCALAR_TYPE = 0 "scalar_type",
        BUNDLED_SIZES = 1 "sizes",
        BUNDLED_DATA = 2 "data",
        BUNDLED_DIM_ORDER = 3 "dim_order",
    }
}

#[cfg(feature = "payload")]
pub(crate) use schema;
