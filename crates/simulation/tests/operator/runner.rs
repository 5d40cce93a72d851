//! Runs one process for each seed, with the same randomness each time and a timeout in real time.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use crate::trace::Trace;

/// The environment variable of a process that runs one seed.
const SEED: &str = "SIMULATION_SEED";
/// The test that such a process runs.
const CHILD: &str = "runner::one_seed";
/// The prefix of the last line of a process.
const RESULT: &str = "RESULT ";
/// The timeout of a seed, which normally takes a second.
///
/// A simulation that takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(300);

/// The result of one seed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) seed: u64,
    /// The result that the process printed at its end, if it did.
    pub(crate) result: Option<serde_json::Value>,
    /// The output of the process.
    pub(crate) output: String,
}

impl Outcome {
    pub(crate) fn violations(&self) -> Vec<String> {
        let Some(result) = &self.result else { return vec!["it ended without a result".to_owned()] };
        let texts = result["violations"].as_array().into_iter().flatten();
        texts.map(|text| text.as_str().unwrap_or_default().to_owned()).collect()
    }
}

/// The library that replaces the system's randomness.
///
/// It is built once.
fn entropy() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/operator/entropy.c");
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR"));
        std::fs::create_dir_all(directory).expect("a directory for the library");
        let (library, fresh) =
            (directory.join("entropy.so"), directory.join(format!("entropy-{}.so", std::process::id())));
        let mut cc = Command::new("cc");
        cc.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&fresh).arg(source);
        assert!(cc.status().expect("cc is installed").success());
        std::fs::rename(&fresh, &library).expect("the library is put in place");
        library
    })
}

/// Runs a seed in a process of its own.
pub(crate) fn run(seed: u64, settings: &[(&str, &str)]) -> Outcome {
    let own = std::env::current_exe().expect("this program's path");
    let mut command = Command::new(own);
    command.args(["--exact", CHILD, "--nocapture", "--test-threads=1"]);
    command.env(SEED, seed.to_string()).env("LD_PRELOAD", entropy()).envs(settings.iter().copied());
    let output = command.output().expect("a process for a seed");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let result = text.lines().find_map(|line| serde_json::from_str(line.strip_prefix(RESULT)?).ok());
    let errors = String::from_utf8_lossy(&output.stderr);
    Outcome { seed, result, output: format!("{text}{errors}") }
}

/// Runs seeds on all cores, and passes each outcome to `each` as it arrives.
pub(crate) fn run_all(
    seeds: impl Iterator<Item = u64> + Send,
    settings: &[(&str, &str)],
    each: impl FnMut(Outcome) + Send,
) {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let (seeds, each) = (std::sync::Mutex::new(seeds), std::sync::Mutex::new(each));
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                loop {
                    let Some(seed) = seeds.lock().unwrap().next() else { return };
                    let outcome = run(seed, settings);
                    (each.lock().unwrap())(outcome);
                }
            });
        }
    });
}

struct Fixed;

impl ahash::random_state::RandomSource for Fixed {
    fn gen_hasher_seed(&self) -> usize {
        0x5EED
    }
}

/// The only test of a process that runs a seed.
#[test]
fn one_seed() {
    let Some(seed) = std::env::var(SEED).ok().and_then(|text| text.parse().ok()) else { return };
    let _ = ahash::random_state::set_random_source(Fixed);
    let trace = Trace::new(std::env::var("ALOUD").is_ok());
    let watched = trace.clone();
    std::thread::spawn(move || {
        std::thread::sleep(PATIENCE);
        println!("time stands still:");
        watched.tail(60).iter().for_each(|line| println!("{line}"));
        std::process::exit(3);
    });
    // A new thread begins with the same randomness, even if the harness has drawn some.
    let run = move || crate::world::run(seed, &trace);
    let result = std::thread::Builder::new().stack_size(16 << 20).spawn(run).expect("a thread").join();
    println!("{RESULT}{}", result.unwrap_or_else(|_| serde_json::json!({"violations": ["the simulation panicked"]})));
}
