import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
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
    /** One client per member: Redisson knows Redlock as a lock over the locks of several clients. */
    static RedissonClient connect(String url, String ca) throws Exception {
        URI uri = URI.create(url);
        String[] login = uri.getUserInfo().split(":", 2);
        Config config = new Config();
        config.setLazyInitialization(true); // starts although a member is away
        SingleServerConfig server = config.useSingleServer();
        server.setAddress(uri.getScheme() + "://" + uri.getHost() + ":" + uri.getPort());
        server.setUsername(login[0]).setPassword(login[1]);
        server.setTimeout(300).setConnectTimeout(500).setRetryAttempts(0);
        server.setConnectionMinimumIdleSize(1).setConnectionPoolSize(4);
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
        long deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(2_000 - 20 - 2); // less 1 % and 2 ms
        RedissonRedLock lock = lock(members, key);
        if (!lock.tryLock(0, 2_000, TimeUnit.MILLISECONDS)) {
            return false; // another client has it, or too few members answer
        }
        // Work, and stop at the deadline: Redisson does not compute it.
        lock.unlock(); // in the thread that has locked
        return System.nanoTime() < deadline;
    }
}
// [end]

/** Redisson for the end-to-end tests. Commands come on stdin, one per line; tests/e2e/libraries.rs says which. */
public class Client {
    private static RedissonRedLock lock;

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
            } catch (Exception error) { // the test reads what went wrong
                said = "error " + error;
            }
            System.out.println(said.replace('\n', ' '));
        }
        System.exit(0);
    }
}
