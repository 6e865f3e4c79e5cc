//! Statistics of an answer, as ExecuTorch's runner reports them.

use std::fmt::Write as _;

/// Token counts of an answer, and times in milliseconds since the epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    pub model_load_start: u128,
    pub model_load_end: u128,
    pub inference_start: u128,
    pub prompt_eval_end: u128,
    pub first_token: u128,
    pub inference_end: u128,
    /// Milliseconds in which the model ran.
    pub model_execution: u128,
    pub prompt_tokens: usize,
    /// As [`generated_tokens`] counts them.
    pub generated_tokens: usize,
}

/// Counts the tokens of an answer as the loop of ExecuTorch's runner does. It leaves out the first token, because the logits of the
/// prompt give it. It counts the token with which the model ends the answer (`num_generated_tokens` in ExecuTorch's
/// `text_llm_runner.cpp`, `pos - start_pos` in its `text_token_generator.h`).
pub fn generated_tokens(tokens_of_answer: usize, has_end: bool) -> usize {
    (tokens_of_answer + usize::from(has_end)).saturating_sub(1)
}

impl Statistics {
    /// Returns the JSON of ExecuTorch's observers. A rate is left out if its time is 0.
    pub fn to_json(&self) -> String {
        let mut json = "{".to_owned();
        for (name, count, from, to) in [
            ("prefill_token_per_sec", self.prompt_tokens, self.inference_start, self.prompt_eval_end),
            ("decode_token_per_sec", self.generated_tokens, self.prompt_eval_end, self.inference_end),
        ] {
            let milliseconds = to.saturating_sub(from);
            if milliseconds > 0 {
                let _ = write!(json, "\"{name}\":{:.3},", count as f64 * 1000.0 / milliseconds as f64);
            }
        }
        for (name, value) in [
            ("prompt_tokens", self.prompt_tokens as u128),
            ("generated_tokens", self.generated_tokens as u128),
            ("model_load_start_ms", self.model_load_start),
            ("model_load_end_ms", self.model_load_end),
            ("inference_start_ms", self.inference_start),
            ("inference_end_ms", self.inference_end),
            ("prompt_eval_end_ms", self.prompt_eval_end),
            ("first_token_ms", self.first_token),
            ("aggregate_sampling_time_ms", 0),
            ("aggregate_model_execution_time_ms", self.model_execution),
        ] {
            let _ = write!(json, "\"{name}\":{value},");
        }
        json + "\"SCALING_FACTOR_UNITS_PER_SECOND\":1000}"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_counted_as_executorch_counts_them() {
        // With at most 40 new tokens, ExecuTorch's loop makes 39. If the model ends the answer, the end token counts.
        assert_eq!(generated_tokens(40, false), 39);
        assert_eq!(generated_tokens(5, true), 5);
        assert_eq!(generated_tokens(0, true), 0);
        assert_eq!(generated_tokens(0, false), 0);
    }

    #[test]
    fn rates_need_time() {
        let statistics =
            Statistics { inference_start: 5, prompt_eval_end: 5, inference_end: 1005, ..Statistics::default() };
        let json = Statistics { generated_tokens: 7, ..statistics }.to_json();
        assert!(json.starts_with("{\"decode_token_per_sec\":7.000,\"prompt_tokens\":0,"), "{json}");
        assert!(json.ends_with("\"SCALING_FACTOR_UNITS_PER_SECOND\":1000}"), "{json}");
    }
}
