//! Constants and initial values, each stored once, in the program or in `.ptd` files beside it.

use rushlight_format::pte::{StorageModel, TensorModel};
use rushlight_graph::{Constant, Error, Expr};

use super::deduplicate::Pool;
use super::external::External;

/// The data of a program's tensors.
#[derive(Default)]
pub(super) struct Pools {
    pub constants: Pool,
    pub initial_values: Pool,
    /// The constants outside of the program, if there may be some.
    pub external: Option<External>,
}

impl Pools {
    /// The tensor of a constant, with its data in a pool.
    pub fn tensor(&mut self, constant: &Constant) -> Result<TensorModel, Error> {
        let sizes = sizes(&constant.ty.shape, &constant.name)?;
        let tensor = TensorModel::new(constant.ty.dtype, &sizes);
        if let Some(key) =
            self.external.as_mut().map(|external| external.insert(constant, &tensor)).transpose()?.flatten()
        {
            return Ok(TensorModel { fully_qualified_name: Some(key), ..tensor.stored(StorageModel::External) });
        }
        let index = self.constants.insert(constant)?;
        Ok(tensor.stored(StorageModel::Constant { index }))
    }
}

/// Sizes that do not depend on symbols, as a program stores them.
pub(super) fn sizes(shape: &[Expr], name: &str) -> Result<Vec<i32>, Error> {
    let size = |size: &Expr| size.as_int().and_then(|size| i32::try_from(size).ok());
    let too_large =
        || Error::invalid(format!("`{name}` has a size that programs cannot hold")).expected("sizes below 2^31");
    shape.iter().map(|expr| size(expr).ok_or_else(too_large)).collect()
}
