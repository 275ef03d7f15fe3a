//! Devices that another process made.

use super::*;

const NAME: &str = "handed0";

/// A device in a namespace, from these files if another process made it.
fn device(
    netns: &Netns,
    mtu: u32,
    source: TapSource,
    files: Vec<OwnedFd>,
) -> Result<Device, OpenError> {
    let config = TapConfig {
        mtu,
        source,
        ..TapConfig::new(NAME)
    };
    let make = Make::new(&config, MAX_FRAME);
    netns.run(|| make.device(files)).expect("it is ours")
}

/// The interface's MTU.
fn mtu(netns: &Netns) -> Option<u32> {
    let ask = || {
        let mut links = Links::open()?;
        let index = links.index(NAME)?;
        links.state(index)
    };
    let state = netns.run(ask).expect("it is ours");
    state.expect("it is there").mtu
}

/// The helper gives settings to what a queue is of, not to what has the same name.
#[test]
fn a_queue_does_not_stand_for_another_interface_of_its_name() {
    if let Err(error) = sys::open() {
        println!("skipped: /dev/net/tun: {error}");
        return;
    }
    let (Ok(here), Ok(there)) = (Netns::anonymous(), Netns::anonymous()) else {
        println!("skipped: may not make namespaces");
        return;
    };
    let _here = device(&here, 1400, TapSource::Make, Vec::new()).expect("a device");
    let made = device(&there, 1400, TapSource::Make, Vec::new()).expect("a device");
    let queue = || {
        let queue = made.files.queues.first().expect("one");
        vec![queue.try_clone().expect("a descriptor")]
    };
    for named in [true, false] {
        let source = TapSource::Handed { own: true, named };
        let refused = device(&here, 1300, source, queue());
        assert!(
            matches!(refused, Err(OpenError::OtherFiles(_))),
            "{refused:?}"
        );
        assert_eq!(mtu(&here), Some(1400));
        device(&there, 1300, source, queue()).expect("it is that one");
        assert_eq!(mtu(&there), Some(1300));
    }
}
