//! The text form of a model, for people, and to read back.
//!
//! ```text
//! constant @scale : f32[] = [0.5]
//! constant @conv.weight : f32[16, 3, 3, 3] = content 4f1c0d9e22a7b360
//! state $cache : f32[1, 8] = zeros
//!
//! method forward {
//!   symbol s77 in 2..=64
//!   input %x : f32[s77, 3, 8, 8]
//!   %conv = aten::convolution(%x, @conv.weight, none, [1, 1], [1, 1], [1, 1], false, [0, 0], 1) : f32[s77, 16, 8, 8]  # 0: block.conv  model.py:41
//!   %y = cond(true, {
//!     %relu = aten::relu(%conv) : f32[s77, 16, 8, 8]
//!     yield %relu
//!   }, {
//!     yield %conv
//!   }) : f32[s77, 16, 8, 8]
//!   return %y
//!   update $cache = %y
//! }
//! ```
//!
//! Values start with `%`, constants with `@` and states with `$`. Names that are no words stand in quotes; where several
//! things have the same name, later ones are told apart by a number after `~`, which is not part of the name. Line
//! breaks and indentation mean nothing; `#` starts a comment, but `# 0:` after a node is its origin, listed at the end
//! of the method. Content that is not short stands as its hash, and is kept beside the text in [`Contents`].

mod content;
mod cursor;
mod names;
mod parse;
mod print;
mod schema;

#[cfg(test)]
mod tests;

use rustc_hash::FxHashMap;

use crate::Error;

use super::{ConstantData, Model};

/// Level of detail of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// For readers: each node's module and innermost line of Python; no hashes of content, which take reading
    /// all weights.
    Review,
    /// All that a model is, so that it can be read back.
    Exact,
}

/// The content that a text refers to, by hash.
#[derive(Clone, Debug, Default)]
pub struct Contents(FxHashMap<u64, ConstantData>);

impl Contents {
    /// The content with a hash.
    pub fn get(&self, hash: u64) -> Option<&ConstantData> {
        self.0.get(&hash)
    }

    /// Number of distinct contents.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Model {
    /// The text form, and the content that it refers to. Holds what runs or is stored; dead nodes and constants that
    /// nothing uses are left out.
    ///
    /// # Errors
    /// Where content cannot be read.
    pub fn to_text(&self, detail: Detail) -> Result<(String, Contents), Error> {
        print::print(self, detail)
    }

    /// Reads a text of full detail.
    ///
    /// # Errors
    /// `Input`, with line and column, for a malformed text, an unknown name, or missing content.
    pub fn parse(text: &str, contents: &Contents) -> Result<Self, Error> {
        parse::parse(text, contents)
    }
}
