//! The C library as users get it: a folder with the header, a static and a shared library, and what pkg-config and CMake look for.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::command::{command, root, run};
use crate::header::{self, FOLDER};

/// Version of the packages.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// What the static library needs of the system.
const SYSTEM_LIBRARIES: &str = "-lpthread -ldl -lm";

/// Builds the package for this machine, into a folder, `target/c` by default.
pub fn package(folder: Option<&str>) -> Result<()> {
    let folder = folder.map_or_else(|| root().join("target/c"), PathBuf::from);
    // Small rather than fast where nothing computes, as the Python wheel is.
    package_of("wheel", &folder)
}

/// Builds the package with a profile of cargo.
pub fn package_of(profile: &str, folder: &Path) -> Result<()> {
    if !cfg!(target_os = "linux") {
        bail!("packages are made on Linux");
    }
    run(&mut command("cargo", &["build", "--locked", "--quiet", "-p", "rushlight-c", "--profile", profile]))?;
    let built = target_folder().join(profile).join("librushlight_c.a");
    assemble(&built, folder, "cc", &[])?;
    println!("{}", folder.display());
    Ok(())
}

fn target_folder() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// Puts a package together, of a static library for Linux that was built. The linker is a compiler's driver with some arguments.
fn assemble(built: &Path, folder: &Path, linker: &str, arguments: &[&str]) -> Result<()> {
    let lib = folder.join("lib");
    for path in ["include", "lib/pkgconfig", "lib/cmake/rushlight"] {
        fs::create_dir_all(folder.join(path))?;
    }
    fs::copy(root().join(FOLDER).join("include/rushlight.h"), folder.join("include/rushlight.h"))?;
    let archive = lib.join("librushlight.a");
    fs::copy(built, &archive).with_context(|| format!("there is no `{}`", built.display()))?;
    link(&archive, &lib, linker, arguments)?;
    for (name, text) in [
        ("lib/pkgconfig/rushlight.pc", PKG_CONFIG),
        ("lib/cmake/rushlight/rushlight-config.cmake", CMAKE),
        ("lib/cmake/rushlight/rushlight-config-version.cmake", CMAKE_VERSION),
    ] {
        let text = text.replace("@VERSION@", VERSION).replace("@LIBRARIES@", SYSTEM_LIBRARIES);
        fs::write(folder.join(name), text)?;
    }
    for licence in ["LICENSE-APACHE", "LICENSE-MIT"] {
        fs::copy(root().join(licence), folder.join(licence))?;
    }
    Ok(())
}

/// Links the shared library of the static one, with its name and the versions of its symbols: rustc gives the linker a version script of
/// its own, beside which there can be no other.
fn link(archive: &Path, lib: &Path, linker: &str, arguments: &[&str]) -> Result<()> {
    let script = lib.join("rushlight.map");
    fs::write(&script, header::version_script()?)?;
    let major = VERSION.split('.').next().unwrap_or_default();
    let (file, soname) = (format!("librushlight.so.{VERSION}"), format!("librushlight.so.{major}"));
    let mut link = command(linker, arguments);
    link.args(["-shared", "-o"]).arg(lib.join(&file)).arg(format!("-Wl,-soname,{soname}"));
    link.arg(format!("-Wl,--version-script={}", script.display()));
    link.args(["-Wl,--whole-archive"]).arg(archive).args(["-Wl,--no-whole-archive", "-Wl,--gc-sections"]);
    link.args(["-Wl,-z,defs", "-Wl,-z,relro,-z,now", "-Wl,--strip-debug"]);
    run(link.args(SYSTEM_LIBRARIES.split(' ')).arg("-lgcc_s"))?;
    fs::remove_file(script)?;
    for (name, target) in [(soname.as_str(), file.as_str()), ("librushlight.so", soname.as_str())] {
        let path = lib.join(name);
        if path.symlink_metadata().is_ok() {
            fs::remove_file(&path)?;
        }
        std::os::unix::fs::symlink(target, path)?;
    }
    Ok(())
}

const PKG_CONFIG: &str = "\
prefix=${pcfiledir}/../..
includedir=${prefix}/include
libdir=${prefix}/lib

Name: rushlight
Description: Compiles PyTorch models and runs them on any device
Version: @VERSION@
Cflags: -I${includedir}
Libs: -L${libdir} -lrushlight
Libs.private: @LIBRARIES@
";

const CMAKE: &str = "\
# Targets: rushlight::rushlight, the shared library, and rushlight::static.
get_filename_component(_rushlight_prefix \"${CMAKE_CURRENT_LIST_DIR}/../../..\" ABSOLUTE)

if(NOT TARGET rushlight::rushlight)
  add_library(rushlight::rushlight SHARED IMPORTED)
  set_target_properties(rushlight::rushlight PROPERTIES
    IMPORTED_LOCATION \"${_rushlight_prefix}/lib/librushlight.so.@VERSION@\"
    IMPORTED_SONAME \"librushlight.so.0\"
    INTERFACE_INCLUDE_DIRECTORIES \"${_rushlight_prefix}/include\")
endif()

if(NOT TARGET rushlight::static)
  add_library(rushlight::static STATIC IMPORTED)
  set_target_properties(rushlight::static PROPERTIES
    IMPORTED_LOCATION \"${_rushlight_prefix}/lib/librushlight.a\"
    INTERFACE_LINK_LIBRARIES \"@LIBRARIES@\"
    INTERFACE_INCLUDE_DIRECTORIES \"${_rushlight_prefix}/include\")
endif()

unset(_rushlight_prefix)
";

/// A version 0 fits requests for the same minor version, others those for the same major one, unless they ask for a later one.
const CMAKE_VERSION: &str = "\
set(PACKAGE_VERSION \"@VERSION@\")
string(REGEX MATCH \"^([0-9]+)\\\\.([0-9]+)\" _rushlight_version \"${PACKAGE_VERSION}\")
set(_rushlight_major \"${CMAKE_MATCH_1}\")
set(_rushlight_minor \"${CMAKE_MATCH_2}\")
if(PACKAGE_VERSION VERSION_LESS PACKAGE_FIND_VERSION)
  set(PACKAGE_VERSION_COMPATIBLE FALSE)
elseif(NOT _rushlight_major EQUAL PACKAGE_FIND_VERSION_MAJOR)
  set(PACKAGE_VERSION_COMPATIBLE FALSE)
elseif(_rushlight_major EQUAL 0 AND PACKAGE_FIND_VERSION_COUNT GREATER 1
       AND NOT _rushlight_minor EQUAL PACKAGE_FIND_VERSION_MINOR)
  set(PACKAGE_VERSION_COMPATIBLE FALSE)
else()
  set(PACKAGE_VERSION_COMPATIBLE TRUE)
  if(PACKAGE_VERSION VERSION_EQUAL PACKAGE_FIND_VERSION)
    set(PACKAGE_VERSION_EXACT TRUE)
  endif()
endif()
unset(_rushlight_version)
unset(_rushlight_major)
unset(_rushlight_minor)
";
