//! Lines of the screen of `softnet top`.

use super::model::{Row, Sort};

/// Lines that are not rows: title, head, foot.
pub(crate) const AROUND: usize = 3;

/// Choices of the user.
#[derive(Debug, Default)]
pub(crate) struct State {
    /// Port whose classes are shown; the ports without one.
    pub port: Option<String>,
    /// Flows of that port are shown instead, of which so many packets were missed.
    pub flows: Option<u64>,
    pub sort: Sort,
    /// Part of the names that are shown.
    pub filter: String,
    /// Keys are letters of the filter.
    pub is_typing: bool,
    /// The chosen row.
    pub at: usize,
    /// First row that is shown.
    pub first: usize,
    /// The chosen port, for the way back.
    pub above: usize,
}

impl State {
    /// Shows the classes of a port.
    pub(crate) fn descend(&mut self, port: &str) {
        self.port = Some(port.to_owned());
        self.above = std::mem::take(&mut self.at);
        self.filter.clear();
    }

    /// Shows the ports again.
    pub(crate) fn ascend(&mut self) {
        if self.flows.is_none() && self.port.take().is_some() {
            self.at = self.above;
            self.filter.clear();
        }
    }

    /// Line of the chosen row, if there is one.
    pub(crate) fn cursor_line(&self) -> Option<usize> {
        (self.at >= self.first).then(|| self.at - self.first + 2)
    }
}

/// A number with a unit, in at most six characters.
fn short(number: f64) -> String {
    let mut value = number;
    for unit in ["", "k", "M", "G"] {
        if value < 999.95 {
            return match unit {
                "" => format!("{value:.0}"),
                _ if value < 9.995 => format!("{value:.2}{unit}"),
                _ if value < 99.95 => format!("{value:.1}{unit}"),
                _ => format!("{value:.0}{unit}"),
            };
        }
        value /= 1000.0;
    }
    format!("{value:.1}T")
}

/// A time from nanoseconds.
fn time(ns: f64) -> String {
    match ns {
        ..1e3 => format!("{ns:.0}ns"),
        ..1e6 => format!("{:.0}us", ns / 1e3),
        ..1e9 => format!("{:.1}ms", ns / 1e6),
        _ => format!("{:.1}s", ns / 1e9),
    }
}

/// The screen: as many lines as it is high, none longer than it is wide. The chosen row stays
/// within the rows, and in sight.
pub(crate) fn lines(rows: &[Row], state: &mut State, width: usize, height: usize) -> Vec<String> {
    let shown = height.saturating_sub(AROUND).max(1);
    state.at = state.at.min(rows.len().saturating_sub(1));
    state.first = state
        .first
        .min(state.at)
        .max((state.at + 1).saturating_sub(shown));
    // The sum of no numbers is -0.
    let sum = |of: fn(&Row) -> f64| rows.iter().map(of).fold(0.0, |all, one| all + one);
    let rates = || {
        format!(
            "in {}bit/s, out {}bit/s, dropped {}/s",
            short(sum(|row| row.rx_bits)),
            short(sum(|row| row.tx_bits)),
            short(sum(|row| row.drops)),
        )
    };
    let count = rows.len();
    let title = match (&state.port, state.flows) {
        (None, _) => format!("softnet: {count} ports, {}", rates()),
        (Some(port), None) => format!("softnet: {port}: {count} classes"),
        (Some(port), Some(missed)) => {
            format!(
                "softnet: {port}: {count} flows, {}, missed {missed}",
                rates()
            )
        }
    };
    let name = match state.flows {
        None => width.saturating_sub(66).clamp(8, 32),
        Some(_) => width.saturating_sub(37).clamp(8, 100),
    };
    let head = match state.port {
        _ if state.flows.is_some() => format!(
            "{:name$} {:>3} {:>8} {:>7} {:>7} {:>7}",
            "flow", "way", "bit/s", "p/s", "drop/s", "delay"
        ),
        None => format!(
            "{:name$} {:>6} {:>8} {:>7} {:>8} {:>7} {:>7} {:>7} {:>7}",
            "port", "link", "in bit/s", "in p/s", "out b/s", "out p/s", "drop/s", "queued", "p99"
        ),
        Some(_) => format!(
            "{:name$} {:>10} {:>8} {:>7} {:>7} {:>7} {:>8} {:>7}",
            "class", "kind", "bit/s", "p/s", "drop/s", "queued", "bytes", "delay"
        ),
    };
    let line = |row: &Row| {
        let label: String = row.name.chars().take(name).collect();
        match state.port {
            _ if state.flows.is_some() => format!(
                "{label:name$} {:>3} {:>8} {:>7} {:>7} {:>7}",
                row.what,
                short(row.rx_bits + row.tx_bits),
                short(row.rx_packets + row.tx_packets),
                short(row.drops),
                row.delay.map_or_else(|| "-".to_owned(), time),
            ),
            None => format!(
                "{label:name$} {:>6} {:>8} {:>7} {:>8} {:>7} {:>7} {:>7} {:>7}",
                row.what,
                short(row.rx_bits),
                short(row.rx_packets),
                short(row.tx_bits),
                short(row.tx_packets),
                short(row.drops),
                short(row.queued as f64),
                row.delay.map_or_else(|| "-".to_owned(), time),
            ),
            Some(_) => format!(
                "{label:name$} {:>10} {:>8} {:>7} {:>7} {:>7} {:>8} {:>7}",
                row.what,
                short(row.tx_bits),
                short(row.tx_packets),
                short(row.drops),
                short(row.queued as f64),
                short(row.backlog.unwrap_or(0) as f64),
                row.delay.map_or_else(|| "-".to_owned(), time),
            ),
        }
    };
    let foot = match (state.is_typing, &state.port) {
        (true, _) => format!("filter: {}_", state.filter),
        (false, at) => format!(
            "q end  s sort ({})  / filter ({})  {}",
            state.sort.word(),
            match state.filter.as_str() {
                "" => "all",
                filter => filter,
            },
            match at {
                _ if state.flows.is_some() => "",
                None => "Enter classes",
                Some(_) => "Esc ports",
            },
        ),
    };
    let mut lines = vec![title, head];
    lines.extend(rows.iter().skip(state.first).take(shown).map(line));
    lines.resize((shown + AROUND - 1).max(lines.len()), String::new());
    lines.push(foot);
    let cut = |line: String| line.chars().take(width).collect();
    lines.into_iter().map(cut).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        let texts = [0.0, 999.0, 1234.0, 99_949.0, 999_940.0, 1e9, 12.3e9, 5e15].map(short);
        assert_eq!(
            texts,
            [
                "0", "999", "1.23k", "99.9k", "1000k", "1.00G", "12.3G", "5000.0T"
            ]
        );
        assert_eq!(
            [999.0, 5e3, 1.5e6, 2e9].map(time),
            ["999ns", "5us", "1.5ms", "2.0s"]
        );
    }

    #[test]
    fn nothing_is_no_negative_rate() {
        let mut flows = State {
            port: Some("web".to_owned()),
            flows: Some(0),
            ..State::default()
        };
        for state in [&mut State::default(), &mut flows] {
            let title = &lines(&[], state, 80, 24)[0];
            assert!(title.contains("in 0bit/s, out 0bit/s"), "{title}");
        }
    }

    #[test]
    fn the_screen_has_its_size_and_the_chosen_row() {
        let rows: Vec<Row> = (0..10_000)
            .map(|n| Row {
                name: format!("port{n}"),
                what: "up".to_owned(),
                tx_bits: 1e9,
                ..Row::default()
            })
            .collect();
        for (width, height) in [(80, 24), (200, 60), (20, 5), (1, 1)] {
            let mut state = State::default();
            for at in [0, 5, 9_999, 20_000, 40] {
                state.at = at;
                let lines = lines(&rows, &mut state, width, height);
                assert_eq!(lines.len(), height.max(AROUND + 1));
                assert!(lines.iter().all(|line| line.chars().count() <= width));
                let line = &lines[state.cursor_line().expect("a row")];
                let name = format!("port{}", at.min(9_999));
                assert!(width < 20 || line.starts_with(&name), "{line}");
            }
        }
        let mut state = State::default();
        state.descend("web");
        let text = lines(&[], &mut state, 80, 24).join("\n");
        assert!(text.starts_with("softnet: web: 0 classes\n"), "{text}");
        state.ascend();
        assert!(state.port.is_none());
    }

    #[test]
    fn flows_have_one_rate_a_direction() {
        let row = Row {
            name: "10.9.0.1:40000 > 10.9.0.2:5001 tcp".to_owned(),
            what: "in".to_owned(),
            rx_bits: 1e6,
            rx_packets: 100.0,
            ..Row::default()
        };
        let mut state = State {
            port: Some("web".to_owned()),
            flows: Some(7),
            ..State::default()
        };
        let lines = lines(&[row], &mut state, 80, 24);
        let title = "softnet: web: 1 flows, in 1.00Mbit/s, out 0bit/s, dropped 0/s, missed 7";
        assert_eq!(lines[0], title);
        let words: Vec<&str> = lines[2].split_whitespace().collect();
        assert_eq!(words[4..], ["in", "1.00M", "100", "0", "-"]);
        assert_eq!(lines[2].len(), lines[1].len());
        state.ascend();
        assert!(state.port.is_some(), "there is nothing above");
    }
}
