use tokio::io::duplex;

use super::*;
use crate::redlock::{Command, LockValue};
use crate::time::TokioClock;
use crate::voting::Secret;
use crate::voting::task_waker::TaskWaker;

fn endpoint() -> Endpoint {
    Endpoint {
        address: "m0:6379".to_owned(),
        username: String::new(),
        password: Secret::new(""),
        #[cfg(feature = "tls")]
        tls: None,
    }
}

fn release() -> Command {
    Command::Release { key: "k".into(), value: LockValue::from_text("v") }
}

/// The replies to the preamble.
fn identity() -> String {
    format!("{}$10\r\nrun_id:abc\r\n+OK\r\n", "$4\r\nsha1\r\n".repeat(9))
}

/// An open connection with one release to deliver.
fn open() -> MemberConnection {
    let queue = Arc::new(RequestQueue::new(Arc::new(TaskWaker::default()), endpoint()));
    let machine = Machine::from(Arc::new(TokioClock::new()));
    let link = watch::channel(Link::Unidentified(not_identified_yet())).0;
    let mut connection = MemberConnection::new("m0".into(), queue, link, machine, Rights::Full);
    connection.pending_releases.keep([release()]);
    connection.open(endpoint(), Box::new(duplex(64).0));
    connection
}

/// A member without a password has no login, so a connection to it can open without any answer.
#[tokio::test(start_paused = true)]
async fn a_connection_without_an_answer_keeps_each_release_once() {
    let mut connection = open();
    for _ in 0..3 {
        connection.close();
        connection.open(endpoint(), Box::new(duplex(64).0));
    }
    connection.close();
    assert_eq!(connection.pending_releases.take(), [release()]);
}

#[tokio::test(start_paused = true)]
async fn a_member_without_room_for_clients_keeps_its_backoff() {
    for (answer, is_reset) in [("-ERR max number of clients reached\r\n".to_owned(), false), (identity(), true)] {
        let mut connection = open();
        connection.backoff = MAX_BACKOFF;
        let State::Established(established) = &mut connection.state else { panic!("not established") };
        assert_eq!(established.pipeline.read(answer.as_bytes()), Ok(answer.len()));
        connection.close();
        assert_eq!(connection.backoff == FIRST_BACKOFF, is_reset, "{answer}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_answered_release_stays_until_its_second_delivery() {
    let mut connection = open();
    let State::Established(established) = &mut connection.state else { panic!("not established") };
    let replies = format!("{}:1\r\n", identity());
    assert_eq!(established.pipeline.read(replies.as_bytes()), Ok(replies.len()));
    connection.close();
    assert_eq!(connection.pending_releases.take(), [release()]);
}
