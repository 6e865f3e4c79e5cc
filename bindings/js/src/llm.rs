//! Language models: tokenizers, sessions and answers.

use std::rc::Rc;

use rushlight_js_plain::{chat_prompt, limits, llm_error, read_options, step, usage};
use rushlight_llm::{GenerationOptions, Generator, Model};
use wasm_bindgen::prelude::*;

use crate::memory::Bytes;
use crate::plain;

/// Converts text to tokens and back.
#[wasm_bindgen]
#[derive(Clone, Debug)]
pub struct Tokenizer(Rc<rushlight_llm::Tokenizer>);

#[wasm_bindgen]
impl Tokenizer {
    /// Reads the bytes of a tokenizer's file.
    #[wasm_bindgen(js_name = fromBytes)]
    pub fn from_bytes(file: Bytes) -> Result<Self, JsValue> {
        map(rushlight_llm::Tokenizer::from_bytes(file.bytes())).map(Self::of)
    }

    #[wasm_bindgen(getter, js_name = vocabularySize)]
    pub fn vocabulary_size(&self) -> usize {
        self.0.vocab_size()
    }

    pub fn encode(&self, text: &str, special: bool) -> Result<Vec<u32>, JsValue> {
        map(self.0.encode(text, special))
    }

    pub fn decode(&self, tokens: &[u32], skip_special: bool) -> Result<String, JsValue> {
        map(self.0.decode(tokens, skip_special))
    }

    /// Renders the chat template on messages, tools and variables, all of them JSON.
    #[wasm_bindgen(js_name = chatPrompt)]
    pub fn chat_prompt(&self, messages: &str, tools: &str, variables: &str, answers: bool) -> Result<String, JsValue> {
        map(chat_prompt(&self.0, messages, tools, variables, answers))
    }
}

impl Tokenizer {
    fn of(tokenizer: rushlight_llm::Tokenizer) -> Self {
        Self(Rc::new(tokenizer))
    }
}

/// A program that is a language model, and its tokenizer.
#[wasm_bindgen]
#[derive(Debug)]
pub struct LanguageModel {
    model: Model,
    tokenizer: Tokenizer,
}

#[wasm_bindgen]
impl LanguageModel {
    /// Loads the bytes of a `.pte` file with those of `.ptd` files. The bytes of a tokenizer are needed if the program
    /// carries none.
    pub fn load(
        program: Bytes,
        data: Vec<Bytes>,
        tokenizer: Option<Bytes>,
        names: Vec<String>,
        texts: Vec<String>,
    ) -> Result<Self, JsValue> {
        let builder = crate::module::builder(&names, &texts, data)?.threads(1);
        let module = plain::map(builder.load_shared(program.shared()))?;
        let tokenizer = match tokenizer {
            Some(file) => rushlight_llm::Tokenizer::from_bytes(file.bytes()),
            None => rushlight_llm::Tokenizer::of_model(module.program(), None),
        };
        Ok(Self { tokenizer: Tokenizer::of(map(tokenizer)?), model: map(Model::new(module))? })
    }

    #[wasm_bindgen(getter)]
    pub fn tokenizer(&self) -> Tokenizer {
        self.tokenizer.clone()
    }

    /// The model's metadata.
    pub fn describe(&self) -> JsValue {
        plain::to_js(limits(self.model.limits(), &self.tokenizer.0))
    }

    /// Makes a session without tokens.
    pub fn session(&mut self) -> Result<Session, JsValue> {
        map(self.model.session()).map(Session)
    }
}

/// The tokens of a conversation so far, with the model's KV cache for them.
#[wasm_bindgen]
#[derive(Debug)]
pub struct Session(rushlight_llm::Session);

#[wasm_bindgen]
impl Session {
    #[wasm_bindgen(getter)]
    pub fn position(&self) -> usize {
        self.0.position()
    }

    /// Removes all tokens. Also makes a session usable again whose last call failed.
    pub fn reset(&mut self, llm: &mut LanguageModel) -> Result<(), JsValue> {
        map(self.0.reset(&mut llm.model))
    }

    /// Removes the tokens after the first `position` tokens.
    pub fn rewind(&mut self, llm: &mut LanguageModel, position: usize) -> Result<(), JsValue> {
        map(self.0.rewind(&mut llm.model, position))
    }

    /// Keeps the common prefix of the session and a prompt, and removes the other tokens. Returns the number of tokens
    /// that are kept.
    #[wasm_bindgen(js_name = keepCommonPrefix)]
    pub fn keep_common_prefix(&mut self, llm: &mut LanguageModel, tokens: &[u32]) -> Result<usize, JsValue> {
        map(self.0.keep_common_prefix(&mut llm.model, tokens))
    }

    /// Makes a session with the same tokens.
    pub fn fork(&self) -> Result<Self, JsValue> {
        map(self.0.fork()).map(Self)
    }

    /// Reads tokens. Returns the logits of the token after them.
    pub fn prefill(&mut self, llm: &mut LanguageModel, tokens: &[u32]) -> Result<Vec<f32>, JsValue> {
        map(self.0.prefill(&mut llm.model, tokens)).map(<[f32]>::to_vec)
    }
}

/// An answer while it is generated.
#[wasm_bindgen]
#[derive(Debug)]
pub struct Answer(Generator);

#[wasm_bindgen]
impl Answer {
    /// Adds the tokens of a prompt to a session. If there are none, the answer continues from the session's last token.
    /// Options have names in camel case, with values as text.
    pub fn start(
        llm: &mut LanguageModel,
        session: &mut Session,
        prompt: &[u32],
        names: Vec<String>,
        texts: Vec<String>,
    ) -> Result<Self, JsValue> {
        let LanguageModel { model, tokenizer } = llm;
        let options: GenerationOptions = plain::map(read_options(&names, &texts))?;
        let generation = map(options.generation(&tokenizer.0))?;
        map(Generator::start(model, &mut session.0, &tokenizer.0, prompt, generation)).map(Self)
    }

    /// Chooses the next token. Returns its text and number; `undefined` when the answer is over.
    pub fn step(&mut self, llm: &mut LanguageModel, session: &mut Session) -> Result<JsValue, JsValue> {
        let next = map(self.0.step(&mut llm.model, &mut session.0, &llm.tokenizer.0))?;
        Ok(plain::to_js(next.map(step).into()))
    }

    /// Returns counts of tokens, times in milliseconds, and the reason why the answer ended.
    pub fn usage(&self) -> JsValue {
        plain::to_js(usage(&self.0.usage()))
    }
}

/// Converts a result of the library.
fn map<T>(result: rushlight_llm::Result<T>) -> Result<T, JsValue> {
    result.map_err(|error| plain::to_js(llm_error(&error)))
}
