//! `docs/reference` is printed from the code: what the operator says, every field, annotations, metrics and the chart's values.

mod fields;
mod messages;
mod source;
mod tables;

use std::path::Path;

use crate::check;

/// Compares a page, or rewrites it.
fn page(name: &str, title: &str, introduction: &str, body: &str) {
    let source = "<!-- Printed from the code by `UPDATE=1 cargo test --test generated`: do not edit. -->\n";
    check(Path::new("docs/reference").join(name), &format!("{source}# {title}\n\n{introduction}\n\n{}\n", body.trim()));
}
