use alloc::vec;
use alloc::vec::Vec;

use super::{Program, header};
use crate::ErrorKind;
use crate::error::names;
use crate::flatbuf::{Builder, Offset};
use crate::schema::*;

/// A program with one method, of which `fill` gives the values and the chain.
fn program(fill: impl FnOnce(&mut Builder) -> (Vec<Offset>, Offset)) -> Vec<u8> {
    let mut b = Builder::new(16);
    let (values, chain) = fill(&mut b);
    let name = b.string("forward");
    let values = b.offsets(&values);
    let none = b.offsets(&[]);
    let chains = b.offsets(&[chain]);
    let plan = b.table(&[
        (PLAN_NAME, name.into()),
        (PLAN_VALUES, values.into()),
        (PLAN_INPUTS, none.into()),
        (PLAN_OUTPUTS, none.into()),
        (PLAN_CHAINS, chains.into()),
    ]);
    let plans = b.offsets(&[plan]);
    let root = b.table(&[(PROGRAM_EXECUTION_PLAN, plans.into())]);
    b.finish(root, header::IDENTIFIER, &[])
}

fn no_instructions(b: &mut Builder) -> Offset {
    let none = b.offsets(&[]);
    b.table(&[(CHAIN_INSTRUCTIONS, none.into())])
}

/// `count` references to one list of `count` items: a small file that describes a huge program.
fn shared_list(count: usize) -> Vec<u8> {
    program(|b| {
        let items = b.numbers(vec![0u32; count].iter().map(|item| item.to_le_bytes()));
        let list = b.table(&[(LIST_ITEMS, items.into())]);
        let value = b.table(&[(VALUE_TYPE, 10u8.into()), (VALUE_VALUE, list.into())]);
        (vec![value; count], no_instructions(b))
    })
}

#[test]
fn data_that_is_referenced_without_end_is_refused() {
    let small = shared_list(20);
    assert_eq!(Program::parse(&small).unwrap().method(0).unwrap().num_values(), 20);
    for count in [1_000, 100_000] {
        let error = Program::parse(&shared_list(count)).unwrap_err();
        assert_eq!(error.kind, ErrorKind::TooComplex);
    }
    let calls = program(|b| {
        let value = b.table(&[(VALUE_TYPE, 1u8.into())]);
        let args = b.numbers(vec![0u32; 2_000].iter().map(|item| item.to_le_bytes()));
        let call = b.table(&[(MOVE_FROM, 0u32.into()), (DELEGATE_CALL_ARGS, args.into())]);
        let step = b.table(&[(INSTRUCTION_ARGS_TYPE, 1u8.into()), (INSTRUCTION_ARGS, call.into())]);
        let steps = b.offsets(&vec![step; 2_000]);
        (vec![value], b.table(&[(CHAIN_INSTRUCTIONS, steps.into())]))
    });
    assert!(Program::parse(&calls).is_err());
}

#[test]
fn unknown_codes_are_refused() {
    for tag in [0u8, 12, 255] {
        let file = program(|b| {
            let empty = b.table(&[]);
            (vec![b.table(&[(VALUE_TYPE, tag.into()), (VALUE_VALUE, empty.into())])], no_instructions(b))
        });
        let error = Program::parse(&file).unwrap_err();
        assert_eq!((error.kind, error.index), (ErrorKind::UnknownTag { tag: u32::from(tag) }, Some(0)));
    }
    for tag in [0u8, 6] {
        let file = program(|b| {
            let empty = b.table(&[]);
            let step = b.table(&[(INSTRUCTION_ARGS_TYPE, tag.into()), (INSTRUCTION_ARGS, empty.into())]);
            let steps = b.offsets(&[step]);
            (vec![], b.table(&[(CHAIN_INSTRUCTIONS, steps.into())]))
        });
        assert_eq!(Program::parse(&file).unwrap_err().kind, ErrorKind::UnknownTag { tag: u32::from(tag) });
    }
    for (field, tag) in [(TENSOR_SCALAR_TYPE, 30u8), (TENSOR_SHAPE_DYNAMISM, 3)] {
        let file = program(|b| {
            let none = b.offsets(&[]);
            let tensor = b.table(&[(TENSOR_SIZES, none.into()), (TENSOR_DIM_ORDER, none.into()), (field, tag.into())]);
            (vec![b.table(&[(VALUE_TYPE, 5u8.into()), (VALUE_VALUE, tensor.into())])], no_instructions(b))
        });
        let error = Program::parse(&file).unwrap_err();
        assert_eq!((error.kind, error.field()), (ErrorKind::UnknownTag { tag: u32::from(tag) }, names(field).1));
    }
}

#[test]
fn absent_fields_are_named() {
    let file = program(|b| {
        let none = b.offsets(&[]);
        let tensor = b.table(&[(TENSOR_SIZES, none.into())]);
        (vec![b.table(&[(VALUE_TYPE, 5u8.into()), (VALUE_VALUE, tensor.into())])], no_instructions(b))
    });
    let error = Program::parse(&file).unwrap_err();
    assert_eq!((error.kind, error.table(), error.field()), (ErrorKind::Missing, "Tensor", "dim_order"));
    let file = program(|b| (vec![b.table(&[(VALUE_TYPE, 2u8.into())])], no_instructions(b)));
    assert_eq!(Program::parse(&file).unwrap_err().kind, ErrorKind::Missing);
}

#[test]
fn a_storage_offset_is_refused() {
    let file = program(|b| {
        let none = b.offsets(&[]);
        let tensor = b.table(&[
            (TENSOR_SIZES, none.into()),
            (TENSOR_DIM_ORDER, none.into()),
            (TENSOR_STORAGE_OFFSET, 4i32.into()),
        ]);
        (vec![b.table(&[(VALUE_TYPE, 5u8.into()), (VALUE_VALUE, tensor.into())])], no_instructions(b))
    });
    assert!(matches!(Program::parse(&file).unwrap_err().kind, ErrorKind::Unsupported { .. }));
}
