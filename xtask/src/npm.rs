//! The npm package `rushlight`: WebAssembly modules, their JavaScript, an addon for Node.js on this machine, and what programs import.

use std::env::consts::{ARCH, DLL_PREFIX, DLL_SUFFIX, OS};
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::command::{checked, command, exists, root, run, target_folder};
use crate::dist::LICENCES;
use crate::dist::bill::Bill;
use crate::setup;

/// Target of a module's compilation.
struct Variant {
    name: &'static str,
    /// Flags of the compiler.
    flags: &'static str,
    /// The standard library is compiled too: the one that comes with the compiler has no threads.
    builds_std: bool,
}

const VARIANTS: &[Variant] = &[
    Variant { name: "baseline", flags: "", builds_std: false },
    Variant { name: "simd", flags: "-C target-feature=+simd128", builds_std: false },
    // Where machines have relaxed instructions, LLVM must make no vectors of its own: docs/how-to/web-assembly.md says why.
    Variant {
        name: "relaxed",
        flags: "-C target-feature=+simd128,+relaxed-simd -C no-vectorize-loops -C no-vectorize-slp",
        builds_std: false,
    },
    Variant {
        name: "threads",
        flags: "-C target-feature=+simd128,+atomics,+bulk-memory \
                -C link-args=--shared-memory -C link-args=--import-memory -C link-args=--max-memory=4294967296 \
                -C link-args=--export=__heap_base -C link-args=--export=__wasm_init_tls -C link-args=--export=__tls_size \
                -C link-args=--export=__tls_align -C link-args=--export=__tls_base",
        builds_std: true,
    },
];

/// The modules of the package: kind, cargo's features, and variants. Compilers only have loops that LLVM vectorizes.
const MODULES: &[(&str, &[&str], &[&str])] = &[
    ("run", &[], &["baseline", "simd", "relaxed", "threads"]),
    ("compile", &["--features", "compile"], &["baseline", "simd"]),
    ("llm", &["--features", "llm"], &["simd", "relaxed"]),
];

/// The variant that tests are run with, and the one that they have besides, as its JavaScript is another.
const STAND_IN: &str = "baseline";
const THREADS: &str = "threads";

/// The variants that the tests run with, and their features.
const TEST_VARIANTS: &[(&str, &[&str])] = &[(STAND_IN, &["--features", "compile,llm"]), (THREADS, &[])];

const TARGET: &str = "wasm32-unknown-unknown";

/// Builds the package into `target/npm`, optimized, packs it and prints its sizes. Returns its folder.
pub fn package() -> Result<PathBuf> {
    let folder = root().join("target/npm/rushlight");
    start(&folder)?;
    for (kind, features, variants) in MODULES {
        for variant in *variants {
            let module = build("npm", features, of(variant)?, &target_folder())?;
            bind(&module, &folder.join("wasm"), &format!("{kind}-{variant}"))?;
        }
    }
    run(&mut command("cargo", &["build", "--quiet", "-p", "rushlight-node", "--profile", "wheel"]))?;
    put_addon("wheel", &folder)?;
    let linked = Bill::of("rushlight-node", &root(), "host-tuple")?;
    fs::write(folder.join(ADDONS).join(LICENCES), linked.licences(&root())?)?;
    run(command("node", &["tools/npm_operators.mjs"]).arg(folder.join("wasm")))?;
    run(command("node", &["tools/npm_sizes.mjs"]).arg(folder.join("wasm")))?;
    run(command("npm", &["pack", "--silent", "--pack-destination", ".."]).current_dir(&folder))?;
    Ok(folder)
}

/// Builds the package into a folder for tests: one module stands in for all but the one with threads. They are not optimized. The addon is
/// that of the tests in Rust.
pub fn test_package(folder: &Path) -> Result<()> {
    start(folder)?;
    run(checked("build").args(["--tests", "--lib"]))?;
    put_addon("checked", folder)?;
    let known = format!("run-{STAND_IN}");
    for (variant, features) in TEST_VARIANTS {
        let module = build("dev", features, of(variant)?, &test_modules_folder())?;
        bind(&module, &folder.join("wasm"), &format!("run-{variant}"))?;
    }
    for (kind, _, variants) in MODULES {
        let others = variants.iter().filter(|variant| **variant != THREADS).map(|variant| format!("{kind}-{variant}"));
        for name in others.filter(|name| *name != known) {
            for ending in ["js", "wasm"] {
                let file = |name: &str| folder.join("wasm").join(name).with_extension(ending);
                fs::copy(file(&known), file(&name))?;
            }
        }
    }
    Ok(())
}

/// Compiles the modules of [`test_package`].
pub fn test_modules() -> Result<()> {
    setup::one("cross")?;
    TEST_VARIANTS.iter().try_for_each(|(variant, features)| {
        build("dev", features, of(variant)?, &test_modules_folder())?;
        Ok(())
    })
}

/// The target folder of test modules. All stages share it, although some have their own target folders.
pub fn test_modules_folder() -> PathBuf {
    root().join("target/test-modules")
}

/// Builds the package, and the demo page with it into `target/demo`.
pub fn package_demo() -> Result<()> {
    demo(&package()?, &root().join("target/demo"))
}

/// Puts the demo page, its models and a built package into a folder.
pub fn demo(package: &Path, folder: &Path) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    fs::create_dir_all(folder)?;
    run(command("cp", &["-R", "examples/web/."]).arg(folder))?;
    run(command("cp", &["-R"]).arg(package).arg(folder.join("rushlight")))?;
    // Pages have no use for it.
    fs::remove_dir_all(folder.join("rushlight").join(ADDONS))?;
    fs::copy(root().join("examples/cortex-m/digits.pte"), folder.join("models/digits.pte"))?;
    write_version(folder)
}

/// Names the build in the page's service worker by a hash of all files.
fn write_version(folder: &Path) -> Result<()> {
    const UNBUILT: &str = "'unbuilt'";
    let worker = folder.join("sw.js");
    let text = fs::read_to_string(&worker)?;
    if !text.contains(UNBUILT) {
        bail!("the service worker has no version to be set");
    }
    let mut hasher = DefaultHasher::new();
    hash_files(folder, &mut hasher)?;
    fs::write(worker, text.replace(UNBUILT, &format!("'{:016x}'", hasher.finish())))?;
    Ok(())
}

fn hash_files(folder: &Path, hasher: &mut DefaultHasher) -> Result<()> {
    let mut paths = fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    paths.sort();
    for path in paths {
        path.file_name().hash(hasher);
        if path.is_dir() {
            hash_files(&path, hasher)?;
        } else {
            fs::read(&path)?.hash(hasher);
        }
    }
    Ok(())
}

/// The folder of a package where it finds the addon if that has no package of its own.
const ADDONS: &str = "native";

/// Puts the addon that was built into a package, by the name that `lib/addon.js` looks for.
fn put_addon(profile: &str, package: &Path) -> Result<()> {
    let built = target_folder().join(profile).join(format!("{DLL_PREFIX}rushlight_node{DLL_SUFFIX}"));
    let platform = match OS {
        "macos" => "darwin",
        "windows" => "win32",
        other => other,
    };
    let arch = match ARCH {
        "x86_64" => "x64",
        "aarch64" => "arm64",
        other => other,
    };
    let libc = match OS {
        "linux" if cfg!(target_env = "musl") => "-musl",
        "linux" => "-gnu",
        _ => "",
    };
    let folder = package.join(ADDONS);
    fs::create_dir_all(&folder)?;
    let to = folder.join(format!("rushlight-{platform}-{arch}{libc}.node"));
    fs::copy(&built, &to).with_context(|| format!("cannot copy {}", built.display()))?;
    Ok(())
}

/// Installs what the package is built with, and copies what needs no building.
fn start(folder: &Path) -> Result<()> {
    setup::one("cross")?;
    setup::one("wasm-bindgen")?;
    if !exists("node") {
        bail!("the package is built with Node.js 20");
    }
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    fs::create_dir_all(folder.join("wasm"))?;
    run(command("cp", &["-R", "bindings/js/package/."]).arg(folder))?;
    for licence in ["LICENSE-APACHE", "LICENSE-MIT"] {
        fs::copy(root().join(licence), folder.join(licence))?;
    }
    Ok(())
}

fn of(variant: &str) -> Result<&'static Variant> {
    VARIANTS.iter().find(|known| known.name == variant).with_context(|| format!("no variant `{variant}`"))
}

fn build(profile: &str, features: &[&str], variant: &Variant, folder: &Path) -> Result<PathBuf> {
    let mut build = command("cargo", &["build", "--quiet", "-p", "rushlight-js", "--target", TARGET]);
    build.args(["--profile", profile]).args(features).arg("--target-dir").arg(folder);
    if variant.builds_std {
        setup::one("rust-src")?;
        build.arg("-Zbuild-std=std,panic_abort").env("RUSTC_BOOTSTRAP", "1");
    }
    if !variant.flags.is_empty() {
        build.env("RUSTFLAGS", variant.flags);
    }
    run(&mut build)?;
    Ok(folder.join(TARGET).join(if profile == "dev" { "debug" } else { profile }).join("rushlight_js.wasm"))
}

/// Writes `name.wasm`, and `name.js` with the function `bind`, which makes the JavaScript of one instance.
fn bind(module: &Path, folder: &Path, name: &str) -> Result<()> {
    // Beside the module: those of tests have the names of others.
    let made = module.with_file_name("bindgen");
    let (glue, bound) = (made.join(format!("{name}.js")), made.join(format!("{name}_bg.wasm")));
    if !is_newer(&bound, module) {
        let mut bindgen = command(setup::tool("wasm-bindgen")?, &["--target", "web", "--no-typescript"]);
        bindgen.args(["--omit-default-module-path", "--out-name", name]).arg("--out-dir").arg(&made);
        run(bindgen.arg(module))?;
    }
    fs::write(folder.join(format!("{name}.js")), of_instance(&fs::read_to_string(glue)?)?)?;
    fs::copy(bound, folder.join(format!("{name}.wasm")))?;
    Ok(())
}

/// True if both files exist, and the first was written after the second.
fn is_newer(first: &Path, second: &Path) -> bool {
    let written = |path: &Path| path.metadata().and_then(|file| file.modified());
    matches!((written(first), written(second)), (Ok(first), Ok(second)) if first > second)
}

/// Makes a function of a JavaScript module that wasm-bindgen wrote: as it is, a module has one instance.
fn of_instance(glue: &str) -> Result<String> {
    const LAST: &str = "export { initSync, __wbg_init as default };";
    let Some(body) = glue.trim_end().strip_suffix(LAST) else { bail!("wasm-bindgen writes other modules than it did") };
    let mut exports = Vec::new();
    let mut function = String::from("export function bind() {\n");
    for line in body.lines() {
        let item = line.strip_prefix("export ").unwrap_or(line);
        if item.len() < line.len() {
            let name = item.split([' ', '(', '{']).nth(1).context("an export without a name")?;
            exports.push(name.to_owned());
        }
        function.push_str(item);
        function.push('\n');
    }
    function.push_str(&format!("return {{ init: __wbg_init, {} }};\n}}\n", exports.join(", ")));
    Ok(function)
}
