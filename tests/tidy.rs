//! The shape of the project, checked: who imports whom, who may name which library, how long a file may get.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The layers, lowest first, as `src/lib.rs` lists them. A module uses those of its own and of lower layers.
const LAYERS: [&[&str]; 9] = [
    &["units", "limits", "sync"],
    &["layout", "codec"],
    &["member"],
    &["pool"],
    &["store"],
    &["cache"],
    &["fs"],
    &["maintain"],
    &["fuse", "control"],
];

/// Libraries that few may name.
const RESERVED: [(&str, &[&str]); 2] = [("fuser", &["src/fuse/"]), ("bincode", &["src/member/wire.rs"])];

/// A file that gets longer wants to be split by concept.
const LINES_MOST: usize = 700;

/// Below the cache nobody knows what a file is: an upper layer hands it what it needs.
const PURE: [(&str, &[&str]); 2] = [
    ("src/layout/", &["std::fs", "std::io", "parking_lot", "crate::sync", "std::sync", "std::thread"]),
    ("src/codec/", &["std::fs", "std::io", "parking_lot", "crate::sync", "std::sync", "std::thread"]),
];

struct Source {
    path: String,
    text: String,
}

impl Source {
    /// The code, without comments and without its own tests.
    fn code(&self) -> String {
        let before_tests = self.text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        let lines = before_tests.lines().map(|line| line.split("//").next().unwrap_or_default());
        lines.collect::<Vec<_>>().join("\n")
    }

    fn is_test(&self) -> bool {
        self.path.contains("/tests/") || self.path.ends_with("/tests.rs") || self.path.starts_with("tests/")
    }

    fn module(&self) -> Option<&str> {
        let inner = self.path.strip_prefix("src/")?;
        inner.split(['/', '.']).next()
    }
}

fn sources(dirs: &[&str]) -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut paths = Vec::new();
    dirs.iter().for_each(|dir| collect(&root.join(dir), &mut paths));
    paths.sort();
    let source = |path: PathBuf| {
        let text = fs::read_to_string(&path).expect("a source file is text");
        let path = path.strip_prefix(root).expect("below the root").display().to_string();
        Source { path, text }
    };
    let all: Vec<Source> = paths.into_iter().map(source).collect();
    assert!(all.len() > 20, "the sources are not where they are expected");
    all
}

fn collect(dir: &Path, paths: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).expect("listed").flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect(&path, paths);
        } else if path.extension().is_some_and(|ext| ext == "rs") {
            paths.push(path);
        }
    }
}

/// The word that follows each `prefix` in `code`.
fn words_after<'a>(code: &'a str, prefix: &'a str) -> impl Iterator<Item = &'a str> {
    code.match_indices(prefix).map(move |(at, _)| {
        let rest = &code[at + prefix.len()..];
        rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default()
    })
}

/// Does `code` name the library, as the start of a path?
fn names(code: &str, library: &str) -> bool {
    code.match_indices(&format!("{library}::")).any(|(at, _)| {
        let before = code[..at].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':')
    })
}

#[track_caller]
fn none(what: &str, found: &[String]) {
    assert!(found.is_empty(), "{what}:\n  {}", found.join("\n  "));
}

#[test]
fn lower_layers_do_not_import_higher_ones() {
    let floor: BTreeMap<&str, usize> = LAYERS
        .iter()
        .enumerate()
        .flat_map(|(floor, modules)| modules.iter().map(move |module| (*module, floor)))
        .collect();
    let mut found = Vec::new();
    for source in sources(&["src"]) {
        let Some(&own) = source.module().and_then(|module| floor.get(module)) else { continue };
        // Tests stand on whatever they need.
        if source.is_test() {
            continue;
        }
        let code = source.code();
        for used in words_after(&code, "crate::") {
            match floor.get(used) {
                Some(&other) if other > own => found.push(format!("{} imports {used}", source.path)),
                _ => {}
            }
        }
    }
    none("imports upwards", &found);
}

#[test]
fn every_module_has_its_layer() {
    let listed: BTreeSet<&str> = LAYERS.iter().flat_map(|modules| modules.iter().copied()).collect();
    let lib = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/lib.rs")).expect("lib.rs");
    let declared: BTreeSet<&str> = words_after(&lib, "\npub mod ").collect();
    assert_eq!(declared, listed, "src/lib.rs and the layers of this test differ");
    for module in declared {
        assert!(lib.contains(&format!("[`{module}`]")), "the table in src/lib.rs does not name {module}");
    }
}

#[test]
fn reserved_libraries_are_named_in_their_place_only() {
    let mut found = Vec::new();
    for source in sources(&["src", "tools"]) {
        for (library, places) in RESERVED {
            let allowed = places.iter().any(|place| source.path.starts_with(place));
            if !allowed && names(&source.code(), library) {
                found.push(format!("{} names {library}, which only {places:?} may", source.path));
            }
        }
    }
    none("libraries out of place", &found);
}

#[test]
fn pure_layers_know_no_files_and_no_threads() {
    let mut found = Vec::new();
    for source in sources(&["src"]).iter().filter(|source| !source.is_test()) {
        for (place, forbidden) in PURE.iter().filter(|(place, _)| source.path.starts_with(place)) {
            let code = source.code();
            let used = forbidden.iter().filter(|word| code.contains(**word));
            found.extend(used.map(|word| format!("{} (in {place}) uses {word}", source.path)));
        }
    }
    none("not pure any more", &found);
}

/// Threads of the layers that are simulated come from one module, so that another could stand in for it.
#[test]
fn threads_are_started_by_the_sync_module() {
    let mut found = Vec::new();
    for source in sources(&["src"]) {
        let simulated =
            ["pool", "store", "cache", "fs", "maintain"].iter().any(|module| source.module() == Some(module));
        if simulated && !source.is_test() && source.code().contains("thread::spawn") {
            found.push(source.path);
        }
    }
    none("threads started beside crate::sync", &found);
}

#[test]
fn files_stay_short() {
    let mut found = Vec::new();
    for source in sources(&["src", "tools", "tests", "examples"]) {
        let lines = source.text.lines().count();
        if lines > LINES_MOST {
            found.push(format!("{} has {lines} lines", source.path));
        }
    }
    none("too long", &found);
}

#[test]
fn nothing_is_left_unfinished() {
    // Put together, so that this file does not find itself.
    let marks =
        [concat!("to", "do!"), concat!("unimpl", "emented!"), concat!("FIX", "ME"), concat!("#[ign", "ore")];
    let mut found = Vec::new();
    for source in sources(&["src", "tools", "tests", "examples"]) {
        for (number, line) in source.text.lines().enumerate() {
            found.extend(
                marks
                    .iter()
                    .filter(|mark| line.contains(**mark))
                    .map(|mark| format!("{}:{}: {mark}", source.path, number + 1)),
            );
        }
    }
    none("unfinished", &found);
}

/// A file that no `mod` names is compiled by nobody.
#[test]
fn no_file_is_dead() {
    let all = sources(&["src", "tools", "tests", "examples"]);
    let paths: BTreeSet<&str> = all.iter().map(|source| source.path.as_str()).collect();
    let roots = |path: &str| {
        let parts: Vec<&str> = path.split('/').collect();
        let top_level = parts.len() == 2 && matches!(parts[0], "tests" | "examples");
        // Named in the fuzz package's own Cargo.toml.
        let target = parts.starts_with(&["tests", "fuzz", "targets"]);
        path == "src/lib.rs" || parts.last() == Some(&"main.rs") || top_level || target
    };
    let mut alive: BTreeSet<String> =
        paths.iter().filter(|path| roots(path)).map(ToString::to_string).collect();
    let mut queue: Vec<String> = alive.iter().cloned().collect();
    while let Some(path) = queue.pop() {
        let Some(source) = all.iter().find(|source| source.path == path) else { continue };
        for module in declared_modules(&source.text) {
            for candidate in candidates(&path, &module) {
                if paths.contains(candidate.as_str()) && alive.insert(candidate.clone()) {
                    queue.push(candidate);
                }
            }
        }
    }
    let dead: Vec<String> =
        paths.iter().filter(|path| !alive.contains(**path)).map(ToString::to_string).collect();
    none("no module names these files", &dead);
}

fn declared_modules(text: &str) -> Vec<String> {
    let declared = text.lines().filter_map(|line| {
        let line = line.trim().trim_start_matches("pub ").trim_start_matches("pub(crate) ");
        let line = line.trim_start_matches("pub(super) ");
        line.strip_prefix("mod ")?.strip_suffix(';').map(str::to_owned)
    });
    declared.collect()
}

/// Where the module of this name may be, declared in the file at `path`.
fn candidates(path: &str, module: &str) -> Vec<String> {
    let (dir, file) = path.rsplit_once('/').unwrap_or(("", path));
    let own = file.trim_end_matches(".rs");
    let is_root = matches!(own, "mod" | "lib" | "main") || matches!(dir, "tests" | "examples");
    let mut bases = vec![format!("{dir}/{own}")];
    if is_root {
        bases.push(dir.to_owned());
    }
    bases.iter().flat_map(|base| [format!("{base}/{module}.rs"), format!("{base}/{module}/mod.rs")]).collect()
}
