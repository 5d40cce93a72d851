//! An external master that loses its data while it runs.

use super::super::external_link::read_record;
use super::*;
use crate::quorum::model::effective;
use crate::quorum::session::placement::place_claim;
use crate::redis_member::{AdminConnection, Secret};

#[tokio::test]
async fn an_emptied_external_master_is_announced() {
    let address = format!("127.0.0.1:{}", free_port());
    let (_, port) = address.rsplit_once(':').unwrap();
    let _process = Command::new("redis-server")
        .args(["--port", port, "--bind", "127.0.0.1", "--save", ""])
        .stdout(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .expect("redis-server is installed");
    let spec = json!({"members": 0, "external": [{"name": "vm", "address": address}]});
    let mut quorum = quorum(spec, json!(null));
    effective::publish(quorum.status.get_or_insert_default(), Duration::from_secs(30));
    let plan = validate(&quorum).unwrap();
    let rule = Rule { drift: plan.settings.drift, window: plan.max_ttl };
    let shared = shared(Arc::new(ClockGuard::new(1, rule)));
    place_claim(&shared.agreement, &quorum);
    let mut news = shared.announcements.subscribe();
    // Without a target the link does not probe the master.
    let link = MemberLink::start(shared, plan.external[0].clone());
    let endpoint = Endpoint { address, username: String::new(), password: Secret::new(""), tls: None };
    let mut admin = loop {
        match AdminConnection::connect(&endpoint, Arc::new(SystemClock), PATIENCE).await {
            Ok(admin) => break admin,
            Err(_starting) => sleep(Duration::from_millis(10)).await,
        }
    };
    read_record(&link, &mut admin).await;
    read_record(&link, &mut admin).await;
    assert!(news.try_recv().is_err(), "the record stays");
    let owner = redis::Client::open(format!("redis://{}/", endpoint.address)).unwrap();
    let mut owner = owner.get_multiplexed_async_connection().await.unwrap();
    redis::cmd("FLUSHALL").exec_async(&mut owner).await.unwrap();
    sleep(Duration::from_millis(2)).await;
    read_record(&link, &mut admin).await;
    assert!(news.try_recv().is_ok(), "the leader would notice it at its next resync");
    read_record(&link, &mut admin).await;
    assert!(news.try_recv().is_err());
}
