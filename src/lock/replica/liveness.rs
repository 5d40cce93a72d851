//! Checks a holder: its liveness endpoint, and the Lease that it renews as a heartbeat.
//!
//! Every replica checks a holder before each renewal, so none renews without a check of its own. If this replica does not reach the API
//! server, that is no failure of the holder. Only the leader ends a hold after a failed check. Other replicas skip the renewal, and check
//! again.

use std::time::Duration;

use http_body_util::Empty;
use hyper::Request;
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, ResourceExt};
use tokio::time::timeout;

use crate::api::{DistributedLock, HttpGet, Liveness, TcpSocket};
use crate::lock::model::end::End;
use crate::lock::model::heartbeat::{self, Heartbeat};
use crate::lock::model::hold::{HeldFor, Hold};
use crate::lock::model::verdict;
use crate::redis_member::{Connect, Stream};
use crate::runtime::context::Context;
use crate::runtime::fair_queue::Class;
use crate::time::{Boottime, UnixMillis};

/// Timeout of one check. It is at most a quarter of the ttl, so that time for the renewal is left.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);

/// Whether a lock's holder is checked at all.
pub fn is_holder_checked(lock: &DistributedLock) -> bool {
    lock.spec.liveness.is_some() || has_heartbeat(lock)
}

fn has_heartbeat(lock: &DistributedLock) -> bool {
    lock.spec.claim.as_ref().is_some_and(|claim| claim.heartbeat.is_some())
}

/// Checks the holder of `lock`, and notes the result in `hold`. An error is the reason to stop its renewal.
///
/// Otherwise returns the latest end of its keys, if it has a heartbeat. No failure matters before the end of `minHold`, or after a
/// release by the holder.
pub async fn check(context: &Context, lock: &DistributedLock, hold: &mut Hold) -> Result<Option<Boottime>, End> {
    let now = context.clock.boottime();
    let heartbeat = hold.heartbeat.get_or_insert_with(|| Heartbeat::new(now));
    let mut verdict = Ok(None);
    if let Some(liveness) = &lock.spec.liveness {
        let answer = probe_holder(context, lock, liveness).await;
        verdict = count(&mut hold.failures, answer, liveness.failure_threshold).map(|()| None);
    }
    if has_heartbeat(lock)
        && let Some(lease) = read_heartbeat(context, lock, Class::Renewal(hold.valid_until)).await
    {
        heartbeat.observe(lease.and_then(|lease| lease.resource_version()), now);
        verdict = verdict.map(|_unbound| Some(heartbeat.last_end(lock.spec.ttl.get())));
    }
    let held_for = HeldFor::of(lock, context.api_clock(), context.clock.boottime());
    if verdict::must_be_healthy(lock, held_for) { verdict } else { Ok(None) }
}

/// Counts the failures in a row. The failure that reaches `threshold` is an error.
fn count(failures: &mut i32, answer: Result<(), String>, threshold: i32) -> Result<(), End> {
    match answer {
        Ok(()) => *failures = 0,
        Err(why) => {
            *failures += 1;
            if *failures >= threshold {
                return Err(End::CheckFailed { failures: *failures, why });
            }
        }
    }
    Ok(())
}

async fn probe_holder(context: &Context, lock: &DistributedLock, liveness: &Liveness) -> Result<(), String> {
    let Some(pod_name) = lock.holder().and_then(|holder| holder.pod_name.as_deref()) else { return Ok(()) };
    let pod = context.pods.named(&lock.namespace().unwrap_or_default(), pod_name);
    probe_pod(pod.as_deref(), liveness, &*context.network, probe_timeout(lock)).await
}

/// The timeout of a check.
fn probe_timeout(lock: &DistributedLock) -> Duration {
    PROBE_TIMEOUT.min(lock.spec.ttl.get() / 4)
}

/// Sends a request to a pod, as a kubelet would.
async fn probe_pod(
    pod: Option<&Pod>,
    liveness: &Liveness,
    network: &dyn Connect,
    limit: Duration,
) -> Result<(), String> {
    let address = pod.and_then(|pod| pod.status.as_ref()?.pod_ip.clone()).ok_or("its pod has no address")?;
    let probe = async {
        match (&liveness.http_get, &liveness.tcp_socket) {
            (Some(HttpGet { path, port }), _) => get(network, &address, *port, path).await,
            (None, Some(TcpSocket { port })) => connect(network, &address, *port).await.map(drop),
            (None, None) => Ok(()),
        }
    };
    timeout(limit, probe).await.map_err(|_elapsed| format!("no answer within {limit:?}"))?
}

async fn connect(network: &dyn Connect, address: &str, port: i32) -> Result<Box<dyn Stream>, String> {
    network.connect(&host(address, port)?).await.map_err(|error| error.to_string())
}

/// Address and port in the format of URLs.
fn host(address: &str, port: i32) -> Result<String, String> {
    let port = u16::try_from(port).map_err(|_| format!("{port} is no port"))?;
    Ok(if address.contains(':') { format!("[{address}]:{port}") } else { format!("{address}:{port}") })
}

async fn get(network: &dyn Connect, address: &str, port: i32, path: &str) -> Result<(), String> {
    let stream = connect(network, address, port).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
    let connection = tokio::spawn(connection);
    let request = Request::get(path)
        .header("host", host(address, port)?)
        .header("user-agent", "redlock-operator")
        .body(Empty::<Bytes>::new())
        .map_err(|error| error.to_string())?;
    let response = sender.send_request(request).await.map_err(|error| error.to_string());
    connection.abort();
    let status = response?.status();
    // A kubelet accepts the same statuses.
    if status.is_success() || status.is_redirection() { Ok(()) } else { Err(format!("it answered {status}")) }
}

/// Reads the Lease with the claim's name.
///
/// The outer `None` is a failed read. The inner `None` is a Lease that does not exist.
async fn read_heartbeat(context: &Context, lock: &DistributedLock, class: Class) -> Option<Option<Lease>> {
    let (namespace, name) = (lock.namespace().unwrap_or_default(), lock.name_any());
    let leases: Api<Lease> = Api::namespaced(context.client.clone(), &namespace);
    let read = async {
        let _slot = context.requests.enter(&namespace, class).await;
        leases.get_opt(&name).await
    };
    timeout(probe_timeout(lock), read).await.ok()?.ok()
}

/// Whether the heartbeat of a waiting claim has stopped, so that it must not get the lock.
///
/// An unreadable Lease, or one without a time of its last change, is no evidence.
pub async fn has_stopped(context: &Context, lock: &DistributedLock) -> bool {
    let (true, Some(created)) = (has_heartbeat(lock), lock.creation_timestamp()) else { return false };
    let Some(lease) = read_heartbeat(context, lock, Class::Change).await else { return false };
    let changed = lease.as_ref().map(last_change);
    if changed == Some(None) {
        return false;
    }
    let created = UnixMillis(created.0.as_millisecond());
    !heartbeat::is_alive(created, changed.flatten(), lock.spec.ttl.get(), context.api_now())
}

/// The API server's time of the last change of a Lease.
fn last_change(lease: &Lease) -> Option<UnixMillis> {
    let times = lease.managed_fields().iter().filter_map(|entry| entry.time.as_ref());
    times.map(|time| UnixMillis(time.0.as_millisecond())).max()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;
    use crate::redis_member::Tcp;

    const LIMIT: Duration = Duration::from_millis(300);

    #[test]
    fn only_consecutive_failures_are_counted() {
        let mut failures = 0;
        let mut count = |answer: Result<(), &str>| count(&mut failures, answer.map_err(str::to_owned), 2).is_ok();
        assert!(count(Err("refused")) && count(Ok(())) && count(Err("refused")));
        assert!(!count(Err("refused")));
    }

    #[test]
    fn a_probe_takes_a_second_or_a_quarter_of_the_ttl() {
        let lock = |ttl: u64| {
            let mut lock = DistributedLock::default();
            lock.spec.ttl = crate::api::GoDuration::from_secs(ttl);
            lock
        };
        assert_eq!(probe_timeout(&lock(10)), Duration::from_secs(1));
        assert_eq!(probe_timeout(&lock(1)), Duration::from_millis(250));
        assert_eq!(Liveness::default().failure_threshold, 3);
    }

    async fn server(answer: &'static str) -> i32 {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut request = [0; 1024];
                let read = stream.read(&mut request).await.unwrap();
                assert!(request[..read].starts_with(b"GET /healthz HTTP/1.1\r\n"));
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        });
        i32::from(port)
    }

    fn http(port: i32) -> Liveness {
        Liveness { http_get: Some(HttpGet { path: "/healthz".into(), port }), ..Liveness::default() }
    }

    #[test]
    fn the_host_of_an_ipv6_address_has_brackets() {
        assert_eq!(host("fd00::1", 8080), Ok("[fd00::1]:8080".to_owned()));
        assert_eq!(host("10.0.0.1", 8080), Ok("10.0.0.1:8080".to_owned()));
        assert!(host("10.0.0.1", 65_536).is_err());
    }

    #[tokio::test]
    async fn a_pod_is_probed_as_by_a_kubelet() {
        let pod: Pod = serde_json::from_value(serde_json::json!({"status": {"podIP": "127.0.0.1"}})).unwrap();
        let pod = Arc::new(pod);
        let well = server("HTTP/1.1 204 No Content\r\n\r\n").await;
        assert_eq!(probe_pod(Some(&pod), &http(well), &Tcp, LIMIT).await, Ok(()));
        let ill = server("HTTP/1.1 500 Internal Server Error\r\ncontent-length: 0\r\n\r\n").await;
        assert!(probe_pod(Some(&pod), &http(ill), &Tcp, LIMIT).await.unwrap_err().contains("500"));
        let tcp = Liveness { tcp_socket: Some(TcpSocket { port: well }), ..Liveness::default() };
        assert_eq!(probe_pod(Some(&pod), &tcp, &Tcp, LIMIT).await, Ok(()));
        assert!(probe_pod(None, &tcp, &Tcp, LIMIT).await.is_err());
    }

    #[tokio::test]
    async fn a_probe_of_a_pod_that_never_answers_fails_at_its_limit() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = i32::from(listener.local_addr().unwrap().port());
        let pod: Pod = serde_json::from_value(serde_json::json!({"status": {"podIP": "127.0.0.1"}})).unwrap();
        assert!(probe_pod(Some(&pod), &http(port), &Tcp, LIMIT).await.unwrap_err().contains("no answer"));
    }
}
