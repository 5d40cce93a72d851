import java.io.IOException;
import java.net.URI;
import java.net.URLEncoder;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Optional;
import java.util.regex.Pattern;

/**
 * A client of `redlock agent` in one file. It needs only Java 17. Copy it into your program, and use it from one thread of one process.
 *
 * <pre>
 * var agent = new RedlockAgent("http://127.0.0.1:4040");
 * var held = agent.acquire("shop/nightly", Duration.ofSeconds(30));
 * while (held.isPresent() &amp;&amp; held.get().renew()) step(held.get().token); // a short step, which ends before remaining() does
 * </pre>
 */
public class RedlockAgent implements AutoCloseable {
    /** The longest time that a request can take beyond its own wait. */
    private static final Duration MARGIN = Duration.ofSeconds(20);

    private final HttpClient http = HttpClient.newBuilder().connectTimeout(MARGIN).build();
    private final String address;
    private String instance = "none";

    public RedlockAgent(String address) {
        this.address = address;
    }

    /** A lock that this process holds. Work only while remaining() is above zero. */
    public class Held {
        public final long token;
        private final String path;
        private long deadline; // of System.nanoTime(), which stops while the machine is suspended

        private Held(String path, Answer answer, long asked) {
            this.path = path;
            token = answer.number("fencingToken");
            deadline = asked + answer.validity();
        }

        /** The time for which the lock is certain, as of the last answer. */
        public Duration remaining() {
            return Duration.ofNanos(Math.max(0, deadline - System.nanoTime()));
        }

        /** Renews the validity with a request to the agent. False if the lock is lost, or if its validity has ended without an answer. */
        public boolean renew() {
            long asked = System.nanoTime();
            try {
                var answer = ask("POST", path + "/renew", "&token=" + token, Duration.ZERO);
                if (answer.status == 200 && answer.number("fencingToken") == token) deadline = asked + answer.validity();
                else if (answer.status != 503) deadline = System.nanoTime();
            } catch (IOException unanswered) {
                // Without an answer the earlier validity stays in force.
            }
            return !remaining().isZero();
        }

        /** Releases the lock. Stop your work first. */
        public void release() throws IOException {
            deadline = System.nanoTime();
            ask("POST", path + "/release", "&token=" + token, Duration.ZERO);
        }
    }

    private record Answer(int status, String body) {
        String text(String name) {
            var found = Pattern.compile("\"" + name + "\":(?:\"((?:[^\"\\\\]|\\\\.)*)\"|(-?\\d+))").matcher(body);
            return !found.find() ? "" : found.group(1) != null ? found.group(1) : found.group(2);
        }

        long number(String name) {
            return text(name).isEmpty() ? 0 : Long.parseLong(text(name));
        }

        long validity() {
            return Duration.ofMillis(number("validForMs")).toNanos();
        }
    }

    /** The lock of the agent's option --lock or --election. Empty while this process does not lead. */
    public Optional<Held> leader() {
        long asked = System.nanoTime();
        try {
            var answer = served("GET", "/leader", "", Duration.ZERO);
            if (answer.status != 200) return Optional.empty();
            return Optional.of(new Held(path(answer.text("lock")), answer, asked)).filter(held -> !held.remaining().isZero());
        } catch (IOException unanswered) {
            return Optional.empty();
        }
    }

    /** Takes a lock `namespace/key`. Empty if another holder still has it after the wait (at most 60 s). */
    public Optional<Held> acquire(String lock, Duration wait) throws IOException {
        long asked = System.nanoTime();
        var answer = served("POST", path(lock) + "/acquire", "&wait=" + wait.toMillis() + "ms", wait);
        if (answer.text("reason").matches("HeldByOther|NotHeld|HeldBefore")) return Optional.empty();
        if (answer.status != 200) throw new IOException("the agent refused: " + answer.text("detail"));
        // The validity of this answer begins before the wait. One more request makes it begin now.
        return Optional.of(new Held(path(lock), answer, asked)).filter(Held::renew);
    }

    /** Releases all locks of this program. Call it when the program has ended its work. */
    @Override
    public void close() throws IOException {
        ask("POST", "/unregister", "", Duration.ZERO);
    }

    private static String path(String lock) {
        return "/locks/" + URLEncoder.encode(lock, StandardCharsets.UTF_8);
    }

    /** Sends a request as a registered instance, and registers it if needed. A restarted agent has no instances. */
    private Answer served(String method, String path, String query, Duration wait) throws IOException {
        var answer = ask(method, path, query, wait);
        if (!answer.text("reason").matches("NotServed|NotRegistered")) return answer;
        instance = ask("POST", "/register", null, Duration.ZERO).text("instance");
        return ask(method, path, query, wait);
    }

    private Answer ask(String method, String path, String query, Duration wait) throws IOException {
        var uri = URI.create(address + path + (query == null ? "" : "?instance=" + instance + query));
        var request = HttpRequest.newBuilder(uri).header("X-Redlock", "1").timeout(wait.plus(MARGIN));
        request.method(method, HttpRequest.BodyPublishers.noBody());
        try {
            var response = http.send(request.build(), HttpResponse.BodyHandlers.ofString());
            return new Answer(response.statusCode(), response.body());
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
            throw new IOException("interrupted", interrupted);
        }
    }

    /** Without a lock argument: works while it leads. With a lock: takes it, waits for a line of input, and releases it. */
    public static void main(String[] arguments) throws Exception {
        try (var agent = new RedlockAgent(arguments[0])) {
            for (; arguments.length == 1; Thread.sleep(200)) agent.leader().ifPresent(leads -> System.out.println("works with token " + leads.token));
            var held = agent.acquire(arguments[1], Duration.ofMillis(1500));
            if (held.isEmpty()) throw new IllegalStateException("taken");
            System.out.println("works with token " + held.get().token);
            System.in.read();
            if (!held.get().renew()) throw new IllegalStateException("lost");
        }
    }
}
