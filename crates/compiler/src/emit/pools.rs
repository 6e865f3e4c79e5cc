//! Constants and initial values, each stored once.

use std::borrow::Cow;
use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault};

use rushlight_format::pte::{StorageModel, TensorModel};
use rustc_hash::FxHasher;

use crate::Bytes;
use crate::error::Error;
use crate::graph::{Constant, Expr};

/// The data of a program's tensors.
#[derive(Default)]
pub(super) struct Pools {
    pub constants: Pool,
    pub initial_values: Pool,
}

/// Blobs without repetition. Entry 0 means no data.
#[derive(Default)]
pub(super) struct Pool {
    blobs: Vec<Bytes>,
    by_hash: HashMap<u64, Vec<u32>>,
}

impl Pools {
    /// The tensor of a constant, with its data in the pool.
    pub fn tensor(&mut self, constant: &Constant) -> Result<TensorModel, Error> {
        let sizes = sizes(&constant.ty.shape, &constant.name)?;
        let index = self.constants.insert(constant.read()?);
        Ok(TensorModel::new(constant.ty.dtype, &sizes).stored(StorageModel::Constant { index }))
    }
}

impl Pool {
    /// The index of the blob, which is added if it is new.
    pub fn insert(&mut self, data: Bytes) -> u32 {
        let hash = BuildHasherDefault::<FxHasher>::default().hash_one(&*data);
        let same = self.by_hash.entry(hash).or_default();
        let known = same.iter().copied().find(|index| self.blobs.get(*index as usize - 1) == Some(&data));
        known.unwrap_or_else(|| {
            self.blobs.push(data);
            let index = self.blobs.len() as u32;
            same.push(index);
            index
        })
    }

    /// The blobs as a program holds them.
    pub fn into_data(self) -> Vec<Cow<'static, [u8]>> {
        let empty = std::iter::once(Cow::Borrowed([].as_slice()));
        empty.chain(self.blobs.into_iter().map(|blob| Cow::Owned(blob.to_vec()))).collect()
    }
}

/// Sizes that do not depend on symbols, as a program stores them.
pub(super) fn sizes(shape: &[Expr], name: &str) -> Result<Vec<i32>, Error> {
    let size = |size: &Expr| size.as_int().and_then(|size| i32::try_from(size).ok());
    let too_large =
        || Error::invalid(format!("`{name}` has a size that programs cannot hold")).expected("sizes below 2^31");
    shape.iter().map(|expr| size(expr).ok_or_else(too_large)).collect()
}
