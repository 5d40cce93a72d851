use super::*;
use crate::redlock::{LockValue, Slot};
use crate::time::TokioClock;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

type Answer = Pin<Box<dyn Future<Output = Result<Answers, MemberError>>>>;

fn connection(rights: Rights) -> Connection {
    Connection::new(Arc::new(TokioClock::new()), rights, RunId::new("alias"))
}

/// One that has learned who its process is.
fn open() -> Connection {
    let mut connection = connection(Rights::Full);
    connection.write([], Vec::new(), &mut Copies::default());
    let loaded = "$4\r\nsha1\r\n".repeat(8);
    let replies = format!("{loaded}$10\r\nrun_id:abc\r\n+OK\r\n");
    assert_eq!(connection.read(replies.as_bytes()), Ok(replies.len()));
    assert_eq!(connection.link(), Link::Open(RunId::new("abc")));
    connection.out.clear();
    connection
}

fn job(commands: Vec<Command>) -> (Job, Answer) {
    let (slot, answer) = Slot::alone();
    (Job { commands: commands.into(), slot }, Box::pin(answer))
}

fn acquire() -> Command {
    let (value, ttl) = (LockValue::from_text("v"), Duration::from_secs(1));
    Command::Acquire { key: "k".into(), value, ttl, token: true }
}

fn answered(answer: &mut Answer) -> Option<Result<Answers, MemberError>> {
    match answer.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => Some(answer),
        Poll::Pending => None,
    }
}

fn replies(answer: &mut Answer) -> Vec<Reply> {
    answered(answer).unwrap().unwrap().replies.to_vec()
}

const TIME: &str = "*2\r\n$2\r\n12\r\n$2\r\n34\r\n";

#[test]
fn a_vote_in_plain_commands_counts_with_the_time_behind_it() {
    let mut connection = open();
    let (first, mut answer) = job(vec![acquire()]);
    let (second, mut other) = job(vec![acquire()]);
    connection.write([first, second], Vec::new(), &mut Copies::default());
    let written = String::from_utf8(connection.out.clone()).unwrap();
    let order = ["SET", "INCR", "SET", "INCR", "TIME"];
    let words: Vec<_> = written.split("\r\n").filter(|word| order.contains(word)).collect();
    assert_eq!(words, order);
    connection.read(b"+OK\r\n:7\r\n+OK\r\n:8\r\n").unwrap();
    assert!(answered(&mut answer).is_none(), "the time is still to come");
    connection.read(TIME.as_bytes()).unwrap();
    let time = Some(UnixMicros(12_000_034));
    let acquired = |number| vec![Reply::Acquired { token: FencingToken::new(number).unwrap(), time }];
    assert_eq!((replies(&mut answer), replies(&mut other)), (acquired(7), acquired(8)));
    assert!(!connection.is_busy());
}

#[test]
fn the_number_behind_a_refused_set_counts_for_nothing() {
    let mut connection = open();
    let (asked, mut answer) = job(vec![acquire()]);
    connection.write([asked], Vec::new(), &mut Copies::default());
    connection.read(format!("$-1\r\n:9\r\n{TIME}").as_bytes()).unwrap();
    assert!(answered(&mut answer).is_none(), "what is there is looked at");
    connection.read(format!("*3\r\n$6\r\nstring\r\n$1\r\nw\r\n:500\r\n{TIME}").as_bytes()).unwrap();
    let [Reply::Refused { holder: KeyState::String { remaining, .. }, time: Some(_) }] = &replies(&mut answer)[..]
    else {
        panic!("not refused");
    };
    assert_eq!(*remaining, Some(Duration::from_millis(500)));
}

#[test]
fn a_user_that_may_not_incr_votes_by_script_from_then_on() {
    let mut connection = open();
    let (asked, mut answer) = job(vec![acquire()]);
    connection.write([asked], Vec::new(), &mut Copies::default());
    connection.out.clear();
    connection.read(format!("+OK\r\n-NOPERM no\r\n{TIME}").as_bytes()).unwrap();
    // The key is ours already: it is released before the script tries.
    let written = String::from_utf8(connection.out.clone()).unwrap();
    assert_eq!(written.matches("EVALSHA").count(), 2);
    connection.read(b":1\r\n*4\r\n:1\r\n:8\r\n$2\r\n12\r\n$2\r\n34\r\n").unwrap();
    assert!(matches!(replies(&mut answer)[..], [Reply::Acquired { time: Some(_), .. }]));
    connection.out.clear();
    let (asked, _answer) = job(vec![acquire()]);
    connection.write([asked], Vec::new(), &mut Copies::default());
    assert!(String::from_utf8(connection.out.clone()).unwrap().contains("EVALSHA"));
}

#[test]
fn a_set_without_its_number_is_no_vote() {
    let mut connection = open();
    let (asked, mut answer) = job(vec![acquire()]);
    connection.write([asked], Vec::new(), &mut Copies::default());
    connection.read(format!("+OK\r\n-OOM no\r\n{TIME}").as_bytes()).unwrap();
    assert_eq!(replies(&mut answer), [Reply::Failed(MemberError::OutOfMemory)]);
}

#[test]
fn no_answer_counts_before_the_process_is_known() {
    let mut connection = connection(Rights::Full);
    let (asked, mut answer) = job(vec![acquire()]);
    connection.write([asked], Vec::new(), &mut Copies::default());
    let fenced = "-NOPERM no\r\n".repeat(13);
    assert_eq!(connection.read(fenced.as_bytes()), Ok(fenced.len()));
    assert_eq!(answered(&mut answer), Some(Err(MemberError::Fenced)));
    assert_eq!(connection.link(), Link::Fenced);
}

#[test]
fn a_job_without_commands_is_answered_too_and_what_was_not_asked_for_ends_the_connection() {
    let mut connection = open();
    let (asked, mut answer) = job(Vec::new());
    connection.write([asked], Vec::new(), &mut Copies::default());
    connection.read(b"+PONG\r\n").unwrap();
    assert_eq!(replies(&mut answer), []);
    assert!(connection.read(b"+OK\r\n").is_err());
}

#[test]
fn releases_that_were_not_answered_are_given_back() {
    let mut connection = open();
    let release = Command::Release { key: "k".into(), value: LockValue::from_text("v") };
    let (asked, mut answer) = job(vec![acquire()]);
    connection.write([asked], vec![release.clone()], &mut Copies::default());
    let (owed, jobs) = connection.into_unanswered();
    assert_eq!((owed, jobs.len()), (vec![release], 1));
    drop(jobs);
    assert!(answered(&mut answer).unwrap().is_err());
}
