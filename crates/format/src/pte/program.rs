//! A parsed program: its segments, constants, named data and methods.

use crate::error::{ErrorKind, FormatError};
use crate::flatbuf::{Context, Table, TableList, Vector};
use crate::schema::*;
use crate::segments::Segments;
use crate::shapes::SHAPES_KEY;
#[cfg(feature = "alloc")]
use crate::signature::{SHARED_STATE_KEY, SIGNATURE_KEY};

use super::header::ExtendedHeader;
use super::plan::{DelegateDataRef, Plan};

/// A `.pte` file. [`parse`](Self::parse) has checked all of it; this is a view of its bytes and cheap to copy.
#[derive(Clone, Copy, Debug)]
pub struct Program<'a> {
    /// These know the file and its flatbuffer.
    segments: Segments<'a>,
    constants: Constants<'a>,
    mutable_data: Subsegments<'a>,
    plans: TableList,
    delegate_data: TableList,
    named_data: TableList,
    /// The blob of [`SHAPES_KEY`].
    pub(super) shapes: Option<&'a [u8]>,
    /// The blob of [`SIGNATURE_KEY`].
    #[cfg(feature = "alloc")]
    pub(super) signatures: Option<&'a [u8]>,
}

/// The storage of constants.
#[derive(Clone, Copy, Debug)]
enum Constants<'a> {
    /// In the flatbuffer, as programs from before segments do.
    Inline(TableList),
    Segment(Subsegments<'a>),
}

/// A segment cut into pieces: each begins at its offset and ends at the next one.
#[derive(Clone, Copy, Debug, Default)]
struct Subsegments<'a> {
    data: &'a [u8],
    offsets: Vector<'a, u64>,
}

impl<'a> Program<'a> {
    /// Parses a file and checks all of it: every offset, index, size, code and string, and that each
    /// tensor's data exists. The work is linear in the size of the flatbuffer part, and weights are not read.
    ///
    /// `file` needs no alignment.
    ///
    /// # Errors
    /// The first fault found. See [`ErrorKind`].
    pub fn parse(file: &'a [u8]) -> Result<Self, FormatError> {
        let mut ctx = Context::new(file);
        match Self::decode(&mut ctx) {
            Some(program) if program.check(&ctx) => Ok(Self {
                shapes: program.named(SHAPES_KEY),
                #[cfg(feature = "alloc")]
                signatures: program.named(SIGNATURE_KEY),
                ..program
            }),
            _ => Err(ctx.fault()),
        }
    }

    /// True if state of the same name is common to the methods, which have to share their planned memory then: Rushlight's compiler
    /// says so under [`SHARED_STATE_KEY`].
    #[cfg(feature = "alloc")]
    pub fn shares_state(&self) -> bool {
        self.named(SHARED_STATE_KEY).is_some()
    }

    fn decode(ctx: &mut Context<'a>) -> Option<Self> {
        let file = ctx.buf();
        let mut base = 0;
        if let Some(header) = ExtendedHeader::read(ctx) {
            base = header.segment_base_offset;
            // It has been checked against the file's length, which is a `usize`.
            ctx.limit(header.program_size as usize);
        }
        let root = ctx.root(PROGRAM_ROOT)?;
        // Read when somebody asks for it, and checked now.
        root.scalar(PROGRAM_VERSION, 0u32);
        let mut program = Self {
            segments: Segments::parse(root, PROGRAM_SEGMENTS, file, base),
            constants: Constants::Inline(root.tables(PROGRAM_CONSTANT_BUFFER)),
            mutable_data: Subsegments::default(),
            plans: root.tables(PROGRAM_EXECUTION_PLAN),
            delegate_data: root.tables(PROGRAM_BACKEND_DELEGATE_DATA),
            named_data: root.tables(PROGRAM_NAMED_DATA),
            shapes: None,
            #[cfg(feature = "alloc")]
            signatures: None,
        };
        if let Some(table) = root.table(PROGRAM_CONSTANT_SEGMENT) {
            let pieces = program.subsegments(table);
            // A single offset is the placeholder of a program without constants.
            if pieces.offsets.len() > 1 {
                if program.num_constants() > 0 {
                    root.report(PROGRAM_CONSTANT_BUFFER, ErrorKind::Conflict);
                }
                program.constants = Constants::Segment(pieces);
            }
        }
        let mutable_data = root.tables(PROGRAM_MUTABLE_DATA_SEGMENTS);
        if mutable_data.len() > 0 {
            program.mutable_data = program.subsegments(ctx.entry(mutable_data, 0, PROGRAM_MUTABLE_DATA_SEGMENTS)?);
        }
        Some(program)
    }

    /// The whole file.
    pub fn bytes(&self) -> &'a [u8] {
        self.segments.file()
    }

    fn buf(&self) -> &'a [u8] {
        self.segments.buf()
    }

    /// The extended header, which files without segments may lack.
    pub fn header(&self) -> Option<ExtendedHeader> {
        ExtendedHeader::parse(self.bytes()).ok().flatten()
    }

    /// Version of the schema; 0 in every file so far.
    pub fn version(&self) -> u32 {
        let ctx = Context::new(self.buf());
        ctx.root(PROGRAM_ROOT).map_or(0, |root| root.scalar(PROGRAM_VERSION, 0))
    }

    pub fn num_methods(&self) -> usize {
        self.plans.len()
    }

    /// Method `index`; `None` past the last one.
    pub fn method(&self, index: usize) -> Option<Plan<'a>> {
        self.plans.entry(self.buf(), index, Plan::decode).map(|plan| plan.with_blobs_of(self))
    }

    pub fn methods(&self) -> impl Iterator<Item = Plan<'a>> + use<'a> {
        let program = *self;
        (0..self.num_methods()).filter_map(move |index| program.method(index))
    }

    /// The first method of this name.
    pub fn method_named(&self, name: &str) -> Option<Plan<'a>> {
        self.methods().find(|plan| plan.name() == name)
    }

    /// Number of constants, with the placeholder 0 that means no data.
    pub fn num_constants(&self) -> usize {
        match self.constants {
            Constants::Inline(buffers) => buffers.len(),
            Constants::Segment(pieces) => pieces.offsets.len(),
        }
    }

    /// The bytes stored for constant `index`: at least those of every tensor that names it, and
    /// possibly padding after them.
    #[inline]
    pub fn constant(&self, index: u32) -> Option<&'a [u8]> {
        match self.constants {
            Constants::Segment(pieces) => pieces.get(index),
            Constants::Inline(buffers) => self.inline(buffers, index, BUFFER_STORAGE),
        }
    }

    /// Number of initial values of mutable buffers, with the placeholder 0.
    pub fn num_mutable_data(&self) -> usize {
        self.mutable_data.offsets.len()
    }

    /// The initial value of a mutable buffer, as [`constant`](Self::constant).
    pub fn mutable_data(&self, index: u32) -> Option<&'a [u8]> {
        self.mutable_data.get(index)
    }

    pub fn num_segments(&self) -> usize {
        self.segments.len()
    }

    /// Segment `index`; `None` past the last one.
    pub fn segment(&self, index: usize) -> Option<&'a [u8]> {
        self.segments.get(index)
    }

    /// The payload of a delegate. Empty payloads exist.
    pub fn delegate_data(&self, reference: DelegateDataRef) -> Option<&'a [u8]> {
        match reference {
            DelegateDataRef::Segment(index) => self.segment(index as usize),
            DelegateDataRef::Inline(index) => self.inline(self.delegate_data, index, INLINE_DATA),
        }
    }

    /// Keys and blobs that delegates share, in the file's order.
    pub fn named_data(&self) -> impl Iterator<Item = (&'a str, &'a [u8])> + use<'a> {
        let program = *self;
        (0..self.named_data.len())
            .filter_map(move |index| program.named_data.entry(program.buf(), index, |table| program.named_entry(table)))
    }

    /// The blob of the first entry with this key.
    pub fn named(&self, key: &str) -> Option<&'a [u8]> {
        self.named_data().find(|(k, _)| *k == key).map(|(_, data)| data)
    }

    /// Number of payloads of the kind that `reference` names.
    pub(crate) fn num_delegate_data(&self, reference: DelegateDataRef) -> usize {
        match reference {
            DelegateDataRef::Segment(_) => self.segments.len(),
            DelegateDataRef::Inline(_) => self.delegate_data.len(),
        }
    }

    /// The bytes in `field` of entry `index` of a list.
    fn inline(&self, list: TableList, index: u32, field: Field) -> Option<&'a [u8]> {
        list.entry(self.buf(), index as usize, |table| table.vector::<u8>(field).as_bytes())
    }

    fn subsegments(&self, table: Table<'_, 'a>) -> Subsegments<'a> {
        let offsets = table.vector::<u64>(SUBSEGMENT_OFFSETS);
        if offsets.len() <= 1 {
            return Subsegments { data: &[], offsets };
        }
        let data = self.segments.of(table, SUBSEGMENT_SEGMENT_INDEX);
        let needed = offsets.iter().fold(0, u64::max);
        table.fits(SUBSEGMENT_OFFSETS, needed, data.len() as u64);
        Subsegments { data, offsets }
    }

    fn named_entry(&self, table: Table<'_, 'a>) -> (&'a str, &'a [u8]) {
        (table.required_string(NAMED_KEY), self.segments.of(table, NAMED_SEGMENT_INDEX))
    }

    /// True if all that the file describes is right.
    fn check(&self, ctx: &Context<'a>) -> bool {
        if let Constants::Inline(buffers) = self.constants {
            ctx.each(buffers, PROGRAM_CONSTANT_BUFFER, |buffer| {
                buffer.vector::<u8>(BUFFER_STORAGE);
            });
        }
        ctx.each(self.delegate_data, PROGRAM_BACKEND_DELEGATE_DATA, |data| {
            data.vector::<u8>(INLINE_DATA);
        });
        ctx.each(self.named_data, PROGRAM_NAMED_DATA, |table| {
            let (key, _) = self.named_entry(table);
            table.spend(16 + key.len());
        });
        ctx.each(self.plans, PROGRAM_EXECUTION_PLAN, |table| Plan::decode(table).check(table, self));
        // Firmware comes with its program, and calls the first method of a name, as ExecuTorch does.
        if !cfg!(target_os = "none") {
            self.check_names(ctx);
        }
        !ctx.has_fault()
    }

    /// Refuses two methods of one name: only the first could be called. No compiler writes such programs. Each comparison
    /// is charged to the parser's budget, so that the work stays in proportion to the file.
    fn check_names(&self, ctx: &Context<'a>) {
        let name = |index| Some(ctx.entry(self.plans, index, PROGRAM_EXECUTION_PLAN)?.required_string(PLAN_NAME));
        for index in 1..self.plans.len() {
            let Some(table) = ctx.entry(self.plans, index, PROGRAM_EXECUTION_PLAN) else { return };
            let own = table.required_string(PLAN_NAME);
            for before in 0..index {
                if ctx.has_fault() {
                    return;
                }
                let Some(other) = name(before) else { return };
                table.spend(if own.len() == other.len() { 1 + own.len() } else { 1 });
                if own == other {
                    table.report(PLAN_NAME, ErrorKind::Duplicate);
                    ctx.at_index(index);
                }
            }
        }
    }
}

impl<'a> Subsegments<'a> {
    /// The bytes from offset `index` to the next one, or to the end when that is not larger.
    #[inline]
    fn get(&self, index: u32) -> Option<&'a [u8]> {
        let start = usize::try_from(self.offsets.get(index as usize)?).ok()?;
        let next = self.offsets.get((index as usize).checked_add(1)?).and_then(|end| usize::try_from(end).ok());
        let end = next.filter(|end| *end > start).unwrap_or(self.data.len());
        self.data.get(start..end)
    }
}
