//! Regular expressions of pre-tokenizers, as tokenizers are trained with them.

/// GPT-2.
pub(super) const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";

/// As GPT-4 has words, with digits of their own number.
macro_rules! gpt4 {
    ($digits:literal) => {
        concat!(
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|",
            $digits,
            r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
        )
    };
}

/// Words that end where capitals begin, with what may follow a word.
macro_rules! cased {
    ($digits:literal, $suffix:literal) => {
        concat!(
            r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+",
            $suffix,
            r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*",
            $suffix,
            "|",
            $digits,
            r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
        )
    };
}

/// GPT-4 (`cl100k_base`), as files spell it. Its possessive quantifiers only save time.
pub(super) const POSSESSIVE_CL100K: &str = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s";
/// The same without.
pub(super) const CL100K: &str =
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s+$|\s*[\r\n]|\s+(?!\S)|\s";
/// Llama 3.
pub(super) const LLAMA3: &str = gpt4!(r"\p{N}{1,3}");
/// Qwen.
pub(super) const QWEN: &str = gpt4!(r"\p{N}");
/// GPT-4o (`o200k_base`) and Llama 4.
pub(super) const O200K: &str = cased!(r"\p{N}{1,3}", r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?");
/// Mistral's Tekken.
pub(super) const TEKKEN: &str = cased!(r"\p{N}", "");
