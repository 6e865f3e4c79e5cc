//! The cache in hostile conditions: writers die, disks are full, and others write into the folder. Results are always
//! right.
#![cfg(all(feature = "lower", unix))]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use rushlight::{Cache, CacheUse, Module, TensorView};

/// The environment variable with the folder, for child processes.
const VARIABLE: &str = "RUSHLIGHT_TEST_CACHE_FOLDER";

fn corpus(name: &str) -> Vec<u8> {
    fs::read(format!("{}/../../tests/corpus/1.5.1/{name}", env!("CARGO_MANIFEST_DIR"))).expect("a file of the corpus")
}

fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("hostile-{name}"));
    drop(fs::remove_dir_all(&folder));
    folder
}

fn load(program: &[u8], folder: &Path) -> Module {
    let cache = Cache::new(folder).smallest(0);
    Module::builder().lower("cpu").threads(1).cache(cache).load_bytes(program).expect("a program of the corpus")
}

/// Returns the result of a program that takes one tensor of floats.
fn result(module: &mut Module) -> Vec<u8> {
    let meta = module.meta("forward").expect("a method");
    let sizes = meta.inputs[0].as_tensor().expect("a tensor").sizes.clone();
    let floats: Vec<f32> = (0..sizes.iter().product::<usize>()).map(|at| (at % 7) as f32 - 2.5).collect();
    let outputs = module.forward(&[TensorView::of(&sizes, &floats).expect("a view").into()]).expect("it runs");
    outputs[0].as_tensor().expect("a tensor").bytes().to_vec()
}

fn used(module: &mut Module) -> CacheUse {
    module.cache_use().expect("it is lowered").clone()
}

/// Returns the result of the program without a cache.
fn expected(program: &[u8]) -> Vec<u8> {
    result(&mut load(program, Path::new("")))
}

/// Runs a test of this file again, in a process that `shell` starts with its arguments and the folder.
fn child(test: &str, folder: &Path, shell: &str) -> Command {
    let mut child = Command::new("sh");
    let this = std::env::current_exe().expect("this test");
    child.args(["-c", &format!("{shell} exec \"$0\" --exact cache_hostile::{test} --nocapture")]).arg(this);
    child.env(VARIABLE, folder).stdout(Stdio::null()).stderr(Stdio::null());
    child
}

#[test]
fn writers_are_killed_at_any_time() {
    let program = corpus("conv.pte");
    if let Some(folder) = std::env::var_os(VARIABLE).map(PathBuf::from) {
        loop {
            if let CacheUse::Loaded { file } | CacheUse::Written { file, .. } = used(&mut load(&program, &folder)) {
                drop(fs::remove_file(file));
            }
        }
    }
    let (folder, want) = (folder("killed"), expected(&program));
    let rounds = std::env::var("RUSHLIGHT_KILLS").ok().and_then(|n| n.parse().ok()).unwrap_or(12);
    let start = || child("writers_are_killed_at_any_time", &folder, "").spawn().expect("a process");
    for round in 0..rounds {
        let mut children = [start(), start()];
        // A multiple of a large odd number, so that no two rounds end at the same point.
        let wait = Duration::from_micros(30_000 + round * 7_919 % 60_000);
        std::thread::sleep(wait);
        for child in &mut children {
            child.kill().and_then(|()| child.wait()).expect("it was killed");
        }
        for _ in 0..2 {
            let mut module = load(&program, &folder);
            assert_eq!(result(&mut module), want, "round {round}");
            match used(&mut module) {
                CacheUse::Loaded { .. } | CacheUse::Written { ignored: None, .. } => {}
                other => panic!("round {round}: {other}"),
            }
        }
    }
}

#[test]
fn disks_are_full() {
    let program = corpus("conv.pte");
    if let Some(folder) = std::env::var_os(VARIABLE).map(PathBuf::from) {
        let want = expected(&program);
        for _ in 0..3 {
            let mut module = load(&program, &folder);
            assert_eq!(result(&mut module), want);
            let CacheUse::NotWritten { reason, ignored: None } = used(&mut module) else { panic!("it was written") };
            assert!(reason.to_string().contains(&*folder.display().to_string()), "{reason}");
        }
        return;
    }
    let folder = folder("full");
    // Files are limited to one block. Writing more is an error, and does not end the process.
    let limited = "trap '' XFSZ; ulimit -f 1;";
    let done = child("disks_are_full", &folder, limited).status().expect("a process");
    assert!(done.success());
    let left: Vec<_> = fs::read_dir(&folder).expect("the folder").flatten().map(|file| file.file_name()).collect();
    assert!(left.is_empty(), "{left:?}");
    // With enough room, the entry is written.
    let mut module = load(&program, &folder);
    assert!(matches!(used(&mut module), CacheUse::Written { ignored: None, .. }));
}

#[test]
fn what_was_planted_is_not_run() {
    let (conv, mlp) = (corpus("conv.pte"), corpus("mlp.pte"));
    let (folder, want) = (folder("planted"), expected(&conv));
    let written = |program: &[u8]| match used(&mut load(program, &folder)) {
        CacheUse::Written { file, .. } => file,
        other => panic!("{other}"),
    };
    let (file, other) = (written(&conv), written(&mlp));
    let (entry, foreign) = (fs::read(&file).expect("an entry"), fs::read(&other).expect("an entry"));
    let check = |what: &str, is_own: bool| {
        let mut module = load(&conv, &folder);
        assert_eq!(result(&mut module), want, "{what}");
        match used(&mut module) {
            CacheUse::Loaded { .. } if is_own => {}
            CacheUse::Written { ignored: Some(_), .. } if !is_own => {
                assert_eq!(fs::read(&file).expect("the entry"), entry, "{what}");
                assert!(fs::symlink_metadata(&file).expect("the entry").is_file(), "{what}");
            }
            other => panic!("{what}: {other}"),
        }
        // The target of the link is unchanged.
        assert_eq!(fs::read(&other).expect("an entry"), foreign, "{what}");
    };
    let plant = |what: &str, is_own: bool, plant: &dyn Fn()| {
        fs::remove_file(&file).expect("the entry");
        plant();
        check(what, is_own);
    };
    plant("the entry of another program", false, &|| {
        fs::copy(&other, &file).expect("a copy");
    });
    plant("the program itself", false, &|| fs::write(&file, &conv).expect("a file"));
    plant("a link to the entry of another program", false, &|| symlink(&other, &file).expect("a link"));
    plant("a link to a folder", false, &|| symlink(&folder, &file).expect("a link"));
    plant("a link to an endless device", false, &|| symlink("/dev/zero", &file).expect("a link"));
    plant("a FIFO", false, &|| {
        assert!(Command::new("mkfifo").arg(&file).status().expect("a program of the system").success());
    });
    let kept = folder.join("kept");
    fs::write(&kept, &entry).expect("a file");
    plant("a link to the same entry", true, &|| symlink(&kept, &file).expect("a link"));
    // A dangling link is not an entry. Writing replaces it.
    fs::remove_file(&file).and_then(|()| symlink(folder.join("nothing"), &file)).expect("a link");
    assert_eq!(result(&mut load(&conv, &folder)), want);
    assert!(!folder.join("nothing").exists());
    // A folder can be neither read nor replaced.
    fs::remove_file(&file).and_then(|()| fs::create_dir(&file)).expect("a folder");
    let mut module = load(&conv, &folder);
    assert_eq!(result(&mut module), want);
    assert!(matches!(used(&mut module), CacheUse::NotWritten { ignored: Some(_), .. }));
}

#[test]
fn every_region_is_checked() {
    let program = corpus("mlp.pte");
    let (folder, want) = (folder("regions"), expected(&program));
    let CacheUse::Written { file, .. } = used(&mut load(&program, &folder)) else { panic!("nothing was written") };
    let entry = fs::read(&file).expect("the entry");
    let step = (entry.len() / 400).max(1);
    for at in (0..entry.len()).step_by(step) {
        let mut damaged = entry.clone();
        damaged[at] ^= 1 << (at / step % 8);
        fs::remove_file(&file).and_then(|()| fs::write(&file, &damaged)).expect("the test's own file");
        let mut module = load(&program, &folder);
        assert!(matches!(used(&mut module), CacheUse::Written { ignored: Some(_), .. }), "byte {at}");
        assert_eq!(result(&mut module), want, "byte {at}");
    }
}
