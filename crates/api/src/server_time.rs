//! The API server's time, from its responses.
//!
//! A replica's own wall clock can be wrong by any amount. The API server and the controllers write times (creation, deletion, the
//! transitions of conditions) by the API server's clock, so waits that begin with such a time use that clock.
//!
//! Each answer carries it in its `Date` header, cut to whole seconds. The server's clock was in `[Date, Date + 1 s)` at some moment
//! between request and answer. The intersection of many such intervals is narrow.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use hyper::http::header::DATE;
use hyper::http::{Request, Response, StatusCode};
use jiff::fmt::rfc2822::DateTimeParser;
use kube::Client;
use kube::client::Body;
use parking_lot::Mutex;
use rustls::pki_types::UnixTime;
use rustls::time_provider::TimeProvider;
use tower::Service;

use crate::requests::without_secrets;
use redlock_engine::time::{Boottime, Clock, ClockOffset, UnixMicros, UnixMillis};

/// The drift between the server's clock and this machine's, in millionths, for a command.
///
/// A time service corrects the clock of its machine. An interval gets wider by this with its age. If it is too small, intervals contradict
/// each other, and only the newest one is used.
pub const USUAL_DRIFT: u32 = 500;

/// The resolution of a `Date` header.
const RESOLUTION: Duration = Duration::from_secs(1);

#[derive(Default)]
struct ClockState {
    offset: Option<ClockOffset>,
    last_answer: Option<Boottime>,
}

/// The API server's time, as this process has measured it.
///
/// It comes from the responses to all clients of the process that were [wrapped](ServerTime::observe).
pub struct ServerTime {
    clock: Arc<dyn Clock>,
    drift: u32,
    state: Mutex<ClockState>,
}

impl ServerTime {
    /// A time without a reading. The server's clock and `clock` run apart by at most `drift` millionths.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>, drift: u32) -> Self {
        Self { clock, drift, state: Mutex::default() }
    }

    /// The API server's time now. Before the first answer with a date it is this machine's wall clock.
    #[must_use]
    pub fn now(&self) -> UnixMillis {
        let now = self.clock.boottime();
        self.offset(now).map_or_else(|| self.clock.wall(), |offset| offset.middle(now).floor())
    }

    /// The offset of the API server's clock from the boot-time clock, estimated at `now`.
    ///
    /// `None` before the first answer with a date.
    #[must_use]
    pub fn offset(&self, now: Boottime) -> Option<ClockOffset> {
        Some(self.state.lock().offset?.aged(now, self.drift))
    }

    /// The time of the newest answered request. `None` if there is none.
    #[must_use]
    pub fn last_answer(&self) -> Option<Boottime> {
        self.state.lock().last_answer
    }

    /// Wraps a client, so that its responses update the time.
    #[must_use]
    pub fn observe(self: &Arc<Self>, client: Client) -> Client {
        let (namespace, valid_until) = (client.default_namespace().to_owned(), *client.valid_until());
        Client::new(ObservedClient { client, server_time: self.clone() }, namespace).with_valid_until(valid_until)
    }

    /// Sets the offset, as if many responses had given it.
    #[cfg(any(test, feature = "test-util"))]
    pub fn set_offset(&self, offset: ClockOffset) {
        self.state.lock().offset = Some(offset);
    }

    fn observe_response(&self, sent: Boottime, answer: &Response<Body>) {
        // The answer of a load balancer that found no API server.
        if matches!(
            answer.status(),
            StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT
        ) {
            return;
        }
        let date = answer.headers().get(DATE).and_then(|date| date.to_str().ok());
        self.record(sent, self.clock.boottime(), date);
    }

    /// Records an answer of the API server, with its `Date` header.
    fn record(&self, sent: Boottime, received: Boottime, date: Option<&str>) {
        let date = date.and_then(|date| DateTimeParser::new().parse_timestamp(date).ok());
        let mut state = self.state.lock();
        state.last_answer = state.last_answer.max(Some(sent));
        let Some(date) = date else { return };
        let reading = ClockOffset::of_reading(UnixMicros(date.as_microsecond()), RESOLUTION, sent, received);
        state.offset = Some(state.offset.map_or(reading, |offset| offset.narrowed_by(reading, self.drift)));
    }
}

impl fmt::Debug for ServerTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ServerTime(..)")
    }
}

/// The operator issues and checks members' certificates by this clock.
impl TimeProvider for ServerTime {
    fn current_time(&self) -> Option<UnixTime> {
        u64::try_from(self.now().0).ok().map(|millis| UnixTime::since_unix_epoch(Duration::from_millis(millis)))
    }
}

/// A client whose responses update the time.
struct ObservedClient {
    client: Client,
    server_time: Arc<ServerTime>,
}

impl Service<Request<Body>> for ObservedClient {
    type Response = Response<Body>;
    type Error = kube::Error;
    type Future = BoxFuture<'static, Result<Response<Body>, kube::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (client, server_time) = (self.client.clone(), self.server_time.clone());
        Box::pin(async move {
            let sent = server_time.clock.boottime();
            let answer = client.send(request).await.map_err(without_secrets)?;
            server_time.observe_response(sent, &answer);
            Ok(answer)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use redlock_engine::time::TokioClock;

    fn at(millis: u64) -> Boottime {
        Boottime::new(Duration::from_millis(millis))
    }

    /// The server's clock in these tests is 1,800,000,000 s after 1970 when we boot.
    const AT_BOOT: i64 = 1_800_000_000_000;

    fn date(unix_millis: i64) -> String {
        let time = jiff::Timestamp::from_millisecond(unix_millis.div_euclid(1_000) * 1_000).unwrap();
        let mut date = String::new();
        jiff::fmt::rfc2822::DateTimePrinter::new().print_timestamp_rfc9110(&time, &mut date).unwrap();
        date
    }

    fn unknown() -> ServerTime {
        ServerTime::new(Arc::new(redlock_engine::time::SystemClock), USUAL_DRIFT)
    }

    #[tokio::test(start_paused = true)]
    async fn the_wall_clock_is_used_only_until_an_answer_has_a_date() {
        let clock = Arc::new(TokioClock::new());
        let server_time = ServerTime::new(clock.clone(), USUAL_DRIFT);
        assert_eq!((server_time.now(), server_time.last_answer()), (clock.wall(), None));
        let now = clock.boottime();
        for unreadable in [None, Some("yesterday")] {
            server_time.record(now, now, unreadable);
            assert_eq!((server_time.now(), server_time.last_answer()), (clock.wall(), Some(now)));
        }
        let an_hour_ahead = clock.wall().0 + 3_600_000;
        server_time.record(now, now, Some(&date(an_hour_ahead)));
        assert_eq!(server_time.now().0, an_hour_ahead + 500);
        let of_certificates = server_time.current_time().unwrap().as_secs();
        assert_eq!(i64::try_from(of_certificates).unwrap(), (an_hour_ahead + 500) / 1_000);
        tokio::time::advance(Duration::from_secs(7)).await;
        assert_eq!(server_time.now().0, an_hour_ahead + 7_500, "carried by the boot-time clock");
    }

    #[test]
    fn many_answers_give_a_more_exact_time_than_one() {
        let server_time = unknown();
        for answer in 0..40 {
            let sent = 1_000 + answer * 1_037;
            let server = AT_BOOT + i64::try_from(sent).unwrap() + 2;
            server_time.record(at(sent), at(sent + 5), Some(&date(server)));
        }
        let (now, clock) = (at(42_500), server_time.offset(at(42_500)).unwrap());
        assert!(clock.latest(now).0 - clock.earliest(now).0 < 100_000, "{clock:?}");
        assert!((clock.middle(now).0 - (AT_BOOT + 42_500) * 1_000).abs() < 50_000, "{clock:?}");
    }

    #[test]
    fn a_changed_server_clock_is_used_at_once() {
        let server_time = unknown();
        server_time.record(at(1_000), at(1_002), Some(&date(AT_BOOT)));
        server_time.record(at(2_000), at(2_002), Some(&date(AT_BOOT - 60_000)));
        let middle = server_time.offset(at(2_000)).unwrap().middle(at(2_000)).0;
        assert!((middle - (AT_BOOT - 59_500) * 1_000).abs() < 5_000);
    }

    #[test]
    fn the_last_answer_is_that_of_the_latest_request() {
        let server_time = unknown();
        server_time.record(at(5_000), at(5_001), None);
        server_time.record(at(1_000), at(90_000), None);
        assert_eq!(server_time.last_answer(), Some(at(5_000)));
    }

    proptest! {
        /// Whatever the delays, the phase and the drift within the allowance: the interval holds the true time.
        #[test]
        fn the_interval_holds_the_servers_time(
            answers in prop::collection::vec((0_u64..3_000, 0_u64..300, 0_u64..300), 1..40),
            phase in 0_i64..1_000_000,
            ppm in -500_i64..=500,
        ) {
            let truth = |boot: Boottime| {
                let boot = i64::try_from(boot.since_boot().as_micros()).unwrap();
                AT_BOOT * 1_000 + phase + boot + boot * ppm / 1_000_000
            };
            let server_time = unknown();
            let mut now = 0;
            for (pause, there, back) in answers {
                let (sent, served) = (now + pause, now + pause + there);
                now = served + back;
                server_time.record(at(sent), at(now), Some(&date(truth(at(served)).div_euclid(1_000))));
                for later in [0, 10_000] {
                    let then = at(now + later);
                    let (clock, truth) = (server_time.offset(then).unwrap(), truth(then));
                    // Rounding of the interval and of the drift.
                    let (earliest, latest) = (clock.earliest(then).0 - 2, clock.latest(then).0 + 2);
                    prop_assert!(earliest <= truth && truth <= latest, "{clock:?} {truth}");
                }
            }
        }
    }

    #[tokio::test]
    async fn an_observed_client_records_each_answer_of_the_api_server() {
        let clock = Arc::new(TokioClock::new());
        let server_time = Arc::new(ServerTime::new(clock.clone(), USUAL_DRIFT));
        let answers = |status: u16, date: String| {
            tower::service_fn(move |_: Request<Body>| {
                let answer = Response::builder().status(status).header(DATE, date.clone());
                std::future::ready(answer.body(Body::empty()))
            })
        };
        let an_hour_behind = clock.wall().0 - 3_600_000;
        let ask = || Request::get("/").body(Body::empty()).unwrap();
        let balancer = server_time.observe(Client::new(answers(503, date(an_hour_behind)), "default"));
        balancer.send(ask()).await.unwrap();
        assert_eq!(server_time.last_answer(), None, "that was no API server");
        let client = server_time.observe(Client::new(answers(404, date(an_hour_behind)), "default"));
        client.send(ask()).await.unwrap();
        assert!(server_time.last_answer().is_some());
        assert!((server_time.now().0 - an_hour_behind).abs() <= 2_000);
    }
}
