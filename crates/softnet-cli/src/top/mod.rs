//! `softnet top`: ports, classes and flows by rate, drops or delay, live in a terminal, or once as
//! JSON.
//!
//! [`model`] makes rows of two samples of the daemon's counters, [`flows`] of captures, [`screen`]
//! lines of rows, and this file has the terminal.

mod flows;
mod model;
mod screen;

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use crossterm::{cursor, execute, queue, style, terminal};
use serde_json::{Value, json};
use softnet_rtnl::nl::Operation;

use crate::client::{Daemon, Reach};
use crate::failure::{Exit, Failure};
use crate::report;
use crate::selection::{Part, Selection};
use flows::Flows;
use model::{Row, Sample, Sort, rows, sort_rows};
use screen::{State, lines};

/// Interval between two samples.
const PERIOD: Duration = Duration::from_secs(1);

/// Options of the command line.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Show one interval of a second and end
    #[arg(long)]
    once: bool,
    /// Print one JSON object; needs --once
    #[arg(long, requires = "once")]
    json: bool,
    /// Order of rows at first
    #[arg(long, value_enum, default_value_t = Sort::Rate)]
    sort: Sort,
    /// Show flows of a port, or of a class of it, as `softnet capture` sees them there
    #[arg(long, value_name = "PORT[:CLASS]")]
    flows: Option<Part>,
    #[command(flatten)]
    pub(crate) daemon: Reach,
}

/// Shows what happens until `q` is pressed.
pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let daemon = Daemon::connect(&options.daemon)?;
    if options.once {
        return once(options, &daemon);
    }
    if !io::stdout().is_terminal() {
        let text = "there is no terminal; `softnet top --once` prints one interval";
        return Err(Failure::new(Exit::Config, text));
    }
    let raw = Raw::enter().map_err(terminal)?;
    let shown = match &options.flows {
        Some(of) => show_flows(options, of),
        None => show(options, &daemon),
    };
    drop(raw);
    shown
}

/// Counters that are shown: of the ports, or of one with its classes.
fn view(port: Option<&str>) -> Selection {
    Selection {
        ports: port.is_none(),
        of: port.map(|port| Part {
            port: port.to_owned(),
            class: None,
        }),
        ..Selection::default()
    }
}

fn sample(daemon: &Daemon, selection: &Selection) -> Result<Sample, Failure> {
    let text = daemon.ask(Operation::Stats, &selection.to_string())?;
    let counters: Value = serde_json::from_str(&text).map_err(|error| {
        let what = "the daemon's answer is not understood";
        Failure::because(Exit::Failure, what, &error)
    })?;
    Ok(Sample {
        at: Instant::now(),
        counters,
    })
}

/// One interval, printed.
fn once(options: &Options, daemon: &Daemon) -> Result<(), Failure> {
    if let Some(of) = &options.flows {
        return once_flows(options, of);
    }
    let selection = match options.json {
        true => Selection::default(),
        false => view(None),
    };
    let before = sample(daemon, &selection)?;
    std::thread::sleep(PERIOD);
    let now = sample(daemon, &selection)?;
    let mut state = State {
        sort: options.sort,
        ..State::default()
    };
    let text = match options.json {
        true => {
            let ports = rows(&before, &now, None, state.sort, "");
            let ports = ports.iter().map(|port| {
                let classes = rows(&before, &now, Some(&port.name), state.sort, "");
                let classes: Vec<Value> = classes.iter().map(Row::json).collect();
                let mut object = port.json();
                object["classes"] = classes.into();
                object
            });
            format!("{:#}\n", json!({ "ports": ports.collect::<Vec<_>>() }))
        }
        false => {
            let rows = rows(&before, &now, None, state.sort, "");
            table(&rows, &mut state)
        }
    };
    print(&text)
}

/// Flows of one interval, printed.
fn once_flows(options: &Options, of: &Part) -> Result<(), Failure> {
    let mut flows = Flows::start(&options.daemon, of)?;
    std::thread::sleep(PERIOD);
    let (mut rows, missed) = flows.take()?;
    sort_rows(&mut rows, options.sort);
    if options.json {
        let rows: Vec<Value> = rows.iter().map(Row::json).collect();
        let object = json!({ "flows": rows, "missed_packets": missed });
        return print(&format!("{object:#}\n"));
    }
    let mut state = flow_state(options, of);
    state.flows = Some(missed);
    print(&table(&rows, &mut state))
}

/// All rows as lines, without that of the keys.
fn table(rows: &[Row], state: &mut State) -> String {
    let mut lines = lines(rows, state, 100, rows.len() + screen::AROUND);
    lines.pop();
    lines
        .iter()
        .map(|line| line.trim_end().to_owned() + "\n")
        .collect()
}

fn print(text: &str) -> Result<(), Failure> {
    let printed = report::print(&report::printable(text));
    printed.map_err(|error| Failure::because(Exit::Failure, "cannot print", &error))
}

fn flow_state(options: &Options, of: &Part) -> State {
    let port = match of.class {
        Some(class) => format!("{}:{class}", of.port),
        None => of.port.clone(),
    };
    State {
        port: Some(port),
        flows: Some(0),
        sort: options.sort,
        ..State::default()
    }
}

/// The terminal without echo and line editing, on a screen of its own; as it was when dropped.
struct Raw;

impl Raw {
    fn enter() -> io::Result<Raw> {
        terminal::enable_raw_mode()?;
        let raw = Raw;
        execute!(io::stdout(), terminal::EnterAlternateScreen, cursor::Hide)?;
        Ok(raw)
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        let _ = execute!(io::stdout(), terminal::LeaveAlternateScreen, cursor::Show);
        let _ = terminal::disable_raw_mode();
    }
}

/// Samples and draws until a key ends it.
fn show(options: &Options, daemon: &Daemon) -> Result<(), Failure> {
    let mut state = State {
        sort: options.sort,
        ..State::default()
    };
    // Until there is another there are no rates.
    let mut now = sample(daemon, &view(None))?;
    let mut before = now.clone();
    let mut due = Instant::now() + PERIOD;
    loop {
        let rows = rows(
            &before,
            &now,
            state.port.as_deref(),
            state.sort,
            &state.filter,
        );
        draw_rows(&rows, &mut state)?;
        if let Some(event) = event_until(due)? {
            let shown = state.port.clone();
            if !goes_on(&event, &mut state, &rows) {
                return Ok(());
            }
            if state.port == shown {
                continue;
            }
            now = next(daemon, &mut state)?;
            before = now.clone();
        } else {
            let shown = state.port.clone();
            before = std::mem::replace(&mut now, next(daemon, &mut state)?);
            if state.port != shown {
                before = now.clone();
            }
        }
        due = Instant::now() + PERIOD;
    }
}

/// Counts flows and draws until a key ends it.
fn show_flows(options: &Options, of: &Part) -> Result<(), Failure> {
    let mut flows = Flows::start(&options.daemon, of)?;
    let mut state = flow_state(options, of);
    let mut all: Vec<Row> = Vec::new();
    let mut due = Instant::now() + PERIOD;
    loop {
        let mut rows = all.clone();
        rows.retain(|row| row.name.contains(&state.filter));
        sort_rows(&mut rows, state.sort);
        draw_rows(&rows, &mut state)?;
        let Some(event) = event_until(due)? else {
            let (counted, missed) = flows.take()?;
            all = counted;
            state.flows = Some(missed);
            due = Instant::now() + PERIOD;
            continue;
        };
        if !goes_on(&event, &mut state, &rows) {
            return Ok(());
        }
    }
}

/// Counters of what is shown; of all ports if the one whose classes were shown is gone.
fn next(daemon: &Daemon, state: &mut State) -> Result<Sample, Failure> {
    match sample(daemon, &view(state.port.as_deref())) {
        Err(failure) if failure.exit == Exit::Config && state.port.is_some() => {
            state.ascend();
            sample(daemon, &view(None))
        }
        sampled => sampled,
    }
}

fn terminal(error: io::Error) -> Failure {
    Failure::because(Exit::Failure, "cannot use the terminal", &error)
}

/// Draws rows as large as the terminal is.
fn draw_rows(rows: &[Row], state: &mut State) -> Result<(), Failure> {
    let (width, height) = terminal::size().map_err(terminal)?;
    let lines = lines(rows, state, width.into(), height.into());
    draw(&lines, state.cursor_line()).map_err(terminal)
}

/// The event that comes until then, if one does.
fn event_until(due: Instant) -> Result<Option<Event>, Failure> {
    let left = due.saturating_duration_since(Instant::now());
    match event::poll(left).map_err(terminal)? {
        true => event::read().map(Some).map_err(terminal),
        false => Ok(None),
    }
}

/// Acts on what happened. False: the end.
fn goes_on(event: &Event, state: &mut State, rows: &[Row]) -> bool {
    match event {
        Event::Key(key) if is_pressed(key) => press(key, state, rows),
        _ => true,
    }
}

fn is_pressed(key: &KeyEvent) -> bool {
    matches!(key.kind, KeyEventKind::Press | KeyEventKind::Repeat)
}

/// Acts on a key. False: the end.
fn press(key: &KeyEvent, state: &mut State, rows: &[Row]) -> bool {
    let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
    if state.is_typing {
        match key.code {
            KeyCode::Enter => state.is_typing = false,
            KeyCode::Esc => (state.is_typing, state.filter) = (false, String::new()),
            KeyCode::Backspace => _ = state.filter.pop(),
            KeyCode::Char('c') if is_control => return false,
            KeyCode::Char(c) if state.filter.len() < 64 => state.filter.push(c),
            _ => {}
        }
        return true;
    }
    match key.code {
        KeyCode::Char('q') => return false,
        KeyCode::Char('c') if is_control => return false,
        KeyCode::Char('s') => state.sort = state.sort.next(),
        KeyCode::Char('/') => state.is_typing = true,
        KeyCode::Down | KeyCode::Char('j') => state.at += 1,
        KeyCode::Up | KeyCode::Char('k') => state.at = state.at.saturating_sub(1),
        KeyCode::PageDown => state.at += 20,
        KeyCode::PageUp => state.at = state.at.saturating_sub(20),
        KeyCode::Home => state.at = 0,
        KeyCode::End => state.at = rows.len(),
        KeyCode::Enter if state.port.is_none() => {
            if let Some(row) = rows.get(state.at) {
                state.descend(&row.name);
            }
        }
        KeyCode::Esc | KeyCode::Backspace => state.ascend(),
        _ => {}
    }
    true
}

/// Draws the screen anew; the line of the cursor is reversed.
fn draw(lines: &[String], at: Option<usize>) -> io::Result<()> {
    let mut out = io::stdout().lock();
    for (place, line) in lines.iter().enumerate() {
        let row = u16::try_from(place).unwrap_or(u16::MAX);
        queue!(out, cursor::MoveTo(0, row))?;
        if at == Some(place) {
            queue!(out, style::SetAttribute(style::Attribute::Reverse))?;
        }
        queue!(
            out,
            style::Print(report::printable(line)),
            style::SetAttribute(style::Attribute::Reset),
            terminal::Clear(terminal::ClearType::UntilNewLine)
        )?;
    }
    queue!(out, terminal::Clear(terminal::ClearType::FromCursorDown))?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_move_sort_filter_and_descend() {
        let row = |name: &str| Row {
            name: name.to_owned(),
            ..Row::default()
        };
        let rows = [row("web"), row("vm")];
        let mut state = State::default();
        let key = |code, state: &mut State| {
            press(&KeyEvent::new(code, KeyModifiers::NONE), state, &rows)
        };
        assert!(key(KeyCode::Down, &mut state));
        assert!(key(KeyCode::Enter, &mut state));
        assert_eq!((state.port.as_deref(), state.at), (Some("vm"), 0));
        assert!(key(KeyCode::Esc, &mut state));
        assert_eq!((state.port.as_deref(), state.at), (None, 1));
        assert!(key(KeyCode::Char('s'), &mut state));
        assert_eq!(state.sort, Sort::Drops);
        for code in [KeyCode::Char('/'), KeyCode::Char('q'), KeyCode::Char('v')] {
            assert!(key(code, &mut state), "typing");
        }
        assert!(key(KeyCode::Backspace, &mut state) && key(KeyCode::Enter, &mut state));
        assert_eq!(state.filter, "q");
        assert!(!key(KeyCode::Char('q'), &mut state), "the end");
    }
}
