//! Files of outputs: they never replace an input, follow symbolic links, may be pipes or devices, and keep their modes.
#![cfg(unix)]

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use crate::command::{CORPUS, EXAMPLE, at, fails, folder, run, succeeds};
use crate::llm::SAMPLE;

/// Copies the classifier to a folder.
fn model(folder: &Path) -> String {
    for name in ["digits.pt2", "digits.pte"] {
        fs::copy(format!("{EXAMPLE}/{name}"), folder.join(name)).expect("a copy");
    }
    at(folder, "digits.pt2")
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("a file").permissions().mode() & 0o7777
}

/// Every output option of every subcommand, with the path of an input, of a link to it and of a second name of it.
#[test]
fn an_input_is_not_written_over() {
    let folder = folder("over-an-input");
    let model = model(&folder);
    let program = at(&folder, "digits.pte");
    let (array, data) = (at(&folder, "x.npz"), at(&folder, "x.ptd"));
    fs::copy(format!("{EXAMPLE}/images/images.npz"), &array).expect("a copy");
    fs::copy(format!("{CORPUS}/1.5.1/external.ptd"), &data).expect("a copy");
    let image = at(&folder, "7.png");
    fs::copy(format!("{EXAMPLE}/images/7.png"), &image).expect("a copy");
    let external = format!("{CORPUS}/1.5.1/external.pte");
    let cases: Vec<(Vec<&str>, &str)> = vec![
        (vec!["compile", &model, "-o"], &model),
        (vec!["compile", &model, "-o", "OTHER", "--report"], &model),
        (vec!["quantize", &model, "--scheme", "int8-dynamic", "-o"], &model),
        (vec!["quantize", &model, "--scheme", "int8-dynamic", "-o", "OTHER", "--report"], &model),
        (vec!["quantize", &model, "--calibrate", &array, "-o"], &array),
        (vec!["quantize", &model, "--calibrate", &array, "-o", "OTHER", "--report"], &array),
        (vec!["inspect", &model, "--html"], &model),
        (vec!["inspect", &program, "--html"], &program),
        (vec!["inspect", &program, "--memory", "--html"], &program),
        (vec!["run", &program, "--trace"], &program),
        (vec!["run", &program, "-i", &image, "--trace"], &image),
        (vec!["bench", &program, "-n", "1", "--trace"], &program),
        (vec!["run", &external, "--data", &data, "--trace"], &data),
    ];
    let other = at(&folder, "other.pte");
    for (arguments, input) in cases {
        let before = fs::read(input).expect("the input");
        let (link, second) = (at(&folder, "link"), at(&folder, "second"));
        symlink(input, &link).expect("a link");
        fs::hard_link(input, &second).expect("a second name");
        for output in [input, &link, &second] {
            let mut arguments: Vec<&str> =
                arguments.iter().map(|argument| if *argument == "OTHER" { &*other } else { argument }).collect();
            arguments.push(output);
            fails(&arguments, 2, &["input", output]);
            assert!(fs::read(input).is_ok_and(|after| after == before), "{arguments:?} changed its input");
        }
        fs::remove_file(link).and_then(|()| fs::remove_file(second)).expect("the test's own files");
    }
    assert!(!Path::new(&other).exists(), "nothing is written when one output is refused");
    // The file that an option names is beside the program, not in the current folder.
    let weights = "--external-weights=digits.pt2";
    fails(&["compile", &model, "-o", &other, weights], 2, &["input", "digits.pt2"]);
    // A run's outputs do not overwrite its inputs.
    let arrays = at(&folder, "arrays");
    succeeds(&["run", &program, "-o", &arrays]);
    let add = format!("{CORPUS}/1.5.1/add.pte");
    let input = at(&folder, "arrays/output_0.npy");
    fails(&["run", &add, "-i", &input, "-o", &arrays], 2, &["input", "output_0.npy"]);
}

#[test]
fn two_outputs_are_two_files() {
    let folder = folder("two-outputs");
    let (model, output) = (model(&folder), at(&folder, "x.pte"));
    fails(&["compile", &model, "-o", &output, "--report", &output], 2, &["x.pte", "both"]);
    fails(&["compile", &model, "-o", &output, "--external-weights=x.pte"], 2, &["x.pte"]);
    let weights = at(&folder, "x.ptd");
    fails(&["compile", &model, "-o", &output, "--external-weights", "--report", &weights], 2, &["x.ptd", "both"]);
    assert!(!Path::new(&output).exists());
}

#[test]
fn links_are_followed() {
    let folder = folder("followed-links");
    let model = model(&folder);
    fs::create_dir(folder.join("elsewhere")).expect("a folder");
    for (name, there) in [("there.pte", true), ("missing.pte", false)] {
        let target = folder.join("elsewhere").join(name);
        if there {
            fs::write(&target, "before").expect("a file");
        }
        let link = folder.join(name);
        symlink(Path::new("elsewhere").join(name), &link).expect("a link");
        succeeds(&["compile", &model, "-o", &at(&folder, name)]);
        assert!(fs::symlink_metadata(&link).is_ok_and(|link| link.is_symlink()), "{name} is no link any more");
        assert!(fs::metadata(&target).is_ok_and(|file| file.len() > 1000), "{name}");
        succeeds(&["run", &at(&folder, name)]);
    }
    let names = fs::read_dir(folder.join("elsewhere")).expect("the folder").flatten().count();
    assert_eq!(names, 2, "nothing else is left there");
}

#[test]
fn modes_are_kept_and_new_files_get_the_usual_one() {
    let folder = folder("modes");
    let model = model(&folder);
    let report = at(&folder, "report.txt");
    for (path, option) in [(at(&folder, "x.pte"), "-o"), (report, "--report")] {
        let path = Path::new(&path);
        for bits in [0o600, 0o640, 0o755] {
            fs::write(path, "before").expect("a file");
            fs::set_permissions(path, fs::Permissions::from_mode(bits)).expect("a mode");
            let other = at(&folder, "other.pte");
            let path = path.to_str().expect("a name");
            if option == "-o" {
                succeeds(&["compile", &model, "-o", path]);
            } else {
                succeeds(&["compile", &model, "-o", &other, option, path]);
            }
            assert_eq!(mode(Path::new(path)), bits, "{path}");
        }
    }
    let script =
        format!("umask 027 && {} compile {model} -o {}", env!("CARGO_BIN_EXE_rushlight"), at(&folder, "new.pte"));
    if !cfg!(target_arch = "aarch64") {
        assert!(Command::new("sh").args(["-c", &script]).status().expect("a shell").success());
        assert_eq!(mode(&folder.join("new.pte")), 0o640);
    }
}

/// Output to pipes and devices arrives there, and they stay pipes and devices.
#[test]
fn what_is_no_regular_file_stays() {
    let folder = folder("no-regular-file");
    let model = model(&folder);
    let program = at(&folder, "digits.pte");
    let pipe = at(&folder, "pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().expect("mkfifo").success());
    let link = at(&folder, "link");
    symlink(&pipe, &link).expect("a link");
    for output in [&pipe, &link] {
        let cases: [(&[&str], &[u8]); 4] = [
            (&["compile", &model, "-o", output], b"ET12"),
            (&["quantize", &model, "--scheme", "int8-dynamic", "-o", output], b"ET12"),
            (&["run", &program, "--trace", output], b"{"),
            (&["inspect", &model, "--html", output], b"<!doctype html>"),
        ];
        for (arguments, what) in cases {
            let from = pipe.clone();
            let reader = thread::spawn(move || {
                let mut bytes = Vec::new();
                File::open(from).and_then(|mut file| file.read_to_end(&mut bytes)).map(|_| bytes)
            });
            succeeds(arguments);
            // The reader ends when the writer closes the pipe. If a file replaced the pipe, the reader would wait
            // forever.
            assert!(fs::metadata(&pipe).is_ok_and(|file| file.file_type().is_fifo()), "{arguments:?}");
            let bytes = reader.join().expect("a thread").expect("the pipe");
            assert!(bytes.windows(what.len()).take(16).any(|window| window == what), "{arguments:?}");
        }
    }
}

/// A device that this test makes, if the system allows it: only root may.
#[test]
fn a_device_stays_a_device() {
    let folder = folder("device");
    let model = model(&folder);
    let device = at(&folder, "null");
    if !Command::new("mknod").args([&device, "c", "1", "3"]).status().is_ok_and(|status| status.success()) {
        return;
    }
    // On a file system without devices, the node exists and cannot be opened.
    if fs::write(&device, "x").is_err() {
        return;
    }
    for arguments in
        [vec!["compile", &model, "-o", &device], vec!["run", &at(&folder, "digits.pte"), "--trace", &device]]
    {
        succeeds(&arguments);
        assert!(fs::metadata(&device).is_ok_and(|file| file.file_type().is_char_device()), "{arguments:?}");
    }
}

#[test]
fn a_failure_leaves_what_was_there() {
    let folder = folder("failures");
    let model = model(&folder);
    fails(&["compile", &model, "-o", &at(&folder, "no-such/x.pte")], 3, &["no-such/x.pte", "no folder"]);
    fails(&["compile", &model, "-o", folder.to_str().expect("a name")], 3, &["a folder"]);
    fails(&["compile", &model, "-o", &at(&folder, "new/")], 3, &["new/"]);
    let circle = at(&folder, "circle");
    symlink("circle", &circle).expect("a link");
    fails(&["compile", &model, "-o", &circle], 3, &["circle"]);
    let node = fs::metadata(&model).expect("the model").ino();
    let long = at(&folder, &format!("{}.pte", "x".repeat(240)));
    succeeds(&["compile", &model, "-o", &long]);
    assert_eq!(fs::metadata(&model).expect("the model").ino(), node);
    let output = run(&["compile", &model, "-o", &at(&folder, "x.pte"), "--report", &at(&folder, "no-such/report")]);
    assert_eq!(output.status.code(), Some(3));
    let left: Vec<_> = fs::read_dir(&folder).expect("the folder").flatten().map(|entry| entry.file_name()).collect();
    assert!(left.iter().all(|name| !name.to_string_lossy().contains("partial")), "{left:?}");
}

/// A process that is ended in any way, even in the middle of a file, leaves no partial files.
#[test]
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
fn nothing_half_written_is_left_by_any_signal() {
    let folder = folder("signals");
    let output = folder.join("model.pte");
    fs::write(&output, b"before").expect("a file");
    let compile = |limit: &str| {
        let mut shell = Command::new("sh");
        let command =
            format!("ulimit -c 0; {limit} exec \"$0\" compile \"$1\" --backend cpu --tokenizer \"$1\" -o \"$2\"");
        shell.args(["-c", &command]).arg(env!("CARGO_BIN_EXE_rushlight")).arg(SAMPLE).arg(&output);
        shell.stdout(Stdio::null()).stderr(Stdio::null());
        shell
    };
    let check = |what: &str| {
        let entries = fs::read_dir(&folder).expect("the folder").map(|entry| entry.expect("an entry").file_name());
        let names: Vec<_> = entries.collect();
        assert_eq!(names, ["model.pte"], "{what}");
    };
    // A limit on the size of files, which raises a signal by default.
    let status = compile("ulimit -f 1;").status().expect("the command");
    assert!(!status.success(), "{status}");
    check("SIGXFSZ");
    assert_eq!(fs::read(&output).expect("the file"), b"before");
    for (number, signal) in ["HUP", "TERM", "KILL", "QUIT", "XCPU"].iter().cycle().take(20).enumerate() {
        let mut process = compile("").spawn().expect("the command");
        thread::sleep(Duration::from_millis(20 * number as u64));
        let kill = Command::new("kill").args([&format!("-{signal}"), &process.id().to_string()]).output();
        assert!(kill.is_ok());
        process.wait().expect("an end");
        check(signal);
    }
    assert!(compile("").status().expect("the command").success());
    check("none");
}
