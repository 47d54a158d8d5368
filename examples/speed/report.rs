//! Tables in Markdown: medians, and ratios within each round, since what the machine does meanwhile meets all that
//! is measured in one round.

use std::fmt;

use super::target::Kind;
use super::work::{Found, Row};

/// What was measured.
#[derive(Debug)]
pub struct Results {
    kinds: Vec<Kind>,
    values: Vec<(Kind, Row, usize, Found)>,
}

impl Results {
    /// Nothing yet, of these targets.
    pub fn new(kinds: Vec<Kind>) -> Self {
        Self { kinds, values: Vec::new() }
    }

    /// One number of one round.
    pub fn put(&mut self, kind: Kind, row: Row, round: usize, found: Found) {
        self.values.push((kind, row, round, found));
    }

    fn of(&self, kind: Kind, row: Row) -> impl Iterator<Item = (usize, Found)> {
        let here = move |value: &&(Kind, Row, usize, Found)| (value.0, value.1) == (kind, row);
        self.values.iter().filter(here).map(|&(_, _, round, found)| (round, found))
    }

    /// How fast `kind` is for each time as fast as `base` is, in each round: more is better for times too.
    fn ratios(&self, kind: Kind, base: Kind, row: Row) -> Vec<f64> {
        let in_round = |round| self.of(base, row).find(|&(other, _)| other == round);
        let pairs =
            self.of(kind, row).filter_map(|(round, found)| Some((found.value, in_round(round)?.1.value)));
        pairs.map(|(value, base)| if row.is_time() { base / value } else { value / base }).collect()
    }

    fn table(
        &self,
        f: &mut fmt::Formatter<'_>,
        kinds: &[Kind],
        title: impl Fn(Row) -> String,
        cell: impl Fn(Kind, Row) -> String,
    ) -> fmt::Result {
        let titles: Vec<&str> = kinds.iter().map(|kind| kind.title()).collect();
        writeln!(f, "| | {} |\n| --- |{}", titles.join(" | "), " ---: |".repeat(kinds.len()))?;
        for row in Row::ALL {
            let cells: Vec<String> = kinds.iter().map(|&kind| cell(kind, row)).collect();
            if cells.iter().any(|cell| !cell.is_empty()) {
                writeln!(f, "| {} | {} |", title(row), cells.join(" | "))?;
            }
        }
        writeln!(f)
    }
}

impl fmt::Display for Results {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "Medians of all rounds:\n")?;
        self.table(f, &self.kinds, with_unit, |kind, row| {
            let values = self.of(kind, row).map(|(_, found)| found.value).collect();
            spread(values).map(|(_, median, _)| number(median)).unwrap_or_default()
        })?;
        for base in [Kind::Null, Kind::Plain] {
            let compared: Vec<Kind> =
                self.kinds.iter().copied().filter(|&kind| kind != base && kind != Kind::Plain).collect();
            if !self.kinds.contains(&base) || compared.is_empty() {
                continue;
            }
            writeln!(
                f,
                "Speed, where 1 is that of the {}: median (least to most) of the rounds' ratios:\n",
                base.title()
            )?;
            self.table(f, &compared, without_unit, |kind, row| {
                let found = spread(self.ratios(kind, base, row));
                found.map_or(String::new(), |(least, median, most)| {
                    format!("{median:.2} ({least:.2} to {most:.2})")
                })
            })?;
        }
        let served: Vec<Kind> = self.kinds.iter().copied().filter(|&kind| kind != Kind::Plain).collect();
        if served.is_empty() {
            return Ok(());
        }
        writeln!(f, "Processor time of the serving process, µs for each MB or each call, medians:\n")?;
        self.table(f, &served, without_unit, |kind, row| {
            let costs = self.of(kind, row).filter_map(|(_, found)| found.cost).collect();
            spread(costs).map(|(_, median, _)| number(median)).unwrap_or_default()
        })
    }
}

fn with_unit(row: Row) -> String {
    format!("{}, {}", row.title(), row.unit())
}

fn without_unit(row: Row) -> String {
    row.title().to_owned()
}

/// Least, median, most.
fn spread(mut values: Vec<f64>) -> Option<(f64, f64, f64)> {
    values.sort_by(f64::total_cmp);
    let (least, most) = (*values.first()?, *values.last()?);
    let (low, high) = (values[(values.len() - 1) / 2], values[values.len() / 2]);
    Some((least, (low + high) / 2.0, most))
}

/// Three digits say all that such a number is worth.
fn number(value: f64) -> String {
    match value {
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    }
}

/// Processes that want a CPU, on average of the last minute, as the system says.
pub fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().unwrap_or_default().to_owned()
}

/// What the numbers depend on. The load before counts what others do.
pub fn conditions(medium: &str, rounds: usize, load_before: &str) -> String {
    let cpus = std::thread::available_parallelism().map_or(0, usize::from);
    let uname = rustix::system::uname();
    let kernel = uname.release().to_string_lossy();
    let noisy = load_before.parse::<f64>().is_ok_and(|load| load > 0.7);
    let warning = if noisy { " Others used the machine: the numbers are noisy." } else { "" };
    format!(
        "Members on {medium}, {cpus} CPUs, kernel {kernel}, {rounds} rounds, load before {load_before}.{warning}\n"
    )
}
