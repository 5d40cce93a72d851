//! Requests and responses between replicas and the API server, and watches that lag.
//!
//! Each replica has delays of its own.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};

use http::{Request, Response};
use hyper::body::Bytes;
use tokio::sync::{mpsc, oneshot};

use crate::blind;
use crate::messages::AnswerBody;
use crate::rng::hash;
use crate::time::At;
use crate::world::{Event, World};
use redlock_simulation::kube::api::{Answer, ApiServer, Kind, Refusal, Watch};

type Answering = oneshot::Sender<io::Result<Response<AnswerBody>>>;

/// A request on its way.
pub(crate) struct Asked {
    process: usize,
    request: Request<Bytes>,
    answer: Answering,
    number: u64,
}

/// An open watch of a process.
pub(crate) struct Following {
    process: usize,
    watch: Watch,
    lines: mpsc::UnboundedSender<io::Result<Bytes>>,
    last: At,
}

/// Faults between a process and the API server.
#[derive(Clone, Debug, Default)]
pub(crate) struct ApiWeather {
    /// Whether all messages are held back.
    ///
    /// They are delivered after the cut.
    pub(crate) cut: bool,
    /// Watches deliver nothing, and requests are answered.
    pub(crate) deaf: bool,
    /// Watches of this kind deliver nothing.
    pub(crate) deaf_to: Option<Kind>,
    /// The maximum additional delay of each message, in microseconds.
    pub(crate) slow: u64,
    /// The maximum additional lag of watches, in microseconds.
    pub(crate) lag: u64,
    /// Percentage of requests that are refused without effect, and the status code.
    pub(crate) refused: Option<(u64, u16)>,
    /// Percentage of requests that are lost with their connection.
    ///
    /// The same percentage of the other requests loses only the response.
    pub(crate) lossy: u64,
    requests: u64,
}

impl ApiWeather {
    /// Whether requests are answered and watches deliver in time.
    pub(crate) fn is_fair(&self) -> bool {
        !self.cut
            && !self.deaf
            && self.deaf_to.is_none()
            && self.slow == 0
            && self.lag == 0
            && self.refused.is_none()
            && self.lossy == 0
    }
}

/// The API server, and the connections to it.
pub(crate) struct ApiSide {
    pub(crate) server: ApiServer,
    /// The error of the control plane's clocks, in milliseconds.
    pub(crate) wrong: i64,
    /// The times at which the server's clock was set, and by how many milliseconds.
    steps: Vec<(At, i64)>,
    pub(crate) weather: BTreeMap<usize, ApiWeather>,
    watches: BTreeMap<u64, Following>,
    next_watch: u64,
    held: Vec<Asked>,
    held_answers: Vec<(usize, Answering, io::Result<Response<AnswerBody>>)>,
    /// The last version that was scheduled for delivery to watches.
    scheduled: u64,
}

impl ApiSide {
    pub(crate) fn new(seed: u64, wrong: i64) -> Self {
        let server = ApiServer::new(seed, At::default().unix_millis() + wrong);
        let scheduled = server.version();
        Self {
            server,
            wrong,
            steps: Vec::new(),
            weather: BTreeMap::new(),
            watches: BTreeMap::new(),
            next_watch: 0,
            held: Vec::new(),
            held_answers: Vec::new(),
            scheduled,
        }
    }

    /// The clock of the control plane, without the steps of the server's clock.
    ///
    /// The timers of its components follow this clock.
    pub(crate) fn clock(&self, now: At) -> i64 {
        now.unix_millis() + self.wrong
    }

    /// The time that the server's clock shows.
    pub(crate) fn stamp(&self, now: At) -> i64 {
        self.server.stamp(self.clock(now))
    }

    /// Sets the server's clock.
    pub(crate) fn set_clock(&mut self, now: At, by: i64) {
        self.server.clock_step += by;
        self.steps.push((now, by));
    }

    /// The least and the most by which the server's clock was set within this time, in milliseconds.
    pub(crate) fn steps_between(&self, from: At, to: At) -> [i64; 2] {
        let (mut total, mut within) = (0, Vec::new());
        for (at, by) in self.steps.iter().filter(|(at, _)| *at <= to) {
            if *at >= from {
                within.push(total);
            }
            total += by;
        }
        within.push(total);
        [within.iter().min().copied().unwrap_or(total), within.iter().max().copied().unwrap_or(total)]
    }

    /// The sum of all steps in the direction of `sign` since this time, in microseconds.
    pub(crate) fn set_since(&self, from: At, sign: i64) -> u64 {
        let steps = self.steps.iter().filter(|(at, by)| *at >= from && by.signum() == sign);
        steps.map(|(_, by)| by.unsigned_abs() * 1_000).sum()
    }

    /// Number of watches of a process.
    pub(crate) fn watches(&self, process: usize) -> usize {
        self.watches.values().filter(|following| following.process == process && !following.lines.is_closed()).count()
    }
}

fn latency(seed: u64, process: usize, number: u64, part: u64, slow: u64) -> u64 {
    let drawn = hash(seed, [10, process as u64, number, part]);
    let base = if drawn.is_multiple_of(40) { 2_000 + drawn / 64 % 20_000 } else { 300 + drawn / 64 % 1_500 };
    base + if slow == 0 { 0 } else { hash(drawn, [11]) % slow }
}

impl World {
    pub(crate) fn api_sent(&mut self, at: At, process: usize, request: Request<Bytes>, answer: Answering) {
        let weather = self.api.weather.entry(process).or_default();
        weather.requests += 1;
        let asked = Asked { process, request, answer, number: weather.requests };
        if weather.cut {
            self.api.held.push(asked);
            return;
        }
        let arrives = at + latency(self.seed, process, asked.number, 0, weather.slow);
        self.queue.push(arrives, Event::ApiAsked(asked));
    }

    /// Handles a request that arrives.
    ///
    /// It has its effect even if the client no longer waits.
    pub(crate) fn on_api_request(&mut self, asked: Asked) {
        let Asked { process, request, answer, number } = asked;
        let clock = self.api.clock(self.now);
        let weather = self.api.weather.entry(process).or_default().clone();
        let lot = hash(self.seed, [12, process as u64, number]) % 100;
        let is_watch = request.uri().query().is_some_and(|query| query.contains("watch="));
        if lot < weather.lossy {
            self.api_answers(process, number, answer, Err(ErrorKind::ConnectionReset.into()), "lost");
            return;
        }
        if let Some((share, code)) = weather.refused.filter(|(share, _)| !is_watch && lot < weather.lossy + share) {
            let _ = share;
            let refusal = match code {
                429 => ApiServer::too_many_requests(1),
                _ => Refusal::new(code, "InternalError", "the server is not well"),
            };
            let response =
                ApiServer::refuse(&refusal, self.api.stamp(self.now)).map(|body| AnswerBody::Whole(Some(body)));
            self.api_answers(process, number, answer, Ok(response), "refused");
            return;
        }
        let is_event = request.uri().path().contains("/events");
        let is_blind = blind::concerns(request.uri().path());
        let answered = self.api.server.handle(&request, clock);
        let name = &self.processes[process].name;
        match answered {
            Answer::Unary(response) => {
                let status = response.status().as_u16();
                if !is_event {
                    let body = hash(0, request.body().iter().map(|byte| u64::from(*byte)));
                    let line = format_args!("{name} {} {} {body:016x} -> {status}", request.method(), request.uri());
                    self.trace.add(self.now, line);
                }
                let filtered = |body| if is_blind { blind::without_field(body) } else { body };
                let response = response.map(|body| AnswerBody::Whole(Some(filtered(body))));
                let lost = lot >= 100 - weather.lossy;
                let response = if lost { Err(ErrorKind::ConnectionReset.into()) } else { Ok(response) };
                self.api_answers(process, number, answer, response, if lost { "answer lost" } else { "" });
            }
            Answer::Watch(watch) => self.api_follows(process, number, watch, answer),
        }
        self.api_changed();
    }

    fn api_answers(
        &mut self,
        process: usize,
        number: u64,
        answer: Answering,
        response: io::Result<Response<AnswerBody>>,
        how: &str,
    ) {
        if !how.is_empty() {
            self.trace.add(self.now, format_args!("{} request {number} {how}", self.processes[process].name));
        }
        let weather = self.api.weather.entry(process).or_default();
        if weather.cut {
            self.api.held_answers.push((process, answer, response));
            return;
        }
        let arrives = self.now + latency(self.seed, process, number, 1, weather.slow);
        self.queue.push(arrives, Event::ApiAnswers { answer, response });
    }

    fn api_follows(&mut self, process: usize, number: u64, watch: Watch, answer: Answering) {
        let (lines, body) = mpsc::unbounded_channel();
        let mut response = Response::new(AnswerBody::Lines(body));
        let date = ApiServer::refuse(&Refusal::bad("for its date"), self.api.stamp(self.now));
        if let Some(date) = date.headers().get(http::header::DATE) {
            response.headers_mut().insert(http::header::DATE, date.clone());
        }
        let id = self.api.next_watch;
        self.api.next_watch += 1;
        let ends = u64::try_from(watch.until - self.api.clock(self.now)).unwrap_or(0) * 1_000;
        self.queue.push(self.now + ends, Event::WatchEnds { watch: id });
        self.api.watches.insert(id, Following { process, watch, lines, last: self.now });
        self.api_answers(process, number, answer, Ok(response), "");
        self.schedule_delivery(id);
    }

    /// Schedules delivery of every change since the last call to the watches of its kind.
    pub(crate) fn api_changed(&mut self) {
        let version = self.api.server.version();
        if version == self.api.scheduled {
            return;
        }
        let entries: Vec<_> = self.api.server.changes_after(self.api.scheduled).cloned().collect();
        self.api.scheduled = version;
        let kinds: Vec<Kind> = entries.iter().map(|entry| entry.kind).collect();
        for entry in &entries {
            self.observe(entry);
        }
        let concerned = |following: &Following| kinds.contains(&following.watch.kind);
        let watches: Vec<u64> =
            self.api.watches.iter().filter(|(_, following)| concerned(following)).map(|(id, _)| *id).collect();
        watches.into_iter().for_each(|id| self.schedule_delivery(id));
    }

    /// Delivers the current version to a watch after a delay.
    ///
    /// The delivery never overtakes that of the earlier version.
    fn schedule_delivery(&mut self, id: u64) {
        let Some(following) = self.api.watches.get_mut(&id) else { return };
        let weather = self.api.weather.entry(following.process).or_default();
        let through = self.api.server.version();
        let drawn = hash(self.seed, [13, following.process as u64, following.watch.kind as u64, through]);
        let lag = 200 + drawn % 4_000 + if weather.lag == 0 { 0 } else { hash(drawn, [1]) % weather.lag };
        let at = (self.now + lag).max(following.last);
        following.last = at;
        self.queue.push(at, Event::WatchShows { watch: id, through });
    }

    pub(crate) fn watch_shows(&mut self, id: u64, through: u64) {
        let Some(following) = self.api.watches.get_mut(&id) else { return };
        let weather = self.api.weather.entry(following.process).or_default();
        // A watch that delivered nothing catches up when the connection works again.
        if weather.cut || weather.deaf || weather.deaf_to == Some(following.watch.kind) {
            return;
        }
        let read = self.api.server.lines(&mut following.watch, through);
        let is_blind = blind::concerns_kind(following.watch.kind);
        let filtered = |line| if is_blind { blind::without_field(line) } else { line };
        let delivered = read.lines.into_iter().all(|line| following.lines.send(Ok(filtered(line))).is_ok());
        if read.end || !delivered || following.lines.is_closed() {
            self.api.watches.remove(&id);
        }
    }

    pub(crate) fn watch_ends(&mut self, id: u64) {
        self.api.watches.remove(&id);
    }

    /// Ends all watches of a process.
    ///
    /// Without `mercy` it ends them in the middle of the stream.
    pub(crate) fn cut_watches(&mut self, process: usize, mercy: bool) {
        self.api.watches.retain(|_, following| {
            let ends = following.process == process;
            if ends && !mercy {
                let _ = following.lines.send(Err(ErrorKind::ConnectionReset.into()));
            }
            !ends
        });
    }

    /// Changes the faults of a process.
    ///
    /// If nothing is cut afterwards, the held messages continue.
    pub(crate) fn api_weather(&mut self, process: usize, change: impl FnOnce(&mut ApiWeather)) {
        let weather = self.api.weather.entry(process).or_default();
        change(weather);
        let (whole, delivers) = (!weather.cut, !weather.cut && !weather.deaf);
        if whole {
            let asked: Vec<Asked> = self.api.held.extract_if(.., |asked| asked.process == process).collect();
            for asked in asked {
                let later = hash(self.seed, [14, process as u64, asked.number]) % 1_000_000;
                self.queue.push(self.now + later, Event::ApiAsked(asked));
            }
            let answers: Vec<_> = self.api.held_answers.extract_if(.., |(of, ..)| *of == process).collect();
            for (_, answer, response) in answers {
                self.queue.push(self.now + 1_000, Event::ApiAnswers { answer, response });
            }
        }
        if delivers {
            let ids: Vec<u64> =
                self.api.watches.iter().filter(|(_, f)| f.process == process).map(|(id, _)| *id).collect();
            ids.into_iter().for_each(|id| self.schedule_delivery(id));
        }
    }
}
