//! ExecuTorch's custom operators for language models, and `preprocess`.

use rushlight_runtime::OpGroup;

/// The groups of this folder.
pub const GROUPS: &[OpGroup] = &[];
