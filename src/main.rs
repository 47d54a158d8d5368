//! `poolfs`: mounts and unmounts pools.

mod cli;

fn main() -> std::process::ExitCode {
    cli::run()
}
