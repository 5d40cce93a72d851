import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.Collections;
// [snippet]
import java.io.FileInputStream;
import java.net.URI;
import java.security.KeyStore;
import java.security.cert.CertificateFactory;
import java.util.List;
import java.util.concurrent.TimeUnit;
import javax.net.ssl.TrustManagerFactory;
import org.redisson.Redisson;
import org.redisson.RedissonRedLock;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;
import org.redisson.config.SingleServerConfig;

class Locks {
    /** One client per member, because a Redlock of Redisson combines the locks of several clients. */
    static RedissonClient connect(String url, String ca) throws Exception {
        URI uri = URI.create(url);
        Config config = new Config();
        config.setLazyInitialization(true); // starts even if a member is unreachable
        SingleServerConfig server = config.useSingleServer();
        server.setAddress(uri.getScheme() + "://" + uri.getHost() + ":" + uri.getPort());
        if (uri.getUserInfo() != null) {
            String[] login = uri.getUserInfo().split(":", 2);
            server.setUsername(login[0]).setPassword(login[1]);
        }
        server.setTimeout(300).setConnectTimeout(500).setRetryAttempts(0);
        server.setConnectionMinimumIdleSize(1);
        server.setSubscriptionConnectionMinimumIdleSize(1);
        if (ca != null) {
            KeyStore store = KeyStore.getInstance(KeyStore.getDefaultType());
            store.load(null);
            try (FileInputStream file = new FileInputStream(ca)) {
                store.setCertificateEntry("ca", CertificateFactory.getInstance("X.509").generateCertificate(file));
            }
            TrustManagerFactory trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
            trust.init(store);
            server.setSslTrustManagerFactory(trust);
        }
        return Redisson.create(config);
    }

    static RedissonRedLock lock(List<RedissonClient> members, String key) {
        return new RedissonRedLock(members.stream().map(member -> member.getLock(key)).toArray(RLock[]::new));
    }

    static boolean reindex(List<RedissonClient> members, String key) throws InterruptedException {
        long deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(2_000 - 20 - 2); // minus 1 % and 2 ms of clock drift
        RedissonRedLock lock = lock(members, key);
        if (!lock.tryLock(0, 2_000, TimeUnit.MILLISECONDS)) {
            return false; // another client has it, or too few members answer
        }
        // Work, and stop at the deadline. Redisson does not compute it.
        lock.unlock(); // in the thread that acquired the lock
        return System.nanoTime() < deadline;
    }
}
// [end]

/** Redisson for the end-to-end tests. Commands come on stdin,one per line. tests/e2e/libraries.rs lists them. */
public class Client {
    private static RedissonRedLock lock;

    /** Measurements of the workers, in nanoseconds. */
    private static class Measured {
        int failed;
        final List<Long> acquires = new ArrayList<>(), releases = new ArrayList<>();

        synchronized void add(Measured other) {
            failed += other.failed;
            acquires.addAll(other.acquires);
            releases.addAll(other.releases);
        }

        static String quantiles(List<Long> times) {
            if (times.isEmpty()) {
                return "0 0";
            }
            Collections.sort(times);
            int last = times.size() - 1;
            return times.get(last / 2) / 1_000 + " " + times.get((int) (last * 0.99)) / 1_000;
        }
    }

    /** Acquires and releases its own key repeatedly, until the time has passed. */
    private static Measured work(List<RedissonClient> members, String key, long until) {
        Measured measured = new Measured();
        while (System.nanoTime() - until < 0) {
            RedissonRedLock mine = Locks.lock(members, key);
            long began = System.nanoTime();
            boolean taken = false;
            try {
                taken = mine.tryLock(0, 10_000, TimeUnit.MILLISECONDS);
            } catch (Exception error) { // every error is a failed attempt
            }
            if (!taken) {
                measured.failed++;
                continue;
            }
            long held = System.nanoTime();
            try {
                mine.unlock();
            } catch (Exception error) { // a failed release ends the cycle, too
            }
            measured.acquires.add(held - began);
            measured.releases.add(System.nanoTime() - held);
        }
        return measured;
    }

    private static String cycles(List<RedissonClient> members, int workers, long milliseconds) throws Exception {
        long until = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(milliseconds);
        Measured all = new Measured();
        List<Thread> threads = new ArrayList<>();
        for (int n = 0; n < workers; n++) {
            String key = "redisson" + n;
            Thread thread = new Thread(() -> all.add(work(members, key, until)));
            thread.start();
            threads.add(thread);
        }
        for (Thread thread : threads) {
            thread.join();
        }
        return "cycles " + all.acquires.size() + " " + all.failed + " " + Measured.quantiles(all.acquires) + " "
                + Measured.quantiles(all.releases);
    }

    private static String answer(List<RedissonClient> members, String[] words) throws Exception {
        switch (words[0]) {
            case "acquire": {
                long ttl = Long.parseLong(words[2]), start = System.currentTimeMillis();
                lock = Locks.lock(members, words[1]);
                if (!lock.tryLock(0, ttl, TimeUnit.MILLISECONDS)) {
                    return "refused";
                }
                // Redisson computes no validity.
                long now = System.currentTimeMillis(), until = start + ttl - ttl / 100 - 2;
                return now < until ? "held " + now + " " + until : "refused";
            }
            case "cycles":
                return cycles(members, Integer.parseInt(words[1]), Long.parseLong(words[2]));
            case "example":
                return String.valueOf(Locks.reindex(members, words[1]));
            case "release":
                lock.unlock();
                return "released";
            default:
                return "unsupported";
        }
    }

    public static void main(String[] arguments) throws Exception {
        List<RedissonClient> members = new ArrayList<>();
        for (String url : System.getenv("REDLOCK_URLS").trim().split("\\s+")) {
            members.add(Locks.connect(url, System.getenv("REDLOCK_CA")));
        }
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String said;
            try {
                said = answer(members, line.split(" "));
            } catch (Exception error) { // the test reads the error
                said = "error " + error;
            }
            System.out.println(said.replace('\n', ' '));
        }
        System.exit(0);
    }
}
