//! `softnet sim`: a tree of qdiscs in virtual time, fed by a capture, by flows, or by connections
//! that react. Thin: the simulator is `softnet_tc::sim`; [`capture`] reads and writes captures,
//! [`generate`] reads flows, [`policy`] the tree, for which [`script`] runs a script, [`world`] has
//! it happen, [`expect`] holds results against bounds, [`watch`] says when they were first broken,
//! [`output`] prints, [`svg`] draws.

mod capture;
mod compare;
mod expect;
mod explain;
#[cfg(test)]
mod fuzz_tests;
mod generate;
mod options;
mod output;
mod outside;
mod policy;
mod processes;
mod refused;
mod script;
mod senders;
mod series;
mod shown;
mod subjects;
mod svg;
mod watch;
mod world;

use serde_json::{Value, json};

use crate::failure::{Exit, Failure};
use crate::report::print;

pub(crate) use options::{HELP, Options};
use watch::Watch;
use world::Simulated;

/// Runs the policy, and another beside it if one is named, and holds the results against what is
/// expected.
pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    // Hashes are to be the same on every run.
    softnet::wire::use_fixed_key();
    if let (Some(input), Some(out)) = (&options.pcap, &options.out)
        && capture::is_same(input, out)
    {
        let text = format!("--out: {}: it is what --pcap reads", out.display());
        return Err(Failure::new(Exit::Config, text));
    }
    let mut expected = options.expect.clone();
    let first = policy::first(options, &mut expected)?;
    let other = options.compare.as_ref();
    let other = other.map(|path| policy::other(options, None, path));
    let other = other.transpose()?;
    let reverse = options.reverse.as_ref();
    let reverse = reverse.map(|path| policy::other(options, options.reverse_dev.as_deref(), path));
    let reverse = reverse.transpose()?;
    let reverse = reverse.as_ref();
    if reverse.is_none() && options.link.is_some_and(|link| link.reverse.is_some()) {
        let text = "--link: the rate behind the slash is that of --reverse, which is missing";
        return Err(Failure::new(Exit::Config, text));
    }
    // How long a capture is, nobody knows yet.
    let ends = options.generate.iter().map(|of| of.ends().0);
    if let (Some(stall), Some(end), None) = (options.stall, ends.max(), &options.pcap)
        && stall > end
    {
        let text = format!(
            "--stall: p99={} is longer than the run, whose senders end after {}",
            shown::time(stall),
            shown::time(end)
        );
        return Err(Failure::new(Exit::Config, text));
    }
    // What is piped in can be read once.
    let piped = match &options.pcap {
        Some(path) if other.is_some() && path.as_os_str() == "-" => Some(capture::piped()?),
        _ => None,
    };
    subjects::check(&expected, options, &first, reverse)?;
    let port = options.port.as_deref().or(options.dev.as_deref());
    let watch = || Watch::new(&expected, port, options.svg.is_some(), options.explain);
    let mut watches = vec![watch()];
    let out = options.out.as_deref();
    let mut results = vec![world::simulate(
        options,
        first,
        reverse,
        &piped,
        out,
        &mut watches[0],
    )?];
    if let Some(other) = other {
        watches.push(watch());
        results.push(world::simulate(
            options,
            other,
            reverse,
            &piped,
            None,
            &mut watches[1],
        )?);
    }
    let check = |((report, flows, _), watch): (&Simulated, &Watch<'_>)| {
        let outcomes = expected
            .iter()
            .zip(watch.broken())
            .map(|(expected, broken)| expected.check(report, flows, port, *broken));
        outcomes
            .map(|outcome| (outcome.holds(), outcome.json(), outcome.to_string()))
            .collect()
    };
    let outcomes: Vec<Vec<(bool, Value, String)>> =
        results.iter().zip(&watches).map(check).collect();
    // Those of the other policy are told, and decide nothing.
    let decisive = outcomes.first().map_or(&[][..], Vec::as_slice);
    let failed = decisive.iter().filter(|(holds, ..)| !holds).count();
    let told = |(report, flows, outside): &Simulated,
                outcomes: &[(bool, Value, String)],
                watch: &Watch<'_>| {
        let mut object = output::json(report, flows, *outside);
        object["expectations"] = outcomes.iter().map(|(_, json, _)| json.clone()).collect();
        if let Some(story) = watch.story_json() {
            object["explained"] = story;
        }
        object
    };
    let text = match (options.json, results.as_slice(), outcomes.as_slice()) {
        (true, [one], [of]) => format!("{:#}\n", told(one, of, &watches[0])),
        (true, ..) => {
            let all = results.iter().zip(&outcomes).zip(&watches);
            let all = all.map(|((one, of), watch)| told(one, of, watch));
            format!("{:#}\n", json!({ "compared": all.collect::<Vec<_>>() }))
        }
        (false, ..) => {
            let all = results.iter().zip(&outcomes).enumerate();
            let texts = all.map(|(place, ((report, flows, outside), of))| {
                let head = match (results.len(), place, &options.compare) {
                    (1, ..) | (.., None) => String::new(),
                    (_, 0, _) => policy::name(options) + "\n",
                    (.., Some(other)) => format!("\n{}\n", other.display()),
                };
                let lines: String = of.iter().map(|(.., text)| format!("{text}\n")).collect();
                head + &output::table(report, flows, *outside) + &lines + &watches[place].story()
            });
            let both = match (results.as_slice(), &options.compare) {
                ([first, other], Some(path)) => {
                    let name = path.display().to_string();
                    compare::table([&policy::name(options), &name], first, other)
                }
                _ => String::new(),
            };
            texts.collect::<String>() + &both
        }
    };
    print(&text)
        .map_err(|error| Failure::because(Exit::Failure, "cannot print the result", &error))?;
    if let Some(path) = &options.junit {
        let (report, flows, _) = &results[0];
        let outcomes: Vec<_> = expected
            .iter()
            .zip(watches[0].broken())
            .map(|(expected, broken)| expected.check(report, flows, port, *broken))
            .collect();
        std::fs::write(path, expect::junit(&outcomes)).map_err(|error| {
            Failure::because(Exit::Failure, path.display().to_string(), &error)
        })?;
    }
    if let Some(path) = &options.svg {
        let names = std::iter::once(policy::name(options));
        let names = names.chain(
            options
                .compare
                .iter()
                .map(|path| path.display().to_string()),
        );
        let drawn = names.zip(&results).zip(&watches);
        let drawn: Vec<_> = drawn
            .filter_map(|((name, (report, ..)), watch)| Some((name, report, watch.series()?)))
            .collect();
        std::fs::write(path, svg::draw(&drawn)).map_err(|error| {
            Failure::because(Exit::Failure, path.display().to_string(), &error)
        })?;
    }
    match failed {
        0 => Ok(()),
        failed => {
            let all = decisive.len();
            let text = format!("{failed} of {all} expectations failed");
            Err(Failure::new(Exit::Warnings, text))
        }
    }
}
