//! The bytes of values: little-endian base-128 numbers, lists with their lengths, unions with their tags.

use alloc::string::String;
use alloc::vec::Vec;

use rushlight_engine::{Activation, Half};
use rushlight_format::ScalarType;

use crate::{PayloadError, PayloadFault, PayloadSite};

/// Reads bytes from the first on.
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    fn error(&self, fault: PayloadFault) -> PayloadError {
        PayloadError::new(fault).at(PayloadSite::Byte(self.at))
    }

    pub(crate) fn take(&mut self, len: usize) -> Result<&'a [u8], PayloadError> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let piece = rest.get(..len);
        let truncated = PayloadFault::Truncated { needed: len as u64, available: rest.len() as u64 };
        let piece = piece.ok_or_else(|| self.error(truncated))?;
        self.at += len;
        Ok(piece)
    }

    pub(crate) fn byte(&mut self) -> Result<u8, PayloadError> {
        Ok(self.take(1)?.first().copied().unwrap_or_default())
    }

    pub(crate) fn unknown<T>(&self, tag: u8) -> Result<T, PayloadError> {
        Err(self.error(PayloadFault::UnknownTag { tag }))
    }
}

/// A value with bytes of its own.
pub(crate) trait Codec: Sized {
    fn put(&self, out: &mut Vec<u8>);
    fn get(reader: &mut Reader<'_>) -> Result<Self, PayloadError>;
}

impl Codec for u64 {
    fn put(&self, out: &mut Vec<u8>) {
        let mut rest = *self;
        while rest >= 0x80 {
            out.push(rest as u8 | 0x80);
            rest >>= 7;
        }
        out.push(rest as u8);
    }

    fn get(reader: &mut Reader<'_>) -> Result<Self, PayloadError> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = reader.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                break;
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(reader.error(PayloadFault::Overflow))
    }
}

impl Codec for i64 {
    fn put(&self, out: &mut Vec<u8>) {
        // Small numbers of either sign are short.
        (((*self << 1) ^ (*self >> 63)) as u64).put(out);
    }

    fn get(reader: &mut Reader<'_>) -> Result<Self, PayloadError> {
        let folded = u64::get(reader)?;
        Ok((folded >> 1) as i64 ^ -((folded & 1) as i64))
    }
}

impl Codec for u32 {
    fn put(&self, out: &mut Vec<u8>) {
        u64::from(*self).put(out);
    }

    fn get(reader: &mut Reader<'_>) -> Result<Self, PayloadError> {
        let value = u64::get(reader)?;
        let limit = u64::from(Self::MAX);
        Self::try_from(value).map_err(|_| reader.error(PayloadFault::OutOfRange { value, limit }))
    }
}

impl Codec for u8 {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(*self);
    }

    fn get(reader: &mut Reader<'_>) -> Result<Self, PayloadError> {
        reader.byte()
    }
}

impl Codec for f32 {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.to_le_bytes());
    }

    fn get(reader: &mut Reader<'_>) -> Result<Self, PayloadError> {
        Ok(Self::from_le_bytes(reader.take(4)?.try_into().unwrap_or_default()))
    }
}

impl Codec for bool {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }

    fn get(reader: &mut Reader<'_>) -> Result<Self, PayloadError> {
        match reader.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            tag => reader.unknown(tag),
        }
    }
}

impl Codec for String {
    fn put(&self, out: &mut Vec<u8>) {
        (self.len() as u64).put(out);
        out.extend_from_slice(self.as_bytes());
    }

    fn get(reader: &mut Reader<'_>) -> Result<Self, PayloadError> {
        let len = u64::get(reader)?;
        let bytes = reader.take(usize::try_from(len).unwrap_or(usize::MAX))?;
        let text = core::str::from_utf8(bytes).map_err(|_| reader.error(PayloadFault::InvalidUtf8))?;
        Ok(text.into())
    }
}

impl<T: Codec> Codec for Vec<T> {
    fn put(&self, out: &mut Vec<u8>) {
        (self.len() as u64).put(out);
        self.iter().for_each(|item| item.put(out));
    }

    fn get(reader: &mut Reader<'_>) -> Result<Self, PayloadError> {
        let len = u64::get(reader)?;
        let available = (reader.bytes.len() - reader.at) as u64;
        // Every item takes a byte at least, so that a short file cannot ask for much memory.
        if len > available {
            return Err(reader.error(PayloadFault::Truncated { needed: len, available }));
        }
        let mut items = Self::new();
        for _ in 0..len {
            items.push(T::get(reader)?);
        }
        Ok(items)
    }
}

impl<T: Codec> Codec for Option<T> {
    fn put(&self, out: &mut Vec<u8>) {
        self.is_some().put(out);
        if let Some(item) = self {
            item.put(out);
        }
    }

    fn get(reader: &mut Reader<'_>) -> Result<Self, PayloadError> {
        Ok(if bool::get(reader)? { Some(T::get(reader)?) } else { None })
    }
}

impl<T: Codec + Default + Copy, const N: usize> Codec for [T; N] {
    fn put(&self, out: &mut Vec<u8>) {
        self.iter().for_each(|item| item.put(out));
    }

    fn get(reader: &mut Reader<'_>) -> Result<Self, PayloadError> {
        let mut items = [T::default(); N];
        for item in &mut items {
            *item = T::get(reader)?;
        }
        Ok(items)
    }
}

impl Codec for ScalarType {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(*self as u8);
    }

    fn get(reader: &mut Reader<'_>) -> Result<Self, PayloadError> {
        let code = reader.byte()?;
        match Self::ALL.get(code as usize) {
            Some(dtype) => Ok(*dtype),
            None => reader.unknown(code),
        }
    }
}

/// Writes a structure as its fields, one after the other.
macro_rules! structure {
    ($($name:ident { $($field:ident),* $(,)? })*) => { $(
        impl $crate::codec::Codec for $name {
            fn put(&self, out: &mut alloc::vec::Vec<u8>) {
                $( $crate::codec::Codec::put(&self.$field, out); )*
            }

            fn get(reader: &mut $crate::codec::Reader<'_>) -> Result<Self, $crate::PayloadError> {
                Ok(Self { $( $field: $crate::codec::Codec::get(reader)? ),* })
            }
        }
    )* };
}

/// Writes a union as the tag of its variant, and the fields of that.
macro_rules! union {
    ($($name:ident {
        $( $tag:literal $variant:ident $( ( $($item:ident),* ) )? $( { $($field:ident),* } )? ),* $(,)?
    })*) => { $(
        impl $crate::codec::Codec for $name {
            fn put(&self, out: &mut alloc::vec::Vec<u8>) {
                match self {
                    $( Self::$variant $( ( $($item),* ) )? $( { $($field),* } )? => {
                        out.push($tag);
                        $( $( $crate::codec::Codec::put($item, out); )* )?
                        $( $( $crate::codec::Codec::put($field, out); )* )?
                    } )*
                }
            }

            fn get(reader: &mut $crate::codec::Reader<'_>) -> Result<Self, $crate::PayloadError> {
                Ok(match reader.byte()? {
                    $( $tag => Self::$variant
                        $( ( $({ let $item = $crate::codec::Codec::get(reader)?; $item }),* ) )?
                        $( { $($field: $crate::codec::Codec::get(reader)?),* } )?, )*
                    tag => return reader.unknown(tag),
                })
            }
        }
    )* };
}

pub(crate) use {structure, union};

union! {
    Half { 0 F16, 1 Bf16 }
    Activation {
        0 None, 1 Clamp { min, max }, 2 LeakyRelu { slope }, 3 HardSwish, 4 HardSigmoid, 5 Sigmoid, 6 Silu, 7 Tanh, 8 GeluErf,
        9 GeluTanh, 10 Elu { alpha }
    }
}
