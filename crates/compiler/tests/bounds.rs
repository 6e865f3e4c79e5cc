//! Models that ask for more than a compiler should do for their size: each compiles or is refused, in seconds and in
//! memory that does not depend on the numbers in it.
//!
//! A binary of its own: its allocator limits the whole process.

use std::sync::mpsc;
use std::time::Duration;

use cap::Cap;
use rushlight_compiler::{CompileOptions, compile, compile_pt2};
use rushlight_format::ScalarType;
use rushlight_graph::Error;
use rushlight_graph::operators::aten;
use rushlight_graph::{Arg, Expr, Graph, Model, Origin, Symbol, TensorType, Type};

/// Compilations of this file together; a compilation that asks for more ends the process.
#[global_allocator]
static ALLOCATOR: Cap<std::alloc::System> = Cap::new(std::alloc::System, 2 << 30);

const PATIENCE: Duration = Duration::from_mins(1);

/// Compiles a model of one call on a tensor of these sizes.
fn call(
    name: &'static str,
    sizes: &'static [i64],
    args: impl Fn(Arg) -> Vec<Arg> + Send + 'static,
) -> Result<(), Error> {
    within(move || {
        let mut model = Model::default();
        let graph = model.add_method("forward", Graph::new());
        let origin = graph.origins.push(Origin::default());
        let body = graph.body;
        let x = graph.input("x", Type::Tensor(TensorType::of(ScalarType::Float, sizes)));
        let results = model.builder("forward", body, origin).expect("the method").call(name, args(x.into()))?;
        model.methods["forward"].outputs = results.into_iter().map(Arg::Value).collect();
        compile(model, &CompileOptions::default()).map(drop)
    })
}

/// Runs work on a thread with the test's stack size, and fails if it takes too long.
fn within<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || sender.send(work()));
    receiver.recv_timeout(PATIENCE).expect("it ends in time")
}

#[track_caller]
fn refused(result: Result<(), Error>) {
    let error = result.expect_err("too much is asked for");
    assert!(!error.to_string().is_empty());
    let text = format!("{error:?}");
    assert!(!text.contains("Verification"), "{text}");
}

#[test]
fn numbers_that_are_computed_when_compiling_are_bounded() {
    let huge = || Arg::from(1i64 << 40);
    refused(call(aten::LINSPACE, &[1], move |_| vec![Arg::Float(0.0), Arg::Float(1.0), huge()]));
    refused(call(aten::LOGSPACE, &[1], move |_| vec![Arg::Float(0.0), Arg::Float(1.0), huge(), Arg::Float(2.0)]));
    refused(call(aten::HANN_WINDOW, &[1], move |_| vec![huge()]));
    refused(call(aten::FFT_FFTFREQ, &[1], move |_| vec![huge()]));
    refused(call(aten::FFT_RFFTFREQ, &[1], move |_| vec![Arg::from(i64::MAX)]));
    refused(call(aten::TRIL_INDICES, &[1], |_| vec![Arg::from(1 << 40), Arg::from(1 << 40), Arg::from(0)]));
    // No elements, or fewer than none: whether that is refused is the operator's affair, but it ends.
    drop(call(aten::TRIL_INDICES, &[1], |_| vec![Arg::from(1 << 62), Arg::from(0), Arg::from(0)]));
    drop(call(aten::TRIL_INDICES, &[1], |_| vec![Arg::from(1 << 62), Arg::from(-1), Arg::from(0)]));
    drop(call(aten::FFT_FFTFREQ, &[1], |_| vec![Arg::from(i64::MIN)]));
    drop(call(aten::HANN_WINDOW, &[1], |_| vec![Arg::from(i64::MIN)]));
    for size in [1i64 << 40, i64::MAX] {
        refused(call(aten::ADAPTIVE_MAX_POOL1D, &[1, 1, 7], move |x| vec![x, Arg::from(&[size][..])]));
        refused(call(aten::ADAPTIVE_AVG_POOL1D, &[1, 1, 7], move |x| vec![x, Arg::from(&[size][..])]));
    }
    for kernel in [[i64::MAX, 2], [1 << 40, 1 << 40]] {
        let ones = || Arg::from(&[1i64, 1][..]);
        let kernel = move || Arg::from(&kernel[..]);
        drop(call(aten::IM2COL, &[1, 1, 7, 7], move |x| vec![x, kernel(), ones(), ones(), ones()]));
        drop(call(aten::COL2IM, &[1, 4, 9], move |x| vec![x, ones(), kernel(), ones(), ones(), ones()]));
    }
    refused(call(aten::_UPSAMPLE_NEAREST_EXACT2D, &[1, 1, 7, 7], move |x| {
        vec![x, Arg::from(&[1i64 << 40, 3][..]), Arg::None, Arg::None]
    }));
}

#[test]
fn what_an_operator_is_made_of_is_bounded() {
    refused(call(aten::DIFF, &[4], |x| vec![x, Arg::from(1i64 << 62)]));
}

#[test]
fn ranks_are_bounded() {
    refused(call(aten::VIEW, &[1], |x| vec![x, Arg::from(&[1i64; 100_000][..])]));
    refused(call(aten::MESHGRID, &[1], |x| vec![Arg::List(vec![x; 2000])]));
}

/// Sizes of which each is made of the last one twice.
#[test]
fn sizes_that_double_at_each_node_are_refused() {
    let result = within(|| {
        let mut model = Model::default();
        let graph = model.add_method("forward", Graph::new());
        let origin = graph.origins.push(Origin::default());
        let body = graph.body;
        let size: Expr = graph.symbols.push(Symbol { name: "s0".into(), min: 2, max: Some(1000) }).into();
        let mut x = graph.input("x", Type::Tensor(TensorType::new(ScalarType::Float, vec![size])));
        let mut builder = model.builder("forward", body, origin).expect("the method");
        for step in 0..200i64 {
            let end = Arg::from(i64::MAX);
            let part = builder.one(
                aten::SLICE_COPY_TENSOR,
                vec![x.into(), Arg::from(0), Arg::from(0), end, Arg::from(2 + step % 3)],
            )?;
            x = builder.one(aten::CAT, vec![Arg::List(vec![x.into(), part.into()]), Arg::from(0)])?;
        }
        model.methods["forward"].outputs = vec![x.into()];
        compile(model, &CompileOptions::default()).map(drop)
    });
    refused(result);
}

/// A stored zip archive of these entries.
fn archive(entries: &[(&str, &[u8])]) -> Vec<u8> {
    let (mut file, mut directory) = (Vec::new(), Vec::new());
    for (name, data) in entries {
        let start = file.len() as u32;
        let [size, len] = [data.len(), name.len()].map(|len| (len as u32).to_le_bytes());
        let common = [&[0; 16][..], &size, &size, &len[..2], &[0; 2]].concat();
        file.extend([b"PK\x03\x04", &common[2..], name.as_bytes(), data].concat());
        directory.extend([b"PK\x01\x02", &common[..], &[0; 10], &start.to_le_bytes(), name.as_bytes()].concat());
    }
    let (start, size) = (file.len() as u32, directory.len() as u32);
    let count = (entries.len() as u16).to_le_bytes();
    let end = [b"PK\x05\x06", &[0; 4][..], &count, &count, &size.to_le_bytes(), &start.to_le_bytes(), &[0; 2]].concat();
    [file, directory, end].concat()
}

/// Compiles `sum(w)` of a weight of 2^40 elements whose entry has these bytes.
fn sum_of_weight(strides: &str, data: &'static [u8]) -> Result<(), Error> {
    let meta = format!(
        r#"{{"dtype":7,"sizes":[{{"as_int":1099511627776}}],"requires_grad":false,"device":{{"type":"cpu","index":null}},
        "strides":[{{"as_int":{strides}}}],"storage_offset":{{"as_int":0}},"layout":7}}"#
    );
    let scalar = r#"{"dtype":7,"sizes":[],"requires_grad":false,"device":{"type":"cpu","index":null},"strides":[],
        "storage_offset":{"as_int":0},"layout":7}"#;
    let program = format!(
        r#"{{"graph_module":{{"graph":{{"inputs":[{{"as_tensor":{{"name":"w"}}}}],"outputs":[{{"as_tensor":{{"name":"y"}}}}],
        "nodes":[{{"target":"torch.ops.aten.sum.default","inputs":[{{"name":"self","arg":{{"as_tensor":{{"name":"w"}}}},
        "kind":1}}],"outputs":[{{"as_tensor":{{"name":"y"}}}}],"metadata":{{}},"is_hop_single_tensor_return":null}}],
        "tensor_values":{{"w":{meta},"y":{scalar}}},"sym_int_values":{{}},"sym_bool_values":{{}},
        "is_single_tensor_return":false,"custom_obj_values":{{}},"sym_float_values":{{}}}},
        "signature":{{"input_specs":[{{"parameter":{{"arg":{{"name":"w"}},"parameter_name":"w"}}}}],
        "output_specs":[{{"user_output":{{"arg":{{"as_tensor":{{"name":"y"}}}}}}}}]}},"module_call_graph":[],"metadata":{{}},
        "treespec_namedtuple_fields":{{}}}},"opset_version":{{"aten":10}},"range_constraints":{{}},
        "schema_version":{{"major":8,"minor":14}},"verifiers":[],"torch_version":"2.9.1","guards_code":[]}}"#
    );
    let weights = format!(
        r#"{{"config":{{"w":{{"path_name":"weight_0","is_param":true,"use_pickle":false,"tensor_meta":{meta}}}}}}}"#
    );
    let file = archive(&[
        ("a/archive_format", b"pt2"),
        ("a/models/model.json", program.as_bytes()),
        ("a/data/weights/model_weights_config.json", weights.as_bytes()),
        ("a/data/weights/weight_0", data),
    ]);
    within(move || compile_pt2(&[("forward", file.into())], &CompileOptions::default()).map(drop))
}

#[test]
fn weights_that_are_not_in_the_archive_are_bounded() {
    for (strides, data) in [("0", &[0u8; 4][..]), ("1", &[])] {
        let error = sum_of_weight(strides, data).expect_err("four terabytes of nothing").to_string();
        assert!(error.contains("`w` is larger than what the archive holds"), "{error}");
    }
}
