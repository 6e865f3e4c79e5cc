//! The table's entry for the microcontroller backend. Its operators run on the runtime's kernels.

use rushlight_compiler::partition::Backend;
use rushlight_cortex_m_compile::CortexM;

use super::{BackendInfo, Destination, Halves};

pub(super) const CORTEX_M: BackendInfo = BackendInfo {
    name: "cortex-m",
    about: "int8 operators for microcontrollers, with the results of CMSIS-NN; for quantized models",
    halves: Some(Halves {
        compile: Some(compile),
        #[cfg(feature = "_backends")]
        run: None,
        #[cfg(all(feature = "pt2", feature = "_backends"))]
        calibrating: None,
    }),
};

fn compile(_: &Destination) -> Box<dyn Backend> {
    Box::new(CortexM::default())
}
