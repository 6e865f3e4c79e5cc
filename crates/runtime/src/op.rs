//! Operators as values (a name, the number of arguments and a function), sets of operators, and the registry with which
//! a method is loaded.

#[cfg(feature = "alloc")]
use core::any::Any;

use crate::context::KernelContext;
use crate::error::Result;

/// The function that computes an operator.
pub type Kernel = fn(&KernelContext<'_>) -> Result<()>;

/// Returns the temporary memory of one call in bytes, from the arguments at their upper bounds.
pub type TempBytes = fn(&KernelContext<'_>) -> Result<usize>;

/// One operator of an [`OpSet`].
///
/// Arguments are in schema order, with the `out` arguments last. Programs list the return value once more after them;
/// that entry is not an argument here.
#[derive(Clone, Copy, Debug)]
pub struct Op {
    /// Namespace, name and overload: `aten::add.out`.
    pub name: &'static str,
    /// Number of arguments in the schema, including `out` arguments.
    pub arity: u8,
    /// Bit `i` is set if argument `i` is written.
    pub writes: u32,
    /// The written argument shares the memory of argument 0, as in `et_view`.
    pub is_view: bool,
    /// Writing an argument onto itself changes nothing, so such a call is dropped at load. For `copy_`.
    pub copies: bool,
    pub kernel: Kernel,
    pub temp_bytes: Option<TempBytes>,
    /// The value of [`KernelContext::data`] for the kernel.
    #[cfg(feature = "alloc")]
    pub data: Option<OpData>,
}

/// Data of one operator, for a kernel function that several operators share, such as a kernel in another language.
#[cfg(feature = "alloc")]
pub type OpData = &'static (dyn Any + Send + Sync);

impl Op {
    /// An operator whose last argument is its `out`.
    pub const fn new(name: &'static str, arity: u8, kernel: Kernel) -> Self {
        let writes = if arity == 0 { 0 } else { 1 << (arity - 1) };
        Self {
            name,
            arity,
            writes,
            is_view: false,
            copies: false,
            kernel,
            temp_bytes: None,
            #[cfg(feature = "alloc")]
            data: None,
        }
    }

    /// The last `count` arguments are written (`out` arguments of multi-output operators).
    #[must_use]
    pub const fn outs(mut self, count: u8) -> Self {
        let ones = if count < 32 { (1 << count) - 1 } else { u32::MAX };
        self.writes = ones << (self.arity - count);
        self
    }

    /// Exactly these arguments are written, as in in-place operators and operators that also update an argument.
    #[must_use]
    pub const fn writing(mut self, arguments: &[u8]) -> Self {
        self.writes = 0;
        let mut i = 0;
        while i < arguments.len() {
            self.writes |= 1 << arguments[i];
            i += 1;
        }
        self
    }

    /// The `out` argument shares the memory of argument 0.
    #[must_use]
    pub const fn view(mut self) -> Self {
        self.is_view = true;
        self
    }

    /// A call that writes a tensor onto itself changes nothing.
    #[must_use]
    pub const fn copies(mut self) -> Self {
        self.copies = true;
        self
    }

    /// The operator requests temporary memory with [`KernelContext::temp`].
    #[must_use]
    pub const fn temp(mut self, bytes: TempBytes) -> Self {
        self.temp_bytes = Some(bytes);
        self
    }

    /// The operator has data that its kernel reads.
    #[cfg(feature = "alloc")]
    #[must_use]
    pub const fn data(mut self, data: OpData) -> Self {
        self.data = Some(data);
        self
    }

    pub const fn writes_argument(&self, index: usize) -> bool {
        index < 32 && self.writes & (1 << index) != 0
    }
}

/// Operators of one source file.
pub type OpGroup = &'static [Op];

/// A named set of operators. A program that uses one set links only the kernels in it.
#[derive(Clone, Copy, Debug)]
pub struct OpSet {
    /// Name for messages, such as `PORTABLE`.
    pub name: &'static str,
    pub groups: &'static [&'static [OpGroup]],
}

impl OpSet {
    pub fn iter(&self) -> impl Iterator<Item = &'static Op> + use<> {
        self.groups.iter().flat_map(|groups| groups.iter()).flat_map(|group| group.iter())
    }
}

/// The operator sets in which a method finds its operators, in order of precedence.
#[derive(Clone, Copy, Debug)]
pub struct Registry<'r> {
    sets: &'r [&'r OpSet],
}

impl<'r> Registry<'r> {
    pub const fn new(sets: &'r [&'r OpSet]) -> Self {
        Self { sets }
    }

    pub fn sets(&self) -> &'r [&'r OpSet] {
        self.sets
    }

    /// The operator called `name` or `name.overload`, from the first set that has it.
    #[cfg_attr(target_os = "none", inline(never))]
    pub fn find(&self, name: &str, overload: &str) -> Option<&'static Op> {
        // Nested loops compile to a fraction of an iterator's code.
        for set in self.sets {
            for groups in set.groups {
                for group in *groups {
                    for op in *group {
                        if matches(op.name, name, overload) {
                            return Some(op);
                        }
                    }
                }
            }
        }
        None
    }
}

fn matches(full: &str, name: &str, overload: &str) -> bool {
    let (full, name, overload) = (full.as_bytes(), name.as_bytes(), overload.as_bytes());
    // The lengths distinguish nearly all names, and a search compares hundreds.
    if full.len() != name.len() + overload.len() + usize::from(!overload.is_empty()) {
        return false;
    }
    match full.strip_prefix(name) {
        Some([b'.', rest @ ..]) => rest == overload,
        Some(rest) => rest.is_empty(),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nothing(_: &KernelContext<'_>) -> Result<()> {
        Ok(())
    }

    const A: Op = Op::new("aten::add.out", 4, nothing);
    const B: Op = Op::new("aten::max.dim_max", 5, nothing).outs(2);
    const C: Op = Op::new("aten::copy_", 3, nothing).writing(&[0]);
    const SET: OpSet = OpSet { name: "TEST", groups: &[&[&[A, B], &[C]]] };

    #[test]
    fn names_are_found_by_name_and_overload() {
        let registry = Registry::new(&[&SET]);
        assert_eq!(registry.find("aten::add", "out").map(|op| op.name), Some("aten::add.out"));
        assert_eq!(registry.find("aten::copy_", "").map(|op| op.name), Some("aten::copy_"));
        assert!(registry.find("aten::add", "").is_none());
        assert!(registry.find("aten::add", "Scalar_out").is_none());
    }

    #[test]
    fn written_arguments() {
        assert_eq!((A.writes, B.writes, C.writes), (0b1000, 0b11000, 0b1));
    }
}
