//! Lowered programs on disk: found again, never mistaken for another, and never in the way.
#![cfg(feature = "lower")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Barrier;

use rushlight::{Cache, CacheUse, Input, Module, ModuleBuilder, ScalarType, TensorView, Value};

fn corpus(name: &str) -> Vec<u8> {
    fs::read(format!("{}/../../tests/corpus/1.5.1/{name}", env!("CARGO_MANIFEST_DIR"))).expect("a file of the corpus")
}

/// A name for a folder of one test, which is not there.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("cache-{name}"));
    drop(fs::remove_dir_all(&folder));
    folder
}

fn cache(folder: &Path) -> Cache {
    Cache::new(folder).smallest(0)
}

fn load(program: &[u8], cache: Cache) -> Module {
    builder(cache).load_bytes(program).expect("a program of the corpus")
}

fn builder(cache: Cache) -> ModuleBuilder {
    Module::builder().lower("cpu").threads(1).cache(cache)
}

/// The bytes of all outputs of all methods, whose inputs are floats.
fn results(module: &mut Module) -> Vec<Vec<u8>> {
    let names: Vec<String> = module.method_names().map(str::to_owned).collect();
    let mut results = Vec::new();
    for name in names {
        let meta = module.meta(&name).expect("a method");
        let sizes = meta.inputs.iter().map(|input| {
            let info = input.as_tensor().filter(|info| info.dtype == ScalarType::Float);
            info.expect("an input of floats").sizes.clone()
        });
        let data: Vec<(Vec<usize>, Vec<f32>)> = sizes
            .map(|sizes| {
                let count: usize = sizes.iter().product();
                (sizes, (0..count).map(|index| (index % 7) as f32 - 2.5).collect())
            })
            .collect();
        let inputs: Vec<Input<'_>> =
            data.iter().map(|(sizes, floats)| TensorView::of(sizes, floats).expect("a view").into()).collect();
        let outputs = module.run(&name, &inputs).expect("it runs");
        results.extend(outputs.iter().map(|output| match output {
            Value::Tensor(tensor) => tensor.bytes().to_vec(),
            other => format!("{other:?}").into_bytes(),
        }));
    }
    results
}

fn used(module: &mut Module) -> CacheUse {
    module.cache_use().expect("it is lowered").clone()
}

#[track_caller]
fn written(module: &mut Module) -> PathBuf {
    match used(module) {
        CacheUse::Written { file, ignored: None } => file,
        other => panic!("{other}"),
    }
}

#[track_caller]
fn loaded(module: &mut Module) -> PathBuf {
    match used(module) {
        CacheUse::Loaded { file } => file,
        other => panic!("{other}"),
    }
}

#[track_caller]
fn replaced(module: &mut Module) -> String {
    match used(module) {
        CacheUse::Written { ignored: Some(reason), .. } => reason.message().to_owned(),
        other => panic!("{other}"),
    }
}

#[track_caller]
fn not_written(module: &mut Module) -> String {
    match used(module) {
        CacheUse::NotWritten { reason, .. } => reason.message().to_owned(),
        other => panic!("{other}"),
    }
}

#[test]
fn what_was_lowered_is_found_again() {
    for name in ["mlp.pte", "conv.pte", "multi_method.pte", "counter.pte"] {
        let (program, folder) = (corpus(name), folder(name));
        let mut first = load(&program, cache(&folder));
        let (file, report, want) = (written(&mut first), first.report().cloned().expect(name), results(&mut first));
        assert!(report.claim_counts().contains_key("RushlightCpu"), "{name}: {report}");
        let mut second = load(&program, cache(&folder));
        assert_eq!(loaded(&mut second), file);
        assert_eq!(second.report().expect(name), &report);
        assert_eq!(results(&mut second), want, "{name}");
        assert_eq!(second.lowered_map("forward"), first.lowered_map("forward"));
        let mut without = Module::builder().lower("cpu").threads(1).cache("").load_bytes(&program).expect(name);
        assert!(without.cache_use().is_none());
        assert_eq!(results(&mut without), want, "{name}");
        // The file is a program like any other.
        assert!(Module::load(&file).is_ok_and(|module| module.method_names().eq(first.method_names())));
    }
}

#[test]
fn other_programs_and_settings_have_entries_of_their_own() {
    let (program, folder) = (corpus("mlp.pte"), folder("settings"));
    let file = written(&mut load(&program, cache(&folder)));
    let mut shared = builder(cache(&folder)).share_memory(true).load_bytes(&program).expect("a program");
    assert_ne!(written(&mut shared), file);
    let mut longer = program.clone();
    longer.push(0);
    assert_ne!(written(&mut load(&longer, cache(&folder))), file);
    assert_eq!(loaded(&mut load(&program, cache(&folder))), file);
}

#[test]
fn damaged_files_are_ignored_and_replaced() {
    let (program, folder) = (corpus("mlp.pte"), folder("damaged"));
    let mut first = load(&program, cache(&folder));
    let (file, want) = (written(&mut first), results(&mut first));
    let entry = fs::read(&file).expect("the entry");
    let damaged = |bytes: &[u8]| {
        // The name gets another file: the first one is mapped.
        fs::remove_file(&file).and_then(|()| fs::write(&file, bytes)).expect("the test's own file");
        let mut module = load(&program, cache(&folder));
        let reason = replaced(&mut module);
        assert_eq!(results(&mut module), want);
        assert_eq!(fs::read(&file).expect("the entry"), entry, "the same program is the same file");
        reason
    };
    for place in (0..entry.len()).step_by(entry.len() / 60).chain(entry.len() - 9..entry.len()) {
        let mut bytes = entry.clone();
        bytes[place] ^= 1 << (place % 8);
        assert_eq!(damaged(&bytes), "it is damaged", "byte {place}");
    }
    for len in [0, 1, 7, 8, 100, entry.len() / 2, entry.len() - 8, entry.len() - 1] {
        assert_eq!(damaged(&entry[..len]), "it is damaged", "{len} bytes");
    }
    let mut longer = entry.clone();
    longer.extend([0; 64]);
    assert_eq!(damaged(&longer), "it is damaged");
    assert_eq!(loaded(&mut load(&program, cache(&folder))), file);
}

#[test]
fn entries_of_other_programs_are_not_taken() {
    let folder = folder("foreign");
    let (mlp, conv) = (corpus("mlp.pte"), corpus("conv.pte"));
    let mut first = load(&mlp, cache(&folder));
    let (file, want) = (written(&mut first), results(&mut first));
    let other = written(&mut load(&conv, cache(&folder)));
    fs::rename(other, &file).expect("the test's own files");
    let mut again = load(&mlp, cache(&folder));
    assert_eq!(replaced(&mut again), "it was made of something else");
    assert_eq!(results(&mut again), want);
}

#[test]
fn threads_write_and_read_the_same_entry_at_once() {
    let (program, folder) = (corpus("conv.pte"), folder("threads"));
    let want = results(&mut Module::builder().lower("cpu").threads(1).load_bytes(&program).expect("a program"));
    let barrier = Barrier::new(4);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..5 {
                    barrier.wait();
                    let mut module = load(&program, cache(&folder));
                    assert_eq!(results(&mut module), want);
                    match used(&mut module) {
                        CacheUse::Loaded { .. } | CacheUse::Written { ignored: None, .. } => {}
                        other => panic!("{other}"),
                    }
                    // Some find nothing again.
                    if barrier.wait().is_leader() {
                        fs::remove_dir_all(&folder).expect("the test's own folder");
                    }
                }
            });
        }
    });
}

#[test]
fn processes_share_a_folder() {
    const VARIABLE: &str = "RUSHLIGHT_TEST_SHARED_FOLDER";
    let program = corpus("conv.pte");
    if let Some(folder) = std::env::var_os(VARIABLE).map(PathBuf::from) {
        let want = results(&mut Module::builder().lower("off").load_bytes(&program).expect("a program")).len();
        for _ in 0..10 {
            let mut module = load(&program, cache(&folder));
            assert_eq!(results(&mut module).len(), want);
            let file = match used(&mut module) {
                CacheUse::Loaded { file } | CacheUse::Written { file, ignored: None } => file,
                other => panic!("{other}"),
            };
            // The other process may have removed it.
            drop(fs::remove_file(file));
        }
        return;
    }
    let folder = folder("processes");
    let start = || {
        let mut child = Command::new(std::env::current_exe().expect("this test"));
        child.args(["--exact", "cache::processes_share_a_folder"]).env(VARIABLE, &folder).spawn().expect("a process")
    };
    let children = [start(), start()];
    for mut child in children {
        assert!(child.wait().expect("an exit status").success());
    }
    let left: Vec<_> = fs::read_dir(&folder).expect("the folder").flatten().map(|file| file.file_name()).collect();
    assert!(left.iter().all(|name| name.to_string_lossy().ends_with(".pte")), "{left:?}");
}

#[test]
fn folders_that_cannot_be_used_are_no_reason_to_fail() {
    let (program, folder) = (corpus("mlp.pte"), folder("unusable"));
    fs::create_dir_all(&folder).expect("a folder");
    let file = folder.join("file");
    fs::write(&file, "a file").expect("a file");
    let want = results(&mut Module::builder().lower("cpu").threads(1).load_bytes(&program).expect("a program"));
    for folder in [file.clone(), file.join("below")] {
        let mut module = load(&program, cache(&folder));
        let reason = not_written(&mut module);
        assert!(reason.contains(&folder.display().to_string()), "{reason}");
        assert_eq!(results(&mut module), want);
    }
    assert!(not_written(&mut load(&program, Cache::new(&folder))).contains("small"));
}

#[cfg(unix)]
#[test]
fn folders_are_made_for_the_user_alone_and_public_ones_refused() {
    use std::os::unix::fs::PermissionsExt;
    let (program, folder) = (corpus("mlp.pte"), folder("public"));
    written(&mut load(&program, cache(&folder)));
    let mode = |folder: &Path| fs::metadata(folder).expect("the folder").permissions().mode() & 0o777;
    assert_eq!(mode(&folder), 0o700);
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).expect("the test's own folder");
    assert!(not_written(&mut load(&program, cache(&folder))).contains("everybody"));
}

#[test]
fn the_least_recently_used_make_room() {
    let folder = folder("limit");
    let [mlp, conv, linear] = ["mlp.pte", "conv.pte", "linear.pte"].map(corpus);
    assert!(not_written(&mut load(&mlp, cache(&folder).limit(1))).contains("more than the 1 bytes"));
    let [first, second] = [&mlp, &conv].map(|program| written(&mut load(program, cache(&folder))));
    let sizes = [&first, &second].map(|file| fs::metadata(file).expect("an entry").len());
    // The first is used again, so that the second goes.
    let long_ago = std::time::SystemTime::now() - std::time::Duration::from_hours(1);
    for file in [&first, &second] {
        fs::File::options().write(true).open(file).and_then(|file| file.set_modified(long_ago)).expect("its time");
    }
    loaded(&mut load(&mlp, cache(&folder)));
    let third = written(&mut load(&linear, cache(&folder).limit(sizes[0] + sizes[1])));
    assert_eq!([&first, &second, &third].map(|file| file.exists()), [true, false, true]);
}

/// Options decide what is compiled, and defaults are the same whether or not they are written.
#[test]
fn options_of_the_backend_are_part_of_the_key() {
    let (program, folder) = (corpus("mlp.pte"), folder("options"));
    let load = |lower: &str| {
        let builder = Module::builder().lower(lower).threads(1).cache(cache(&folder));
        let mut module = builder.load_bytes(&program).expect("a program");
        (results(&mut module), module.cache_use().cloned().expect("it is lowered"))
    };
    let written = |lower: &str| match load(lower) {
        (results, CacheUse::Written { file, ignored: None }) => (results, file),
        (_, other) => panic!("{lower}: {other}"),
    };
    let (exact, rounded) = (written("cpu"), written("cpu:precision=bf16"));
    assert!(exact.0 != rounded.0 && exact.1 != rounded.1);
    for (lower, (want, file)) in [("cpu:precision=f32", &exact), ("cpu", &exact), ("cpu:precision=bf16", &rounded)] {
        let (results, used) = load(lower);
        assert!(matches!(&used, CacheUse::Loaded { file: from } if from == file), "{lower}: {used}");
        assert_eq!(results, *want, "{lower}");
    }
    fs::remove_dir_all(&folder).expect("the test's own folder");
}
