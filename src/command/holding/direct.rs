//! A lock straight from the members, without Kubernetes.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use redlock_client::{Builder, Client, Guard, NotAcquired};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::arguments::{LockArgs, Members, Wait};
use super::held::{End, Held, Keeper, LONGEST_SLEEP, NotHeld, Source, Validity};
use super::identity;
use super::progress::Progress;
use super::signals::Signals;
use crate::time::{Boottime, Clock, SystemClock};

/// For releases to reach the members.
const CLOSE: Duration = Duration::from_secs(2);
/// A validity that is so much longer was renewed.
const RESOLUTION: Duration = Duration::from_millis(1);
/// Longer than any wait that a person means.
const WITHOUT_END: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// A hold that a client of the members renews.
#[derive(Debug)]
pub(in crate::command) struct DirectHold {
    client: Client,
    release: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl DirectHold {
    /// Gives the lock back. Whether that has reached all members is not waited for.
    pub(super) async fn release(self) -> anyhow::Result<()> {
        // An error says that the task has ended: the lock was lost.
        let _ = self.release.send(());
        Ok(self.task.await?)
    }

    /// The same, for a process that takes no other lock.
    pub(super) async fn release_and_close(self) -> anyhow::Result<()> {
        let client = self.client.clone();
        self.release().await?;
        Ok(client.close(CLOSE).await?)
    }
}

/// A client of the members.
pub(super) async fn connect(args: &LockArgs, members: &Members) -> anyhow::Result<Client> {
    Ok(builder(args, members)?.connect().await?)
}

/// Waits until what was released has reached the members.
pub(super) async fn close(client: &Client) {
    let _ = client.close(CLOSE).await;
}

/// Takes the lock from the members.
pub(super) async fn take(
    client: &Client,
    args: &LockArgs,
    signals: &mut Signals,
    progress: &mut Progress,
) -> Result<Held, NotHeld> {
    let guard = tokio::select! {
        biased;
        signal = signals.ending() => return Err(NotHeld::Signal(signal)),
        acquired = acquire(client, args, progress) => acquired.map_err(|error| not_held(args, error))?,
    };
    let holder = args.identity.clone().unwrap_or_else(identity::of_process);
    let token = guard.token().get();
    let (published, validity) = watch::channel(Validity { until: valid_until(&guard), end: None });
    let (release, released) = oneshot::channel();
    let task = tokio::spawn(keep(guard, published, released, args.ttl.get()));
    let keeper = Keeper::Direct(DirectHold { client: client.clone(), release, task });
    Ok(Held { lock: args.lock.to_string(), token, holder, validity, source: Source::Members, keeper })
}

fn not_held(args: &LockArgs, error: NotAcquired) -> NotHeld {
    match error {
        NotAcquired::HeldByOther { .. } => NotHeld::NotAcquired(format!("lock {} is taken: {error}", args.lock)),
        NotAcquired::NoQuorum { .. } => NotHeld::NotAnswered(format!("lock {} was not acquired: {error}", args.lock)),
        NotAcquired::Expired | NotAcquired::CountersApart | NotAcquired::Waiting { .. } => {
            NotHeld::NotAnswered(format!("lock {} was not acquired: {error}", args.lock))
        }
        error => NotHeld::Failed(anyhow::Error::new(error).context(format!("lock {} cannot be acquired", args.lock))),
    }
}

async fn acquire(client: &Client, args: &LockArgs, progress: &mut Progress) -> Result<Guard, NotAcquired> {
    // A number that is none is refused by the library.
    let slots = args.slots.map_or(1, |slots| u32::try_from(slots).unwrap_or(0));
    let lock = client.lock(args.lock.to_string()).ttl(args.ttl.get()).slots(slots);
    let error = loop {
        match lock.clone().try_acquire().await {
            Ok(guard) => return Ok(guard),
            // This says nothing of other holders, so --try waits for it, too.
            Err(error @ NotAcquired::Waiting { left }) => {
                progress.say(&format!("{error}: this client does not know for how long they have been running"));
                sleep(left).await;
            }
            Err(error) => break error,
        }
    };
    let wait = match args.wait() {
        Wait::Never => return Err(error),
        Wait::For(wait) => wait,
        Wait::Forever => WITHOUT_END,
    };
    match error {
        NotAcquired::HeldByOther { .. } => progress.say(&error.to_string()),
        NotAcquired::NoQuorum { .. } => progress.say_unknown(&error.to_string()),
        _ => {}
    }
    lock.wait(wait).acquire().await
}

/// Publishes what the client knows of the hold, until it is lost or to be released.
async fn keep(guard: Guard, published: watch::Sender<Validity>, mut released: oneshot::Receiver<()>, ttl: Duration) {
    let look = (ttl / 20).min(LONGEST_SLEEP);
    loop {
        tokio::select! {
            biased;
            _ = &mut released => break,
            lost = guard.lost() => {
                published.send_modify(|validity| validity.end = Some(End::Lost(lost.cause.to_string())));
                let _ = released.await;
                break;
            }
            () = sleep(look) => {
                let until = valid_until(&guard);
                published.send_if_modified(|validity| {
                    // Two readings of one validity differ a little.
                    let is_later = until > validity.until + RESOLUTION;
                    if is_later {
                        validity.until = until;
                    }
                    is_later
                });
            }
        }
    }
    // The majority counts; what else is on its way `close` waits for.
    let _ = timeout(CLOSE, guard.release()).await;
}

/// The clock is read first, so the sum is never too late.
fn valid_until(guard: &Guard) -> Boottime {
    let now = SystemClock.boottime();
    now + guard.remaining()
}

fn builder(args: &LockArgs, members: &Members) -> anyhow::Result<Builder> {
    let (builder, ca) = match members {
        Members::Directory(_) | Members::Entries(_) => {
            let data = members.secret()?.unwrap_or_default();
            (Client::from_secret(&data)?, data.get("ca.crt").cloned())
        }
        Members::Urls(urls) => {
            let ca = args.direct.ca_file.as_deref().map(fs::read).transpose().context("--ca-file cannot be read")?;
            let builder = match (args.direct.wait_before_voting, args.direct.admit_at_once) {
                (Some(max_ttl), false) => Client::builder(urls).wait_before_voting(max_ttl.get()),
                (None, true) => Client::builder(urls).admit_at_once(),
                _ => bail!(
                    "the members' URLs do not say whether an operator fences these members: choose --wait-before-voting MAX-TTL \
                     (the longest ttl that any client uses there), or --admit-at-once if a restarted master may give the lock away twice"
                ),
            };
            (builder, ca)
        }
    };
    let builder = if args.direct.without_token { builder.without_token() } else { builder };
    Ok(match ca {
        Some(ca) => builder.tls(Arc::new(trusted(&ca)?)),
        None => builder,
    })
}

/// Trusts what this certificate authority has signed, and nothing else.
pub(in crate::command) fn trusted(ca: &[u8]) -> anyhow::Result<ClientConfig> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(ca) {
        roots.add(certificate.context("ca.crt holds no certificate that can be read")?)?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}

/// The entries of a Secret that is mounted as a directory.
pub(in crate::command) fn secret_of_directory(directory: &Path) -> anyhow::Result<BTreeMap<String, Vec<u8>>> {
    let mut data = BTreeMap::new();
    let entries = fs::read_dir(directory).with_context(|| format!("{} cannot be read", directory.display()))?;
    for entry in entries {
        let path = entry?.path();
        // Kubernetes keeps the files in a folder that begins with two dots, and links to them.
        if let Some(name) = path.file_name().and_then(|name| name.to_str()).filter(|name| !name.starts_with('.'))
            && path.is_file()
        {
            let content = fs::read(&path).with_context(|| format!("{} cannot be read", path.display()))?;
            data.insert(name.to_owned(), content);
        }
    }
    Ok(data)
}
