//! Settings that an engine takes, as from rtnetlink, are written as a file that reads the same.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use softnet::wire::EthernetAddress;
use softnet_engine::forward::{FdbState, VlanFlags};
use softnet_engine::{EngineConfig, FdbSpec, PortSpec, Settings};
use softnet_io::Allowed;

use super::write::write;
use super::{Config, parse};
use crate::setup::{self, Engine};

/// Settings of a link by `ip` and `bridge`; many are refused.
#[derive(Clone, Debug)]
enum Setting {
    Name(String),
    Address([u8; 6]),
    Mtu(u32),
    TxQueueLen(u32),
    Group(u32),
    Alias(String),
    Up(bool),
    Ageing(u32),
    DefaultPvid(u16),
    Filtering(bool),
    Vlan(u16, VlanFlags),
    NoVlan(u16),
    Station([u8; 6], Option<u16>, bool),
}

/// Ageing times are in hundredths of a second.
const TICK: Duration = Duration::from_millis(10);

/// A number, and often a bound of it.
fn number() -> impl Strategy<Value = u32> {
    let bounds = &[0, 67, 68, 65_521, 65_522, 65_535, 65_536, u32::MAX];
    prop_oneof![any::<u32>(), prop::sample::select(bounds)]
}

fn vlan() -> impl Strategy<Value = u16> {
    prop_oneof![0..4_u16, 4092..4097_u16]
}

fn setting() -> impl Strategy<Value = Setting> {
    let text = |most| {
        let special = prop::sample::select(&[
            '\0', '\t', ' ', '"', '%', '\'', '/', ':', '\\', '\u{7f}', '\u{a0}', 'à', '\u{2003}',
            '日',
        ]);
        let character = prop_oneof![6 => prop::char::range('a', 'c'), 1 => special];
        let text = prop::collection::vec(character, 0..most);
        text.prop_map(|text| text.into_iter().collect::<String>())
    };
    let flags = any::<(bool, bool)>();
    let flags = flags.prop_map(|(pvid, untagged)| VlanFlags { pvid, untagged });
    let mac = || prop::array::uniform6(prop_oneof![0..4_u8, any::<u8>()]);
    let station = (mac(), prop::option::of(vlan()), any::<bool>());
    prop_oneof![
        text(20).prop_map(Setting::Name),
        mac().prop_map(Setting::Address),
        number().prop_map(Setting::Mtu),
        number().prop_map(Setting::TxQueueLen),
        number().prop_map(Setting::Group),
        // rtnetlink takes no longer one, and none with a NUL.
        text(60).prop_map(|text| Setting::Alias(text.replace('\0', ""))),
        any::<bool>().prop_map(Setting::Up),
        number().prop_map(Setting::Ageing),
        vlan().prop_map(Setting::DefaultPvid),
        any::<bool>().prop_map(Setting::Filtering),
        (vlan(), flags).prop_map(|(vlan, flags)| Setting::Vlan(vlan, flags)),
        vlan().prop_map(Setting::NoVlan),
        station.prop_map(|(mac, vlan, sticky)| Setting::Station(mac, vlan, sticky)),
    ]
}

/// An engine with port 1 in bridge 2.
fn engine() -> Engine {
    let engine =
        setup::start(1, &[], Allowed::NORMAL, 256, EngineConfig::default()).expect("an engine");
    let port = engine.add_port(PortSpec::new("a")).expect("a port");
    let bridge = engine.add_bridge(Settings::new("br0")).expect("a bridge");
    engine.set_master(port, Some(bridge)).expect("a member");
    assert_eq!((port, bridge), (1, 2));
    engine
}

fn set(engine: &Engine, index: u32, setting: Setting) {
    let options = engine.bridge(2).expect("the bridge").options;
    let change = |f: &dyn Fn(&mut Settings)| engine.change(index, f);
    // What is refused changes nothing.
    let _ = match setting {
        Setting::Name(name) => change(&|link| link.name.clone_from(&name)),
        Setting::Address(mac) => change(&|link| link.address = Some(EthernetAddress(mac))),
        Setting::Mtu(mtu) => change(&|link| link.mtu = mtu),
        Setting::TxQueueLen(len) => change(&|link| link.tx_queue_len = len),
        Setting::Group(group) => change(&|link| link.group = group),
        Setting::Alias(alias) => change(&|link| link.alias.clone_from(&alias)),
        Setting::Up(up) => change(&|link| link.up = up),
        Setting::Ageing(ticks) => {
            let ageing_time = TICK * ticks;
            engine.set_bridge(
                2,
                softnet_engine::BridgeOptions {
                    ageing_time,
                    ..options
                },
            )
        }
        Setting::DefaultPvid(vlan) => {
            let default_pvid = (vlan != 0).then_some(vlan);
            engine.set_bridge(
                2,
                softnet_engine::BridgeOptions {
                    default_pvid,
                    ..options
                },
            )
        }
        Setting::Filtering(vlan_filtering) => engine.set_bridge(
            2,
            softnet_engine::BridgeOptions {
                vlan_filtering,
                ..options
            },
        ),
        Setting::Vlan(vlan, flags) => engine.add_vlans(index, vlan..=vlan, flags),
        Setting::NoVlan(vlan) => engine.remove_vlans(index, vlan..=vlan),
        Setting::Station(mac, vlan, sticky) => {
            let station = FdbSpec {
                address: EthernetAddress(mac),
                vlan,
                state: FdbState::Static,
                sticky,
            };
            engine.add_fdb(1, station, true)
        }
    };
}

/// The running state, as `softnet dump-config` writes it.
fn dumped(engine: &Engine) -> (Config, String) {
    let config = Config {
        links: engine.spec().expect("the state"),
        ..Config::default()
    };
    let text = write(&config);
    (config, text)
}

#[test]
fn what_is_set_is_read_as_it_is_written() {
    let config = ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(100)
    };
    let settings = prop::collection::vec((1..=2_u32, setting()), 0..60);
    let run = TestRunner::new(config).run(&settings, |settings| {
        let engine = engine();
        for (index, setting) in settings {
            set(&engine, index, setting);
        }
        let (config, text) = dumped(&engine);
        let read = parse("x.toml", &text);
        let read = read.map_err(|error| TestCaseError::fail(format!("{error}\n{text}")))?;
        prop_assert_eq!(read.links, config.links, "{}", text);
        engine.stop(Duration::ZERO);
        Ok(())
    });
    run.unwrap();
}

#[test]
fn bounds_are_those_of_rtnetlink() {
    let engine = engine();
    for (index, setting) in [
        (1, Setting::Mtu(65_521)),
        (2, Setting::Mtu(65_535)),
        (2, Setting::Ageing(u32::MAX)),
        (1, Setting::TxQueueLen(u32::MAX)),
        (1, Setting::Name("a\u{2003}\"".into())),
        (1, Setting::Address([2, 0, 0, 0, 0, 9])),
    ] {
        set(&engine, index, setting);
    }
    let (config, text) = dumped(&engine);
    let port = &config.links.ports[0].settings;
    let bridge = &config.links.bridges[0];
    assert_eq!((port.mtu, bridge.settings.mtu), (65_521, 65_535));
    assert_eq!(bridge.options.ageing_time, TICK * u32::MAX);
    assert_eq!(port.name, "a\u{2003}\"");
    let read = parse("x.toml", &text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    assert_eq!(read.links, config.links, "{text}");
    engine.stop(Duration::ZERO);
}

/// One rule of names for both.
#[test]
fn a_name_is_read_where_the_engine_takes_it() {
    let engine = engine();
    let long = ["p".repeat(15), "p".repeat(16)];
    let names = [
        "",
        ".",
        "..",
        "...",
        "a%d",
        "%",
        "a b",
        "a\u{a0}",
        "à",
        "ü",
        "a\u{2003}b",
        "a\tb",
        "a/b",
        "a:b",
        "a\u{b}",
        "a\u{1}",
        "a\u{7f}",
        "a\\",
        "a\"",
    ];
    for name in names.into_iter().chain(long.iter().map(String::as_str)) {
        let taken = engine.change(1, |link| link.name = name.to_owned()).is_ok();
        let quoted = toml::Value::from(name);
        let text = format!("[[port]]\nname = {quoted}\ndriver = \"null\"\n");
        assert_eq!(parse("x.toml", &text).is_ok(), taken, "{name:?}");
    }
    engine.stop(Duration::ZERO);
}

#[test]
fn a_path_that_is_no_text_is_left_out_in_one_line() {
    let mut config = Config::default();
    let path = OsStr::from_bytes(b"/run/\xff\r\n\x01[x");
    config.control.socket = Some(Path::new(path).to_owned());
    let text = write(&config);
    assert!(
        text.starts_with("# socket is no text: \"/run/\\xFF\\r\\n\\u{1}[x\"\n"),
        "{text}"
    );
    parse("x.toml", &text).unwrap_or_else(|error| panic!("{error}\n{text}"));
}
