//! Payloads that ask for more work than the size of their tensors allows. Each ends or returns an error, and none
//! panics.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use rushlight_cpu_payload::{
    Attention, Convolution, ConvolutionKind, Copy, DeltaRule, Elementwise, Epilogue, FloatFormat, Instruction,
    KeyValueFormat, Matmul, MatmulKind, Normalization, Operand, QuantizedFormat, Reduce, Reduction, Size, Softmax,
    Step, TensorId, Unary, Window,
};
use rushlight_cpu_run::CpuBackend;
use rushlight_engine::pack::{Bits, Offsets, QuantizedGroups, ScaleFormat};
use rushlight_engine::{Engine, Isa, pack};
use rushlight_format::ScalarType;

use rushlight_runtime::Code;

use crate::payload::source::Source;
use crate::payload::{Payload, run, run_with_sizes};

/// Time limit of a small program, generous for a busy machine.
const TOO_SLOW: Duration = Duration::from_secs(20);

/// Memory limit of one program, in bytes.
const MEMORY_LIMIT: usize = 4 << 20;

/// Loads and runs a payload, and returns its error. Fails on a panic or a timeout.
fn outcome(what: &str, payload: Payload) -> Result<(), String> {
    outcome_within(what, payload, MEMORY_LIMIT)
}

fn outcome_within(what: &str, payload: Payload, limit: usize) -> Result<(), String> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let backend = CpuBackend::new(Arc::new(Engine::new(2)));
        sender.send(run(payload, backend, limit).map_err(|error| error.to_string()))
    });
    match receiver.recv_timeout(TOO_SLOW) {
        Ok(result) => result,
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("{what}: no end"),
        Err(mpsc::RecvTimeoutError::Disconnected) => panic!("{what}: a panic"),
    }
}

/// Fails if a payload is not refused because of the work that it asks for.
fn assert_refused(what: &str, payload: Payload) {
    let error = outcome(what, payload).expect_err(what);
    assert!(error.contains("operations"), "{what}: {error}");
}

fn fixed(sizes: &[u64]) -> Vec<Size> {
    sizes.iter().map(|size| Size::Fixed(*size)).collect()
}

#[test]
fn copies_of_more_than_there_is_are_refused() {
    let copy = |sizes: &[u64], strides: &[u64]| {
        Payload::of_step(&[&[1]], &[1], |inputs, y| {
            Step::Copy(Copy {
                x: inputs[0],
                y,
                sizes: fixed(sizes),
                x_offset: Size::Fixed(0),
                x_strides: fixed(&vec![0; sizes.len()]),
                y_offset: Size::Fixed(0),
                y_strides: fixed(strides),
                fill: None,
            })
        })
    };
    assert_eq!(outcome("one element", copy(&[1], &[1])), Ok(()));
    assert_refused("2^62 elements", copy(&[1 << 62], &[0]));
    assert_refused("2^62 elements of two dimensions", copy(&[1 << 31, 1 << 31], &[0, 0]));
}

#[test]
fn attention_over_more_keys_than_there_are_is_refused() {
    let attention = |keys, depth| {
        let mut payload = Payload::of_step(&[&[1], &[1], &[1]], &[1], |inputs, y| {
            let one = Size::Fixed(1);
            Step::Attention(Attention {
                q: inputs[0],
                k: inputs[1],
                v: inputs[2],
                mask: None,
                format: KeyValueFormat::Floats,
                y,
                batch: one,
                heads: one,
                groups: one,
                rows: one,
                keys: Size::Fixed(keys),
                depth: Size::Fixed(depth),
                value_depth: one,
                scale: 1.0,
                causal: None,
                strides: [[Size::Fixed(0); 3]; 4],
            })
        });
        payload.program.scratch = 32 << 10;
        payload
    };
    assert_eq!(outcome("one key", attention(1, 1)), Ok(()));
    assert_refused("2^50 keys", attention(1 << 50, 1));
    assert_refused("2^50 keys without depth", attention(1 << 50, 0));
}

#[test]
fn delta_rules_of_sizes_that_contradict_each_other_are_refused() {
    let rule = |change: Option<(usize, &'static [u64])>| {
        let mut sizes: [&[u64]; 7] =
            [&[1, 2, 4, 4], &[1, 2, 2, 4], &[1, 2, 2, 8], &[1, 2, 2], &[1, 2, 2], &[1, 2, 4, 8], &[64 + 64]];
        if let Some((index, dims)) = change {
            sizes[index] = dims;
        }
        let [inputs @ .., y] = &sizes;
        Payload::of_step(inputs, y, |x, y| {
            Step::DeltaRule(DeltaRule { q: x[0], k: x[1], v: x[2], decay: x[3], beta: x[4], state: x[5], y })
        })
    };
    assert_eq!(outcome("a delta rule", rule(None)), Ok(()));
    assert_eq!(outcome("a decay for each row", rule(Some((3, &[1, 2, 2, 4])))), Ok(()));
    for (index, dims) in [
        (0, &[1, 2, 3, 4][..]),
        (0, &[2, 2, 4, 4]),
        (0, &[1, 2, 4]),
        (1, &[1, 1, 2, 4]),
        (1, &[1, 2, 0, 4]),
        (2, &[1, 1, 2, 8]),
        (2, &[1, 2, 2, 9]),
        (3, &[1, 2, 1]),
        (3, &[1, 2, 2, 3]),
        (4, &[1, 1, 2]),
        (5, &[1, 2, 4, 7]),
        (6, &[63]),
        (6, &[64 + 63]),
    ] {
        let what = format!("operand {index} of {dims:?}");
        assert!(outcome(&what, rule(Some((index, dims)))).is_err(), "{what}");
    }
}

fn window(kernel: [u32; 2], stride: [u32; 2], padding: [[u32; 2]; 2]) -> Window<2> {
    Window { kernel, stride, padding, dilation: [1; 2] }
}

fn direct(window: Window<2>) -> ConvolutionKind {
    ConvolutionKind::Direct { window, groups: 1, format: FloatFormat::F32, epilogue: Epilogue::default() }
}

fn transposed(window: Window<2>) -> ConvolutionKind {
    let (output_padding, format, epilogue) = ([0; 2], FloatFormat::F32, Epilogue::default());
    ConvolutionKind::Transposed { window, output_padding, groups: 1, format, epilogue }
}

/// Returns a payload with a convolution of one pixel from `channels` channels to one, with `weights` floats of weights.
fn of_one_pixel(channels: u64, weights: u64, kind: ConvolutionKind) -> Payload {
    Payload::of_step(&[&[1, 1, 1, channels], &[weights]], &[1, 1, 1, 1], |inputs, y| {
        Step::Convolution(Convolution { x: inputs[0], w: inputs[1], y, kind })
    })
}

#[test]
fn transposed_convolutions_take_no_time_for_their_stride() {
    let of = |weights, window| of_one_pixel(1, weights, transposed(window));
    // A panel has one tap, its row is padded to an even length, and it has 16 columns.
    assert_eq!(outcome("a stride of 2", of(32, window([1, 1], [2, 2], [[0; 2]; 2]))), Ok(()));
    assert_eq!(outcome("a stride of 2^32 - 1", of(32, window([1, 1], [u32::MAX; 2], [[0; 2]; 2]))), Ok(()));
    let padding = [[u32::MAX - 1, 0]; 2];
    let large = window([u32::MAX; 2], [u32::MAX - 1, u32::MAX - 3], padding);
    // The weights would not fit in memory.
    assert!(outcome("a kernel of 2^32 - 1", of(512, large)).is_err());
}

#[test]
fn convolutions_without_channels_take_no_time_for_their_kernel() {
    let row = window([1, 2], [1, 1], [[0, 0], [1, 0]]);
    assert_eq!(outcome("a kernel of 1 x 2", of_one_pixel(0, 0, direct(row))), Ok(()));
    let kernel = window([u32::MAX; 2], [1, 1], [[u32::MAX - 1, 0]; 2]);
    assert!(outcome("channels without weights", of_one_pixel(1, 0, direct(kernel))).is_err());
    let large = window([u32::MAX, (1 << 31) - 1], [1, 1], [[u32::MAX - 1, 0], [(1 << 31) - 2, 0]]);
    assert_eq!(outcome("a kernel of 2^63", of_one_pixel(0, 0, direct(large))), Ok(()));
    // The number of taps fits in 64 bits. The payload may be refused or run.
    let _ = outcome("a kernel of (2^32 - 1)^2", of_one_pixel(0, 0, direct(kernel)));
    assert_eq!(outcome("a transposed one", of_one_pixel(0, 0, transposed(large))), Ok(()));
}

#[test]
fn sizes_whose_product_overflows_beside_a_zero_are_no_panic() {
    type Of = fn(TensorId, TensorId) -> Step;
    let steps: [(&str, &[u64], Of); 6] = [
        ("reduction", &[0], |x, y| Step::Reduce(Reduce { op: Reduction::Sum, x, y, first: 1, count: 2 })),
        ("softmax", &[0, 1 << 62, 4], |x, y| Step::Softmax(Softmax { x, y, log: false })),
        ("normalization", &[0, 1 << 62, 4], |x, y| {
            let (weight, bias) = (None, None);
            Step::Normalization(Normalization { x, y, weight, bias, dims: 2, eps: 0.0, centered: true })
        }),
        ("elementwise", &[0, 1 << 62, 4], |x, y| Step::Elementwise(negated(x, y))),
        ("matmul", &[0, 1 << 62, 4], |x, y| Step::Matmul(matmul(x, y, true))),
        ("batched matmul", &[0, 1 << 62, 4], |x, y| Step::Matmul(matmul(x, y, false))),
    ];
    for (what, output, step) in steps {
        let payload = Payload::of_step(&[&[0, 1 << 62, 4]], output, |x, y| step(x[0], y));
        // Some payloads are valid, because there is no work to do.
        let _ = outcome(what, payload);
    }
}

fn negated(x: TensorId, y: TensorId) -> Elementwise {
    let instruction = Instruction::Unary { to: 0, function: Unary::Neg, x: Operand::Tensor(0) };
    Elementwise { operands: vec![x], y, instructions: vec![instruction] }
}

fn matmul(x: TensorId, y: TensorId, packed: bool) -> Matmul {
    let epilogue = Epilogue::default();
    let kind = if packed {
        MatmulKind::Packed { format: FloatFormat::F32, epilogue }
    } else {
        MatmulKind::Dense { transposed: false, epilogue }
    };
    Matmul { a: x, b: x, y, kind }
}

/// The sizes of a payload are checked in every call, also where none of them is symbolic.
#[test]
fn inputs_of_other_sizes_are_refused_in_every_call() {
    let mut payload = Payload::of_step(&[&[2]], &[2], |inputs, y| Step::Elementwise(negated(inputs[0], y)));
    // The caller's tensors may be larger than the payload's.
    payload.inputs[0].sizes = vec![4];
    payload.outputs[0].sizes = vec![4];
    let calls = |sizes: &[usize]| {
        let calls: Vec<_> = sizes.iter().map(|size| vec![vec![*size]]).collect();
        let backend = CpuBackend::new(Arc::new(Engine::new(1)));
        run_with_sizes(payload.clone(), backend, MEMORY_LIMIT, &calls).map_err(|error| error.to_string())
    };
    assert_eq!(calls(&[2, 2]), Ok(()));
    for sizes in [&[4][..], &[2, 4], &[2, 2, 1]] {
        let error = calls(sizes).expect_err("a size that the payload was not made for");
        let expected = format!("expected 2, got {}", sizes[sizes.len() - 1]);
        assert!(error.contains(&expected), "{sizes:?}: {error}");
    }
}

/// The last of a chain of copies must hold floats. So must the one before it, and so on to the first.
#[test]
fn loading_takes_time_in_proportion_to_the_steps() {
    const STEPS: usize = 50_000;
    let mut payload = Payload::default();
    let first = payload.input(ScalarType::Float, &[1]);
    let last = payload.output(ScalarType::Float, &[1]);
    let results: Vec<_> = (0..STEPS).map(|_| payload.arena(1, ScalarType::Float, &[1], None)).collect();
    let steps = &mut payload.program.steps;
    steps.push(Step::Elementwise(negated(first, results[0])));
    steps.extend(results.windows(2).map(|pair| {
        Step::Copy(Copy {
            x: pair[0],
            y: pair[1],
            sizes: fixed(&[1]),
            x_offset: Size::Fixed(0),
            x_strides: fixed(&[1]),
            y_offset: Size::Fixed(0),
            y_strides: fixed(&[1]),
            fill: None,
        })
    }));
    steps.push(Step::Softmax(Softmax { x: results[STEPS - 1], y: last, log: false }));
    assert_eq!(outcome_within("a chain", payload, 1 << 30), Ok(()));
}

/// Engines of all instruction sets, with one to three threads.
fn engines() -> Vec<Arc<Engine>> {
    let of = |threads| Isa::ALL.iter().filter_map(move |isa| Engine::with_isa(*isa, threads).ok());
    (1..=3).flat_map(of).map(Arc::new).collect()
}

/// A matrix of integers without rows is its header alone.
#[test]
fn integers_without_rows_give_zeros() {
    let format =
        QuantizedFormat { bits: Bits::Four, offsets: Offsets::ZeroPoints, scales: ScaleFormat::F32, group: 32 };
    let matrix = format.matrix(0, 5);
    let mut bytes = vec![0; pack::quantized_len(&matrix).unwrap()];
    pack::quantized(&mut bytes, &matrix, &[], &QuantizedGroups::new(&[], &[]));
    for (rows, engine) in engines().into_iter().flat_map(|engine| [1, 9].map(|rows| (rows, engine.clone()))) {
        let mut payload = Payload::default();
        let a = payload.input(ScalarType::Float, &[rows, 0]);
        let b = payload.blob(ScalarType::Byte, &[bytes.len() as u64], bytes.clone());
        let y = payload.output(ScalarType::Float, &[rows, 5]);
        let kind = MatmulKind::WeightOnly { format, epilogue: Epilogue::default() };
        payload.program.steps.push(Step::Matmul(Matmul { a, b, y, kind }));
        assert_eq!(run(payload, CpuBackend::new(engine), MEMORY_LIMIT), Ok(()));
    }
}

/// The packed bytes of integers begin with their layout, which must be the step's.
#[test]
fn integers_of_another_layout_are_refused() {
    let format = QuantizedFormat { bits: Bits::Eight, offsets: Offsets::None, scales: ScaleFormat::F32, group: 4 };
    let matrix = format.matrix(8, 5);
    let mut bytes = vec![0; pack::quantized_len(&matrix).unwrap()];
    pack::quantized(&mut bytes, &matrix, &[1; 8 * 5], &QuantizedGroups::new(&[1.0; 2 * 5], &[]));
    let of = |bytes: &[u8]| {
        let mut payload = Payload::default();
        let a = payload.input(ScalarType::Float, &[2, 8]);
        let b = payload.blob(ScalarType::Byte, &[bytes.len() as u64], bytes.to_vec());
        let y = payload.output(ScalarType::Float, &[2, 5]);
        let kind = MatmulKind::WeightOnly { format, epilogue: Epilogue::default() };
        payload.program.steps.push(Step::Matmul(Matmul { a, b, y, kind }));
        outcome("integers", payload)
    };
    assert_eq!(of(&bytes), Ok(()));
    // Bits, offsets, scales, rows of a group, columns.
    for at in [0, 1, 2, 4, 8] {
        bytes[at] ^= 1;
        let error = of(&bytes).expect_err("another layout");
        assert!(error.contains("another layout"), "{error}");
        bytes[at] ^= 1;
    }
}

/// Inputs of the fuzz target `cpu_payload` that once failed.
#[test]
fn what_fuzzing_found_is_mended() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/found");
    let found: Vec<_> = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect();
    assert!(!found.is_empty());
    for file in found {
        let bytes = std::fs::read(&file).unwrap();
        let engines = engines();
        for engine in &engines {
            let mut source = Source::new(&bytes);
            // The fuzz target chooses the engine from the input.
            source.below(engines.len());
            let payload = crate::payload::arbitrary::payload(&mut source);
            let engine = engine.clone();
            let outcome = catch_unwind(AssertUnwindSafe(|| run(payload, CpuBackend::new(engine), MEMORY_LIMIT)));
            assert!(outcome.is_ok(), "{}", file.display());
        }
    }
}

/// Runs the fuzz target `cpu_payload` on some random bytes, with one instruction set after the other.
#[test]
fn arbitrary_payloads_do_no_harm() {
    let total = std::env::var("RUSHLIGHT_MUTATIONS").ok().and_then(|n| n.parse().ok()).unwrap_or(3_000);
    let engines = engines();
    let (mut random, mut outcomes) = (0x9e37_79b9_7f4a_7c15u64, [0; 3]);
    for round in 0..total {
        let bytes: Vec<u8> = (0..512)
            .map(|_| {
                random ^= random >> 12;
                random ^= random << 25;
                random ^= random >> 27;
                (random.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 56) as u8
            })
            .collect();
        let payload = crate::payload::arbitrary::payload(&mut Source::new(&bytes));
        let backend = CpuBackend::new(engines[round % engines.len()].clone());
        match catch_unwind(AssertUnwindSafe(|| run(payload, backend, MEMORY_LIMIT))) {
            Ok(Ok(())) => outcomes[0] += 1,
            Ok(Err(error)) if error.code == Code::DelegateInvalidCompatibility => outcomes[1] += 1,
            Ok(Err(_)) => outcomes[2] += 1,
            Err(panic) => panic!("a panic in round {round}, of {bytes:?}: {panic:?}"),
        }
    }
    println!("computed, refused, failed otherwise: {outcomes:?}");
    assert!(outcomes[0] > total / 5 && outcomes[1] > total / 10, "{outcomes:?}");
}
