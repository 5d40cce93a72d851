use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::*;
use crate::redlock::FencingToken;
use crate::redlock::{AnswerSlot, LockValue};
use crate::time::{TokioClock, UnixMicros};

type Answer = Pin<Box<dyn Future<Output = Result<Answers, MemberError>>>>;

fn pipeline(rights: Rights) -> Pipeline {
    Pipeline::new(Arc::new(TokioClock::new()), rights, RunId::new("alias"))
}

/// A pipeline with an identified process.
fn open() -> Pipeline {
    let mut pipeline = pipeline(Rights::Full);
    identify(&mut pipeline);
    pipeline
}

/// Writes a preamble, and reads the answers of an open process.
fn identify(pipeline: &mut Pipeline) {
    pipeline.write([], Vec::new(), &mut EncodedRequests::default());
    let loaded = "$4\r\nsha1\r\n".repeat(9);
    let replies = format!("{loaded}$10\r\nrun_id:abc\r\n+OK\r\n");
    assert_eq!(pipeline.read(replies.as_bytes()), Ok(replies.len()));
    assert_eq!(pipeline.link(), Link::Open(RunId::new("abc")));
    pipeline.out.clear();
}

fn request(commands: Vec<Command>) -> (Request, Answer) {
    let (slot, answer) = AnswerSlot::single();
    (Request { commands: commands.into(), slot }, Box::pin(answer))
}

/// Writes one request, and returns its answer.
fn send(pipeline: &mut Pipeline, commands: Vec<Command>) -> Answer {
    let (asked, answer) = request(commands);
    pipeline.write([asked], Vec::new(), &mut EncodedRequests::default());
    answer
}

/// Writes several requests as one batch, and returns their answers.
fn send_all(pipeline: &mut Pipeline, commands: impl Iterator<Item = Vec<Command>>) -> Vec<Answer> {
    let (requests, answers): (Vec<_>, Vec<_>) = commands.map(request).unzip();
    pipeline.write(requests, Vec::new(), &mut EncodedRequests::default());
    answers
}

fn acquire() -> Command {
    let (value, ttl) = (LockValue::from_text("v"), Duration::from_secs(1));
    Command::Acquire { key: "k".into(), value, ttl, token: true, not_after: None }
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

#[test]
fn a_vote_in_plain_commands_is_set_and_incr() {
    let mut pipeline = open();
    let mut answers = send_all(&mut pipeline, [vec![acquire()], vec![acquire()]].into_iter());
    assert_eq!(names(&mut pipeline), ["SET", "INCR", "SET", "INCR"]);
    pipeline.read(b"+OK\r\n:7\r\n+OK\r\n:8\r\n").unwrap();
    let acquired = |number| Reply::Acquired { token: FencingToken::new(number).unwrap(), time: None };
    assert_eq!(answers.iter_mut().flat_map(replies).collect::<Vec<_>>(), [acquired(7), acquired(8)]);
    assert!(!pipeline.is_busy());
}

#[test]
fn the_number_behind_a_refused_set_is_ignored() {
    let mut pipeline = open();
    let mut answer = send(&mut pipeline, vec![acquire()]);
    pipeline.read(b"$-1\r\n:9\r\n").unwrap();
    assert!(answered(&mut answer).is_none(), "the key is read first");
    pipeline.read(b"*3\r\n$6\r\nstring\r\n$1\r\nw\r\n:500\r\n").unwrap();
    let [Reply::Refused { holder: KeyState::String { remaining, .. }, time: None }] = &replies(&mut answer)[..] else {
        panic!("not refused");
    };
    assert_eq!(*remaining, Some(Duration::from_millis(500)));
}

#[test]
fn an_attempt_with_a_last_moment_is_one_script() {
    let mut pipeline = open();
    let Command::Acquire { key, value, ttl, token, .. } = acquire() else { panic!() };
    let late = Command::Acquire { key, value, ttl, token, not_after: Some(UnixMicros(77)) };
    let mut answer = send(&mut pipeline, vec![late]);
    let written = written(&mut pipeline);
    assert_eq!((written.len(), written[0][0].as_str(), written[0].last().unwrap().as_str()), (1, "EVALSHA", "77"));
    pipeline.read(b"-LATE the last moment of this attempt has passed\r\n").unwrap();
    assert_eq!(replies(&mut answer), [Reply::Failed(MemberError::TimedOut)]);
}

#[test]
fn a_set_without_its_number_is_no_vote() {
    let mut pipeline = open();
    for (reply, error) in
        [("+OK\r\n-OOM no\r\n", MemberError::OutOfMemory), ("+OK\r\n-NOPERM no\r\n", MemberError::TokenRefused)]
    {
        let mut answer = send(&mut pipeline, vec![acquire()]);
        pipeline.read(reply.as_bytes()).unwrap();
        assert_eq!(replies(&mut answer), [Reply::Failed(error)]);
    }
}

#[test]
fn no_answer_is_valid_before_the_process_is_identified() {
    let mut pipeline = pipeline(Rights::Full);
    let mut answer = send(&mut pipeline, vec![acquire()]);
    let fenced = "-NOPERM no\r\n".repeat(13);
    assert_eq!(pipeline.read(fenced.as_bytes()), Ok(fenced.len()));
    assert_eq!(answered(&mut answer), Some(Err(MemberError::Fenced)));
    assert_eq!(pipeline.link(), Link::Unidentified(MemberError::Fenced));
}

#[test]
fn a_process_without_identity_has_the_reason_of_its_last_answer() {
    let mut pipeline = pipeline(Rights::Full);
    assert_eq!(pipeline.link(), Link::Unidentified(not_identified_yet()));
    pipeline.write([], Vec::new(), &mut EncodedRequests::default());
    pipeline.read("-LOADING Redis is loading the dataset in memory\r\n".repeat(11).as_bytes()).unwrap();
    assert_eq!(pipeline.link(), Link::Unidentified(MemberError::Loading));
}

#[test]
fn an_empty_request_is_answered_and_a_wrong_reply_is_an_error() {
    let mut pipeline = open();
    let mut answer = send(&mut pipeline, Vec::new());
    assert_eq!(replies(&mut answer), []);
    pipeline.read(b"+PONG\r\n").unwrap();
    assert!(pipeline.read(b"+OK\r\n").is_err());
}

#[test]
fn releases_that_were_not_answered_are_given_back() {
    let mut pipeline = open();
    let (asked, mut answer) = request(vec![acquire()]);
    pipeline.write([asked], vec![release(0)], &mut EncodedRequests::default());
    let (kept, requests) = pipeline.into_unanswered();
    assert_eq!((kept, requests.len()), (vec![release(0)], 1));
    drop(requests);
    assert!(answered(&mut answer).unwrap().is_err());
}

fn release(n: usize) -> Command {
    Command::Release { key: format!("k{n}").into(), value: LockValue::from_text(format!("v{n}")) }
}

/// The arguments of each written command.
fn written(pipeline: &mut Pipeline) -> Vec<Vec<String>> {
    let text = String::from_utf8(std::mem::take(&mut pipeline.out)).unwrap();
    let commands = text.split('*').skip(1);
    let arguments = |command: &str| command.split("\r\n").skip(2).step_by(2).map(str::to_owned).collect();
    commands.map(arguments).collect()
}

/// The name of each written command.
fn names(pipeline: &mut Pipeline) -> Vec<String> {
    written(pipeline).into_iter().map(|mut command| command.swap_remove(0)).collect()
}

/// Requests with one release each.
fn releases(count: usize) -> impl Iterator<Item = Vec<Command>> {
    (0..count).map(|n| vec![release(n)])
}

fn write_releases(pipeline: &mut Pipeline, count: usize) -> Vec<Answer> {
    send_all(pipeline, releases(count))
}

#[test]
fn releases_one_behind_the_other_are_one_call() {
    let mut pipeline = open();
    let mut answers = write_releases(&mut pipeline, 4);
    let [call] = &written(&mut pipeline)[..] else { panic!("more than one command") };
    assert_eq!(call[2..], ["4", "k0", "k1", "k2", "k3", "v0", "v1", "v2", "v3"]);
    assert_eq!(pipeline.in_flight(), 4);
    pipeline.read(b"*4\r\n:1\r\n:0\r\n:1\r\n:1\r\n").unwrap();
    let done: Vec<_> = answers.iter_mut().flat_map(replies).collect();
    assert_eq!(done, [true, false, true, true].map(Reply::Done));
    assert_eq!(pipeline.in_flight(), 0);
}

#[test]
fn merged_releases_have_a_minimum_and_a_maximum() {
    let calls = |count| {
        let mut pipeline = open();
        let _answers = write_releases(&mut pipeline, count);
        let keys = |call: &Vec<String>| call[2].parse().unwrap();
        written(&mut pipeline).iter().map(keys).collect::<Vec<usize>>()
    };
    assert_eq!(calls(3), [1, 1, 1]);
    assert_eq!(calls(70), [64, 6]);
}

#[test]
fn a_release_keeps_its_place_among_other_requests() {
    let mut pipeline = open();
    let mut answers = send_all(&mut pipeline, releases(5).chain([vec![acquire()], vec![release(9)]]));
    assert_eq!(names(&mut pipeline), ["EVALSHA", "SET", "INCR", "EVALSHA"]);
    pipeline.read(format!("*5{}\r\n+OK\r\n:7\r\n:1\r\n", "\r\n:1".repeat(5)).as_bytes()).unwrap();
    assert!(answers.iter_mut().all(|answer| !replies(answer).is_empty()));
}

/// Without this, one key without permission would keep all the other keys from being released.
#[test]
fn releases_are_sent_one_by_one_after_a_forbidden_batch() {
    let mut pipeline = open();
    let mut answers = write_releases(&mut pipeline, 4);
    pipeline.out.clear();
    pipeline.read(b"-NOPERM no\r\n").unwrap();
    assert_eq!(written(&mut pipeline).len(), 4);
    pipeline.read(b":1\r\n-NOPERM no\r\n:1\r\n:1\r\n").unwrap();
    let done: Vec<_> = answers.iter_mut().flat_map(replies).collect();
    let forbidden = Reply::Failed(MemberError::Fenced);
    assert_eq!(done, [Reply::Done(true), forbidden, Reply::Done(true), Reply::Done(true)]);
    assert_eq!(pipeline.in_flight(), 0);
    let _answers = write_releases(&mut pipeline, 4);
    assert_eq!(written(&mut pipeline).len(), 4);
}

/// A fenced process refuses each command, whatever the rights of the user are later.
#[test]
fn an_opened_process_gets_announcements_and_merged_calls() {
    let mut pipeline = pipeline(Rights::Full);
    let write = |pipeline: &mut Pipeline| {
        let announce = vec![Command::Announce { key: "k".into(), number: 1 }];
        send_all(pipeline, releases(4).chain([announce]))
    };
    let mut answers = write(&mut pipeline);
    // The preamble, the merged releases, PUBLISH, and each release alone.
    let fenced = "-NOPERM no\r\n".repeat(11 + 1 + 1 + 4);
    assert_eq!(pipeline.read(fenced.as_bytes()), Ok(fenced.len()));
    assert!(answers.iter_mut().all(|answer| answered(answer) == Some(Err(MemberError::Fenced))));
    pipeline.out.clear();
    identify(&mut pipeline);
    let _answers = write(&mut pipeline);
    assert_eq!(names(&mut pipeline), ["EVALSHA", "PUBLISH"]);
}

#[test]
fn an_open_process_that_refuses_an_announcement_gets_no_other() {
    let mut pipeline = open();
    for expected in [1, 0] {
        let mut answer = send(&mut pipeline, vec![Command::Announce { key: "k".into(), number: 1 }]);
        assert_eq!(names(&mut pipeline).iter().filter(|name| *name == "PUBLISH").count(), expected);
        pipeline.read(b"-NOPERM no\r\n").unwrap();
        assert_eq!(replies(&mut answer), [Reply::Failed(MemberError::Fenced)]);
    }
}

#[test]
fn a_failed_batch_fails_each_release_and_all_are_pending() {
    let mut pipeline = open();
    let mut answers = write_releases(&mut pipeline, 4);
    pipeline.read(b"-BUSY a script runs\r\n").unwrap();
    let failed: Vec<_> = answers.iter_mut().flat_map(replies).collect();
    assert_eq!(failed, vec![Reply::Failed(MemberError::Busy); 4]);
    assert!(pipeline.needs_write());
    let (kept, _) = pipeline.into_unanswered();
    assert_eq!(kept, (0..4).map(release).collect::<Vec<_>>());
    // Without an answer they are returned as requests.
    let mut pipeline = open();
    let _answers = write_releases(&mut pipeline, 4);
    let (kept, requests) = pipeline.into_unanswered();
    assert_eq!((kept.len(), requests.len()), (0, 4));
}
