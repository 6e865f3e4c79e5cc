//! The output of a product, cut into tasks.

use core::ops::Range;

use crate::Engine;
use crate::arch::LANES;
use crate::split::piece;

/// Floating-point operations below which a task is not worth handing over.
const MIN_TASK: usize = 200_000;

/// A grid of tasks over groups, lines, rows and panels.
#[derive(Clone, Copy)]
pub(crate) struct Cut {
    groups: usize,
    lines: Pieces,
    rows: Pieces,
    panels: Pieces,
}

/// What a task computes.
pub(crate) struct Share {
    pub(crate) group: usize,
    pub(crate) lines: Range<usize>,
    pub(crate) rows: Range<usize>,
    pub(crate) panels: Range<usize>,
}

/// Items in pieces that are as equal as whole units can be.
#[derive(Clone, Copy)]
struct Pieces {
    items: usize,
    unit: usize,
    count: usize,
}

impl Pieces {
    fn whole(items: usize) -> Self {
        Self { items, unit: 1, count: 1 }
    }

    /// So many pieces, or as many as there are units.
    fn of(items: usize, unit: usize, wanted: usize) -> Self {
        Self { items, unit, count: wanted.min(items.div_ceil(unit)).max(1) }
    }

    fn range(&self, index: usize) -> Range<usize> {
        let units = piece(index, self.count, self.items.div_ceil(self.unit));
        units.start * self.unit..(units.end * self.unit).min(self.items)
    }
}

impl Cut {
    /// A task for each group.
    pub(crate) fn whole(groups: usize, [lines, rows]: [usize; 2], columns: usize) -> Self {
        let panels = columns.div_ceil(LANES);
        Self { groups, lines: Pieces::whole(lines), rows: Pieces::whole(rows), panels: Pieces::whole(panels) }
    }

    /// Cuts what is whole for all threads, each element of the output being a sum of `k` products, in tiles of so many
    /// rows and panels.
    pub(crate) fn among(
        self,
        engine: &Engine,
        columns: usize,
        k: usize,
        (tile_rows, tile_panels): (usize, usize),
    ) -> Self {
        let (lines, rows, panels) = (self.lines.items, self.rows.items, self.panels.items);
        let flops = 2.0 * lines as f64 * rows as f64 * columns as f64 * k as f64;
        let wanted = engine.pieces((flops * self.groups as f64 / MIN_TASK as f64) as usize).div_ceil(self.groups);
        if wanted == 1 {
            return self;
        }
        if lines > 1 {
            let lines = Pieces::of(lines, 1, wanted);
            let panels = Pieces::of(panels, tile_panels, wanted.div_ceil(lines.count));
            return Self { lines, panels, ..self };
        }
        if columns > rows {
            // Weights are the larger side, so that each task has its own part of them; what is missing, by rows.
            let panels = Pieces::of(panels, tile_panels, wanted);
            return Self { rows: Pieces::of(rows, tile_rows, wanted.div_ceil(panels.count)), panels, ..self };
        }
        // Rows first, as long as each task has a few tiles of them; what is missing then, by panels.
        let rows = Pieces::of(rows, tile_rows, wanted.min(rows.div_ceil(2 * tile_rows)));
        Self { rows, panels: Pieces::of(panels, tile_panels, wanted.div_ceil(rows.count)), ..self }
    }

    pub(crate) fn tasks(&self) -> usize {
        self.groups * self.lines.count * self.rows.count * self.panels.count
    }

    /// What a task computes. Panels vary fastest, so that neighbouring tasks read the same rows.
    pub(crate) fn share(&self, task: usize) -> Share {
        let Self { lines, rows, panels, .. } = self;
        let (task, panels) = (task / panels.count, panels.range(task % panels.count));
        let (task, rows) = (task / rows.count, rows.range(task % rows.count));
        Share { group: task / lines.count, lines: lines.range(task % lines.count), rows, panels }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_cover_the_output_once_and_threads_have_the_same() {
        for (threads, groups, lines, rows, columns) in [
            (2, 1, 1, 196, 256_usize),
            (2, 1, 1, 196, 576),
            (2, 3, 1, 50, 40),
            (2, 1, 7, 7, 33),
            (3, 1, 1, 3136, 64),
            (1, 2, 3, 4, 5),
        ] {
            let panels = columns.div_ceil(LANES);
            let engine = Engine::new(threads);
            let cut = Cut::whole(groups, [lines, rows], columns).among(&engine, columns, 4096, (14, 2));
            let mut seen = vec![0; groups * lines * rows * panels];
            let mut work = vec![0; cut.tasks()];
            for (task, work) in work.iter_mut().enumerate() {
                let share = cut.share(task);
                for line in share.lines {
                    for row in share.rows.clone() {
                        for panel in share.panels.clone() {
                            seen[((share.group * lines + line) * rows + row) * panels + panel] += 1;
                            *work += 1;
                        }
                    }
                }
            }
            assert!(seen.iter().all(|times| *times == 1));
            // Where there are no threads, one does it all.
            if engine.threads() == 2 && groups == 1 && lines == 1 {
                let (first, second) = work.split_at(work.len() / 2);
                let (first, second): (usize, usize) = (first.iter().sum(), second.iter().sum());
                assert!(first.abs_diff(second) * 8 <= first + second, "{work:?}");
            }
        }
    }
}
