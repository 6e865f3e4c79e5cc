//! Chat templates are rendered as transformers does.

use rushlight_llm::ChatTemplate;

use crate::{folder, rows};

#[test]
fn templates_are_rendered_as_by_transformers() {
    let (mut texts, mut errors) = (0, 0);
    for row in rows(&folder("llm/templates.json")) {
        let template = ChatTemplate::new(row["template"].as_str().unwrap()).unwrap().with_special_tokens("<s>", "</s>");
        let prompt = row["add_generation_prompt"].as_bool().unwrap();
        let result = template.render_json(&row["messages"], &row["tools"], prompt);
        match (result, row["text"].as_str(), row["error"].as_str()) {
            (Ok(text), Some(expected), _) => {
                assert_eq!(text, expected, "{}", row["template"]);
                texts += 1;
            }
            (Err(error), _, Some(expected)) => {
                assert!(error.to_string().ends_with(expected), "{error}, not {expected}");
                errors += 1;
            }
            (result, expected, error) => panic!("{result:?}, not {expected:?} or {error:?}: {}", row["template"]),
        }
    }
    assert!(texts >= 20 && errors >= 2, "{texts} texts, {errors} errors");
}
