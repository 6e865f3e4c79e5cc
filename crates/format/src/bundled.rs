//! Bundled programs (`.bpte`): a program together with inputs and the outputs they should give.

use crate::error::FormatError;
use crate::flatbuf::{Context, Table, TableList};
use crate::header::check_identifier;
use crate::layout::{LayoutFields, TensorLayout};
use crate::schema::*;

/// A bundled program. [`parse`](Self::parse) has checked all but the program inside, which
/// [`Program::parse`](crate::Program::parse) does.
#[derive(Clone, Copy, Debug)]
pub struct BundledProgram<'a> {
    buf: &'a [u8],
    version: u32,
    program: &'a [u8],
    suites: TableList,
}

/// The test cases of a method.
#[derive(Clone, Copy, Debug)]
pub struct TestSuite<'a> {
    pub method_name: &'a str,
    buf: &'a [u8],
    cases: TableList,
}

/// Inputs of a method, and its expected outputs.
#[derive(Clone, Copy, Debug)]
pub struct TestCase<'a> {
    buf: &'a [u8],
    inputs: TableList,
    expected_outputs: TableList,
}

/// An input or output of a test case.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum BundledValue<'a> {
    /// `data` holds at least the bytes of the layout.
    Tensor {
        layout: TensorLayout<'a>,
        data: &'a [u8],
    },
    Int(i64),
    Bool(bool),
    Double(f64),
}

const IDENTIFIER: [u8; 4] = *b"BP08";

const LAYOUT: LayoutFields =
    LayoutFields { scalar_type: BUNDLED_SCALAR_TYPE, sizes: BUNDLED_SIZES, dim_order: BUNDLED_DIM_ORDER };

impl<'a> BundledProgram<'a> {
    /// Parses a file and checks all of it but the program inside. `file` needs no alignment.
    ///
    /// # Errors
    /// The first fault found. See [`ErrorKind`](crate::ErrorKind).
    pub fn parse(file: &'a [u8]) -> Result<Self, FormatError> {
        let ctx = Context::new(file);
        ctx.explain(Self::decode(&ctx))
    }

    fn decode(ctx: &Context<'a>) -> Option<Self> {
        check_identifier(ctx, IDENTIFIER);
        let root = ctx.root(BUNDLE_ROOT)?;
        let bundled = Self {
            buf: ctx.buf(),
            version: root.scalar(BUNDLE_VERSION, 0),
            program: root.required_vector::<u8>(BUNDLE_PROGRAM).as_bytes(),
            suites: root.tables(BUNDLE_SUITES),
        };
        ctx.each(bundled.suites, BUNDLE_SUITES, |table| {
            let suite = TestSuite::decode(table);
            table.spend(16 + suite.method_name.len());
            ctx.each(suite.cases, SUITE_CASES, |table| {
                let case = TestCase::decode(table);
                table.spend(16);
                for (list, field) in [(case.inputs, CASE_INPUTS), (case.expected_outputs, CASE_OUTPUTS)] {
                    ctx.each(list, field, |table| {
                        table.spend(16);
                        BundledValue::decode(table);
                    });
                }
            });
        });
        Some(bundled)
    }

    /// True if a file has the identifier of a bundled program, of any generation.
    pub fn is_bundled(file: &[u8]) -> bool {
        file.get(4..6) == Some(&IDENTIFIER[..2])
    }

    /// Version of the schema.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// The whole `.pte` file.
    pub fn program(&self) -> &'a [u8] {
        self.program
    }

    /// The suites, by method name.
    pub fn suites(&self) -> impl Iterator<Item = TestSuite<'a>> + use<'a> {
        let bundled = *self;
        (0..self.suites.len()).filter_map(move |index| bundled.suites.entry(bundled.buf, index, TestSuite::decode))
    }

    /// The suite of a method.
    pub fn suite(&self, method_name: &str) -> Option<TestSuite<'a>> {
        self.suites().find(|suite| suite.method_name == method_name)
    }
}

impl<'a> TestSuite<'a> {
    pub fn num_cases(&self) -> usize {
        self.cases.len()
    }

    /// Case `index`; `None` past the last one.
    pub fn case(&self, index: usize) -> Option<TestCase<'a>> {
        self.cases.entry(self.buf, index, TestCase::decode)
    }

    fn decode(table: Table<'_, 'a>) -> Self {
        let cases = table.tables(SUITE_CASES);
        Self { method_name: table.required_string(SUITE_METHOD_NAME), buf: table.context().buf(), cases }
    }
}

impl<'a> TestCase<'a> {
    pub fn inputs(&self) -> impl ExactSizeIterator<Item = BundledValue<'a>> + use<'a> {
        values(self.buf, self.inputs)
    }

    pub fn expected_outputs(&self) -> impl ExactSizeIterator<Item = BundledValue<'a>> + use<'a> {
        values(self.buf, self.expected_outputs)
    }

    fn decode(table: Table<'_, 'a>) -> Self {
        Self {
            buf: table.context().buf(),
            inputs: table.tables(CASE_INPUTS),
            expected_outputs: table.tables(CASE_OUTPUTS),
        }
    }
}

fn values(buf: &[u8], list: TableList) -> impl ExactSizeIterator<Item = BundledValue<'_>> {
    let value = move |index| list.entry(buf, index, BundledValue::decode).unwrap_or(BundledValue::Int(0));
    (0..list.len()).map(value)
}

impl<'a> BundledValue<'a> {
    fn decode(table: Table<'_, 'a>) -> Self {
        let Some(val) = table.required_table(BUNDLED_VALUE) else { return Self::Int(0) };
        match table.scalar(BUNDLED_TYPE, 0u8) {
            1 => {
                let layout = TensorLayout::decode(val, LAYOUT);
                let data = val.vector::<u8>(BUNDLED_DATA).as_bytes();
                val.fits(BUNDLED_DATA, layout.nbytes() as u64, data.len() as u64);
                Self::Tensor { layout, data }
            }
            2 => Self::Int(val.scalar(INT_VAL, 0)),
            3 => Self::Bool(val.scalar(BOOL_VAL, false)),
            4 => Self::Double(val.scalar(DOUBLE_VAL, 0.0)),
            tag => {
                table.unknown(BUNDLED_TYPE, tag);
                Self::Int(0)
            }
        }
    }
}
