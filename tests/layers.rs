//! The order of modules in each crate (ARCHITECTURE.md): no file imports from a layer above its own, and no two files or folders
//! import each other in a circle. Cargo enforces the order of the crates.
#![expect(clippy::unwrap_used, reason = "a test")]

#[path = "support/sources.rs"]
mod sources;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use sources::sources;

/// The folder of a crate, and its layers, lowest first.
///
/// A file belongs to the longest entry that begins its module path. The empty entry is the rest of the crate.
type Package = (&'static str, &'static [&'static str]);

const PACKAGES: [Package; 5] = [
    ("crates/engine/src", &["sync", "time", "redlock", "voting", ""]),
    ("crates/client/src", &["client", "blocking", "test_util", ""]),
    ("crates/api/src", &[""]),
    ("crates/cli/src", &[""]),
    (
        "src",
        &[
            "redlock",
            "fence",
            "redis_member",
            "evidence",
            "runtime",
            "quorum::model",
            "quorum::session",
            "quorum::controller",
            "quorum",
            "lock::model",
            "lock::replica",
            "lock::leader",
            "lock",
            "job",
            "operator",
            "",
        ],
    ),
];

/// Crates that are not part of a release.
///
/// The state machines of the simulation import each other.
const TOOLS: [Package; 2] = [("crates/bench/src", &[""]), ("crates/simulation/src", &[""])];

/// The page that shows the order of modules, between its first two fences.
const PAGE: &str = "ARCHITECTURE.md";

/// The module path of a file: `[lock, model]` for `src/lock/model.rs`.
///
/// It is empty for the root of a crate.
fn module(path: &Path, sources: &str) -> Vec<String> {
    let path = path.strip_prefix(sources).unwrap().with_extension("");
    path.iter().map(|part| part.to_str().unwrap().to_owned()).filter(|part| part != "lib").collect()
}

/// Whether the module is compiled for tests only.
///
/// Such a module can import anything.
fn is_test(module: &[String]) -> bool {
    module.iter().any(|part| ["tests", "properties", "fake"].contains(&part.as_str()))
}

/// The code of a file without its comments and its module of tests.
fn code(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap();
    let end = text.find("#[cfg(test)]\nmod ").unwrap_or(text.len());
    text[..end].lines().map(|line| line.split("//").next().unwrap()).collect::<Vec<_>>().join("\n")
}

/// Every path in `code` that begins with `crate`, `super` or `self`, from the root of the crate.
///
/// Trees of `use` are resolved.
fn imports(code: &str, module: &[String]) -> BTreeSet<Vec<String>> {
    let mut found = BTreeSet::new();
    for root in ["crate::", "super::", "self::"] {
        for (start, _) in code.match_indices(root) {
            let is_part = code[..start].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':');
            if !is_part {
                paths(&mut code[start..].chars().peekable(), Vec::new(), &mut found);
            }
        }
    }
    found.into_iter().map(|path| absolute(&path, module)).collect()
}

/// Reads one path, or a tree of paths in braces.
fn paths(
    text: &mut std::iter::Peekable<std::str::Chars<'_>>,
    mut path: Vec<String>,
    found: &mut BTreeSet<Vec<String>>,
) {
    let skip = |text: &mut std::iter::Peekable<std::str::Chars<'_>>| {
        while text.next_if(|c| c.is_whitespace() || *c == ',').is_some() {}
    };
    loop {
        if text.next_if_eq(&'{').is_some() {
            skip(text);
            while text.peek().is_some_and(|c| *c != '}') {
                paths(text, path.clone(), found);
                // Skip the new name of an import.
                while text.next_if(|c| ![',', '}'].contains(c)).is_some() {}
                skip(text);
            }
            text.next();
            return;
        }
        let mut name = String::new();
        while let Some(c) = text.next_if(|c| c.is_alphanumeric() || *c == '_') {
            name.push(c);
        }
        path.push(name);
        if text.next_if_eq(&':').is_none() || text.next_if_eq(&':').is_none() {
            found.insert(path);
            return;
        }
    }
}

fn absolute(path: &[String], module: &[String]) -> Vec<String> {
    let up = path.iter().filter(|part| *part == "super").count();
    let base = if path[0] == "crate" { &[] } else { &module[..module.len().saturating_sub(up)] };
    let named = path.iter().filter(|part| !["crate", "self", "super"].contains(&part.as_str()));
    base.iter().chain(named).cloned().collect()
}

fn place(path: &[String], order: &[&str]) -> usize {
    let begins =
        |entry: &&str| entry.split("::").zip(path).filter(|(a, b)| a == b).count() == entry.split("::").count();
    // The first match is the longest, because the list has sublayers before the rest of their folder.
    order.iter().position(|entry| entry.is_empty() || begins(entry)).unwrap()
}

/// The imports of each file, as existing modules.
fn graph(folder: &str) -> BTreeMap<Vec<String>, BTreeSet<Vec<String>>> {
    let files: BTreeMap<_, _> = sources(Path::new(folder))
        .into_iter()
        .filter(|path| path != Path::new("src/main.rs"))
        .map(|path| (module(&path, folder), path))
        .collect();
    let of_file = |mut path: Vec<String>| {
        while !files.contains_key(&path) {
            path.pop();
        }
        path
    };
    let product = files.iter().filter(|(module, _)| !is_test(module));
    product
        .map(|(module, path)| (module.clone(), imports(&code(path), module).into_iter().map(of_file).collect()))
        .collect()
}

#[test]
fn nothing_imports_from_above() {
    for (folder, order) in PACKAGES {
        let place = |path: &[String]| place(path, order);
        let mut upward = Vec::new();
        for (module, imports) in &graph(folder) {
            // The root and the head of a folder name the modules in it.
            let above = |import: &&Vec<String>| place(import) > place(module) && !module.starts_with(import);
            upward.extend(
                imports.iter().filter(above).map(|import| format!("{} -> {}", module.join("::"), import.join("::"))),
            );
        }
        assert!(upward.is_empty(), "{folder}: {upward:#?}");
    }
}

#[test]
fn no_files_import_from_each_other_in_a_circle() {
    let mut files = 0;
    for (package, _) in PACKAGES {
        let graph = graph(package);
        files += graph.len();
        let folders: BTreeSet<_> =
            graph.keys().flat_map(|module| (0..module.len()).map(|depth| &module[..depth])).collect();
        let circles: Vec<_> = folders.iter().flat_map(|folder| circles(&graph, folder)).collect();
        assert!(circles.is_empty(), "{package}: {circles:#?}");
    }
    assert!(files > 300, "only {files} files");
}

/// The files and folders directly below `folder` that import each other in a circle.
fn circles(graph: &BTreeMap<Vec<String>, BTreeSet<Vec<String>>>, folder: &[String]) -> Vec<String> {
    // A file and the folder with its name are one node.
    let child = |module: &Vec<String>| module.starts_with(folder).then(|| module.get(folder.len()).cloned()).flatten();
    let mut left: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (module, imports) in graph {
        if let Some(from) = child(module) {
            let others = imports.iter().filter_map(child).filter(|to| *to != from);
            left.entry(from.clone()).or_default().extend(others);
        }
    }
    // A module that imports none of the remaining modules is in no circle.
    while let Some(free) = left.iter().find(|(_, to)| to.iter().all(|to| !left.contains_key(to))) {
        let free = free.0.clone();
        left.remove(&free);
    }
    left.into_iter().map(|(from, to)| format!("{}::{from} -> {to:?}", folder.join("::"))).collect()
}

/// The first sentence of the documentation of a module.
fn purpose(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap();
    let lines = text.lines().map_while(|line| line.strip_prefix("//!")).map(str::trim);
    let first = lines.take_while(|line| !line.is_empty()).collect::<Vec<_>>().join(" ");
    let sentence = first.split_once(". ").map_or(first.as_str(), |(sentence, _)| sentence).trim_end_matches('.');
    assert!(sentence.len() <= 100, "{}: the first sentence has more than 100 characters", path.display());
    sentence.to_owned()
}

/// The crates and their layers, lowest first, each with the first sentence of its documentation.
fn picture() -> String {
    let mut picture = String::new();
    for (sources, order) in PACKAGES.into_iter().chain(TOOLS) {
        let folder = Path::new(sources);
        let root = ["lib.rs", "main.rs"].map(|name| folder.join(name)).into_iter().find(|path| path.exists()).unwrap();
        picture += &format!("{:<24}{}\n", sources.trim_end_matches("/src"), purpose(&root));
        for layer in order.iter().filter(|layer| !layer.is_empty()) {
            let path = folder.join(layer.replace("::", "/")).with_extension("rs");
            picture += &format!("  {layer:<22}{}\n", purpose(&path));
        }
    }
    picture
}

/// `make layers` prints the picture, and `UPDATE=1 make layers` writes it into the page.
#[test]
fn the_picture_of_the_architecture_is_that_of_the_code() {
    let text = fs::read_to_string(PAGE).unwrap();
    let [before, shown, after] = text.splitn(3, "```\n").collect::<Vec<_>>()[..] else {
        panic!("{PAGE} has no picture")
    };
    let picture = picture();
    println!("{picture}");
    if std::env::var_os("UPDATE").is_some() {
        fs::write(PAGE, [before, &picture, after].join("```\n")).unwrap();
    } else {
        assert_eq!(shown, picture, "UPDATE=1 make layers writes the picture");
    }
}
