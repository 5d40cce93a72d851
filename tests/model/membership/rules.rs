//! The parts of the protocol in which this model differs.

use super::*;

impl Change {
    /// The epoch of the client's connections.
    fn epoch(&self, world: &World, client: usize) -> Stage {
        let now = &world.clients[client];
        if now.is_in_round() && self.bound_to_epoch { now.extra.round } else { now.extra.received }
    }

    /// Whether the member executes the client's request as its user, and its vote counts.
    fn serves(&self, world: &World, client: usize, at: usize) -> bool {
        let Member { fence, extra: MemberExtra { open: [old, new], .. }, .. } = world.members[at];
        let is_permitted = match (self.kinds[client], self.epoch(world, client)) {
            (Kind::Replica, Stage::Old) => old,
            (Kind::Replica, _) => new,
            (Kind::Outside, Stage::Old) => old && self.old.contains(&at),
            (Kind::Outside, _) => {
                new && self.new.contains(&at) && (world.extra.stage == Stage::New || !self.clients_wait)
            }
        };
        is_permitted && (fence == Fence::Admitted || self.external)
    }

    /// A replica receives the next status, or an outside client reads its Secret.
    fn receive(&self, world: &mut World, client: usize) {
        let received = &mut world.clients[client].extra.received;
        *received = match (*received, world.extra.stage, self.kinds[client]) {
            (Stage::Old, Stage::Joint | Stage::New, Kind::Replica) => Stage::Joint,
            (Stage::Joint, Stage::New, Kind::Replica) => Stage::New,
            (Stage::Old, Stage::Joint | Stage::New, Kind::Outside) => Stage::New,
            (before, ..) => before,
        };
    }
}

impl Protocol for Change {
    type Member = MemberExtra;
    type Client = ClientExtra;
    type World = WorldExtra;
    type Step = Extra;

    fn base(&self) -> &Base {
        &self.base
    }

    /// The joining members have just started, and the leader has not observed them.
    fn start(&self) -> World {
        let mut world = World::default();
        for (at, member) in world.members[..self.base.members].iter_mut().enumerate() {
            match self.old.contains(&at) {
                true => member.extra.open[0] = true,
                false => member.fence = Fence::Restarted,
            }
        }
        world
    }

    /// The operator never closes an external master, so it executes requests whose votes do not count.
    fn executes(&self, world: &World, client: usize, at: usize) -> bool {
        let is_open = self.epoch(world, client) != Stage::Old || !world.members[at].extra.marked || !self.checked;
        if self.external { is_open } else { self.serves(world, client, at) }
    }

    fn vote(&self, world: &World, client: usize, at: usize) -> Yes {
        if self.serves(world, client, at) { Yes::Admitted } else { Yes::None }
    }

    fn won(&self, world: &World, client: usize) -> bool {
        let has = |list: &[usize], needed: usize| {
            list.iter().filter(|member| world.members[**member].votes[client] == Yes::Admitted).count() >= needed
        };
        let old = || has(&self.old, self.needed[0]);
        let new = || has(&self.new, self.needed[1]);
        match (world.clients[client].extra.round, self.kinds[client]) {
            (Stage::Old, _) => old(),
            (Stage::Joint, Kind::Replica) if self.joint => old() && new(),
            _ => new(),
        }
    }

    fn set_round(&self, world: &mut World, client: usize) {
        let client = &mut world.clients[client];
        client.extra.round = if client.is_in_round() { client.extra.received } else { Stage::Old };
    }

    /// The votes that it has given are on their way, or were counted.
    fn restart(&self, world: &mut World, at: usize) {
        let member = &mut world.members[at];
        if world.extra.restarts < self.restarts && member.fence != Fence::Restarted {
            let extra = MemberExtra { recorded: member.extra.recorded, ..MemberExtra::default() };
            *member = Member { fence: Fence::Restarted, votes: member.votes, extra, ..Member::default() };
            world.extra.restarts += 1;
        }
    }

    fn admit(&self, world: &mut World, at: usize) {
        let (member, stage) = (&mut world.members[at], world.extra.stage);
        let leaves = stage == Stage::New && !self.new.contains(&at);
        let is_admitted = !leaves && member.fence.admit(&self.base.delay);
        if is_admitted && self.external {
            member.extra.open[usize::from(stage != Stage::Old)] = true;
        } else if is_admitted {
            member.extra.open = [stage == Stage::Old, stage != Stage::Old];
            member.extra.recorded = stage != Stage::Old;
        }
    }

    fn after_step(&self, _: &World, world: &mut World, step: Step) {
        if step == Step::Tick && world.extra.closed_for > 0 {
            world.extra.closed_for = (world.extra.closed_for + 1).min(self.base.delay.ticks + 1);
        }
        world.extra.closed_for = if self.former_closed(world) { world.extra.closed_for.max(1) } else { 0 };
    }

    fn extra_steps(&self, world: &World) -> Vec<Extra> {
        let mut steps = self.leads_to(world);
        for client in 0..2 {
            steps.push(Extra::Receive(client));
            if world.clients[client].phase == Phase::Held && self.kinds[client] == Kind::Replica {
                steps.extend((0..self.base.members).map(|member| Extra::Repaired(client, member)));
            }
        }
        if self.external && world.extra.restarts < self.restarts {
            let admitted = (0..self.base.members).filter(|at| world.members[*at].fence == Fence::Admitted);
            steps.extend(admitted.map(Extra::Fence));
        }
        steps
    }

    fn apply_extra(&self, world: &mut World, step: Extra) {
        match step {
            Extra::Receive(client) => self.receive(world, client),
            Extra::Repaired(client, at) => {
                if world.members[at].owner == NOBODY && self.executes(world, client, at) {
                    world.members[at].set(client, world.clients[client].valid);
                }
            }
            Extra::Fence(at) => {
                world.members[at].fence = Fence::Observed(0);
                world.extra.restarts += 1;
            }
            Extra::OpenNext(at) => world.members[at].extra.open[1] = true,
            Extra::Switch => {
                world.extra.stage = Stage::Joint;
                if self.external {
                    let members = world.members[..self.base.members].iter_mut();
                    members.for_each(|member| member.extra.open[1] = member.fence == Fence::Admitted);
                }
            }
            Extra::Close(at) => {
                let member = &mut world.members[at].extra;
                member.open[0] &= !self.close || self.external;
                member.marked |= self.external && self.close;
                member.recorded = true;
            }
            Extra::Finish => world.extra.stage = Stage::New,
        }
    }

    fn role(&self, member: usize) -> (bool, bool) {
        (self.old.contains(&member), self.new.contains(&member))
    }

    fn are_clients_alike(&self) -> bool {
        self.kinds[0] == self.kinds[1]
    }

    /// The change has ended, and a client that has received the end holds the lock.
    fn goal(&self, world: &World) -> bool {
        let holds = |client: &protocol::Client<ClientExtra>| client.valid > 0 && client.extra.received == Stage::New;
        world.extra.stage == Stage::New && world.clients.iter().any(holds)
    }

    fn describe_extra(&self, step: Extra) -> String {
        match step {
            Extra::Receive(c) => format!("{} receives the change", CLIENTS[c]),
            Extra::Repaired(c, m) => format!("m{} is repaired for {} (not counted)", m + 1, CLIENTS[c]),
            Extra::Fence(m) => format!("m{} is fenced while it runs", m + 1),
            Extra::OpenNext(m) => format!("the next epoch's user is opened on m{}", m + 1),
            Extra::Switch => "the status names both lists".into(),
            Extra::Close(m) => format!("users of the epoch before are closed on m{}", m + 1),
            Extra::Finish => "the status names the new list alone".into(),
        }
    }

    fn show_world(&self, world: &WorldExtra) -> String {
        format!("{:?} ", world.stage)
    }

    fn show_member(&self, member: &MemberExtra) -> String {
        let [old, new] = member.open;
        format!("/{}{}", if old { "e" } else { "" }, if new { "f" } else { "" })
    }

    fn show_client(&self, client: &ClientExtra) -> String {
        format!("({:?})", client.received)
    }
}
