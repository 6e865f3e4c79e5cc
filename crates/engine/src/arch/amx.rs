//! AMX: matmuls of tiles, registers of 16 rows of 64 bytes.
//!
//! Rust has no stable intrinsics for AMX, so these are blocks of assembly. Tiles keep their values from one block to the next, which
//! Rust's rules for registers do not provide for: it is sound because the compiler never allocates a tile, and all blocks are
//! volatile and so keep their order.
//!
//! Most groups of quantized weights have 32 elements of K, half a tile. Their tiles overlap in memory, two in [`PAIR_BYTES`]: the weights
//! of a group, zeros, and the weights of the next. The first tile begins with the first group, the second with the zeros. So a
//! tile of the left side, which has the elements of both groups, is multiplied by either; zeros take no longer than half a tile.
#![allow(unsafe_code)]
#![expect(clippy::unused_self, reason = "who has a value may use the instructions")]

use core::arch::asm;
use core::marker::PhantomData;

use super::{I32, LANES, Simd};

/// Rows of a tile.
pub(crate) const TILE_ROWS: usize = 16;

/// Bytes of a row of a tile.
pub(crate) const TILE_ROW_BYTES: usize = 64;

/// Elements of K in a tile of int8, and in half of one.
pub(crate) const TILE_K: usize = TILE_ROW_BYTES;
pub(crate) const HALF_K: usize = TILE_K / 2;

/// Bytes of the weights in half a tile, and in two overlapping tiles.
const HALF_BYTES: usize = HALF_K * LANES;
pub(crate) const PAIR_BYTES: usize = 3 * HALF_BYTES;

/// Offsets of the weights of half a tile, and of the tile that they are in.
pub(crate) fn half_offsets(half: usize) -> (usize, usize) {
    let (pair, second) = (half / 2 * PAIR_BYTES, half % 2);
    (pair + second * 2 * HALF_BYTES, pair + second * HALF_BYTES)
}

/// Proof that the processor has AMX-INT8 and AMX-BF16, and that the system lets this process use it.
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

    /// Prepares the thread's tiles, all of which have 16 rows of 64 bytes. A thread has one [`Tiles`] at a time: dropping it
    /// releases the registers.
    ///
    /// # Panics
    /// If the thread already has them, because another use would overwrite the registers.
    #[inline]
    pub(crate) fn configure(self) -> Tiles {
        assert!(!thread::uses_tiles(true), "the thread's tiles are in use");
        #[repr(C, align(64))]
        struct Configuration {
            palette: u8,
            start_row: u8,
            reserved: [u8; 14],
            row_bytes: [u16; 8],
            reserved_row_bytes: [u16; 8],
            rows: [u8; 8],
            reserved_rows: [u8; 8],
        }
        static CONFIGURATION: Configuration = Configuration {
            palette: 1,
            start_row: 0,
            reserved: [0; 14],
            row_bytes: [TILE_ROW_BYTES as u16; 8],
            reserved_row_bytes: [0; 8],
            rows: [TILE_ROWS as u8; 8],
            reserved_rows: [0; 8],
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

    /// Accumulates the matmul of a u8 tile `[16][64]` and an i8 tile `[64 / 4][16][4]` in an i32 tile.
    #[inline(always)]
    pub(crate) fn dot_u8i8<const TO: u8, const A: u8, const B: u8>(&self) {
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

    /// Like [`dot_u8i8`](Self::dot_u8i8), for two i8 tiles.
    #[inline(always)]
    pub(crate) fn dot_i8i8<const TO: u8, const A: u8, const B: u8>(&self) {
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

    /// Like [`dot_u8i8`](Self::dot_u8i8), for a bf16 tile `[16][32]` and a bf16 tile `[32 / 2][16][2]`, in an f32 tile.
    #[inline(always)]
    pub(crate) fn dot_bf16<const TO: u8, const A: u8, const B: u8>(&self) {
        // SAFETY: the tiles are configured.
        unsafe {
            asm!(
                "tdpbf16ps tmm{to}, tmm{a}, tmm{b}",
                to = const TO,
                a = const A,
                b = const B,
                options(nostack, nomem, preserves_flags),
            );
        }
    }

    /// Stores a tile.
    #[inline(always)]
    pub(crate) fn store<const TILE: u8>(&self, to: &mut StoredTile) {
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

/// Software pipeline over groups: while the matmuls of the next two groups run, the tile of this one is stored, and that of the one before
/// is scaled and accumulated. A group has the tile of its number modulo 4, and is stored to that of its number modulo 2.
pub(crate) trait GroupPipeline<S: Simd> {
    /// Issues the matmuls of a group, whose result is in tile `TILE`.
    fn issue<const TILE: u8>(&self, group: usize);

    /// Scales and accumulates the stored tile of a group.
    fn accumulate(&mut self, s: S, group: usize);

    /// The thread's tiles, and the tiles that they are stored to.
    fn stored(&mut self) -> (&Tiles, &mut [StoredTile; 2]);

    /// Goes through `groups` groups.
    #[inline(always)]
    fn run(&mut self, s: S, groups: usize) {
        if groups == 0 {
            return;
        }
        self.issue::<0>(0);
        if groups > 1 {
            self.issue::<1>(1);
        }
        for group in (0..groups).step_by(4) {
            self.step::<0>(s, group, groups);
            if group + 1 < groups {
                self.step::<1>(s, group + 1, groups);
            }
            if group + 2 < groups {
                self.step::<2>(s, group + 2, groups);
            }
            if group + 3 < groups {
                self.step::<3>(s, group + 3, groups);
            }
        }
        self.accumulate(s, groups - 1);
    }

    /// Issues the matmuls of the group after the next, stores the tile of this group, and accumulates that of the group before.
    #[inline(always)]
    fn step<const TILE: u8>(&mut self, s: S, group: usize, groups: usize) {
        if group + 2 < groups {
            match TILE {
                0 => self.issue::<2>(group + 2),
                1 => self.issue::<3>(group + 2),
                2 => self.issue::<0>(group + 2),
                _ => self.issue::<1>(group + 2),
            }
        }
        let (tiles, products) = self.stored();
        tiles.store::<TILE>(&mut products[usize::from(TILE % 2)]);
        if group > 0 {
            self.accumulate(s, group - 1);
        }
    }
}

/// A tile of i32 or f32 in memory.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct StoredTile([[u32; LANES]; TILE_ROWS]);

impl StoredTile {
    /// A row of i32.
    #[inline(always)]
    pub(crate) fn row_i32<S: Simd>(&self, s: S, row: usize) -> I32<S> {
        // SAFETY: a row has 16 elements.
        unsafe { s.load_i32(self.0[row].as_ptr().cast()) }
    }

    /// A row of f32.
    #[inline(always)]
    pub(crate) fn row_f32<S: Simd>(&self, s: S, row: usize) -> S::V {
        // SAFETY: a row has 16 elements.
        unsafe { s.load(self.0[row].as_ptr().cast()) }
    }
}

impl Drop for Tiles {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: tiles exist only where the processor has AMX.
        unsafe { asm!("tilerelease", options(nomem, nostack, preserves_flags)) };
        thread::uses_tiles(false);
    }
}

/// State of each thread.
#[cfg(all(target_os = "linux", feature = "std"))]
mod thread {
    use std::cell::Cell;
    use std::thread_local;

    thread_local! {
        static USES_TILES: Cell<bool> = const { Cell::new(false) };
    }

    /// Notes that the thread's tiles are in use, or no longer; returns if they were.
    pub(super) fn uses_tiles(now: bool) -> bool {
        USES_TILES.replace(now)
    }
}

/// There are no tiles elsewhere.
#[cfg(not(all(target_os = "linux", feature = "std")))]
mod thread {
    pub(super) fn uses_tiles(_: bool) -> bool {
        false
    }
}

#[cfg(all(target_os = "linux", feature = "std"))]
mod linux {
    use core::arch::asm;
    use core::arch::x86_64::{__cpuid, __cpuid_count};
    use std::sync::OnceLock;

    /// True if the processor has AMX-INT8 and AMX-BF16, as every one with AMX does, and Linux saves its tiles.
    pub(super) fn is_available() -> bool {
        static IS_AVAILABLE: OnceLock<bool> = OnceLock::new();
        *IS_AVAILABLE.get_or_init(|| is_supported() && is_permitted())
    }

    fn is_supported() -> bool {
        const AMX_TILE: u32 = 1 << 24;
        const AMX_INT8: u32 = 1 << 25;
        const AMX_BF16: u32 = 1 << 22;
        const ALL: u32 = AMX_TILE | AMX_INT8 | AMX_BF16;
        __cpuid(0).eax >= 7 && __cpuid_count(7, 0).edx & ALL == ALL
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

#[cfg(all(test, target_os = "linux", feature = "std"))]
mod tests {
    use super::*;

    #[test]
    fn tiles_are_configured_once_at_a_time() {
        assert!(!thread::uses_tiles(true));
        assert!(thread::uses_tiles(true), "a second use is noticed");
        thread::uses_tiles(false);
        if let Some(amx) = Amx::detect() {
            let tiles = amx.configure();
            std::panic::catch_unwind(|| drop(amx.configure())).expect_err("nested");
            drop(tiles);
            drop(amx.configure());
        }
    }
}
