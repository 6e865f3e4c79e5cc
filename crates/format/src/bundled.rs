//! Bundled programs (`.bpte`): a program together with inputs and the outputs they should give.

use crate::error::{ErrorKind, FormatError};
use crate::flatbuf::{Context, Field, Read, Table, TableList};
use crate::header::check_identifier;
use crate::layout::{LayoutFields, TensorLayout};

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

/// Inputs of a method, and what it should return for them.
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

const ROOT: Field = Field::new(0, "BundledProgram", "root");
const VERSION: Field = Field::new(0, "BundledProgram", "version");
const METHOD_TEST_SUITES: Field = Field::new(1, "BundledProgram", "method_test_suites");
const PROGRAM: Field = Field::new(2, "BundledProgram", "program");
const METHOD_NAME: Field = Field::new(0, "BundledMethodTestSuite", "method_name");
const TEST_CASES: Field = Field::new(1, "BundledMethodTestSuite", "test_cases");
const INPUTS: Field = Field::new(0, "BundledMethodTestCase", "inputs");
const EXPECTED_OUTPUTS: Field = Field::new(1, "BundledMethodTestCase", "expected_outputs");
const VAL_TYPE: Field = Field::new(0, "Value", "val_type");
const VAL: Field = Field::new(1, "Value", "val");
const INT_VAL: Field = Field::new(0, "Int", "int_val");
const BOOL_VAL: Field = Field::new(0, "Bool", "bool_val");
const DOUBLE_VAL: Field = Field::new(0, "Double", "double_val");
const SCALAR_TYPE: Field = Field::new(0, "Tensor", "scalar_type");
const SIZES: Field = Field::new(1, "Tensor", "sizes");
const DATA: Field = Field::new(2, "Tensor", "data");
const DIM_ORDER: Field = Field::new(3, "Tensor", "dim_order");

const LAYOUT: LayoutFields = LayoutFields { scalar_type: &SCALAR_TYPE, sizes: &SIZES, dim_order: &DIM_ORDER };

impl<'a> BundledProgram<'a> {
    /// Parses a file and checks all of it but the program inside. `file` needs no alignment.
    ///
    /// # Errors
    /// The first fault found. See [`ErrorKind`].
    pub fn parse(file: &'a [u8]) -> Result<Self, FormatError> {
        check_identifier(file, IDENTIFIER)?;
        let ctx = Context::new(file);
        ctx.explain(Self::decode(&ctx))
    }

    fn decode(ctx: &Context<'a>) -> Read<Self> {
        let root = ctx.root(&ROOT)?;
        let bundled = Self {
            buf: ctx.buf(),
            version: root.scalar(&VERSION, 0)?,
            program: root.required_vector::<u8>(&PROGRAM)?.as_bytes(),
            suites: root.tables(&METHOD_TEST_SUITES)?.list(),
        };
        ctx.tables(bundled.suites).each(|table| {
            let suite = TestSuite::decode(table)?;
            table.spend(16 + suite.method_name.len())?;
            ctx.tables(suite.cases).each(|table| {
                let case = TestCase::decode(table)?;
                table.spend(16)?;
                for list in [case.inputs, case.expected_outputs] {
                    ctx.tables(list).each(|table| {
                        table.spend(16)?;
                        BundledValue::decode(table).map(drop)
                    })?;
                }
                Ok(())
            })
        })?;
        Ok(bundled)
    }

    /// Whether a file claims to be a bundled program, of whatever generation.
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

    /// Case `index`, if there are so many.
    pub fn case(&self, index: usize) -> Option<TestCase<'a>> {
        self.cases.entry(self.buf, index, TestCase::decode)
    }

    fn decode(table: Table<'_, 'a>) -> Read<Self> {
        let cases = table.tables(&TEST_CASES)?.list();
        Ok(Self { method_name: table.required_string(&METHOD_NAME)?, buf: table.context().buf(), cases })
    }
}

impl<'a> TestCase<'a> {
    pub fn inputs(&self) -> impl ExactSizeIterator<Item = BundledValue<'a>> + use<'a> {
        values(self.buf, self.inputs)
    }

    pub fn expected_outputs(&self) -> impl ExactSizeIterator<Item = BundledValue<'a>> + use<'a> {
        values(self.buf, self.expected_outputs)
    }

    fn decode(table: Table<'_, 'a>) -> Read<Self> {
        Ok(Self {
            buf: table.context().buf(),
            inputs: table.tables(&INPUTS)?.list(),
            expected_outputs: table.tables(&EXPECTED_OUTPUTS)?.list(),
        })
    }
}

fn values(buf: &[u8], list: TableList) -> impl ExactSizeIterator<Item = BundledValue<'_>> {
    let value = move |index| list.entry(buf, index, BundledValue::decode).unwrap_or(BundledValue::Int(0));
    (0..list.len()).map(value)
}

impl<'a> BundledValue<'a> {
    fn decode(table: Table<'_, 'a>) -> Read<Self> {
        let val = table.required_table(&VAL)?;
        Ok(match table.scalar(&VAL_TYPE, 0u8)? {
            1 => {
                let layout = TensorLayout::decode(val, &LAYOUT)?;
                let data = val.vector::<u8>(&DATA)?.as_bytes();
                let (needed, available) = (layout.nbytes(), data.len() as u64);
                if needed > available {
                    return Err(val.report(&DATA, ErrorKind::Truncated { needed, available }));
                }
                Self::Tensor { layout, data }
            }
            2 => Self::Int(val.scalar(&INT_VAL, 0)?),
            3 => Self::Bool(val.scalar(&BOOL_VAL, false)?),
            4 => Self::Double(val.scalar(&DOUBLE_VAL, 0.0)?),
            tag => return Err(table.report(&VAL_TYPE, ErrorKind::UnknownTag { tag: u32::from(tag) })),
        })
    }
}
