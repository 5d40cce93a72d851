//! Forbidden commands of a client, on the connections of three libraries.

use std::time::Duration;

use anyhow::ensure;

use crate::{
    bench::Bench,
    libraries::{LockClient, NODE_REDLOCK, REDLOCK_PY, REDSYNC},
    locks::{Lock, SOON, claim, is_held},
    quorums::Quorum,
};

const MAX_TTL: Duration = Duration::from_secs(5);

pub(crate) async fn a_client_reaches_nothing_outside_its_prefix(bench: Bench) -> anyhow::Result<()> {
    let quorum = Quorum::ready(&bench, "q", MAX_TTL).await?;
    let lock = Lock::create(&bench, claim("job", "job", Some("q"), MAX_TTL)).await?;
    lock.held(SOON).await?;
    for library in [REDLOCK_PY, NODE_REDLOCK, REDSYNC] {
        let mut client = LockClient::start(&quorum, library).await?;
        let own = format!("{}/{}", bench.namespace, library.name);
        client.acquire_within(SOON, &own, MAX_TTL).await?;
        client.release().await?;
        for key in ["other/job", "#token", "#epoch"] {
            for command in ["GET KEY", "DEL KEY", "SET KEY x", "SET KEY x NX PX 1000", "PEXPIRE KEY 1", "EXISTS KEY"] {
                refused(&mut client, &command.replace("KEY", key)).await?;
            }
            refused(&mut client, &format!("EVAL return(redis.call('get',KEYS[1])) 1 {key}")).await?;
            refused(&mut client, &format!("EVAL return(redis.call('del',ARGV[1])) 1 {own} {key}")).await?;
        }
        for command in [
            "CONFIG GET *",
            "CONFIG SET maxmemory 1",
            "FLUSHALL",
            "FLUSHDB",
            "ACL LIST",
            "ACL SETUSER outside-e1 +@all",
            "SHUTDOWN NOSAVE",
            "REPLICAOF 127.0.0.1 6379",
            "DEBUG SLEEP 1",
            "KEYS *",
            "SCAN 0",
            "CLIENT KILL TYPE normal",
            "CLIENT PAUSE 1000",
            "SCRIPT FLUSH",
            "SCRIPT KILL",
            "INFO",
        ] {
            refused(&mut client, command).await?;
        }
        let mine = client.raw(0, &format!("SET {own} x PX 1000")).await?;
        ensure!(mine.starts_with("ok"), "{}: its own key: {mine}", library.name);
    }
    ensure!(is_held(&lock.recorder.last()?.object), "the lock was lost");
    Ok(())
}

/// Checks that every member refuses this command because of missing permissions.
async fn refused(client: &mut LockClient, command: &str) -> anyhow::Result<()> {
    for member in 0..3 {
        let answer = client.raw(member, command).await?;
        let denied =
            ["permission", "not allowed", "can't access", "can't run"].iter().any(|word| answer.contains(word));
        ensure!(answer.starts_with("error") && denied, "{}: {command}: {answer}", client.library.name);
    }
    Ok(())
}

pub(crate) async fn prefixes_that_carry_rules_are_refused(bench: Bench) -> anyhow::Result<()> {
    let namespace = bench.namespace.clone();
    for bad in [
        "",
        "/",
        "*",
        "NS",
        "NS*/",
        "NS/ ~*/",
        "NS/ +@all/",
        "NS/*/",
        "NS/\\n/",
        "NS//",
        "NS/a:b/",
        "NS/#token/",
        "NS/{/",
    ] {
        let prefix = bad.replace("NS", &namespace);
        let manifest = format!(
            "{{apiVersion: redlock-operator.io/v1alpha1, kind: RedisQuorum, metadata: {{name: bad}}, \
             spec: {{clients: [{{name: a, namespace: {namespace}, keyPrefix: \"{prefix}\"}}]}}}}"
        );
        let message = bench.refused(&manifest).await?;
        ensure!(message.contains("keyPrefix"), "{prefix:?}: {message}");
    }
    Ok(())
}
