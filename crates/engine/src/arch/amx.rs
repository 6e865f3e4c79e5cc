//! AMX: products of tiles, matrices of 16 rows of 64 bytes in registers of their own.
//!
//! The compiler has no functions for these instructions yet, but assembles them. It never uses tiles itself, so that they keep their
//! values from one block of assembly to the next; none of the blocks declares what it does to them.
#![allow(unsafe_code)]
#![expect(clippy::unused_self, reason = "who has a value may use the instructions")]

use core::arch::asm;
use core::marker::PhantomData;

/// Rows of a tile.
pub(crate) const TILE_ROWS: usize = 16;

/// Bytes of a row of a tile.
pub(crate) const TILE_ROW_BYTES: usize = 64;

/// Proof that the processor has AMX with products of int8, and that the system lets this process use it.
#[derive(Clone, Copy)]
pub(crate) struct Amx(());

impl Amx {
    /// Detects AMX, and asks the system for it once: Linux saves tiles only for processes that have asked.
    pub(super) fn detect() -> Option<Self> {
        #[cfg(all(target_os = "linux", feature = "std"))]
        let is_available = linux::is_available();
        #[cfg(not(all(target_os = "linux", feature = "std")))]
        let is_available = false;
        is_available.then_some(Self(()))
    }

    /// Prepares the thread's tiles, all of which have 16 rows of 64 bytes.
    #[inline]
    pub(crate) fn configure(self) -> Tiles {
        #[repr(C, align(64))]
        struct Configuration {
            palette: u8,
            start_row: u8,
            reserved: [u8; 14],
            row_bytes: [u16; 16],
            rows: [u8; 16],
        }
        static CONFIGURATION: Configuration = Configuration {
            palette: 1,
            start_row: 0,
            reserved: [0; 14],
            row_bytes: [TILE_ROW_BYTES as u16, 64, 64, 64, 64, 64, 64, 64, 0, 0, 0, 0, 0, 0, 0, 0],
            rows: [TILE_ROWS as u8, 16, 16, 16, 16, 16, 16, 16, 0, 0, 0, 0, 0, 0, 0, 0],
        };
        // SAFETY: the processor has AMX, of which this is a valid configuration.
        unsafe {
            asm!("ldtilecfg [{}]", in(reg) &raw const CONFIGURATION, options(nostack, readonly, preserves_flags));
        };
        Tiles(PhantomData)
    }
}

/// The tiles of the thread, which are released when this is dropped.
pub(crate) struct Tiles(PhantomData<*mut ()>);

impl Tiles {
    /// Loads a tile whose rows begin `stride` bytes apart into a register.
    ///
    /// # Safety
    /// All rows are readable.
    #[inline(always)]
    pub(crate) unsafe fn load<const TILE: u8>(&self, from: *const u8, stride: usize) {
        // SAFETY: the tiles are configured, and the caller guarantees the rows.
        unsafe {
            asm!(
                "tileloadd tmm{tile}, [{from} + {stride}]",
                tile = const TILE,
                from = in(reg) from,
                stride = in(reg) stride,
                options(nostack, readonly, preserves_flags),
            );
        }
    }

    /// Sets a tile to zero.
    #[inline(always)]
    pub(crate) fn zero<const TILE: u8>(&self) {
        // SAFETY: the tiles are configured.
        unsafe { asm!("tilezero tmm{}", const TILE, options(nostack, nomem, preserves_flags)) };
    }

    /// Adds the product of a tile of u8 and one of i8, four rows of which are one, `[16][16][4]`, to a tile of i32.
    #[inline(always)]
    pub(crate) fn add_u8i8<const TO: u8, const A: u8, const B: u8>(&self) {
        // SAFETY: the tiles are configured.
        unsafe {
            asm!(
                "tdpbusd tmm{to}, tmm{a}, tmm{b}",
                to = const TO,
                a = const A,
                b = const B,
                options(nostack, nomem, preserves_flags),
            );
        }
    }

    /// Like [`add_u8i8`](Self::add_u8i8), for two tiles of i8.
    #[inline(always)]
    pub(crate) fn add_i8i8<const TO: u8, const A: u8, const B: u8>(&self) {
        // SAFETY: the tiles are configured.
        unsafe {
            asm!(
                "tdpbssd tmm{to}, tmm{a}, tmm{b}",
                to = const TO,
                a = const A,
                b = const B,
                options(nostack, nomem, preserves_flags),
            );
        }
    }

    /// Stores a tile of i32.
    #[inline(always)]
    pub(crate) fn store<const TILE: u8>(&self, to: &mut Product) {
        // SAFETY: the tiles are configured, and there is room for one.
        unsafe {
            asm!(
                "tilestored [{to} + {stride}], tmm{tile}",
                tile = const TILE,
                to = in(reg) to,
                stride = in(reg) TILE_ROW_BYTES,
                options(nostack, preserves_flags),
            );
        }
    }
}

/// A tile of i32.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct Product(pub(crate) [[i32; 16]; TILE_ROWS]);

impl Drop for Tiles {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: tiles exist only where the processor has AMX.
        unsafe { asm!("tilerelease", options(nomem, nostack, preserves_flags)) };
    }
}

#[cfg(all(target_os = "linux", feature = "std"))]
mod linux {
    use core::arch::asm;
    use core::arch::x86_64::{__cpuid, __cpuid_count};
    use std::sync::OnceLock;

    /// True if the processor has tiles and their products of int8, and Linux saves them.
    pub(super) fn is_available() -> bool {
        static IS_AVAILABLE: OnceLock<bool> = OnceLock::new();
        *IS_AVAILABLE.get_or_init(|| is_supported() && is_permitted())
    }

    fn is_supported() -> bool {
        const AMX_TILE: u32 = 1 << 24;
        const AMX_INT8: u32 = 1 << 25;
        __cpuid(0).eax >= 7 && __cpuid_count(7, 0).edx & (AMX_TILE | AMX_INT8) == AMX_TILE | AMX_INT8
    }

    /// Asks for the process's permission, which Linux refuses where it cannot save tiles.
    fn is_permitted() -> bool {
        const ARCH_PRCTL: i64 = 158;
        const ARCH_REQ_XCOMP_PERM: i64 = 0x1023;
        const XFEATURE_XTILEDATA: i64 = 18;
        let result: i64;
        // SAFETY: the call has no other effect than the permission, and changes the three registers that are named.
        unsafe {
            asm!(
                "syscall",
                inlateout("rax") ARCH_PRCTL => result,
                in("rdi") ARCH_REQ_XCOMP_PERM,
                in("rsi") XFEATURE_XTILEDATA,
                lateout("rcx") _,
                lateout("r11") _,
                options(nostack),
            );
        }
        result == 0
    }
}
