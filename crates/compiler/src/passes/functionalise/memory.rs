//! Tensors as PyTorch sees them: views of storages. A write to one view changes all views of the storage.
//!
//! Each storage counts its writes. A tensor's value is current if it is as new as the last write. A write only records
//! the new content of the tensor that it went to. Other tensors of the storage are updated when they are read: the
//! content goes up from the written tensor to the first common ancestor, and down from there.
//!
//! Invariant: take an ancestor of the last written tensor that is not current. It is outdated only in the elements that
//! the written tensor, or the next ancestor below, shows. So one step of writing back, from a current value to its
//! parent, makes the parent current.

use rustc_hash::{FxHashMap, FxHashSet};

use rushlight_graph::Error;
use rushlight_graph::{Arena, BlockId, Builder, Id, TensorType, ValueId};

use super::layout::StridedLayout;
use super::view::View;

/// A tensor of the program.
#[derive(Debug)]
pub(super) struct TrackedTensor {
    pub ty: TensorType,
    pub storage: Id<TrackedStorage>,
    pub layout: Option<StridedLayout>,
    /// The tensor that it is a view of, with the view's operator.
    parent: Option<(Id<TrackedTensor>, View)>,
    /// Its content when the storage had been written `generation` times.
    value: ValueId,
    generation: u32,
}

impl TrackedTensor {
    /// Its content when it was last read or written.
    pub fn value(&self) -> ValueId {
        self.value
    }
}

/// Memory that tensors share.
#[derive(Debug)]
pub(super) struct TrackedStorage {
    /// The tensor that covers the whole storage.
    pub base: Id<TrackedTensor>,
    pub owner: Owner,
    /// The block in which its tensors may be written.
    pub block: BlockId,
    /// Number of writes.
    pub generation: u32,
    /// The tensor that was written last.
    last: Id<TrackedTensor>,
}

/// The observer of a storage's content at the end of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// Nobody: a node created the storage.
    Node,
    /// An input of the method.
    Input(ValueId),
    State(rushlight_graph::StateId),
    /// A constant, which must not change.
    Constant,
    /// A parameter of a control flow block.
    Carried,
}

/// All tensors of a graph.
#[derive(Debug, Default)]
pub(super) struct Memory {
    tensors: Arena<TrackedTensor>,
    storages: Arena<TrackedStorage>,
    of_value: FxHashMap<ValueId, Id<TrackedTensor>>,
}

impl Memory {
    /// The tensor of a value of the original graph, if one was recorded.
    pub fn find(&self, value: ValueId) -> Option<Id<TrackedTensor>> {
        self.of_value.get(&value).copied()
    }

    pub fn tensor(&self, tensor: Id<TrackedTensor>) -> &TrackedTensor {
        &self.tensors[tensor]
    }

    pub fn storage(&self, tensor: Id<TrackedTensor>) -> &TrackedStorage {
        &self.storages[self.tensors[tensor].storage]
    }

    /// All storages.
    pub fn storages(&self) -> impl Iterator<Item = &TrackedStorage> {
        self.storages.iter().map(|(_, storage)| storage)
    }

    /// Records a tensor with memory of its own.
    pub fn add_base(&mut self, value: ValueId, ty: TensorType, owner: Owner, block: BlockId) -> Id<TrackedTensor> {
        let (tensor, storage) = (Id::new(self.tensors.len() as u32), Id::new(self.storages.len() as u32));
        self.storages.push(TrackedStorage { base: tensor, owner, block, generation: 0, last: tensor });
        let layout = StridedLayout::dense(&ty);
        self.tensors.push(TrackedTensor { ty, storage, layout, parent: None, value, generation: 0 });
        self.of_value.insert(value, tensor);
        tensor
    }

    /// Records that a tensor is a view; `value` is its current content.
    pub fn add_view(
        &mut self,
        value: ValueId,
        ty: TensorType,
        parent: Id<TrackedTensor>,
        view: View,
        layout: Option<StridedLayout>,
    ) -> Id<TrackedTensor> {
        let storage = self.tensors[parent].storage;
        let generation = self.storages[storage].generation;
        let parent = Some((parent, view));
        let tensor = self.tensors.push(TrackedTensor { ty, storage, layout, parent, value, generation });
        self.of_value.insert(value, tensor);
        tensor
    }

    /// Records another name of a tensor.
    pub fn add_name(&mut self, value: ValueId, tensor: Id<TrackedTensor>) {
        self.of_value.insert(value, tensor);
    }

    /// Returns a value with the tensor's current content. Adds the nodes that compute it.
    pub fn read(&mut self, b: &mut Builder<'_>, tensor: Id<TrackedTensor>) -> Result<ValueId, Error> {
        let storage = self.tensors[tensor].storage;
        let generation = self.storages[storage].generation;
        let mut outdated = Vec::new();
        let mut at = Some(tensor);
        while let Some(next) = at.filter(|next| self.tensors[*next].generation != generation) {
            outdated.push(next);
            at = self.parent(next);
        }
        if at.is_none() {
            let shared = self.flush(b, storage, &outdated)?;
            let current = outdated.iter().position(|tensor| *tensor == shared).unwrap_or(outdated.len());
            outdated.truncate(current);
        }
        while let Some(tensor) = outdated.pop() {
            let value = match &self.tensors[tensor].parent {
                Some((parent, view)) => view.replay(b, self.tensors[*parent].value, &self.tensors[tensor].ty)?,
                None => self.tensors[tensor].value,
            };
            self.set(tensor, value, generation);
        }
        Ok(self.tensors[tensor].value)
    }

    /// Records that `content`, of the tensor's shape and dtype, was written to it.
    pub fn write(&mut self, b: &mut Builder<'_>, tensor: Id<TrackedTensor>, content: ValueId) -> Result<(), Error> {
        let storage = self.tensors[tensor].storage;
        if let Some(parent) = self.parent(tensor)
            && self.storages[storage].last != tensor
        {
            // The parent's elements outside of this view stay, so the parent must be current.
            self.read(b, parent)?;
        }
        let TrackedStorage { generation, last, .. } = &mut self.storages[storage];
        *generation = generation.saturating_add(1);
        *last = tensor;
        let generation = *generation;
        self.set(tensor, content, generation);
        Ok(())
    }

    /// Writes the last content back to the first of `ancestors`, which are listed from the bottom up to the base.
    fn flush(
        &mut self,
        b: &mut Builder<'_>,
        storage: Id<TrackedStorage>,
        ancestors: &[Id<TrackedTensor>],
    ) -> Result<Id<TrackedTensor>, Error> {
        let wanted: FxHashSet<Id<TrackedTensor>> = ancestors.iter().copied().collect();
        let TrackedStorage { mut last, generation, .. } = self.storages[storage];
        while !wanted.contains(&last) {
            let Some((parent, view)) = &self.tensors[last].parent else { break };
            let (parent, outdated) = (*parent, self.tensors[*parent].generation != generation);
            if outdated {
                let TrackedTensor { ty, value, .. } = &self.tensors[parent];
                let value = view.write_back(b, *value, ty, self.tensors[last].value)?;
                self.set(parent, value, generation);
            }
            last = parent;
        }
        Ok(last)
    }

    fn parent(&self, tensor: Id<TrackedTensor>) -> Option<Id<TrackedTensor>> {
        self.tensors[tensor].parent.as_ref().map(|(parent, _)| *parent)
    }

    fn set(&mut self, tensor: Id<TrackedTensor>, value: ValueId, generation: u32) {
        let tensor = &mut self.tensors[tensor];
        (tensor.value, tensor.generation) = (value, generation);
    }
}
