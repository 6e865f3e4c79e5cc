//! Pre-tokenizers by the names that llama.cpp gives them in GGUF files.

use serde_json::{Value as Json, json};

use super::split_patterns::{GPT2, LLAMA3, O200K, QWEN, TEKKEN};

/// A pre-tokenizer of BPE of bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct GgufPreTokenizer {
    names: &'static [&'static str],
    steps: &'static [Step],
    /// True if words that are tokens stay whole.
    pub(super) ignores_merges: bool,
    /// True if texts begin with a token, unless the file says otherwise.
    pub(super) adds_bos: bool,
}

/// A pre-tokenizer of a sequence.
#[derive(Clone, Copy, Debug)]
enum Step {
    Split(&'static str),
    /// Runs of punctuation.
    Punctuation,
    PunctuationMark,
    /// Runs of digits.
    Digits,
    /// GPT-2's words, whose bytes are characters in later steps. Otherwise bytes come last.
    WordsOfBytes,
}

use Step::{Digits, Punctuation, PunctuationMark, Split, WordsOfBytes};

const fn named(names: &'static [&'static str], steps: &'static [Step]) -> GgufPreTokenizer {
    GgufPreTokenizer { names, steps, ignores_merges: false, adds_bos: false }
}

const DIGIT: Step = Split(r"\p{N}");
const HAN_AND_KANA: Step = Split("[一-龥\u{3040}-ゟ゠-ヿ]+");
const CJK: Step = Split("[一-龥ࠀ-一가-\u{d7ff}]+");
const LINE_BREAK: Step = Split(r"[\r\n]");
const DEEPSEEK_V3: Step = Split(
    r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"##,
);
/// Letters with case, but for those of mathematics and some of Armenian, Georgian, Coptic, Latin and others.
const CASED: Step = Split(concat!(
    r"\s?[[\p{Lu}\p{Ll}\p{Lt}&&\p{age:14.0}]--\x{560}-\x{588}\x{10C7}-\x{10FF}\x{1C80}-\x{1C8F}\x{2D00}-\x{2D2F}\x{A78F}-\x{A7FF}",
    r"\x{AB30}-\x{AB6F}\x{10570}-\x{105BF}\x{16E40}-\x{16E7F}\x{1D400}-\x{1D7FF}\x{1DF00}-\x{1DFFF}]+"
));
const ASCII_AND_WIDE_SIGNS: Step = Split(r"\s?[!-/:-~！-／：-～‘-‟\x{3000}-。]+");
const BLOOM: Step = Split(r" ?[^(\s|.,!?…。，、।۔،)]+");
const QWEN35: Step = Split(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
);
const BAILING: Step =
    Split(r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+");
const SEED_CODER: Step = Split(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+",
);
const EXAONE_MOE: Step = Split(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+",
);
/// GPT-4o's, with ideographs apart.
const KIMI_K2: Step = Split(
    r"\p{Han}+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
);

const PRE_TOKENIZERS: &[GgufPreTokenizer] = &[
    named(
        &[
            "gpt-2",
            "mpt",
            "olmo",
            "jais",
            "phi-2",
            "trillion",
            "exaone4",
            "gigachat",
            "a.x-4.0",
            "mellum",
            "modern-bert",
            "granite-docling",
            "jina-es",
            "jina-de",
            "jina-v2-es",
            "jina-v2-de",
            "jina-v1-en",
            "jina-v2-code",
            "roberta-bpe",
        ],
        &[Split(GPT2)],
    ),
    named(
        &["smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b", "mellum2"],
        &[DIGIT, Split(GPT2)],
    ),
    GgufPreTokenizer {
        ignores_merges: true,
        adds_bos: true,
        ..named(
            &[
                "llama-bpe",
                "llama3",
                "llama-v3",
                "lfm2",
                "smollm3",
                "falcon3",
                "falcon-h1",
                "pixtral",
                "midm-2.0",
                "jina-v5-nano",
            ],
            &[Split(LLAMA3)],
        )
    },
    named(&["dbrx", "smaug-bpe", "chatglm-bpe", "glm4"], &[Split(LLAMA3)]),
    named(
        &["qwen2", "deepseek-r1-qwen", "hunyuan", "stablelm2", "megrez", "grok-2", "solar-open", "kormo", "f2llmv2"],
        &[Split(QWEN)],
    ),
    named(&["qwen35"], &[QWEN35]),
    named(&["gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"], &[Split(O200K)]),
    GgufPreTokenizer { ignores_merges: true, adds_bos: true, ..named(&["tekken"], &[Split(TEKKEN)]) },
    named(&["deepseek-llm"], &[LINE_BREAK, CASED, ASCII_AND_WIDE_SIGNS, Split(r"\s+$"), CJK, Digits]),
    named(&["deepseek-coder"], &[LINE_BREAK, Split(r"\s?\p{L}+"), Split(r"\s?\p{P}+"), CJK, DIGIT]),
    named(&["deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"], &[Split(r"\p{N}{1,3}"), HAN_AND_KANA, DEEPSEEK_V3]),
    named(&["falcon"], &[Punctuation, WordsOfBytes, Digits, Split("[0-9][0-9][0-9]")]),
    named(&["default"], &[Punctuation, Split(GPT2), Digits, Split("[0-9][0-9][0-9]")]),
    named(&["bloom", "poro-chat", "gpt3-finnish"], &[BLOOM]),
    named(&["viking"], &[BLOOM, DIGIT]),
    GgufPreTokenizer {
        adds_bos: true,
        ..named(
            &["chameleon"],
            &[
                Split("<sentinel:[0-9]+>"),
                Split("IMGIMG[A-I]{1,4}Z"),
                Split(r"[\t\n]|    |  "),
                DIGIT,
                PunctuationMark,
                Split(GPT2),
            ],
        )
    },
    named(&["bailingmoe", "bailingmoe2", "llada-moe"], &[BAILING]),
    named(&["seed-coder"], &[SEED_CODER]),
    named(&["exaone-moe"], &[EXAONE_MOE]),
    named(&["kimi-k2"], &[KIMI_K2]),
];

impl GgufPreTokenizer {
    pub(super) fn of_name(name: &str) -> Option<Self> {
        PRE_TOKENIZERS.iter().find(|known| known.names.contains(&name)).copied()
    }

    /// All names that are known.
    pub(super) fn names() -> Vec<&'static str> {
        PRE_TOKENIZERS.iter().flat_map(|known| known.names).copied().collect()
    }

    /// The component of a `tokenizer.json`.
    pub(super) fn settings(&self) -> Json {
        let step = |step: &Step| match step {
            Split(pattern) => json!({ "type": "Split", "pattern": { "Regex": pattern }, "behavior": "Isolated" }),
            Punctuation => json!({ "type": "Punctuation", "behavior": "Contiguous" }),
            PunctuationMark => json!({ "type": "Punctuation", "behavior": "Isolated" }),
            Digits => json!({ "type": "Digits", "individual_digits": false }),
            WordsOfBytes => json!({ "type": "ByteLevel", "add_prefix_space": false, "use_regex": true }),
        };
        let mut steps: Vec<Json> = self.steps.iter().map(step).collect();
        if !self.steps.iter().any(|step| matches!(step, WordsOfBytes)) {
            steps.push(json!({ "type": "ByteLevel", "add_prefix_space": false, "use_regex": false }));
        }
        json!({ "type": "Sequence", "pretokenizers": steps })
    }
}
