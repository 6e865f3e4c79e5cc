//! The graph as a web page without any other file.

use crate::markup::escaped;

use super::ModelView;

const STYLE: &str = include_str!("page.css");
const LAYOUT: &str = include_str!("layout.js");
const PAGE: &str = include_str!("page.js");

/// A page that draws the graph of each method: layers from top to bottom, modules that open and close, search, and the
/// details of each node. Only the visible part is drawn, so that the page stays fast with ten thousand nodes.
pub fn html(title: &str, model: &ModelView) -> String {
    // In the text of a script only `<` can end it, or begin a comment.
    let data = serde_json::to_string(model).unwrap_or_else(|_| r#"{"methods":[]}"#.to_owned()).replace('<', "\\u003c");
    let title = escaped(title);
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<title>Graph of {title}</title>\n\
         <style>\n{STYLE}</style>\n<header><h1>{title}</h1><select id=\"method\" aria-label=\"Method\"></select>\
         <span id=\"count\"></span><input id=\"search\" type=\"search\" placeholder=\"name, operator, module or type\">\
         <button id=\"fold\" title=\"Close modules\">fold</button><button id=\"unfold\" title=\"Open modules\">unfold\
         </button><button id=\"in\">+</button><button id=\"out\">−</button><button id=\"fit\">fit</button></header>\n\
         <main><canvas id=\"graph\"></canvas></main>\n<aside><div id=\"found\"></div><div id=\"details\"></div></aside>\n\
         <script type=\"application/json\" id=\"data\">{data}</script>\n<script>\n{LAYOUT}\n{PAGE}</script>\n</html>\n"
    )
}
