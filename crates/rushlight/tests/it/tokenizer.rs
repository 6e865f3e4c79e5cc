//! Programs that carry a tokenizer.
#![cfg(all(feature = "llm", feature = "lower"))]

use std::fs;
use std::path::{Path, PathBuf};

use rushlight::compiler::{CompileOptions, compile_pte};
use rushlight::{Cache, CacheUse, Code, Compiler, LanguageModelOptions, Module, ProgramTokenizer, TensorView};
use rushlight_format::pte::ProgramModel;
use rushlight_format::{Program, tokenizer};

const LLAMA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/decoders/llama");

/// The bytes of a file that are in no other part of a program.
const FILE: &[u8] = b"the file of a tokenizer, which nothing here reads";

/// Returns a program of the corpus with a tokenizer.
fn program() -> Vec<u8> {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/corpus/1.5.1/mlp.pte");
    let bytes = fs::read(corpus).expect("a program");
    let parsed = Program::parse(&bytes).expect("a program");
    let mut model = ProgramModel::from_program(&parsed);
    model.named_data.push((format!("{}tokenizer.json", tokenizer::KEY_PREFIX), FILE.into()));
    model.to_bytes().expect("a program")
}

fn names(program: &[u8]) -> Vec<String> {
    let parsed = Program::parse(program).expect("a program");
    tokenizer::files(parsed.named_data()).map(|(name, _)| name.to_owned()).collect()
}

fn has_tokenizer(bytes: &[u8]) -> bool {
    bytes.windows(FILE.len()).any(|window| window == FILE)
}

fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("tokenizer-{name}"));
    drop(fs::remove_dir_all(&folder));
    fs::create_dir_all(&folder).expect("a folder");
    folder
}

#[test]
fn programs_that_are_compiled_again_keep_it() {
    let again = compile_pte(&program().into(), &[], &CompileOptions::default()).expect("it compiles");
    assert_eq!(names(&again.program.to_bytes().expect("a program")), ["tokenizer.json"]);
}

#[test]
fn the_cache_has_no_copy_of_it() {
    let folder = folder("cache");
    let program = program();
    assert!(has_tokenizer(&program));
    for is_written in [true, false] {
        let cache = Cache::new(&folder).smallest(0);
        let mut module = Module::builder().lower("cpu").cache(cache).load_bytes(&program).expect("it loads");
        let input = TensorView::of(&[2, 8], &[0.5f32; 16]).expect("a view");
        module.forward(&[input.into()]).expect("it runs");
        let file = match module.cache_use().expect("it is lowered") {
            CacheUse::Written { file, .. } if is_written => file.clone(),
            CacheUse::Loaded { file } if !is_written => file.clone(),
            other => panic!("{other}"),
        };
        assert!(!has_tokenizer(&fs::read(file).expect("the entry")));
        assert_eq!(module.program().parsed().named("rushlight.tokenizer/tokenizer.json"), Some(FILE));
    }
}

#[test]
fn the_files_are_those_of_the_model_or_named_or_none() {
    let compiled = |tokenizer| {
        let options = LanguageModelOptions { max_context_len: Some(16), ..LanguageModelOptions::default() };
        Compiler::new().language_model(LLAMA, options).tokenizer(tokenizer).compile()
    };
    let carried = |tokenizer| compiled(tokenizer).expect("it compiles").to_bytes().expect("a program");
    let program = carried(ProgramTokenizer::OfModel);
    let parsed = Program::parse(&program).expect("a program");
    let files: Vec<_> = tokenizer::files(parsed.named_data()).collect();
    let names: Vec<&str> = files.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, ["tokenizer.json", "tokenizer_config.json", "generation_config.json"]);
    for (name, bytes) in files {
        assert_eq!(bytes, fs::read(Path::new(LLAMA).join(name)).expect("the file"), "{name}");
    }
    assert!(self::names(&carried(ProgramTokenizer::Omitted)).is_empty());
    // Files with other names are carried under the names that readers know.
    let folder = folder("names");
    for (from, to) in [("tokenizer.json", "a.tokenizer.json"), ("tokenizer_config.json", "a.tokenizer_config.json")] {
        fs::copy(Path::new(LLAMA).join(from), folder.join(to)).expect("a copy");
    }
    fs::write(folder.join("ranks.tiktoken"), "YQ== 0\n").expect("a file");
    let of = |name: &str| self::names(&carried(ProgramTokenizer::Of(folder.join(name))));
    assert_eq!(of("a.tokenizer.json"), ["tokenizer.json", "tokenizer_config.json"]);
    assert_eq!(of("ranks.tiktoken"), ["tokenizer.model"]);
    // A program is not a tokenizer.
    fs::write(folder.join("model.pte"), &program).expect("a file");
    let large = fs::File::create(folder.join("large.json")).expect("a file");
    large.set_len(tokenizer::MAX_VOCABULARY + 1).expect("a sparse file");
    for (path, code, expected) in [
        (folder.join("none"), Code::NotFound, "none"),
        (folder.clone(), Code::NotFound, "has no tokenizer"),
        (folder.join("model.pte"), Code::NotSupported, "is not a tokenizer"),
        (folder.join("large.json"), Code::NotSupported, "too large for a tokenizer"),
        (Path::new(LLAMA).join("model.gguf"), Code::NotFound, "has no tokenizer"),
    ] {
        let error = compiled(ProgramTokenizer::Of(path)).expect_err("no tokenizer");
        assert!(error.code() == code && error.to_string().contains(expected), "{error}");
    }
    // Input files of a program are not overwritten.
    let path = folder.join("a.tokenizer.json");
    let program = compiled(ProgramTokenizer::Of(path.clone())).expect("it compiles");
    assert_eq!(program.save(path).expect_err("an input").code(), Code::InvalidArgument);
}
