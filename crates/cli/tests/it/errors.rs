//! Exit codes and error messages of all subcommands for wrong arguments and files.

use std::fs;

use crate::command::{CORPUS, EXAMPLE, at, fails, folder, succeeds};

/// Two methods of the same name are refused, for all sources of methods.
#[test]
fn methods_need_different_names() {
    let folder = folder("method-names");
    let (model, output) = (format!("{EXAMPLE}/digits.pt2"), at(&folder, "x.pte"));
    let named = |name: &str| format!("{name}={model}");
    let cases: [(&[String], &str); 6] = [
        (&[model.clone(), model.clone()], "`forward`"),
        (&[named("f"), named("f")], "`f`"),
        (&[model.clone(), named("forward")], "`forward`"),
        (&[model.clone(), "--constant".into(), "forward=3".into()], "`forward`"),
        (&[model.clone(), "--constant".into(), "n=3".into(), "--constant".into(), "n=4".into()], "`n`"),
        (&[named("")], "without a name"),
    ];
    for (arguments, name) in cases {
        let arguments = [&["compile".into(), "-o".into(), output.clone()], arguments].concat();
        fails(&arguments, 2, &[name, "help"]);
        assert!(!folder.join("x.pte").exists(), "{arguments:?} wrote a file");
    }
}

/// An existing file takes precedence over a name, and a path is not a name.
#[test]
fn paths_may_have_an_equals_sign() {
    let folder = folder("equals=sign");
    let (model, output) = (at(&folder, "m=1.pt2"), at(&folder, "x.pte"));
    fs::copy(format!("{EXAMPLE}/digits.pt2"), &model).expect("a copy");
    for (given, method) in [(model.clone(), "forward"), (format!("f={model}"), "f")] {
        succeeds(&["compile".into(), "-o".into(), output.clone(), given]);
        let listed = succeeds(&["inspect".into(), output.clone()]);
        assert!(listed.contains(method), "{listed}");
    }
    let missing = at(&folder, "no=file.pt2");
    fails(&["compile".into(), "-o".into(), output, missing.clone()], 3, &[&missing]);
}

/// Invalid values of each option of each subcommand, with the exit code and the error's text.
#[test]
fn invalid_values_of_options_are_refused() {
    let folder = folder("odd-values");
    let (model, program) = (format!("{EXAMPLE}/digits.pt2"), format!("{EXAMPLE}/digits.pte"));
    let (output, nowhere) = (at(&folder, "x.pte"), at(&folder, "no-such/x"));
    let one_label = at(&folder, "labels.txt");
    fs::write(&one_label, "zero\n").expect("a file");
    let folder = folder.to_str().expect("a name");
    let huge = "99999999999999999999";
    let compile = ["compile", &model, "-o", &output];
    let quantize = ["quantize", &model, "--scheme", "int8-dynamic", "-o", &output];
    let run = ["run", &program];
    let bench = ["bench", &program, "-n", "1"];
    let compare = ["compare", &model, &program];
    let export = ["export-llm", folder, "-o", &output];
    let cases: &[(&[&str], &[&str], i32, &str)] = &[
        // Counts.
        (&run, &["--threads", "0"], 2, "from 1 to"),
        (&run, &["--threads", "-1"], 2, "-1"),
        (&run, &["--threads", huge], 2, "from 1 to"),
        (&run, &["--threads", ""], 2, "--threads"),
        (&bench, &["--threads", "0"], 2, "from 1 to"),
        (&["hwbench", "small"], &["--threads", "0"], 2, "from 1 to"),
        (&run, &["--repeat", "0"], 2, "--repeat"),
        (&run, &["--top", "0"], 2, "from 1 on"),
        (&run, &["--labels", &nowhere], 2, "--top"),
        (&run, &["--top", "1", "--labels", &nowhere], 3, "cannot read"),
        (&run, &["--top", "1", "--labels", &one_label], 6, "elements in a row of output 0, got 1"),
        (&run, &["--limit", "-1"], 2, "-1"),
        (&run, &["--seed", "-1"], 2, "-1"),
        (&run, &["--profile", "--slowest", "0"], 2, "from 1 on"),
        (&run, &["--slowest", "3"], 2, "--profile"),
        (&bench, &["--runs", "0"], 2, ""),
        (&bench, &["--warmup", huge], 2, "--warmup"),
        (&export, &["--python", &nowhere], 3, "cannot start"),
        (&export, &["--python", "false"], 1, "the export failed"),
        (&export, &["--quantize", "int3"], 2, "int3"),
        (&export, &["--embeddings", "4"], 2, "--quantize"),
        (&compare, &["--worst", "0"], 2, "from 1 on"),
        (&compare, &["--tolerance", "-1"], 2, "-1"),
        (&compare, &["--tolerance", "nan"], 2, "finite number"),
        (&compare, &["--fail-below", "inf"], 2, "finite number"),
        (&compile, &["--alignment", "0"], 2, "power of two"),
        (&compile, &["--alignment", "24"], 2, "power of two"),
        (&compile, &["--alignment", "9223372036854775808"], 2, "power of two"),
        (&compile, &["--external-weights", "--external-weights-max-bytes", "0"], 2, "max-bytes"),
        (&compile, &["--external-weights-max-bytes", "10"], 2, "--external-weights"),
        (&quantize, &["--min-snr", "nan"], 2, "finite number"),
        (&quantize, &["--embeddings", "-8"], 2, "-8"),
        // Names that do not exist: the error lists the known ones.
        (&run, &["--method", "backward"], 2, "forward"),
        (&run, &["--method", ""], 2, "forward"),
        (&bench, &["--method", "backward"], 2, "forward"),
        (&["size", &program], &["--method", "backward"], 2, "forward"),
        (&compare, &["--method", "backward"], 2, "forward"),
        (&run, &["--lower", "gpu"], 2, "`auto`, `off`, `cpu`"),
        (&run, &["--lower", "cpu:precision=int8"], 2, "f32, f16 or bf16"),
        (&run, &["--load-mode", "magic"], 2, "mmap"),
        (&run, &["--fill", "twos"], 2, "random"),
        (&run, &["--normalize", "mnist"], 2, "imagenet"),
        (&compile, &["--backend", "npu"], 5, "`cpu`"),
        (&compile, &["--backend", ""], 5, "`cpu`"),
        (&compile, &["--backend", "cpu", "--backend", "cpu"], 2, "twice"),
        (&compile, &["--backend", "portable", "--backend", "cpu"], 2, "put `portable` last"),
        (&compile, &["--precision", "bf16"], 2, "--precision"),
        (&compile, &["--backend", "cpu:precison=bf16"], 2, "`precision` (what weights"),
        (&compile, &["--backend", "cpu:precision=int8"], 2, "f32, f16 or bf16"),
        (&compile, &["--backend", "cpu:precision=bf16,precision=bf16"], 2, "given twice"),
        (&compile, &["--backend", "cpu:precision"], 2, "`cpu:key=value,key=value`"),
        (&compile, &["--backend", "cpu:threads=-1"], 2, "0 to "),
        (&compile, &["--backend", "cpu:precision=bf16", "--backend", "cpu"], 2, "twice"),
        (&compile, &["--backend", "portable:precision=f16"], 2, "no options"),
        (&quantize, &["--backend", "npu"], 5, "`cpu`"),
        (&quantize, &["--backend", "cpu:precision=int8"], 2, "f32, f16 or bf16"),
        (&compile, &["--constant", "n"], 2, "NAME=VALUE"),
        (&compile, &["--constant", "=3"], 2, "without a name"),
        (&compile, &["--external-weights=../x.ptd"], 2, "a name without a folder"),
        (&quantize, &["--observer", "eyes"], 2, "minmax"),
        (&quantize, &["--weights", "dice"], 2, "gptq"),
        (&["inspect", &model], &["--stage", "last"], 2, "canonical"),
        (&["inspect", &model], &["--memory"], 1, "compile the model first"),
        (&["completions"], &["tcl"], 2, "bash"),
        // Inputs.
        (&run, &["--shape", "0"], 6, "INPUT=SIZE"),
        (&run, &["--shape", "0=1x-3"], 6, "INPUT=SIZE"),
        (&run, &["--shape", "0=9999999999x9999999999x9999999999"], 6, ""),
        (&run, &["--shape", "7=1x2"], 6, "counted from 0"),
        (&run, &["-i", "3", "--shape", "0=1x2"], 6, "--input"),
        (&run, &["-i", ""], 6, "expected a .npy"),
        (&run, &["-i", "no-such.npy"], 3, "no-such.npy"),
        (&run, &["-i", folder], 6, "a folder"),
        (&run, &["-i", "1", "-i", "2", "-i", "3"], 6, "takes 1 input"),
        // Files.
        (&["run", ""], &[], 2, "<MODEL>"),
        (&["run", "no-such.pte"], &[], 3, "no-such.pte"),
        (&["run", folder], &[], 3, "a folder"),
        (&run, &["--data", "no-such.ptd"], 3, "no-such.ptd"),
        (&run, &["--data", folder], 3, "a folder"),
        (&["compile", "-o", &output, ""], &[], 2, "FILE.pt2"),
        (&["compile", "-o", &output, "no-such.pt2"], &[], 3, "no-such.pt2"),
        (&["compile", "-o", &output, folder], &[], 5, "has no `config.json`"),
        (&["quantize", "-o", &output, folder], &[], 5, "has no `config.json`"),
        (&quantize, &["--calibrate", "no-such.npz"], 3, "no-such.npz"),
        (&["ops", "no-such.pte"], &[], 3, "no-such.pte"),
        (&["doctor", "no-such.pte"], &[], 3, "no-such.pte"),
        (&["ops", "--rust"], &[], 2, "the programs"),
        // Outputs.
        (&["compile", &model], &["-o", "-"], 2, "standard output"),
        (&["compile", &model], &["-o", ""], 2, "--output"),
        (&["compile", &model], &["-o", &nowhere], 3, "no folder"),
        (&["quantize", &model, "--scheme", "int8-dynamic"], &["-o", "-"], 2, "standard output"),
        (&compile, &["--report", ""], 2, "--report"),
        (&compile, &["--report", folder], 3, "a folder"),
        (&["inspect", &model], &["--html", "-"], 2, "standard output"),
        (&["inspect", &model], &["--html", &nowhere], 3, "no folder"),
        (&run, &["--trace", "-"], 2, "standard output"),
        (&run, &["--trace", folder], 3, "a folder"),
        (&run, &["-o", "-"], 2, "standard output"),
        (&run, &["-o", ""], 2, "--output"),
        (&run, &["-o", &model], 2, "a folder, or a file that ends in .npy"),
        (&run, &["-o", "x.npz"], 2, "a folder, or a file that ends in .npy"),
        (&run, &["-o", &format!("{model}/out")], 3, "cannot make the folder"),
        (&run, &["--cache", &model], 2, "expected a folder"),
        (&run, &["--cache", ""], 2, "--cache"),
        (&["doctor"], &["--cache", &model], 2, "expected a folder"),
    ];
    for (arguments, more, code, text) in cases {
        fails(&[*arguments, *more].concat(), *code, &[text]);
    }
    assert!(!std::path::Path::new("x.npz").exists(), "a refused name is not made a folder");
}

/// A method's only output can be written to a `.npy` file of the given name; several outputs need a folder.
#[test]
fn one_output_is_one_file() {
    let folder = folder("one-output");
    let file = at(&folder, "out.npy");
    succeeds(&["run", &format!("{EXAMPLE}/digits.pte"), "-o", &file]);
    assert!(fs::read(&file).is_ok_and(|bytes| bytes.starts_with(b"\x93NUMPY")), "{file} is no array");
    succeeds(&["run", &format!("{CORPUS}/1.5.1/lstm.pte"), "-o", &at(&folder, "many")]);
    assert!(folder.join("many/output_0.npy").is_file());
    fails(&["run", &format!("{CORPUS}/1.5.1/lstm.pte"), "-o", &file], 2, &["name a folder"]);
}

/// If a file of the wrong kind is given, the error names its kind and the command to run next.
#[test]
fn errors_name_the_kind_of_a_file() {
    let folder = folder("kinds");
    let file = |name: &str, bytes: &[u8]| {
        fs::write(folder.join(name), bytes).expect("a file");
        at(&folder, name)
    };
    let read = |path: &str| fs::read(path).expect("a file");
    let (model, program) = (format!("{EXAMPLE}/digits.pt2"), format!("{EXAMPLE}/digits.pte"));
    let (data, bundled) = (format!("{CORPUS}/1.5.1/external.ptd"), format!("{CORPUS}/1.5.1/bundled.bpte"));
    let short_bundled = file("short.bpte", &read(&bundled)[..500]);
    let (arrays, image) = (format!("{EXAMPLE}/images/images.npz"), format!("{EXAMPLE}/images/7.png"));
    let (onnx, tflite) = (file("m.onnx", b"\x08\x08\x12\x07pytorch:\x04"), file("m.tflite", b"\x1c\0\0\0TFL3\0\0\0\0"));
    let gguf = file("m.gguf", b"GGUF\x03\0\0\0\0\0\0\0");
    let safetensors = file("m.safetensors", b"\x10\0\0\0\0\0\0\0{\"a\":{}}        ");
    let pickle = file("m.pth", b"\x80\x02}q\0.");
    let empty = file("empty", b"");
    let zeros = file("zeros", &[0; 5000]);
    let pointer = file("lfs.pte", b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 123\n");
    let page = file("page.pte", b"<!DOCTYPE html><html>404</html>");
    let text = file("m.txt", b"a text that is no model at all, and longer than a header");
    let whole = read(&program);
    let short = file("short.pte", &whole[..whole.len() - 100]);
    let archive = read(&model);
    let short_archive = file("short.pt2", &archive[..archive.len() - 1000]);
    let cases: &[(&[&str], &str, &[&str])] = &[
        (&["run", "bench", "inspect --memory", "ops", "validate", "size", "doctor"], &model, &[".pt2"]),
        (&["run"], &model, &["an exported program", "rushlight compile", "digits.pt2"]),
        (&["run", "inspect", "ops", "validate"], &data, &["a data file", "--data"]),
        (&["compile"], &bundled, &["a bundled program", "rushlight run"]),
        (&["run", "validate", "inspect"], &short_bundled, &["is damaged", "a bundled program"]),
        (&["run"], &arrays, &["archive of arrays", "--input"]),
        (&["run", "compile"], &image, &["an image"]),
        (&["run", "compile", "quantize"], &onnx, &["an ONNX model", "torch.export"]),
        (&["run", "compile"], &tflite, &["a TensorFlow Lite model", "torch.export"]),
        (&["run"], &gguf, &["a GGUF model", "rushlight compile"]),
        (&["compile"], &gguf, &["the GGUF file ends too early", "m.gguf"]),
        (&["run", "compile"], &safetensors, &["a safetensors file", "config.json"]),
        (&["run", "compile"], &pickle, &["a pickle", "torch.export"]),
        (&["run", "compile", "quantize"], &empty, &["an empty file"]),
        (&["run", "compile"], &zeros, &["begins with zeros", "again"]),
        (&["run", "compile"], &pointer, &["Git LFS", "git lfs pull"]),
        (&["run", "compile"], &page, &["a web page", "download"]),
        (&["run", "compile"], &text, &["another kind"]),
        (&["compile", "quantize"], &program, &["a compiled program (.pte)", "rushlight run", "digits.pte"]),
        (&["compile"], &data, &["a data file"]),
        (&["run", "validate"], &short, &["truncated", "12328 bytes", "12228 bytes"]),
        (&["compile", "quantize"], &short_archive, &["whose end is missing", "expected", "25744 bytes"]),
    ];
    for (commands, path, texts) in cases {
        for command in *commands {
            let (command, option) = command.split_once(' ').unwrap_or((command, ""));
            let options = [option].into_iter().filter(|option| !option.is_empty());
            let arguments: Vec<&str> = [command, *path].into_iter().chain(options).collect();
            if command == "inspect" && *path == model {
                continue;
            }
            fails(&arguments, 4, texts);
        }
    }
    let external = format!("{CORPUS}/1.5.1/external.pte");
    fails(&["run", &external, "--data", &program], 4, &["a compiled program (.pte)", ".ptd"]);
    fails(&["run", &external, "--data", &short], 4, &["a compiled program (.pte)", ".ptd"]);
    let whole = read(&data);
    let short = file("short.ptd", &whole[..whole.len() - 10]);
    fails(&["run", &external, "--data", &short], 4, &["truncated", &format!("{} bytes", whole.len())]);
    fails(&["compare", &program, &program], 4, &["a compiled program (.pte)"]);
}

/// If a program's weights are in other files, the error names the files beside it.
#[test]
fn empty_archives_and_devices_are_no_inputs() {
    let folder = folder("no-inputs");
    let program = format!("{EXAMPLE}/digits.pte");
    let empty = at(&folder, "empty.npz");
    // The end of an archive without entries, as `numpy.savez` writes it without arrays.
    fs::write(&empty, [&b"PK\x05\x06"[..], &[0; 18]].concat()).expect("a file");
    fails(&["run", &program, "-i", &empty], 6, &["empty.npz", "no arrays"]);
    #[cfg(unix)]
    {
        let zeros = at(&folder, "zeros.npy");
        std::os::unix::fs::symlink("/dev/zero", &zeros).expect("a link");
        fails(&["run", &program, "-i", &zeros], 6, &["zeros.npy", "device"]);
        fails(&["run", "/dev/zero"], 3, &["/dev/zero", "device"]);
        fails(&["compile", "/dev/zero"], 3, &["/dev/zero", "device"]);
    }
}

/// A damaged payload of a backend makes the file invalid, like any other damage.
#[test]
fn a_damaged_payload_is_an_invalid_file() {
    let folder = folder("damaged-payload");
    let program = at(&folder, "digits.pte");
    succeeds(&["compile", &format!("{EXAMPLE}/digits.pt2"), "--backend", "cpu", "-o", &program]);
    let mut bytes = fs::read(&program).expect("the program");
    let magic = bytes.windows(3).position(|bytes| bytes == b"RLC").expect("the payload");
    bytes[magic + 3] = b'0';
    fs::write(&program, bytes).expect("a copy");
    fails(&["run", &program], 4, &["RushlightCpu", "version 0", "reads version"]);
}

#[test]
fn missing_data_is_named() {
    let folder = folder("missing-data");
    let external = format!("{CORPUS}/1.5.1/external");
    let program = at(&folder, "model.pte");
    fs::copy(format!("{external}.pte"), &program).expect("a copy");
    for command in ["run", "bench", "validate", "size"] {
        fails(&[command, &program], 5, &["data file (.ptd)", "--data", "model.ptd"]);
    }
    fs::copy(format!("{external}.ptd"), folder.join("weights.ptd")).expect("a copy");
    fs::write(folder.join("other.ptd"), "no data at all").expect("a file");
    let error = fails(&["run", &program], 5, &["--data", "weights.ptd"]);
    assert!(!error.contains("other.ptd"), "{error}");
    succeeds(&["run", &program, "--data", &at(&folder, "weights.ptd")]);
    // Data files of other programs do not contain it.
    let model = format!("{EXAMPLE}/digits.pt2");
    succeeds(&["compile", &model, "--external-weights", "-o", &at(&folder, "digits.pte")]);
    fails(&["run", &program, "--data", &at(&folder, "digits.ptd")], 5, &["digits.ptd", "weights.ptd"]);
}

/// Programs of a backend that needs an operating system have no size on a microcontroller, and no list of operators for it.
#[test]
fn programs_that_no_microcontroller_runs_are_refused() {
    let folder = folder("firmware");
    let model = format!("{EXAMPLE}/digits.pt2");
    let program = at(&folder, "cpu.pte");
    succeeds(&["compile", &model, "--backend", "cpu", "-o", &program]);
    for command in [&["size", &program][..], &["ops", &program], &["ops", "--rust", &program]] {
        fails(command, 1, &["RushlightCpu", "--backend portable"]);
    }
    succeeds(&["compile", &model, "--backend", "portable", "-o", &program]);
    for command in [&["size", &program][..], &["ops", &program], &["ops", "--rust", &program]] {
        succeeds(command);
    }
}
