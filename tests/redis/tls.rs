//! TLS with a real server: the verification, and the change of a certificate under running connections.

use crate::port::free_port;
use crate::server::{endpoint, locker, password, wait_until};
use k8s_openapi::ByteString;
use redlock_operator::{
    quorum::model::tls::{authority::Pair, issue, read},
    redis_member::{
        AdminConnection, Authorities, Endpoint, Fingerprint, Link, RedisMember,
        acl::{OPERATOR_USER, users_acl},
    },
    redlock::{Command as LockCommand, LockMember, MemberError},
    time::{Clock, SystemClock},
};
use rustls::pki_types::UnixTime;
use rustls::time_provider::TimeProvider;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

const NAME: &str = "q-0.shop.svc";

fn now() -> i64 {
    SystemClock.wall().0 / 1000
}

fn issued(by: &Pair) -> Pair {
    issue::certificate(by, &[NAME.to_owned()], now()).unwrap()
}

fn fingerprint(of: &Pair, by: &Pair) -> Fingerprint {
    let entry = |key: &str, text: &str| (key.to_owned(), ByteString(text.as_bytes().to_vec()));
    let data = [entry("tls.crt", &of.certificate), entry("tls.key", &of.key), entry("ca.crt", &by.certificate)].into();
    read(&data, &[NAME.to_owned()], now()).unwrap().fingerprint
}

struct TlsServer {
    child: Child,
    port: u16,
    directory: PathBuf,
}

impl TlsServer {
    async fn start(test: &str, authority: &Pair, certificate: &Pair) -> Self {
        let directory = std::env::temp_dir().join(format!("redlock-tls-{}-{test}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::write(directory.join("users.acl"), users_acl(&[password()], &[locker()])).unwrap();
        let port = free_port();
        let program = std::env::var("REDIS_SERVER").unwrap_or_else(|_| "redis-server".to_owned());
        put(&directory, certificate);
        let at = |file: &str| directory.join(file).to_string_lossy().into_owned();
        let child = Command::new(program)
            .args(["--port", "0", "--tls-port", &port.to_string(), "--bind", "127.0.0.1", "--save", ""])
            .args(["--tls-cert-file", &at("tls.crt"), "--tls-key-file", &at("tls.key"), "--tls-auth-clients", "no"])
            .args(["--aclfile", &at("users.acl"), "--dir", &at("")])
            .stdout(Stdio::null())
            .spawn()
            .expect("redis-server can be started");
        let server = Self { child, port, directory };
        let admin = server.endpoint(OPERATOR_USER, authority, NAME);
        wait_until("redis-server answers", async || connect(&admin).await.is_ok()).await;
        server
    }

    fn endpoint(&self, user: &str, authority: &Pair, name: &str) -> Endpoint {
        let authorities = Authorities::from_pem(authority.certificate.as_bytes()).unwrap();
        Endpoint { tls: Some(authorities.server(name).unwrap()), ..self.plain(user) }
    }

    fn plain(&self, user: &str) -> Endpoint {
        endpoint(&format!("127.0.0.1:{}", self.port), user)
    }

    async fn reload(&self, admin: &mut AdminConnection) -> Result<(), MemberError> {
        let at = |file: &str| self.directory.join(file).to_string_lossy().into_owned();
        admin.reload_certificate(&at("tls.crt"), &at("tls.key")).await
    }
}

impl Drop for TlsServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

fn put(directory: &std::path::Path, certificate: &Pair) {
    std::fs::write(directory.join("tls.crt"), &certificate.certificate).unwrap();
    std::fs::write(directory.join("tls.key"), &certificate.key).unwrap();
}

async fn connect(endpoint: &Endpoint) -> Result<AdminConnection, MemberError> {
    AdminConnection::connect(endpoint, Arc::new(SystemClock), Duration::from_secs(2)).await
}

/// A clock that always shows the same time.
#[derive(Debug)]
struct At(i64);

impl TimeProvider for At {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(Duration::from_secs(self.0.try_into().unwrap())))
    }
}

/// The operator uses the API server's clock for certificates.
///
/// The clock of its own machine can be wrong.
#[tokio::test]
async fn certificates_are_verified_by_the_given_clock() {
    const YEAR: i64 = 365 * 86_400;
    let authority = issue::authority("q", now()).unwrap();
    let server = TlsServer::start("judged", &authority, &issued(&authority)).await;
    let at = |time: i64| {
        let authorities =
            Authorities::from_pem(authority.certificate.as_bytes()).unwrap().judged_by(Arc::new(At(time)));
        Endpoint { tls: Some(authorities.server(NAME).unwrap()), ..server.plain(OPERATOR_USER) }
    };
    assert!(connect(&at(now())).await.is_ok());
    for wrong in [now() - YEAR, now() + YEAR] {
        let refused = connect(&at(wrong)).await;
        assert!(matches!(refused, Err(MemberError::Untrusted(_))), "{refused:?}");
    }
    // This certificate is from a cluster whose clock is a year behind. It has expired by this machine's clock.
    let past = issue::authority("q", now() - YEAR).unwrap();
    let expired = issue::certificate(&past, &[NAME.to_owned()], now() - YEAR).unwrap();
    put(&server.directory, &expired);
    let mut admin = connect(&at(now())).await.unwrap();
    server.reload(&mut admin).await.unwrap();
    let authorities = Authorities::from_pem(past.certificate.as_bytes()).unwrap();
    let by = |authorities: Authorities| {
        let tls = Some(authorities.server(NAME).unwrap());
        Endpoint { tls, ..server.plain(OPERATOR_USER) }
    };
    assert!(matches!(connect(&by(authorities.clone())).await, Err(MemberError::Untrusted(_))));
    assert!(connect(&by(authorities.judged_by(Arc::new(At(now() - YEAR))))).await.is_ok());
}

#[tokio::test]
async fn authority_and_name_are_checked_before_the_password_is_sent() {
    let authority = issue::authority("q", now()).unwrap();
    let own = issued(&authority);
    let server = TlsServer::start("checked", &authority, &own).await;
    let right = server.endpoint(OPERATOR_USER, &authority, NAME);
    let admin = connect(&right).await.unwrap();
    assert_eq!(admin.certificate(), Some(fingerprint(&own, &authority)));

    let stranger = issue::authority("q", now()).unwrap();
    for wrong in
        [server.endpoint(OPERATOR_USER, &authority, "q-1.shop.svc"), server.endpoint(OPERATOR_USER, &stranger, NAME)]
    {
        let refused = connect(&wrong).await;
        assert!(matches!(refused, Err(MemberError::Untrusted(_))), "{refused:?}");
    }
    let plain = connect(&server.plain(OPERATOR_USER)).await;
    assert!(plain.is_err(), "the server accepted plain TCP: {plain:?}");

    // A server without TLS never answers the TLS greeting, and receives nothing else.
    let without = crate::server::Server::start().await;
    let refused = connect(&Endpoint { address: without.address(), ..right }).await;
    assert!(refused.is_err(), "{refused:?}");
}

#[tokio::test]
async fn a_new_certificate_is_served_by_the_same_process() {
    let authority = issue::authority("q", now()).unwrap();
    let (first, second) = (issued(&authority), issued(&authority));
    let server = TlsServer::start("reload", &authority, &first).await;
    let right = server.endpoint(OPERATOR_USER, &authority, NAME);
    let mut admin = connect(&right).await.unwrap();
    admin.raise_epoch(1).await.unwrap();
    let mut admin = connect(&right).await.unwrap();
    admin.open(1, &[locker()]).await.unwrap();
    let voter = server.endpoint(locker().name(), &authority, NAME);
    let voter = RedisMember::new("m0".into(), voter, Arc::new(SystemClock));
    let mut link = voter.link();
    let run_id = admin.run_id().clone();
    link.wait_for(|link| *link == Link::Open(run_id.clone())).await.unwrap();

    put(&server.directory, &second);
    assert_eq!(connect(&right).await.unwrap().certificate(), Some(fingerprint(&first, &authority)));
    server.reload(&mut admin).await.unwrap();
    let after = connect(&right).await.unwrap();
    assert_eq!(after.certificate(), Some(fingerprint(&second, &authority)));
    assert_eq!(*after.run_id(), run_id);
    let inspected = voter.send(vec![LockCommand::Inspect { key: "k".into() }]).await;
    assert!(inspected.is_ok() && !link.has_changed().unwrap(), "a connection ended");

    // The server refuses a certificate without its key, and continues with the earlier pair.
    let third = issued(&authority);
    std::fs::write(server.directory.join("tls.crt"), third.certificate).unwrap();
    assert!(server.reload(&mut admin).await.is_err());
    let mut after = connect(&right).await.unwrap();
    assert_eq!(after.certificate(), Some(fingerprint(&second, &authority)));
    assert_eq!(after.observe(&[locker().name()]).await.unwrap().open_users, [locker().name()]);
}
