//! `poolctl plan`.

use std::process::ExitCode;

use poolfs::layout::{Kind, Resiliency, usable_bytes};
use poolfs::member::open::MemberSpec;
use poolfs::pool::{self, CreateOptions};
use poolfs::units::format_size;
use serde::Serialize;

use super::devices;
use super::error::{Result, ToolError};
use super::layout_args::LayoutArgs;
use super::output::{json, print_table, table};

/// Show what members could hold that are not a pool yet. Nothing is changed.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// PATH[,size=SIZE][,reserve=SIZE], as `create` takes them.
    #[arg(required = true, value_name = "MEMBER")]
    members: Vec<String>,
    #[command(flatten)]
    layout: LayoutArgs,
    /// Count members that were used before, as if they were empty.
    #[arg(long)]
    force: bool,
    /// As JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Plan {
    members: Vec<String>,
    raw_bytes: u64,
    layouts: Vec<Row>,
    warnings: Vec<String>,
}

#[derive(Serialize)]
struct Row {
    resiliency: String,
    tolerance: usize,
    usable_bytes: Option<u64>,
    slab_bytes: Option<u64>,
    /// Why it is not possible, when it is not.
    why: Option<String>,
}

/// Shows it, for the layout that is given or for all.
///
/// # Errors
/// When what is given makes no sense, or nothing is possible with these members.
pub fn run(args: &Args) -> Result<ExitCode> {
    let members = args.members.iter().map(|text| MemberSpec::parse(text).map_err(ToolError::Spec));
    let members = members.collect::<Result<Vec<_>>>()?;
    let slab_bytes = args.layout.slab_bytes()?;
    let asked = args.layout.resiliency.is_some();
    let layouts = if asked { vec![args.layout.resiliency()?] } else { all(args)? };
    let mut rows = Vec::new();
    let mut raw_bytes = 0;
    let mut trouble = None;
    for resiliency in layouts {
        let options = CreateOptions {
            name: "plan".to_owned(),
            members: members.clone(),
            resiliency,
            slab_bytes,
            force: args.force,
        };
        match pool::plan(&options) {
            Ok(plan) => {
                let slab = plan.dimensions.slab_bytes;
                raw_bytes = plan.slabs.iter().sum::<u64>() * slab;
                rows.push(row(&resiliency, Ok((usable_bytes(&plan.slabs, &resiliency, slab), slab))));
            }
            Err(error) => {
                rows.push(row(&resiliency, Err(error.to_string())));
                trouble = Some(error);
            }
        }
    }
    if let (Some(error), true) = (trouble, rows.iter().all(|row| row.usable_bytes.is_none())) {
        return Err(error.into());
    }
    let plan = Plan {
        members: args.members.clone(),
        raw_bytes,
        layouts: rows,
        warnings: devices::warnings(&members),
    };
    show(args, plan)?;
    Ok(ExitCode::SUCCESS)
}

fn all(args: &Args) -> Result<Vec<Resiliency>> {
    let interleave = args.layout.interleave()?;
    let families = [
        (Kind::Simple, None, None),
        (Kind::Mirror, Some(2), None),
        (Kind::Mirror, Some(3), None),
        (Kind::StripedMirror, Some(2), None),
        (Kind::StripedMirror, Some(3), None),
        (Kind::Parity, None, Some(1)),
        (Kind::Parity, None, Some(2)),
        (Kind::Parity, None, Some(3)),
    ];
    let made = families
        .into_iter()
        .map(|(kind, copies, parity)| Ok(Resiliency::new(kind, copies, parity, None, interleave)?));
    made.collect()
}

fn row(resiliency: &Resiliency, usable: std::result::Result<(u64, u64), String>) -> Row {
    let (sizes, why) = match usable {
        Ok(sizes) => (Some(sizes), None),
        Err(why) => (None, Some(why)),
    };
    Row {
        resiliency: resiliency.to_string(),
        tolerance: resiliency.tolerance(),
        usable_bytes: sizes.map(|(usable, _)| usable),
        slab_bytes: sizes.map(|(_, slab)| slab),
        why,
    }
}

fn show(args: &Args, plan: Plan) -> Result<()> {
    for warning in &plan.warnings {
        eprintln!("poolctl: warning: {warning}");
    }
    if args.json {
        return json(plan);
    }
    let mut shown = table(&["LAYOUT", "USABLE", "OF RAW", "MAY BE LOST"], 1);
    for row in &plan.layouts {
        let Some(usable) = row.usable_bytes else {
            shown.add_row(vec![row.resiliency.clone(), "-".into(), "-".into(), row.tolerance.to_string()]);
            continue;
        };
        let share = usable.saturating_mul(100).checked_div(plan.raw_bytes).unwrap_or(0);
        shown.add_row(vec![
            row.resiliency.clone(),
            format_size(usable),
            format!("{share} %"),
            row.tolerance.to_string(),
        ]);
    }
    print_table(&shown);
    for row in plan.layouts.iter().filter(|row| row.why.is_some()) {
        say!("  {}: {}", row.resiliency, row.why.as_deref().unwrap_or_default());
    }
    say!(
        "  of {} in slabs; about 2 % are kept in reserve, and metadata takes its part",
        format_size(plan.raw_bytes)
    );
    Ok(())
}
