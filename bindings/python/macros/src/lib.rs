//! `#[guarded]`, for what Python calls: a panic becomes a `rushlight.Error` there.
//!
//! PyO3 raises panics as an exception that `except Exception` does not catch.
#![forbid(unsafe_code)]

use std::str::FromStr;

use proc_macro::{Delimiter, Group, TokenStream, TokenTree};

/// Has the body of a function, or those of all functions of an `impl`, run in `crate::guard::guarded`. Results that are no
/// `PyResult` become one.
///
/// It stands above `#[pymethods]` and `#[pyfunction]`, so that they see what it makes.
#[proc_macro_attribute]
pub fn guarded(_: TokenStream, item: TokenStream) -> TokenStream {
    let tokens: Vec<TokenTree> = item.into_iter().collect();
    let is_impl = tokens.iter().any(|token| is_word(token, "impl"));
    let is_function = tokens.iter().any(|token| is_word(token, "fn"));
    // A function may return or take an `impl`; an `impl` has its functions in braces.
    if !is_impl || is_function {
        return functions(tokens);
    }
    let in_braces = |token| match token {
        TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => {
            let inner = functions(group.stream().into_iter().collect());
            TokenTree::Group(Group::new(Delimiter::Brace, inner))
        }
        other => other,
    };
    tokens.into_iter().map(in_braces).collect()
}

/// Guards each function among the items.
fn functions(tokens: Vec<TokenTree>) -> TokenStream {
    let mut done = TokenStream::new();
    let mut tokens = tokens.into_iter().peekable();
    while let Some(token) = tokens.next() {
        let is_function = is_word(&token, "fn");
        done.extend([token]);
        if !is_function {
            continue;
        }
        let name = tokens.peek().map(ToString::to_string).unwrap_or_default();
        let (mut head, mut body) = (Vec::new(), None);
        for token in tokens.by_ref() {
            match token {
                TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => {
                    body = Some(group);
                    break;
                }
                other => head.push(other),
            }
        }
        let Some(body) = body else {
            done.extend(head);
            continue;
        };
        // It has no way to fail, and calls nothing of the library.
        if name == "__releasebuffer__" {
            done.extend(head);
            done.extend([TokenTree::Group(body)]);
            continue;
        }
        done.extend(guarded_function(&head, &body));
    }
    done
}

/// Wraps the body of a function in the guard. `head` is the text between `fn` and the body; the result becomes a `PyResult`.
fn guarded_function(head: &[TokenTree], body: &Group) -> TokenStream {
    let arrow = head.windows(2).position(|pair| is_mark(&pair[0], '-') && is_mark(&pair[1], '>'));
    let (before, result) = match arrow {
        Some(at) => (&head[..at], &head[at + 2..]),
        None => (head, &[][..]),
    };
    let is_fallible = result.first().is_some_and(|token| is_word(token, "PyResult"));
    let text = |tokens: &[TokenTree]| tokens.iter().cloned().collect::<TokenStream>().to_string();
    let result = match result {
        [] => "()".to_owned(),
        given => text(given),
    };
    let result = if is_fallible { result } else { format!("::pyo3::PyResult<{result}>") };
    let body = TokenStream::from(TokenTree::Group(body.clone()));
    let guarded = if is_fallible { body } else { call("Ok", body) };
    let closure: TokenStream = TokenStream::from_str("move ||").into_iter().flatten().chain(guarded).collect();
    let mut function: TokenStream = before.iter().cloned().collect();
    function.extend(TokenStream::from_str(&format!("-> {result}")).unwrap_or_default());
    let call = call("crate::guard::guarded", closure);
    function.extend([TokenTree::Group(Group::new(Delimiter::Brace, call))]);
    function
}

/// A call of a function with one argument.
fn call(function: &str, argument: TokenStream) -> TokenStream {
    let mut call = TokenStream::from_str(function).unwrap_or_default();
    call.extend([TokenTree::Group(Group::new(Delimiter::Parenthesis, argument))]);
    call
}

fn is_word(token: &TokenTree, word: &str) -> bool {
    matches!(token, TokenTree::Ident(ident) if ident.to_string() == word)
}

fn is_mark(token: &TokenTree, mark: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == mark)
}
