//! Vectors of numbers, seen in place.

use core::marker::PhantomData;

/// A number that flatbuffers store in little-endian order.
pub trait Element: Copy + Default {
    /// Bytes of one element.
    const SIZE: usize;

    /// Reads an element from the start of `bytes`, or `None` when they are too few.
    fn read(bytes: &[u8]) -> Option<Self>;
}

macro_rules! elements {
    ($($t:ty),*) => {$(
        impl Element for $t {
            const SIZE: usize = size_of::<$t>();

            #[cfg_attr(not(target_os = "none"), inline(always))]
            fn read(bytes: &[u8]) -> Option<Self> {
                bytes.first_chunk().map(|b| Self::from_le_bytes(*b))
            }
        }
    )*};
}

elements!(u8, i8, u16, i16, u32, i32, u64, i64, f32, f64);

impl Element for bool {
    const SIZE: usize = 1;

    #[cfg_attr(not(target_os = "none"), inline(always))]
    fn read(bytes: &[u8]) -> Option<Self> {
        bytes.first().map(|b| *b != 0)
    }
}

/// A vector of numbers inside a file. It borrows the file's bytes, which need no alignment.
#[derive(Clone, Copy)]
pub struct Vector<'a, T> {
    bytes: &'a [u8],
    element: PhantomData<T>,
}

impl<'a, T: Element> Vector<'a, T> {
    /// `bytes` holds whole elements; a partial one at the end is ignored.
    #[cfg_attr(not(target_os = "none"), inline(always))]
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, element: PhantomData }
    }

    /// The elements as they are in the file, in little-endian order.
    #[cfg_attr(not(target_os = "none"), inline(always))]
    pub fn as_bytes(&self) -> &'a [u8] {
        self.bytes
    }

    #[cfg_attr(not(target_os = "none"), inline(always))]
    pub fn len(&self) -> usize {
        self.bytes.len() / T::SIZE
    }

    #[cfg_attr(not(target_os = "none"), inline(always))]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    #[cfg_attr(not(target_os = "none"), inline(always))]
    pub fn get(&self, index: usize) -> Option<T> {
        T::read(self.bytes.get(index.checked_mul(T::SIZE)?..)?)
    }

    #[cfg_attr(not(target_os = "none"), inline(always))]
    pub fn iter(&self) -> VectorIter<'a, T> {
        VectorIter { rest: *self }
    }
}

impl<T> Default for Vector<'_, T> {
    fn default() -> Self {
        Self { bytes: &[], element: PhantomData }
    }
}

impl<T: Element + core::fmt::Debug> core::fmt::Debug for Vector<'_, T> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<T: Element + PartialEq> PartialEq for Vector<'_, T> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl<'a, T: Element> IntoIterator for Vector<'a, T> {
    type Item = T;
    type IntoIter = VectorIter<'a, T>;

    fn into_iter(self) -> VectorIter<'a, T> {
        self.iter()
    }
}

impl<'a, T: Element> IntoIterator for &Vector<'a, T> {
    type Item = T;
    type IntoIter = VectorIter<'a, T>;

    fn into_iter(self) -> VectorIter<'a, T> {
        self.iter()
    }
}

/// Elements of a [`Vector`], in order.
#[derive(Clone)]
pub struct VectorIter<'a, T: Element> {
    rest: Vector<'a, T>,
}

impl<T: Element + core::fmt::Debug> core::fmt::Debug for VectorIter<'_, T> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.rest.fmt(f)
    }
}

impl<T: Element> Iterator for VectorIter<'_, T> {
    type Item = T;

    #[cfg_attr(not(target_os = "none"), inline(always))]
    fn next(&mut self) -> Option<T> {
        let (element, rest) = self.rest.bytes.split_at_checked(T::SIZE)?;
        self.rest.bytes = rest;
        T::read(element)
    }

    #[cfg_attr(not(target_os = "none"), inline(always))]
    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.rest.len(), Some(self.rest.len()))
    }
}

impl<T: Element> DoubleEndedIterator for VectorIter<'_, T> {
    #[cfg_attr(not(target_os = "none"), inline(always))]
    fn next_back(&mut self) -> Option<T> {
        let last = self.rest.len().checked_sub(1)?;
        let element = self.rest.get(last);
        self.rest.bytes = self.rest.bytes.get(..last * T::SIZE)?;
        element
    }
}

impl<T: Element> ExactSizeIterator for VectorIter<'_, T> {}
