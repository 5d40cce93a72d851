//! The rule that chooses the token from the numbers of some votes.

use redlock_operator::redlock::{FencingToken, held_at_once};

use super::{Answers, Tokens, World};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    /// The rule of the crate.
    Product,
    /// The majority-th largest number of any votes, even if they are few.
    MajorityThLargest,
}

impl Tokens {
    pub(super) fn quorum(&self) -> usize {
        self.members / 2 + 1
    }

    /// The token of these votes without a write-back.
    pub(super) fn at_once(&self, world: &World, client: usize, voters: &[usize]) -> Option<u8> {
        let mut numbers: Vec<u8> = voters.iter().map(|at| world.members[*at].answers[client].yes).collect();
        let number = |token: FencingToken| u8::try_from(token.get()).unwrap();
        match self.rule {
            Rule::Product if self.refused_count_for_nothing => {
                let tokens = numbers.iter().map(|number| FencingToken::new((*number).into()).unwrap()).collect();
                held_at_once(tokens, self.members, self.quorum()).map(number)
            }
            Rule::Product => {
                let token = numbers.iter().copied().max()?;
                let stores = |answers: &Answers| answers.yes.max(answers.refused) >= token;
                let stored =
                    world.members[..self.members].iter().filter(|member| stores(&member.answers[client])).count();
                (stored >= self.quorum()).then_some(token)
            }
            Rule::MajorityThLargest => {
                numbers.sort_unstable_by(|a, b| b.cmp(a));
                numbers.get(self.quorum() - 1).copied()
            }
        }
    }
}
