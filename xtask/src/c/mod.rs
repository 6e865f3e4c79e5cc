//! The C library as users get it: a folder with the header, a static and a shared library, and what pkg-config and CMake look for.

mod corpus;
pub mod link;
mod swift;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::command::{checked, command, exists, output, root, run, target_folder};
use crate::header::FOLDER;
use link::Linker;

/// Version of the packages.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Builds the package for this machine, into a folder, `target/c` by default.
pub fn package(folder: Option<&str>) -> Result<()> {
    let folder = folder.map_or_else(|| root().join("target/c"), PathBuf::from);
    // Small rather than fast where nothing computes, as the Python wheel is.
    run(&mut command("cargo", &["build", "--locked", "--quiet", "-p", "rushlight-c", "--profile", "wheel"]))?;
    package_of("wheel", &folder)
}

/// Puts the package together from the build of a cargo profile.
fn package_of(profile: &str, folder: &Path) -> Result<()> {
    if !cfg!(target_os = "linux") {
        bail!("packages are made on Linux");
    }
    let built = target_folder().join(profile).join("librushlight_c.a");
    let linker =
        Linker { program: "cc".into(), arguments: Vec::new(), system: &link::LINUX, unwinder: Some("-lgcc_s") };
    assemble(&root(), &built, folder, &linker)?;
    println!("{}", folder.display());
    Ok(())
}

/// Builds the package that the tests use, and the book.
pub fn package_for_tests() -> Result<PathBuf> {
    let package = test_folder().join("package");
    // With the tests, whose dependencies have features of their own.
    run(checked("build").args(["--tests", "--lib"]))?;
    package_of("checked", &package)?;
    Ok(package)
}

fn test_folder() -> PathBuf {
    target_folder().join("c-test")
}

/// Puts a package together, of a static library that was built of the sources in a folder.
pub fn assemble(source: &Path, built: &Path, folder: &Path, linker: &Linker) -> Result<()> {
    for path in ["include", "lib/pkgconfig", "lib/cmake/rushlight/executorch"] {
        fs::create_dir_all(folder.join(path))?;
    }
    fs::copy(source.join(FOLDER).join("include/rushlight.h"), folder.join("include/rushlight.h"))?;
    run(command("cp", &["-R"]).arg(source.join("bindings/cpp/include/.")).arg(folder.join("include")))?;
    let archive = folder.join("lib/librushlight.a");
    fs::copy(built, &archive).with_context(|| format!("there is no `{}`", built.display()))?;
    linker.link(&archive, folder)?;
    for (name, text) in [
        ("lib/pkgconfig/rushlight.pc", PKG_CONFIG),
        ("lib/cmake/rushlight/rushlight-config.cmake", CMAKE),
        ("lib/cmake/rushlight/rushlight-config-version.cmake", CMAKE_VERSION),
        ("lib/cmake/rushlight/executorch/executorch-config.cmake", CMAKE_EXECUTORCH),
    ] {
        let text = text.replace("@SHARED@", &linker.system.cmake()).replace("@STATIC@", linker.system.cmake_static());
        let text = text.replace("@VERSION@", VERSION).replace("@LIBRARIES@", linker.system.libraries);
        fs::write(folder.join(name), text)?;
    }
    for (from, name) in [(source, "LICENSE-APACHE"), (source, "LICENSE-MIT"), (&*source.join(FOLDER), "README.md")] {
        fs::copy(from.join(name), folder.join(name))?;
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
# Targets: rushlight::rushlight, the shared library, and rushlight::static. With headers for C and for C++17.
get_filename_component(_rushlight_prefix \"${CMAKE_CURRENT_LIST_DIR}/../../..\" ABSOLUTE)

if(NOT TARGET rushlight::rushlight)
  add_library(rushlight::rushlight SHARED IMPORTED)
  set_target_properties(rushlight::rushlight PROPERTIES
    @SHARED@
    INTERFACE_INCLUDE_DIRECTORIES \"${_rushlight_prefix}/include\")
endif()

if(NOT TARGET rushlight::static@STATIC@)
  add_library(rushlight::static STATIC IMPORTED)
  set_target_properties(rushlight::static PROPERTIES
    IMPORTED_LOCATION \"${_rushlight_prefix}/lib/librushlight.a\"
    INTERFACE_LINK_LIBRARIES \"@LIBRARIES@\"
    INTERFACE_INCLUDE_DIRECTORIES \"${_rushlight_prefix}/include\")
endif()

unset(_rushlight_prefix)
";

/// Found by those alone who name its folder, with `-Dexecutorch_DIR`.
const CMAKE_EXECUTORCH: &str = "\
# The targets of ExecuTorch that programs link, all of which are rushlight::rushlight: those of its build, and those of its wheel, which
# are only in its namespace. And the variables that its packages set.
include(\"${CMAKE_CURRENT_LIST_DIR}/../rushlight-config.cmake\")

foreach(_target executorch executorch_core portable_kernels portable_ops_lib optimized_ops_lib optimized_native_cpu_ops_lib
    quantized_ops_lib xnnpack_backend extension_data_loader extension_flat_tensor extension_module extension_module_static
    extension_runner_util extension_tensor extension_threadpool
    backend_xnnpack etdump kernels_optimized kernels_quantized runtime threadpool)
  foreach(_name ${_target} executorch::${_target})
    if(NOT TARGET ${_name})
      add_library(${_name} INTERFACE IMPORTED)
      set_target_properties(${_name} PROPERTIES INTERFACE_LINK_LIBRARIES rushlight::rushlight)
    endif()
  endforeach()
endforeach()
unset(_target)
unset(_name)
set(executorch_FOUND TRUE)
set(EXECUTORCH_FOUND TRUE)
set(EXECUTORCH_LIBRARIES rushlight::rushlight)
set(EXECUTORCH_CXX_STANDARD 17)
set(EXECUTORCH_COMPILE_DEFINITIONS \"\")
get_filename_component(EXECUTORCH_INCLUDE_DIRS \"${CMAKE_CURRENT_LIST_DIR}/../../../../include\" ABSOLUTE)
get_filename_component(EXECUTORCH_RUNTIME_LIBRARY_DIR \"${CMAKE_CURRENT_LIST_DIR}/../../..\" ABSOLUTE)
";

/// The ABI only grows as long as the first number is the same.
const CMAKE_VERSION: &str = "\
set(PACKAGE_VERSION \"@VERSION@\")
string(REGEX MATCH \"^[0-9]+\" _rushlight_major \"${PACKAGE_VERSION}\")
if(PACKAGE_VERSION VERSION_LESS PACKAGE_FIND_VERSION OR NOT _rushlight_major EQUAL PACKAGE_FIND_VERSION_MAJOR)
  set(PACKAGE_VERSION_COMPATIBLE FALSE)
else()
  set(PACKAGE_VERSION_COMPATIBLE TRUE)
  if(PACKAGE_VERSION VERSION_EQUAL PACKAGE_FIND_VERSION)
    set(PACKAGE_VERSION_EXACT TRUE)
  endif()
endif()
unset(_rushlight_major)
";

/// Compilers of programs: C99 and C++17, with every warning an error.
const DIALECTS: &[(&str, &[&str])] = &[("cc", &["-x", "c", "-std=c99"]), ("c++", &["-x", "c++", "-std=c++17"])];
const CPP: &(&str, &[&str]) = &DIALECTS[1];
const CPP20: &(&str, &[&str]) = &("c++", &["-x", "c++", "-std=c++20"]);
const WARNINGS: &[&str] = &["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-g"];

/// The tests of the C ABI and of both interfaces for C++ over it, with the package of the profile `checked`: in all dialects, with both
/// libraries, under the address sanitizer, by pkg-config and by CMake; and that the shared library exports what the list says.
pub fn test() -> Result<()> {
    let folder = test_folder();
    let package = package_for_tests()?;
    link::LINUX.check_exports(&package, "nm".as_ref())?;
    fs::write(folder.join("corpus.h"), corpus::header()?)?;
    let program = Program { folder: &folder, package: &package };
    for dialect in DIALECTS {
        for library in [Library::Static, Library::Shared] {
            program.digits("examples/c/classify.c", dialect, library)?;
            program.run("bindings/c/tests/abi.c", dialect, library, &[])?;
            program.run("bindings/c/tests/backend.c", dialect, library, &[])?;
            program.run("bindings/c/tests/threads.c", dialect, library, &["-pthread"])?;
        }
    }
    let sanitized = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-pthread"];
    for source in ["bindings/c/tests/abi.c", "bindings/c/tests/backend.c", "bindings/c/tests/threads.c"] {
        program.run(source, &DIALECTS[0], Library::Static, &sanitized)?;
    }
    for library in [Library::Static, Library::Shared] {
        program.digits("examples/cpp/classify.cpp", CPP, library)?;
        program.run("bindings/cpp/tests/module.cpp", CPP, library, &[])?;
    }
    program.run("bindings/cpp/tests/module.cpp", CPP, Library::Static, &sanitized)?;
    program.headers_alone()?;
    program.is_not_served()?;
    program.idiomatic(&sanitized)?;
    swift::test(&folder, &package)?;
    let (pkg_config, cmake) = (exists("pkg-config"), exists("cmake"));
    if pkg_config {
        program.by_pkg_config()?;
    } else {
        println!("NOT RUN: a build by pkg-config, which is not there");
    }
    if cmake {
        program.by_cmake()?;
    } else {
        println!("NOT RUN: a build by CMake, which is not there");
    }
    Ok(())
}

/// Builds the digits against a package and runs them, with both libraries.
pub fn smoke_test(package: &Path) -> Result<()> {
    let folder = test_folder();
    fs::create_dir_all(&folder)?;
    let program = Program { folder: &folder, package };
    DIALECTS.iter().try_for_each(|dialect| {
        program.digits("examples/c/classify.c", dialect, Library::Static)?;
        program.digits("examples/c/classify.c", dialect, Library::Shared)
    })
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Library {
    Static,
    Shared,
}

/// Builds the program that classifies the digits against a package for any system. On Windows the shared library is put beside it.
pub fn classifier(package: &Path, linker: &Linker, library: Library, program: &Path) -> Result<()> {
    let lib = package.join("lib");
    let mut build = command(&linker.program, &[]);
    build.args(&linker.arguments).args(["-std=c99", "-O1", "examples/c/classify.c", "-o"]).arg(program);
    build.arg(format!("-I{}", package.join("include").display()));
    match library {
        Library::Static => {
            build.arg(lib.join("librushlight.a"));
            build.args(linker.system.libraries.split(' ')).args(linker.unwinder);
        }
        Library::Shared => {
            build.arg(package.join(linker.system.linked()));
            if linker.system.has_rpath() {
                build.arg(format!("-Wl,-rpath,{}", lib.display()));
            } else {
                fs::copy(package.join(linker.system.shared()), program.with_file_name(link::DLL))?;
            }
        }
    }
    run(&mut build)
}

/// Builds programs with a package and runs them.
struct Program<'a> {
    folder: &'a Path,
    package: &'a Path,
}

impl Program<'_> {
    fn build(&self, source: &str, dialect: &(&str, &[&str]), library: Library, flags: &[&str]) -> Result<PathBuf> {
        let (compiler, arguments) = dialect;
        let built = self.folder.join("program");
        let lib = self.package.join("lib");
        let mut build = command(compiler, arguments);
        build.args(WARNINGS).args(flags).arg(format!("-I{}", self.package.join("include").display()));
        build.arg(format!("-I{}", self.folder.display())).arg(source).args(["-x", "none", "-o"]).arg(&built);
        match library {
            Library::Static => build.arg(lib.join("librushlight.a")).args(link::LINUX.libraries.split(' ')),
            Library::Shared => {
                build.arg(format!("-L{}", lib.display())).args(["-lrushlight", "-lm"]);
                build.arg(format!("-Wl,-rpath,{}", lib.display()))
            }
        };
        run(&mut build)?;
        Ok(built)
    }

    /// Runs a test program.
    fn run(&self, source: &str, dialect: &(&str, &[&str]), library: Library, flags: &[&str]) -> Result<()> {
        let built = self.build(source, dialect, library, flags)?;
        run(command(built, &[]).arg(root()).arg(self.folder))
    }

    /// Runs a program that classifies the digits, which are in their order.
    fn digits(&self, source: &str, dialect: &(&str, &[&str]), library: Library) -> Result<()> {
        classifies(&mut command(self.build(source, dialect, library, &[])?, &[]))
    }

    /// The tests of rushlight.hpp: in both versions of C++, without exceptions, and under sanitizers; and what clang says of it.
    fn idiomatic(&self, sanitized: &[&str]) -> Result<()> {
        const TEST: &str = "bindings/cpp/tests/rushlight.cpp";
        self.digits("examples/cpp/digits.cpp", CPP, Library::Static)?;
        self.digits("examples/cpp/digits.cpp", CPP20, Library::Shared)?;
        self.run(TEST, CPP20, Library::Shared, &["-pthread", "-Wshadow"])?;
        self.run(TEST, CPP, Library::Static, &["-pthread", "-fno-exceptions"])?;
        self.run(TEST, CPP, Library::Static, sanitized)?;
        if !exists("clang++") {
            println!("NOT RUN: clang's warnings about rushlight.hpp, and Objective-C: clang is not there");
            return Ok(());
        }
        let mut objective_c = command("clang", &["-x", "objective-c", "-fsyntax-only"]);
        objective_c.args(WARNINGS).arg(format!("-I{}", self.package.join("include").display()));
        run(objective_c.arg("examples/c/classify.c"))?;
        for standard in ["-std=c++17", "-std=c++20"] {
            let mut check = command("clang++", &[standard, "-fsyntax-only"]);
            check.args(WARNINGS).arg(format!("-I{}", self.package.join("include").display()));
            run(check.arg(format!("-I{}", self.folder.display())).arg(TEST))?;
        }
        Ok(())
    }

    /// Every header of ExecuTorch's interface compiles alone, without exceptions, but those that say what to use instead.
    fn headers_alone(&self) -> Result<()> {
        let source = self.folder.join("alone.cpp");
        for header in output(&mut command("git", &["ls-files", "bindings/cpp/include"]))?.lines() {
            if fs::read_to_string(root().join(header))?.contains("#error") {
                continue;
            }
            let name = header.trim_start_matches("bindings/cpp/include/");
            fs::write(&source, format!("#include <{name}>\n"))?;
            let mut check = command("c++", &["-std=c++17", "-fno-exceptions", "-fsyntax-only"]);
            check.args(WARNINGS).arg(format!("-I{}", self.package.join("include").display()));
            run(check.arg(&source))?;
        }
        Ok(())
    }

    /// Programs that use what ExecuTorch's interface has and ours does not, or ours as it must not be used, are refused, with a sentence
    /// that says why or what to use.
    fn is_not_served(&self) -> Result<()> {
        for entry in fs::read_dir(root().join("bindings/cpp/tests/not_served"))? {
            let source = entry?.path();
            let mut check = command("c++", &["-std=c++17", "-fsyntax-only"]);
            let checked = check.arg(format!("-I{}", self.package.join("include").display())).arg(&source).output()?;
            let text = String::from_utf8_lossy(&checked.stderr);
            if checked.status.success() || !text.contains("rushlight: ") {
                bail!("`{}` should be refused with a sentence, and the compiler said: {text}", source.display());
            }
        }
        Ok(())
    }

    fn by_pkg_config(&self) -> Result<()> {
        let built = self.folder.join("program");
        let mut ask = command("pkg-config", &["--cflags", "--libs", "rushlight"]);
        let flags = output(ask.env("PKG_CONFIG_PATH", self.package.join("lib/pkgconfig")))?;
        let mut build = command("cc", &["-std=c99", "examples/c/classify.c", "-o"]);
        build.arg(&built).args(flags.split_whitespace());
        run(build.arg(format!("-Wl,-rpath,{}", self.package.join("lib").display())))?;
        classifies(&mut command(built, &[]))
    }

    /// A project that knows nothing but the name of the package, from a folder to which this was moved.
    fn by_cmake(&self) -> Result<()> {
        let moved = self.folder.join("moved");
        let build = self.folder.join("cmake");
        for folder in [&moved, &build] {
            if folder.exists() {
                fs::remove_dir_all(folder)?;
            }
        }
        run(command("cp", &["-a"]).arg(self.package).arg(&moved))?;
        let mut configure = command("cmake", &["-S", "bindings/c/tests/consumer", "-B"]);
        let alias = moved.join("lib/cmake/rushlight/executorch");
        configure.arg(&build).arg(format!("-DCMAKE_PREFIX_PATH={}", moved.display()));
        run(configure.arg(format!("-Dexecutorch_DIR={}", alias.display())))?;
        run(command("cmake", &["--build"]).arg(&build))?;
        for program in [
            "classify_shared",
            "classify_static",
            "classify_cpp",
            "digits",
            "classify_executorch",
            "classify_wheel",
            "classify_variables",
        ] {
            classifies(&mut command(build.join(program), &[]))?;
        }
        fs::remove_dir_all(moved)?;
        Ok(())
    }
}

/// Fails unless a program classifies the digits, which are in their order.
pub fn classifies(program: &mut Command) -> Result<()> {
    let printed = output(program.args(["examples/cortex-m/digits.pte", "examples/cortex-m/images/images.bin"]))?;
    let printed: Vec<&str> = printed.lines().collect();
    if printed != ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"] {
        bail!("`{}` printed {printed:?}", program.get_program().display());
    }
    Ok(())
}
