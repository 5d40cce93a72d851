//! TLS with a real server: the verification, and the change of a certificate under running connections.

use crate::port::free_port;
use crate::server::{Folder, Process, Server, endpoint, locker, wait_until};
use k8s_openapi::ByteString;
use redlock_operator::{
    quorum::model::tls::{authority::Pair, issue, read},
    redis_member::{AdminConnection, Authorities, Endpoint, Fingerprint, Link, RedisMember, acl::OPERATOR_USER},
    redlock::{Command, LockMember, MemberError},
    time::{Clock, SystemClock},
};
use rustls::pki_types::UnixTime;
use rustls::time_provider::TimeProvider;
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
    _process: Process,
    port: u16,
    folder: Folder,
}

impl TlsServer {
    async fn start(authority: &Pair, certificate: &Pair) -> Self {
        let folder = Folder::new(&[locker()]);
        put(&folder, certificate);
        let port = free_port();
        let process = Process::start(&[
            &["--port", "0", "--tls-port", &port.to_string(), "--bind", "127.0.0.1", "--save", ""],
            &["--tls-cert-file", &folder.at("tls.crt"), "--tls-key-file", &folder.at("tls.key")],
            &["--tls-auth-clients", "no", "--aclfile", &folder.at("users.acl"), "--dir", &folder.at("")],
        ]);
        let server = Self { _process: process, port, folder };
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
        admin.reload_certificate(&self.folder.at("tls.crt"), &self.folder.at("tls.key")).await
    }
}

fn put(folder: &Folder, certificate: &Pair) {
    folder.write("tls.crt", &certificate.certificate);
    folder.write("tls.key", &certificate.key);
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
    let server = TlsServer::start(&authority, &issued(&authority)).await;
    let by = |authorities: Authorities| {
        let tls = Some(authorities.server(NAME).unwrap());
        Endpoint { tls, ..server.plain(OPERATOR_USER) }
    };
    let own = Authorities::from_pem(authority.certificate.as_bytes()).unwrap();
    let at = |time: i64| by(own.clone().judged_by(Arc::new(At(time))));
    assert!(connect(&at(now())).await.is_ok());
    for wrong in [now() - YEAR, now() + YEAR] {
        let refused = connect(&at(wrong)).await;
        assert!(matches!(refused, Err(MemberError::Untrusted(_))), "{refused:?}");
    }
    // This certificate is from a cluster whose clock is a year behind. It has expired by this machine's clock.
    let past = issue::authority("q", now() - YEAR).unwrap();
    let expired = issue::certificate(&past, &[NAME.to_owned()], now() - YEAR).unwrap();
    put(&server.folder, &expired);
    let mut admin = connect(&at(now())).await.unwrap();
    server.reload(&mut admin).await.unwrap();
    let authorities = Authorities::from_pem(past.certificate.as_bytes()).unwrap();
    assert!(matches!(connect(&by(authorities.clone())).await, Err(MemberError::Untrusted(_))));
    assert!(connect(&by(authorities.judged_by(Arc::new(At(now() - YEAR))))).await.is_ok());
}

#[tokio::test]
async fn authority_and_name_are_checked_before_the_password_is_sent() {
    let authority = issue::authority("q", now()).unwrap();
    let own = issued(&authority);
    let server = TlsServer::start(&authority, &own).await;
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
    let without = Server::start().await;
    let refused = connect(&Endpoint { address: without.address(), ..right }).await;
    assert!(refused.is_err(), "{refused:?}");
}

#[tokio::test]
async fn a_new_certificate_is_served_by_the_same_process() {
    let authority = issue::authority("q", now()).unwrap();
    let (first, second) = (issued(&authority), issued(&authority));
    let server = TlsServer::start(&authority, &first).await;
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

    put(&server.folder, &second);
    assert_eq!(connect(&right).await.unwrap().certificate(), Some(fingerprint(&first, &authority)));
    server.reload(&mut admin).await.unwrap();
    let after = connect(&right).await.unwrap();
    assert_eq!(after.certificate(), Some(fingerprint(&second, &authority)));
    assert_eq!(*after.run_id(), run_id);
    let inspected = voter.send(vec![Command::Inspect { key: "k".into() }]).await;
    assert!(inspected.is_ok() && !link.has_changed().unwrap(), "a connection ended");

    // The server refuses a certificate without its key, and continues with the earlier pair.
    let third = issued(&authority);
    server.folder.write("tls.crt", &third.certificate);
    assert!(server.reload(&mut admin).await.is_err());
    let mut after = connect(&right).await.unwrap();
    assert_eq!(after.certificate(), Some(fingerprint(&second, &authority)));
    assert_eq!(after.observe(&[locker().name()]).await.unwrap().open_users, [locker().name()]);
}
