// Works while this instance leads. Its argument is the agent: http://127.0.0.1:4040
package main

import "encoding/json"
import "fmt"
import "net/http"
import "os"
import "time"

func ask(method, path string) (reply map[string]any) {
	request, _ := http.NewRequest(method, os.Args[1]+path, nil)
	request.Header.Set("X-Redlock", "1")
	if response, err := (&http.Client{Timeout: 2 * time.Second}).Do(request); err == nil {
		defer response.Body.Close()
		_ = json.NewDecoder(response.Body).Decode(&reply)
	}
	return reply
}

func main() {
	for instance := "none"; ; time.Sleep(200 * time.Millisecond) {
		asked := time.Now() // before the request, so that a delay only shortens the validity
		reply := ask("GET", "/leader?instance="+instance)
		if reply["reason"] == "NotServed" { // the application or the agent has just started
			instance, _ = ask("POST", "/register")["instance"].(string)
		} else if left, _ := reply["validForMs"].(float64); time.Since(asked) < time.Duration(left*1e6) {
			fmt.Printf("works with token %.0f\n", reply["fencingToken"]) // work only until validForMs have passed
		}
	}
}
