//! The `cortex_m` operators with wrong arguments: errors that name the argument, and no panic.

use rushlight_testing::cases::{self, Arg, Case, TensorData};
use rushlight_testing::program::Placement;
use rushlight_testing::runner::run_case;

fn family() -> Vec<Case> {
    cases::read("cortex_m").unwrap()
}

/// The first case of an operator, with one argument replaced.
fn with(cases: &[Case], op: &str, index: usize, arg: Arg) -> String {
    let mut case = cases.iter().find(|case| case.op == format!("cortex_m::{op}.out")).unwrap().clone();
    case.args[index] = arg;
    run_case(&case, Placement::Planned).unwrap_err()
}

#[test]
fn wrong_parameters_are_refused() {
    let cases = family();
    let int = Arg::Int;
    let pair = |a, b| Arg::IntList(vec![a, b]);
    for (op, index, arg, expected) in [
        ("quantized_conv2d", 3, pair(0, 1), "stride"),
        ("quantized_conv2d", 4, pair(-1, 0), "padding"),
        ("quantized_conv2d", 5, pair(1, 1 << 40), "dilation"),
        ("quantized_conv2d", 5, Arg::IntList(vec![1, 1, 1]), "dilation"),
        ("quantized_conv2d", 6, int(129), "offset"),
        ("quantized_conv2d", 7, int(-129), "zero point"),
        ("quantized_conv2d", 10, int(128), "bound"),
        ("quantized_depthwise_conv2d", 6, int(-1), "depth_multiplier"),
        ("quantized_depthwise_conv2d", 6, int(i64::MAX), "depth_multiplier"),
        ("quantized_transpose_conv2d", 4, pair(99, 99), "window"),
        ("quantized_linear", 7, Arg::IntList(vec![]), "empty"),
        ("quantized_linear", 7, Arg::IntList(vec![-1]), "multiplier"),
        ("quantized_linear", 8, Arg::IntList(vec![31]), "shift"),
        ("quantized_batch_matmul", 5, int(1 << 31), "multiplier"),
        ("quantized_batch_matmul", 6, int(-32), "shift"),
        ("quantized_add", 3, int(31), "shift"),
        ("quantized_add", 2, int(i64::MIN), "multiplier"),
        ("quantized_mul", 1, int(128), "zero point"),
        ("quantized_max_pool2d", 7, int(5), "output zero point"),
        ("quantized_avg_pool2d", 1, pair(50, 50), "window"),
        ("softmax", 3, int(0), "output zero point"),
        ("softmax", 6, int(1), "diff_min"),
        ("pad", 1, Arg::IntList(vec![0, 0, 0, -1]), "padding"),
        ("pad", 1, Arg::IntList(vec![1, 0, 0, 0]), "padding"),
        ("quantize_per_tensor", 4, int(128), "quant_max"),
        ("quantize_per_tensor", 5, int(4), "dtype"),
    ] {
        let error = with(&cases, op, index, arg);
        assert!(error.contains(expected), "{op}, argument {index}: {error}");
    }
}

/// Replaces each number of each case by extreme ones.
#[test]
fn no_number_panics() {
    const NUMBERS: [i64; 9] = [i64::MIN, i32::MIN as i64, -129, -1, 0, 1, 31, i32::MAX as i64, i64::MAX];
    let mut refused = 0;
    for case in family().iter().step_by(23) {
        for index in 0..case.args.len() {
            for number in NUMBERS {
                let mut case = case.clone();
                match &mut case.args[index] {
                    Arg::Int(value) => *value = number,
                    Arg::IntList(values) => values.iter_mut().for_each(|value| *value = number),
                    // Multipliers and shifts of channels, biases and sums.
                    Arg::Tensor(TensorData { dtype: rushlight_format::ScalarType::Int, bytes, .. }) => {
                        bytes
                            .as_chunks_mut::<4>()
                            .0
                            .iter_mut()
                            .for_each(|value| *value = (number as i32).to_le_bytes());
                    }
                    _ => continue,
                }
                // Results other than the recorded ones are differences, and errors, too.
                refused += usize::from(run_case(&case, Placement::Planned).is_err());
            }
        }
    }
    assert!(refused > 500, "{refused}");
}
