//! Partition of a GEMM's output into tasks.

use core::ops::Range;

use crate::Engine;
use crate::arch::LANES;
use crate::parallel::chunk_range;

/// Minimum floating-point operations of a task.
const MIN_TASK: usize = 200_000;

/// A grid of tasks over groups, rows and panels of the output.
///
/// The M dimension has two levels, `m_outer` x `m_inner`: a convolution phase writes its image rows apart from each
/// other, a GEMM has one outer row.
#[derive(Clone, Copy)]
pub(crate) struct OutputPartition {
    groups: usize,
    m_outer: AxisChunks,
    m_inner: AxisChunks,
    panels: AxisChunks,
}

/// The block of the output that one task computes.
pub(crate) struct OutputBlock {
    pub(crate) group: usize,
    pub(crate) m_outer: Range<usize>,
    pub(crate) m_inner: Range<usize>,
    pub(crate) panels: Range<usize>,
}

/// An axis split into chunks whose sizes, in whole units, differ by at most one.
#[derive(Clone, Copy)]
struct AxisChunks {
    items: usize,
    unit: usize,
    count: usize,
}

impl AxisChunks {
    fn one(items: usize) -> Self {
        Self { items, unit: 1, count: 1 }
    }

    /// Splits into `wanted` chunks, or one per unit if there are fewer units.
    fn of(items: usize, unit: usize, wanted: usize) -> Self {
        Self { items, unit, count: wanted.min(items.div_ceil(unit)).max(1) }
    }

    fn range(&self, index: usize) -> Range<usize> {
        let units = chunk_range(index, self.count, self.items.div_ceil(self.unit));
        units.start * self.unit..(units.end * self.unit).min(self.items)
    }
}

impl OutputPartition {
    /// One task per group.
    pub(crate) fn per_group(groups: usize, [m_outer, m_inner]: [usize; 2], columns: usize) -> Self {
        let panels = columns.div_ceil(LANES);
        Self {
            groups,
            m_outer: AxisChunks::one(m_outer),
            m_inner: AxisChunks::one(m_inner),
            panels: AxisChunks::one(panels),
        }
    }

    /// Splits each group's output into tasks of equal work for all threads. Each output element is a sum of `k`
    /// products; chunk boundaries lie on tiles of `tile_rows` rows and `tile_panels` panels.
    pub(crate) fn for_threads(
        self,
        engine: &Engine,
        columns: usize,
        k: usize,
        (tile_rows, tile_panels): (usize, usize),
    ) -> Self {
        let (m_outer, m_inner, panels) = (self.m_outer.items, self.m_inner.items, self.panels.items);
        let flops = 2.0 * m_outer as f64 * m_inner as f64 * columns as f64 * k as f64;
        let wanted = engine.task_count((flops * self.groups as f64 / MIN_TASK as f64) as usize).div_ceil(self.groups);
        if wanted == 1 {
            return self;
        }
        if m_outer > 1 {
            let m_outer = AxisChunks::of(m_outer, 1, wanted);
            let panels = AxisChunks::of(panels, tile_panels, wanted.div_ceil(m_outer.count));
            return Self { m_outer, panels, ..self };
        }
        if columns > m_inner {
            // The weights are the larger side: give each task its own panels first, then split rows.
            let panels = AxisChunks::of(panels, tile_panels, wanted);
            return Self { m_inner: AxisChunks::of(m_inner, tile_rows, wanted.div_ceil(panels.count)), panels, ..self };
        }
        // Split rows first, as long as each task has a few tiles of them, then panels.
        let m_inner = AxisChunks::of(m_inner, tile_rows, wanted.min(m_inner.div_ceil(2 * tile_rows)));
        Self { m_inner, panels: AxisChunks::of(panels, tile_panels, wanted.div_ceil(m_inner.count)), ..self }
    }

    /// Number of tasks.
    pub(crate) fn tasks(&self) -> usize {
        self.groups * self.m_outer.count * self.m_inner.count * self.panels.count
    }

    /// Returns the block of a task. Panels vary fastest, so that neighbouring tasks share their rows.
    pub(crate) fn block(&self, task: usize) -> OutputBlock {
        let Self { m_outer, m_inner, panels, .. } = self;
        let (task, panels) = (task / panels.count, panels.range(task % panels.count));
        let (task, m_inner) = (task / m_inner.count, m_inner.range(task % m_inner.count));
        OutputBlock { group: task / m_outer.count, m_outer: m_outer.range(task % m_outer.count), m_inner, panels }
    }
}

/// Divides rows into blocks of at most `max_rows`, a multiple of `unit`. A block has at least `unit` rows, if there are as many.
/// All blocks but the last have a multiple of `unit` rows.
#[cfg(target_arch = "x86_64")]
pub(crate) fn row_blocks(rows: &Range<usize>, unit: usize, max_rows: usize) -> impl Iterator<Item = Range<usize>> {
    let (start, count) = (rows.start, rows.len().div_ceil(max_rows));
    let axis = AxisChunks { items: rows.len(), unit, count };
    (0..count).map(move |block| axis.range(block)).map(move |block| start + block.start..start + block.end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_cover_the_output_once_with_equal_work() {
        for (threads, groups, m_outer, m_inner, columns) in [
            (2, 1, 1, 196, 256_usize),
            (2, 1, 1, 196, 576),
            (2, 3, 1, 50, 40),
            (2, 1, 7, 7, 33),
            (3, 1, 1, 3136, 64),
            (1, 2, 3, 4, 5),
        ] {
            let panels = columns.div_ceil(LANES);
            let engine = Engine::new(threads);
            let partition = OutputPartition::per_group(groups, [m_outer, m_inner], columns).for_threads(
                &engine,
                columns,
                4096,
                (14, 2),
            );
            let mut seen = vec![0; groups * m_outer * m_inner * panels];
            let mut work = vec![0; partition.tasks()];
            for (task, work) in work.iter_mut().enumerate() {
                let block = partition.block(task);
                for outer in block.m_outer {
                    for row in block.m_inner.clone() {
                        for panel in block.panels.clone() {
                            seen[((block.group * m_outer + outer) * m_inner + row) * panels + panel] += 1;
                            *work += 1;
                        }
                    }
                }
            }
            assert!(seen.iter().all(|times| *times == 1));
            // A pool without threads runs everything in one.
            if engine.threads() == 2 && groups == 1 && m_outer == 1 {
                let (first, second) = work.split_at(work.len() / 2);
                let (first, second): (usize, usize) = (first.iter().sum(), second.iter().sum());
                assert!(first.abs_diff(second) * 8 <= first + second, "{work:?}");
            }
        }
    }
}
