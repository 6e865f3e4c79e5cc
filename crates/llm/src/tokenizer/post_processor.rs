//! Post-processors: the special tokens around a text.

use rustc_hash::FxHashMap;
use serde_json::Value as Json;

use super::settings::{damaged, id, kind, list, text};
use crate::error::Result;

/// Tokens before and after those of a text.
#[derive(Clone, Debug, Default)]
pub(super) struct SpecialTokensTemplate {
    before: Vec<u32>,
    after: Vec<u32>,
}

/// Maximum number of tokens around a text.
const MAX_SPECIAL_TOKENS: usize = 1024;

impl SpecialTokensTemplate {
    pub(super) fn of(json: &Json) -> Result<Self> {
        match kind(json)? {
            // ByteLevel changes the offsets of tokens only.
            "ByteLevel" => Ok(Self::default()),
            "BertProcessing" | "RobertaProcessing" => {
                Ok(Self { before: vec![id(&json["cls"][1])?], after: vec![id(&json["sep"][1])?] })
            }
            "TemplateProcessing" => Self::of_template(json),
            // Each processor adds its tokens around those of the processors before it.
            "Sequence" => list(json, "processors")?.iter().try_fold(Self::default(), |mut all, json| {
                let next = Self::of(json)?;
                all.before.splice(0..0, next.before);
                all.after.extend(next.after);
                all.check()?;
                Ok(all)
            }),
            other => Err(damaged(format!("the post-processor `{other}` is not known"))),
        }
    }

    fn of_template(json: &Json) -> Result<Self> {
        let special =
            json["special_tokens"].as_object().ok_or_else(|| damaged("a template has no `special_tokens`"))?;
        let mut ids: FxHashMap<&str, Vec<u32>> = FxHashMap::default();
        for (name, token) in special {
            ids.insert(name, list(token, "ids")?.iter().map(id).collect::<Result<_>>()?);
        }
        let (mut this, mut is_after_text) = (Self::default(), false);
        for part in list(json, "single")? {
            if !part["Sequence"].is_null() {
                if is_after_text {
                    return Err(damaged("a template has the text twice"));
                }
                is_after_text = true;
                continue;
            }
            let name = text(&part["SpecialToken"], "id")?;
            let ids = ids.get(name).ok_or_else(|| damaged(format!("the template's token `{name}` is not defined")))?;
            if is_after_text { &mut this.after } else { &mut this.before }.extend(ids);
            this.check()?;
        }
        Ok(this)
    }

    /// Fails for more than [`MAX_SPECIAL_TOKENS`].
    fn check(&self) -> Result<()> {
        if self.before.len() + self.after.len() > MAX_SPECIAL_TOKENS {
            return Err(damaged(format!("a template has more than {MAX_SPECIAL_TOKENS} special tokens")));
        }
        Ok(())
    }

    /// Adds the special tokens around those of a text.
    pub(super) fn add(&self, tokens: &mut Vec<u32>) {
        tokens.splice(0..0, self.before.iter().copied());
        tokens.extend(&self.after);
    }
}
