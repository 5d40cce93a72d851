//! The effects of each step.

use super::*;

impl Member {
    /// Removes the answers to an attempt that is decided or given up.
    pub(super) fn forget(&mut self, client: usize) {
        (self.set[client], self.yes[client], self.refused[client]) = (false, 0, 0);
        (self.chosen[client], self.raised[client], self.counted[client]) = (false, false, false);
    }
}

impl Tokens {
    pub(super) fn majority(&self, world: &World, chosen: impl Fn(&Member) -> bool) -> bool {
        let votes = world.members[..self.members].iter();
        self.majorities.won(votes.map(|member| if chosen(member) { Yes::Admitted } else { Yes::None }))
    }

    /// Ends the client's attempt or hold, and removes its keys.
    pub(super) fn over(world: &mut World, client: usize) {
        for member in &mut world.members {
            if usize::from(member.owner) == client + 1 {
                member.owner = 0;
            }
            member.forget(client);
        }
        (world.clients[client].phase, world.clients[client].token) = (Phase::Idle, 0);
    }

    pub(super) fn grant(&self, world: &mut World, client: usize, token: u8) {
        world.reversed |= token <= world.last;
        world.last = world.last.max(token);
        if self.floor {
            world.floor = world.floor.max(token);
        }
        for member in &mut world.members {
            member.forget(client);
        }
        world.clients[client] = Client { phase: Phase::Held, token };
    }

    /// The counter to restore.
    ///
    /// Unix time is left out, because it would hide errors in the other two sources. Without a floor the operator waits
    /// for missing counters.
    pub(super) fn restored(&self, world: &World, others: usize) -> Option<u8> {
        let token = |number: u8| FencingToken::new(number.into()).unwrap();
        let read = (0..self.members).filter(|member| others >> member & 1 == 1);
        let counters: Vec<_> = read.map(|member| token(world.members[member].counter)).collect();
        let floor = if self.floor { token(world.floor) } else { FencingToken::ZERO };
        let restored = restored(&counters, self.needed, floor, FencingToken::ZERO);
        (self.floor || counters.len() >= self.needed).then(|| u8::try_from(restored.get()).unwrap())
    }
}
