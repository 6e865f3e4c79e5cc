//! The tables of `program.fbs`, field by field.

use crate::flatbuf::Field;

/// Names the fields of a table: constant, slot, name in the schema.
macro_rules! table {
    ($table:literal: $($constant:ident = $slot:literal $name:literal),* $(,)?) => {
        $(pub(super) const $constant: Field = Field::new($slot, $table, $name);)*
    };
}

table! { "Program":
    PROGRAM_ROOT = 0 "root",
    PROGRAM_VERSION = 0 "version",
    PROGRAM_EXECUTION_PLAN = 1 "execution_plan",
    PROGRAM_CONSTANT_BUFFER = 2 "constant_buffer",
    PROGRAM_BACKEND_DELEGATE_DATA = 3 "backend_delegate_data",
    PROGRAM_SEGMENTS = 4 "segments",
    PROGRAM_CONSTANT_SEGMENT = 5 "constant_segment",
    PROGRAM_MUTABLE_DATA_SEGMENTS = 6 "mutable_data_segments",
    PROGRAM_NAMED_DATA = 7 "named_data",
}

table! { "SubsegmentOffsets":
    SUBSEGMENT_SEGMENT_INDEX = 0 "segment_index",
    SUBSEGMENT_OFFSETS = 1 "offsets",
}

table! { "NamedData":
    NAMED_KEY = 0 "key",
    NAMED_SEGMENT_INDEX = 1 "segment_index",
}

table! { "Buffer":
    BUFFER_STORAGE = 0 "storage",
}

table! { "BackendDelegateInlineData":
    INLINE_DATA = 0 "data",
}

table! { "ExecutionPlan":
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

table! { "ContainerMetadata":
    CONTAINER_INPUT = 0 "encoded_inp_str",
    CONTAINER_OUTPUT = 1 "encoded_out_str",
}

table! { "NonConstBufferDevice":
    BUFFER_DEVICE_ID = 0 "buffer_idx",
    BUFFER_DEVICE_TYPE = 1 "device_type",
    BUFFER_DEVICE_INDEX = 2 "device_index",
}

// Readers skip these, which repeat the plan's; writers leave them empty.
#[cfg(feature = "alloc")]
table! { "Chain":
    CHAIN_INPUTS = 0 "inputs",
    CHAIN_OUTPUTS = 1 "outputs",
}

table! { "Chain":
    CHAIN_INSTRUCTIONS = 2 "instructions",
    CHAIN_STACKTRACE = 3 "stacktrace",
}

table! { "Operator":
    OPERATOR_NAME = 0 "name",
    OPERATOR_OVERLOAD = 1 "overload",
}

table! { "BackendDelegate":
    DELEGATE_ID = 0 "id",
    DELEGATE_PROCESSED = 1 "processed",
    DELEGATE_COMPILE_SPECS = 2 "compile_specs",
}

table! { "BackendDelegateDataReference":
    PAYLOAD_LOCATION = 0 "location",
    PAYLOAD_INDEX = 1 "index",
}

table! { "CompileSpec":
    SPEC_KEY = 0 "key",
    SPEC_VALUE = 1 "value",
}

table! { "FrameList":
    FRAME_LIST_ITEMS = 0 "items",
}

table! { "Frame":
    FRAME_FILENAME = 0 "filename",
    FRAME_LINENO = 1 "lineno",
    FRAME_NAME = 2 "name",
    FRAME_CONTEXT = 3 "context",
}

table! { "EValue":
    VALUE_TYPE = 0 "val_type",
    VALUE_VALUE = 1 "val",
}

table! { "Int":
    INT_VAL = 0 "int_val",
}

table! { "Bool":
    BOOL_VAL = 0 "bool_val",
}

table! { "Double":
    DOUBLE_VAL = 0 "double_val",
}

table! { "String":
    STRING_VAL = 0 "string_val",
}

table! { "List":
    LIST_ITEMS = 0 "items",
}

table! { "Tensor":
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

table! { "AllocationDetails":
    ALLOCATION_MEMORY_ID = 0 "memory_id",
    ALLOCATION_OFFSET_LOW = 1 "memory_offset_low",
    ALLOCATION_OFFSET_HIGH = 2 "memory_offset_high",
}

table! { "ExtraTensorInfo":
    EXTRA_FULLY_QUALIFIED_NAME = 1 "fully_qualified_name",
    EXTRA_LOCATION = 2 "location",
    EXTRA_DEVICE_TYPE = 3 "device_type",
    EXTRA_DEVICE_INDEX = 4 "device_index",
}

table! { "Instruction":
    INSTRUCTION_ARGS_TYPE = 0 "instr_args_type",
    INSTRUCTION_ARGS = 1 "instr_args",
}

table! { "KernelCall":
    KERNEL_CALL_OP_INDEX = 0 "op_index",
    KERNEL_CALL_ARGS = 1 "args",
}

table! { "DelegateCall":
    DELEGATE_CALL_INDEX = 0 "delegate_index",
    DELEGATE_CALL_ARGS = 1 "args",
}

table! { "MoveCall":
    MOVE_FROM = 0 "move_from",
    MOVE_TO = 1 "move_to",
}

table! { "JumpFalseCall":
    JUMP_COND = 0 "cond_value_index",
    JUMP_DESTINATION = 1 "destination_instruction",
}

table! { "FreeCall":
    FREE_VALUE = 0 "value_index",
}
