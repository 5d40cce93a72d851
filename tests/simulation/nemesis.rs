//! The faults.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::link::Weather;
use super::quorum::Quorum;
use super::rng::Rng;

pub(crate) struct Nemesis {
    pub(crate) quorum: Arc<Quorum>,
    pub(crate) weather: Vec<Arc<Mutex<Weather>>>,
    pub(crate) rng: Rng,
}

impl Nemesis {
    pub(crate) async fn run(mut self) {
        // Without a fence members vote at once. With a fence nothing happens before the end of the first wait.
        sleep(if self.quorum.fence { Duration::from_millis(2_300) } else { Duration::from_millis(300) }).await;
        loop {
            sleep(self.rng.millis(200, 1_800)).await;
            self.quorum.history.count(|counts| counts.faults += 1);
            let member = usize::try_from(self.rng.below(self.quorum.servers.len() as u64)).unwrap();
            let link = usize::try_from(self.rng.below(self.weather.len() as u64)).unwrap();
            match self.rng.below(12) {
                0 | 1 => self.restart(member),
                2 => self.freeze(member),
                3 => self.step_clock(member),
                4 | 5 => {
                    let length = self.rng.millis(50, 4_000);
                    self.weather[link].lock().unwrap().cut_until = Instant::now() + length;
                }
                6 => {
                    let slowest = self.rng.between(1, 90);
                    self.weather[link].lock().unwrap().slowest = slowest;
                }
                7 => {
                    let deaf = if self.rng.percent(50) { 0 } else { self.rng.between(5, 100) };
                    self.weather[link].lock().unwrap().deaf = deaf;
                }
                _ => {
                    for weather in &self.weather {
                        let mut weather = weather.lock().unwrap();
                        (weather.slowest, weather.deaf, weather.cut_until) = (2, 0, Instant::now());
                    }
                }
            }
        }
    }

    fn restart(&mut self, member: usize) {
        let (server, history) = (self.quorum.servers[member].clone(), self.quorum.history.clone());
        if !server.process().up {
            return;
        }
        server.stop();
        history.note(&format!("{} stops and forgets", server.name));
        history.count(|counts| counts.restarts += 1);
        let downtime = self.rng.millis(0, 400);
        tokio::spawn(async move {
            sleep(downtime).await;
            server.process().up = true;
            history.note(&format!("{} starts", server.run_id()));
        });
    }

    fn freeze(&mut self, member: usize) {
        let server = &self.quorum.servers[member];
        let length = self.rng.millis(10, 2_500);
        server.process().frozen_until = Instant::now() + length;
        self.quorum.history.note(&format!("{} freezes for {:.3} s", server.name, length.as_secs_f64()));
    }

    /// Steps a clock far enough to have an effect.
    fn step_clock(&mut self, member: usize) {
        let server = &self.quorum.servers[member];
        let micros = i64::try_from(self.rng.millis(1_000, 60_000).as_micros()).unwrap();
        let micros = if self.rng.percent(70) { micros } else { -micros };
        server.process().stepped_micros += micros;
        self.quorum.history.note(&format!("{}'s clock is stepped by {} ms", server.name, micros / 1_000));
        // The process restarts, like after a clock watch that detects the step in time.
        let (server, history, number) = (server.clone(), self.quorum.history.clone(), server.process().number);
        let noticed = self.rng.millis(100, 3_000);
        tokio::spawn(async move {
            sleep(noticed).await;
            if server.process().number == number && server.process().up {
                server.stop();
                server.process().up = true;
                history.note(&format!("{} starts, as its clock was stepped", server.run_id()));
            }
        });
    }
}
