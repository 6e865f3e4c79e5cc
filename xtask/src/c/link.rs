//! The shared library of a package: its names on each system, and how it is linked from the static one. rustc gives linkers a version
//! script of its own, beside which there can be no other, so that rustc does not link it.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use super::VERSION;
use crate::command::{command, output, run};
use crate::header;

/// Object format and system libraries of a target.
pub struct System {
    format: Format,
    /// System libraries that the static library depends on, as linker flags.
    pub libraries: &'static str,
}

/// Object file format.
#[derive(Clone, Copy)]
enum Format {
    Elf,
    MachO,
    Pe,
}

pub const LINUX: System = System { format: Format::Elf, libraries: "-lpthread -ldl -lm" };
pub const MACOS: System = System { format: Format::MachO, libraries: "-lSystem" };
pub const WINDOWS: System = System { format: Format::Pe, libraries: "-lntdll -luserenv -lws2_32 -ldbghelp" };

/// File name of the DLL, which is the same in all versions.
pub const DLL: &str = "rushlight.dll";

/// Import library of the DLL.
const IMPORTS: &str = "lib/rushlight.lib";

impl System {
    /// Path of the shared library in a package.
    pub fn shared(&self) -> String {
        match self.format {
            Format::Elf => format!("lib/librushlight.so.{VERSION}"),
            Format::MachO => format!("lib/librushlight.{VERSION}.dylib"),
            Format::Pe => format!("bin/{DLL}"),
        }
    }

    /// Path of the file that the linker takes for the shared library.
    pub fn linked(&self) -> &'static str {
        match self.format {
            Format::Elf => "lib/librushlight.so",
            Format::MachO => "lib/librushlight.dylib",
            Format::Pe => IMPORTS,
        }
    }

    /// True if the format has an rpath.
    pub fn has_rpath(&self) -> bool {
        !matches!(self.format, Format::Pe)
    }

    /// Soname (ELF) or install name (Mach-O), which change with the first number of the version; or the name of the DLL.
    fn soname(&self) -> String {
        let major = VERSION.split('.').next().unwrap_or_default();
        match self.format {
            Format::Elf => format!("librushlight.so.{major}"),
            Format::MachO => format!("@rpath/librushlight.{major}.dylib"),
            Format::Pe => DLL.into(),
        }
    }

    /// CMake properties of the imported shared library.
    pub fn cmake(&self) -> String {
        let location = format!("IMPORTED_LOCATION \"${{_rushlight_prefix}}/{}\"", self.shared());
        let link = match self.format {
            Format::Elf | Format::MachO => format!("IMPORTED_SONAME \"{}\"", self.soname()),
            Format::Pe => format!("IMPORTED_IMPLIB \"${{_rushlight_prefix}}/{IMPORTS}\""),
        };
        format!("{location}\n    {link}")
    }

    /// The compilers that the static library is for, as a condition of CMake. That for Windows is MinGW's.
    pub fn cmake_static(&self) -> &'static str {
        match self.format {
            Format::Elf | Format::MachO => "",
            Format::Pe => " AND NOT MSVC",
        }
    }

    /// Fails unless the shared library of a package exports the functions of the header, with their versions where the format has some.
    pub fn check_exports(&self, package: &Path, nm: &Path) -> Result<()> {
        let (file, option, listed) = match self.format {
            Format::Elf => (self.shared(), "--dynamic", header::symbols()?),
            Format::MachO => (self.shared(), "--extern-only", header::names()?),
            Format::Pe => (IMPORTS.to_owned(), "--extern-only", header::names()?),
        };
        let symbols = output(command(nm, &[option, "--defined-only"]).arg(package.join(file)))?;
        // LLVM lists the versions, too, as absolute symbols.
        let names = symbols.lines().filter_map(|line| line.split_once(" T ")).map(|(_, name)| name);
        let exported: Vec<&str> = match self.format {
            Format::Elf => names.filter(|name| name.contains("@@")).collect(),
            Format::MachO => names.map(|name| name.strip_prefix('_').unwrap_or(name)).collect(),
            // Beside each function is a pointer to it.
            Format::Pe => names.filter(|name| name.starts_with("rl_")).collect(),
        };
        let missing: Vec<&str> = listed.iter().map(String::as_str).filter(|name| !exported.contains(name)).collect();
        let other: Vec<&str> =
            exported.into_iter().filter(|name| !listed.iter().any(|listed| listed == name)).collect();
        let is_exact = !matches!(self.format, Format::MachO);
        if !is_exact {
            println!("exported besides the functions of the header: {}", other.join(", "));
        }
        if !missing.is_empty() || (is_exact && !other.is_empty()) {
            bail!("{}: not exported: {:?}; exported, but not in the header: {:?}", package.display(), missing, other);
        }
        Ok(())
    }
}

/// Compiler driver that links the shared library, with its first arguments.
pub struct Linker {
    pub program: PathBuf,
    pub arguments: Vec<String>,
    pub system: &'static System,
    /// The library that unwinds panics, where it is not part of the system.
    pub unwinder: Option<&'static str>,
}

impl Linker {
    /// Links the shared library from a static one into a package, and names it as linkers and programs look for it.
    pub fn link(&self, archive: &Path, package: &Path) -> Result<()> {
        let shared = package.join(self.system.shared());
        let soname = self.system.soname();
        let exports = package.with_extension("def");
        let mut link = command(&self.program, &[]);
        link.args(&self.arguments).arg("-o").arg(&shared);
        match self.system.format {
            Format::Elf => {
                fs::write(&exports, header::version_script()?)?;
                link.arg("-shared").arg(format!("-Wl,-soname,{soname}"));
                link.arg(format!("-Wl,--version-script={}", exports.display()));
                link.args(["-Wl,--whole-archive"]).arg(archive).args(["-Wl,--no-whole-archive", "-Wl,--gc-sections"]);
                link.args(["-Wl,-z,defs", "-Wl,-z,relro,-z,now", "-Wl,--strip-all", "-Wl,--build-id=none"]);
            }
            // Zig's linker ignores lists of exports; link-time optimization has made Rust's own names local.
            Format::MachO => {
                link.args(["-dynamiclib", "-s", "-Wl,-dead_strip"]).arg(format!("-Wl,-install_name,{soname}"));
                link.arg(format!("-Wl,-force_load,{}", archive.display()));
            }
            Format::Pe => {
                fs::create_dir_all(package.join("bin"))?;
                fs::write(&exports, format!("LIBRARY {DLL}\nEXPORTS\n  {}\n", header::names()?.join("\n  ")))?;
                link.args(["-shared", "-s", "-Wl,--whole-archive"]).arg(archive).arg("-Wl,--no-whole-archive");
                link.arg(&exports).arg("-Wl,--gc-sections");
                link.arg(format!("-Wl,--out-implib={}", package.join(IMPORTS).display()));
            }
        }
        run(link.args(self.system.libraries.split(' ')).args(self.unwinder))?;
        match self.system.format {
            Format::Elf => {
                fs::remove_file(exports)?;
                symlink_chain(&shared, &[&soname, "librushlight.so"])
            }
            Format::MachO => symlink_chain(&shared, &[soname.trim_start_matches("@rpath/"), "librushlight.dylib"]),
            Format::Pe => {
                fs::remove_file(exports)?;
                // As linkers of MinGW look for it.
                fs::copy(package.join(IMPORTS), package.join("lib/librushlight.dll.a"))?;
                Ok(())
            }
        }
    }
}

/// Creates symlinks beside a file, each to the previous one.
fn symlink_chain(file: &Path, names: &[&str]) -> Result<()> {
    let mut target = PathBuf::from(file.file_name().unwrap_or_default());
    for name in names {
        let path = file.with_file_name(name);
        if path.symlink_metadata().is_ok() {
            fs::remove_file(&path)?;
        }
        std::os::unix::fs::symlink(&target, path)?;
        target = PathBuf::from(name);
    }
    Ok(())
}
