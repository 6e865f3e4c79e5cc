use rushlight_compiler::front::pt2::{self, Archive};
use rushlight_compiler::passes::*;
fn main() {
    for path in std::env::args().skip(1) {
        let bytes = std::fs::read(&path).unwrap();
        let run = || -> Result<String, rushlight_compiler::Error> {
            let archive = Archive::parse(bytes.clone().into()).map_err(rushlight_compiler::Error::from)?;
            let source = archive.model().map_err(rushlight_compiler::Error::from)?;
            let mut model = pt2::import(&[("forward", &source)], pt2::ImportOptions::default())?;
            model.verify()?;
            let count = |m: &rushlight_compiler::graph::Model| {
                m.methods
                    .values()
                    .map(|g| {
                        let mut n = 0;
                        g.for_each_node(g.body, &mut |_| n += 1);
                        n
                    })
                    .sum::<usize>()
            };
            let a = count(&model);
            let t = std::time::Instant::now();
            Functionalise.run(&mut model)?;
            let tf = t.elapsed();
            model.verify().map_err(|e| e.help("after functionalise"))?;
            for g in model.methods.values() {
                g.for_each_node(g.body, &mut |n| {
                    let n = g.nodes[n].op.name().split('.').next().unwrap().to_owned();
                    assert!(!n.ends_with('_') || n.ends_with("__"), "{n}");
                });
            }
            let b = count(&model);
            let t = std::time::Instant::now();
            MergeConstants.run(&mut model)?;
            MergeCommonSubexpressions.run(&mut model)?;
            EliminateDeadCode.run(&mut model)?;
            let tc = t.elapsed();
            model.verify().map_err(|e| e.help("after cse"))?;
            let (text, contents) = model.to_text(rushlight_compiler::graph::text::Detail::Exact)?;
            let again = rushlight_compiler::graph::Model::parse(&text, &contents)?;
            again.verify()?;
            assert_eq!(text, again.to_text(rushlight_compiler::graph::text::Detail::Exact)?.0);
            if std::env::var("SHOW").is_ok() {
                println!("{}", model.to_text(rushlight_compiler::graph::text::Detail::Review)?.0)
            }
            let updates: usize = model.methods.values().map(|g| g.updates.len()).sum();
            Ok(format!("{a} -> {b} -> {} updates {updates} {tf:?} {tc:?}", count(&model)))
        };
        match run() {
            Ok(t) => println!("ok {path} {t}"),
            Err(e) => println!("ERR {path}\n{e}"),
        }
    }
}
