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

/// All filters, tests, methods, operators, formats and statements.
#[test]
fn expressions_are_those_of_jinja() {
    let samples: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(folder("llm/jinja.json")).unwrap()).unwrap();
    let (mut wrong, mut count, mut left_out) = (Vec::new(), 0, 0);
    for row in samples["templates"].as_array().unwrap() {
        let source = row[0].as_str().unwrap();
        let result = ChatTemplate::new(source).and_then(|template| template.render(&[], false));
        count += 1;
        let is_right = match (&result, row[1].as_str(), row[2].as_str()) {
            (Err(error), _, Some(name)) => {
                left_out += 1;
                error.to_string().contains(name) && error.to_string().contains("not supported")
            }
            (Ok(text), Some(expected), None) => text == expected,
            (Err(_), None, None) => true,
            _ => false,
        };
        if !is_right {
            wrong.push(format!("{source}\n  got {result:?}\n  not {:?}", row[1]));
        }
    }
    assert!(wrong.is_empty(), "{} of {count}:\n{}", wrong.len(), wrong.join("\n"));
    assert!(count > 5000 && left_out > 5, "{count} templates, {left_out} left out");
}

#[test]
fn cases_of_all_letters_are_those_of_python() {
    let samples: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(folder("llm/jinja.json")).unwrap()).unwrap();
    let cases = samples["cases"].as_object().unwrap();
    for (method, expected) in cases.iter().filter(|(method, _)| *method != "text") {
        let template = ChatTemplate::new(&format!("{{{{ text.{method}() }}}}")).unwrap();
        let text = template.with_variable("text", cases["text"].clone()).render(&[], false).unwrap();
        assert_eq!(text, expected.as_str().unwrap(), "{method}");
    }
}
