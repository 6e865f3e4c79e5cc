//! A backend that gives operators: it has no payload and no run-time half. It computes `x + y * scale` by one operator of its own.
//! The kernel of the operator is registered with the runtime, as those of `cortex_m::*` and `cadence::*` are.

use rushlight::compiler::partition::{Backend, Canonical, Claim, Claims, Compiled, Part};
use rushlight::compiler::passes::rewrite;
use rushlight::graph::operators::aten;
use rushlight::graph::{Action, Call, Def, Error, Graph, Model, NodeId, Op, ValueId};
use rushlight::runtime::{KernelContext, Result};
use rushlight::{Op as Kernel, OpSet, ScalarType};

/// The operator, as PyTorch prints schemas.
const SCALE_ADD: &str = "testing::scale_add(Tensor x, Tensor y, float scale) -> Tensor";

const NAME: &str = "testing::scale_add";

/// The ahead-of-time half. Programs need [`SCALE_ADD_OPS`] to run.
#[derive(Clone, Copy, Debug, Default)]
pub struct ScaleAdd;

impl Backend for ScaleAdd {
    fn name(&self) -> &'static str {
        "ScaleAdd"
    }

    fn operators(&self) -> &'static [&'static str] {
        &[SCALE_ADD, aten::RELU]
    }

    fn claim(&self, canonical: &Canonical<'_>, claims: &mut Claims) -> std::result::Result<(), Error> {
        let users = canonical.graph.users();
        for node in canonical.nodes().filter(|node| !canonical.is_claimed(*node)) {
            if let Some(ScaledSum { value, product, .. }) = scaled_sum(canonical.graph, node) {
                claims.set(node, Claim::Take);
                // The multiplication comes before the addition, and was refused. This claim replaces the refusal.
                let is_alone = users.get(&value).is_some_and(|users| users.iter().all(|user| *user == Some(node)));
                claims.set(product, if is_alone { Claim::Inner } else { Claim::Copy });
            } else if canonical.graph.nodes[node].op.name() == aten::RELU {
                claims.set(node, Claim::Take);
            } else {
                claims.set(node, Claim::Refuse("no ReLU, and no sum of a tensor and a scaled one".into()));
            }
        }
        Ok(())
    }

    fn compile(&self, part: &Part) -> std::result::Result<Compiled, Error> {
        let mut model = part.model.clone();
        fuse(&mut model)?;
        Ok(Compiled::Operators(model))
    }
}

/// Replaces additions by the operator. Multiplications without another user are removed.
fn fuse(model: &mut Model) -> std::result::Result<(), Error> {
    rewrite(model, |builder, node| {
        let Some(ScaledSum { x, y, scale, .. }) = scaled_sum(builder.graph, node) else { return Ok(Action::Keep) };
        let schema = builder.schemas().expect(NAME)?;
        let ty = builder.graph.ty(Call::new(builder.graph, node).result()?).clone();
        Ok(Action::Replace(builder.push(Op::Call(schema), vec![x.into(), y.into(), scale.into()], vec![ty])))
    })
}

/// `x + y * scale` for tensors of `f32` and one shape.
struct ScaledSum {
    x: ValueId,
    y: ValueId,
    scale: f64,
    /// The result of the multiplication, and its node.
    value: ValueId,
    product: NodeId,
}

fn scaled_sum(graph: &Graph, node: NodeId) -> Option<ScaledSum> {
    let call = Call::new(graph, node);
    if call.name() != aten::ADD_TENSOR || call.number("alpha").is_some_and(|alpha| alpha != 1.0) {
        return None;
    }
    let (x, value) = (call.optional("self")?, call.optional("other")?);
    let Def::Result(product, 0) = graph.values[value].def else { return None };
    let factor = Call::new(graph, product);
    let (y, scale) = (factor.optional("self")?, factor.number("other")?);
    let result = graph.tensor(call.result().ok()?).ok()?;
    let alike = |value| graph.tensor(value).is_ok_and(|ty| ty.dtype == ScalarType::Float && ty.shape == result.shape);
    (factor.name() == aten::MUL_SCALAR && alike(x) && alike(y)).then_some(ScaledSum { x, y, scale, value, product })
}

/// `testing::scale_add.out(Tensor x, Tensor y, float scale, *, Tensor(a!) out) -> Tensor(a!)`
fn scale_add_out(context: &KernelContext<'_>) -> Result<()> {
    let (x, y, scale) = (context.tensor(0)?, context.tensor(1)?, context.double(2)? as f32);
    let mut out = context.out(3)?;
    out.resize(x.sizes())?;
    let operands = x.as_slice::<f32>()?.iter().zip(y.as_slice::<f32>()?);
    for (out, (x, y)) in out.as_mut_slice::<f32>()?.iter_mut().zip(operands) {
        *out = x + y * scale;
    }
    Ok(())
}

/// The kernels of [`ScaleAdd`]'s operators.
pub static SCALE_ADD_OPS: OpSet =
    OpSet { name: "SCALE_ADD_OPS", groups: &[&[&[Kernel::new("testing::scale_add.out", 4, scale_add_out)]]] };
