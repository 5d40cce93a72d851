//! `redlock list`: all locks of a namespace or of the cluster.

use std::collections::BTreeSet;
use std::pin::pin;

use futures::TryStreamExt as _;
use kube::ResourceExt as _;
use kube::runtime::watcher;
use serde_json::{Value, json};

use crate::cluster::objects::LockObject;
use crate::cluster::{Cluster, Problem, ScopeArgs, any_of};
use crate::console;
use crate::output::format::{clock, count};
use crate::output::{Answer, Format, OutputArgs, Paint, Printer, Table, Tone};
use crate::show::lock_row;
use redlock_api::MilliTime;
use redlock_api::watches::limited_watch;

/// Which locks, and how they are shown.
#[derive(Debug, clap::Args)]
pub struct ListArgs {
    #[command(flatten)]
    scope: ScopeArgs,
    #[command(flatten)]
    output: OutputArgs,
    /// Print each change after the list, until Ctrl-C.
    #[arg(short, long)]
    watch: bool,
    /// List only locks that are held.
    #[arg(long, conflicts_with = "waiting")]
    held: bool,
    /// List only locks that wait.
    #[arg(long)]
    waiting: bool,
    /// List finished locks too.
    #[arg(long)]
    all: bool,
}

impl ListArgs {
    fn means(&self, lock: &LockObject) -> bool {
        (self.all || !lock.is_finished())
            && (!self.held || lock.is_held())
            && (!self.waiting || !lock.is_held() && !lock.is_finished())
    }
}

/// A list at one moment.
#[derive(Debug)]
pub struct Listed {
    /// The locks, in the order of the output.
    pub locks: Vec<LockObject>,
    /// The time of the list.
    pub now: MilliTime,
    /// The namespace or the cluster, in words.
    pub place: String,
    /// The number of finished locks that are not listed.
    pub hidden: usize,
}

impl Answer for Listed {
    fn value(&self) -> Value {
        json!({"items": self.locks.iter().map(|lock| lock_row::value(lock, self.now)).collect::<Vec<_>>()})
    }

    fn text(&self, paint: Paint, wide: bool) -> String {
        let hidden = match self.hidden {
            0 => String::new(),
            number => format!("{} not listed. List them with --all.\n", count(number, "finished lock")),
        };
        if self.locks.is_empty() {
            return format!("No locks in {}.\n{hidden}", self.place);
        }
        let mut table = Table::new(lock_row::titles(wide));
        self.locks.iter().for_each(|lock| table.push(lock_row::cells(lock, self.now, wide)));
        table.render(paint) + &paint.tone(Tone::Dim, &hidden)
    }

    fn names(&self) -> Vec<String> {
        self.locks.iter().map(|lock| format!("dlock/{}", lock.name_any())).collect()
    }
}

/// Prints the list.
///
/// # Errors
/// If the API server does not answer.
pub async fn run(args: ListArgs) -> anyhow::Result<()> {
    let cluster = Cluster::connect(&args.scope.cluster).await?;
    let printer = Printer::new(args.output);
    let namespace = args.scope.of(&cluster.namespace);
    if args.watch {
        return watch(&cluster, namespace, &args, printer).await;
    }
    let mut locks: Vec<LockObject> = cluster.list(namespace, "").await?;
    let is_hidden = |lock: &&LockObject| lock.is_finished() && !args.all && !args.held && !args.waiting;
    let hidden = locks.iter().filter(is_hidden).count();
    locks.retain(|lock| args.means(lock));
    lock_row::sort(&mut locks);
    printer.show(&Listed { locks, now: cluster.now(), place: any_of(namespace), hidden })
}

async fn watch(cluster: &Cluster, namespace: Option<&str>, args: &ListArgs, printer: Printer) -> anyhow::Result<()> {
    // The list reports an error of the first request. The watch repeats later requests.
    let _allowed: Vec<LockObject> = cluster.list(namespace, "").await?;
    let mut events = pin!(limited_watch(cluster.api::<LockObject>(namespace), watcher::Config::default()));
    let (mut first, mut reported, mut widths, mut gap) = (Vec::new(), BTreeSet::new(), None, false);
    loop {
        let event = match events.try_next().await {
            Ok(Some(event)) => event,
            Ok(None) => return Ok(()),
            Err(error) => {
                // Each interruption has one warning.
                if !std::mem::replace(&mut gap, true) {
                    console::write_error(&format!("warning: the watch was interrupted and begins again: {error}\n"));
                }
                continue;
            }
        };
        gap = false;
        match event {
            watcher::Event::Init => first.clear(),
            watcher::Event::InitApply(lock) => first.push(lock),
            watcher::Event::InitDone => {
                // The watch reports no end of an object that was deleted during an interruption.
                for gone in relisted(&mut reported, &first) {
                    print_gone(&gone, cluster.now(), printer)?;
                }
                lock_row::sort(&mut first);
                let listed = first.drain(..).filter(|lock| args.means(lock)).collect();
                widths = Some(print(listed, cluster.now(), printer, widths.as_deref())?);
            }
            watcher::Event::Apply(lock) => {
                reported.insert(identity(&lock));
                // The end of a listed lock is also a change for the user.
                if args.means(&lock) || lock.is_finished() && !args.held && !args.waiting {
                    widths = Some(print(vec![lock], cluster.now(), printer, widths.as_deref())?);
                }
            }
            watcher::Event::Delete(lock) => {
                reported.remove(&identity(&lock));
                print_gone(&identity(&lock), cluster.now(), printer)?;
            }
        }
    }
}

/// The lock of an object, and its name.
type Identity = (String, String);

fn identity(lock: &LockObject) -> Identity {
    (lock.lock(), lock.name_any())
}

/// Replaces the reported objects by those of a new list. Returns the objects that it does not have.
fn relisted(reported: &mut BTreeSet<Identity>, list: &[LockObject]) -> Vec<Identity> {
    let before = std::mem::replace(reported, list.iter().map(identity).collect());
    before.into_iter().filter(|object| !reported.contains(object)).collect()
}

/// Prints that an object was deleted.
fn print_gone((lock, name): &Identity, now: MilliTime, printer: Printer) -> anyhow::Result<()> {
    printer.print_line(&format!("{} {lock} (dlock/{name}) is gone", clock(now)))?;
    if printer.format == Some(Format::Json) {
        printer.next_value(&json!({"gone": true, "lock": lock, "name": name}))?;
    }
    Ok(())
}

/// Prints locks as the next part of a sequence. Returns the widths of the columns.
fn print(
    locks: Vec<LockObject>,
    now: MilliTime,
    printer: Printer,
    widths: Option<&[usize]>,
) -> anyhow::Result<Vec<usize>> {
    let wide = printer.format == Some(Format::Wide);
    let mut titles = lock_row::titles(wide);
    titles.insert(0, "TIME");
    let mut table = Table::new(titles);
    for lock in &locks {
        let mut cells = lock_row::cells(lock, now, wide);
        cells.insert(0, clock(now).into());
        table.push(cells);
    }
    let wider = table.widths(widths.unwrap_or_default());
    match (printer.format, widths) {
        (Some(Format::Json | Format::Yaml), _) => {
            locks.iter().try_for_each(|lock| printer.next_value(&lock_row::value(lock, now)))?;
        }
        (Some(Format::Name), _) => {
            locks.iter().try_for_each(|lock| printer.write(&format!("dlock/{}\n", lock.name_any())))?;
        }
        (_, None) => printer.write(&table.render(printer.paint))?,
        (_, Some(_)) => printer.write(&table.render_rows(&wider, printer.paint))?,
    }
    Ok(wider)
}

/// The objects that match a target, and the other objects on their keys. Holders come first.
#[derive(Debug)]
pub struct Found {
    /// The matching objects.
    pub meant: Vec<LockObject>,
    /// The competing objects.
    pub others: Vec<LockObject>,
}

/// Lists the locks of a target.
///
/// # Errors
/// If no lock matches, or the API server does not answer.
pub async fn find(cluster: &Cluster, target: &crate::cluster::target::Target) -> Result<Found, Problem> {
    use crate::cluster::target::Named;
    let mut all: Vec<LockObject> = cluster.list(Some(&target.namespace), "").await?;
    lock_row::sort(&mut all);
    let key = match &target.lock {
        Named::Key(key) => Some(key.clone()),
        Named::Object(name) => all.iter().find(|lock| lock.name_any() == *name).map(LockObject::key),
    };
    all.retain(|lock| Some(lock.key()) == key);
    let (meant, others): (Vec<_>, Vec<_>) = all.into_iter().partition(|lock| target.means(lock));
    if meant.is_empty() {
        let what = match &target.lock {
            Named::Key(key) => format!("no DistributedLock in namespace {} has the key {key}", target.namespace),
            Named::Object(name) => format!("DistributedLock {}/{name} does not exist", target.namespace),
        };
        let next = format!("See which locks exist: redlock list -n {}", target.namespace);
        return Err(Problem { code: Some(404), ..Problem::new(what, next) });
    }
    Ok(Found { meant, others })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::objects::fake::{condition, held, now, waiting};
    use crate::tests::parsed;

    #[test]
    fn finished_locks_are_listed_on_request() {
        let means = |flags: &[&str], lock: &LockObject| parsed::<ListArgs>(flags).unwrap().means(lock);
        let mut ended = waiting("b", "WaitTimeout", "", None);
        ended.status.conditions.push(condition("Finished", "True", "WaitTimeout", ""));
        for (flags, is_listed) in [(&["--all"][..], true), (&[], false), (&["--all", "--waiting"], false)] {
            assert_eq!(means(flags, &ended), is_listed, "{flags:?}");
        }
        assert!(means(&[], &held("a")) && !means(&["--waiting"], &held("a")));
    }

    #[test]
    fn a_new_list_of_a_watch_shows_which_objects_are_gone() {
        let mut reported = BTreeSet::new();
        assert!(relisted(&mut reported, &[held("a"), held("b")]).is_empty());
        assert_eq!(relisted(&mut reported, &[held("b"), held("c")]), [("shop/reindex".to_owned(), "a".to_owned())]);
        assert!(relisted(&mut reported, &[held("b"), held("c")]).is_empty(), "each end is reported once");
    }

    #[test]
    fn a_list_is_a_table_or_items_or_names() {
        let listed = Listed {
            locks: vec![held("a"), waiting("b", "Queued", "", Some(1))],
            now: now(),
            place: "x".into(),
            hidden: 0,
        };
        assert_eq!(listed.text(Paint::PLAIN, true).lines().count(), 3);
        assert_eq!(listed.value()["items"].as_array().map(Vec::len), Some(2));
        assert_eq!(listed.names(), ["dlock/a", "dlock/b"]);
        let mut none = Listed { locks: Vec::new(), now: now(), place: "namespace shop".into(), hidden: 0 };
        assert_eq!(none.text(Paint::PLAIN, false), "No locks in namespace shop.\n");
        none.hidden = 2;
        assert!(none.text(Paint::PLAIN, false).ends_with("\n2 finished locks not listed. List them with --all.\n"));
        assert_eq!(none.value(), json!({"items": []}));
    }
}
