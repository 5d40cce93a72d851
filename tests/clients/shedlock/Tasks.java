import java.time.Duration;
import java.time.Instant;
import java.util.concurrent.CompletableFuture;
import net.javacrumbs.shedlock.core.DefaultLockingTaskExecutor;
import net.javacrumbs.shedlock.core.LockConfiguration;

/** Two schedulers with one task, each with its own agent. Prints "done" if they never run it at the same time. */
public class Tasks {
    private static final LockConfiguration NIGHTLY =
        new LockConfiguration(Instant.now(), "nightly", Duration.ofMinutes(1), Duration.ZERO);

    /** Runs the task in a new thread, because ShedLock does not acquire a lock that the thread already holds. */
    private static boolean runs(DefaultLockingTaskExecutor scheduler) {
        var ran = new CompletableFuture<Boolean>();
        CompletableFuture.runAsync(() -> scheduler.executeWithLock((Runnable) () -> ran.complete(true), NIGHTLY))
            .whenComplete((done, error) -> ran.complete(false));
        return ran.join();
    }

    public static void main(String[] agents) throws Throwable {
        var one = new DefaultLockingTaskExecutor(new AgentLockProvider(agents[0], "shop"));
        var two = new DefaultLockingTaskExecutor(new AgentLockProvider(agents[1], "shop"));
        var first = one.executeWithLock(() -> {
            if (runs(one) || runs(two)) throw new Error("two run at a time");
            Thread.sleep(5000);
            if (runs(two)) throw new Error("two run at a time, after a ttl");
            return "ran";
        }, NIGHTLY);
        if (!first.wasExecuted()) throw new Error("the first was not run");
        for (int tries = 0; !runs(two); tries++) {
            if (tries == 50) throw new Error("not released");
            Thread.sleep(100);
        }
        System.out.println("done");
    }
}
