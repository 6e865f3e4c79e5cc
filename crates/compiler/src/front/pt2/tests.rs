//! Reads all samples of `tests/corpus/pt2` completely, and then checks the feature that each one covers.

use std::path::{Path, PathBuf};

use rushlight_format::ScalarType;

use super::expr::SymExpr;
use super::pickle::{PickleFault, PickleValue};
use super::schema::*;
use super::*;

pub(super) fn sample_bytes(name: &str) -> Vec<u8> {
    std::fs::read(folder().join(format!("{name}.pt2"))).unwrap()
}

fn sample(name: &str) -> Archive {
    Archive::parse(sample_bytes(name).into()).unwrap()
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/corpus/pt2")
}

/// All samples that are read; the last has a schema that is not.
fn samples() -> Vec<String> {
    let names = std::fs::read_dir(folder()).unwrap().flatten();
    let mut names: Vec<_> =
        names.filter_map(|file| Some(file.file_name().to_str()?.strip_suffix(".pt2")?.to_owned())).collect();
    names.sort();
    assert!(names.len() >= 16, "{names:?}");
    names.retain(|name| name != "torch_2.3");
    names
}

/// Calls `check` with every graph of a program, those within other graphs too.
fn graphs<'p, 'a>(graph: &'p Graph<'a>, check: &mut dyn FnMut(&'p Graph<'a>)) {
    check(graph);
    for argument in graph.nodes.iter().flat_map(|node| &node.inputs) {
        if let Argument::Graph(inner) = &argument.arg {
            graphs(&inner.graph, check);
        }
    }
}

fn node<'p, 'a>(program: &'p ExportedProgram<'a>, target: &str) -> &'p Node<'a> {
    program.graph_module.graph.nodes.iter().find(|node| node.target == target).unwrap_or_else(|| panic!("no {target}"))
}

fn argument<'p, 'a>(node: &'p Node<'a>, name: &str) -> &'p Argument<'a> {
    &node.inputs.iter().find(|input| input.name == name).unwrap_or_else(|| panic!("no {name}")).arg
}

fn tensor(weight: Result<Weight, Error>) -> StoredTensor {
    match weight.unwrap() {
        Weight::Tensor(tensor) => tensor,
        other => panic!("{other:?}"),
    }
}

fn floats(tensor: &StoredTensor) -> Vec<f32> {
    assert_eq!(tensor.dtype, ScalarType::Float);
    tensor.to_contiguous().as_chunks().0.iter().map(|four| f32::from_le_bytes(*four)).collect()
}

#[test]
fn everything_in_the_samples_is_read() {
    for name in samples() {
        let archive = sample(&name);
        let model = archive.model().unwrap();
        let program = model.program().unwrap_or_else(|error| panic!("{name}: {error}"));
        let GraphModule { graph, signature, .. } = &program.graph_module;
        assert!(!graph.nodes.is_empty(), "{name}");
        assert_eq!(graph.inputs.len(), signature.input_specs.len(), "{name}");
        assert_eq!(graph.outputs.len(), signature.output_specs.len(), "{name}");
        let form = if name.ends_with("_core") { "ATEN" } else { "TRAINING" };
        assert_eq!(program.verifiers, [Text::from(form)], "{name}");
        let is_user = |spec: &&InputSpec<'_>| matches!(spec, InputSpec::UserInput(_) | InputSpec::ConstantInput(_));
        let users = signature.input_specs.iter().filter(is_user).count();
        assert_eq!(program.in_spec().unwrap().unwrap().num_leaves(), users, "{name}");
        let users = signature.output_specs.iter().filter(|spec| matches!(spec, OutputSpec::UserOutput(_))).count();
        assert_eq!(program.out_spec().unwrap().unwrap().num_leaves(), users, "{name}");
        let (weights, constants) = (model.weights().unwrap(), model.constants().unwrap());
        for (input, spec) in graph.inputs.iter().zip(&signature.input_specs) {
            let (source, path) = match spec {
                InputSpec::Parameter(spec) => (&weights, &spec.parameter_name),
                InputSpec::Buffer(spec) if spec.persistent => (&weights, &spec.buffer_name),
                InputSpec::Buffer(spec) => (&constants, &spec.buffer_name),
                InputSpec::TensorConstant(spec) => (&constants, &spec.tensor_constant_name),
                _ => continue,
            };
            let weight = source.get(path).unwrap_or_else(|error| panic!("{name}: {error}"));
            // The archive describes each weight twice; both descriptions must agree.
            let Argument::Tensor(input) = input else { panic!("{name}: {path} is not a tensor") };
            let meta = &graph.tensor_values[&*input.name];
            if let Weight::Tensor(tensor) = weight {
                let sizes = tensor.sizes.iter().map(|&size| Some(size as i64));
                assert!(sizes.eq(meta.sizes.iter().map(SymInt::as_int)), "{name}: {path}");
                assert_eq!(meta.dtype.scalar_type(), Some(tensor.dtype), "{name}: {path}");
                assert_eq!(tensor.to_contiguous().len(), tensor.nbytes());
            }
        }
        let mut defined = 0;
        graphs(graph, &mut |graph| {
            let arguments = graph.nodes.iter().flat_map(|node| node.inputs.iter().map(|input| &input.arg));
            for argument in arguments.chain(&graph.inputs).chain(&graph.outputs) {
                assert!(!matches!(argument, Argument::Unknown { .. }), "{name}: {argument:?}");
            }
            for output in graph.nodes.iter().flat_map(|node| &node.outputs) {
                if let Argument::Tensor(tensor) = output {
                    assert!(graph.tensor_values.contains_key(&*tensor.name), "{name}: {tensor:?}");
                    defined += 1;
                }
            }
            assert!(graph.nodes.iter().all(|node| node.metadata.torch_fn.is_none_or(|text| !text.decode().is_empty())));
        });
        assert!(defined > 0, "{name}");
    }
}

#[test]
fn the_sample_inputs_are_those_of_the_export() {
    let archive = sample("kv_cache");
    let inputs = archive.model().unwrap().sample_inputs().unwrap().unwrap();
    let [PickleValue::Tensor(position), PickleValue::Tensor(x)] = &*inputs.args else { panic!("{inputs:?}") };
    assert_eq!((position.dtype, &*position.sizes), (ScalarType::Long, &[1][..]));
    assert_eq!(position.to_contiguous(), 3i64.to_le_bytes());
    assert_eq!((x.dtype, &*x.sizes, &*x.strides), (ScalarType::Float, &[1, 2, 1, 4][..], &[8, 4, 4, 1][..]));
    assert_eq!(inputs.leaves().len(), 2);
    for name in samples() {
        let inputs = sample(&name).model().unwrap().sample_inputs();
        if name == "nested" {
            // A class of the model's author.
            let error = inputs.err().unwrap();
            assert_eq!(error.entry, "data/sample_inputs/model.pt > data.pkl");
            assert_eq!(error.kind, ErrorKind::Pickle(PickleFault::Global { name: "__main__.Pair".to_owned() }));
        } else {
            assert!(inputs.unwrap().is_some_and(|inputs| !inputs.leaves().is_empty()), "{name}");
        }
    }
}

#[test]
fn state_is_found_in_both_forms() {
    let archive = sample("kv_cache");
    let model = archive.model().unwrap();
    let program = model.program().unwrap();
    let put = node(&program, "torch.ops.aten.index_put_.default");
    let Argument::OptionalTensors(indices) = argument(put, "indices") else { panic!("{put:?}") };
    assert!(matches!(&**indices, [.., OptionalTensorArgument::Tensor(last)] if last.name == "position"), "{indices:?}");
    assert!(indices.contains(&OptionalTensorArgument::None), "{indices:?}");
    let Argument::Tensor(output) = &program.graph_module.graph.outputs[1] else { panic!("no tensor") };
    assert_eq!(output.name, "x");
    let (weights, constants) = (model.weights().unwrap(), model.constants().unwrap());
    assert_eq!(weights.names().collect::<Vec<_>>(), ["k"]);
    assert_eq!(constants.names().collect::<Vec<_>>(), ["mask"]);
    assert_eq!(tensor(constants.get("mask")).dtype, ScalarType::Bool);
    assert_eq!((weights.is_parameter("k"), weights.contains("mask")), (Some(false), false));

    let archive = sample("kv_cache_core");
    let model = archive.model().unwrap();
    let program = model.program().unwrap();
    let OutputSpec::BufferMutation(mutation) = &program.graph_module.signature.output_specs[0] else {
        panic!("no mutation");
    };
    assert_eq!(mutation.buffer_name, "k");
}

#[test]
fn graphs_within_graphs() {
    for name in ["cond", "cond_core"] {
        let archive = sample(name);
        let model = archive.model().unwrap();
        let program = model.program().unwrap();
        let cond = node(&program, "torch.ops.higher_order.cond");
        let inner: Vec<_> = cond.inputs.iter().filter(|input| matches!(input.arg, Argument::Graph(_))).collect();
        assert_eq!(inner.len(), 2, "{name}");
        assert!(cond.inputs.iter().all(|input| input.name.is_empty()), "{name}");
        let mut count = 0;
        graphs(&program.graph_module.graph, &mut |_| count += 1);
        assert_eq!(count, 3, "{name}");
    }
    let archive = sample("while_loop");
    let model = archive.model().unwrap();
    let program = model.program().unwrap();
    let mut single = Vec::new();
    graphs(&program.graph_module.graph, &mut |graph| single.push(graph.is_single_tensor_return));
    assert_eq!(single, [false, true, false]);
}

#[test]
fn nested_inputs_and_outputs_keep_their_structure() {
    let archive = sample("nested");
    let model = archive.model().unwrap();
    let program = model.program().unwrap();
    let pair = |children| TreeSpec::NamedTuple {
        name: "samples.Pair".to_owned(),
        fields: vec!["first".to_owned(), "second".to_owned()],
        children,
    };
    let key = |name: &str| TreeKey::String(name.to_owned());
    let leaf = || TreeSpec::Leaf;
    let features = TreeSpec::Dict(vec![
        (key("a"), leaf()),
        (key("b"), TreeSpec::List(vec![leaf(), TreeSpec::Tuple(vec![leaf()])])),
    ]);
    let args = TreeSpec::Tuple(vec![features, leaf(), pair(vec![leaf(), leaf()])]);
    let kwargs = TreeSpec::Dict(vec![(key("mode"), leaf()), (key("bias"), leaf())]);
    assert_eq!(program.in_spec(), Some(Ok(TreeSpec::Tuple(vec![args, kwargs]))));
    let output = TreeSpec::Dict(vec![
        (key("total"), leaf()),
        (key("pair"), pair(vec![leaf(), TreeSpec::List(vec![leaf(), leaf()])])),
        (key("none"), leaf()),
    ]);
    assert_eq!(program.out_spec(), Some(Ok(output)));
    let names = program.signature().unwrap().forward_arg_names.clone().unwrap();
    assert_eq!(names, ["features", "scale", "pair", "mode", "bias"].map(Text::from));
    let constants: Vec<_> = program
        .graph_module
        .signature
        .input_specs
        .iter()
        .filter_map(|spec| match spec {
            InputSpec::ConstantInput(spec) => Some(&spec.value),
            _ => None,
        })
        .collect();
    assert!(matches!(constants[0], ConstantValue::Float(value) if value.is_nan()), "{constants:?}");
    assert!(matches!(constants[1], ConstantValue::String(text) if *text == "sum"), "{constants:?}");
    let outputs = &program.graph_module.graph.outputs;
    assert!(outputs.contains(&Argument::Int(7)) && outputs.contains(&Argument::None), "{outputs:?}");
}

#[test]
fn symbolic_sizes_have_ranges_and_expressions() {
    for name in ["dynamic", "dynamic_core"] {
        let archive = sample(name);
        let model = archive.model().unwrap();
        let program = model.program().unwrap();
        let bounds: Vec<_> = program.range_constraints.values().collect();
        assert!(bounds.contains(&&RangeConstraint { min_val: Some(2), max_val: Some(64) }), "{name}: {bounds:?}");
        let graph = &program.graph_module.graph;
        let sizes = graph.tensor_values.values().flat_map(|meta| meta.sizes.iter().chain(&meta.strides));
        let ints = sizes.chain(graph.sym_int_values.values()).filter_map(|size| match size {
            SymInt::Expr(text) => Some(text),
            _ => None,
        });
        let floats = graph.sym_float_values.values().filter_map(|value| match value {
            SymFloat::Expr(text) => Some(text),
            _ => None,
        });
        let bools = graph.sym_bool_values.values().filter_map(|value| match value {
            SymBool::Expr(text) => Some(text),
            _ => None,
        });
        let mut functions = Vec::new();
        for text in ints.chain(floats).chain(bools) {
            match SymExpr::parse(&text.expr_str) {
                Ok(SymExpr::Call { function, .. }) => functions.push(function),
                Ok(_) => {}
                Err(error) => panic!("{name}: {error}: {}", text.expr_str),
            }
        }
        for expected in ["Mul", "Add", "FloorDiv"] {
            assert!(functions.iter().any(|function| function == expected), "{name}: no {expected} in {functions:?}");
        }
    }
}

#[test]
fn weights_that_share_a_storage() {
    let archive = sample("tied");
    let model = archive.model().unwrap();
    let weights = model.weights().unwrap();
    let [embedding, head] = ["embedding.weight", "head.weight"].map(|name| tensor(weights.get(name)));
    assert_eq!(embedding, head);
    assert_eq!(weights.is_parameter("head.weight"), Some(true));
    let [rows, columns] = ["rows", "columns"].map(|name| tensor(weights.get(name)));
    assert_eq!(rows.storage.name, columns.storage.name);
    assert_eq!(floats(&rows), (0..12u8).map(f32::from).collect::<Vec<_>>());
    assert_eq!((&*columns.sizes, &*columns.strides, columns.storage_offset), (&[4, 3][..], &[1, 4][..], 12));
    assert_eq!(floats(&columns), [12, 16, 20, 13, 17, 21, 14, 18, 22, 15, 19, 23].map(|value: u8| f32::from(value)));
    assert!(rows.contiguous_bytes().is_some() && columns.contiguous_bytes().is_none());
    let conv = tensor(weights.get("conv.weight"));
    assert_eq!((&*conv.sizes, &*conv.strides), (&[3, 2, 3, 3][..], &[18, 1, 6, 2][..]));
    assert_eq!(floats(&tensor(weights.get("scalar"))), [2.0]);
    assert_eq!(tensor(weights.get("empty")).contiguous_bytes().as_deref(), Some(&[][..]));
    let error = weights.get("other").err().unwrap();
    assert_eq!(error.kind, ErrorKind::UnknownWeight { name: "other".to_owned() });
}

#[test]
fn arguments_of_many_kinds() {
    let archive = sample("misc");
    let model = archive.model().unwrap();
    let program = model.program().unwrap();
    let clamp = node(&program, "torch.ops.aten.clamp.default");
    assert_eq!(argument(clamp, "max"), &Argument::Float(f64::INFINITY));
    let empty = node(&program, "torch.ops.aten.empty.memory_format");
    assert_eq!(argument(empty, "memory_format"), &Argument::MemoryFormat(MemoryFormat::CHANNELS_LAST));
    assert!(matches!(argument(empty, "device"), Argument::Device(device) if device.kind == "cpu"));
    let einsum = node(&program, "torch.ops.aten.einsum.default");
    assert_eq!(argument(einsum, "equation"), &Argument::String("ij,kj->ik".into()));
    let split = node(&program, "torch.ops.aten.split_with_sizes.default");
    assert_eq!(argument(split, "split_sizes"), &Argument::Ints(vec![1, 3]));
    assert!(matches!(&*split.outputs, [Argument::Tensors(parts)] if parts.len() == 2));
    let trace = clamp.metadata.stack_trace.unwrap().decode();
    assert!(trace.contains("line ") && trace.contains("clamped = x.clamp"), "{trace}");
    let (name, data) = archive.extra_files().next().unwrap();
    assert_eq!((name, &*data.unwrap()), ("note.txt", &b"misc"[..]));
    let half = tensor(model.weights().unwrap().get("scale"));
    assert_eq!((half.dtype, half.to_contiguous()), (ScalarType::Half, vec![0, 0x38, 0, 0x7c]));

    let archive = sample("misc_core");
    let model = archive.model().unwrap();
    let program = model.program().unwrap();
    let OutputSpec::UserInputMutation(mutation) = &program.graph_module.signature.output_specs[0] else {
        panic!("no mutation");
    };
    assert_eq!(mutation.user_input_name, "state");
}

#[test]
fn quantized_weights() {
    let archive = sample("int8");
    let model = archive.model().unwrap();
    let weights = model.weights().unwrap();
    let integers = weights.names().filter(|name| tensor(weights.get(name)).dtype == ScalarType::Char).count();
    assert_eq!(integers, 2);

    let archive = sample("int4_subclass");
    let model = archive.model().unwrap();
    let Weight::Subclass(weight) = model.weights().unwrap().get("0.weight").unwrap() else { panic!("no subclass") };
    assert_eq!(&*weight.class, "torchao.quantization.IntxUnpackedToInt8Tensor");
    assert_eq!((&*weight.dtype, &*weight.sizes), ("torch.float32", &[8, 64][..]));
    let Some(PickleValue::Tensor(data)) = weight.attribute("qdata") else { panic!("{weight:?}") };
    assert_eq!(
        (data.dtype, &*data.sizes, data.contiguous_bytes().unwrap().len()),
        (ScalarType::Char, &[8, 64][..], 512)
    );
    assert_eq!(data.storage.name, "data/weights/weight_0/data/0");
    assert_eq!(weight.attribute("target_dtype"), Some(&PickleValue::Torch("torch.int4".into())));
    assert_eq!(
        weight.attribute("block_size"),
        Some(&PickleValue::Tuple(vec![PickleValue::Int(1), PickleValue::Int(32)]))
    );
    // The same weight, unwrapped before the export.
    let archive = sample("int4");
    let model = archive.model().unwrap();
    let plain = tensor(model.weights().unwrap().get("0.parametrizations.weight.original0"));
    assert_eq!(plain.to_contiguous(), data.to_contiguous());
}

#[test]
fn older_containers() {
    let archive = sample("torch_2.8");
    let model = archive.model().unwrap();
    let weights = model.weights().unwrap();
    assert_eq!(weights.names().collect::<Vec<_>>(), ["linear.weight", "linear.bias"]);
    let weight = tensor(weights.get("linear.weight"));
    assert_eq!((&*weight.sizes, &*weight.storage.name), (&[2, 2][..], "data/weights/model.pt/data/0"));
    assert_eq!(floats(&tensor(model.constants().unwrap().get("offset"))), [1.0, 1.0]);

    let archive = sample("torch_2.3");
    let model = archive.model().unwrap();
    let error = model.program().err().unwrap();
    let kind = ErrorKind::SchemaVersion { major: 5, minor: 1, torch: "2.4 or earlier".to_owned() };
    assert_eq!(error.kind, kind);
    assert!(error.to_string().contains("save the program again with torch 2.9 or later"), "{error}");
    let weights = model.weights().unwrap();
    assert_eq!(tensor(weights.get("linear.bias")).sizes, [2]);
}

#[test]
fn other_archives_are_named_for_what_they_are() {
    let bytes = sample_bytes("kv_cache");
    let zip = Zip::parse(bytes.into()).unwrap();
    let checkpoint = zip.get("data/sample_inputs/model.pt").unwrap();
    let error = Archive::parse(checkpoint).err().unwrap();
    assert!(error.to_string().contains("a checkpoint without a program (torch.save)"), "{error}");
    assert!(error.to_string().contains("torch.export.save"), "{error}");
    let error = Archive::parse(Bytes::from(b"ET12 not a zip".repeat(10))).err().unwrap();
    assert_eq!(error.kind, ErrorKind::NotZip);
    let archive = sample("kv_cache");
    let error = archive.model_named("decoder").err().unwrap();
    assert_eq!(error.to_string(), "the archive: there is no model `decoder`; there is model");
}

fn find(bytes: &[u8], text: &[u8]) -> Vec<usize> {
    bytes.windows(text.len()).enumerate().filter(|(_, window)| *window == text).map(|(at, _)| at).collect()
}

/// A sample without checksums.
fn unchecked(name: &str) -> Vec<u8> {
    let mut bytes = sample_bytes(name);
    for at in find(&bytes, b"PK\x01\x02") {
        bytes[at + 16..at + 20].fill(0);
    }
    bytes
}

/// Edits a sample: replaces every occurrence of a text by another of the same length.
fn edited(name: &str, edits: &[(&str, &str)]) -> Result<Archive, Error> {
    let mut bytes = unchecked(name);
    for (from, to) in edits {
        assert_eq!(from.len(), to.len(), "{from}");
        let places = find(&bytes, from.as_bytes());
        assert!(!places.is_empty(), "{from}");
        for at in places {
            bytes[at..at + to.len()].copy_from_slice(to.as_bytes());
        }
    }
    Archive::parse(bytes.into())
}

#[test]
fn containers_that_are_not_known_are_refused() {
    let version = edited("torch_2.8", &[("archive/archive_version", "archive/archive_versioN")]);
    assert!(version.is_ok(), "a version is not needed");
    let error = edited("cond", &[("archive/archive_format", "archive/archive_formaT")]).err().unwrap();
    assert_eq!(error.kind, ErrorKind::NotPt2 { kind: "another zip archive" });
    let error = edited("cond", &[("little", "bigend")]).err().unwrap();
    assert_eq!((error.kind, &*error.entry), (ErrorKind::ByteOrder { got: "bigend".to_owned() }, "byteorder"));
    let mut bytes = unchecked("cond");
    let whole = Bytes::from(bytes.clone());
    let version = Zip::parse(whole.clone()).unwrap().get("archive_version").unwrap();
    bytes[version.as_ptr().addr() - whole.as_ptr().addr()] = b'1';
    let error = Archive::parse(bytes.into()).err().unwrap();
    assert_eq!((error.kind, &*error.entry), (ErrorKind::ArchiveVersion { got: "1".to_owned() }, "archive_version"));
    let (weight, model) = ("archive/data/weights/weight_0", "archive/models/abcdefghi.json");
    let several = edited("cond", &[(weight, model)]).unwrap();
    let error = several.model().err().unwrap();
    assert!(matches!(&error.kind, ErrorKind::SeveralModels { names } if names.len() == 2), "{error}");
    let error = several.model_named("model").unwrap().weights().unwrap().get("linear.weight").err().unwrap();
    let site = (error.kind, &*error.entry, error.tensor.as_deref());
    assert_eq!(site, (ErrorKind::MissingEntry, "data/weights/weight_0", Some("linear.weight")));
    let none = edited("cond", &[("archive/models/", "archive/modelz/")]).unwrap();
    let error = none.model().err().unwrap();
    assert_eq!(error.kind, ErrorKind::NoModel { holds: "weights alone" });
    assert!(error.to_string().contains("torch.export.save"), "{error}");
}

#[test]
fn weights_that_cannot_be_are_refused_when_they_are_used() {
    let get = |edits: &[(&str, &str)]| {
        let archive = edited("cond", edits).unwrap();
        let weights = archive.model().unwrap().weights().unwrap();
        weights.get("linear.weight").map_err(|error| error.kind)
    };
    assert!(get(&[]).is_ok());
    let shape = r#""sizes": [{"as_int": 3}, {"as_int": 3}]"#;
    let larger = r#""sizes": [{"as_int": 9}, {"as_int": 3}]"#;
    assert_eq!(get(&[(shape, larger)]), Err(ErrorKind::OutOfStorage { needed: 108, available: 36 }));
    let negative = r#""sizes": [{"as_int":-1}, {"as_int": 3}]"#;
    assert_eq!(get(&[(shape, negative)]), Err(ErrorKind::Negative { what: "a size", value: -1 }));
    let symbolic = r#""sizes": [{"as_exp": 3}, {"as_int": 3}]"#;
    assert_eq!(get(&[(shape, symbolic)]), Err(ErrorKind::SymbolicSize));
    assert_eq!(get(&[(r#""dtype": 7,"#, r#""dtype":33,"#)]), Err(ErrorKind::ScalarType { code: 33 }));
    assert_eq!(get(&[(r#""layout": 7"#, r#""layout": 2"#)]), Err(ErrorKind::Layout { code: 2 }));
    let path = r#""path_name": "weight_0", "is_param": true, "use_pickle": false, "tensor_meta": "#;
    let opaque = r#""path_name": "weight_0", "is_param": true,                      "tensor_mete": "#;
    assert_eq!(get(&[(path, opaque)]), Err(ErrorKind::CustomObject));
    let pickled = r#""path_name": "weight_0", "is_param": true, "use_pickle": true , "tensor_meta": "#;
    assert_eq!(get(&[(path, pickled)]), Err(ErrorKind::NotZip));
}

#[test]
fn weights_that_were_saved_without_values_are_zero() {
    let mut bytes = sample_bytes("cond");
    let name = b"archive/data/weights/weight_0";
    let record = bytes.windows(name.len()).rposition(|window| window == name).unwrap() - 46;
    bytes[record + 16..record + 28].fill(0);
    let archive = Archive::parse(bytes.into()).unwrap();
    let weight = tensor(archive.model().unwrap().weights().unwrap().get("linear.weight"));
    assert_eq!((&weight.storage.data, floats(&weight)), (&StorageData::Zeros, vec![0.0; 9]));
}

#[test]
fn structures_that_do_not_fit_are_refused() {
    let spec = |edits: &[(&str, &str)]| {
        let archive = edited("nested", edits).unwrap();
        let model = archive.model().unwrap();
        let error = model.program().unwrap().in_spec().unwrap().err().unwrap();
        assert!(matches!(error.kind, ErrorKind::TreeSpec { .. }));
        error.to_string()
    };
    let error = spec(&[(r#"[\\\"a\\\", \\\"b\\\"]"#, r#"[\\\"a\\\"           ]"#)]);
    assert!(error.contains("1 keys for 2 children"), "{error}");
    let error = spec(&[(r#""in_spec": "[1,"#, r#""in_spec": "[2,"#)]);
    assert!(error.contains("version 2"), "{error}");
}
