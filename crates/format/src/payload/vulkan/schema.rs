//! The tables of the delegate's schema.

use crate::schema::Field;

crate::schema::schema! {
    NAMES
    70 "VkGraph": {
        GRAPH_CHAIN = 1 "chain",
        GRAPH_VALUES = 2 "values",
        GRAPH_INPUTS = 3 "input_ids",
        GRAPH_OUTPUTS = 4 "output_ids",
        GRAPH_CONSTANTS = 5 "constants",
        GRAPH_ROOT = 31 "root",
    }
    71 "OperatorCall": {
        CALL_ID = 0 "node_id",
        CALL_NAME = 1 "name",
        CALL_ARGS = 2 "args",
    }
    72 "VkValue": {
        VALUE_TYPE = 0 "value_type",
        VALUE_UNION = 1 "value",
    }
    73 "VkTensor": {
        TENSOR_DATATYPE = 0 "datatype",
        TENSOR_DIMS = 1 "dims",
        TENSOR_CONSTANT = 2 "constant_id",
    }
    // Int, Double, Bool, String and the lists have one field of this place each.
    74 "GraphTypes": {
        CONTENT = 0 "content",
    }
    75 "VkBytes": {
        BYTES_OFFSET = 0 "offset",
        BYTES_LENGTH = 1 "length",
        BYTES_KEY = 2 "named_key",
    }
}
