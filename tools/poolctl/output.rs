//! How commands show things.

use std::io::{self, BufRead, IsTerminal};

use comfy_table::{CellAlignment, Table, presets};
use poolfs::sync::Timestamp;
use serde::Serialize;

use super::error::{Result, ToolError};

/// Version of what `--json` shows.
const JSON_VERSION: u32 = 1;

#[derive(Serialize)]
struct Versioned<T> {
    version: u32,
    #[serde(flatten)]
    body: T,
}

/// Prints `body`, an object, as JSON with the version.
///
/// # Errors
/// When the body can't be JSON.
pub fn json(body: impl Serialize) -> Result<()> {
    let text = serde_json::to_string_pretty(&Versioned { version: JSON_VERSION, body })
        .map_err(|error| ToolError::system("writing JSON")(error.into()))?;
    say!("{text}");
    Ok(())
}

/// Prints `body`, an object, as one line of JSON with the version.
///
/// # Errors
/// When the body can't be JSON.
pub fn json_line(body: impl Serialize) -> Result<()> {
    let text = serde_json::to_string(&Versioned { version: JSON_VERSION, body })
        .map_err(|error| ToolError::system("writing JSON")(error.into()))?;
    say!("{text}");
    Ok(())
}

/// A moment as the clock on the wall has it: `2026-11-30 22:04:05`.
pub fn when(at: Timestamp) -> String {
    match jiff::Timestamp::new(at.seconds, at.nanos as i32) {
        Ok(moment) => moment.to_zoned_datetime(jiff::tz::TimeZone::system()).strftime("%F %T").to_string(),
        Err(_) => format!("{} s", at.seconds),
    }
}

/// A table without lines, its columns from `right` on aligned to the right.
pub fn table(header: &[&str], right: usize) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(header.to_vec());
    for column in table.column_iter_mut().skip(right) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// Prints a table, indented.
pub fn print_table(table: &Table) {
    for line in table.lines() {
        say!("  {}", line.trim_end());
    }
}

/// Asks for `answer` to be typed. Without a terminal nobody can answer.
///
/// # Errors
/// [`ToolError::NotConfirmed`] when something else was typed, or nobody could.
pub fn confirm(what: &str, answer: &str) -> Result<()> {
    let refused = || ToolError::NotConfirmed { what: what.to_owned() };
    if !io::stdin().is_terminal() {
        return Err(refused());
    }
    eprint!("{what}\nType {answer} to go on: ");
    let mut typed = String::new();
    io::stdin().lock().read_line(&mut typed).map_err(ToolError::system("reading the answer"))?;
    if typed.trim() == answer { Ok(()) } else { Err(refused()) }
}

/// `1 member`, `2 members`.
pub fn count(number: usize, thing: &str) -> String {
    if number == 1 { format!("1 {thing}") } else { format!("{number} {thing}s") }
}
