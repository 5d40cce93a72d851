//! A lock straight from the members, without Kubernetes.

mod hold;

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
pub(crate) use hold::DirectHold;
use redlock_client::{BuildError, Builder, Client, Guard, Lock, NotAcquired};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::arguments::{LockArgs, Members, Wait};
use super::held_lock::{HeldLock, NotHeld, Source};
use super::identity;
use super::mounted_secret::Secret;
use super::progress::Progress;
use super::signals::Signals;
use crate::console;

/// Time for releases to reach the members.
const CLOSE: Duration = Duration::from_secs(2);
/// A wait without a limit.
const WITHOUT_END: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// The time between two readings of a mounted Secret.
const REFRESH: Duration = Duration::from_secs(2);

/// A client of the members. If the Secret is mounted, it follows changes of passwords and members.
pub(crate) struct Direct {
    /// The current client. A new one replaces it after a change that a client cannot follow.
    ///
    /// Holds stay with the client that took them.
    client: watch::Receiver<Client>,
    follower: Option<Arc<Follower>>,
}

/// The task that reads the Secret again. It ends when [`Direct`] and the last hold are dropped.
#[derive(Debug)]
struct Follower(JoinHandle<()>);

impl Drop for Follower {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Direct {
    /// # Errors
    /// If the members cannot be used as they are described.
    pub(super) async fn connect(args: &LockArgs, members: &Members) -> anyhow::Result<Self> {
        let (client, read) = connected(args, members).await?;
        let (changed, client) = watch::channel(client);
        let follow = || tokio::spawn(follow(args.clone(), members.clone(), read, changed));
        let follower = matches!(members, Members::Directory(_)).then(|| Arc::new(Follower(follow())));
        Ok(Self { client, follower })
    }

    /// Waits until the releases have reached the members.
    pub(super) async fn close(&self) {
        let client = self.client.borrow().clone();
        let _ = client.close(CLOSE).await;
    }
}

/// Follows the changes of the Secret.
async fn follow(args: LockArgs, members: Members, mut read: Secret, changed: watch::Sender<Client>) {
    loop {
        sleep(REFRESH).await;
        // A Secret that cannot be read, or that is being replaced, is read again later.
        let Ok(Some(data)) = members.secret() else { continue };
        if data == read {
            continue;
        }
        let client = changed.borrow().clone();
        if data.get("ca.crt") != read.get("ca.crt")
            && let Some(config) = data.get("ca.crt").and_then(|ca| trusted(ca).ok())
        {
            client.set_tls(Arc::new(config));
        }
        match client.update(&data) {
            Ok(()) => read = data,
            Err(BuildError::Stale) => match connected(&args, &members).await {
                Ok((client, data)) => {
                    changed.send_replace(client);
                    read = data;
                }
                Err(error) => console::report(format_args!("the members have changed: {error:#}")),
            },
            Err(_) => {}
        }
    }
}

/// Takes the lock from the members.
pub(super) async fn take(
    direct: &Direct,
    args: &LockArgs,
    signals: &mut Signals,
    progress: &mut Progress,
) -> Result<HeldLock, NotHeld> {
    let mut followed = direct.client.clone();
    let (client, guard) = loop {
        let client = followed.borrow_and_update().clone();
        let lock = lock(&client, args);
        tokio::select! {
            biased;
            signal = signals.ending() => return Err(NotHeld::Signal(signal)),
            // The wait starts again with the current members.
            Ok(()) = followed.changed() => {}
            acquired = acquire(&lock, args, progress) => {
                break (client, acquired.map_err(|error| not_held(args, error))?);
            }
        }
    };
    let holder = args.identity.clone().unwrap_or_else(identity::of_process);
    let token = guard.token().get();
    let (hold, validity) = DirectHold::new(client, guard, args.ttl.get(), direct.follower.clone());
    let (lock, renewal) = (args.lock.to_string(), Box::new(hold));
    Ok(HeldLock { lock, token, holder, validity, source: Source::Members, renewal })
}

fn not_held(args: &LockArgs, error: NotAcquired) -> NotHeld {
    match error {
        NotAcquired::HeldByOther { .. } => NotHeld::NotAcquired(format!("lock {} is taken: {error}", args.lock)),
        NotAcquired::NoQuorum { .. }
        | NotAcquired::Expired
        | NotAcquired::CountersApart
        | NotAcquired::Waiting { .. } => NotHeld::NotAnswered(format!("lock {} was not acquired: {error}", args.lock)),
        NotAcquired::OtherSlots => {
            let slots = args.slots.map_or("without --slots".to_owned(), |slots| format!("with --slots {slots}"));
            NotHeld::Failed(anyhow!(
                "lock {} is held with another number of slots than this one, {slots}, and these do not exclude each other: give \
                 --slots the number of the other holders, or take another lock",
                args.lock
            ))
        }
        error => NotHeld::Failed(anyhow::Error::new(error).context(format!("lock {} cannot be acquired", args.lock))),
    }
}

fn lock(client: &Client, args: &LockArgs) -> Lock {
    // The library refuses 0, which replaces a negative number.
    let slots = args.slots.map_or(1, |slots| u32::try_from(slots).unwrap_or(0));
    client.lock(args.lock.to_string()).ttl(args.ttl.get()).slots(slots).refuse_other_slots()
}

async fn acquire(lock: &Lock, args: &LockArgs, progress: &mut Progress) -> Result<Guard, NotAcquired> {
    let error = loop {
        match lock.clone().try_acquire().await {
            Ok(guard) => return Ok(guard),
            // This error is not about another holder, so `--try` waits as well.
            Err(error @ NotAcquired::Waiting { left }) => {
                progress.report(&format!("{error}: this client does not know for how long they have been running"));
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
        NotAcquired::HeldByOther { .. } => progress.report(&error.to_string()),
        NotAcquired::NoQuorum { .. } => progress.report_unknown(&error.to_string()),
        _ => {}
    }
    lock.clone().wait(wait).acquire().await
}

/// A client of the members, and the Secret that describes them.
async fn connected(args: &LockArgs, members: &Members) -> anyhow::Result<(Client, Secret)> {
    let (builder, data) = builder(args, members)?;
    Ok((builder.connect().await?, data))
}

/// The settings of a client, and the Secret that they are from.
fn builder(args: &LockArgs, members: &Members) -> anyhow::Result<(Builder, Secret)> {
    let data = members.secret()?.unwrap_or_default();
    let (builder, ca) = match members {
        Members::Directory(_) | Members::Entries(_) => (Client::from_secret(&data)?, data.get("ca.crt").cloned()),
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
    let builder = match ca {
        Some(ca) => builder.tls(Arc::new(trusted(&ca)?)),
        None => builder,
    };
    Ok((builder, data))
}

/// The sorted addresses of the members, so that the order of the list does not matter.
pub(super) fn addresses(members: &Members) -> anyhow::Result<String> {
    let urls = match members.secret()? {
        Some(data) => String::from_utf8_lossy(data.get("urls").map_or(&[], Vec::as_slice)).into_owned(),
        None => match members {
            Members::Urls(urls) => urls.join(" "),
            Members::Directory(_) | Members::Entries(_) => String::new(),
        },
    };
    // Neither a password nor the database is part of the place.
    let address = |url: &str| {
        let authority = url.split_once("://").map_or(url, |(_, rest)| rest).split('/').next().unwrap_or_default();
        authority.rsplit('@').next().unwrap_or_default().to_owned()
    };
    let mut addresses: Vec<_> = urls.split_whitespace().map(address).collect();
    addresses.sort();
    Ok(addresses.join(","))
}

/// A TLS configuration that trusts only this certificate authority.
pub(crate) fn trusted(ca: &[u8]) -> anyhow::Result<ClientConfig> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(ca) {
        roots.add(certificate.context("ca.crt holds no certificate that can be read")?)?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_the_members_however_they_are_listed() {
        let of = |urls: &[&str]| addresses(&Members::Urls(urls.iter().map(|url| (*url).to_owned()).collect())).unwrap();
        assert_eq!(of(&["redis://u:p@b:1", "redis://a:2/"]), "a:2,b:1");
        assert_eq!(of(&["redis://a:2", "redis://x:y@b:1"]), "a:2,b:1");
        assert_eq!(of(&["redis://x:y@a:2/0", "rediss://b:1/0"]), "a:2,b:1");
    }
}
