//! The tokenizer that a program of a language model carries: its files among the named data, which runtimes ignore.
//!
//! The key of a file is [`KEY_PREFIX`] and the file's name, and the data are its bytes: one file with the vocabulary, and
//! any of [`SETTINGS`].

/// Prefix of the keys of a tokenizer's files.
pub const KEY_PREFIX: &str = "rushlight.tokenizer/";

/// The vocabulary as Hugging Face has it.
pub const HUGGING_FACE: &str = "tokenizer.json";

/// Names of the vocabulary's file, by priority: those of Hugging Face, of Mistral, of SentencePiece and Llama 3, and of
/// ExecuTorch. A file of another name is stored as [`OTHER_VOCABULARY`]; its kind is detected from its content.
pub const VOCABULARIES: [&str; 4] = [HUGGING_FACE, "tekken.json", OTHER_VOCABULARY, "tokenizer.bin"];

/// The name of a vocabulary whose file is called otherwise.
pub const OTHER_VOCABULARY: &str = "tokenizer.model";

/// The metadata of a GGUF file, with the vocabulary, as one without tensors.
pub const GGUF: &str = "tokenizer.gguf";

/// Hugging Face's special tokens and chat template. These files are read in this order.
pub const TOKENIZER_CONFIG: &str = "tokenizer_config.json";
/// The tokens that end an answer.
pub const GENERATION_CONFIG: &str = "generation_config.json";
/// The chat template, which replaces that of [`TOKENIZER_CONFIG`].
pub const CHAT_TEMPLATE: &str = "chat_template.jinja";

/// Files of settings beside the vocabulary.
pub const SETTINGS: [&str; 3] = [TOKENIZER_CONFIG, GENERATION_CONFIG, CHAT_TEMPLATE];

/// Maximum bytes of a vocabulary.
pub const MAX_VOCABULARY: u64 = 64 << 20;

/// Maximum bytes of a file of settings; those that list the added tokens again have a megabyte.
pub const MAX_SETTINGS: u64 = 16 << 20;

/// The tokenizer's files among named data, by their names.
pub fn files<'a, T>(named_data: impl Iterator<Item = (&'a str, T)>) -> impl Iterator<Item = (&'a str, T)> {
    named_data.filter_map(|(key, data)| Some((key.strip_prefix(KEY_PREFIX)?, data)))
}
