import java.net.URI;
import java.net.http.*;
import java.util.Optional;
import java.util.regex.Pattern;
import net.javacrumbs.shedlock.core.*;

/** A ShedLock LockProvider over an agent, which renews the lock for lockAtMostFor, also if the task outlives one ttl. */
public class AgentLockProvider implements LockProvider {
    private final HttpClient http = HttpClient.newHttpClient();
    private final String agent, namespace;
    private volatile String instance = "none";
    public AgentLockProvider(String agent, String namespace) { this.agent = agent; this.namespace = namespace; }

    @Override public synchronized Optional<SimpleLock> lock(LockConfiguration config) {
        String path = "/locks/" + namespace + "%2F" + config.getName(), times = "&holdFor="
            + config.getLockAtMostFor().toMillis() + "ms&minHold=" + config.getLockAtLeastFor().toMillis() + "ms";
        String reply = post(path + "/acquire?instance=" + instance + times);
        if ("NotServed".equals(field("reason", reply))) { // the agent has restarted
            instance = field("instance", post("/register"));
            reply = post(path + "/acquire?instance=" + instance + times);
        }
        String token = field("fencingToken", reply), release = path + "/release?instance=" + instance + "&token=" + token;
        return token.isEmpty() ? Optional.empty() : Optional.of(() -> post(release));
    }
    private String post(String path) {
        var request = HttpRequest.newBuilder(URI.create(agent + path)).header("X-Redlock", "1").timeout(java.time.Duration.ofSeconds(30)).POST(HttpRequest.BodyPublishers.noBody());
        try { return http.send(request.build(), HttpResponse.BodyHandlers.ofString()).body(); } catch (Exception e) { return ""; }
    }
    private static String field(String name, String json) { return Pattern.compile("\"" + name + "\":\"?([^\",}]+)").matcher(json).results().map(found -> found.group(1)).findFirst().orElse(""); }
}
