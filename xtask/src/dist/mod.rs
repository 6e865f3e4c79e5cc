//! Release artifacts: archives of the command line and the C library, and Python wheels, for each target, in `target/dist`.
//!
//! All are linked by zig, which brings the C libraries of the targets, so that any Linux machine builds them.

pub mod bill;
mod c;
mod checks;
mod macos;
mod windows;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use anyhow::{Context, Result, bail};

use crate::command::{command, output, root, run, rustc_field, target_folder};
use crate::setup;
use bill::Bill;

/// A system to build for.
struct Target {
    name: &'static str,
    triple: &'static str,
    /// The triple for cargo-zigbuild, with the oldest version of glibc that programs run with.
    zig_triple: &'static str,
    /// The platform of the wheel on Linux; elsewhere it is that of the triple.
    linux_platform: Option<&'static str>,
    /// The command by which this machine runs a program of the target, if it can.
    run: fn(&Path) -> Result<Option<Command>>,
    /// Runs the build, as far as this machine can.
    check: fn(&Built) -> Result<()>,
}

impl Target {
    fn is_windows(&self) -> bool {
        self.name.starts_with("windows")
    }

    /// File name extension of archives.
    fn archive_extension(&self) -> &'static str {
        if self.is_windows() { "zip" } else { "tar.gz" }
    }
}

/// The same version of glibc as `manylinux2014`: of Debian 8 and later, CentOS 7 and later.
const TARGETS: &[Target] = &[
    Target {
        name: "linux-x86_64",
        triple: "x86_64-unknown-linux-gnu",
        zig_triple: "x86_64-unknown-linux-gnu.2.17",
        linux_platform: Some("manylinux2014"),
        run: checks::run_native,
        check: checks::native,
    },
    Target {
        name: "linux-musl-x86_64",
        triple: "x86_64-unknown-linux-musl",
        zig_triple: "x86_64-unknown-linux-musl",
        linux_platform: Some("musllinux_1_2"),
        run: checks::run_musl,
        check: checks::musl,
    },
    Target {
        name: "linux-aarch64",
        triple: "aarch64-unknown-linux-gnu",
        zig_triple: "aarch64-unknown-linux-gnu.2.17",
        linux_platform: Some("manylinux2014"),
        run: checks::run_aarch64,
        check: checks::aarch64,
    },
    Target {
        name: "windows-x86_64",
        triple: "x86_64-pc-windows-gnu",
        zig_triple: "x86_64-pc-windows-gnu",
        linux_platform: None,
        run: windows::run_program,
        check: windows::check,
    },
    Target {
        name: "macos-aarch64",
        triple: "aarch64-apple-darwin",
        zig_triple: "aarch64-apple-darwin",
        linux_platform: None,
        run: |_| Ok(None),
        check: macos::check,
    },
    Target {
        name: "macos-x86_64",
        triple: "x86_64-apple-darwin",
        zig_triple: "x86_64-apple-darwin",
        linux_platform: None,
        run: |_| Ok(None),
        check: macos::check,
    },
];

/// The triples of all targets.
pub fn triples() -> impl Iterator<Item = &'static str> {
    TARGETS.iter().map(|target| target.triple)
}

/// The artifacts of a build.
struct Built {
    /// The program, as it is in the archive.
    program: PathBuf,
    /// For all versions of Python from 3.11 on that have a GIL.
    wheel: PathBuf,
    /// The folder that the archive of the C library was made of.
    c_package: PathBuf,
    /// In the order of [`OWN_WHEELS`].
    own_wheels: Vec<PathBuf>,
    files: Vec<PathBuf>,
}

/// Pythons that need a wheel of their own: the stable ABI of 3.10 lacks the buffer protocol, and 3.14 without a GIL has none.
/// PyO3 takes no older one without a GIL.
pub const OWN_WHEELS: &[&str] = &["python3.10", "python3.14t"];

/// Builds, packs and runs for the targets of these names, all by default. With `--verify`, builds one a second time, in
/// another folder, and compares.
pub fn dist(arguments: &[&str]) -> Result<()> {
    let verify = arguments.contains(&"--verify");
    let names: Vec<&str> = arguments.iter().copied().filter(|argument| *argument != "--verify").collect();
    let targets = if names.is_empty() && !verify { TARGETS.iter().collect() } else { named(&names)? };
    setup::one("dist")?;
    Place::here().keep_this_commit()?;
    if verify {
        return targets.into_iter().try_for_each(verify_bytes);
    }
    let mut failed = Vec::new();
    for target in targets {
        let result = Place::here().build(target).and_then(|built| {
            (target.check)(&built)?;
            c::check(target, &built)
        });
        if let Err(error) = result {
            println!("{}: {error:#}", target.name);
            failed.push(target.name);
        }
    }
    run(command(setup::dist_program("python"), &["tools/pack.py", "checksums"]).arg(Place::here().out))?;
    if !failed.is_empty() {
        bail!("these failed: {}", failed.join(", "));
    }
    Ok(())
}

fn named(names: &[&str]) -> Result<Vec<&'static Target>> {
    let known = || TARGETS.iter().map(|target| target.name).collect::<Vec<_>>().join(", ");
    if names.is_empty() {
        bail!("--verify takes the target to build twice: {}", known());
    }
    let find = |name: &&str| TARGETS.iter().find(|target| target.name == *name);
    names.iter().map(|name| find(name).with_context(|| format!("unknown target `{name}`: {}", known()))).collect()
}

/// Builds the committed sources here and in a folder of another name, and fails if their outputs differ in a byte.
fn verify_bytes(target: &Target) -> Result<()> {
    if !output(&mut command("git", &["status", "--porcelain"]))?.is_empty() {
        bail!("--verify compares builds of the last commit, and there are changes that are in none");
    }
    let first = Place::here().build(target)?;
    let folder = target_folder().join("verify");
    let place =
        Place { source: folder.join("other-source"), build: folder.join("other-build"), out: folder.join("other-out") };
    place.check_out()?;
    let second = place.build(target)?;
    for (first, second) in first.files.iter().zip(second.files) {
        let name = first.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if std::fs::read(first)? != std::fs::read(&second)? {
            bail!("`{}` and `{}` differ, though their sources are the same", first.display(), second.display());
        }
        println!("{name}: the same bytes twice");
    }
    std::fs::remove_dir_all(&folder)?;
    Ok(())
}

/// Where a build reads and writes.
struct Place {
    source: PathBuf,
    build: PathBuf,
    out: PathBuf,
}

impl Place {
    fn here() -> Self {
        let target = target_folder();
        Self { source: root(), build: target.join("packages"), out: target.join("dist") }
    }

    /// Empties the folder of artifacts if they were made of another commit: a list of checksums is of one.
    fn keep_this_commit(&self) -> Result<()> {
        let commit = output(&mut command("git", &["rev-parse", "HEAD"]))?;
        let mark = self.build.join("commit");
        if std::fs::read_to_string(&mark).is_ok_and(|made| made == commit) {
            return Ok(());
        }
        if self.out.exists() {
            std::fs::remove_dir_all(&self.out)?;
        }
        std::fs::create_dir_all(&self.build)?;
        Ok(std::fs::write(mark, commit)?)
    }

    /// Puts the last commit into the folder of sources.
    fn check_out(&self) -> Result<()> {
        let tar = self.source.with_extension("tar");
        std::fs::create_dir_all(&self.source)?;
        run(command("git", &["archive", "--format=tar", "HEAD", "--output"]).arg(&tar))?;
        run(command("tar", &["--extract", "--file"]).arg(&tar).arg("--directory").arg(&self.source))?;
        Ok(std::fs::remove_file(tar)?)
    }

    fn build(&self, target: &Target) -> Result<Built> {
        std::fs::create_dir_all(&self.out)?;
        // Cargo locks the folder of a profile. While one profile links, the other can use its core.
        let (archive, libraries) = thread::scope(|scope| {
            let archive = scope.spawn(|| self.archive(target));
            let libraries = self.libraries(target);
            (archive.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)), libraries)
        });
        let ((program, archive), (wheel, own_wheels, (c_package, c_archive))) = (archive?, libraries?);
        let files = [&[archive, wheel.clone()], &own_wheels[..], &[c_archive]].concat();
        Ok(Built { program, wheel, c_package, own_wheels, files })
    }

    /// The wheels and the package of the C library, one after the other.
    fn libraries(&self, target: &Target) -> Result<(PathBuf, Vec<PathBuf>, (PathBuf, PathBuf))> {
        let materials = self.describe_package(target)?;
        let wheel = self.wheel(target, &materials, None)?;
        let own_wheels = OWN_WHEELS.iter().map(|python| self.wheel(target, &materials, Some(python)));
        let own_wheels = own_wheels.collect::<Result<_>>()?;
        Ok((wheel, own_wheels, self.c_package(target)?))
    }

    /// The command line, with its licences, its bill of materials and completions for shells.
    fn archive(&self, target: &Target) -> Result<(PathBuf, PathBuf)> {
        let binary = self.program(target)?;
        let name = format!("rushlight-{}-{}", env!("CARGO_PKG_VERSION"), target.name);
        let folder = self.build.join("archives").join(&name);
        if folder.exists() {
            std::fs::remove_dir_all(&folder)?;
        }
        std::fs::create_dir_all(folder.join("completions"))?;
        let program = folder.join(binary.file_name().unwrap_or_default());
        std::fs::copy(&binary, &program)?;
        for file in ["LICENSE-APACHE", "LICENSE-MIT", "README.md", "CHANGELOG.md", "SECURITY.md"] {
            std::fs::copy(self.source.join(file), folder.join(file))
                .with_context(|| format!("cannot copy `{file}`"))?;
        }
        let (of, writer) =
            if (target.run)(&binary)?.is_some() { (target, binary) } else { (HOST, self.program(HOST)?) };
        for (shell, file) in SHELLS {
            let mut write = (of.run)(&writer)?.context("this machine does not run its own programs")?;
            let script = output(write.args(["completions", shell]))?;
            std::fs::write(folder.join("completions").join(file), script)?;
        }
        let bill = Bill::of("rushlight-cli", &self.source, target.triple)?;
        std::fs::write(folder.join(LICENCES), bill.licences(&self.source)?)?;
        std::fs::write(folder.join("rushlight.cdx.json"), bill.cyclonedx()?)?;
        let archive = self.out.join(format!("{name}.{}", target.archive_extension()));
        pack(&folder, &archive)?;
        Ok((program, archive))
    }

    fn program(&self, target: &Target) -> Result<PathBuf> {
        let mut build = self.reproducible(setup::dist_program("cargo-zigbuild"))?;
        build.args(["zigbuild", "--release", "--locked", "--package", "rushlight-cli", "--target", target.zig_triple]);
        run(build.args(["--config", "profile.release.strip=\"symbols\"", "--target-dir"]).arg(&self.build))?;
        let file = if target.is_windows() { "rushlight.exe" } else { "rushlight" };
        Ok(self.build.join(target.triple).join("release").join(file))
    }

    /// Puts the licences of dependencies into the Python package, and returns the file of its bill of materials.
    fn describe_package(&self, target: &Target) -> Result<PathBuf> {
        let bill = Bill::of("rushlight-python", &self.source, target.triple)?;
        std::fs::write(self.source.join(PACKAGE).join(LICENCES), bill.licences(&self.source)?)?;
        let materials = self.build.join("rushlight-python.cdx.json");
        std::fs::write(&materials, bill.cyclonedx()?)?;
        Ok(materials)
    }

    /// The wheel for one Python, or else for all that have the stable ABI of 3.11.
    fn wheel(&self, target: &Target, materials: &Path, python: Option<&str>) -> Result<PathBuf> {
        let folder = self.build.join("wheels").join(target.name).join(python.unwrap_or("stable"));
        if folder.exists() {
            std::fs::remove_dir_all(&folder)?;
        }
        let mut build = self.reproducible(setup::dist_program("maturin"))?;
        build.args(["build", "--locked", "--zig", "--compression-level", "9", "--target", target.triple]);
        build.arg("--sbom-include").arg(materials);
        windows::link_wheel(&mut build);
        if let Some(platform) = target.linux_platform {
            build.args(["--compatibility", platform]);
        }
        if let Some(python) = python {
            build.args(["--no-default-features", "--interpreter", python]);
        }
        build.arg("--manifest-path").arg(self.source.join(PACKAGE).join("Cargo.toml"));
        run(build.arg("--target-dir").arg(&self.build).arg("--out").arg(&folder))?;
        let wheel = std::fs::read_dir(&folder)?.next().context("maturin made no wheel")??;
        let to = self.out.join(wheel.file_name());
        std::fs::copy(wheel.path(), &to)?;
        Ok(to)
    }

    /// A command whose results depend on neither the time nor where folders are.
    fn reproducible(&self, program: PathBuf) -> Result<Command> {
        let home = std::env::var_os("CARGO_HOME")
            .or_else(|| Some(Path::new(&std::env::var_os("HOME")?).join(".cargo").into()))
            .context("neither CARGO_HOME nor HOME is set")?;
        let toolchain = output(&mut command("rustc", &["--print", "sysroot"]))?;
        let (toolchain, standard_library) = (Path::new(toolchain.trim()), virtual_sources()?);
        let mut flags = OsString::new();
        // The last that fits counts: the folder of outputs may be one of the sources'.
        let remaps = [
            (self.source.clone().into(), "/rushlight"),
            (home, "/cargo"),
            (self.build.clone().into_os_string(), "/target"),
            (toolchain.into(), "/rust"),
            // The compiler replaces the virtual path by this one where the component `rust-src` is installed.
            (toolchain.join("lib/rustlib/src/rust").into(), standard_library.as_str()),
        ];
        for (from, to) in remaps {
            if !flags.is_empty() {
                flags.push("\u{1f}");
            }
            flags.push("--remap-path-prefix=");
            flags.push(from);
            flags.push("=");
            flags.push(to);
        }
        // maturin and cargo-zigbuild find each other, and zig, here.
        let tools = setup::dist_program("python").parent().map(Path::to_owned).unwrap_or_default();
        let path = std::env::var_os("PATH").unwrap_or_default();
        let path = std::env::join_paths([tools].into_iter().chain(std::env::split_paths(&path)))?;
        let mut tool = command(program, &[]);
        tool.current_dir(&self.source).env("SOURCE_DATE_EPOCH", time_of_commit()?);
        tool.env("CARGO_ENCODED_RUSTFLAGS", flags).env("PATH", path);
        tool.env("MACOSX_DEPLOYMENT_TARGET", macos::OLDEST);
        // Otherwise a folder of the user's.
        tool.env("CARGO_ZIGBUILD_CACHE_DIR", self.build.join("zigbuild"));
        Ok(tool)
    }
}

/// The virtual path of the standard library's sources, `/rustc/<commit>`.
fn virtual_sources() -> Result<String> {
    Ok(format!("/rustc/{}", rustc_field(&[], "commit-hash")?))
}

/// Its program writes the completions for targets whose programs this machine does not run.
const HOST: &Target = &TARGETS[0];

/// The folder of the Python package in the sources.
const PACKAGE: &str = "bindings/python";

pub const LICENCES: &str = "LICENSES-OF-DEPENDENCIES.txt";

const SHELLS: [(&str, &str); 4] =
    [("bash", "rushlight.bash"), ("zsh", "_rushlight"), ("fish", "rushlight.fish"), ("powershell", "rushlight.ps1")];

/// Packs a folder, with the time of the commit.
fn pack(folder: &Path, archive: &Path) -> Result<()> {
    let mut pack = command(setup::dist_program("python"), &["tools/pack.py", "archive"]);
    run(pack.arg(folder).arg(archive).arg(time_of_commit()?))
}

/// Seconds since 1970.
fn time_of_commit() -> Result<String> {
    Ok(output(&mut command("git", &["log", "-1", "--format=%ct"]))?.trim().to_owned())
}
