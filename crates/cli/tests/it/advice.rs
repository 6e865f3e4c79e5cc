//! Errors of the command with advice, each followed: the wrong arguments, the advice in their error, and the arguments that it names.

use std::fs;
use std::path::Path;

use rushlight::Tensor;
use rushlight::runtime::Bool8;
use rushlight_devtools::npy;

use crate::command::{CORPUS, EXAMPLE, at, fails, folder, run, succeeds};

/// Writes a `.npy` file of zeros.
fn array(folder: &Path, name: &str, shape: &[usize]) -> String {
    let zeros = Tensor::of(shape, &vec![0.0f32; shape.iter().product()]).expect("a tensor");
    let mut bytes = Vec::new();
    npy::write(&zeros, &mut bytes).expect("an array");
    fs::write(folder.join(name), bytes).expect("a file");
    at(folder, name)
}

/// The wrong arguments, the exit code, a part of the error, and the arguments that it names.
type Case<'a> = (&'a [&'a str], i32, &'a str, &'a [&'a str]);

#[test]
fn advice_about_compiling_leads_on() {
    let folder = folder("advice-compile");
    let (model, output, images) = (format!("{EXAMPLE}/digits.pt2"), at(&folder, "x.pte"), format!("{EXAMPLE}/images"));
    let (arrays, program) = (format!("{images}/images.npz"), format!("{EXAMPLE}/digits.pte"));
    let (a, b) = (format!("a={model}"), format!("b={model}"));
    let (of_a, of_b) = (format!("a={arrays}"), format!("b={arrays}"));
    let decoders = format!("{CORPUS}/../decoders");
    let (llama, nowhere) = (format!("{decoders}/llama"), at(&folder, "new/x.pte"));
    let compile = ["compile", &model, "-o", &output];
    let quantize = ["quantize", &model, "-o", &output];
    let cases: &[Case<'_>] = &[
        (
            &["--calibrate", &arrays],
            2,
            "add the scheme, such as `--quantize int8`",
            &["--quantize", "int8", "--calibrate", &arrays],
        ),
        (&["--keep", "conv1"], 2, "--quantize <SCHEME>", &["--quantize", "int8", "--keep", "conv1"]),
        (
            &["--backend", "xnnpack"],
            5,
            "choose `cpu` for the processor, also in place of XNNPACK",
            &["--backend", "cpu"],
        ),
        (&["--backend", "cpu:precison=bf16"], 2, "`precision`", &["--backend", "cpu:precision=bf16"]),
        (
            &["--backend", "portable", "--backend", "cpu"],
            2,
            "put `portable` last",
            &["--backend", "cpu", "--backend", "portable"],
        ),
        (&["--constant", "n"], 2, "write NAME=VALUE", &["--constant", "n=3"]),
        (&["--alignment", "24"], 2, "a power of two", &["--alignment", "32"]),
        (&["--quantize", "int3"], 2, "int8-dynamic", &["--quantize", "int8-dynamic"]),
        (&["--kv-cache", "int8"], 2, "leave out the type of caches", &[]),
    ];
    for (wrong, code, advice, right) in cases {
        fails(&[&compile, *wrong].concat(), *code, &[advice]);
        succeeds(&[&compile, *right].concat());
    }
    let cases: &[Case<'_>] = &[
        (
            &["--calibrate", &model],
            6,
            "expected a .npz, .npy, .png or .jpg file, or a folder of images",
            &["--calibrate", &images],
        ),
        (
            &["--calibrate", &arrays, "--keep", "conv9"],
            6,
            "a name such as `conv1`",
            &["--calibrate", &arrays, "--keep", "conv1"],
        ),
        (
            &["--scheme", "int8-dynamic", "--min-snr", "30"],
            6,
            "give typical inputs as a calibration (`--calibrate`",
            &["--scheme", "int8-dynamic", "--min-snr", "30", "--calibrate", &arrays],
        ),
        (&["--scheme", "8da4w", "--weights", "gptq"], 6, "or leave out GPTQ", &["--scheme", "int8-weight"]),
    ];
    for (wrong, code, advice, right) in cases {
        fails(&[&quantize, *wrong].concat(), *code, &[advice]);
        succeeds(&[&quantize, *right].concat());
    }
    let cases: &[Case<'_>] = &[
        (
            &["quantize", &a, &b, "--calibrate", &arrays, "-o", &output],
            2,
            "write `--calibrate NAME=",
            &["quantize", &a, &b, "--calibrate", &of_a, "--calibrate", &of_b, "-o", &output],
        ),
        (
            &["compile", &llama, "--quantize", "int8", "-o", &output],
            2,
            "without a calibration: int8-dynamic",
            &["compile", &llama, "--quantize", "int8-dynamic", "-o", &output],
        ),
        (
            &["quantize", &llama, "--calibrate", &arrays, "-o", &output],
            2,
            "without a calibration: 8da4w",
            &["quantize", &llama, "--scheme", "8da4w", "-o", &output],
        ),
        (
            &["compile", &decoders, "-o", &output],
            5,
            "name the folder or the .gguf file of the model itself",
            &["compile", &llama, "-o", &output],
        ),
        (&["compile", &program, "-o", &output], 4, "rushlight run", &["run", &program]),
        (&["inspect", &model, "--memory"], 1, "compile the model first", &["inspect", &program, "--memory"]),
    ];
    for (wrong, code, advice, right) in cases {
        fails(wrong, *code, &[advice]);
        succeeds(right);
    }
    fails(&["compile", &model, "-o", &nowhere], 3, &["make the folder first"]);
    fs::create_dir(folder.join("new")).expect("a folder");
    succeeds(&["compile", &model, "-o", &nowhere]);
    // Microcontrollers run portable programs alone.
    succeeds(&[&compile, &["--backend", "cpu"][..]].concat());
    fails(&["size", &output], 1, &["`--backend portable`"]);
    succeeds(&[&compile, &["--backend", "portable"][..]].concat());
    succeeds(&["size", &output]);
}

#[test]
fn advice_about_running_leads_on() {
    let folder = folder("advice-run");
    let (model, program) = (format!("{EXAMPLE}/digits.pt2"), at(&folder, "digits.pte"));
    succeeds(&["compile", &model, "-o", &program]);
    let images = format!("{EXAMPLE}/images");
    let image = format!("{images}/7.png");
    let (one, short) = (array(&folder, "one.npy", &[1, 1, 8, 8]), array(&folder, "short.npy", &[1, 1, 8, 7]));
    let (raw, labels) = (at(&folder, "x.bin"), at(&folder, "labels.txt"));
    fs::write(&raw, [0; 12]).expect("a file");
    fs::write(&labels, "0\n1\n2\n3\n4\n5\n6\n7\n8\n9\n").expect("a file");
    let named = |file: &str| format!("image={file}");
    let wrong_name = format!("picture={one}");
    let by_name = named(&one);
    let (external, data) = (format!("{CORPUS}/1.5.1/external.pte"), format!("{CORPUS}/1.5.1/external.ptd"));
    let run = ["run", &program];
    let cases: &[Case<'_>] = &[
        (&["-i", &images], 6, "give one file of it", &["-i", &image]),
        (&["-i", &one, "-i", &one], 6, "give one `--input` for each: input 0 (image)", &["-i", &one]),
        (&["-i", &by_name, "-i", &one], 6, "leave out one `--input`", &["-i", &by_name]),
        (&["-i", &wrong_name], 6, "one of: image", &["-i", &by_name]),
        (&["-i", &raw], 6, "a .npy file keeps shape and type", &["-i", &one]),
        (&["-i", &short], 6, "f32 [1, 1, 8, 8]", &["-i", &one]),
        (&["-i", "x"], 6, "expected a .npy", &["-i", &one]),
        (&["--method", "backward"], 2, "forward", &["--method", "forward"]),
        (&["--lower", "gpu"], 2, "`auto`, `off`, `cpu`", &["--lower", "cpu"]),
        (&["-t", "0"], 2, "from 1 to", &["-t", "2"]),
        (&["--labels", &labels], 2, "--top", &["--labels", &labels, "--top", "1"]),
        (&["--memory-limit", "many"], 2, "64MiB", &["--memory-limit", "64MiB"]),
        (&["--time-limit", "soon"], 2, "500ms", &["--time-limit", "10s"]),
    ];
    for (wrong, code, advice, right) in cases {
        fails(&[&run, *wrong].concat(), *code, &[advice]);
        succeeds(&[&run, *right].concat());
    }
    let cases: &[Case<'_>] = &[
        (&["run", &model], 4, "rushlight compile", &["compile", &model, "-o", &program]),
        (&["run", &external], 5, "--data", &["run", &external, "--data", &data]),
        (&["run", &data], 4, "--data", &["run", &external, "--data", &data]),
        (&["ops", "--rust"], 2, "need the programs", &["ops", "--rust", &program]),
    ];
    for (wrong, code, advice, right) in cases {
        fails(wrong, *code, &[advice]);
        succeeds(right);
    }
}

/// A `.npz` file with one array may be given for an input; one with several is given without a name.
#[test]
fn archives_of_arrays_are_given_with_or_without_a_name() {
    let folder = folder("advice-npz");
    let program = at(&folder, "keywords.pte");
    succeeds(&["compile", &format!("{CORPUS}/pt2/keywords.pt2"), "-o", &program]);
    let floats = Tensor::of(&[4], &[0.5f32; 4]).expect("a tensor");
    let mask = Tensor::of(&[2], &[Bool8(0), Bool8(1)]).expect("a tensor");
    let write = |name: &str, arrays: &[(&str, &Tensor)]| {
        let mut bytes = Vec::new();
        npy::write_archive(arrays.iter().copied(), std::io::Cursor::new(&mut bytes)).expect("an archive");
        fs::write(folder.join(name), bytes).expect("a file");
        at(&folder, name)
    };
    let one = write("one.npz", &[("anything", &floats)]);
    let all = write(
        "all.npz",
        &[("batch.boxes.0", &floats), ("batch.boxes.1", &floats), ("batch.mask", &mask), ("image", &floats)],
    );
    let (image, several) = (format!("image={one}"), format!("image={all}"));
    succeeds(&["run", &program, "-i", &image]);
    let advice = format!("give the file without a name, and each array is one input: `--input {all}`");
    fails(&["run", &program, "-i", &several], 6, &["has several arrays", &advice]);
    succeeds(&["run", &program, "--input", &all]);
}

/// The browser of `BROWSER` gets a page, and an error names the page if there is no browser.
#[test]
#[cfg(unix)]
fn pages_are_opened_in_the_browser() {
    use std::os::unix::fs::PermissionsExt;

    let folder = folder("advice-browser");
    let (browser, seen, page) = (folder.join("browser"), folder.join("seen"), at(&folder, "graph.html"));
    let temporary = folder.join("temporary");
    fs::create_dir(&temporary).expect("a folder");
    fs::write(&browser, format!("#!/bin/sh\necho \"$1\" > '{0}.new' && mv '{0}.new' '{0}'\n", seen.display()))
        .expect("a script");
    fs::set_permissions(&browser, PermissionsExt::from_mode(0o755)).expect("its mode");
    let (model, program) = (format!("{EXAMPLE}/digits.pt2"), format!("{EXAMPLE}/digits.pte"));
    let open = |arguments: &[&str], browser: &Path| {
        let mut command = crate::command::rushlight();
        command.arg("inspect").args(arguments).arg("--open").env("BROWSER", browser).env("TMPDIR", &temporary);
        command.output().expect("the command")
    };
    for arguments in [&[&*model, "--html", &page][..], &[&model], &[&program], &[&program, "--memory"]] {
        let output = open(arguments, &browser);
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        let start = std::time::Instant::now();
        while !seen.exists() {
            assert!(start.elapsed() < std::time::Duration::from_mins(1), "{arguments:?}: no browser started");
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let opened = fs::read_to_string(&seen).expect("the name of a page");
        fs::remove_file(&seen).expect("the name of a page");
        let text = fs::read_to_string(opened.trim_end()).expect("a page");
        assert!(text.contains("<html"), "{arguments:?}");
        assert_eq!(opened.trim_end() == page, arguments.contains(&"--html"));
    }
    let output = open(&[&model, "--html", &page], &folder.join("none"));
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains(&format!("open `{page}` yourself")) && error.contains("BROWSER"), "{error}");
}

/// `compile` names the operators without a kernel, and `validate` refuses the program.
#[test]
fn operators_without_a_kernel_are_named_before_the_program_runs() {
    let folder = folder("advice-operators");
    let (model, output) = (format!("{CORPUS}/pt2/custom_operator.pt2"), at(&folder, "x.pte"));
    let compile = ["compile", &model, "-o", &output];
    let result = run(&compile);
    let text = String::from_utf8_lossy(&result.stderr);
    assert!(result.status.success(), "{text}");
    assert!(text.contains("warning: `example::twice.out` has no kernel in Rushlight"), "{text}");
    let json: serde_json::Value = serde_json::from_str(&succeeds(&[&compile[..], &["--json"]].concat())).expect("JSON");
    assert_eq!(json["missing_operators"], serde_json::json!(["example::twice.out"]));
    fails(&["validate", &output], 5, &["example::twice.out"]);
}
