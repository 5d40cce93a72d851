//! The effects of each step.

use super::*;

impl Admission {
    pub(super) fn tick(&self, world: &mut World) {
        for process in &mut world.processes {
            process.quiet = if process.votes() { 0 } else { (process.quiet + 1).min(self.ttl) };
        }
        let older = |age: u8| (age + 1).min(self.delay);
        for replica in &mut world.replicas {
            if let Some(observed) = &mut replica.observed {
                (observed.first, observed.closed) = (older(observed.first), observed.closed.map(older));
            }
            replica.fenced = replica.fenced.map(|(process, since)| (process, older(since)));
        }
    }

    pub(super) fn next_process(&self, world: &mut World, life: Life) {
        let current = usize::from(world.current);
        if current + 1 == self.processes {
            return;
        }
        let pod = world.processes[current].pod + u8::from(life == Life::CutOff);
        world.processes[current].life = life;
        world.processes[current + 1] = Process { life: Life::Running, pod, ..world.processes[current + 1] };
        world.current += 1;
    }

    pub(super) fn end_cut_off(process: &mut Process, life: Life) {
        if process.life == Life::CutOff {
            process.life = life;
        }
    }

    pub(super) fn receive(&self, world: &mut World, number: usize) {
        let (old, new) = (world.replicas[number].cache, world.record);
        let observed = world.replicas[number].observed.map(|observed| observed.process);
        let begins = |process: &u8| new.restarts_count(&old, *process, world);
        // Without the rule, only the end of an admission starts the wait again.
        let ended = old.run.filter(|_| old.admitted && !(new.admitted && new.run == old.run));
        let again = if self.counts_from_death { observed.filter(begins) } else { ended };
        let replica = &mut world.replicas[number];
        (replica.cache, replica.cache_is_new) = (new, true);
        if let Some(process) = again {
            replica.fenced = Some((process, 0));
        }
    }

    pub(super) fn probe(&self, world: &mut World, number: usize) {
        let open = world.processes[usize::from(world.current)].open;
        let replica = &mut world.replicas[number];
        replica.observed = Some(Observed::probed(replica.observed, world.current, open, self.delay));
    }

    /// Whether the replica's connection to a process still works.
    fn reaches(world: &World, process: u8) -> bool {
        world.current == process && world.processes[usize::from(process)].life == Life::Running
    }

    /// Writes the record, if its decision used the newest version.
    pub(super) fn publish(&self, world: &mut World, number: usize, next: Published) {
        world.record = next;
        for replica in &mut world.replicas {
            replica.cache_is_new = false;
            if let Doing::Read(_, _, newest) = &mut replica.doing {
                *newest = false;
            }
        }
        self.receive(world, number);
    }

    /// Cuts the other replica's connections to the process.
    fn cut_others(&self, world: &mut World, number: usize, process: u8) {
        let other = &mut world.replicas[1 - number];
        let connected = match other.doing {
            Doing::Checked(at) | Doing::Read(at, ..) | Doing::Written(at) => at == process,
            Doing::Nothing | Doing::Closing(_) => false,
        };
        if connected && self.epoch {
            other.doing = Doing::Nothing;
        }
    }

    pub(super) fn act(&self, world: &mut World, number: usize) {
        let replica = world.replicas[number];
        let Some(process) = replica.observed.map(|observed| observed.process) else { return };
        let Some((step, next)) = self.decide(world, &replica, &replica.cache) else { return };
        match step {
            FenceStep::RaiseEpoch => {
                if !Self::reaches(world, process) || world.processes[usize::from(process)].epoch > replica.term {
                    return;
                }
                world.processes[usize::from(process)].epoch = replica.term;
                self.cut_others(world, number, process);
                self.probe(world, number);
                world.replicas[number].raised = Some(process);
            }
            FenceStep::Admit => {
                if !Self::reaches(world, process) || world.processes[usize::from(process)].open {
                    return;
                }
                self.probe(world, number);
                world.replicas[number].doing = Doing::Checked(process);
            }
            FenceStep::Nothing | FenceStep::Wait { .. } => {}
            FenceStep::WriteFenced { close, .. } => {
                let is_undecided = close && replica.cache.admitted && !self.is_still(world, number);
                if is_undecided || !replica.cache_is_new {
                    return;
                }
                self.publish(world, number, next);
                if close {
                    world.replicas[number].doing = Doing::Closing(process);
                }
            }
            _ if replica.cache_is_new => self.publish(world, number, next),
            _ => {}
        }
    }

    /// Whether a last observation still confirms that the admitted process must be fenced.
    ///
    /// The observation before it can precede the opening of the process.
    fn is_still(&self, world: &World, number: usize) -> bool {
        let mut observe = *world;
        let process = observe.replicas[number].observed.map(|observed| observed.process);
        if !process.is_some_and(|process| Self::reaches(&observe, process)) {
            return false;
        }
        self.probe(&mut observe, number);
        self.receive(&mut observe, number);
        let again = self.decide(&observe, &observe.replicas[number], &observe.record);
        matches!(again, Some((FenceStep::WriteFenced { close: true, .. }, _)))
    }

    pub(super) fn read(&self, world: &mut World, number: usize) {
        self.receive(world, number);
        let (replica, record) = (world.replicas[number], world.record);
        let Doing::Checked(process) = replica.doing else { return };
        let again = self.decide(world, &replica, &record);
        let same = replica.observed.is_some_and(|observed| observed.process == process);
        world.replicas[number].doing = match again {
            Some((FenceStep::Admit, next)) if same => Doing::Read(process, next, true),
            _ => Doing::Nothing,
        };
    }

    pub(super) fn write(&self, world: &mut World, number: usize) {
        let Doing::Read(process, next, newest) = world.replicas[number].doing else { return };
        if newest {
            self.publish(world, number, next);
            let at = &mut world.processes[usize::from(process)];
            (at.shut, at.admitted) = (false, true);
            world.replicas[number].doing = Doing::Written(process);
        } else {
            world.replicas[number].doing = Doing::Nothing;
        }
    }

    pub(super) fn open(&self, world: &mut World, number: usize) {
        let Doing::Written(checked) = world.replicas[number].doing else { return };
        world.replicas[number].doing = Doing::Nothing;
        let process = if self.one_connection { checked } else { world.current };
        let term = world.replicas[number].term;
        if !Self::reaches(world, process) || (self.epoch && world.processes[usize::from(process)].epoch != term) {
            return;
        }
        let others = || world.processes.iter().enumerate().filter(|(at, _)| *at != usize::from(process));
        let wrong = if others().any(|(_, other)| other.votes()) {
            Some(Wrong::Twin)
        } else if others().any(|(_, other)| other.quiet < self.ttl) {
            Some(Wrong::TooEarly)
        } else {
            let Process { shut, admitted, .. } = world.processes[usize::from(process)];
            shut.then_some(Wrong::Shut).or((!admitted).then_some(Wrong::Unadmitted))
        };
        world.wrong = wrong;
        world.processes[usize::from(process)].open = true;
        self.probe(world, number);
    }

    pub(super) fn close(&self, world: &mut World, number: usize) {
        let Doing::Closing(process) = world.replicas[number].doing else { return };
        world.replicas[number].doing = Doing::Nothing;
        let term = world.replicas[number].term;
        if !Self::reaches(world, process) || (self.epoch && world.processes[usize::from(process)].epoch != term) {
            return;
        }
        let at = &mut world.processes[usize::from(process)];
        (at.open, at.shut) = (false, true);
        self.cut_others(world, number, process);
        self.probe(world, number);
        world.replicas[number].fenced = Some((process, 0));
    }
}
