//! A readable graph: the inputs and results of each node, and its place in the model's source, as JSON and as a web
//! page.

mod describe;
mod html;

use rushlight_graph::Model;
use serde::Serialize;

pub use html::html;

/// The view of a model.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ModelView {
    pub methods: Vec<MethodView>,
}

/// A method. The nodes of nested blocks precede the node that they belong to.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MethodView {
    pub name: String,
    /// Inputs, then nodes in the order in which they run, then outputs and updates. No node reads a value of a later
    /// one.
    pub nodes: Vec<NodeView>,
}

/// A node, an input, an output or an update.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NodeView {
    pub kind: NodeKind,
    /// The name of its first result, or of the stored value.
    pub name: String,
    /// Full name of the operator, or the kind.
    pub operator: String,
    /// The path of the module whose call it belongs to.
    pub module: String,
    /// The module's path; inside a nested block, that of the block: `net.1.while_loop body`.
    pub group: String,
    /// `file:line in function: code`, if known.
    pub source: Option<String>,
    /// The values that it reads: the index of the node, and the index among that node's results.
    pub inputs: Vec<(usize, usize)>,
    /// Names of parameters with their arguments, as text.
    pub arguments: Vec<(String, String)>,
    /// The constants and states that it reads.
    pub constants: Vec<ConstantView>,
    pub results: Vec<ResultView>,
}

/// The kind of a [`NodeView`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum NodeKind {
    Input,
    Operator,
    Output,
    /// A store at the end of a call.
    Update,
}

/// A result of a node.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ResultView {
    pub name: String,
    /// The type, such as `f32[1, s77]`.
    #[serde(rename = "type")]
    pub ty: String,
    /// Bytes at the largest sizes; `None` if it is not a tensor or has no bound.
    pub bytes: Option<u64>,
}

/// A constant or state that a node reads.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ConstantView {
    /// `constant` or `state`.
    pub kind: &'static str,
    #[serde(flatten)]
    pub value: ResultView,
}

impl ModelView {
    /// Describes every method of a model. The model must verify.
    pub fn of(model: &Model) -> Self {
        Self { methods: model.methods.iter().map(|(name, graph)| describe::method(name, graph, model)).collect() }
    }
}

#[cfg(test)]
mod tests {
    use rushlight_graph::operators::aten;
    use rushlight_graph::text::Contents;
    use serde_json::json;

    use super::*;

    const LOOP: &str = r#"
        constant @w : f32[4, 4] = zeros
        state $total : f32[4] = zeros
        method "forward" {
          symbol s0 in 1..=8
          input %x : f32[s0, 4]
          %mm = aten::mm(%x, @w) : f32[s0, 4]  # 0:
          %out = while_loop((%i : f32[s0, 4]) {
            %any = aten::any(%i) : bool[]
            yield %any
          }, (%j : f32[s0, 4]) {
            %neg = aten::neg(%j) : f32[s0, 4]
            yield %neg
          }, [%mm]) : f32[s0, 4]
          %sum = aten::sum.dim_IntList(%out, [0], false, none) : f32[4]
          %add = aten::add.Tensor(%sum, $total, 1) : f32[4]
          return %out
          update $total = %add
          origin 0 "mm" "net.fc"
            frame "/home/me/net.py" 7 "forward" "return x @ w"
        }
    "#;

    fn view() -> MethodView {
        let model = Model::parse(LOOP, &Contents::default()).unwrap();
        ModelView::of(&model).methods.remove(0)
    }

    fn node<'v>(view: &'v MethodView, name: &str) -> (usize, &'v NodeView) {
        view.nodes.iter().enumerate().find(|(_, node)| node.name == name).unwrap()
    }

    #[test]
    fn nodes_name_their_module_line_types_and_constants() {
        let view = view();
        let (_, mm) = node(&view, "mm");
        assert_eq!((mm.operator.as_str(), mm.module.as_str(), mm.group.as_str()), (aten::MM, "net.fc", "net.fc"));
        assert_eq!(mm.source.as_deref(), Some("net.py:7 in forward: return x @ w"));
        let result = ResultView { name: "mm".into(), ty: "f32[s0, 4]".into(), bytes: Some(8 * 4 * 4) };
        assert_eq!(mm.results, [result]);
        let (x, input) = node(&view, "x");
        assert_eq!(input.kind, NodeKind::Input);
        assert_eq!(mm.inputs, [(x, 0)]);
        assert_eq!(mm.arguments, [("self".into(), "%x".into()), ("mat2".into(), "@w".into())]);
        let constant = json!({ "kind": "constant", "name": "w", "type": "f32[4, 4]", "bytes": 64 });
        assert_eq!(serde_json::to_value(&mm.constants).unwrap(), json!([constant]));
        assert_eq!(node(&view, "add").1.constants[0].kind, "state");
    }

    #[test]
    fn nested_blocks_are_groups_that_take_what_their_node_is_given() {
        let view = view();
        let ((mm, _), (neg, inner), (any, condition)) = (node(&view, "mm"), node(&view, "neg"), node(&view, "any"));
        assert_eq!((inner.group.as_str(), condition.group.as_str()), ("out body", "out condition"));
        assert_eq!((&inner.inputs, &condition.inputs), (&vec![(mm, 0)], &vec![(mm, 0)]));
        let (_, out) = node(&view, "out");
        assert_eq!(out.inputs, [(mm, 0), (any, 0), (neg, 0)]);
        let (add, _) = node(&view, "add");
        let last: Vec<_> = view.nodes.iter().rev().take(2).map(|node| (node.kind, node.inputs.clone())).collect();
        assert_eq!(last[0], (NodeKind::Update, vec![(add, 0)]));
        assert_eq!(last[1].0, NodeKind::Output);
        let forward = view.nodes.iter().enumerate();
        assert!(
            forward
                .flat_map(|(at, node)| node.inputs.iter().map(move |(from, _)| (at, *from)))
                .all(|(at, from)| from < at)
        );
    }

    #[test]
    fn the_page_is_one_file_and_hostile_names_stay_text() {
        let hostile = "</script><script>alert('\"1\"')</script><!-- \\ &amp; \u{2028}";
        let mut view = ModelView { methods: vec![view()] };
        for node in &mut view.methods[0].nodes {
            for text in [&mut node.name, &mut node.operator, &mut node.module, &mut node.group] {
                hostile.clone_into(text);
            }
            node.source = Some(hostile.into());
            node.arguments.push((hostile.into(), hostile.into()));
        }
        view.methods[0].name = hostile.into();
        let page = html(hostile, &view);
        assert!(!page.contains("<script>alert"), "no text of the model is markup");
        assert!(!page.contains("<!-- \\"));
        assert_eq!(page.matches("<script").count(), 2, "the data and the program");
        assert_eq!(page.matches("</script").count(), 2);
        assert!(!page.contains("http://") && !page.contains("https://"), "the page needs nothing else");
        let data = page.split_once("<script type=\"application/json\" id=\"data\">").unwrap().1;
        let data: serde_json::Value = serde_json::from_str(data.split_once("</script>").unwrap().0).unwrap();
        assert_eq!(data["methods"][0]["nodes"][0]["name"], hostile);
        assert_eq!(data["methods"][0]["name"], hostile);
    }
}
