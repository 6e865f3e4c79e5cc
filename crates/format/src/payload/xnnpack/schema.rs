//! The tables of the delegate's schema. Nodes of one shape share a table.

use crate::schema::Field;

crate::schema::schema! {
    NAMES
    41 "XNNGraph": {
        GRAPH_NODES = 1 "xnodes",
        GRAPH_VALUES = 2 "xvalues",
        GRAPH_CONSTANT_BUFFER = 6 "constant_buffer",
        GRAPH_CONSTANT_DATA = 8 "constant_data",
        GRAPH_ROOT = 31 "root",
    }
    42 "ConstantDataOffset": {
        CONSTANT_OFFSET = 0 "offset",
        CONSTANT_SIZE = 1 "size",
        CONSTANT_KEY = 2 "named_key",
    }
    43 "XNode": {
        NODE_TYPE = 0 "xnode_union_type",
        NODE_UNION = 1 "xnode_union",
        NODE_DEBUG_HANDLE = 2 "debug_handle",
        NODE_MIN_MAX = 3 "output_min_max",
    }
    44 "OutputMinMax": {
        OUTPUT_MIN = 0 "output_min",
        OUTPUT_MAX = 1 "output_max",
    }
    45 "XValue": {
        VALUE_TYPE = 0 "xvalue_union_type",
        VALUE_UNION = 1 "xvalue_union",
    }
    46 "XNNTensorValue": {
        TENSOR_DATATYPE = 0 "datatype",
        TENSOR_DIMS = 2 "dims",
        TENSOR_CONSTANT = 3 "constant_buffer_idx",
        TENSOR_EXTERNAL_ID = 4 "external_id",
        TENSOR_FLAGS = 5 "flags",
        TENSOR_ID = 6 "id_out",
        TENSOR_DQ_DATATYPE = 7 "dq_datatype",
    }
    47 "XNNQuantizedTensorValue": {
        QUANTIZED_TENSOR = 0 "tensor_value",
        QUANTIZED_TYPE = 1 "quant_params_type",
        QUANTIZED_PARAMS = 2 "quant_params",
    }
    61 "PerChannelQuant": {
        CHANNEL_SCALES = 0 "scale",
        CHANNEL_DIM = 1 "channel_dim",
        CHANNEL_BUFFER = 2 "scale_buffer_idx",
    }
    62 "PerTensorQuant or PerChannelGroupQuant": {
        PER_TENSOR_SCALE = 0 "scale",
        PER_TENSOR_ZERO = 1 "zero_point",
        GROUP_SIZE = 2 "group_size",
        GROUP_BUFFER = 4 "scale_buffer_idx",
    }
    64 "PerTokenDynamicQuant": {
        TOKEN_DIMS = 0 "num_nonbatch_dims",
    }
    48 "_XNNNode1x1": {
        UNARY_INPUT = 0 "input_id",
        UNARY_OUTPUT = 1 "output_id",
        UNARY_FLAGS = 2 "flags",
    }
    49 "_XNNNode2x1": {
        BINARY_INPUT1 = 0 "input1_id",
        BINARY_INPUT2 = 1 "input2_id",
        BINARY_OUTPUT = 2 "output_id",
        BINARY_FLAGS = 3 "flags",
    }
    50 "_XNNCat": {
        CAT_AXIS = 0 "axis",
        CAT_INPUT1 = 1 "input1_id",
        CAT_INPUT2 = 2 "input2_id",
        CAT_INPUT3 = 3 "input3_id",
        CAT_INPUT4 = 4 "input4_id",
        CAT_OUTPUT = 5 "output_id",
        CAT_FLAGS = 6 "flags",
        CAT_INPUT5 = 7 "input5_id",
    }
    51 "_XNNNode1x1 with a parameter": {
        PARAMETRIC_PARAMETER = 0 "parameter",
        PARAMETRIC_INPUT = 1 "input_id",
        PARAMETRIC_OUTPUT = 2 "output_id",
        PARAMETRIC_FLAGS = 3 "flags",
    }
    52 "XNNFullyConnected": {
        FULLY_INPUT = 0 "input1_id",
        FULLY_FILTER = 1 "filter_id",
        FULLY_BIAS = 2 "bias_id",
        FULLY_OUTPUT = 3 "output_id",
        FULLY_FLAGS = 4 "flags",
    }
    53 "_XNNNodeConv": {
        CONV_PADDING_TOP = 0 "padding_top",
        CONV_PADDING_RIGHT = 1 "padding_right",
        CONV_PADDING_BOTTOM = 2 "padding_bottom",
        CONV_PADDING_LEFT = 3 "padding_left",
        CONV_STRIDE_HEIGHT = 6 "subsampling_height",
        CONV_STRIDE_WIDTH = 7 "subsampling_width",
        CONV_DILATION_HEIGHT = 8 "dilation_height",
        CONV_DILATION_WIDTH = 9 "dilation_width",
        CONV_GROUPS = 12 "groups",
        CONV_ADJUSTMENT_HEIGHT = 13 "adjustment_height",
        CONV_ADJUSTMENT_WIDTH = 14 "adjustment_width",
        CONV_INPUT = 15 "input1_id",
        CONV_FILTER = 16 "filter_id",
        CONV_BIAS = 17 "bias_id",
        CONV_OUTPUT = 18 "output_id",
        CONV_FLAGS = 19 "flags",
    }
    54 "_XNNPooling2D": {
        POOL_PADDING_TOP = 0 "padding_top",
        POOL_PADDING_RIGHT = 1 "padding_right",
        POOL_PADDING_BOTTOM = 2 "padding_bottom",
        POOL_PADDING_LEFT = 3 "padding_left",
        POOL_HEIGHT = 4 "pooling_height",
        POOL_WIDTH = 5 "pooling_width",
        POOL_STRIDE_HEIGHT = 6 "stride_height",
        POOL_STRIDE_WIDTH = 7 "stride_width",
        POOL_DILATION_HEIGHT = 8 "dilation_height",
        POOL_DILATION_WIDTH = 9 "dilation_width",
        POOL_INPUT = 10 "input_id",
        POOL_OUTPUT = 11 "output_id",
        POOL_FLAGS = 12 "flags",
    }
    55 "XNNStaticReshape": {
        SHAPE_DIMS = 1 "new_shape",
        SHAPE_INPUT = 2 "input_id",
        SHAPE_OUTPUT = 3 "output_id",
        SHAPE_FLAGS = 4 "flags",
    }
    56 "XNNStaticSlice": {
        SLICE_OFFSETS = 1 "offsets",
        SLICE_SIZES = 2 "sizes",
        SLICE_INPUT = 3 "input_id",
        SLICE_OUTPUT = 4 "output_id",
        SLICE_FLAGS = 5 "flags",
    }
    57 "XNNStaticResizeBilinear2D": {
        RESIZE_HEIGHT = 0 "new_height",
        RESIZE_WIDTH = 1 "new_width",
        RESIZE_INPUT = 2 "input_id",
        RESIZE_OUTPUT = 3 "output_id",
        RESIZE_FLAGS = 4 "flags",
    }
    58 "XNNStaticConstantPad": {
        PAD_BEFORE = 0 "pre_paddings",
        PAD_AFTER = 1 "post_paddings",
        PAD_VALUE = 2 "padding_value",
        PAD_INPUT = 3 "input_id",
        PAD_OUTPUT = 4 "output_id",
        PAD_FLAGS = 5 "flags",
    }
    59 "XNNArgMaxPooling2d": {
        ARG_MAX_PADDING_TOP = 0 "padding_top",
        ARG_MAX_PADDING_RIGHT = 1 "padding_right",
        ARG_MAX_PADDING_BOTTOM = 2 "padding_bottom",
        ARG_MAX_PADDING_LEFT = 3 "padding_left",
        ARG_MAX_HEIGHT = 4 "pooling_height",
        ARG_MAX_WIDTH = 5 "pooling_width",
        ARG_MAX_INPUT = 6 "input_id",
        ARG_MAX_VALUE = 7 "output_value_id",
        ARG_MAX_INDEX = 8 "output_index_id",
        ARG_MAX_FLAGS = 9 "flags",
    }
    60 "XNNScaledDotProductAttention": {
        ATTENTION_OUTPUT = 5 "output_id",
        ATTENTION_FLAGS = 6 "flags",
    }
}
