//! Corrupted files: each gives an error, or a tokenizer that encodes and decodes. None panics.

use rushlight::Module;
use rushlight_format::Program;
use rushlight_format::pte::ProgramModel;
use rushlight_llm::{ChatTemplate, Error, Tokenizer};

use crate::{folder, rows};

/// Changes some bytes of a text to other bytes of it, digits, or structural characters.
fn mutated(text: &[u8], seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 33) as usize % below
    };
    let mut text = text.to_vec();
    for _ in 0..=next(4) {
        let at = next(text.len());
        match next(5) {
            0 => text[at] = text[next(text.len())],
            1 => text[at] = b"0123456789"[next(10)],
            2 => text[at] = b"[]{}\",:\\"[next(8)],
            3 => {
                text.remove(at);
            }
            _ => {
                let (from, len) = (next(text.len()), next(40));
                let copied: Vec<u8> = text.iter().skip(from).take(len).copied().collect();
                text.splice(at..at, copied);
            }
        }
    }
    text
}

/// Number of mutations of one file.
const COUNT: u64 = 150;

#[test]
fn mutated_tokenizers_are_errors_or_work() {
    let (mut refused, mut read) = (0, 0);
    for entry in std::fs::read_dir(folder("llm/tokenizers")).unwrap() {
        let files = std::fs::read_dir(entry.unwrap().path()).unwrap().map(|file| file.unwrap().path());
        let path = files.into_iter().find(|file| !file.ends_with("expected.json")).unwrap();
        let file = std::fs::read(path).unwrap();
        for end in (0..file.len()).step_by(file.len() / 50) {
            if let Ok(tokenizer) = Tokenizer::from_bytes(&file[..end]) {
                let _ = tokenizer.encode("a bc 你", true).map(|tokens| tokenizer.decode(&tokens, false));
            }
        }
        // Settings are at both ends of a file and matter most; the vocabulary is between.
        for seed in 0..COUNT {
            let Ok(tokenizer) = Tokenizer::from_bytes(&mutated(&file, seed)) else {
                refused += 1;
                continue;
            };
            read += 1;
            for text in ["Hello,  wörld 你好 👩‍👩‍👧 <s> 12", "", " "] {
                if let Ok(tokens) = tokenizer.encode(text, true) {
                    let _ = tokenizer.decode(&tokens, seed % 2 == 0);
                }
            }
            let _ = tokenizer.decode(&[0, 1, 511, 512, u32::MAX], false);
        }
    }
    assert!(refused > 100 && read > 50, "{refused} refused, {read} read");
}

/// Returns a program that carries these files of a tokenizer.
fn program(files: &[(&str, &[u8])]) -> Module {
    let bytes = std::fs::read(folder("corpus/1.5.1/add.pte")).unwrap();
    let parsed = Program::parse(&bytes).unwrap();
    let mut model = ProgramModel::from_program(&parsed);
    for (name, data) in files {
        model.named_data.push((format!("rushlight.tokenizer/{name}"), data.to_vec().into()));
    }
    Module::from_bytes(&model.to_bytes().unwrap()).unwrap()
}

#[test]
fn damaged_tokenizers_inside_of_programs_are_errors() {
    let file = std::fs::read(folder("decoders/llama/tokenizer.json")).unwrap();
    let config = std::fs::read(folder("decoders/llama/tokenizer_config.json")).unwrap();
    let carried = |files: &[(&str, &[u8])]| Tokenizer::of_program(program(files).program());
    let whole = carried(&[("tokenizer.json", &file), ("tokenizer_config.json", &config)]).unwrap().unwrap();
    assert!(whole.chat_template().unwrap().is_some());
    assert!(carried(&[]).unwrap().is_none());
    // Settings alone are not a tokenizer.
    assert!(carried(&[("tokenizer_config.json", &config)]).unwrap().is_none());
    let huge = vec![b' '; (64 << 20) + 1];
    for (files, expected) in [
        (&[("tokenizer.json", &file[..file.len() / 2])][..], "`tokenizer.json` inside of the program: EOF"),
        (&[("tokenizer.json", &[])], "`tokenizer.json` inside of the program: the file is of an unknown kind"),
        (&[("tokenizer.gguf", b"GGUF")], "`tokenizer.gguf` inside of the program: "),
        (&[("tokenizer.json", &huge)], "`tokenizer.json` inside of the program: it has 67108865 bytes"),
        (
            &[("tokenizer.json", &file), ("tokenizer_config.json", b"{")],
            "`tokenizer_config.json` inside of the program: EOF",
        ),
        (
            &[("tokenizer.json", &file), ("generation_config.json", &huge)],
            "`generation_config.json` inside of the program: ",
        ),
        (
            &[("tokenizer.json", &file), ("chat_template.jinja", &[0xff])],
            "`chat_template.jinja` inside of the program: ",
        ),
    ] {
        let error = carried(files).unwrap_err();
        assert!(matches!(error, Error::Tokenizer(_)) && error.to_string().contains(expected), "{error}");
    }
    for end in 0..file.len() {
        assert!(matches!(carried(&[("tokenizer.json", &file[..end])]), Err(Error::Tokenizer(_))));
    }
}

/// Mutates the seeds of the fuzz targets, which have components that the samples lack.
#[test]
fn mutated_seeds_are_errors_or_work() {
    let files = |name: &str| {
        let entries = std::fs::read_dir(folder("../fuzz/seeds").join(name)).unwrap();
        let files: Vec<Vec<u8>> = entries.map(|entry| std::fs::read(entry.unwrap().path()).unwrap()).collect();
        assert!(files.len() >= 4, "{name}");
        files
    };
    let (mut refused, mut worked) = (0, 0);
    let mut count = |result: Result<(), Error>| if result.is_ok() { worked += 1 } else { refused += 1 };
    for file in files("tokenizer") {
        for seed in 0..COUNT * 4 {
            count(Tokenizer::from_bytes(&mutated(&file, seed)).and_then(|tokenizer| {
                for text in ["Hello,  wörld 你好 12 <s>", "aaaaaaaaaaaaaaaa", ""] {
                    let tokens = tokenizer.encode(text, true)?;
                    tokenizer.decode(&tokens, false)?;
                }
                tokenizer.decode(&[0, 1, 255, u32::MAX], false).map(|_| ())
            }));
        }
    }
    for source in files("chat_template") {
        for seed in 0..COUNT * 4 {
            let template = ChatTemplate::new(&String::from_utf8_lossy(&mutated(&source, seed)));
            let message = rushlight_llm::Message::new("user", "a <b> c");
            count(template.and_then(|template| template.render(&[message], true)).map(|_| ()));
        }
    }
    assert!(refused > 500 && worked > 500, "{refused} refused, {worked} worked");
}

#[test]
fn mutated_templates_are_errors_or_work() {
    let (mut refused, mut rendered) = (0, 0);
    for row in rows(&folder("llm/templates.json")).into_iter().step_by(6) {
        for seed in 0..COUNT {
            let source = mutated(row["template"].as_str().unwrap().as_bytes(), seed);
            let template = ChatTemplate::new(&String::from_utf8_lossy(&source));
            match template.and_then(|template| template.render_json(&row["messages"], &row["tools"], true)) {
                Ok(_) => rendered += 1,
                Err(_) => refused += 1,
            }
        }
    }
    assert!(refused > 50 && rendered > 50, "{refused} refused, {rendered} rendered");
}

/// Returns a tokenizer of one word, with other components.
fn tokenizer(components: &str) -> Result<Tokenizer, Error> {
    let model = r#"{"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}"#;
    Tokenizer::from_bytes(format!(r#"{{"model": {model}, {components}}}"#).as_bytes())
}

#[test]
fn components_cannot_make_a_text_grow_without_bound() {
    let many = |component: &str, count: usize| vec![component; count].join(",");
    let content = "a".repeat(1000);
    let replace = format!(r#"{{"type": "Replace", "pattern": {{"String": "a"}}, "content": "{content}"}}"#);
    let prepend = format!(r#"{{"type": "Prepend", "prepend": "{}"}}"#, "a".repeat(1 << 16));
    let spaces = " ".repeat(50);
    let metaspace = format!(r#"{{"type": "Metaspace", "replacement": "{spaces}", "split": false}}"#);
    let byte_level = r#"{"type": "ByteLevel", "use_regex": false}"#;
    for components in [
        format!(r#""normalizer": {{"type": "Sequence", "normalizers": [{}]}}"#, many(&replace, 100)),
        format!(r#""normalizer": {{"type": "Sequence", "normalizers": [{}]}}"#, many(byte_level, 100)),
        format!(r#""normalizer": {prepend}"#),
        format!(r#""pre_tokenizer": {{"type": "Sequence", "pretokenizers": [{}]}}"#, many(byte_level, 100)),
        format!(r#""pre_tokenizer": {{"type": "Sequence", "pretokenizers": [{}]}}"#, many(&metaspace, 100)),
    ] {
        let error = tokenizer(&components).unwrap().encode("é a b", false).unwrap_err();
        assert!(error.to_string().contains("more than"), "{error}");
    }
    let decoders = format!(r#""decoder": {{"type": "Sequence", "decoders": [{}]}}"#, many(&replace, 100));
    assert!(tokenizer(&decoders).unwrap().decode(&[0, 0], false).unwrap_err().to_string().contains("more than"));
    // Counts in a file must not bound loops.
    let strip =
        r#""decoder": {"type": "Strip", "content": "b", "start": 18446744073709551615, "stop": 18446744073709551615}"#;
    assert_eq!(tokenizer(strip).unwrap().decode(&[0], false).unwrap(), "a");
    let added =
        format!(r#""normalizer": {prepend}, "added_tokens": [{{"id": 1, "content": "b", "normalized": true}}]"#);
    assert!(tokenizer(&added).is_err());
}

#[test]
fn what_a_file_asks_for_is_bounded() {
    let template = r#""post_processor": {"type": "TemplateProcessing", "single": [SINGLE],
        "special_tokens": {"s": {"ids": [0, 0, 0, 0, 0, 0, 0, 0]}}}"#;
    let of = |single: &str| tokenizer(&template.replace("SINGLE", single));
    let special = r#"{"SpecialToken": {"id": "s", "type_id": 0}}"#;
    assert!(of(&vec![special; 128].join(",")).is_ok());
    assert!(of(&vec![special; 129].join(",")).is_err());
    let text = r#"{"Sequence": {"id": "A", "type_id": 0}}"#;
    assert!(of(&format!("{text},{text}")).is_err());
    let file = r#"{"model": {"type": "WordLevel", "vocab": {"a": 4194304}}}"#;
    assert!(Tokenizer::from_bytes(file.as_bytes()).is_err());
}

/// Each of these has an expression that takes long to compile.
#[test]
fn components_are_bounded_and_compiled_once() {
    let many = |count: usize| vec![r#"{"type": "UnicodeScripts"}"#; count].join(",");
    let of =
        |parts: &str| tokenizer(&format!(r#""pre_tokenizer": {{"type": "Sequence", "pretokenizers": [{parts}]}}"#));
    let begin = std::time::Instant::now();
    assert!(of(&many(127)).is_ok());
    let taken = begin.elapsed();
    assert!(taken.as_secs() < 60, "{taken:?}");
    let nested = format!(r#"{{"type": "Sequence", "pretokenizers": [{}]}}"#, many(64));
    for parts in [many(128), format!("{nested},{nested}")] {
        let error = of(&parts).unwrap_err();
        assert!(error.to_string().contains("at most 128 components"), "{error}");
    }
    let expression =
        format!(r#"{{"type": "Split", "behavior": "Isolated", "pattern": {{"Regex": "{}"}}}}"#, "a".repeat(1000));
    let error = of(&[expression.as_str(); 17].join(",")).unwrap_err();
    assert!(error.to_string().contains("at most 16384 bytes of regular expressions"), "{error}");
}

#[test]
fn many_added_tokens_are_found_quickly() {
    let added: Vec<String> =
        (0..20_000).map(|id| format!(r#"{{"id": {}, "content": "<tok{id}>", "special": true}}"#, id + 1)).collect();
    let tokenizer = tokenizer(&format!(r#""added_tokens": [{}]"#, added.join(","))).unwrap();
    let tokens = tokenizer.encode(&"<tok<tok12345>".repeat(5000), false).unwrap();
    assert_eq!(tokens.len(), 10_000);
    assert_eq!(tokens[..4], [0, 12_346, 0, 12_346]);
}

#[test]
fn hostile_templates_are_errors() {
    let chain = |part: &str, count: usize| format!("{{{{ {}1 }}}}", part.repeat(count));
    for source in [
        "{% for m in messages %}{{ loop.cycle( ) }}{% endfor %}".to_owned(),
        "{% set d = namespace() %}{% set d.x = d %}{{ d }}".to_owned(),
        "{% set d = namespace() %}{% set d.x = d %}{{ d | tojson }}".to_owned(),
        chain("not ", 20_000),
        chain("-", 20_000),
        chain("1+", 50_000),
        "{{ 1 }}".repeat(1 << 16),
        "{% for a in range(9999) %}{% for b in range(9999) %}x{% endfor %}{% endfor %}".to_owned(),
    ] {
        let message = rushlight_llm::Message::new("user", "a");
        let result = ChatTemplate::new(&source).and_then(|template| template.render(&[message], true));
        assert!(matches!(result, Err(Error::Template(_))), "{}", &source[..60.min(source.len())]);
    }
    // A tag of the maximum depth, and a long string.
    let string = format!("{{{{ '{}' }}}}", "}} {% ".repeat(1000));
    assert!(ChatTemplate::new(&string).is_ok());
    for part in ["not ", "-", "1+", "x.a if x else ", "(", "["] {
        let source = chain(part, 1500 / part.len());
        let _ = ChatTemplate::new(&source).and_then(|template| template.render(&[], true));
    }
}

#[test]
fn templates_that_would_end_the_process_are_errors() {
    let elifs = format!("{{% if x %}}{}{{% endif %}}", "{% elif x %}".repeat(5000));
    for source in [
        "{% set ns = namespace() %}{% set ns.x = ns %}{{ ns|string }}",
        "{% set ns = namespace() %}{% set ns.x = [ns] %}{{ ns.x ~ 'a' }}",
        "{% for x in [1] %}{{ loop.cycle(*[]) }}{% endfor %}",
    ] {
        let rendered = ChatTemplate::new(source).and_then(|template| template.render(&[], true));
        assert!(matches!(rendered, Err(Error::Template(_))), "{source}: {rendered:?}");
    }
    for (source, expected) in [("{{ [1, 2][::-9223372036854775808] }}", "[2]"), (&elifs, "")] {
        assert_eq!(ChatTemplate::new(source).and_then(|template| template.render(&[], true)).unwrap(), expected);
    }
    // Values nested to the maximum depth, and deeper.
    let deep = |count: usize| {
        let source = "{% set ns = namespace(x=[]) %}{% for i in range(COUNT) %}{% set ns.x = [ns.x] %}{% endfor %}x";
        ChatTemplate::new(&source.replace("COUNT", &count.to_string())).and_then(|template| template.render(&[], true))
    };
    assert_eq!(deep(450).unwrap(), "x");
    assert!(deep(40_000).unwrap_err().to_string().contains("nested deeper"));
    // Namespaces may contain each other, and are freed.
    let chain = "{% set ns = namespace(x=0) %}{% for i in range(9999) %}{% set n = namespace(x=ns.x, y=ns) %}{% set ns.x = n %}{% endfor %}x";
    assert_eq!(ChatTemplate::new(chain).and_then(|template| template.render(&[], true)).unwrap(), "x");
    // Inside of a string it is not a call.
    assert_eq!(ChatTemplate::new("{{ 'lifecycle()' }}").unwrap().render(&[], true).unwrap(), "lifecycle()");
}

/// Templates that are small, but take forever or make huge values: every filter, test, method and operator ends soon,
/// with an error that says why.
#[test]
fn templates_end_whatever_they_do() {
    let doubled = "{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{% set x = ns.x %}";
    let dicts = "{% set ns = namespace(x={'a': 1}) %}{% for i in range(60) %}{% set ns.x = {'a': ns.x, 'b': ns.x} %}{% endfor %}{% set x = ns.x %}";
    let tuples = "{% set ns = namespace(x=(1,)) %}{% for i in range(60) %}{% set ns.x = (ns.x, ns.x) %}{% endfor %}{% set x = ns.x %}";
    let other =
        "{% set ns.y = ns.x[0] %}{% set ns.x = 1 %}{% for i in range(1) %}{% set ns.x = [ns.y, ns.y] %}{% endfor %}";
    let uses = [
        "x | tojson",
        "x | string",
        "x | pprint",
        "x ~ ''",
        "x",
        "x | tojson(indent=1, sort_keys=true)",
        "'%s' % x",
        "'%r' % (x,)",
        "'{}'.format(x)",
        "'{!r:>9}'.format(x)",
        "x | join",
        "[x] | map('string') | list",
        "x | urlencode",
        "x | escape",
        "x | upper",
        "x | title",
        "x | wordcount",
        "x | center",
        "x | trim",
        "x | forceescape",
        "x | replace('a', 'b')",
        "x | striptags",
        "raise_exception(x)",
        "x is lower",
    ];
    let begin = std::time::Instant::now();
    let mut count = 0;
    for make in [doubled, dicts, tuples] {
        // Tests all uses of one value, and the first few of the others.
        for used in uses.into_iter().take(if make == doubled { uses.len() } else { 6 }) {
            if make == dicts && used.contains("join") {
                // Tests the keys only.
                continue;
            }
            let source = format!("{make}{{{{ {used} }}}}");
            let result = ChatTemplate::new(&source).and_then(|template| template.render(&[], true));
            let error = result.expect_err(used).to_string();
            assert!(error.contains("which is the limit") || used.contains("urlencode"), "{used}: {error}");
            count += 1;
        }
    }
    // Equal values that are not the same object: comparisons, containment, hashes.
    let twice = format!("{doubled}{}", doubled.replace("ns", "ms").replace("set x =", "set y ="));
    for used in [
        "x == y",
        "x < y",
        "x in [y]",
        "[x, y] | sort",
        "[x, y] | max",
        "[x].index(y)",
        "[x].count(y)",
        "x is eq y",
        "[x] | select('eq', y) | list",
    ] {
        let source = format!("{twice}{{{{ {used} }}}}");
        let error = ChatTemplate::new(&source).and_then(|template| template.render(&[], true)).expect_err(used);
        assert!(error.to_string().contains("which is the limit"), "{used}: {error}");
        count += 1;
    }
    let error =
        ChatTemplate::new(&format!("{tuples}{{{{ {{x: 1}} }}}}")).and_then(|template| template.render(&[], true));
    assert!(error.unwrap_err().to_string().contains("which is the limit"));
    // Small values of the same kind are accepted.
    for (used, expected) in
        [("x | length", "2"), ("x is sequence", "True"), ("x | first | length", "2"), ("x == x", "True")]
    {
        let source = format!("{doubled}{other}{{{{ {used} }}}}");
        assert_eq!(ChatTemplate::new(&source).and_then(|template| template.render(&[], true)).unwrap(), expected);
    }
    // Values that become huge in one step.
    for source in [
        "{{ 'a' * 10 ** 12 }}",
        "{{ [1] * 10 ** 12 }}",
        "{{ 'a'.center(10 ** 12) }}",
        "{{ 'a'.ljust(10 ** 12) }}",
        "{{ '1'.zfill(10 ** 12) }}",
        "{{ '%1000000000d' % 1 }}",
        "{{ '%.1000000000f' % 1 }}",
        "{{ '{:1000000000}'.format(1) }}",
        "{{ '{:.1000000000f}'.format(1.5) }}",
        "{{ '{:01000000000,}'.format(1) }}",
        "{{ 'a' | indent(10 ** 12, true) }}",
        "{{ [1] | batch(10 ** 9, 0) | list }}",
        "{{ [1] | slice(10 ** 9, 0) | list }}",
        "{{ [1] | tojson(indent=10 ** 12) }}",
        "{{ '\t'.expandtabs(10 ** 12) }}",
        "{{ 2 ** 1000 }}",
        "{{ 10 ** 30 * 10 ** 30 }}",
        "{{ range(10 ** 12) }}",
        "{{ strftime_now('%999999999Y%999999999Y%999999999Y') * 99 }}",
        "{% set ns = namespace(x='a') %}{% for i in range(99) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
        "{% set ns = namespace(x='a') %}{% for i in range(99) %}{% set ns.x = ns.x.replace('a', 'aa') %}{% endfor %}",
        "{% set ns = namespace(x=[1]) %}{% for i in range(99) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
        "{% set ns = namespace(x='a') %}{% for i in range(99) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
        "{% set ns = namespace(x='a') %}{% for i in range(99) %}{% set ns.x = [ns.x, ns.x] | join %}{% endfor %}",
        "{% set ns = namespace(x='aa') %}{% for i in range(99) %}{% set ns.x %}{{ ns.x }}{{ ns.x }}{% endset %}{% endfor %}",
        "{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}",
        "{% macro f(x) %}{{ f(x) }}{{ f(x) }}{% endmacro %}{{ f(1) }}",
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{% for a in range(99999) %}{{ range(99999) | list | length }}{% endfor %}",
        "{% for a in range(99999) %}{{ range(99999) | sum }}{% endfor %}",
        "{% for a in [[[]]] recursive %}{{ loop([[a]]) }}{% endfor %}",
        "{% set x = 'ab ' * 99999 %}{% for a in range(99999) %}{{ x.split() | length }}{% endfor %}",
        "{% set x = 'ab ' * 99999 %}{% for a in range(99999) %}{{ x | wordwrap(3) | length }}{% endfor %}",
        "{% set x = 'ab ' * 99999 %}{% for a in range(99999) %}{{ x is upper }}{{ x.find('c') }}{{ 'c' in x }}{% endfor %}",
    ] {
        let result = ChatTemplate::new(source).and_then(|template| template.render(&[], true));
        let error = result.expect_err(source).to_string();
        assert!(
            error.contains("limit")
                || error.contains("too big")
                || error.contains("too large")
                || error.contains("Too many"),
            "{source}: {error}"
        );
        count += 1;
    }
    let took = begin.elapsed();
    assert!(took.as_secs() < 6 * count, "{took:?} for {count} templates");
}
