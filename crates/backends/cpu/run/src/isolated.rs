//! Copies of a step's tensors, each in an allocation of its own, so that the address sanitizer sees accesses beyond a tensor.
//! Without the feature `isolate` there are none.

#[cfg(feature = "isolate")]
pub(crate) use copies::{Isolated, Reads};
#[cfg(not(feature = "isolate"))]
pub(crate) use nothing::{Isolated, Reads};

#[cfg(not(feature = "isolate"))]
mod nothing {
    use rushlight_cpu_payload::TensorId;

    /// Empty: tensors are read and written where they are.
    #[derive(Default)]
    pub(crate) struct Isolated {
        pub reads: Reads,
        pub written: Written,
    }

    #[derive(Default)]
    pub(crate) struct Reads;

    #[derive(Default)]
    pub(crate) struct Written;

    #[expect(clippy::unused_self, reason = "with the feature there are copies")]
    impl Reads {
        #[inline(always)]
        pub fn get<T>(&self, _: TensorId) -> Option<&[T]> {
            None
        }
    }

    #[expect(clippy::unused_self, reason = "with the feature there are copies")]
    impl Written {
        #[inline(always)]
        pub fn instead_of<'s, T>(&'s mut self, _: TensorId, place: &'s mut [T]) -> &'s mut [T] {
            place
        }
    }
}

#[cfg(feature = "isolate")]
mod copies {
    use bytemuck::NoUninit;
    use rushlight_cpu_payload::{Buffer, TensorId};

    use crate::memory::{Memory, StepContext};

    /// The tensors of a step.
    #[derive(Default)]
    pub(crate) struct Isolated {
        pub reads: Reads,
        pub written: Written,
    }

    /// Copies of the tensors that a step reads: the tensor, the bytes of an element, and its bytes.
    #[derive(Default)]
    pub(crate) struct Reads(Vec<(TensorId, usize, Box<[u8]>)>);

    /// A copy of the tensor that a step writes in the arena: outputs are allocations of the caller's.
    #[derive(Default)]
    pub(crate) struct Written(Option<(TensorId, usize, Box<[u8]>)>);

    impl Reads {
        pub fn get<T: bytemuck::AnyBitPattern>(&self, tensor: TensorId) -> Option<&[T]> {
            let is_same = |width: usize| width == size_of::<T>();
            let (_, _, bytes) = self.0.iter().find(|(id, width, _)| *id == tensor && is_same(*width))?;
            bytemuck::try_cast_slice(bytes).ok()
        }
    }

    impl Written {
        pub fn instead_of<'s, T: bytemuck::Pod>(&'s mut self, tensor: TensorId, place: &'s mut [T]) -> &'s mut [T] {
            match &mut self.0 {
                Some((id, width, bytes)) if *id == tensor && *width == size_of::<T>() => {
                    bytemuck::try_cast_slice_mut(bytes).unwrap_or(place)
                }
                _ => place,
            }
        }
    }

    impl Isolated {
        /// Copies the tensors that a step reads, and the present content of the one that it writes.
        pub fn of(cx: &StepContext<'_, '_, '_, '_>, reads: &[TensorId], written: TensorId) -> Self {
            let copy = |id: TensorId| Some((id, width(cx.memory, id)?, bytes(cx, id)?.into()));
            let reads = reads.iter().filter_map(|id| copy(*id)).collect();
            let is_inside = matches!(cx.memory.buffer(written), Some(Buffer::Arena { .. }));
            Self { reads: Reads(reads), written: Written(if is_inside { copy(written) } else { None }) }
        }

        /// Copies the written tensor back to the arena.
        pub fn finish(cx: &mut StepContext<'_, '_, '_, '_>) {
            let Some((tensor, width, bytes)) = cx.isolated.written.0.take() else { return };
            let at = cx.shapes.span(tensor).0 * width;
            let Some(Buffer::Arena { offset, .. }) = cx.memory.buffer(tensor) else { return };
            let floats = cx.arena.floats.get_mut(cx.arena.start + offset as usize..);
            let to: &mut [u8] = bytemuck::cast_slice_mut(floats.unwrap_or_default());
            if let Some(to) = to.get_mut(at..).and_then(|to| to.get_mut(..bytes.len())) {
                to.copy_from_slice(&bytes);
            }
        }
    }

    /// Bytes of an element of a tensor.
    fn width(memory: &Memory<'_>, tensor: TensorId) -> Option<usize> {
        Some(memory.dtype(tensor)?.size())
    }

    /// The elements of a tensor; `None` where they are not all there.
    fn bytes<'s>(cx: &'s StepContext<'_, '_, '_, '_>, tensor: TensorId) -> Option<&'s [u8]> {
        fn of<T: NoUninit>(elements: &[T]) -> &[u8] {
            bytemuck::cast_slice(elements)
        }
        let width = width(cx.memory, tensor)?;
        let (offset, len) = cx.shapes.span(tensor);
        let buffer = match cx.memory.buffer(tensor)? {
            Buffer::Arena { offset, len } => {
                let start = cx.arena.start.checked_add(offset as usize)?;
                of(cx.arena.floats.get(start..start.checked_add(len as usize)?)?)
            }
            Buffer::Inline { offset, len } => {
                of(cx.memory.inline_floats.get(offset as usize..)?.get(..len as usize)?)
            }
            Buffer::Blob(index) => of(cx.memory.blobs.get(index as usize)?.floats()),
            Buffer::Input(index) => cx.context.input(index as usize).ok()?.bytes(),
            Buffer::Output(index) => cx.outputs.get(index as usize)?.as_ref()?.as_tensor().bytes(),
            Buffer::State(index) => of(cx.states.get(index as usize)?),
        };
        buffer.get(offset.checked_mul(width)?..)?.get(..len.checked_mul(width)?)
    }
}
