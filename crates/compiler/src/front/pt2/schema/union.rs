//! Unions of the schema: objects with one key, which is the type of the value.

/// Declares a union as an enum that is read without looking ahead.
///
/// Each line is the key, the variant, and the type of the value; after `;` the type in the document, where it is another
/// that converts. A variant without a type ignores the value. A key that is not listed, from a later minor version of
/// the schema, becomes `Unknown`, so that only a program that uses it is affected.
macro_rules! union {
    ($(#[$doc:meta])* pub enum $name:ident {
        $($tag:literal => $variant:ident $(($ty:ty $(; $wire:ty)?))?,)*
    }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq)]
        pub enum $name<'a> {
            $($variant $(($ty))?,)*
            /// A key that this reader does not know.
            Unknown { tag: Text<'a> },
        }

        impl $name<'_> {
            /// The key, which is the type of the value.
            pub fn tag(&self) -> &str {
                match self {
                    $(Self::$variant { .. } => $tag,)*
                    Self::Unknown { tag } => tag,
                }
            }
        }

        impl<'de: 'a, 'a> serde::Deserialize<'de> for $name<'a> {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct UnionVisitor;

                impl<'a> serde::de::Visitor<'a> for UnionVisitor {
                    type Value = $name<'a>;

                    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        f.write_str(concat!("an object with one key (", stringify!($name), ")"))
                    }

                    fn visit_map<M: serde::de::MapAccess<'a>>(self, mut map: M) -> Result<$name<'a>, M::Error> {
                        let Some(tag) = map.next_key::<Text<'a>>()? else {
                            return Err(serde::de::Error::invalid_length(0, &self));
                        };
                        let value = match tag.as_str() {
                            $($tag => union!(@value map, $name, $variant $(, $ty $(, $wire)?)?),)*
                            _ => {
                                map.next_value::<serde::de::IgnoredAny>()?;
                                $name::Unknown { tag }
                            }
                        };
                        match map.next_key::<serde::de::IgnoredAny>()? {
                            None => Ok(value),
                            Some(_) => Err(serde::de::Error::invalid_length(2, &self)),
                        }
                    }
                }

                deserializer.deserialize_map(UnionVisitor)
            }
        }
    };
    (@value $map:ident, $name:ident, $variant:ident) => {{
        $map.next_value::<serde::de::IgnoredAny>()?;
        $name::$variant
    }};
    (@value $map:ident, $name:ident, $variant:ident, $ty:ty) => {
        $name::$variant($map.next_value::<$ty>()?)
    };
    (@value $map:ident, $name:ident, $variant:ident, $ty:ty, $wire:ty) => {
        $name::$variant($map.next_value::<$wire>()?.into())
    };
}

pub(super) use union;
