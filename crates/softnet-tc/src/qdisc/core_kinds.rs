//! The kinds whose qdiscs are the core's.

use softnet::qdisc::{Bfifo, Cx, Noqueue, Pfifo, PfifoFast};

use super::kind::{Kind, QdiscSpec};
use super::option::{Form, QdiscOption, options};
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

impl Kind for Pfifo {
    type Spec = u32;
    const NAME: &'static str = "pfifo";
    const OPTIONS: &'static [QdiscOption] = options! { QdiscSpec::Pfifo { limit } =>
        /// packets, 0 to 4294967295; the default is the port's `txqueuelen`
        "limit": Form::Size => *limit,
    };

    fn make(&limit: &u32, _: Handle, _: &QdiscEnv) -> Pfifo {
        Pfifo::new(limit)
    }

    fn change(&mut self, &limit: &u32, _: &mut Cx) {
        self.set_limit(limit);
    }
}

impl Kind for Bfifo {
    type Spec = u64;
    const NAME: &'static str = "bfifo";
    const OPTIONS: &'static [QdiscOption] = options! { QdiscSpec::Bfifo { limit } =>
        /// a size; the default is `txqueuelen` frames of the port's MTU
        "limit": Form::Size => *limit,
    };

    fn make(&limit: &u64, _: Handle, _: &QdiscEnv) -> Bfifo {
        Bfifo::new(limit)
    }

    fn change(&mut self, &limit: &u64, _: &mut Cx) {
        self.set_limit(limit);
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
