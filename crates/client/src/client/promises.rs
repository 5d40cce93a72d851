//! Properties of the public types that the compiler confirms in every build.

use std::time::Duration;

use super::{Builder, Client, Guard, Held, Lock, NotAcquired, Reader, Release};

const fn is_shared<T: Send + Sync + Clone + 'static>() {}
const fn moves_into_a_task<T: Send + 'static>() {}
fn is_sent<T: Send>(future: T) -> T {
    future
}

const _: () = {
    is_shared::<Client>();
    is_shared::<Held>();
    is_shared::<Lock>();
    is_shared::<NotAcquired>();
    moves_into_a_task::<Builder>();
    moves_into_a_task::<Guard>();
    moves_into_a_task::<Reader>();
    moves_into_a_task::<Release>();
};

#[expect(dead_code, reason = "it is there to be compiled")]
async fn futures_can_be_spawned(client: Client, guard: Guard, held: Held) -> Result<Release, NotAcquired> {
    let second = Duration::from_secs(1);
    let lock = client.lock("k");
    drop(is_sent(lock.clone().try_acquire()).await?);
    let _ = is_sent(is_sent(lock.acquire()).await?.leave(second)).await;
    let _ = is_sent(client.release(&held)).await;
    let _ = is_sent(client.resume(held, second)).await;
    let _ = is_sent(guard.lost()).await;
    let _ = is_sent(guard.run_while_held(async {})).await;
    let _ = is_sent(client.close(second)).await;
    Ok(is_sent(guard.release()).await)
}
