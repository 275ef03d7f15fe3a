//! The kinds whose qdiscs are the core's.

use softnet::qdisc::{Cx, Noqueue, PfifoFast};

use super::kind::Kind;
use super::spec::QdiscEnv;
use crate::handle::Handle;

impl Kind for Noqueue {
    type Spec = ();
    const NAME: &'static str = "noqueue";
    const CAN_CHANGE: bool = false;

    fn make((): &(), _: Handle, _: &QdiscEnv) -> Noqueue {
        Noqueue::default()
    }
}

impl Kind for PfifoFast {
    type Spec = u32;
    const NAME: &'static str = "pfifo_fast";

    fn make(&limit: &u32, _: Handle, _: &QdiscEnv) -> PfifoFast {
        PfifoFast::new(limit)
    }

    fn change(&mut self, &limit: &u32, cx: &mut Cx) {
        self.resize(limit, &mut cx.dropped);
    }
}
