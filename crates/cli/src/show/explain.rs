//! `redlock explain`: why a lock is held or not, from the quorum to the queue.

use serde_json::{Value, json};

use crate::cluster::objects::{LockObject, QuorumObject};
use crate::cluster::{Cluster, Problem};
use crate::output::{Answer, Paint, Printer, Tone};
use crate::show::status::LockArgs;

pub mod chain;

pub use chain::{Explanation, Link, QuorumState, State, member_text, of_quorum};

impl Answer for Explanation {
    fn value(&self) -> Value {
        let link = |link: &Link| json!({"about": link.about, "state": format!("{:?}", link.state), "lines": link.lines, "toDo": link.to_do});
        json!({
            "lock": self.lock,
            "held": self.held,
            "summary": self.summary,
            "links": self.links.iter().map(link).collect::<Vec<_>>(),
            "toDo": self.to_do(),
        })
    }

    fn text(&self, paint: Paint, _: bool) -> String {
        let tone = if self.held { Tone::Good } else { Tone::Waiting };
        let mut text = format!("{}\n\n", paint.tone(tone, &self.summary));
        for link in &self.links {
            let (mark, tone) = link.state.mark();
            let mark = paint.tone(tone, &format!("{mark:<6}"));
            for (index, sentence) in link.lines.iter().enumerate() {
                let (mark, about) = if index == 0 { (mark.as_str(), link.about) } else { ("      ", "") };
                text += &format!("{mark}{about:<10}{sentence}\n");
            }
        }
        match self.to_do() {
            Some(to_do) => text + &format!("\n{} {to_do}\n", paint.tone(Tone::Title, "To do:")),
            None if self.has_remedy() => text,
            None => text + "\nThere is nothing to do.\n",
        }
    }

    fn names(&self) -> Vec<String> {
        vec![self.lock.clone()]
    }
}

/// Prints why a lock is held or not.
///
/// # Errors
/// If there is no such lock, or the API server does not answer.
pub async fn run(args: LockArgs) -> anyhow::Result<()> {
    let (cluster, target, found) = args.find().await?;
    let quorum = match found.meant.iter().find(|lock| !lock.is_finished()).or(found.meant.first()) {
        Some(lock) => quorum_state(&cluster, lock).await?,
        None => QuorumState::Unknown,
    };
    let explained = chain::explain(&target.to_string(), &found.meant, &found.others, &quorum, cluster.now());
    Printer::new(args.output).show(&Explanation { lock: target.name(), ..explained })
}

/// Reads the quorum of a lock.
///
/// A missing right is not a failure, because the lock alone explains a part.
async fn quorum_state(cluster: &Cluster, lock: &LockObject) -> Result<QuorumState, Problem> {
    let Some((namespace, name)) = lock.quorum() else { return default(cluster).await };
    let quorums = cluster.api::<QuorumObject>(Some(&namespace));
    let full_name = format!("{namespace}/{name}");
    match cluster.call(&format!("read RedisQuorum {full_name}"), quorums.get(&name)).await {
        Ok(quorum) => Ok(QuorumState::Found(Box::new(quorum))),
        Err(problem) if problem.is_not_found() => Ok(QuorumState::Absent(full_name)),
        Err(problem) if problem.is_forbidden() => Ok(QuorumState::Hidden(full_name)),
        Err(problem) => Err(problem),
    }
}

/// Reads the quorum that is marked as the default, if this user can list quorums.
async fn default(cluster: &Cluster) -> Result<QuorumState, Problem> {
    match cluster.list::<QuorumObject>(None, "").await {
        Ok(quorums) => {
            let mut marked: Vec<_> = quorums.into_iter().filter(QuorumObject::is_default).collect();
            Ok(match (marked.pop(), marked.is_empty()) {
                (Some(only), true) => QuorumState::Found(Box::new(only)),
                (last, _) => QuorumState::Defaults(marked.iter().chain(&last).map(QuorumObject::full_name).collect()),
            })
        }
        Err(problem) if problem.is_forbidden() => Ok(QuorumState::Unknown),
        Err(problem) => Err(problem),
    }
}
