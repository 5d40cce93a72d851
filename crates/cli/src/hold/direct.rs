//! A lock straight from the members, without Kubernetes.

mod hold;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use std::{fs, mem};

use anyhow::{Context as _, anyhow, bail};
pub(crate) use hold::DirectHold;
use redlock_client::{BuildError, Builder, Client, Event, Guard, Lock, NotAcquired};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use tokio::sync::{broadcast, watch};
use tokio::time::sleep;
use tokio_util::task::AbortOnDropHandle;

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
/// The number of failed attempts that a slow listener can be late.
const ATTEMPTS: usize = 16;

/// The failed attempts of all clients: the key, and the reason.
type Attempts = broadcast::Sender<(String, NotAcquired)>;

/// A client of the members. If the Secret is mounted, it follows changes of passwords and members.
pub(crate) struct Direct {
    /// The current client. A new one replaces it after a change that a client cannot follow.
    ///
    /// Holds stay with the client that took them.
    client: watch::Receiver<Client>,
    attempts: Attempts,
    follower: Option<Arc<Follower>>,
}

/// The task that reads the Secret again. It ends when [`Direct`] and the last hold are dropped.
type Follower = AbortOnDropHandle<()>;

impl Direct {
    /// # Errors
    /// If the members cannot be used as they are described.
    pub(super) async fn connect(args: &LockArgs, members: &Members) -> anyhow::Result<Self> {
        let attempts = broadcast::Sender::new(ATTEMPTS);
        let (client, read) = connected(args, members, &attempts).await?;
        let (changed, client) = watch::channel(client);
        let follow = || tokio::spawn(follow(args.clone(), members.clone(), (read, attempts.clone()), changed));
        let follower = matches!(members, Members::Directory(_)).then(|| Arc::new(Follower::new(follow())));
        Ok(Self { client, attempts, follower })
    }

    /// Waits until the releases have reached the members.
    pub(super) async fn close(&self) {
        let client = self.client.borrow().clone();
        let _ = client.close(CLOSE).await;
    }
}

/// Follows the changes of the Secret.
async fn follow(
    args: LockArgs,
    members: Members,
    (mut read, attempts): (Secret, Attempts),
    changed: watch::Sender<Client>,
) {
    loop {
        sleep(REFRESH).await;
        // A Secret that cannot be read, or that is being replaced, is read again later.
        let Ok(Some(data)) = members.secret() else { continue };
        if data == read {
            continue;
        }
        let client = changed.borrow().clone();
        if let Some(config) = changed_trust(&read, &data) {
            client.set_tls(config);
        }
        match client.update(&data) {
            Ok(()) => read = data,
            Err(BuildError::Stale) => match connected(&args, &members, &attempts).await {
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
    let mut attempts = direct.attempts.subscribe();
    let (client, guard) = loop {
        let client = followed.borrow_and_update().clone();
        let lock = lock(&client, args);
        tokio::select! {
            biased;
            signal = signals.ending() => return Err(NotHeld::Signal(signal)),
            // The wait starts again with the current members.
            Ok(()) = followed.changed() => {}
            acquired = acquire(&lock, args) => break (client, acquired.map_err(|error| not_held(args, error))?),
            () = report(&mut attempts, args, progress) => {}
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

/// Reports why attempts for this lock fail, until the future is dropped.
///
/// A reason of the same kind adds no line. With slots, another holder is a reason only after it was found on each slot.
async fn report(attempts: &mut broadcast::Receiver<(String, NotAcquired)>, args: &LockArgs, progress: &mut Progress) {
    let lock = args.lock.to_string();
    let slots = args.slots.map_or(1, |slots| usize::try_from(slots).unwrap_or(0));
    let (mut last, mut held_slots) = (None, BTreeSet::new());
    loop {
        let (key, error) = match attempts.recv().await {
            Ok(attempt) => attempt,
            Err(broadcast::error::RecvError::Lagged(_)) => continue,
            Err(broadcast::error::RecvError::Closed) => return std::future::pending().await,
        };
        // The key of a slot is that of the lock, `#` and a number.
        let is_own = key.split('#').next() == Some(lock.as_str());
        if !is_own {
            continue;
        }
        let is_certain = matches!(error, NotAcquired::HeldByOther { .. });
        if is_certain {
            held_slots.insert(key);
            if held_slots.len() < slots {
                continue;
            }
        }
        held_slots.clear();
        let why = match &error {
            NotAcquired::Waiting { .. } => {
                format!("{error}: this client has no record of how long they have been running")
            }
            error => error.to_string(),
        };
        if last.replace(mem::discriminant(&error)) == Some(mem::discriminant(&error)) {
            progress.notify(&why, is_certain);
        } else {
            progress.report(&why, is_certain);
        }
    }
}

async fn acquire(lock: &Lock, args: &LockArgs) -> Result<Guard, NotAcquired> {
    let error = loop {
        match lock.clone().try_acquire().await {
            Ok(guard) => return Ok(guard),
            // This error is not about another holder, so `--try` waits as well.
            Err(NotAcquired::Waiting { left }) => sleep(left).await,
            Err(error) => break error,
        }
    };
    let wait = match args.wait() {
        Wait::Never => return Err(error),
        Wait::For(wait) => wait,
        Wait::Forever => WITHOUT_END,
    };
    lock.clone().wait(wait).acquire().await
}

/// A client of the members, and the Secret that describes them.
async fn connected(args: &LockArgs, members: &Members, attempts: &Attempts) -> anyhow::Result<(Client, Secret)> {
    let (builder, data) = builder(args, members, attempts.clone())?;
    Ok((builder.connect().await?, data))
}

/// The settings of a client, and the Secret that they are from.
fn builder(args: &LockArgs, members: &Members, attempts: Attempts) -> anyhow::Result<(Builder, Secret)> {
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
    let builder = builder.on_event(move |event| {
        if let Event::NotAcquired { key, error, .. } = event {
            // Without a receiver no lock waits.
            let _ = attempts.send((key.to_string(), error.clone()));
        }
    });
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
        let address = authority.rsplit('@').next().unwrap_or_default();
        // The colons in an IPv6 address are in brackets.
        let has_port = address.rsplit(']').next().is_some_and(|rest| rest.contains(':'));
        if has_port { address.to_owned() } else { format!("{address}:6379") }
    };
    let mut addresses: Vec<_> = urls.split_whitespace().map(address).collect();
    addresses.sort();
    Ok(addresses.join(","))
}

/// The TLS configuration of a changed Secret, if it has another certificate authority.
pub(crate) fn changed_trust(old: &Secret, new: &Secret) -> Option<Arc<ClientConfig>> {
    let ca = new.get("ca.crt").filter(|ca| old.get("ca.crt") != Some(ca))?;
    trusted(ca).ok().map(Arc::new)
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
mod tests;
